//! Choosing tokens on the device: `kernels/sample.cu`, the settings and state it works on, and the ring of tokens that
//! the host reads.

use std::task::Poll;

use bytemuck::{Pod, Zeroable};

use super::buffers::Buffers;
use super::{Prepared, Shape};
use crate::catalogue::{Expectation, Family};
use crate::{
    Architecture, Arguments, Device, DeviceBuffer, Launch, Loader, PinnedBuffer, Result, Source, Specialization,
};

/// The kernels.
pub(crate) static SAMPLE: Family = Family {
    source: Source { name: "sample", text: include_str!("../../kernels/sample.cu") },
    purpose: "decode: choosing the next token, telling the host",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[Expectation::new("choose", 90, "UCGABAR_ARV"), Expectation::new("choose_greedy", 90, "ACQBULK")],
    specializations: || vec![("Llama 3", constants(128_256, true)), ("a small vocabulary", constants(512, true))],
};

/// Blocks that share a sequence's logits where there are clusters.
const SPLITS: usize = 8;
/// Tokens of a sequence that the host may be behind.
const RING: usize = 64;

/// How tokens are chosen, as the engine's settings of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw; 0 picks the most likely token and ignores the rest.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest most likely tokens whose probabilities (at temperature 1) sum to at least this; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this many times as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Makes tokens that occurred less likely when above 1; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// The most likely token each time.
    pub const GREEDY: Self =
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 };

    /// Whether the largest logit decides, as the head leaves it.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        // As in the kernel: so cold that only the maximum can be drawn.
        let greedy = !(1.0 / self.temperature).is_finite();
        greedy && self.repetition_penalty.to_bits() == 1.0_f32.to_bits()
    }
}

/// `struct sampling` of the kernel.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct State {
    random: u64,
    ring: u64,
    seen: u64,
    chosen: u32,
    ring_size: u32,
    top_k: u32,
    temperature: f32,
    top_p: f32,
    min_p: f32,
    penalty: f32,
    padding: u32,
}

/// The sampling of some sequences.
#[derive(Debug)]
pub(super) struct Chooser {
    states: DeviceBuffer<State>,
    /// Bitmaps of the tokens that occurred, `(sequences, seen_words)`.
    seen: DeviceBuffer<u32>,
    seen_words: usize,
    /// `(sequences, RING)`: from 1 counted number of the token, shifted left by 32, and the token.
    ring: PinnedBuffer<u64>,
    vocab: usize,
    candidates: usize,
    splits: usize,
}

impl Chooser {
    pub(super) fn new(
        device: &Device,
        shape: Shape,
        vocab: usize,
        sequences: usize,
        candidates: usize,
    ) -> Result<Self> {
        let seen_words = vocab.div_ceil(32);
        Ok(Self {
            states: DeviceBuffer::zeroed(device, sequences)?,
            seen: DeviceBuffer::zeroed(device, sequences * seen_words)?,
            seen_words,
            ring: PinnedBuffer::zeroed(device, sequences * RING)?,
            vocab,
            candidates,
            splits: if shape.clusters { SPLITS } else { 1 },
        })
    }

    /// Begins anew with these settings, one a sequence, and the tokens that the repetition penalty covers. The device
    /// must be idle.
    pub(super) fn start(&mut self, settings: &[Sampling], histories: &[&[u32]]) -> Result<()> {
        self.ring.as_mut_slice().fill(0);
        let mut states = Vec::with_capacity(settings.len());
        for (sequence, settings) in settings.iter().enumerate() {
            let mut seen = vec![0_u32; self.seen_words];
            for &token in histories.get(sequence).copied().unwrap_or(&[]) {
                if let Some(word) = seen.get_mut(token as usize / 32) {
                    *word |= 1 << (token % 32);
                }
            }
            self.seen.upload(sequence * self.seen_words, &seen)?;
            states.push(State {
                random: settings.seed,
                ring: self.ring.device_pointer_at(sequence * RING)?,
                seen: self.seen.pointer_at(sequence * self.seen_words),
                chosen: 0,
                ring_size: RING as u32,
                top_k: u32::try_from(settings.top_k).unwrap_or(u32::MAX),
                temperature: settings.temperature,
                top_p: settings.top_p,
                min_p: settings.min_p,
                penalty: settings.repetition_penalty,
                padding: 0,
            });
        }
        self.states.upload(0, &states)
    }

    /// The device's address of the sequences' settings and states.
    pub(super) fn states(&self) -> u64 {
        self.states.pointer()
    }

    /// Token number `number`, from 1 on, of `sequence`, if it is there by now; `None` where no logit was a finite number.
    pub(super) fn token(&self, sequence: usize, number: u32) -> Poll<Option<u32>> {
        let entry = self.ring.read(sequence * RING + (number as usize - 1) % RING);
        let token = entry as u32;
        if (entry >> 32) as u32 == number { Poll::Ready((token != u32::MAX).then_some(token)) } else { Poll::Pending }
    }

    /// Chooses from logits, whatever the settings; `advance` is added to the positions.
    pub(super) fn prepare(
        &self,
        loader: &mut Loader,
        buffers: &Buffers,
        batch: usize,
        advance: u32,
    ) -> Result<Prepared> {
        let kernel = loader.kernel(SAMPLE.source, &constants(self.vocab, self.splits > 1), "choose")?;
        let mut launch = Launch::new([self.splits as u32, batch as u32, 1], [1024, 1, 1]).dependent();
        if self.splits > 1 {
            launch = launch.cluster(self.splits as u32);
        }
        let arguments = self.outputs(buffers).buffer(&buffers.logits).value(advance);
        Ok(Prepared { kernel, launch, arguments })
    }

    /// Chooses the largest of the head's candidates.
    pub(super) fn prepare_greedy(&self, loader: &mut Loader, buffers: &Buffers, batch: usize) -> Result<Prepared> {
        let kernel = loader.kernel(SAMPLE.source, &constants(self.vocab, self.splits > 1), "choose_greedy")?;
        kernel.prefer_shared_memory(100)?;
        let launch = Launch::new([1, batch as u32, 1], [256, 1, 1]).dependent();
        let arguments = self.outputs(buffers).buffer(&buffers.candidates).value(self.candidates as i32).value(1_u32);
        Ok(Prepared { kernel, launch, arguments })
    }

    fn outputs(&self, buffers: &Buffers) -> Arguments {
        Arguments::new().buffer(&self.states).buffer(&buffers.tokens).buffer(&buffers.positions)
    }
}

/// How many tokens the host may be behind.
pub(super) const fn ring_size() -> usize {
    RING
}

fn constants(vocab: usize, clusters: bool) -> Specialization {
    Specialization::new().define("VOCAB", vocab).define("SPLITS", if clusters { SPLITS } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_is_what_the_largest_logit_decides() {
        assert!(Sampling::GREEDY.is_greedy());
        assert!(Sampling { temperature: 1e-40, top_k: 3, ..Sampling::GREEDY }.is_greedy());
        assert!(!Sampling { temperature: 0.5, ..Sampling::GREEDY }.is_greedy());
        assert!(!Sampling { repetition_penalty: 1.1, ..Sampling::GREEDY }.is_greedy());
    }
}
