//! Weights that nobody trained: random numbers of a model's real shapes, to measure how fast it runs without having it
//! (what vLLM calls `--load-format dummy`).
//!
//! Element `i` of a matrix is a function of the tensor's seed and `i`, in integers and one rounded multiplication, so
//! that a GPU which makes the weights in its own memory, this crate, and a script that writes them to a file all
//! get the same bits.

use half::bf16;
use memmap2::{MmapMut, MmapOptions};

use crate::tensor::{MappedFile, Tensor};

/// Which tensors of a dummy model hold their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DummyFill {
    /// Norms and biases only: whoever computes makes the matrices itself, from [`DummyTensor`]. They take no memory.
    Vectors,
    /// All of them.
    All,
}

/// How a tensor's elements are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DummyTensor {
    /// FNV-1a, 64 bits, of the tensor's name in a Hugging Face checkpoint (`model.layers.0.mlp.up_proj.weight`).
    pub seed: u64,
    /// Elements are uniform in `offset ± amplitude`.
    pub amplitude: f32,
    /// 0 for matrices and biases; what makes a norm's weights lie around 1.
    pub offset: f32,
}

impl DummyTensor {
    /// Of the tensor `name` with rows of `columns` elements; a matrix keeps the variance of what it multiplies.
    #[must_use]
    pub(crate) fn matrix(name: &str, columns: usize) -> Self {
        Self { seed: fnv_1a(name.as_bytes()), amplitude: (3.0 / columns as f32).sqrt(), offset: 0.0 }
    }

    /// Of the norm or bias `name`, around `offset`.
    #[must_use]
    pub(crate) fn vector(name: &str, offset: f32) -> Self {
        Self { seed: fnv_1a(name.as_bytes()), amplitude: 0.125, offset }
    }

    /// Element `index` of the tensor, row by row: the top 24 bits of `SplitMix64`'s output number `index` from the
    /// tensor's seed, as a multiple of 2⁻²³ in `[-1, 1)`, times the amplitude, plus the offset where there is one,
    /// rounded to bf16 (to even).
    #[must_use]
    pub fn element(self, index: u64) -> bf16 {
        let mut z = self.seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let unit = ((z >> 40) as i32 - (1 << 23)) as f32 * (1.0 / (1 << 23) as f32);
        bf16::from_f32(unit * self.amplitude + self.offset)
    }
}

fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Memory for `bytes` of tensors that takes nothing until it is written.
pub(crate) fn sparse_memory(bytes: usize) -> std::io::Result<MmapMut> {
    MmapOptions::new().len(bytes).no_reserve_swap().map_anon()
}

/// Writes the elements of every tensor in `made` to its place in `memory`, on all threads.
pub(crate) fn fill(memory: &mut MmapMut, made: &[(&Tensor, DummyTensor)]) {
    /// Elements that a thread makes at a time.
    const PIECE: usize = 1 << 18;
    let mut ordered = made.to_vec();
    ordered.sort_by_key(|(tensor, _)| tensor.offset);
    // Cut the memory into each tensor's own, and those into pieces: no two threads write the same bytes.
    let mut pieces = Vec::new();
    let (mut rest, mut at): (&mut [u8], usize) = (memory, 0);
    for (tensor, dummy) in ordered {
        let (_, tail) = rest.split_at_mut(tensor.offset - at);
        let (own, tail) = tail.split_at_mut(tensor.rows * tensor.columns * size_of::<bf16>());
        at = tensor.offset + own.len();
        rest = tail;
        for (index, piece) in own.chunks_mut(PIECE * size_of::<bf16>()).enumerate() {
            pieces.push((dummy, (index * PIECE) as u64, piece));
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pieces = std::sync::Mutex::new(pieces);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = pieces.lock().ok().and_then(|mut pieces| pieces.pop());
                    let Some((dummy, first, piece)) = next else { return };
                    for (index, element) in (first..).zip(piece.chunks_exact_mut(size_of::<bf16>())) {
                        element.copy_from_slice(&dummy.element(index).to_le_bytes());
                    }
                }
            });
        }
    });
}

/// `memory` as the file that the tensors lie in.
pub(crate) fn freeze(memory: MmapMut, described_by: &std::path::Path) -> std::io::Result<MappedFile> {
    Ok(MappedFile::anonymous(described_by, memory.make_read_only()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_those_of_the_published_generator() {
        // The first outputs of SplitMix64 for seed 1234567.
        let dummy = DummyTensor { seed: 1_234_567, amplitude: 0.5, offset: 0.0 };
        for (index, output) in [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973].into_iter().enumerate() {
            let unit = (output >> 40) as f64 / f64::from(1 << 23) - 1.0;
            assert_eq!(dummy.element(index as u64), bf16::from_f64(0.5 * unit));
        }
    }

    #[test]
    fn a_matrix_keeps_the_variance_of_its_input() {
        let dummy = DummyTensor::matrix("model.layers.3.mlp.down_proj.weight", 48);
        let n = 100_000;
        let squares: f64 = (0..n).map(|i| dummy.element(i).to_f64().powi(2)).sum();
        assert!((48.0 * squares / n as f64 - 1.0).abs() < 0.02, "{squares}");
        let mean: f64 = (0..n).map(|i| dummy.element(i).to_f64()).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.002, "{mean}");
    }
}
