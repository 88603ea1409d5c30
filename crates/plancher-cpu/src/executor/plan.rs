//! A checked program made ready to run: tensors, buffers and counters resolved to what a worker touches, so that
//! nothing is looked up while a step runs.

use std::ops::Range;

use plancher_model::{DType, TensorKey};
use plancher_program::{BufferRole, Operation, Phase, Program, Segment, Vectors};

use crate::kernels::{CHUNK_BLOCK, Kernels, SharedChunks};
use crate::sync::{Counters, Machine};
use crate::{HugeBuffer, OutOfMemory};

/// Buffers start on their own cache line pair.
const ALIGN: usize = 128;

/// One instruction.
pub(super) struct Step {
    pub(super) operation: Operation,
    pub(super) pieces: Vec<Piece>,
    /// The types of `pieces`.
    pub(super) dtypes: Vec<DType>,
    /// `(counter, signals)`.
    pub(super) waits: Vec<(usize, u32)>,
    pub(super) signals: Vec<usize>,
    /// Where in the stream the weights consumed next start.
    pub(super) ahead: usize,
    /// Its input is in [`SharedChunks`], in the memory of the buffer that it reads.
    pub(super) takes_chunks: bool,
    /// Its result goes to [`SharedChunks`], in the memory of the buffer that it writes.
    pub(super) leaves_chunks: bool,
}

/// Rows of one matrix in the worker's stream.
pub(super) struct Piece {
    pub(super) tensor: TensorKey,
    pub(super) dtype: DType,
    pub(super) columns: usize,
    /// Rows of the whole matrix.
    pub(super) matrix_rows: usize,
    /// Which of them.
    pub(super) rows: Range<usize>,
    /// Where they lie in the stream.
    pub(super) bytes: Range<usize>,
    /// Added to the products, one a row; empty when there is none.
    pub(super) bias: Vec<f32>,
}

/// Where a worker's activations are: the starts of its buffers, null for a role that the phase does not have.
#[derive(Clone, Copy)]
pub(super) struct Buffers {
    pub(super) hidden: *mut f32,
    pub(super) normed: *mut f32,
    pub(super) queries: *mut f32,
    pub(super) keys: *mut f32,
    pub(super) values: *mut f32,
    pub(super) partials: *mut f32,
    /// Elements of one worker's partials.
    pub(super) partials_part: usize,
    pub(super) attention: *mut f32,
    pub(super) activation: *mut f32,
    pub(super) delta: *mut f32,
}

/// A program bound to memory.
pub(super) struct Plan {
    pub(super) counters: Counters<Machine>,
    pub(super) generation: u32,
    pub(super) workers: Vec<WorkerPlan>,
    pub(super) counter_names: Vec<String>,
    /// Holds all that `Buffers` point to.
    _memory: HugeBuffer,
}

/// The instructions and the memory of one worker.
pub(super) struct WorkerPlan {
    pub(super) steps: Vec<Step>,
    pub(super) buffers: Buffers,
}

impl Plan {
    /// Resolves `program`, with room for `positions` positions in its buffers.
    pub(super) fn new(
        program: &Program,
        vectors: &Vectors,
        positions: usize,
        kernels: Kernels,
    ) -> Result<Self, OutOfMemory> {
        let too_large = OutOfMemory { bytes: usize::MAX };
        let mut starts = Vec::with_capacity(program.buffers.len());
        let mut end = 0_usize;
        for buffer in &program.buffers {
            starts.push(end);
            // Caches have their own memory; logits go where the caller wants them.
            let elements =
                if matches!(buffer.role, BufferRole::Cache(_) | BufferRole::Logits) { 0 } else { buffer.elements };
            let floats = elements.checked_mul(positions).and_then(|n| n.checked_mul(size_of::<f32>()));
            // Where a row is short, chunks are larger than the elements.
            let chunks = SharedChunks::bytes(positions, elements);
            let bytes = floats.and_then(|floats| Some(floats.max(chunks?)));
            end = bytes.and_then(|n| n.checked_next_multiple_of(ALIGN)?.checked_add(end)).ok_or(too_large)?;
        }
        let memory = HugeBuffer::new(end)?;
        let start = |role, worker| match program.buffer(role, worker) {
            // SAFETY: every start is inside the memory, whose size is the sum of all buffers.
            Some(id) => unsafe { memory.cast::<f32>().add(starts[id.0] / size_of::<f32>()) },
            None => std::ptr::null_mut(),
        };
        let bind = |worker| Buffers {
            hidden: start(BufferRole::Hidden, worker),
            normed: start(BufferRole::Normed, worker),
            queries: start(BufferRole::Queries, worker),
            keys: start(BufferRole::Keys, worker),
            values: start(BufferRole::Values, worker),
            partials: start(BufferRole::Partials, worker),
            partials_part: program
                .buffer(BufferRole::Partials, worker)
                .map_or(0, |id| program.buffers[id.0].elements / program.target.workers),
            attention: start(BufferRole::Attention, worker),
            activation: start(BufferRole::Activation, worker),
            delta: start(BufferRole::Delta, worker),
        };
        let mut workers: Vec<WorkerPlan> = (0..program.workers.len())
            .map(|worker| WorkerPlan { steps: steps(program, worker, vectors), buffers: bind(worker) })
            .collect();
        if program.target.phase == Phase::Prefill {
            share_inputs(&mut workers, kernels);
        }
        Ok(Self {
            counters: Counters::new(&totals(program), 0),
            generation: 0,
            workers,
            counter_names: program.counters.iter().map(|counter| counter.name.clone()).collect(),
            _memory: memory,
        })
    }
}

/// Finds the instructions whose result can be left in the form that the next one reads, for all workers at once,
/// instead of every worker preparing all of it for itself.
fn share_inputs(workers: &mut [WorkerPlan], kernels: Kernels) {
    for place in 1..workers[0].steps.len() {
        let able = workers.iter().all(|worker| {
            let (from, to) = (&worker.steps[place - 1], &worker.steps[place]);
            let pair = match (&from.operation, &to.operation) {
                (Operation::AddNormalize { .. }, Operation::QueryKeyValue { .. } | Operation::GateUp { .. }) => true,
                // Columns that share a scale must come from one worker.
                (Operation::GateUp { .. }, Operation::Down { .. }) => {
                    from.pieces.first().is_none_or(|piece| piece.rows.start.is_multiple_of(CHUNK_BLOCK))
                }
                _ => false,
            };
            pair && to.dtypes.iter().all(|&dtype| kernels.reads_chunks(dtype))
        });
        for worker in workers.iter_mut().filter(|_| able) {
            worker.steps[place - 1].leaves_chunks = true;
            worker.steps[place].takes_chunks = true;
        }
    }
}

/// Signals that each counter gets in a step.
fn totals(program: &Program) -> Vec<u32> {
    let mut totals = vec![0; program.counters.len()];
    let instructions = program.workers.iter().flat_map(|worker| &worker.instructions);
    for signal in instructions.flat_map(|instruction| &instruction.signals) {
        totals[signal.0] += 1;
    }
    totals
}

fn steps(program: &Program, worker: usize, vectors: &Vectors) -> Vec<Step> {
    let list = &program.workers[worker];
    let mut ahead = 0;
    let mut steps = Vec::with_capacity(list.instructions.len());
    for instruction in &list.instructions {
        let segments = &list.segments[instruction.operation.segments()];
        let pieces: Vec<Piece> = segments.iter().map(|s| piece(s, program.target.tile_rows, vectors)).collect();
        steps.push(Step {
            operation: instruction.operation.clone(),
            dtypes: pieces.iter().map(|piece| piece.dtype).collect(),
            waits: instruction.waits.iter().map(|wait| (wait.counter.0, wait.value)).collect(),
            signals: instruction.signals.iter().map(|signal| signal.0).collect(),
            ahead,
            takes_chunks: false,
            leaves_chunks: false,
            pieces,
        });
        ahead = segments.last().map_or(ahead, |segment| segment.offset + segment.bytes);
    }
    steps
}

fn piece(segment: &Segment, tile_rows: usize, vectors: &Vectors) -> Piece {
    let rows = segment.output_rows(tile_rows);
    let bias = vectors.bias(segment.tensor).map_or_else(Vec::new, |bias| bias[rows.clone()].to_vec());
    Piece {
        tensor: segment.tensor,
        dtype: segment.dtype,
        columns: segment.columns,
        matrix_rows: segment.rows,
        rows,
        bytes: segment.offset..segment.offset + segment.bytes,
        bias,
    }
}
