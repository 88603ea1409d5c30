//! A traced layer as an SVG picture: a sample of the workers, what each was waiting for or computing, the critical path
//! across them, and the rate at which all of them asked for bytes. It follows the reader's light or dark setting, and colour
//! is never the only sign.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use plancher_cuda::mega::trace::{Leg, Publications, StepTrace, Traced, Vector};
use plancher_program::gpu::{Operation, STAGE_BYTES};

use crate::drawing::chart::{escape, palette};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 74.0;
const ROW: f64 = 17.0;
const GAP: f64 = 5.0;
/// Height of the strip that shows the rate.
const STRIP: f64 = 64.0;
/// Rows, at most, beside those on the critical path.
const SAMPLE: usize = 14;
/// Points of the rate.
const BINS: usize = 160;

/// What is drawn.
pub(super) struct Picture<'a> {
    pub(super) trace: &'a StepTrace,
    pub(super) publications: &'a Publications,
    pub(super) legs: &'a [Leg],
    /// Of the model and the device, for the title.
    pub(super) subject: String,
    /// The rate at which memory can be read, GB/s.
    pub(super) ceiling: f64,
}

/// The time that is shown, in nanoseconds.
#[derive(Clone, Copy)]
struct Window {
    from: u64,
    to: u64,
}

impl Window {
    fn x(self, time: u64) -> f64 {
        let share = (time.clamp(self.from, self.to) - self.from) as f64 / (self.to - self.from).max(1) as f64;
        LEFT + (WIDTH - LEFT - RIGHT) * share
    }

    fn overlaps(self, from: u64, to: u64) -> bool {
        from < self.to && to > self.from
    }
}

impl Picture<'_> {
    /// The picture of one layer: from the last publication of its input to that of its output.
    pub(super) fn svg(&self, layer: u16) -> String {
        let last = |operation, layer| {
            self.publications.all(Vector { operation, layer }).map(|found| found.time).max().unwrap_or(0)
        };
        let window = Window {
            from: layer.checked_sub(1).map_or(0, |before| last(Operation::Down, before)),
            to: last(Operation::Down, layer).max(1),
        };
        let workers = self.workers(window);
        let y = |worker: usize| {
            let place = workers.iter().position(|&own| own == worker).unwrap_or(0);
            TOP + place as f64 * (ROW + GAP)
        };
        let rows_end = TOP + workers.len() as f64 * (ROW + GAP);
        let strip = rows_end + 26.0;
        let axis = strip + STRIP;
        let height = axis + 92.0;
        let mut body = String::new();
        self.operations(&mut body, layer, window, axis);
        for &worker in &workers {
            self.row(&mut body, worker, y(worker), window);
        }
        self.path(&mut body, window, &y);
        self.rate(&mut body, window, strip);
        time_axis(&mut body, window, axis);
        legend(&mut body, axis + 44.0);
        let title = format!(
            "One layer (number {layer}) of one token: {} of {} workers, {:.1} us",
            workers.len(),
            self.trace.workers.len(),
            (window.to - window.from) as f64 / 1e3
        );
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{label}\" \
             font-family=\"system-ui,sans-serif\" font-size=\"12\">\n<style>{palette}\nsvg{{color:var(--ink)}}text{{fill:currentColor}}</style>\n\
             <defs><pattern id=\"waiting\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <rect width=\"1.2\" height=\"6\" fill=\"var(--faint)\"/></pattern></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"var(--ground)\"/>\n\
             <text x=\"14\" y=\"22\" font-size=\"14\" font-weight=\"600\">{label}</text>\n\
             <text x=\"14\" y=\"40\" opacity=\"0.75\">{subject}</text>\n{body}</svg>\n",
            palette = palette("svg"),
            label = escape(&title),
            subject = escape(&self.subject),
        )
    }

    /// Those on the critical path in this window, and others spread evenly.
    fn workers(&self, window: Window) -> Vec<usize> {
        let on_path = self.legs.iter().filter(|leg| window.overlaps(leg.from, leg.to)).map(|leg| leg.worker);
        let mut workers: BTreeSet<usize> = on_path.collect();
        let all = self.trace.workers.len();
        let sample = SAMPLE.min(all);
        workers.extend((0..sample).map(|place| place * all / sample));
        workers.into_iter().collect()
    }

    /// Where each operation of the layer was published by its last worker.
    fn operations(&self, body: &mut String, layer: u16, window: Window, bottom: f64) {
        let mut before = window.from;
        let mut level = false;
        for operation in Operation::ALL {
            let last = self.publications.all(Vector { operation, layer }).map(|found| found.time).max();
            let Some(last) = last.filter(|&last| last > before && last <= window.to) else { continue };
            let (from, to) = (window.x(before), window.x(last));
            let y = if level { 54.0 } else { 66.0 };
            let _ = writeln!(
                body,
                "<line x1=\"{to:.1}\" y1=\"48\" x2=\"{to:.1}\" y2=\"{bottom:.1}\" stroke=\"var(--faint)\" opacity=\"0.5\"/>\n\
                 <text x=\"{:.1}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"11\">{operation}</text>",
                f64::midpoint(from, to),
            );
            level = !level;
            before = last;
        }
    }

    fn row(&self, body: &mut String, worker: usize, y: f64, window: Window) {
        let _ = writeln!(
            body,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">worker {worker}</text>",
            LEFT - 8.0,
            y + ROW - 4.5
        );
        let mut bar = |from: u64, to: u64, style: &str| {
            if window.overlaps(from, to) {
                let (left, right) = (window.x(from), window.x(to));
                let _ = writeln!(
                    body,
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{ROW}\" {style}/>",
                    right - left
                );
            }
        };
        for Traced { times, .. } in &self.trace.workers[worker].instructions {
            if let Some(phases) = times.phases() {
                bar(phases.began, phases.fetched, STREAMING);
                bar(phases.fetched, phases.input, WAITING);
                bar(phases.input, phases.landed, STREAMING);
                bar(phases.landed, phases.finished, COMPUTING);
            }
        }
        let own = self.trace.workers[worker].instructions.iter();
        for Traced { times, .. } in own.filter(|own| self.publications.publishes(&own.instruction)) {
            if let Some(published) = times.published.filter(|&time| time > window.from && time <= window.to) {
                let _ = writeln!(body, "{}", publication(window.x(published), y));
            }
        }
    }

    /// Along the row of each worker that the path goes through, and from row to row where one waited for another.
    fn path(&self, body: &mut String, window: Window, y: &dyn Fn(usize) -> f64) {
        let middle = |worker: usize| y(worker) + ROW / 2.0;
        let mut points: Vec<String> = Vec::new();
        for leg in self.legs.iter().filter(|leg| window.overlaps(leg.from, leg.to)) {
            let arrived = if leg.after.is_some() { leg.from + leg.parts.dependency } else { leg.from };
            let row = middle(leg.worker);
            // The path may come from a worker that is not shown.
            if leg.from >= window.from || points.is_empty() {
                points.push(format!("{:.1},{row:.1}", window.x(arrived)));
            }
            points.push(format!("{:.1},{row:.1}", window.x(leg.to)));
        }
        let points = points.join(" ");
        let line = "fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\"";
        let _ = writeln!(
            body,
            "<polyline points=\"{points}\" {line} stroke=\"var(--ground)\" stroke-width=\"6\" opacity=\"0.8\"/>\n\
             <polyline points=\"{points}\" {line} stroke=\"var(--b)\" stroke-width=\"2.6\"/>"
        );
    }

    /// Bytes a microsecond that all producers asked for, against the ceiling.
    fn rate(&self, body: &mut String, window: Window, top: f64) {
        let mut bins = vec![0.0; BINS];
        let width = (window.to - window.from) as f64 / BINS as f64;
        for worker in &self.trace.workers {
            let mut before = 0;
            for Traced { instruction, times } in &worker.instructions {
                let Some(issued) = times.issued.filter(|&issued| issued > before) else { continue };
                let bytes = f64::from(instruction.stages) * STAGE_BYTES as f64;
                let per_ns = bytes / (issued - before) as f64;
                if window.overlaps(before, issued) {
                    let place = |time: u64| (time.clamp(window.from, window.to) - window.from) as f64 / width;
                    let (from, to) = (place(before), place(issued));
                    for (index, bin) in bins.iter_mut().enumerate() {
                        let overlap = to.min(index as f64 + 1.0) - from.max(index as f64);
                        *bin += per_ns * overlap.max(0.0);
                    }
                }
                before = issued;
            }
        }
        // Bytes a nanosecond are GB/s.
        let most = bins.iter().copied().fold(1.15 * self.ceiling, f64::max);
        let height = |rate: f64| top + STRIP * (1.0 - rate / most);
        let bottom = top + STRIP;
        let step = (WIDTH - LEFT - RIGHT) / BINS as f64;
        let mut points = format!("{LEFT},{bottom:.1}");
        for (index, &rate) in bins.iter().enumerate() {
            let x = LEFT + index as f64 * step;
            let _ = write!(points, " {x:.1},{y:.1} {:.1},{y:.1}", x + step, y = height(rate));
        }
        let _ = write!(points, " {:.1},{bottom:.1}", WIDTH - RIGHT);
        let line = height(self.ceiling);
        let _ = writeln!(
            body,
            "<text x=\"{label:.0}\" y=\"{:.1}\" text-anchor=\"end\">asked for</text>\n\
             <polygon points=\"{points}\" fill=\"var(--c)\" opacity=\"0.55\"/>\n\
             <line x1=\"{LEFT}\" y1=\"{line:.1}\" x2=\"{:.1}\" y2=\"{line:.1}\" stroke=\"var(--ink)\" stroke-dasharray=\"5 4\"/>\n\
             <text x=\"{label:.0}\" y=\"{:.1}\" text-anchor=\"end\">{:.2} TB/s</text>",
            bottom - 4.0,
            WIDTH - RIGHT,
            line + 4.0,
            self.ceiling / 1e3,
            label = LEFT - 8.0,
        );
    }
}

const WAITING: &str = "fill=\"url(#waiting)\" stroke=\"var(--faint)\" stroke-width=\"0.5\"";
const STREAMING: &str = "fill=\"var(--a)\" opacity=\"0.4\"";
const COMPUTING: &str = "fill=\"var(--a)\"";

/// A mark below a row.
fn publication(x: f64, y: f64) -> String {
    let bottom = y + ROW;
    format!("<path d=\"M{x:.1} {:.1}l3.2 5h-6.4z\" fill=\"var(--ink)\"/>", bottom - 2.5)
}

/// A tick at every so many microseconds.
fn time_axis(body: &mut String, window: Window, y: f64) {
    let whole = (window.to - window.from) as f64 / 1e3;
    let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter().find(|step| whole / step <= 12.0);
    let step = step.unwrap_or(whole);
    let _ = writeln!(
        body,
        "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"currentColor\"/>",
        WIDTH - RIGHT
    );
    for index in 0..=(whole / step) as usize {
        let time = index as f64 * step;
        let x = window.x(window.from + (time * 1e3) as u64);
        let _ = writeln!(
            body,
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"currentColor\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\" font-size=\"11\">{}</text>",
            y + 4.0,
            y + 17.0,
            (time * 10.0).round() / 10.0
        );
    }
    let _ = writeln!(
        body,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\">us</text>",
        LEFT - 8.0,
        y + 17.0
    );
}

fn legend(body: &mut String, y: f64) {
    let box_ = |x: f64, y: f64, style: &str| {
        format!("<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"26\" height=\"13\" {style}/>", y - 11.0)
    };
    let line = |x: f64, y: f64, stroke: &str| {
        format!(
            "<line x1=\"{x:.1}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"var(--{stroke})\"",
            y - 4.5,
            x + 26.0
        )
    };
    let (columns, below) = ([14.0, 226.0, 480.0, 726.0], y + 24.0);
    let entries = [
        (columns[0], y, box_(columns[0], y, WAITING), "waiting for a dependency"),
        (columns[1], y, box_(columns[1], y, STREAMING), "waiting for weights (summed up)"),
        (columns[2], y, box_(columns[2], y, COMPUTING), "computing"),
        (columns[3], y, publication(columns[3] + 13.0, y - ROW - 2.0), "published"),
        (columns[0], below, line(columns[0], below, "b") + " stroke-width=\"2.6\"/>", "critical path"),
        (columns[1], below, line(columns[1], below, "faint") + " opacity=\"0.5\"/>", "last worker published"),
        (columns[2], below, box_(columns[2], below, "fill=\"var(--c)\" opacity=\"0.55\""), "bytes all workers ask for"),
        (columns[3], below, line(columns[3], below, "ink") + " stroke-dasharray=\"5 4\"/>", "read ceiling"),
    ];
    for (x, y, mark, text) in entries {
        let _ = writeln!(body, "{mark}<text x=\"{:.1}\" y=\"{y:.1}\">{text}</text>", x + 34.0);
    }
}
