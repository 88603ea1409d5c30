//! What of a device, and of how it is used, decides a plan.

use serde::Serialize;

use super::PlanError;

/// The most multiprocessors that a plan is made for; more than any GPU has.
pub const MOST_MULTIPROCESSORS: usize = 512;
/// The most shared memory of a block, in bytes; more than any GPU has.
pub const MOST_SHARED_MEMORY: usize = 512 << 10;
/// The most positions of a sequence, as the loader allows them.
const MOST_POSITIONS: usize = 1 << 31;

/// The 16-bit type of weights, keys, values and exchanged activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Element {
    /// bfloat16.
    #[serde(rename = "bf16")]
    Bf16,
    /// IEEE half precision.
    #[serde(rename = "f16")]
    F16,
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// Multiprocessors of the device.
    pub multiprocessors: usize,
    /// The most shared memory that a block may have if it asks for it, in bytes.
    pub shared_memory: usize,
    /// The type of matrices.
    pub element: Element,
    /// The most positions of the sequence.
    pub positions: usize,
}

impl Target {
    /// One NVIDIA H200, for bf16 weights and `positions` positions.
    #[must_use]
    pub fn h200(positions: usize) -> Self {
        Self { multiprocessors: 132, shared_memory: 232_448, element: Element::Bf16, positions }
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        let check = |field, value, limit, expected| {
            if (1..=limit).contains(&value) { Ok(()) } else { Err(PlanError::Size { field, value, expected }) }
        };
        check("multiprocessors", self.multiprocessors, MOST_MULTIPROCESSORS, "1 to 512")?;
        check("shared_memory", self.shared_memory, MOST_SHARED_MEMORY, "1 to 524288 bytes")?;
        check("positions", self.positions, MOST_POSITIONS, "1 to 2147483648")
    }
}
