//! README's generated tables: everything between `<!-- evidence PREFIX -->` and `<!-- /evidence -->` is rewritten from
//! the figures whose names start with the prefix. Words after the prefix choose among them: `<!-- evidence h200/ mega -->`
//! shows those with a part `mega` in their names, `<!-- evidence h200/ -mega -->` those without.

use std::cmp::Ordering;
use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::figure::{Figure, number};
use super::record::Bar;

const OPEN: &str = "<!-- evidence ";
const CLOSE: &str = "<!-- /evidence -->";

/// `text` with every table rewritten.
pub(crate) fn with_tables(text: &str, figures: &[Figure]) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let (before, marked) = rest.split_at(start);
        let Some(marker_end) = marked.find("-->") else {
            anyhow::bail!("README.md: a marker `{OPEN}` has no end");
        };
        let selection = marked[OPEN.len()..marker_end].trim();
        let Some(close) = marked.find(CLOSE) else { anyhow::bail!("README.md: `{OPEN}{selection} -->` is not closed") };
        let _ = write!(out, "{before}{OPEN}{selection} -->\n{}{CLOSE}", table(&select(figures, selection)?));
        rest = &marked[close + CLOSE.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The figures that a marker's `PREFIX WORD...` chooses, smaller numbers in their names first.
fn select<'a>(figures: &'a [Figure], selection: &str) -> Result<Vec<&'a Figure>> {
    let mut words = selection.split_whitespace();
    let prefix = words.next().unwrap_or_default();
    let mut chosen: Vec<&Figure> = figures.iter().filter(|f| f.name.starts_with(prefix)).collect();
    ensure!(!chosen.is_empty(), "README.md: no evidence has a name that starts with `{prefix}`");
    for word in words {
        let (part, wanted) = word.strip_prefix('-').map_or((word, true), |part| (part, false));
        chosen.retain(|figure| figure.name.split('/').any(|of_name| of_name == part) == wanted);
    }
    chosen.sort_by(|a, b| by_number(&a.name, &b.name));
    Ok(chosen)
}

/// The order of names in which `ctx32` comes before `ctx2048`.
fn by_number(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (a_digits, b_digits) = (digits(a), digits(b));
        let order = if a_digits > 0 && b_digits > 0 {
            let (a_number, b_number) = (a[..a_digits].trim_start_matches('0'), b[..b_digits].trim_start_matches('0'));
            (a, b) = (&a[a_digits..], &b[b_digits..]);
            a_number.len().cmp(&b_number.len()).then(a_number.cmp(b_number))
        } else {
            let (Some(a_first), Some(b_first)) = (a.chars().next(), b.chars().next()) else {
                return a.len().cmp(&b.len());
            };
            (a, b) = (&a[a_first.len_utf8()..], &b[b_first.len_utf8()..]);
            a_first.cmp(&b_first)
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn table(figures: &[&Figure]) -> String {
    if figures.is_empty() {
        return "Not measured yet.\n".to_owned();
    }
    let mut out = String::from(
        "| figure | median | 95 % interval | bar | compared with | n, date |\n|---|---|---|---|---|---|\n",
    );
    for figure in figures {
        let bar = match (figure.bar, figure.reached()) {
            (Some(Bar::AtLeast(bar)), Some(reached)) => format!("≥ {} {}", number(bar), verdict(reached)),
            (Some(Bar::AtMost(bar)), Some(reached)) => format!("≤ {} {}", number(bar), verdict(reached)),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "| {}{} | {} {} | {} … {} | {bar} | {} | {}, {} |",
            figure.title,
            if figure.stale { " (stale: the code has changed since)" } else { "" },
            number(figure.value),
            figure.unit,
            number(figure.interval.0),
            number(figure.interval.1),
            figure.baseline.as_deref().unwrap_or(""),
            figure.samples,
            figure.date.get(..10).unwrap_or(&figure.date),
        );
    }
    out
}

fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "**missed**" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(stale: bool) -> Figure {
        Figure {
            name: "cpu/a/b".into(),
            title: "decode of a".into(),
            unit: "x".into(),
            value: 1.25,
            interval: (1.2, 1.3),
            samples: 7,
            baseline: Some("other".into()),
            bar: Some(Bar::AtLeast(1.5)),
            stale,
            date: "2026-11-29T10:00:00Z".into(),
        }
    }

    #[test]
    fn table_is_rewritten_and_the_rest_kept() {
        let text = "before\n<!-- evidence cpu/ -->\nold\n<!-- /evidence -->\nafter";
        let new = with_tables(text, &[figure(false)]).unwrap();
        assert!(new.starts_with("before\n<!-- evidence cpu/ -->\n| figure"));
        assert!(new.contains("| decode of a | 1.25 x | 1.20 … 1.30 | ≥ 1.50 **missed** | other | 7, 2026-11-29 |"));
        assert!(new.ends_with("<!-- /evidence -->\nafter"));
        assert_eq!(with_tables(&new, &[figure(false)]).unwrap(), new);
    }

    #[test]
    fn words_choose_by_parts_of_names_and_numbers_order_them() {
        let named = |name: &str| Figure { name: name.into(), title: name.replace('/', " "), ..figure(false) };
        let figures = [
            named("h200/a/ctx2048/graph/ms"),
            named("h200/a/ctx2048/mega/ms"),
            named("h200/a/ctx32/graph/ms"),
            named("h200/a/ctx32/mega/ms"),
            named("h200/megaton/ms"),
        ];
        let shown = |selection: &str| -> Vec<&str> {
            select(&figures, selection).unwrap().iter().map(|figure| figure.name.as_str()).collect()
        };
        assert_eq!(shown("h200/ mega"), ["h200/a/ctx32/mega/ms", "h200/a/ctx2048/mega/ms"]);
        assert_eq!(shown("h200/ -mega"), ["h200/a/ctx32/graph/ms", "h200/a/ctx2048/graph/ms", "h200/megaton/ms"]);
        assert_eq!(shown("h200/ mega ctx32"), ["h200/a/ctx32/mega/ms"]);
        let none = with_tables("<!-- evidence h200/ lab -->\nold\n<!-- /evidence -->", &figures).unwrap();
        assert_eq!(none, "<!-- evidence h200/ lab -->\nNot measured yet.\n<!-- /evidence -->");
        assert_eq!(by_number("a10b", "a9b"), Ordering::Greater);
        assert_eq!(by_number("a9b", "a9"), Ordering::Greater);
        assert_eq!(by_number("q4_1", "q4_k"), Ordering::Less);
    }

    #[test]
    fn stale_figures_say_so_and_unknown_prefixes_fail() {
        let text = "<!-- evidence cpu/ --><!-- /evidence -->";
        assert!(with_tables(text, &[figure(true)]).unwrap().contains("(stale: the code has changed since)"));
        assert!(with_tables("<!-- evidence gpu/ --><!-- /evidence -->", &[figure(false)]).is_err());
    }
}
