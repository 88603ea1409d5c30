//! A chart as SVG text: lines, numbered marks and a legend, on axes that are logarithmic or begin at 0. Colours come from
//! CSS variables, so that the same drawing is readable on light and dark ground; marks carry numbers, so that colour is
//! never the only sign. What a mark measures is shown while the pointer is on it.

use std::fmt::Write as _;

use super::{Drawing, WIDTH};
use crate::output::significant;

/// The colours on a light ground.
const LIGHT: &str = "--ground:#fff;--ink:#1c2330;--faint:#5b6575;--grid:#e3e7ee;--card:#f6f8fb;\
--a:#1f5fbf;--b:#b3541e;--c:#1d7a4f;--d:#7a3fb0;--e:#a8285a;--f:#0f7482";
/// The same on a dark one.
const DARK: &str = "--ground:#12161d;--ink:#e8ecf3;--faint:#9aa5b6;--grid:#2a313d;--card:#1a202a;\
--a:#7db0ff;--b:#f0a070;--c:#6fd0a0;--d:#c79bff;--e:#ff8fb4;--f:#63cfdc";

/// The colours as variables of what `selector` selects: `svg` for a drawing that stands alone, `:root` for a page.
pub(crate) fn palette(selector: &str) -> String {
    format!("{selector}{{{LIGHT};color-scheme:light dark}}\n@media (prefers-color-scheme:dark){{{selector}{{{DARK}}}}}")
}

const PLOT_HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const LEGEND_LINE: f64 = 19.0;

/// One axis.
pub(crate) struct Axis {
    pub(crate) label: String,
    /// The range shown; both above 0 unless `linear`.
    pub(crate) range: (f64, f64),
    /// Equal steps are equal distances; else equal ratios are.
    pub(crate) linear: bool,
    /// The places named on it.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A logarithmic axis with round numbers as ticks.
    pub(crate) fn round(label: impl Into<String>, range: (f64, f64)) -> Self {
        let ticks = ticks(range).into_iter().map(|tick| (tick, short(tick))).collect();
        Self { label: label.into(), range, linear: false, ticks }
    }

    /// A linear axis from 0 to `top` or a little above, with round numbers as ticks.
    pub(crate) fn from_zero(label: impl Into<String>, top: f64) -> Self {
        let step = round_step(top / 6.0);
        let steps = (top / step).ceil().max(1.0);
        let ticks = (0..=steps as u32).map(|index| f64::from(index) * step).map(|tick| (tick, short(tick))).collect();
        Self { label: label.into(), range: (0.0, step * steps), linear: true, ticks }
    }

    /// Where `value` lies on it, from 0 to 1, kept inside.
    pub(super) fn share(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        if self.linear {
            return ((value - low) / (high - low)).clamp(0.0, 1.0);
        }
        ((value.max(low) / low).ln() / (high / low).ln()).clamp(0.0, 1.0)
    }
}

/// Colour, by role.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
    Faint,
}

impl Ink {
    /// The colour of the `index`th of a series of things; they repeat, which is why marks are numbered.
    pub(crate) fn of(index: usize) -> Self {
        [Self::First, Self::Second, Self::Third, Self::Fourth, Self::Fifth, Self::Sixth][index % 6]
    }

    pub(super) const fn variable(self) -> &'static str {
        match self {
            Self::First => "var(--a)",
            Self::Second => "var(--b)",
            Self::Third => "var(--c)",
            Self::Fourth => "var(--d)",
            Self::Fifth => "var(--e)",
            Self::Sixth => "var(--f)",
            Self::Faint => "var(--faint)",
        }
    }
}

/// A polyline.
pub(crate) struct Line {
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) ink: Ink,
    pub(crate) dashed: bool,
    /// In the legend, unless empty.
    pub(crate) label: String,
}

/// A mark with a sign in it.
pub(crate) struct Mark {
    pub(crate) at: (f64, f64),
    pub(crate) ink: Ink,
    /// One or two characters, explained by the label in the legend; nothing for a plain dot.
    pub(crate) sign: String,
    pub(crate) label: String,
    /// Shown while the pointer is on it, unless empty.
    pub(crate) hover: String,
    /// Filled, or hollow.
    pub(crate) filled: bool,
    /// Drawn this far below its place, with a line to it, so that it hides no other.
    pub(crate) below: f64,
}

/// A chart.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    pub(crate) marks: Vec<Mark>,
}

/// XML text.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * self.x.share(value)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - self.y.share(value))
    }

    fn legend(&self) -> usize {
        let lines = self.lines.iter().filter(|line| !line.label.is_empty()).count();
        lines + self.marks.iter().filter(|mark| !mark.label.is_empty()).count()
    }

    /// Height of the drawing.
    fn height(&self) -> f64 {
        TOP + PLOT_HEIGHT + BOTTOM + LEGEND_LINE * self.legend() as f64
    }

    /// The drawing.
    pub(crate) fn drawing(&self) -> Drawing {
        Drawing { title: self.title.clone(), height: self.height(), body: self.body() }
    }

    /// The drawing's elements, from (0, 0).
    fn body(&self) -> String {
        let mut out = format!(
            "<text x=\"{LEFT}\" y=\"20\" fill=\"var(--ink)\" font-weight=\"600\" font-size=\"14\">{}</text>\n",
            escape(&self.title)
        );
        self.draw_axes(&mut out);
        for line in &self.lines {
            let points: Vec<String> =
                line.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y))).collect();
            let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}/>",
                points.join(" "),
                line.ink.variable()
            );
        }
        for mark in &self.marks {
            let (x, y) = (self.x(mark.at.0), self.y(mark.at.1));
            if mark.below > 0.0 {
                let _ = writeln!(
                    out,
                    "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"{}\"/>",
                    y + mark.below,
                    mark.ink.variable()
                );
            }
            draw_mark(&mut out, x, y + mark.below, mark);
        }
        self.draw_legend(&mut out);
        out
    }

    fn draw_axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        for (tick, name) in &self.x.ticks {
            let x = self.x(*tick);
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"var(--grid)\"/><text x=\"{x:.1}\" y=\"{:.0}\" \
                 fill=\"var(--faint)\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                escape(name)
            );
        }
        for (tick, name) in &self.y.ticks {
            let y = self.y(*tick);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"var(--grid)\"/><text x=\"{:.0}\" y=\"{:.1}\" \
                 fill=\"var(--faint)\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                escape(name)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"var(--faint)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            bottom + 34.0,
            escape(&self.x.label)
        );
        let middle = TOP + PLOT_HEIGHT / 2.0;
        let _ = writeln!(
            out,
            "<text x=\"13\" y=\"{middle:.0}\" fill=\"var(--faint)\" text-anchor=\"middle\" transform=\"rotate(-90 13 {middle:.0})\">{}</text>",
            escape(&self.y.label)
        );
    }

    fn draw_legend(&self, out: &mut String) {
        let mut y = TOP + PLOT_HEIGHT + BOTTOM + 6.0;
        let text = |out: &mut String, y: f64, label: &str| {
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{:.0}\" fill=\"var(--ink)\">{}</text>",
                LEFT - 12.0,
                y + 4.0,
                escape(label)
            );
        };
        for mark in self.marks.iter().filter(|mark| !mark.label.is_empty()) {
            draw_mark(out, 28.0, y, mark);
            text(out, y, &mark.label);
            y += LEGEND_LINE;
        }
        for line in self.lines.iter().filter(|line| !line.label.is_empty()) {
            let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let _ = writeln!(
                out,
                "<line x1=\"16\" y1=\"{y:.0}\" x2=\"40\" y2=\"{y:.0}\" stroke=\"{}\" stroke-width=\"2\"{dash}/>",
                line.ink.variable()
            );
            text(out, y, &line.label);
            y += LEGEND_LINE;
        }
    }
}

fn draw_mark(out: &mut String, x: f64, y: f64, mark: &Mark) {
    let radius = if mark.sign.is_empty() { 4.0 } else { 8.5 };
    let (fill, ink) =
        if mark.filled { (mark.ink.variable(), "var(--ground)") } else { ("var(--ground)", mark.ink.variable()) };
    if !mark.hover.is_empty() {
        let _ = writeln!(out, "<g><title>{}</title>", escape(&mark.hover));
    }
    let _ = writeln!(
        out,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"2\"/>",
        mark.ink.variable()
    );
    if !mark.sign.is_empty() {
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{ink}\" text-anchor=\"middle\" font-size=\"11\" font-weight=\"700\">{}</text>",
            y + 4.0,
            escape(&mark.sign)
        );
    }
    if !mark.hover.is_empty() {
        out.push_str("</g>\n");
    }
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let decade = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|factor| factor * decade)
        .into_iter()
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * decade)
}

/// Decades; with 2 and 5 between them where fewer than two decades are shown, every third where many are.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = match high / low {
        ratio if ratio < 4.0 => &[1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        ratio if ratio < 100.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let step = if last - first > 8 { 3 } else { 1 };
    (first..=last)
        .filter(|decade| decade.rem_euclid(step) == 0)
        .flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade)))
        .filter(|tick| (low * 0.999..=high * 1.001).contains(tick))
        .collect()
}

/// A range that holds all values with some room; `None` when there are none above 0.
pub(crate) fn range(values: impl IntoIterator<Item = f64>, room: f64) -> Option<(f64, f64)> {
    let (low, high) = values
        .into_iter()
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    (high > 0.0).then(|| (low / room, high * room))
}

/// `200`, `2k`, `0.5`, `1T`.
fn short(value: f64) -> String {
    const PREFIXES: [(f64, &str); 6] = [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match PREFIXES.iter().find(|(size, _)| value >= size * 0.9999) {
        Some((size, prefix)) => format!("{}{prefix}", trimmed(value / size)),
        None => trimmed(value),
    }
}

/// Three significant digits without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = significant(value, 3);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_inside() {
        assert_eq!(ticks((1.0, 1000.0)), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(ticks((1.0, 20.0)), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert!(ticks((1e-3, 1e12)).len() <= 6);
    }

    #[test]
    fn text_in_drawings_is_escaped() {
        let chart = Chart {
            title: "a < b & \"c\"".to_owned(),
            x: Axis::round("x", (1.0, 10.0)),
            y: Axis::round("y", (1.0, 10.0)),
            lines: vec![Line {
                points: vec![(1.0, 1.0), (10.0, 100.0)],
                ink: Ink::First,
                dashed: false,
                label: String::new(),
            }],
            marks: vec![Mark {
                at: (2.0, 2.0),
                ink: Ink::of(7),
                sign: String::new(),
                label: String::new(),
                hover: "2 < 3".to_owned(),
                filled: true,
                below: 0.0,
            }],
        };
        let svg = chart.drawing().svg();
        assert!(svg.contains("<g><title>2 &lt; 3</title>\n<circle"), "{svg}");
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;") && !svg.contains("a < b"));
        // A value outside the range is drawn at its edge.
        assert!(svg.contains("464.0,34.0"), "{svg}");
    }

    #[test]
    fn a_linear_axis_begins_at_0_and_holds_its_top() {
        let names = |top: f64| -> Vec<String> {
            Axis::from_zero("GB/s", top).ticks.into_iter().map(|(_, name)| name).collect()
        };
        assert_eq!(names(4800.0), ["0", "1k", "2k", "3k", "4k", "5k"]);
        assert_eq!(names(1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(names(0.0), ["0", "1"]);
        let axis = Axis::from_zero("x", 4800.0);
        assert!((axis.share(2500.0) - 0.5).abs() < 1e-12 && axis.share(-1.0) <= 0.0 && axis.share(9e9) >= 1.0);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([0.5, 1.0, 175.0, 1e3, 2.5e12].map(short).join(" "), "0.5 1 175 1k 2.5T");
    }
}
