//! The environment templates run in: what transformers adds to Jinja, and limits, since a template is a program
//! from a file that nobody here has read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use regex::Regex;

use super::json;

/// Where a template's idea of the time comes from.
pub(crate) type Clock = fn() -> NaiveDateTime;

/// Steps a rendering may take; creating 64 bytes counts as one. Real templates take some dozens a message.
const FUEL: u64 = 5_000_000;
/// Nesting of blocks, macros and includes.
const RECURSION: usize = 200;

/// An environment that behaves as the one of transformers does.
pub(super) fn environment(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    // Python: nothing can be iterated that has no items, and `none` is no empty list.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // What a value prints is charged only once it is printed; a repeated list is small until then.
    environment.set_formatter(|output, state, value| {
        charge_items(state, value, RECURSION)?;
        minijinja::escape_formatter(output, state, value)
    });
    environment.add_filter("tojson", json::tojson);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: &str| -> Result<String, Error> {
        let mut text = String::new();
        write!(text, "{}", clock().format(format)).map_err(|_| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now: `{format}` is not a time format"))
        })?;
        Ok(text)
    });
    environment
}

/// Takes one step of fuel for every item in `value`, nested ones included, down to `depth` levels.
pub(super) fn charge_items(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply"));
    };
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        charge_items(state, &item, depth)?;
        if value.kind() == ValueKind::Map {
            charge_items(state, &value.get_item(&item)?, depth)?;
        }
    }
    Ok(())
}

/// The template without `{% generation %}` marks, which only say what a loss would be computed on. They open a
/// scope, so a block that does the same takes their place.
pub(super) fn without_generation_tags(source: &str) -> Cow<'_, str> {
    static TAG: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").ok());
    match &*TAG {
        Some(tag) => tag.replace_all(source, "{%${1} ${2}with ${3}%}"),
        None => Cow::Borrowed(source),
    }
}

/// A template's error in one line, with what caused it and the line of the template.
pub(super) fn message(error: &Error) -> String {
    let mut message = match error.kind() {
        ErrorKind::OutOfFuel => "takes more than 5,000,000 steps: it does not seem to end".to_owned(),
        _ => error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
    };
    if let Some(line) = error.line() {
        let _ = write!(message, " (line {line} of the template)");
    }
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
