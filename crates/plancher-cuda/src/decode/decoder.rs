//! Sequences on a device: their cache, and the graphs that append to it.

use std::collections::HashMap;
use std::sync::Arc;

use super::buffers::Buffers;
use super::matvec;
use super::sampling::Chooser;
use super::step::{self, Parts};
use super::token_loop::Running;
use super::wide::{self, Wide};
use super::{Executor, Prepared, Shape, attention};
use crate::mega::{Mega, MegaOptions, Mode, Operands};
use crate::{
    Compiler, CudaError, Device, DeviceWeights, Graph, KvCache, Loader, Prefill, PrefillLogits, Prefilled, Result,
};

/// What a decoder is to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Sequences, at most [`Decoder::MOST_SEQUENCES`].
    pub sequences: usize,
    /// Positions of each.
    pub positions: usize,
    /// The most bytes of keys and values; without it, what all sequences need.
    pub cache_budget: Option<u64>,
    /// What runs steps of one sequence.
    pub executor: Executor,
    /// How the megakernel is run.
    pub mega: MegaOptions,
}

/// How a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// With logits.
    Logits,
    /// With the most likely tokens.
    Greedy,
    /// With tokens chosen by the sequences' settings.
    Choose,
}

/// Decodes sequences of one model: one step of up to 8 of them is a CUDA graph of five kernels a layer, one of more a graph
/// of matrix products. Steps of one sequence may instead be the megakernel's, many of them in a launch.
#[derive(Debug)]
pub struct Decoder {
    // First, so that they go before what they use.
    graphs: HashMap<(usize, End), Graph>,
    pub(super) mega: Option<Mega>,
    /// Why there is no megakernel, where it was wanted.
    refusal: Option<CudaError>,
    /// What runs steps of one sequence: the graph or the megakernel.
    pub(super) executor: Executor,
    pub(super) device: Device,
    pub(super) loader: Loader,
    weights: Arc<DeviceWeights>,
    cache: KvCache,
    pub(super) buffers: Buffers,
    pub(super) chooser: Chooser,
    shape: Shape,
    /// For steps of more sequences than the matrix-vector kernel takes.
    wide: Option<Wide>,
    /// Positions that each sequence's cache holds.
    pub(super) positions: Vec<usize>,
    pub(super) running: Option<Running>,
    logits: Vec<f32>,
}

impl Decoder {
    /// The most sequences of a step.
    pub const MOST_SEQUENCES: usize = wide::MOST_SEQUENCES;

    /// Makes room for sequences; compiles nothing yet.
    ///
    /// # Errors
    /// If there are more sequences than a step takes or more positions than the rotary tables have, or if the device's
    /// memory is too small.
    pub fn new(
        device: &Device,
        compiler: &Compiler,
        weights: Arc<DeviceWeights>,
        options: DecodeOptions,
    ) -> Result<Self> {
        let DecodeOptions { sequences, positions, cache_budget, executor, mega } = options;
        check("sequences of a step", sequences, Self::MOST_SEQUENCES)?;
        let covered = weights.ropes.iter().map(|rope| rope.positions).min().unwrap_or(usize::MAX);
        check("positions of a sequence", positions, covered)?;
        let attention = attention::shared_memory(&weights.config.layers, weights.element);
        let shape = Shape::of(device.properties(), attention);
        let sequences = sequences.max(1);
        let candidates = step::head_blocks(&weights, shape);
        let buffers = Buffers::new(device, &weights, sequences, candidates)?;
        let chooser = Chooser::new(device, shape, weights.config.vocab_size, sequences, candidates)?;
        let is_wide = sequences > matvec::MOST_SEQUENCES;
        let wide = is_wide.then(|| Wide::new(device, compiler, &weights, sequences)).transpose()?;
        let cache = KvCache::new(device, &weights.config, sequences, positions, cache_budget)?;
        let mut loader = Loader::new(device, compiler);
        let operands = Operands {
            logits: buffers.logits.pointer(),
            sampling: chooser.states(),
            tokens: buffers.tokens.pointer(),
            positions: buffers.positions.pointer(),
        };
        let make = || Mega::new(&mut loader, &weights, &cache, operands, mega);
        let (mega, refusal) = match (executor, (executor != Executor::Graph).then(make)) {
            (_, None) => (None, None),
            (_, Some(Ok(mega))) => (Some(mega), None),
            (Executor::Mega, Some(Err(error))) => return Err(error),
            (_, Some(Err(error))) => (None, Some(error)),
        };
        // An error that ended the device's context is not only a reason for the graph.
        device.bind()?;
        Ok(Self {
            graphs: HashMap::new(),
            executor: if mega.is_some() { Executor::Mega } else { Executor::Graph },
            mega,
            refusal,
            device: device.clone(),
            loader,
            weights,
            cache,
            buffers,
            chooser,
            shape,
            wide,
            positions: vec![0; sequences],
            running: None,
            logits: Vec::new(),
        })
    }

    /// The model.
    #[must_use]
    pub fn weights(&self) -> &Arc<DeviceWeights> {
        &self.weights
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Keys and values of all sequences.
    #[must_use]
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// What runs steps of one sequence: [`Executor::Graph`] or [`Executor::Mega`].
    #[must_use]
    pub fn executor(&self) -> Executor {
        self.executor
    }

    /// Why the graph runs where [`Executor::Auto`] was asked for.
    #[must_use]
    pub fn refusal(&self) -> Option<&CudaError> {
        self.refusal.as_ref()
    }

    /// Lets the graph or the megakernel run steps of one sequence from now on; [`Executor::Auto`] takes the latter if it
    /// is there. What the caches hold stays.
    ///
    /// # Errors
    /// If the megakernel was not made with this decoder, or the device fails.
    pub fn set_executor(&mut self, executor: Executor) -> Result<()> {
        self.end_loop()?;
        self.executor = match (executor, self.mega.is_some()) {
            (Executor::Graph, _) | (Executor::Auto, false) => Executor::Graph,
            (Executor::Mega | Executor::Auto, true) => Executor::Mega,
            (Executor::Mega, false) => {
                let unplanned = || CudaError::Unsupported("the megakernel was not planned for".to_owned());
                return Err(self.refusal.clone().unwrap_or_else(unplanned));
            }
        };
        Ok(())
    }

    /// The most positions of a sequence.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.cache.positions()
    }

    /// Positions that `sequence` holds.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[must_use]
    pub fn position(&self, sequence: usize) -> usize {
        self.positions[sequence]
    }

    /// Appends `tokens` to `sequence`, as [`Prefill::run`] does; the logits of the last one are then those from which
    /// [`Self::start`] chooses.
    ///
    /// # Errors
    /// As for [`Prefill::run`]; the sequence then holds what it held.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn prefill(
        &mut self,
        prefill: &mut Prefill,
        sequence: usize,
        tokens: &[u32],
        logits: PrefillLogits,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Prefilled> {
        self.end_loop()?;
        let position = self.positions[sequence];
        let prefilled = match prefill.run(&mut self.cache, sequence, position, tokens, logits, progress) {
            Ok(prefilled) => prefilled,
            Err(error) => {
                self.cache.truncate(sequence, position);
                return Err(error);
            }
        };
        self.positions[sequence] = position + prefilled.tokens;
        let vocab = self.weights.config.vocab_size;
        if let Some(first) = prefilled.logits.len().checked_sub(vocab) {
            self.buffers.logits.upload(sequence * vocab, &prefilled.logits[first..])?;
        }
        Ok(prefilled)
    }

    /// Forgets every position of `sequence` from `position` on.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn truncate(&mut self, sequence: usize, position: usize) {
        let position = position.min(self.positions[sequence]);
        self.positions[sequence] = position;
        self.cache.truncate(sequence, position);
    }

    /// Appends one token to each of the first sequences and returns their logits, `(tokens, vocab_size)`.
    ///
    /// # Errors
    /// If there are more tokens than sequences, a cache is full, a kernel does not compile, or the device fails. The
    /// positions are then what they were.
    pub fn decode(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        self.enter(tokens, 1)?;
        if self.is_in_mega(tokens.len()) {
            self.launch(Mode::Logits, 1, &[])?;
            self.finish()?;
        } else {
            self.replay(tokens.len(), End::Logits)?;
        }
        self.logits = self.buffers.logits.download_range(0, tokens.len() * self.weights.config.vocab_size)?;
        self.advance(tokens.len(), 1);
        Ok(&self.logits)
    }

    /// The logits of the first `sequences` sequences after the last step, `(sequences, vocab_size)`.
    ///
    /// # Errors
    /// If the device fails, or there are fewer sequences.
    pub fn last_logits(&mut self, sequences: usize) -> Result<&[f32]> {
        self.logits = self.buffers.logits.download_range(0, sequences * self.weights.config.vocab_size)?;
        Ok(&self.logits)
    }

    /// Readies the device to append `steps` tokens to each of the first sequences, the first being `tokens`.
    pub(super) fn enter(&mut self, tokens: &[u32], steps: usize) -> Result<()> {
        self.ready(tokens.len(), steps)?;
        // As the kernel that embeds them does.
        let last = self.weights.config.vocab_size.saturating_sub(1) as u32;
        let tokens: Vec<u32> = tokens.iter().map(|&token| token.min(last)).collect();
        self.buffers.tokens.upload(0, &tokens)
    }

    /// Readies cache and positions of the first `batch` sequences for `steps` more positions.
    pub(super) fn ready(&mut self, batch: usize, steps: usize) -> Result<()> {
        check("sequences of a step", batch, self.positions.len())?;
        self.end_loop()?;
        for sequence in 0..batch {
            self.cache.reserve(sequence, self.positions[sequence].saturating_add(steps))?;
        }
        let positions: Vec<u32> = self.positions[..batch].iter().map(|&position| position as u32).collect();
        self.buffers.positions.upload(0, &positions)
    }

    /// Takes note that `steps` positions were appended to each of the first sequences.
    pub(super) fn advance(&mut self, batch: usize, steps: usize) {
        for position in &mut self.positions[..batch] {
            *position += steps;
        }
    }

    /// Puts a step of the first `batch` sequences on the stream.
    pub(super) fn replay(&mut self, batch: usize, end: End) -> Result<()> {
        if !self.graphs.contains_key(&(batch, end)) {
            let graph = self.record(batch, end)?;
            self.graphs.insert((batch, end), graph);
        }
        let Some(graph) = self.graphs.get_mut(&(batch, end)) else { return Ok(()) };
        // SAFETY: weights, cache, buffers and modules belong to this decoder, which outlives the graph; freeing any of
        // them waits for the device. Positions and tables stay inside the cache: `ready` has reserved the positions.
        unsafe { graph.replay() }
    }

    /// The kernels of a step.
    fn prepare(&mut self, batch: usize, end: End) -> Result<Vec<Prepared>> {
        let Self { loader, weights, buffers, cache, shape, chooser, .. } = self;
        let parts = Parts { weights, buffers, cache, shape: *shape };
        let mut step = step::prepare(loader, &parts, batch)?;
        match end {
            End::Logits => {}
            End::Greedy => step.push(chooser.prepare_greedy(loader, buffers, batch)?),
            End::Choose => step.push(chooser.prepare(loader, buffers, batch, 1)?),
        }
        Ok(step)
    }

    fn record(&mut self, batch: usize, end: End) -> Result<Graph> {
        if batch > matvec::MOST_SEQUENCES {
            return self.record_wide(batch, end);
        }
        let step = self.prepare(batch, end)?;
        Graph::capture(&self.device, "decode step", || {
            // SAFETY: as for `replay`; what is launched here is only recorded.
            step.iter().try_for_each(|prepared| unsafe { prepared.launch() })
        })
    }

    fn record_wide(&mut self, batch: usize, end: End) -> Result<Graph> {
        let Self { device, loader, weights, buffers, cache, shape, chooser, wide, .. } = self;
        let Some(wide) = wide else {
            return Err(CudaError::Unsupported(format!("a step of {batch} sequences was not planned for")));
        };
        let parts = Parts { weights, buffers, cache, shape: *shape };
        let step = wide.prepare(loader, &parts, batch)?;
        let choice = match end {
            End::Logits => None,
            // There are no candidates here: all logits are looked at.
            End::Greedy | End::Choose => Some(chooser.prepare(loader, buffers, batch, 1)?),
        };
        // SAFETY: as for `replay`.
        unsafe { wide.warm_up(&step)? };
        device.synchronize()?;
        Graph::capture(device, "decode step", || {
            // SAFETY: as for `replay`; what is launched here is only recorded.
            step.iter().try_for_each(|work| unsafe { work.launch(wide) })?;
            // SAFETY: as above.
            choice.iter().try_for_each(|prepared| unsafe { prepared.launch() })
        })
    }

    /// Chooses the first tokens from the logits that are there; nothing is appended.
    pub(super) fn choose(&mut self, batch: usize) -> Result<()> {
        let prepared = self.chooser.prepare(&mut self.loader, &self.buffers, batch, 0)?;
        // SAFETY: as for `replay`.
        unsafe { prepared.launch() }
    }
}

fn check(what: &'static str, value: usize, limit: usize) -> Result<()> {
    if value <= limit { Ok(()) } else { Err(CudaError::Range { what, value: value as u64, limit: limit as u64 }) }
}
