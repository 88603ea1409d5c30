//! The environment templates run in: what transformers adds to Jinja, and limits, since a template is a program
//! from a file that nobody here has read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::LazyLock;

use chrono::NaiveDateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, machinery};
use regex::Regex;

use super::guard::{self, Program};
use super::{charge, json};

/// Where a template's idea of the time comes from.
pub(crate) type Clock = fn() -> NaiveDateTime;

/// Steps any rendering may take; creating 64 bytes counts as one.
const FUEL: u64 = 500_000;
/// Steps added for every value of the conversation. Templates take a few hundred a message, and some look back
/// at all messages from every one.
const FUEL_OF_VALUE: u64 = 2000;
/// Steps added for every byte of its strings: a pass over a string costs a few hundredths.
const FUEL_OF_BYTE: u64 = 4;
/// Nesting of blocks, macros and includes.
const RECURSION: usize = 200;

/// An environment that behaves as the one of transformers does.
pub(super) fn environment(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_recursion_limit(RECURSION);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    charge::bound(&mut environment);
    // Python: nothing can be iterated that has no items, and `none` is no empty list.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // What a value prints is charged only once it is printed; a repeated list is small until then.
    environment.set_formatter(|output, state, value| {
        charge::charge(state, value)?;
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

/// Fuel for a conversation: in proportion to what the caller gives, whatever the template does with it.
pub(super) fn fuel(variables: &serde_json::Value) -> u64 {
    let nested: u64 = match variables {
        serde_json::Value::Array(items) => items.iter().map(fuel).sum(),
        serde_json::Value::Object(map) => map.values().map(fuel).sum(),
        serde_json::Value::String(text) => text.len() as u64 * FUEL_OF_BYTE,
        _ => 0,
    };
    nested.saturating_add(FUEL_OF_VALUE)
}

/// Renders a template.
pub(super) fn render(
    environment: &Environment<'_>,
    name: &str,
    source: &str,
    variables: &serde_json::Value,
) -> Result<String, Error> {
    let mut environment = environment.clone();
    environment.set_fuel(Some(FUEL + fuel(variables)));
    let program = guard::compile(name, source, environment.syntax())?;
    let mut prompt = String::new();
    let mut output = machinery::make_string_output(&mut prompt);
    let variables = Value::from(Serde(variables));
    let Program { instructions, blocks } = &program;
    machinery::eval(&environment, instructions, variables, blocks, &mut output, AutoEscape::None)?;
    drop(output);
    Ok(prompt)
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
        ErrorKind::OutOfFuel => "takes far more steps than the conversation needs: it does not seem to end".to_owned(),
        _ => error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
    };
    if let Some(line) = error.line() {
        let _ = write!(message, " (line {line} of the template)");
    }
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
