//! The plan: every decision about a model's program on a device, in one place, for the host that launches the kernel,
//! the checker, the interpreter and whoever explains it.

use plancher_model::ModelConfig;

use super::{
    Attention, Exchange, INSTRUCTION_BYTES, Instruction, Operation, Partition, PlanError, Product, ProductPlan, Ring,
    STAGE_BYTES, Shape, Target,
};

/// Outputs of attention that a worker combines at a time.
const COMBINE_UNIT: usize = 8;

/// The most instructions of all workers together: twice what the largest models need on the largest devices, and few enough
/// to be checked in seconds.
const MOST_INSTRUCTIONS: usize = 1 << 18;

/// What one worker does in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerPlan {
    /// In order; the last one is the end.
    pub instructions: Vec<Instruction>,
    /// For each instruction, its first stage in the worker's stream.
    pub first_stages: Vec<u32>,
    /// Stages of the stream.
    pub stages: u32,
}

impl WorkerPlan {
    fn push(&mut self, instruction: Instruction) -> Result<(), PlanError> {
        self.first_stages.push(self.stages);
        let stages = self.stages.checked_add(instruction.stages);
        self.stages = stages.ok_or(PlanError::TooLarge { what: "weight stream" })?;
        self.instructions.push(instruction);
        Ok(())
    }
}

/// A model's program for the persistent kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it is made for.
    pub target: Target,
    /// The model.
    pub shape: Shape,
    /// How attention is cut.
    pub attention: Attention,
    /// Where activations are exchanged.
    pub exchange: Exchange,
    /// Shared memory.
    pub ring: Ring,
    /// Who combines which outputs of attention, `n_heads * head_dim` of them.
    pub combine: Partition,
    /// One a worker.
    pub workers: Vec<WorkerPlan>,
    products: [ProductPlan; 5],
    stream_bytes: usize,
}

impl Plan {
    /// Plans a model for a device.
    ///
    /// # Errors
    /// When the kernel cannot run this model there.
    pub fn new(config: &ModelConfig, target: Target) -> Result<Self, PlanError> {
        Shape::new(config)?.check_kernel()?;
        Self::unrestricted(config, target)
    }

    /// As [`Self::new`], also for shapes that a program can express and the kernel does not take: heads of more than 128,
    /// groups of more than 8, norms after attention and feed-forward.
    ///
    /// # Errors
    /// When a program cannot express this model, or it does not fit the device.
    pub fn unrestricted(config: &ModelConfig, target: Target) -> Result<Self, PlanError> {
        target.check()?;
        let shape = Shape::new(config)?;
        let workers = worker_count(&shape, target.multiprocessors);
        let products = Product::ALL.map(|product| ProductPlan::new(product, &shape, workers));
        let attention = Attention::new(&shape, workers);
        let exchange = Exchange::new(&shape, &attention, workers)?;
        let combine = Partition::new(shape.query_rows(), COMBINE_UNIT, workers);

        // The lists are kept in shared memory: that they fit is known before they are made.
        let most_units = attention.kv_units.saturating_mul(attention.splits).div_ceil(workers);
        let bound = most_units.saturating_add(5).saturating_mul(shape.layers).saturating_add(3);
        if bound.saturating_mul(INSTRUCTION_BYTES) > target.shared_memory {
            let needed = bound.saturating_mul(INSTRUCTION_BYTES);
            return Err(PlanError::SharedMemory { available: target.shared_memory, needed });
        }
        if bound.saturating_mul(workers) > MOST_INSTRUCTIONS {
            let expected = "fewer layers: all workers together have at most 262144 instructions";
            return Err(PlanError::Size { field: "num_hidden_layers", value: shape.layers, expected });
        }
        let mut plan = Self {
            target,
            shape,
            attention,
            exchange,
            ring: Ring { fixed_bytes: 0, stages: 0, table_pages: 0, instructions: 0 },
            combine,
            workers: Vec::with_capacity(workers),
            products,
            stream_bytes: 0,
        };
        for worker in 0..workers {
            let list = plan.list(worker)?;
            plan.workers.push(list);
        }
        let instructions = plan.workers.iter().map(|worker| worker.instructions.len()).max().unwrap_or(0);
        let residual_rows = plan.residual().most_units() * plan.residual().unit();
        let (positions, shared) = (target.positions, target.shared_memory);
        plan.ring = Ring::new(&shape, &attention, positions, instructions, residual_rows, shared)?;
        let stages = plan.stream_stages();
        let stream_bytes = stages.checked_mul(workers).and_then(|stages| stages.checked_mul(STAGE_BYTES));
        plan.stream_bytes = stream_bytes.ok_or(PlanError::TooLarge { what: "weight stream" })?;
        Ok(plan)
    }

    /// How a product is cut.
    #[must_use]
    pub fn product(&self, product: Product) -> &ProductPlan {
        &self.products[product as usize]
    }

    /// The product that an instruction computes; nothing for those without weights.
    #[must_use]
    pub fn product_of(&self, operation: Operation) -> Option<&ProductPlan> {
        Some(self.product(match operation {
            Operation::QueryKeyValue => Product::QueryKeyValue,
            Operation::Output => Product::Output,
            Operation::GateUp => Product::GateUp,
            Operation::Down => Product::Down,
            Operation::Head => Product::Head,
            Operation::End | Operation::Embed | Operation::Attend | Operation::Combine => return None,
        }))
    }

    /// Who owns which rows of the residual stream: those of the output and of the down projection.
    #[must_use]
    pub fn residual(&self) -> &Partition {
        &self.product(Product::Down).partition
    }

    /// Stages of the longest stream: all streams are laid out for as many.
    #[must_use]
    pub fn stream_stages(&self) -> usize {
        self.workers.iter().map(|worker| worker.stages as usize).max().unwrap_or(0)
    }

    /// Bytes of all streams together, `(stages, workers, 16 KiB)`; what lies beyond a shorter stream's end is never
    /// read.
    #[must_use]
    pub fn stream_bytes(&self) -> usize {
        self.stream_bytes
    }

    /// Where a worker's stage starts in the streams, in bytes.
    #[must_use]
    pub fn stage_offset(&self, worker: usize, stage: usize) -> usize {
        (stage * self.workers.len() + worker) * STAGE_BYTES
    }

    /// The instruction lists as the kernel reads them: `(workers, ring.instructions, 4)` words, shorter lists filled up
    /// with ends.
    #[must_use]
    pub fn instruction_words(&self) -> Vec<u32> {
        let list = |worker: &WorkerPlan| {
            let padding = self.ring.instructions - worker.instructions.len();
            let ends = std::iter::repeat_n(Instruction::END, padding);
            worker.instructions.clone().into_iter().chain(ends).flat_map(|instruction| instruction.words())
        };
        self.workers.iter().flat_map(list).collect()
    }

    /// The instruction list of a worker.
    fn list(&self, worker: usize) -> Result<WorkerPlan, PlanError> {
        let mut list = WorkerPlan::default();
        let without_weights = |operation, layer: usize, first: usize, count: usize| Instruction {
            operation,
            layer: layer as u16,
            first: first as u32,
            count: count as u32,
            stages: 0,
        };
        let own = self.residual().share(worker);
        if !own.is_empty() {
            list.push(without_weights(Operation::Embed, 0, own.start, own.len()))?;
        }
        for layer in 0..self.shape.layers {
            self.push_product(&mut list, worker, layer, Operation::QueryKeyValue)?;
            for unit in self.attention.units(worker) {
                list.push(without_weights(Operation::Attend, layer, unit.kv_unit, unit.split))?;
            }
            let outputs = self.combine.share(worker);
            if !outputs.is_empty() {
                list.push(without_weights(Operation::Combine, layer, outputs.start, outputs.len()))?;
            }
            self.push_product(&mut list, worker, layer, Operation::Output)?;
            self.push_product(&mut list, worker, layer, Operation::GateUp)?;
            self.push_product(&mut list, worker, layer, Operation::Down)?;
        }
        self.push_product(&mut list, worker, self.shape.layers, Operation::Head)?;
        list.push(Instruction::END)?;
        Ok(list)
    }

    fn push_product(
        &self,
        list: &mut WorkerPlan,
        worker: usize,
        layer: usize,
        operation: Operation,
    ) -> Result<(), PlanError> {
        let Some(product) = self.product_of(operation) else { return Ok(()) };
        let rows = product.partition.share(worker);
        if rows.is_empty() {
            return Ok(());
        }
        let stages = product.stages(rows.len());
        let stages = u32::try_from(stages).map_err(|_| PlanError::TooLarge { what: "weight stream" })?;
        let (layer, first, count) = (layer as u16, rows.start as u32, rows.len() as u32);
        list.push(Instruction { operation, layer, first, count, stages })
    }
}

/// The smallest number of workers with the least to do: the sum over a layer's products of what the busiest worker reads.
fn worker_count(shape: &Shape, most: usize) -> usize {
    let busiest = |workers: usize| -> u128 {
        let product = |product| {
            let plan = ProductPlan::new(product, shape, workers);
            let rows = plan.partition.unit() * if product == Product::GateUp { 2 } else { 1 };
            plan.partition.most_units() as u128 * (rows * plan.padded) as u128
        };
        Product::OF_LAYER.into_iter().map(product).sum()
    };
    (1..=most).min_by_key(|&workers| busiest(workers)).unwrap_or(1)
}
