//! A program and all that its instructions refer to, looked through before it runs: what is said here of an instruction
//! need not be asked again.

use plancher_model::{ModelConfig, TensorKey, Weights};

use super::consumer::RESIDUAL_SCALE;
use super::element::{round, value};
use super::{Fault, Image, image};
use crate::gpu::{Instruction, Operation, Plan, STAGE_BYTES};
use crate::{Vectors, lower};

/// 16 rows of a worker, or 8 rows in two halves of their columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Its first row, or pair of rows.
    pub(super) first: usize,
    /// Rows or pairs that there are of it.
    pub(super) rows: usize,
    pub(super) half: bool,
    pub(super) stages: usize,
}

pub(super) struct Model<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) plan: &'a Plan,
    pub(super) vectors: Vectors,
    /// Of each worker, the end included.
    pub(super) lists: Vec<Vec<Instruction>>,
    pub(super) stream: Vec<u8>,
    /// `(vocab, hidden)`.
    embedding: Vec<u16>,
}

impl<'a> Model<'a> {
    pub(super) fn new(config: &'a ModelConfig, weights: &Weights, plan: &'a Plan, image: Image) -> Result<Self, Fault> {
        let invalid = |error: crate::ProgramError| Fault::Model(error.to_string());
        lower(config, weights).map_err(invalid)?;
        if plan.shape.head_dim > 128 {
            let problem = "a page of such heads does not fit into a stage";
            return Err(Fault::Unsupported { field: "head_dim", value: plan.shape.head_dim, problem });
        }
        let element = plan.target.element;
        let model = Self {
            config,
            plan,
            vectors: Vectors::new(config, weights).map_err(invalid)?,
            lists: lists(plan, &image.instructions)?,
            stream: image.stream,
            embedding: image::rows(weights, TensorKey::Embedding, element)?,
        };
        for (worker, list) in model.lists.iter().enumerate() {
            model.check(worker, list)?;
        }
        Ok(model)
    }

    pub(super) fn element(&self, bits: u16) -> f32 {
        value(self.plan.target.element, bits)
    }

    pub(super) fn round(&self, x: f32) -> u16 {
        round(self.plan.target.element, x)
    }

    /// An element of a token's embedding; that of the last token where there is no such token.
    pub(super) fn embedding(&self, token: u32, column: usize) -> f32 {
        let row = (token as usize).min(self.config.vocab_size - 1);
        self.element(self.embedding[row * self.config.hidden_size + column]) * self.config.embedding_scale
    }

    /// 1 / rms of the residual stream, from the sum of squares of what is published of it: for values of that scale.
    pub(super) fn inverse_rms(&self, squares: f32) -> f32 {
        let epsilon = self.config.norm_eps * (RESIDUAL_SCALE * RESIDUAL_SCALE);
        1.0 / (squares / self.config.hidden_size as f32 + epsilon).sqrt()
    }

    /// The tiles of an instruction, in order; none if it multiplies nothing.
    pub(super) fn tiles(&self, instruction: &Instruction) -> Vec<Tile> {
        let Some(product) = self.plan.product_of(instruction.operation) else { return Vec::new() };
        let (first, count) = (instruction.first as usize, instruction.count as usize);
        let tiles = product.tiles(count);
        let height = if instruction.operation == Operation::GateUp { 8 } else { 16 };
        let tile = |n: usize, half: bool| Tile {
            first: first + n * height,
            rows: (count - n * height).min(if half { 8 } else { height }),
            half,
            stages: if half { product.tile_stages() / 2 } else { product.tile_stages() },
        };
        (0..tiles.full + usize::from(tiles.half)).map(|n| tile(n, n == tiles.full)).collect()
    }

    /// The first position that a layer attends to.
    pub(super) fn window_start(&self, layer: usize, position: usize) -> usize {
        self.config.layers[layer].window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    fn check(&self, worker: usize, list: &[Instruction]) -> Result<(), Fault> {
        let mut stages = 0;
        let mut embedded = (0, 0);
        for (index, instruction) in list.iter().enumerate() {
            let invalid = |problem: &str| Fault::Instruction {
                worker,
                instruction: index,
                problem: format!("{}: {problem}", instruction.operation),
            };
            let rows = (instruction.first, instruction.count);
            match instruction.operation {
                Operation::Embed => embedded = rows,
                Operation::Output | Operation::Down if embedded != rows => {
                    return Err(invalid("its rows are not those of the worker's residual stream"));
                }
                _ => {}
            }
            self.check_ranges(instruction).map_err(invalid)?;
            stages += instruction.stages as usize;
        }
        let stored = self.stream.len() / STAGE_BYTES / self.plan.workers.len();
        if stages > stored {
            return Err(Fault::Matrix {
                matrix: format!("stages of worker {worker}"),
                expected: stages,
                found: stored,
            });
        }
        Ok(())
    }

    fn check_ranges(&self, instruction: &Instruction) -> Result<(), &'static str> {
        let &Instruction { operation, layer, first, count, stages } = instruction;
        let (shape, attention) = (&self.plan.shape, &self.plan.attention);
        let (first, count) = (first as usize, count as usize);
        let within = |rows: usize, multiple: usize| {
            let fits = count > 0 && first + count <= rows;
            let whole = first.is_multiple_of(multiple) && (count.is_multiple_of(multiple) || first + count == rows);
            if fits && whole { Ok(()) } else { Err("its rows are not whole units of the matrix") }
        };
        let layers = shape.layers + usize::from(operation == Operation::Head);
        if usize::from(layer) >= layers {
            return Err("there is no such layer");
        }
        let expected = self.plan.product_of(operation).map_or(0, |product| product.stages(count));
        match operation {
            Operation::Attend if first >= attention.kv_units || count >= attention.splits => {
                return Err("there is no such unit of attention");
            }
            Operation::End | Operation::Attend => {}
            Operation::Embed => within(shape.hidden, 8)?,
            Operation::Combine => within(shape.query_rows(), 8)?,
            _ => within(self.plan.product_of(operation).map_or(0, |product| product.rows), 8)?,
        }
        if stages as usize == expected { Ok(()) } else { Err("its stages are not those of its rows") }
    }
}

/// The instructions of every worker, each list up to its end.
fn lists(plan: &Plan, words: &[u32]) -> Result<Vec<Vec<Instruction>>, Fault> {
    let expected = plan.workers.len() * plan.ring.instructions * 4;
    if words.len() != expected {
        return Err(Fault::Matrix { matrix: "instructions".to_owned(), expected, found: words.len() });
    }
    let (words, _) = words.as_chunks::<4>();
    let lists = words.chunks(plan.ring.instructions).enumerate().map(|(worker, words)| {
        let mut list = Vec::new();
        for (instruction, &words) in words.iter().enumerate() {
            let problem = || format!("unknown operation {:#x}", words[0]);
            let unknown = || Fault::Instruction { worker, instruction, problem: problem() };
            let decoded = Instruction::from_words(words).ok_or_else(unknown)?;
            list.push(decoded);
            if decoded.operation == Operation::End {
                return Ok(list);
            }
        }
        Err(Fault::Instruction { worker, instruction: list.len(), problem: "the list has no end".to_owned() })
    });
    lists.collect()
}
