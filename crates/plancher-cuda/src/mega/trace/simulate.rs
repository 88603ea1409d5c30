//! A made-up step (feature `testing`): workers that stream weights, wait for each other and publish, by a simple model with
//! given costs, written as the kernel writes its trace. It panics on misuse.

use plancher_program::gpu::{CONSUMERS, Instruction, Operation, Plan, padded};

use super::layout::{WORDS, WORKER_WORDS, buffer_words};

/// When the workers begin, by the made-up clock.
const ORIGIN: u64 = 1 << 40;

/// A worker whose publication comes later than its work would have it.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// Which.
    pub worker: usize,
    /// Of what.
    pub operation: Operation,
    /// In which layer.
    pub layer: u16,
    /// By how much, in nanoseconds.
    pub by: u64,
}

/// What things cost, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Step {
    /// The position that the step appends.
    pub position: usize,
    /// From a publication until another worker has seen it.
    pub hop: u64,
    /// A stage's way from memory, with all workers streaming.
    pub stage: u64,
    /// A stage's products.
    pub product: u64,
    /// Attention over a split.
    pub attention: u64,
    /// Adding up and publishing.
    pub publish: u64,
    /// From knowing the token to the end of the step.
    pub end: u64,
    /// Who is late, if anybody is.
    pub late: Option<Late>,
    /// Up to how much a worker's stages differ from `stage`, either way, by worker and instruction.
    pub unevenness: u64,
}

impl Default for Step {
    /// As an H200 has them, roughly.
    fn default() -> Self {
        Self {
            position: 47,
            hop: 640,
            stage: 448,
            product: 96,
            attention: 960,
            publish: 160,
            end: 320,
            late: None,
            unevenness: 0,
        }
    }
}

/// A worker while the step is made up.
#[derive(Clone, Default)]
struct Worker {
    /// When its consumers, and its finalizer, are free.
    consumers: u64,
    finalizer: u64,
    /// When each stage was consumed, and when the last one landed.
    consumed: Vec<u64>,
    landed: u64,
    ring_full: u64,
}

impl Step {
    /// Makes the step up, as the kernel of `plan` leaves it in the buffer.
    #[must_use]
    pub fn record(&self, plan: &Plan) -> Vec<u64> {
        let start = Worker { consumers: ORIGIN, finalizer: ORIGIN, landed: ORIGIN, ..Worker::default() };
        let mut workers = vec![start; plan.workers.len()];
        let mut buffer = vec![0; buffer_words(plan)];
        let shape = &plan.shape;
        // What is published, by element; the embedding needs no hop.
        let mut x = vec![ORIGIN - self.hop; shape.hidden];
        for layer in 0..shape.layers as u16 {
            for (operation, elements) in [
                (Operation::QueryKeyValue, shape.query_key_value_rows()),
                (Operation::Attend, shape.query_rows()),
                (Operation::Combine, shape.query_rows()),
                (Operation::Output, shape.hidden),
                (Operation::GateUp, shape.feed_forward),
                (Operation::Down, shape.hidden),
            ] {
                if operation != Operation::Combine || plan.attention.active_splits(self.position) > 1 {
                    x = self.all(plan, &mut workers, &mut buffer, (operation, layer), &x, elements);
                }
            }
        }
        let head = (Operation::Head, shape.layers as u16);
        let candidates = self.all(plan, &mut workers, &mut buffer, head, &x, shape.vocab);
        let token = candidates.iter().max().map_or(ORIGIN, |last| last + self.hop);
        let ends = &mut buffer[plan.workers.len() * plan.ring.instructions * WORDS..];
        for (end, worker) in ends.chunks_exact_mut(WORKER_WORDS).zip(&workers) {
            end.copy_from_slice(&[ORIGIN, token, token + self.end, worker.ring_full]);
        }
        buffer
    }

    /// One operation of one layer on all workers; when each of its elements is published.
    fn all(
        &self,
        plan: &Plan,
        workers: &mut [Worker],
        buffer: &mut [u64],
        (operation, layer): (Operation, u16),
        input: &[u64],
        elements: usize,
    ) -> Vec<u64> {
        let mut published = vec![0; elements];
        for (index, (worker, list)) in workers.iter_mut().zip(&plan.workers).enumerate() {
            for (number, instruction) in list.instructions.iter().enumerate() {
                if (instruction.operation, instruction.layer) != (operation, layer) {
                    continue;
                }
                let late =
                    self.late.filter(|late| (late.worker, late.operation, late.layer) == (index, operation, layer));
                let late = late.map_or(0, |late| late.by);
                let (first, count) = (instruction.first as usize, instruction.count as usize);
                let (words, elements) = match operation {
                    Operation::Attend => {
                        let heads = plan.attention.heads(first);
                        let dim = plan.shape.head_dim;
                        (self.attend(plan, worker, instruction, input, late), heads.start * dim..heads.end * dim)
                    }
                    Operation::Combine => {
                        let last = input[first..first + count].iter().max().copied().unwrap_or(0);
                        let summed = (last + self.hop).max(worker.finalizer);
                        worker.finalizer = summed + self.publish + late;
                        ([0, 0, 0, 0, summed, worker.finalizer, 0, 0], first..first + count)
                    }
                    _ => {
                        let stage = self.uneven(index, number);
                        (self.product(plan.ring.stages, worker, instruction, input, stage, late), first..first + count)
                    }
                };
                if operation != Operation::Attend || count < plan.attention.active_splits(self.position) {
                    for element in &mut published[elements] {
                        *element = words[5].max(*element);
                    }
                }
                buffer[(index * plan.ring.instructions + number) * WORDS..][..WORDS].copy_from_slice(&words);
            }
        }
        published
    }

    /// A stage's time on one worker in one instruction.
    fn uneven(&self, worker: usize, number: usize) -> u64 {
        let mixed =
            (worker as u64 * 0x9e37_79b9 + number as u64 * 0x85eb_ca6b).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        // In ticks of 32 ns, so that the clock's tick stays one.
        let spread = 2 * self.unevenness / 32 + 1;
        self.stage + mixed % spread * 32 - self.unevenness / 32 * 32
    }

    fn product(
        &self,
        ring: usize,
        worker: &mut Worker,
        instruction: &Instruction,
        input: &[u64],
        stage: u64,
        late: u64,
    ) -> [u64; WORDS] {
        let columns = padded(input.len()) / CONSUMERS;
        let began = worker.consumers;
        let of_warp = |warp: usize| {
            let slice = (warp * columns).min(input.len())..((warp + 1) * columns).min(input.len());
            input[slice].iter().max().map_or(began, |last| (last + self.hop).max(began))
        };
        let mut clocks: Vec<u64> = (0..CONSUMERS).map(of_warp).collect();
        let at_input = clocks[0];
        let (mut waited, mut issued) = (0, 0);
        for _ in 0..instruction.stages {
            let free = worker.consumed.len().checked_sub(ring).map_or(ORIGIN, |before| worker.consumed[before]);
            worker.ring_full += free.saturating_sub(worker.landed);
            issued = free.max(worker.landed);
            worker.landed = issued + stage;
            waited += worker.landed.saturating_sub(clocks[0]);
            for clock in &mut clocks {
                *clock = (*clock).max(worker.landed) + self.product;
            }
            worker.consumed.push(clocks.iter().copied().max().unwrap_or(0));
        }
        let summed = clocks.iter().copied().max().unwrap_or(0).max(worker.finalizer);
        worker.consumers = clocks[0];
        worker.finalizer = summed + self.publish + late;
        [began, at_input, clocks[0], waited, summed, worker.finalizer, (at_input - began).div_ceil(640), issued]
    }

    fn attend(
        &self,
        plan: &Plan,
        worker: &mut Worker,
        instruction: &Instruction,
        input: &[u64],
        late: u64,
    ) -> [u64; WORDS] {
        let began = worker.consumers;
        if instruction.count as usize >= plan.attention.active_splits(self.position) {
            return [began, began, began, 0, 0, 0, 0, 0];
        }
        let (shape, unit) = (&plan.shape, instruction.first as usize);
        let (heads, dim) = (plan.attention.heads(unit), shape.head_dim);
        let key = shape.query_rows() + plan.attention.kv_head(unit) * dim;
        let value = key + shape.kv_rows();
        let rows = [heads.start * dim..heads.end * dim, key..key + dim, value..value + dim];
        let last = rows.into_iter().flat_map(|rows| &input[rows]).max().copied().unwrap_or(0);
        let at_input = began.max(last + self.hop);
        worker.consumers = at_input + self.attention + self.publish + late;
        [began, at_input, worker.consumers, 0, 0, worker.consumers, (at_input - began).div_ceil(640), 0]
    }
}
