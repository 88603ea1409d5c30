//! Elementwise work between matrix products that needs an exponential.

use super::{Isa, Kernels};

/// The function between gate and up projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// `gelu_tanh(x) = x * sigmoid(x * (LINEAR + CUBIC * x * x))`: `(1 + tanh(y)) / 2` is the sigmoid of `2y`.
pub(super) const GELU_LINEAR: f32 = 2.0 * std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
/// See [`GELU_LINEAR`].
pub(super) const GELU_CUBIC: f32 = 0.044_715 * GELU_LINEAR;

impl Kernels {
    /// Runs `work` compiled for the instruction set, as far as its loops are inlined: plain loops then use its
    /// vectors. The bits are the same, as nothing is contracted or reordered.
    #[inline]
    pub(crate) fn vectorized<R>(self, work: impl FnOnce() -> R) -> R {
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an instruction set that the machine lacks cannot be constructed.
            Isa::Avx512 | Isa::Amx => unsafe { super::avx512::vectorized(work) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { super::avx2::vectorized(work) },
            _ => work(),
        }
    }

    /// `gate = function(gate) * up`.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gate_up(&self, function: Gate, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len());
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an instruction set that the machine lacks cannot be constructed.
            Isa::Avx512 | Isa::Amx => unsafe { super::avx512::gate_up(function, gate, up) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { super::avx2::gate_up(function, gate, up) },
            _ => gate_up(function, gate, up),
        }
    }
}

/// The reference.
fn gate_up(function: Gate, gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        let argument = match function {
            Gate::Silu => *g,
            Gate::GeluTanh => *g * (GELU_LINEAR + GELU_CUBIC * *g * *g),
        };
        *g = *g / (1.0 + (-argument).exp()) * u;
    }
}
