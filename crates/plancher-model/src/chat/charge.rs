//! Fuel for what the engine does not charge: walking values inside one operation. A list can be long without
//! having been made (`[0] * 99999999`, `x + x`), and a small one can hold itself many times over (`[x, x]`).

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, filters, tests};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Nesting of values; what is nested deeper cannot even be dropped safely.
pub(super) const MAX_DEPTH: usize = 100;
/// Items that one step of fuel pays for.
const ITEMS_PER_STEP: u64 = 4;
/// Bytes of a string that count as one item.
const BYTES_PER_ITEM: usize = 256;
/// The widest field of `'{:9}'.format(…)`, in digits.
const WIDTH_DIGITS: usize = 3;

/// Charges for every item in `value`, nested ones included.
pub(super) fn charge(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let mut walk = Walk { state, items: 0 };
    walk.visit(value, MAX_DEPTH)?;
    walk.settle()
}

struct Walk<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    /// Items that were not charged yet.
    items: u64,
}

impl Walk<'_, '_, '_> {
    fn visit(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if let Some(text) = value.as_str() {
            self.items += (text.len() / BYTES_PER_ITEM) as u64;
        }
        self.items += 1;
        if self.items >= 64 {
            self.settle()?;
        }
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            return Ok(());
        }
        let Some(depth) = depth.checked_sub(1) else { return Err(refused("a value is nested too deeply")) };
        for item in value.try_iter()? {
            self.visit(&item, depth)?;
            if value.kind() == ValueKind::Map {
                self.visit(&value.get_item(&item)?, depth)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.state.consume_fuel(self.items / ITEMS_PER_STEP)?;
        self.items %= ITEMS_PER_STEP;
        Ok(())
    }
}

pub(super) fn refused(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
}

/// Filters that walk their arguments, by the name under which the engine's own is kept.
macro_rules! charged_filters {
    ($environment:ident, $($filter:ident),*) => {$(
        $environment.add_filter(concat!(stringify!($filter), "!"), filters::$filter);
        $environment.add_filter(stringify!($filter), |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
            let arguments = arguments.into_values();
            arguments.iter().try_for_each(|argument| charge(state, argument))?;
            state.apply_filter(concat!(stringify!($filter), "!"), &arguments)
        });
    )*};
}

/// Tests that walk their arguments, likewise.
macro_rules! charged_tests {
    ($environment:ident, $($names:expr => $test:ident),*) => {$(
        for name in $names {
            $environment.add_test(name, |state: &State<'_, '_>, value: &Value, other: &Value| {
                charge(state, value)?;
                charge(state, other)?;
                Ok::<bool, Error>(tests::$test(value, other))
            });
        }
    )*};
}

/// Puts what charges in the place of what does not, takes away what Jinja does not have, and adds the filters
/// and tests that [`guarded`](super::guard::guarded) calls.
pub(super) fn bound(environment: &mut Environment<'static>) {
    charged_filters!(
        environment,
        capitalize,
        dictsort,
        format,
        groupby,
        join,
        lower,
        max,
        min,
        pprint,
        replace,
        round,
        sort,
        string,
        title,
        trim,
        unique,
        upper
    );
    environment.add_filter("indent!", filters::indent);
    environment.add_filter("indent", indent);
    environment.add_filter("sum!", filters::sum);
    environment.add_filter("sum", sum);
    for name in ["bool", "chain", "escape", "e", "lines", "split", "zip"] {
        environment.remove_filter(name);
    }
    charged_tests!(
        environment, ["eq", "equalto", "=="] => is_eq, ["ne", "!="] => is_ne, ["lt", "lessthan", "<"] => is_lt,
        ["le", "<="] => is_le, ["gt", "greaterthan", ">"] => is_gt, ["ge", ">="] => is_ge, ["sameas"] => is_sameas
    );
    environment.add_test("in", |state: &State<'_, '_>, value: &Value, other: &Value| {
        charge(state, value)?;
        charge(state, other)?;
        tests::is_in(state, value, other)
    });
    for name in ["endingwith", "lower", "startingwith", "upper"] {
        environment.remove_test(name);
    }
    environment.remove_global("debug");
    environment.set_unknown_method_callback(method);
    environment.add_test("charged!", |state: &State<'_, '_>, value: &Value| charge(state, value).map(|()| true));
    environment.add_filter("made!", made);
    environment.add_filter("map!", map);
    environment.add_test("plain!", plain);
    environment.add_filter("slice!", slice);
}

/// A new value: as long as it says, for lazy ones would be nested without end.
fn made(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    charge(state, &value)?;
    Ok(if value.kind() == ValueKind::Iterable { value.try_iter()?.collect::<Vec<_>>().into() } else { value })
}

/// A mapping of keys and values in turn. As in Python, lists are no keys.
#[expect(clippy::needless_pass_by_value, reason = "filters are given their arguments so")]
fn map(state: &State<'_, '_>, items: Rest<Value>) -> Result<Value, Error> {
    if items.iter().step_by(2).any(|key| key.as_object().is_some()) {
        return Err(refused("a list or a mapping cannot be a key"));
    }
    let map: Value = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    charge(state, &map)?;
    Ok(map)
}

/// What a namespace may hold: nothing that could come to hold the namespace.
fn plain(state: &State<'_, '_>, value: &Value) -> Result<bool, Error> {
    fn is_plain(value: &Value) -> Result<bool, Error> {
        let Some(object) = value.as_object() else { return Ok(true) };
        let name = object.type_name();
        if ["Namespace", "Macro", "Loop", "Closure", "Module"].iter().any(|end| name.ends_with(end)) {
            return Ok(false);
        }
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            return Ok(true);
        }
        for item in value.try_iter()? {
            if !is_plain(&item)? || value.kind() == ValueKind::Map && !is_plain(&value.get_item(&item)?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
    charge(state, value)?;
    if is_plain(value)? { Ok(true) } else { Err(refused("a namespace can only hold data")) }
}

/// `text | indent(width, first, blank)`, paid for before it is made.
fn indent(state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let arguments = arguments.into_values();
    arguments.iter().try_for_each(|argument| charge(state, argument))?;
    let (text, width, _first, _blank, options): (Value, Option<Value>, Option<Value>, Option<Value>, Kwargs) =
        from_args(&arguments)?;
    let width = if width.is_some() { width } else { options.get("width")? };
    let width = width.and_then(|width| u64::try_from(width).ok()).unwrap_or(4);
    let lines = text.to_string().split('\n').count() as u64 + 1;
    state.consume_fuel(width.saturating_mul(lines) / 64)?;
    state.apply_filter("indent!", &arguments)
}

/// `values | sum(attribute, start)`. As in Python, strings are not summed: each sum would be copied for the next.
fn sum(state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let arguments = arguments.into_values();
    arguments.iter().try_for_each(|argument| charge(state, argument))?;
    let (_values, _attribute, start, options): (Value, Option<Value>, Option<Value>, Kwargs) = from_args(&arguments)?;
    let start = if start.is_some() { start } else { options.get("start")? };
    if start.is_some_and(|start| start.as_str().is_some()) {
        return Err(refused("sum: strings cannot be summed"));
    }
    state.apply_filter("sum!", &arguments)
}

/// `value[start:stop:step]` as Python has it.
fn slice(state: &State<'_, '_>, value: &Value, start: &Value, stop: &Value, step: &Value) -> Result<Value, Error> {
    let index = |bound: &Value| -> Result<Option<i64>, Error> {
        if bound.is_none() { Ok(None) } else { i64::try_from(bound.clone()).map(Some) }
    };
    let (start, stop, step) = (index(start)?, index(stop)?, index(step)?.unwrap_or(1));
    if step == 0 {
        return Err(refused("cannot slice by step size of 0"));
    }
    if let Some(text) = value.as_str() {
        let characters: Vec<char> = text.chars().collect();
        let chosen = positions(start, stop, step, characters.len());
        return Ok(Value::from(chosen.map(|position| characters[position]).collect::<String>()));
    }
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                state.consume_fuel(u64::from(items.len() % 4 == 0))?;
                items.push(item);
            }
            let chosen = positions(start, stop, step, items.len()).map(|position| items[position].clone());
            let is_tuple = value.downcast_object_ref::<Tuple>().is_some();
            Ok(if is_tuple {
                Tuple::from(chosen.collect::<Vec<_>>()).into()
            } else {
                chosen.collect::<Vec<_>>().into()
            })
        }
        kind => Err(refused(format!("value of type {kind} cannot be sliced"))),
    }
}

/// The positions that a slice of `length` items takes.
fn positions(start: Option<i64>, stop: Option<i64>, step: i64, length: usize) -> impl Iterator<Item = usize> {
    let length = length as i128;
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: i64| {
        let bound = i128::from(bound);
        (if bound < 0 { bound + length } else { bound }).clamp(low, high)
    };
    let first = start.map_or(if step > 0 { low } else { high }, clamp);
    let end = stop.map_or(if step > 0 { high } else { low }, clamp);
    let step = i128::from(step);
    std::iter::successors(Some(first), move |position| Some(position + step))
        .take_while(move |&position| if step > 0 { position < end } else { position > end })
        .filter_map(|position| usize::try_from(position).ok())
}

/// Python's methods, paid for in advance where the result is larger than what it is made from.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    for argument in arguments {
        charge(state, argument)?;
    }
    if let Some(text) = value.as_str() {
        let parts = match name {
            "split" => match arguments.first().and_then(Value::as_str) {
                Some(separator) => text.matches(separator).count(),
                None => text.split_whitespace().count(),
            },
            "splitlines" => text.lines().count(),
            "format" => {
                let mut runs = text.split(|character: char| !character.is_ascii_digit());
                if runs.any(|digits| digits.len() > WIDTH_DIGITS) {
                    return Err(refused("format: a field is too wide"));
                }
                text.len().saturating_mul(10)
            }
            _ => 0,
        };
        state.consume_fuel(parts as u64)?;
    } else if value.kind() == ValueKind::Seq {
        charge(state, value)?;
    }
    unknown_method_callback(state, value, name, arguments)
}
