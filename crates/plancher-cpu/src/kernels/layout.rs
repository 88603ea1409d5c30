//! Where the bytes of a packed tile lie. A tile holds [`TILE_ROWS`] rows side by side, so that one 512-bit vector
//! has the same element of every row in its 16 lanes and no sum across lanes is ever needed.
//!
//! Quantised types: 64 bytes of f16 scales (`[scale][row]`, of one block with two scales or of two blocks with one),
//! then these blocks, and so on; an odd last block has 32 unused bytes beside its scales. Inside a block come its parts in the order of [`parts`]: *planes* are bytes `[byte][row]`, *words* are groups of
//! four bytes `[word][row][4]`, which is 64 bytes a word. A word of a stored row holds four consecutive elements (or
//! two such quads, in the low and the high nibbles), because that is how the stored formats pair them.
//!
//! Plain types, columns padded with zeros: F32 and F16 `[column][row]`; BF16 `[column / 2][row][2]`; F8, for every
//! 128 columns 16 f32 scales and then `[column / 4][row][4]`.

use plancher_model::DType;

/// Rows of a weight tile, for every instruction set.
pub const TILE_ROWS: usize = 16;

/// Bytes of one word of every row of a tile.
pub(super) const WORD: usize = 4 * TILE_ROWS;

/// Bytes of one f16 scale of every row of a tile.
pub(super) const SCALE: usize = 2 * TILE_ROWS;

/// Plain types are padded to a multiple of this many columns.
pub(super) const COLUMN_PADDING: usize = 32;

/// Columns that share scales in F8 tiles.
pub(super) const F8_COLUMNS: usize = 128;

/// Bytes of [`F8_COLUMNS`] columns of an F8 tile: the scales and the elements.
pub(super) const F8_BYTES: usize = WORD + F8_COLUMNS * TILE_ROWS;

/// A piece of a stored quantised block, by byte range within it.
pub(super) enum Part {
    /// An f16 scale at this byte; goes before the block.
    Scale(usize),
    /// Bytes, packed as planes.
    Planes(usize, usize),
    /// Four-byte words, packed as words, every byte with this mask flipped.
    Words(usize, usize, u8),
    /// Eight words from the first byte on and eight from the second on, alternating: low and high bits of the same
    /// elements, which are unpacked together.
    WordPairs(usize, usize),
    /// The fifth bits of 32 elements: a little-endian word whose bit `k` is element `k`'s. Packed as one word whose
    /// byte `k % 4` has it at bit `k / 4`.
    FifthBits(usize),
}

/// The parts of a block of `dtype` in packed order; empty for plain types. Signed elements are stored with their
/// sign bit flipped, which makes them unsigned with an offset, as the integer dot products want them.
pub(super) const fn parts(dtype: DType) -> &'static [Part] {
    use Part::{FifthBits, Planes, Scale, WordPairs, Words};
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 | DType::F8_E4M3 => &[],
        DType::Q8_0 => &[Scale(0), Words(2, 34, 0x80)],
        DType::Q4_0 => &[Scale(0), Words(2, 18, 0)],
        DType::Q4_1 => &[Scale(0), Scale(2), Words(4, 20, 0)],
        DType::Q5_0 => &[Scale(0), FifthBits(2), Words(6, 22, 0)],
        DType::Q5_1 => &[Scale(0), Scale(2), FifthBits(4), Words(8, 24, 0)],
        DType::Q2_K => &[Scale(80), Scale(82), Planes(0, 16), Words(16, 80, 0)],
        DType::Q3_K => &[Scale(108), Planes(96, 108), WordPairs(32, 0), Words(64, 96, 0)],
        DType::Q4_K => &[Scale(0), Scale(2), Planes(4, 16), Words(16, 144, 0)],
        DType::Q5_K => &[Scale(0), Scale(2), Planes(4, 16), WordPairs(48, 16), Words(80, 176, 0)],
        DType::Q6_K => {
            &[Scale(208), Planes(192, 208), WordPairs(0, 128), Words(32, 64, 0), WordPairs(64, 160), Words(96, 128, 0)]
        }
    }
}

/// Bytes of a block's f16 scales for all rows.
pub(super) const fn header_bytes(dtype: DType) -> usize {
    let (parts, mut bytes, mut i) = (parts(dtype), 0, 0);
    while i < parts.len() {
        if let Part::Scale(_) = parts[i] {
            bytes += SCALE;
        }
        i += 1;
    }
    bytes
}

/// Bytes of the rest of a block, for all rows.
pub(super) const fn payload_bytes(dtype: DType) -> usize {
    dtype.block_bytes() * TILE_ROWS - header_bytes(dtype)
}

/// Where the scales and the rest of block `block` start in a tile. Memory is fastest as one ascending stream, so
/// scales stand beside their blocks; in pairs where they are 32 bytes, so that everything else stays aligned.
pub(super) const fn block_offsets(dtype: DType, block: usize) -> (usize, usize) {
    let (header, payload) = (header_bytes(dtype), payload_bytes(dtype));
    let together = 64 / header;
    let start = block / together * (64 + together * payload);
    (start + block % together * header, start + 64 + block % together * payload)
}

/// Bytes of a packed tile; `None` when `columns` is not a whole number of blocks or the size overflows.
pub(super) fn tile_bytes(dtype: DType, columns: usize) -> Option<usize> {
    let padded = match dtype {
        DType::F8_E4M3 => columns.checked_next_multiple_of(F8_COLUMNS)?,
        DType::F32 | DType::F16 | DType::BF16 => columns.checked_next_multiple_of(COLUMN_PADDING)?,
        _ => columns,
    };
    let rows = dtype.row_bytes(padded)?.checked_mul(TILE_ROWS)?;
    if dtype.is_quantized() {
        // Only the padding of the last scales comes on top of the stored bytes.
        rows.checked_next_multiple_of(64)
    } else if dtype == DType::F8_E4M3 {
        rows.checked_add(padded / F8_COLUMNS * WORD)
    } else {
        Some(rows)
    }
}
