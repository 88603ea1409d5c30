//! Horizontal bars as SVG text: one a thing that was measured, with the interval of its median, and lines across all of
//! them for what they are held against. Numbers stand beside the bars and are shown in full while the pointer is on one.

use std::fmt::Write as _;

use super::chart::{Axis, Ink, escape};
use super::{Drawing, WIDTH};

const LEFT: f64 = 158.0;
const RIGHT: f64 = 66.0;
const TOP: f64 = 34.0;
const ROW: f64 = 26.0;
const BOTTOM: f64 = 40.0;
const LEGEND_LINE: f64 = 19.0;
/// Characters of a label that have room beside the bars.
const LABEL: usize = 24;

/// One bar.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// Of the median.
    pub(crate) interval: (f64, f64),
    /// Beside the bar.
    pub(crate) text: String,
    /// Shown while the pointer is on the bar.
    pub(crate) hover: String,
    pub(crate) ink: Ink,
    /// Hollow: what it shows does not count (stale, or not passed).
    pub(crate) hollow: bool,
}

/// A line across all bars.
pub(crate) struct Rule {
    pub(crate) at: f64,
    /// In the legend.
    pub(crate) label: String,
    pub(crate) dashed: bool,
}

/// A drawing of bars.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) axis: String,
    pub(crate) rows: Vec<Bar>,
    pub(crate) rules: Vec<Rule>,
}

impl Bars {
    /// The drawing.
    pub(crate) fn drawing(&self) -> Drawing {
        let bottom = TOP + ROW * self.rows.len() as f64;
        let height = bottom + BOTTOM + LEGEND_LINE * self.rules.len() as f64;
        let top =
            self.rows.iter().map(|bar| bar.interval.1.max(bar.value)).chain(self.rules.iter().map(|rule| rule.at));
        let axis = Axis::from_zero(self.axis.clone(), top.fold(0.0, f64::max));
        let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * axis.share(value);
        let mut out = format!(
            "<text x=\"8\" y=\"20\" fill=\"var(--ink)\" font-weight=\"600\" font-size=\"14\">{}</text>\n",
            escape(&self.title)
        );
        for (tick, name) in &axis.ticks {
            let _ = writeln!(
                out,
                "<line x1=\"{0:.1}\" y1=\"{TOP}\" x2=\"{0:.1}\" y2=\"{bottom}\" stroke=\"var(--grid)\"/><text x=\"{0:.1}\" \
                 y=\"{1:.0}\" fill=\"var(--faint)\" text-anchor=\"middle\">{name}</text>",
                x(*tick),
                bottom + 16.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"var(--faint)\" text-anchor=\"middle\">{}</text>",
            x(axis.range.1 / 2.0),
            bottom + 33.0,
            escape(&axis.label)
        );
        for (index, bar) in self.rows.iter().enumerate() {
            draw_bar(&mut out, bar, TOP + ROW * index as f64, x);
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let dash = if rule.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let stroke = format!("stroke=\"var(--ink)\" stroke-width=\"1.5\"{dash}");
            let y = bottom + BOTTOM + 6.0 + LEGEND_LINE * index as f64;
            let _ = writeln!(
                out,
                "<line x1=\"{0:.1}\" y1=\"{TOP}\" x2=\"{0:.1}\" y2=\"{bottom}\" {stroke}/><line x1=\"16\" y1=\"{y:.0}\" \
                 x2=\"40\" y2=\"{y:.0}\" {stroke}/><text x=\"46\" y=\"{1:.0}\" fill=\"var(--ink)\">{2}</text>",
                x(rule.at),
                y + 4.0,
                escape(&rule.label)
            );
        }
        Drawing { title: self.title.clone(), height, body: out }
    }
}

fn draw_bar(out: &mut String, bar: &Bar, y: f64, x: impl Fn(f64) -> f64) {
    let middle = y + ROW / 2.0;
    let (start, end) = (x(0.0), x(bar.value));
    let (fill, ink) = if bar.hollow { ("none", "var(--faint)") } else { (bar.ink.variable(), bar.ink.variable()) };
    let (low, high) = (x(bar.interval.0), x(bar.interval.1));
    let _ = writeln!(
        out,
        "<g><title>{hover}</title><rect x=\"0\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{ROW}\" fill=\"transparent\"/>\
         <text x=\"{:.0}\" y=\"{text:.1}\" fill=\"var(--ink)\" text-anchor=\"end\">{label}</text>\
         <rect x=\"{start:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" stroke=\"{ink}\"/>\
         <path d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {tip:.1}v6M{high:.1} {tip:.1}v6\" stroke=\"var(--ink)\" fill=\"none\"/>\
         <text x=\"{:.0}\" y=\"{text:.1}\" fill=\"var(--ink)\">{value}</text></g>",
        LEFT - 8.0,
        y + 5.0,
        end - start,
        ROW - 10.0,
        WIDTH - RIGHT + 8.0,
        hover = escape(&bar.hover),
        label = escape(&short(&bar.label)),
        value = escape(&bar.text),
        text = middle + 4.0,
        tip = middle - 3.0,
    );
}

/// A label that fits beside its bar.
fn short(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    label.chars().take(LABEL - 1).collect::<String>().trim_end().chars().chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_carry_their_numbers_and_hold_what_they_are_measured_against() {
        let bars = Bars {
            title: "a < b".to_owned(),
            axis: "of the ceiling".to_owned(),
            rows: vec![Bar {
                label: "a label that is longer than its place".to_owned(),
                value: 0.5,
                interval: (0.4, 0.6),
                text: "0.500".to_owned(),
                hover: "0.500 & more".to_owned(),
                ink: Ink::First,
                hollow: true,
            }],
            rules: vec![Rule { at: 1.0, label: "ceiling".to_owned(), dashed: false }],
        };
        let svg = bars.drawing().svg();
        assert!(svg.contains("<title>0.500 &amp; more</title>") && svg.contains(">0.500</text>"), "{svg}");
        assert!(svg.contains(">a label that is longer…<") && svg.contains("a &lt; b"), "{svg}");
        // 0 to 1 over 256 units from 158: the bar ends in the middle, the ceiling stands at the end.
        assert!(svg.contains("width=\"128.0\"") && svg.contains("x1=\"414.0\""), "{svg}");
    }
}
