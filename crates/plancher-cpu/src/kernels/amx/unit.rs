//! The tile unit: one entry, through which the driver multiplies 16 or 32 tokens with 16 or 32 rows. Behind a trait,
//! so that tests run the same driver with an emulated unit on machines that have none.

use std::arch::asm;
use std::marker::PhantomData;

use crate::kernels::input::BrainChunk;

/// Tokens, rows, and pairs of columns of a tile register; 64 bytes a row.
pub(super) const SIDE: usize = 16;

/// Bytes from a token's columns to the next token's.
pub(super) const TOKEN_BYTES: usize = size_of::<BrainChunk>();

/// Bytes of 32 columns of a panel: `[pair of columns][row][2]` bf16.
pub(super) const STEP_BYTES: usize = 4 * SIDE * SIDE;

/// A stretch of columns: inputs `[token][column]`, [`TOKEN_BYTES`] apart, times two panels of 16 rows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Segment {
    /// The first token's first column, in bf16.
    pub(super) input: *const u8,
    /// The panel of every row tile.
    pub(super) panels: [*const u8; 2],
    /// Columns, in units of 32; not zero.
    pub(super) steps: usize,
}

/// Where results go: `start[token * stride + row]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    pub(super) start: *mut f32,
    pub(super) stride: usize,
    /// Whether results replace what is there, rather than being added to it.
    pub(super) fresh: bool,
}

/// What multiplies tiles.
pub(super) trait Unit {
    /// Adds the products of all `segments` for `16 * token_tiles` tokens and `16 * row_tiles` rows to `sums`.
    ///
    /// # Safety
    /// Both counts are 1 or 2. All of the tokens' inputs and `row_tiles` panels can be read, and all sums written.
    unsafe fn accumulate(&self, segments: &[Segment], token_tiles: usize, row_tiles: usize, sums: Sums);
}

/// The processor's own unit, configured on this thread as long as this lives.
pub(super) struct TileUnit {
    /// The configuration is the thread's.
    not_send: PhantomData<*const ()>,
}

/// Palette 1, all eight tiles with 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

const CONFIGURATION: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = SIDE as u8;
        tile += 1;
    }
    Configuration(bytes)
};

impl TileUnit {
    /// # Safety
    /// The machine has AMX with bf16, and the system lets this process use it. No other instance lives on this thread.
    #[inline]
    pub(super) unsafe fn new() -> Self {
        static SHARED: Configuration = CONFIGURATION;
        // SAFETY: 64 bytes are read; no tile holds anything that matters.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) &raw const SHARED,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        Self { not_send: PhantomData }
    }
}

impl Drop for TileUnit {
    fn drop(&mut self) {
        // SAFETY: the machine has AMX; tiles in their first state keep context switches cheap.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, nomem),
            );
        }
    }
}

impl Unit for TileUnit {
    #[inline]
    unsafe fn accumulate(&self, segments: &[Segment], token_tiles: usize, row_tiles: usize, sums: Sums) {
        if segments.is_empty() {
            return;
        }
        // SAFETY: the caller's promises; the unit is configured.
        unsafe {
            match (token_tiles, row_tiles) {
                (1, 1) => accumulate::<1, 1>(segments, sums),
                (1, _) => accumulate::<1, 2>(segments, sums),
                (_, 1) => accumulate::<2, 1>(segments, sums),
                _ => accumulate::<2, 2>(segments, sums),
            }
        }
    }
}

/// Sums are in tiles 0 to 3 (`2 * token tile + row tile`), panels in 4 and 5, inputs in 6 and 7. It is one piece of
/// assembly, since nothing promises that tiles outlive a piece.
///
/// # Safety
/// As [`Unit::accumulate`], on a thread whose unit is configured; `segments` is not empty.
#[inline]
unsafe fn accumulate<const TOKEN_TILES: usize, const ROW_TILES: usize>(segments: &[Segment], sums: Sums) {
    // SAFETY: reads and writes what the caller promised.
    unsafe {
        asm!(
            // The second token tile's sums.
            "mov {input}, {stride}",
            "shl {input}, 4",
            "add {input}, {sums}",
            "test {fresh}, {fresh}",
            "jnz 2f",
            "tileloadd tmm0, [{sums} + {stride}]",
            ".if {ROW_TILES} == 2",
            "tileloadd tmm1, [{sums} + {stride} + 64]",
            ".endif",
            ".if {TOKEN_TILES} == 2",
            "tileloadd tmm2, [{input} + {stride}]",
            ".if {ROW_TILES} == 2",
            "tileloadd tmm3, [{input} + {stride} + 64]",
            ".endif",
            ".endif",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            // A segment.
            "3:",
            "mov {input}, [{segment}]",
            "mov {first}, [{segment} + 8]",
            "mov {second}, [{segment} + 16]",
            "mov {steps}, [{segment} + 24]",
            // 32 columns. Rows of panels are 64 bytes apart, those of inputs eight times that.
            "4:",
            "tileloadd tmm4, [{first} + {row}]",
            "tileloadd tmm6, [{input} + 8*{row}]",
            "tdpbf16ps tmm0, tmm6, tmm4",
            ".if {ROW_TILES} == 2",
            "tileloadd tmm5, [{second} + {row}]",
            "tdpbf16ps tmm1, tmm6, tmm5",
            ".endif",
            ".if {TOKEN_TILES} == 2",
            "tileloadd tmm7, [{input} + 8*{row} + {TOKEN_TILE}]",
            "tdpbf16ps tmm2, tmm7, tmm4",
            ".if {ROW_TILES} == 2",
            "tdpbf16ps tmm3, tmm7, tmm5",
            ".endif",
            ".endif",
            "add {input}, 64",
            "add {first}, {STEP}",
            "add {second}, {STEP}",
            "dec {steps}",
            "jnz 4b",
            "add {segment}, {SEGMENT}",
            "dec {segments}",
            "jnz 3b",
            // The results.
            "mov {input}, {stride}",
            "shl {input}, 4",
            "add {input}, {sums}",
            "tilestored [{sums} + {stride}], tmm0",
            ".if {ROW_TILES} == 2",
            "tilestored [{sums} + {stride} + 64], tmm1",
            ".endif",
            ".if {TOKEN_TILES} == 2",
            "tilestored [{input} + {stride}], tmm2",
            ".if {ROW_TILES} == 2",
            "tilestored [{input} + {stride} + 64], tmm3",
            ".endif",
            ".endif",
            sums = in(reg) sums.start,
            stride = in(reg) 4 * sums.stride,
            fresh = in(reg) usize::from(sums.fresh),
            row = in(reg) 64_usize,
            segment = inout(reg) segments.as_ptr() => _,
            segments = inout(reg) segments.len() => _,
            input = out(reg) _,
            first = out(reg) _,
            second = out(reg) _,
            steps = out(reg) _,
            TOKEN_TILES = const TOKEN_TILES,
            ROW_TILES = const ROW_TILES,
            TOKEN_TILE = const SIDE * TOKEN_BYTES,
            STEP = const STEP_BYTES,
            SEGMENT = const size_of::<Segment>(),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

// The assembly reaches inputs with eight times the stride of panels.
const _: () = assert!(TOKEN_BYTES == 8 * 64);
