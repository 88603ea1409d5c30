//! Progress bars on standard error: only on a terminal, and not with `--quiet`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printable::printable;

/// Bars for anything shorter than this would only flicker.
const PATIENCE: Duration = Duration::from_millis(300);

/// A bar that appears when the work takes longer than a blink, and leaves no trace.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: std::time::Instant,
    template: &'static str,
    shown: bool,
}

impl Progress {
    /// A bar over bytes.
    pub(crate) fn bytes(message: impl Into<String>) -> Self {
        Self::new(&message.into(), "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    /// A bar over things.
    pub(crate) fn count(message: impl Into<String>) -> Self {
        Self::new(&message.into(), "{msg} {bar:30} {pos}/{len} {eta}")
    }

    /// What is being done, in words; nobody knows how long it takes.
    pub(crate) fn words() -> Self {
        Self::new("", "{spinner} {elapsed} {msg}")
    }

    /// Says what is being done now.
    pub(crate) fn say(&mut self, what: &str) {
        self.show();
        self.bar.set_message(printable(what).into_owned());
        self.bar.tick();
    }

    fn new(message: &str, template: &'static str) -> Self {
        let bar = ProgressBar::hidden().with_message(printable(message).into_owned());
        Self { bar, started: std::time::Instant::now(), template, shown: false }
    }

    /// Moves the bar to `done` of `total`.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        self.show();
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    fn show(&mut self) {
        if !self.shown && !crate::logging::is_quiet() && self.started.elapsed() > PATIENCE {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(self.template) {
                self.bar.set_style(style);
            }
        }
    }

    /// Replaces the message.
    pub(crate) fn message(&self, message: &str) {
        self.bar.set_message(printable(message).into_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
