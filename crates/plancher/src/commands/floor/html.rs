//! `--html`: one page with everything that was computed.

use super::page::{frame, paragraph, table};
use super::report::{crossings, machine_line, model_line, not_counted, pass_rows, regime_name, speculated, verdict};
use super::{Outcome, chart, explain, gap, roofline, sweep};

/// The page.
pub(super) fn page(outcome: &Outcome) -> String {
    let subject = &outcome.subject;
    let title = format!("{} on {}", subject.shape.name, subject.hardware.name);
    let mut body = format!("<h1>{}</h1>\n", chart::escape(&title));
    body.push_str(&paragraph(&model_line(&subject.shape), "faint"));
    body.push_str(&paragraph(&machine_line(&subject.hardware, subject.setting.tensor_parallel), "faint"));
    body.push_str(&format!("<div class=\"verdict\">{}</div>\n", chart::escape(&verdict(&outcome.floor))));
    if let Some(crossover) = &outcome.crossover {
        body.push_str(&paragraph(crossings(crossover, outcome.floor.regime).trim(), ""));
    }
    body.push_str("<h2>Roofline and sweeps</h2>\n<div class=\"charts\">\n");
    for chart in roofline::charts(outcome) {
        body.push_str(&chart.svg());
    }
    body.push_str("</div>\n");
    for floor in std::iter::once(&outcome.floor).chain(&outcome.prefill) {
        let (header, rows) = pass_rows(floor);
        body.push_str(&format!(
            "<h2>{}</h2>\n{}",
            chart::escape(&regime_name(floor.regime)),
            table(&header, &rows, None)
        ));
        body.push_str(&paragraph(&verdict(floor), "faint"));
    }
    if let Some(speculation) = &outcome.speculation {
        let lines: String = speculated(speculation).lines().map(|line| paragraph(line.trim(), "")).collect();
        body.push_str(&format!("<h2>Speculation</h2>\n{lines}"));
    }
    if let Some(found) = &outcome.gap {
        let (heading, header, rows) = gap::parts(found);
        body.push_str(&format!("<h2>The gap</h2>\n{}{}", paragraph(&heading, ""), table(&header, &rows, Some(2))));
    }
    for sweep in &outcome.sweeps {
        let (header, rows) = sweep::rows(sweep);
        body.push_str(&format!("<h2>Sweep over {}</h2>\n{}", sweep.variable.name(), table(&header, &rows, None)));
    }
    body.push_str("<h2>Not counted</h2>\n<ul>\n");
    for note in not_counted(subject, &outcome.floor) {
        body.push_str(&format!("<li>{}</li>\n", chart::escape(&note)));
    }
    body.push_str("</ul>\n");
    body.push_str(&format!(
        "<details><summary>Formulas and conventions</summary><pre>{}</pre></details>\n",
        chart::escape(explain::outcome(outcome).trim())
    ));
    frame(&format!("Floor of {title}"), &body)
}
