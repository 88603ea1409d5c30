//! A program in a few figures, for people and for reports.

use serde::Serialize;

use crate::{Phase, Program};

/// What one worker has to do in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerSummary {
    /// Instructions.
    pub instructions: usize,
    /// Waits of all of them.
    pub waits: usize,
    /// Weight bytes read.
    pub stream_bytes: usize,
}

/// The size and balance of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The kind of step.
    pub phase: Phase,
    /// Dependency counters.
    pub counters: usize,
    /// f32 activation elements of one position, private copies included; caches are not.
    pub activation_elements: usize,
    /// Weight bytes of all the streams.
    pub stream_bytes: usize,
    /// The longest stream over the mean: 1 is perfect balance.
    pub imbalance: f64,
    /// By worker.
    pub workers: Vec<WorkerSummary>,
}

/// Counts what `program` consists of.
#[must_use]
pub fn summary(program: &Program) -> Summary {
    let workers: Vec<_> = program
        .workers
        .iter()
        .map(|worker| WorkerSummary {
            instructions: worker.instructions.len(),
            waits: worker.instructions.iter().map(|instruction| instruction.waits.len()).sum(),
            stream_bytes: worker.stream_bytes,
        })
        .collect();
    let stream_bytes: usize = workers.iter().map(|worker| worker.stream_bytes).sum();
    let longest = workers.iter().map(|worker| worker.stream_bytes).max().unwrap_or(0);
    let activations = program.buffers.iter().filter(|buffer| !matches!(buffer.role, crate::BufferRole::Cache(_)));
    Summary {
        phase: program.target.phase,
        counters: program.counters.len(),
        activation_elements: activations.map(|buffer| buffer.elements).sum(),
        stream_bytes,
        imbalance: if stream_bytes == 0 { 1.0 } else { longest as f64 * workers.len() as f64 / stream_bytes as f64 },
        workers,
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match self.phase {
            Phase::Decode => "decode",
            Phase::Prefill => "prefill",
        };
        writeln!(
            f,
            "{phase} program: {} workers, {} counters, {} activation elements a position, {} weight bytes, longest \
             stream {:.3} of the mean",
            self.workers.len(),
            self.counters,
            self.activation_elements,
            self.stream_bytes,
            self.imbalance,
        )?;
        for (worker, summary) in self.workers.iter().enumerate() {
            writeln!(
                f,
                "worker {worker}: {} instructions, {} waits, {} bytes",
                summary.instructions, summary.waits, summary.stream_bytes
            )?;
        }
        Ok(())
    }
}
