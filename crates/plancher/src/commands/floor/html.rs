//! `--html`: one page with everything that was computed.

use std::fmt::Write as _;

use super::report::{crossings, machine_line, model_line, not_counted, pass_rows, regime_name, speculated, verdict};
use super::{Outcome, explain, gap, roofline, sweep};
use crate::drawing::chart;
use crate::drawing::page::{frame, paragraph, table};

/// The page.
pub(super) fn page(outcome: &Outcome) -> String {
    let subject = &outcome.subject;
    let title = format!("{} on {}", subject.shape.name, subject.hardware.name);
    let mut body = format!("<h1>{}</h1>\n", chart::escape(&title));
    body.push_str(&paragraph(&model_line(&subject.shape), "faint"));
    body.push_str(&paragraph(&machine_line(&subject.hardware, subject.setting.tensor_parallel), "faint"));
    let _ = writeln!(body, "<div class=\"verdict\">{}</div>", chart::escape(&verdict(&outcome.floor)));
    if let Some(crossover) = &outcome.crossover {
        body.push_str(&paragraph(crossings(crossover, outcome.floor.regime).trim(), ""));
    }
    body.push_str("<h2>Roofline and sweeps</h2>\n<div class=\"charts\">\n");
    for chart in roofline::charts(outcome) {
        body.push_str(&chart.drawing().svg());
    }
    body.push_str("</div>\n");
    for floor in std::iter::once(&outcome.floor).chain(&outcome.prefill) {
        let (header, rows) = pass_rows(floor);
        let _ = write!(body, "<h2>{}</h2>\n{}", chart::escape(&regime_name(floor.regime)), table(&header, &rows, None));
        body.push_str(&paragraph(&verdict(floor), "faint"));
    }
    if let Some(speculation) = &outcome.speculation {
        let lines: String = speculated(speculation).lines().map(|line| paragraph(line.trim(), "")).collect();
        let _ = write!(body, "<h2>Speculation</h2>\n{lines}");
    }
    if let Some(found) = &outcome.gap {
        let (heading, header, rows) = gap::parts(found);
        let _ = write!(body, "<h2>The gap</h2>\n{}{}", paragraph(&heading, ""), table(&header, &rows, Some(2)));
    }
    for sweep in &outcome.sweeps {
        let (header, rows) = sweep::rows(sweep);
        let _ = write!(body, "<h2>Sweep over {}</h2>\n{}", sweep.variable.name(), table(&header, &rows, None));
    }
    body.push_str("<h2>Not counted</h2>\n<ul>\n");
    for note in not_counted(subject, &outcome.floor) {
        let _ = writeln!(body, "<li>{}</li>", chart::escape(&note));
    }
    body.push_str("</ul>\n");
    let _ = writeln!(
        body,
        "<details><summary>Formulas and conventions</summary><pre>{}</pre></details>",
        chart::escape(explain::outcome(outcome).trim())
    );
    frame(&format!("Floor of {title}"), &body)
}
