//! Drawings and pages as text: what `floor`, `lab` and traces show of themselves. Nothing is loaded from elsewhere.

pub(crate) mod bars;
pub(crate) mod chart;
pub(crate) mod page;

use std::fmt::Write as _;

use chart::{escape, palette};

/// Width of every drawing.
const WIDTH: f64 = 480.0;

/// A drawing: its elements as SVG text, from (0, 0).
pub(crate) struct Drawing {
    pub(crate) title: String,
    pub(crate) height: f64,
    pub(crate) body: String,
}

impl Drawing {
    /// As an `svg` element of its own, for a page that brings the colours.
    pub(crate) fn svg(&self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"system-ui,sans-serif\" font-size=\"12.5\">\n{}</svg>\n",
            self.height,
            escape(&self.title),
            self.body
        )
    }
}

/// All drawings below each other as one SVG file.
pub(crate) fn figure(drawings: &[Drawing]) -> String {
    let height: f64 = drawings.iter().map(|drawing| drawing.height).sum::<f64>() + 12.0;
    let mut body = String::new();
    let mut y = 0.0;
    for drawing in drawings {
        let _ = writeln!(body, "<g transform=\"translate(0 {y:.0})\">\n{}</g>", drawing.body);
        y += drawing.height;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"720\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12.5\">\n<style>{}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--ground)\"/>\n{body}</svg>\n",
        palette("svg")
    )
}
