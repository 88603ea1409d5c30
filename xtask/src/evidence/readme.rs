//! README's generated tables: everything between `<!-- evidence PREFIX -->` and `<!-- /evidence -->` is rewritten from
//! the figures whose names start with the prefix.

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
        let prefix = marked[OPEN.len()..marker_end].trim();
        let Some(close) = marked.find(CLOSE) else { anyhow::bail!("README.md: `{OPEN}{prefix} -->` is not closed") };
        let chosen: Vec<&Figure> = figures.iter().filter(|f| f.name.starts_with(prefix)).collect();
        ensure!(!chosen.is_empty(), "README.md: no evidence has a name that starts with `{prefix}`");
        let _ = write!(out, "{before}{OPEN}{prefix} -->\n{}{CLOSE}", table(&chosen));
        rest = &marked[close + CLOSE.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

fn table(figures: &[&Figure]) -> String {
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
    fn stale_figures_say_so_and_unknown_prefixes_fail() {
        let text = "<!-- evidence cpu/ --><!-- /evidence -->";
        assert!(with_tables(text, &[figure(true)]).unwrap().contains("(stale: the code has changed since)"));
        assert!(with_tables("<!-- evidence gpu/ --><!-- /evidence -->", &[figure(false)]).is_err());
    }
}
