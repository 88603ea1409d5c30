//! The instructions of a worker, as the kernel reads them: four little-endian 32-bit words each.

use serde::Serialize;

/// Bytes of an instruction.
pub const INSTRUCTION_BYTES: usize = 16;

/// What an instruction does. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Operation {
    /// The step is done.
    End = 0,
    /// The worker's rows of the residual stream become the token's embedding.
    Embed = 1,
    /// Rows of the stacked query, key and value matrices.
    QueryKeyValue = 2,
    /// One split of one unit of attention; the pages that it reads go through the ring.
    Attend = 3,
    /// The worker's outputs from the partial results of all active splits; nothing where one split is active.
    Combine = 4,
    /// Rows of the output projection, added to the residual stream.
    Output = 5,
    /// Pairs of gate and up rows, and the activation.
    GateUp = 6,
    /// Rows of the down projection, added to the residual stream.
    Down = 7,
    /// Rows of the head, and their share of the choice of the next token.
    Head = 8,
}

impl Operation {
    /// All of them, by number.
    pub const ALL: [Self; 9] = [
        Self::End,
        Self::Embed,
        Self::QueryKeyValue,
        Self::Attend,
        Self::Combine,
        Self::Output,
        Self::GateUp,
        Self::Down,
        Self::Head,
    ];
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::End => "end",
            Self::Embed => "embed",
            Self::QueryKeyValue => "query/key/value",
            Self::Attend => "attend",
            Self::Combine => "combine",
            Self::Output => "output",
            Self::GateUp => "gate/up",
            Self::Down => "down",
            Self::Head => "head",
        })
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// What to do.
    pub operation: Operation,
    /// The layer; the number of layers for the head, 0 where there is none.
    pub layer: u16,
    /// The first row, pair or output; the unit for [`Operation::Attend`].
    pub first: u32,
    /// How many; the split for [`Operation::Attend`].
    pub count: u32,
    /// Stages of the weight stream that it consumes.
    pub stages: u32,
}

impl Instruction {
    /// The end of a list.
    pub const END: Self = Self { operation: Operation::End, layer: 0, first: 0, count: 0, stages: 0 };

    /// The words that the kernel reads: operation in the low 8 bits and layer in the next 16 of the first one (the upper
    /// 8 are 0), then `first`, `count` and `stages`.
    #[must_use]
    pub fn words(&self) -> [u32; 4] {
        [self.operation as u32 | u32::from(self.layer) << 8, self.first, self.count, self.stages]
    }

    /// The instruction of such words; `None` when they are those of no instruction.
    #[must_use]
    pub fn from_words(words: [u32; 4]) -> Option<Self> {
        let [head, first, count, stages] = words;
        let operation = *Operation::ALL.get((head & 0xff) as usize)?;
        let layer = u16::try_from(head >> 8).ok()?;
        Some(Self { operation, layer, first, count, stages })
    }
}
