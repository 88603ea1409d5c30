//! One step of the megakernel traced, beside the time that steps take when nothing is traced.

use plancher_cuda::Executor;
use plancher_cuda::mega::trace::{Reference, StepTrace};
use plancher_floor::{Hardware, ModelShape, Regime, Setting, floor};
use plancher_program::gpu::Plan;

use crate::sampling::Random;
use crate::{Backend, BackendError, BatchDecode, CudaBackend, EngineError, Result};

/// Launches that are measured, and launches that are traced.
const LAUNCHES: usize = 9;

/// A traced step.
#[derive(Clone, Debug)]
pub struct TracedStep {
    /// What every worker did: of the traced launches' last steps the one of median duration.
    pub trace: StepTrace,
    /// The shortest and the longest of those steps, in microseconds.
    pub range_us: (f64, f64),
    /// The program that ran.
    pub plan: Plan,
    /// What it is held against: the median of the launches without a trace.
    pub reference: Reference,
}

impl CudaBackend {
    /// Steps of a launch that is measured: the traced step is as deep as the middle one of them.
    pub const TRACE_STEPS: usize = 128;

    /// Whether [`Self::trace_step`] has something to trace.
    ///
    /// # Errors
    /// If the graph runs: in one line, with the reason where it was not asked for.
    pub fn can_trace(&self) -> std::result::Result<(), String> {
        if self.decoder.executor() == Executor::Mega {
            return Ok(());
        }
        let why = self.decoder.refusal().map_or_else(String::new, |reason| format!(" ({reason})"));
        Err(format!("on a GPU a trace is of the megakernel, and the graph runs here{why}"))
    }

    /// Measures launches after `depth` tokens of context, then traces the middle step of such a launch. `shape` is that of
    /// the model. The sequence is empty afterwards.
    ///
    /// # Errors
    /// If there is no megakernel, the context does not hold a step more than `depth`, or the device fails.
    pub fn trace_step(&mut self, shape: &ModelShape, depth: usize) -> Result<TracedStep> {
        let capacity = self.capacity();
        let steps = capacity.saturating_sub(depth).min(Self::TRACE_STEPS);
        if steps == 0 {
            return Err(EngineError::PromptTooLong { prompt: depth.saturating_add(1), context: capacity });
        }
        let mut random = Random::new(1);
        let vocab_size = self.vocab_size() as u32;
        let mut tokens: Vec<u32> = (0..=depth).map(|_| random.below(vocab_size)).collect();
        let first = tokens.pop().unwrap_or(0);
        self.fill(&[tokens])?;
        let ceiling_before = self.read_ceiling()?;
        // Once to warm up.
        self.decoder.run(&[first], steps).map_err(BackendError::from)?;
        let mut measured = Vec::with_capacity(LAUNCHES);
        for _ in 0..LAUNCHES {
            self.decoder.truncate(0, depth);
            let times = self.decoder.run(&[first], steps).map_err(BackendError::from)?;
            measured.push(1e6 * times.device / steps as f64);
        }
        measured.sort_unstable_by(f64::total_cmp);
        let mut traces = Vec::with_capacity(LAUNCHES);
        for _ in 0..LAUNCHES {
            self.decoder.truncate(0, depth);
            traces.push(self.decoder.run_traced(first, steps / 2 + 1).map_err(BackendError::from)?);
        }
        Backend::truncate(self, 0);
        let ceiling = ceiling_before.max(self.read_ceiling()?);
        traces.sort_by(|a, b| a.duration().total_cmp(&b.duration()));
        let range = [traces.first(), traces.last()].map(|trace| trace.map_or(0.0, |trace| trace.duration() / 1e3));
        let trace = traces.swap_remove(traces.len() / 2);
        let plan = self.decoder.mega_plan().cloned();
        let plan = plan.ok_or_else(|| BackendError::from("there is no megakernel"))?;
        let reference = self.reference(shape, trace.position + 1, measured[measured.len() / 2], ceiling)?;
        Ok(TracedStep { trace, range_us: (range[0], range[1]), plan, reference })
    }

    fn reference(&self, shape: &ModelShape, context: usize, measured_us: f64, ceiling: f64) -> Result<Reference> {
        let storage = self.storage();
        let machine = Hardware::from_bandwidth("this machine", ceiling * 1e9, "measured by reading")?;
        let setting = Setting { kv: storage.kv, ..Setting::default() };
        let stored = shape.clone().with_weights(storage.weights, storage.weights);
        let floor = floor(&stored, &machine, Regime::decode(1, context as u64), setting)?;
        Ok(Reference {
            measured_us,
            floor_bytes: floor.bytes() as u64,
            kv_bytes: floor.kv_bytes() as u64,
            ceiling_gb_per_s: ceiling,
        })
    }
}
