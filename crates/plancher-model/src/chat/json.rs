//! `tojson` as Python's `json.dumps` writes it: tool definitions reach the model in exactly these bytes.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::charge::charge;

/// The arguments of `json.dumps` that templates use.
struct Style {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

#[expect(clippy::needless_pass_by_value, reason = "filters are given their arguments so")]
/// The filter: `value | tojson(indent=2, ensure_ascii=False, separators=(',', ':'), sort_keys=True)`.
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(width) => match width.as_i64() {
            Some(width @ 0..=64) => Some(" ".repeat(width as usize)),
            _ => return Err(refused(&format!("indent={width} is not an indentation"))),
        },
    };
    let separators: Option<Value> = options.get("separators")?;
    let (item_separator, key_separator) = match separators.filter(|separators| !separators.is_none()) {
        // Python leaves the space behind a comma away where lines end.
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        Some(pair) => {
            let parts: Vec<Value> = pair.try_iter()?.collect();
            let [item, key] = parts.as_slice() else { return Err(refused("separators must be two strings")) };
            (item.to_string(), key.to_string())
        }
    };
    let style = Style {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
    };
    options.assert_all_used()?;
    charge(state, value)?;
    let mut output = String::new();
    style.write(value, 0, &mut output)?;
    Ok(output)
}

fn refused(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {problem}"))
}

impl Style {
    fn write(&self, value: &Value, depth: usize, output: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => output.push_str("null"),
            ValueKind::Bool => output.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => output.push_str(&value.to_string()),
            ValueKind::Number => output.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), output),
            ValueKind::Seq | ValueKind::Iterable => {
                output.push('[');
                let mut empty = true;
                for item in value.try_iter()? {
                    self.separate(&mut empty, depth + 1, output);
                    self.write(&item, depth + 1, output)?;
                }
                self.close(empty, ']', depth, output);
            }
            ValueKind::Map => {
                output.push('{');
                let mut empty = true;
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                for key in keys {
                    self.separate(&mut empty, depth + 1, output);
                    match key.as_str() {
                        Some(text) => self.string(text, output),
                        None => self.string(&key.to_string(), output),
                    }
                    output.push_str(&self.key_separator);
                    self.write(&value.get_item(&key)?, depth + 1, output)?;
                }
                self.close(empty, '}', depth, output);
            }
            other => return Err(refused(&format!("a value of type {other} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn separate(&self, empty: &mut bool, depth: usize, output: &mut String) {
        if !std::mem::take(empty) {
            output.push_str(&self.item_separator);
        }
        self.new_line(depth, output);
    }

    fn close(&self, empty: bool, bracket: char, depth: usize, output: &mut String) {
        if !empty {
            self.new_line(depth, output);
        }
        output.push(bracket);
    }

    fn new_line(&self, depth: usize, output: &mut String) {
        if let Some(indent) = &self.indent {
            output.push('\n');
            (0..depth).for_each(|_| output.push_str(indent));
        }
    }

    fn string(&self, text: &str, output: &mut String) {
        output.push('"');
        for character in text.chars() {
            match character {
                '"' => output.push_str("\\\""),
                '\\' => output.push_str("\\\\"),
                '\n' => output.push_str("\\n"),
                '\r' => output.push_str("\\r"),
                '\t' => output.push_str("\\t"),
                '\u{8}' => output.push_str("\\b"),
                '\u{c}' => output.push_str("\\f"),
                other if other < ' ' || (self.ensure_ascii && !matches!(other, ' '..='~')) => {
                    for unit in other.encode_utf16(&mut [0; 2]) {
                        let _ = write!(output, "\\u{unit:04x}");
                    }
                }
                other => output.push(other),
            }
        }
        output.push('"');
    }
}

/// A float as Python's `repr` writes it.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) { format!("{value:?}") } else { format!("{mantissa}e{exponent:+03}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(expression: &str) -> String {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", tojson);
        let expression = environment.compile_expression(expression).unwrap();
        expression.eval(()).map_or_else(|e| format!("error: {}", e.detail().unwrap_or_default()), |v| v.to_string())
    }

    /// The right-hand sides are what Python 3 prints for the same calls of `json.dumps`.
    #[test]
    fn values_are_written_as_python_writes_them() {
        let cases = [
            (r#"{"b": [1, 2.0, true, none], "a": {}} | tojson"#, r#"{"b": [1, 2.0, true, null], "a": {}}"#),
            (r#"{"b": 1, "a": []} | tojson(sort_keys=true)"#, r#"{"a": [], "b": 1}"#),
            (r#"{"b": [1, {}], "a": 2} | tojson(indent=2)"#, "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": 2\n}"),
            (r#"[1, {"a": 2}] | tojson(separators=(",", ":"))"#, r#"[1,{"a":2}]"#),
            (r#""<a href='é'>🦙" | tojson"#, r#""<a href='é'>🦙""#),
            (r#""é🦙\n" | tojson(ensure_ascii=true)"#, r#""\u00e9\ud83e\udd99\n""#),
            ("[1e16, 1.5e-7, 0.0001, 123456.75, 1e22] | tojson", "[1e+16, 1.5e-07, 0.0001, 123456.75, 1e+22]"),
        ];
        for (expression, expected) in cases {
            assert_eq!(render(expression), expected, "{expression}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        insta::assert_snapshot!(render("undefined_name | tojson"), @"error: tojson: a value of type undefined cannot be written as JSON");
        insta::assert_snapshot!(render("[1] | tojson(indent=-1)"), @"error: tojson: indent=-1 is not an indentation");
        insta::assert_snapshot!(render("[1] | tojson(separators=[1])"), @"error: tojson: separators must be two strings");
        assert!(render("[1] | tojson(no_such=1)").starts_with("error: "));
    }
}
