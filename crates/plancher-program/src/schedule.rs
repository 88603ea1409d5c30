//! Scheduling: cutting the operations of a step into instructions for the workers of a target, with the waits that
//! order them.
//!
//! Every worker performs every operation on its share: its tiles of a matrix product, its copy or its positions of
//! the rest. A share may be empty; the instruction is there all the same, so that "all workers have signalled" means
//! that all workers have come that far. That makes the order of a whole program one number a wait can raise: after
//! waiting for operation `a`, a worker knows that nobody is before `a`. A wait is added only where an access would
//! otherwise be unordered, so none is implied by another.

use crate::balance::{Balancer, Run};
use crate::footprint::{BufferIndex, NoBuffer, footprint};
use crate::lower::{BufferSizes, Lowered, LoweredOperation, Matrix};
use crate::pack::TileLayout;
use crate::{
    Access, AccessMode, Buffer, BufferRole, Counter, CounterId, Instruction, Operation, Phase, Program, ProgramError,
    Segment, Target, Wait, WorkerProgram,
};

/// The largest number of workers a program is made for.
pub const MAX_WORKERS: usize = 256;

/// Lays the step out for the workers of `target`. The streams of both phases are the same, so that weights are
/// packed once.
///
/// # Errors
/// When a field of `target` is out of range, `layout` has no tile for a matrix, or sizes overflow.
pub fn schedule(lowered: &Lowered, target: Target, layout: &dyn TileLayout) -> Result<Program, ProgramError> {
    check_target(target, layout)?;
    let buffers = buffers(&lowered.sizes, target)?;
    let mut cutter = Cutter {
        target,
        layout,
        balancer: Balancer::new(target.workers),
        workers: vec![WorkerProgram::default(); target.workers],
    };
    for operation in &lowered.operations {
        cutter.cut(operation, &BufferIndex::new(&buffers))?;
    }
    let mut program = Program { target, buffers, counters: Vec::new(), workers: cutter.workers };
    synchronize(&mut program);
    Ok(program)
}

fn check_target(target: Target, layout: &dyn TileLayout) -> Result<(), ProgramError> {
    let invalid = |field, value, problem| Err(ProgramError::Target { field, value, problem });
    if target.workers == 0 || target.workers > MAX_WORKERS {
        return invalid("workers", target.workers, "must be between 1 and 256");
    }
    if target.tile_rows == 0 || target.tile_rows != layout.tile_rows() {
        return invalid("tile_rows", target.tile_rows, "must be the layout's and not zero");
    }
    if target.kv_chunk == 0 {
        return invalid("kv_chunk", target.kv_chunk, "must not be zero");
    }
    Ok(())
}

/// The buffers of a program: shared ones first, then those of worker 0, worker 1, …
fn buffers(sizes: &BufferSizes, target: Target) -> Result<Vec<Buffer>, ProgramError> {
    let shared = |role, elements| Buffer { role, elements, owner: None };
    let local = [
        (BufferRole::Hidden, sizes.hidden),
        (BufferRole::Normed, sizes.hidden),
        (BufferRole::Attention, sizes.queries),
    ];
    let mut buffers = vec![
        shared(BufferRole::Queries, sizes.queries),
        shared(BufferRole::Keys, sizes.keys),
        shared(BufferRole::Values, sizes.keys),
        shared(BufferRole::Activation, sizes.activation),
        shared(BufferRole::Delta, sizes.hidden),
        shared(BufferRole::Logits, sizes.logits),
    ];
    buffers.extend(sizes.caches.iter().enumerate().map(|(layer, &n)| shared(BufferRole::Cache(layer), n)));
    match target.phase {
        Phase::Decode => {
            let elements = sizes.partials.checked_mul(target.workers).ok_or(ProgramError::Target {
                field: "workers",
                value: target.workers,
                problem: "times the size of attention partials overflows",
            })?;
            buffers.push(shared(BufferRole::Partials, elements));
            buffers.extend(
                (0..target.workers)
                    .flat_map(|worker| local.map(|(role, elements)| Buffer { role, elements, owner: Some(worker) })),
            );
        }
        Phase::Prefill => buffers.extend(local.map(|(role, elements)| shared(role, elements))),
    }
    Ok(buffers)
}

/// Cuts operations into instructions and lays out the streams.
struct Cutter<'a> {
    target: Target,
    layout: &'a dyn TileLayout,
    balancer: Balancer,
    workers: Vec<WorkerProgram>,
}

impl Cutter<'_> {
    fn cut(&mut self, operation: &LoweredOperation, index: &BufferIndex<'_>) -> Result<(), ProgramError> {
        match *operation {
            LoweredOperation::Embed => self.push(index, |_| Operation::Embed),
            LoweredOperation::AddNormalize { layer, feed_forward } => {
                self.push(index, |_| Operation::AddNormalize { layer, feed_forward });
            }
            LoweredOperation::Attention { layer } => {
                if self.target.phase == Phase::Prefill {
                    self.push(index, |_| Operation::Append { layer });
                }
                self.push(index, |_| Operation::Attention { layer });
            }
            LoweredOperation::QueryKeyValue { layer, matrices } => {
                self.assign(&matrices)?;
                self.push(index, |segments| Operation::QueryKeyValue { layer, segments });
            }
            LoweredOperation::AttentionOutput { layer, matrix } => {
                self.assign(&[matrix])?;
                self.push(index, |segments| Operation::AttentionOutput { layer, segments });
            }
            LoweredOperation::GateUp { layer, gate, up } => {
                self.assign_pairs(gate, up)?;
                self.push(index, |segments| Operation::GateUp { layer, segments });
            }
            LoweredOperation::Down { layer, matrix } => {
                self.assign(&[matrix])?;
                self.push(index, |segments| Operation::Down { layer, segments });
            }
            LoweredOperation::Head { matrix } => {
                self.assign(&[matrix])?;
                self.push(index, |segments| Operation::Head { segments });
            }
        }
        Ok(())
    }

    /// Gives every worker the instruction; its segments are those laid out since its last one.
    fn push(&mut self, index: &BufferIndex<'_>, operation: impl Fn(std::ops::Range<usize>) -> Operation) {
        for (worker, list) in self.workers.iter_mut().enumerate() {
            let consumed = list.instructions.iter().rev().map(|i| i.operation.segments().end).find(|&end| end > 0);
            let segments = consumed.unwrap_or(0)..list.segments.len();
            let operation = operation(segments.clone());
            let accesses = match footprint(&operation, &list.segments[segments], worker, self.target, index) {
                Ok(accesses) => accesses,
                Err(NoBuffer(role)) => unreachable!("`buffers` makes {role}, as every role that the phase uses"),
            };
            list.instructions.push(Instruction { operation, waits: Vec::new(), accesses, signals: Vec::new() });
        }
    }

    fn run(&self, matrix: Matrix) -> Result<Run, ProgramError> {
        let Matrix { tensor, dtype, rows, columns } = matrix;
        let tile_bytes = self.layout.tile_bytes(dtype, columns).filter(|&bytes| bytes > 0);
        let tile_bytes = tile_bytes.ok_or(ProgramError::Tile { key: tensor, columns, dtype })?;
        Ok(Run { tiles: rows.div_ceil(self.target.tile_rows), tile_bytes })
    }

    /// Shares out the tiles of `matrices`, one after the other.
    fn assign(&mut self, matrices: &[Matrix]) -> Result<(), ProgramError> {
        let runs = matrices.iter().map(|&matrix| self.run(matrix)).collect::<Result<Vec<_>, _>>()?;
        for (worker, share) in self.balancer.split(&runs).into_iter().enumerate() {
            let mut first = 0;
            for (matrix, run) in matrices.iter().zip(&runs) {
                let clamp = |tile: usize| tile.clamp(first, first + run.tiles) - first;
                self.append(worker, *matrix, clamp(share.start)..clamp(share.end), run.tile_bytes)?;
                first += run.tiles;
            }
        }
        Ok(())
    }

    /// Shares out the tiles of gate and up, so that rows which meet in the activation are on one worker.
    fn assign_pairs(&mut self, gate: Matrix, up: Matrix) -> Result<(), ProgramError> {
        let (gate_run, up_run) = (self.run(gate)?, self.run(up)?);
        let tile_bytes = gate_run.tile_bytes.saturating_add(up_run.tile_bytes);
        let pairs = [Run { tiles: gate_run.tiles, tile_bytes }];
        for (worker, share) in self.balancer.split(&pairs).into_iter().enumerate() {
            self.append(worker, gate, share.clone(), gate_run.tile_bytes)?;
            self.append(worker, up, share, up_run.tile_bytes)?;
        }
        Ok(())
    }

    /// Lays tiles at the end of a worker's stream.
    fn append(
        &mut self,
        worker: usize,
        matrix: Matrix,
        tiles: std::ops::Range<usize>,
        tile_bytes: usize,
    ) -> Result<(), ProgramError> {
        if tiles.is_empty() {
            return Ok(());
        }
        let list = &mut self.workers[worker];
        let offset = list.stream_bytes;
        let bytes = tiles.len().checked_mul(tile_bytes).filter(|bytes| offset.checked_add(*bytes).is_some());
        let bytes = bytes.ok_or(ProgramError::TooLarge { worker })?;
        let Matrix { tensor, dtype, rows, columns } = matrix;
        list.segments.push(Segment { tensor, dtype, columns, rows, tiles, offset, bytes });
        list.stream_bytes += bytes;
        Ok(())
    }
}

/// Adds counters and waits. All workers have the same operations in the same places.
fn synchronize(program: &mut Program) {
    let length = program.workers[0].instructions.len();
    // All workers are known to have finished the instructions before this one.
    let mut known = 0;
    for place in 0..length {
        let Some(needed) = (known..place).rev().find(|&earlier| conflict(program, earlier, place)) else { continue };
        let counter = CounterId(program.counters.len());
        program.counters.push(Counter { name: program.workers[0].instructions[needed].operation.to_string() });
        let value = program.workers.len() as u32;
        for worker in &mut program.workers {
            worker.instructions[needed].signals.push(counter);
            worker.instructions[place].waits.push(Wait { counter, value });
        }
        known = needed + 1;
    }
}

/// Whether two different workers touch the same memory in instructions `a` and `b`, one of them writing.
fn conflict(program: &Program, a: usize, b: usize) -> bool {
    let shared = |place: usize| -> Vec<(usize, &Access)> {
        let workers = program.workers.iter().enumerate();
        workers
            .flat_map(|(worker, list)| list.instructions[place].accesses.iter().map(move |access| (worker, access)))
            .filter(|(_, access)| program.buffers[access.buffer.0].owner.is_none())
            .collect()
    };
    let (first, second) = (shared(a), shared(b));
    first.iter().any(|(v, x)| second.iter().any(|(w, y)| v != w && x.conflicts(y)))
}

impl Access {
    /// Whether the two touch the same memory and one of them writes: then they must not happen at the same time.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        self.buffer == other.buffer
            && (self.mode == AccessMode::Write || other.mode == AccessMode::Write)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
            && self.part.overlaps(other.part)
    }
}
