//! A plan in a few figures, for people and for reports.

use serde::Serialize;

use super::{COPIES, Estimate, Operation, Plan, Product, STAGE_BYTES, Slot, Target};

/// How a product is shared out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProductSummary {
    /// Which.
    pub product: Product,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Rows (gate and up: pairs) of the smallest share.
    pub unit: usize,
    /// Rows (pairs) of the workers that have fewest and most.
    pub least: usize,
    /// See `least`.
    pub most: usize,
}

/// What one worker does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct WorkerSummary {
    /// Instructions, without the end.
    pub instructions: usize,
    /// Of them, those that wait for what other workers write.
    pub waits: usize,
    /// Weight bytes of its stream.
    pub stream_bytes: usize,
}

/// Bytes of the workers' streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Balance {
    /// The shortest.
    pub min: usize,
    /// The mean.
    pub mean: f64,
    /// The longest: all others wait for it.
    pub max: usize,
}

/// The size, the balance and the estimated speed of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What it was planned for.
    pub target: Target,
    /// Workers: multiprocessors that are used.
    pub workers: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Products of a layer, then the head.
    pub products: Vec<ProductSummary>,
    /// Units of attention.
    pub attention_units: usize,
    /// Parts that a unit's positions are cut into, at most.
    pub attention_splits: usize,
    /// Bytes of the matrices.
    pub matrix_bytes: usize,
    /// Bytes that all streams hold: the matrices, and zeros up to whole tiles.
    pub stream_bytes: usize,
    /// Bytes of memory that the streams take.
    pub stream_memory: usize,
    /// How even the streams are.
    pub balance: Balance,
    /// 32-bit words that all workers together exchange in a step, while one split is active.
    pub exchanged_words: usize,
    /// Bytes of memory that the exchange takes.
    pub exchange_memory: usize,
    /// Counters: the one of arrivals. Everything else is its own signal.
    pub counters: usize,
    /// Copies of the exchange: a token's words are cleared while the next one is made.
    pub copies: usize,
    /// Stages of the ring, 16 KiB each.
    pub ring_stages: usize,
    /// Bytes of shared memory beside the ring.
    pub fixed_bytes: usize,
    /// The critical path.
    pub estimate: Estimate,
    /// By worker.
    pub by_worker: Vec<WorkerSummary>,
}

impl Summary {
    /// Of a plan, where weights stream at `gb_per_s` (see [`Estimate::new`]).
    #[must_use]
    pub fn new(plan: &Plan, gb_per_s: f64) -> Self {
        let by_worker: Vec<_> = (0..plan.workers.len()).map(|worker| worker_summary(plan, worker)).collect();
        let lengths = || by_worker.iter().map(|worker| worker.stream_bytes);
        let stream_bytes: usize = lengths().sum();
        Self {
            target: plan.target,
            workers: by_worker.len(),
            layers: plan.shape.layers,
            products: Product::ALL.into_iter().map(|product| product_summary(plan, product)).collect(),
            attention_units: plan.attention.kv_units,
            attention_splits: plan.attention.splits,
            matrix_bytes: Product::ALL.into_iter().map(|product| matrix_bytes(plan, product)).sum(),
            stream_bytes,
            stream_memory: plan.stream_bytes(),
            balance: Balance {
                min: lengths().min().unwrap_or(0),
                mean: stream_bytes as f64 / by_worker.len() as f64,
                max: lengths().max().unwrap_or(0),
            },
            exchanged_words: exchanged_words(plan),
            exchange_memory: plan.exchange.bytes,
            counters: 1,
            copies: COPIES,
            ring_stages: plan.ring.stages,
            fixed_bytes: plan.ring.fixed_bytes,
            estimate: Estimate::new(plan, gb_per_s),
            by_worker,
        }
    }
}

/// Whether an instruction reads what others write in this step; a token's first product reads the embedding.
fn waits(plan: &Plan, operation: Operation, layer: usize) -> bool {
    match operation {
        Operation::End | Operation::Embed => false,
        Operation::QueryKeyValue => layer > 0,
        Operation::Combine => plan.attention.splits > 1,
        Operation::Attend | Operation::Output | Operation::GateUp | Operation::Down | Operation::Head => true,
    }
}

fn worker_summary(plan: &Plan, worker: usize) -> WorkerSummary {
    let list = &plan.workers[worker];
    let waiting = |i: &&super::Instruction| waits(plan, i.operation, usize::from(i.layer));
    WorkerSummary {
        instructions: list.instructions.len() - 1,
        waits: list.instructions.iter().filter(waiting).count(),
        stream_bytes: list.stages as usize * STAGE_BYTES,
    }
}

fn product_summary(plan: &Plan, product: Product) -> ProductSummary {
    let cut = plan.product(product);
    let shares = || (0..plan.workers.len()).map(|worker| cut.partition.share(worker).len());
    ProductSummary {
        product,
        rows: product.matrix_rows(&plan.shape),
        columns: cut.columns,
        unit: cut.partition.unit(),
        least: shares().min().unwrap_or(0),
        most: shares().max().unwrap_or(0),
    }
}

fn matrix_bytes(plan: &Plan, product: Product) -> usize {
    let times = if product == Product::Head { 1 } else { plan.shape.layers };
    2 * times * product.matrix_rows(&plan.shape) * plan.product(product).columns
}

fn exchanged_words(plan: &Plan) -> usize {
    let slots = [Slot::Attention, Slot::QueryKeyValue, Slot::Attended, Slot::FeedForward, Slot::Gated];
    let layer: usize = slots.into_iter().map(|slot| plan.exchange.slot(0, slot).len() / 4).sum();
    // The first layer's input is the embedding, but the last one's output is exchanged; then candidates and the stop word.
    layer * plan.shape.layers + 2 * plan.workers.len() + 1
}
