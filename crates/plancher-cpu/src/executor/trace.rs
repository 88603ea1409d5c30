//! Time stamps of one step: for every worker and instruction when it began to wait, began to compute and ended.

use std::time::{Duration, Instant};

use plancher_program::Operation;

/// What a worker recorded about one instruction.
pub(super) struct Event {
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) waited: Option<Waited>,
}

/// The last counter that an instruction waited for, and since when it waited at all.
pub(super) struct Waited {
    pub(super) counter: usize,
    pub(super) since: Instant,
}

/// One instruction of a traced step; times are since the step began.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    /// Who.
    pub worker: usize,
    /// What.
    pub operation: Operation,
    /// The counter it waited for, and when it began to wait.
    pub waited: Option<(String, Duration)>,
    /// When it began to compute.
    pub start: Duration,
    /// When it had signalled.
    pub end: Duration,
    /// Weight bytes that it read.
    pub weight_bytes: usize,
}

/// What every worker did during one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepTrace {
    /// By worker, then in order.
    pub events: Vec<TraceEvent>,
    /// From the caller's call to its return.
    pub duration: Duration,
}

impl Event {
    pub(super) fn resolve(
        &self,
        began: Instant,
        worker: usize,
        step: &super::plan::Step,
        counter_names: &[String],
    ) -> TraceEvent {
        let since = |time: Instant| time.saturating_duration_since(began);
        TraceEvent {
            worker,
            operation: step.operation.clone(),
            waited: self.waited.as_ref().map(|w| (counter_names[w.counter].clone(), since(w.since))),
            start: since(self.start),
            end: since(self.end),
            weight_bytes: step.pieces.iter().map(|piece| piece.bytes.len()).sum(),
        }
    }
}
