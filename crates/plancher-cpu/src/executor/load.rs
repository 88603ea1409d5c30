//! Making an executor: programs, checks, workers, and the weights packed by their owners.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plancher_model::{DType, Model, TensorView};
use plancher_program::{
    PackProgress, Phase, Program, ProgramError, Target, TileLayout, Vectors, check, lower, pack_worker, schedule,
};

use super::Executor;
use super::plan::Plan;
use super::worker::Scratch;
use crate::affinity::physical_cores;
use crate::kernels::{Kernels, TILE_ROWS};
use crate::kv_cache::{KV_CHUNK, KvCache};
use crate::vector::RopeTable;
use crate::{CpuError, HugeBuffer, Pool};

/// What a caller may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Workers; one per physical core by default.
    pub threads: usize,
    /// Positions of the KV cache; 4096 by default. Memory is taken as they are used.
    pub context: usize,
    /// Positions that prefill computes at a time.
    pub prefill_chunk: usize,
    /// The instruction set; the machine's best by default.
    pub kernels: Option<Kernels>,
    /// How long idle workers look for work before they sleep.
    pub spin: Duration,
    /// After how long a wait is taken for a fault.
    pub wait_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: physical_cores(),
            context: 4096,
            prefill_chunk: 512,
            kernels: None,
            spin: Duration::from_micros(100),
            wait_limit: Duration::from_mins(1),
        }
    }
}

impl Executor {
    /// Schedules, checks, and packs `model` for this machine. `progress` is told packed and total bytes, on the
    /// calling thread.
    ///
    /// # Errors
    /// When an option is out of range, the model cannot be lowered, or memory or threads cannot be had.
    pub fn new(
        model: &Arc<Model>,
        options: &Options,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, CpuError> {
        for (option, value) in
            [("threads", options.threads), ("context", options.context), ("prefill_chunk", options.prefill_chunk)]
        {
            if value == 0 {
                return Err(CpuError::Option { option, value, problem: "must not be zero" });
            }
        }
        let options = Options { prefill_chunk: options.prefill_chunk.min(options.context), ..options.clone() };
        let kernels = match options.kernels {
            Some(kernels) => kernels,
            None => Kernels::detect()?,
        };
        let config = &model.config;
        let lowered = lower(config, &model.weights)?;
        let make = |phase| {
            let target = Target { workers: options.threads, tile_rows: TILE_ROWS, kv_chunk: KV_CHUNK, phase };
            let program = schedule(&lowered, target, &kernels)?;
            check(&program, &kernels)?;
            Ok::<_, ProgramError>(program)
        };
        let (decode_program, prefill_program) = (make(Phase::Decode)?, make(Phase::Prefill)?);
        let mut pool = Pool::new(options.threads, options.spin)?;
        let streams = pack(&mut pool, &decode_program, model, kernels, progress)?;
        let vectors = Vectors::new(config, &model.weights)?;
        // Metadata and vectors have been read as well. Rows of the embedding are read again as tokens come.
        for file in model.weights.files() {
            file.release(0..file.bytes().len());
        }
        let decode = Plan::new(&decode_program, &vectors, 1, kernels)?;
        Ok(Self {
            vectors,
            cache: KvCache::new(config, options.threads)?,
            ropes: config.ropes.iter().map(|_| RopeTable::default()).collect(),
            scratches: (0..options.threads).map(|_| Mutex::new(Scratch::default())).collect(),
            model: Arc::clone(model),
            options,
            kernels,
            pool,
            streams,
            decode,
            prefill_program,
            prefill: None,
            position: 0,
            logits: Vec::new(),
        })
    }
}

/// The prefill program bound to memory, at its first use.
pub(super) fn prefill_plan<'a>(
    slot: &'a mut Option<Plan>,
    program: &Program,
    vectors: &Vectors,
    positions: usize,
    kernels: Kernels,
) -> Result<&'a mut Plan, CpuError> {
    match slot {
        Some(plan) => Ok(plan),
        None => Ok(slot.insert(Plan::new(program, vectors, positions, kernels)?)),
    }
}

/// Fills every worker's stream on the worker's own thread.
fn pack(
    pool: &mut Pool,
    program: &Program,
    model: &Model,
    kernels: Kernels,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<HugeBuffer>, CpuError> {
    let total = program.workers.iter().map(|worker| worker.stream_bytes).sum();
    let streams = program.workers.iter().map(|worker| HugeBuffer::new(worker.stream_bytes).map(Mutex::new));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let packed = PackProgress::new(program);
    let failure = Mutex::new(None);
    pool.run(&|worker| {
        let mut stream = streams[worker].lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = &mut stream.bytes_mut()[..program.workers[worker].stream_bytes];
        let report = || progress(packed.packed_bytes(), total);
        let result = if worker == 0 {
            let layout = Reporting { kernels, report: &report };
            pack_worker(program, worker, &model.weights, &layout, bytes, &packed)
        } else {
            pack_worker(program, worker, &model.weights, &kernels, bytes, &packed)
        };
        if let Err(error) = result {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    })?;
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    progress(total, total);
    Ok(streams.into_iter().map(|stream| stream.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
}

/// The kernels' layout, which also reports as it is used.
struct Reporting<'a> {
    kernels: Kernels,
    report: &'a (dyn Fn() + Sync),
}

impl TileLayout for Reporting<'_> {
    fn tile_rows(&self) -> usize {
        self.kernels.tile_rows()
    }

    fn tile_bytes(&self, dtype: DType, columns: usize) -> Option<usize> {
        self.kernels.tile_bytes(dtype, columns)
    }

    fn pack_tile(&self, view: &TensorView<'_>, first_row: usize, out: &mut [u8]) {
        if first_row.is_multiple_of(64 * TILE_ROWS) {
            (self.report)();
        }
        self.kernels.pack_tile(view, first_row, out);
    }

    fn unpack_row(&self, dtype: DType, tile: &[u8], row: usize, out: &mut [f32]) {
        self.kernels.unpack_row(dtype, tile, row, out);
    }
}
