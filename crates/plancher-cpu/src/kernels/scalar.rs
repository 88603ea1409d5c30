//! The reference: plain Rust over packed tiles. It defines what every other instruction set computes, to the order
//! of the additions: for quantised weights all of them give the same bits.

use half::{bf16, f16};
use plancher_model::DType;

use super::input::{BLOCK, CHUNK, FloatChunk, Input, IntegerChunk, SharedChunks};
use super::layout::{self, F8_BYTES, F8_COLUMNS, TILE_ROWS, WORD};

/// 32 elements of one row: `value[i] = (quants[i] - offset) * scales[i / 16] - minima[i / 16]`.
#[derive(Debug)]
struct Block {
    quants: [u8; BLOCK],
    offset: u8,
    scales: [f32; 2],
    minima: [f32; 2],
    granularity: Granularity,
}

/// How scales vary inside 32 elements, and whether there are minima: it decides the order of additions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granularity {
    halves: bool,
    minima: bool,
}

impl Granularity {
    fn of(dtype: DType) -> Self {
        Self {
            halves: matches!(dtype, DType::Q2_K | DType::Q3_K | DType::Q6_K),
            minima: matches!(dtype, DType::Q4_1 | DType::Q5_1 | DType::Q2_K | DType::Q4_K | DType::Q5_K),
        }
    }
}

/// What is subtracted from stored quants.
pub(super) const fn offset(dtype: DType) -> u8 {
    match dtype {
        DType::Q8_0 => 128,
        DType::Q6_K => 32,
        DType::Q5_0 => 16,
        DType::Q4_0 => 8,
        DType::Q3_K => 4,
        _ => 0,
    }
}

/// A packed tile of a quantised type.
#[derive(Clone, Copy)]
struct Tile<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

impl Tile<'_> {
    /// Elements `32 * index .. 32 * (index + 1)` of row `row`.
    fn block(self, row: usize, index: usize) -> Block {
        let subs = self.dtype.block_elements() / BLOCK;
        let (block, sub) = (index / subs, index % subs);
        let (header, payload) = layout::block_offsets(self.dtype, block);
        let header = &self.bytes[header..];
        let payload = &self.bytes[payload..][..layout::payload_bytes(self.dtype)];
        let (scales, minima) = scales(self.dtype, header, payload, row, sub);
        Block {
            quants: quants(self.dtype, payload, row, sub),
            offset: offset(self.dtype),
            scales,
            minima,
            granularity: Granularity::of(self.dtype),
        }
    }
}

/// The stored quants of sub-block `sub` of row `row`.
fn quants(dtype: DType, payload: &[u8], row: usize, sub: usize) -> [u8; BLOCK] {
    // Byte `k` of the words from `word` on that start at `offset`.
    let byte = |offset: usize, word: usize, k: usize| payload[offset + (word + k / 4) * WORD + row * 4 + k % 4];
    // The same of the first (0) or second (1) words of pairs.
    let paired = |offset: usize, which: usize, k: usize| payload[offset + (k / 4 * 2 + which) * WORD + row * 4 + k % 4];
    let nibble = |byte: u8, high: bool| if high { byte >> 4 } else { byte & 15 };
    let fifth = |k: usize| (byte(0, 0, k % 4) >> (k / 4) & 1) << 4;
    // For 256-element blocks of which every 128 elements share their words.
    let (half, quarter) = (sub / 4, sub % 4);
    std::array::from_fn(|k| match dtype {
        DType::Q8_0 => byte(0, 0, k),
        DType::Q4_0 | DType::Q4_1 => nibble(byte(0, 0, k % 16), k >= 16),
        DType::Q5_0 | DType::Q5_1 => nibble(byte(WORD, 0, k % 16), k >= 16) | fifth(k),
        DType::Q4_K => nibble(byte(192, sub / 2 * 8, k), sub % 2 == 1),
        DType::Q5_K => {
            let low = if sub < 2 { paired(192, 0, k) } else { byte(192, 8 + sub / 2 * 8, k) };
            nibble(low, sub % 2 == 1) | (paired(192, 1, k) >> sub & 1) << 4
        }
        DType::Q6_K => {
            let start = 256 + half * 24 * WORD;
            let low = if quarter % 2 == 0 { paired(start, 0, k) } else { byte(start, 16, k) };
            nibble(low, quarter >= 2) | (paired(start, 1, k) >> (2 * quarter) & 3) << 4
        }
        DType::Q3_K => {
            let low = if half == 0 { paired(192, 0, k) } else { byte(192, 16, k) };
            (low >> (2 * quarter) & 3) | (paired(192, 1, k) >> sub & 1) << 2
        }
        DType::Q2_K => byte(256, half * 8, k) >> (2 * quarter) & 3,
        DType::F32 | DType::F16 | DType::BF16 | DType::F8_E4M3 => unreachable!("{dtype} has no quants"),
    })
}

/// The scales and minima of the two halves of sub-block `sub` of row `row`.
fn scales(dtype: DType, header: &[u8], payload: &[u8], row: usize, sub: usize) -> ([f32; 2], [f32; 2]) {
    let half = |slot: usize| {
        let at = slot * layout::SCALE + 2 * row;
        f16::from_le_bytes([header[at], header[at + 1]]).to_f32()
    };
    let plane = |byte: usize| payload[byte * TILE_ROWS + row];
    let d = half(0);
    match dtype {
        DType::Q4_1 | DType::Q5_1 => ([d; 2], [-half(1); 2]),
        DType::Q4_K | DType::Q5_K => {
            let (scale, minimum) = if sub < 4 {
                (plane(sub) & 63, plane(sub + 4) & 63)
            } else {
                let low = plane(sub + 4);
                (low & 0x0F | (plane(sub - 4) >> 2 & 0x30), low >> 4 | (plane(sub) >> 2 & 0x30))
            };
            ([d * f32::from(scale); 2], [half(1) * f32::from(minimum); 2])
        }
        DType::Q6_K => ([0, 1].map(|h| d * f32::from(plane(2 * sub + h) as i8)), [0.0; 2]),
        DType::Q3_K => {
            let scale = |i: usize| {
                let low = if i < 8 { plane(i) & 15 } else { plane(i - 8) >> 4 };
                f32::from((low | (plane(8 + i % 4) >> (2 * (i / 4)) & 3) << 4) as i8 - 32)
            };
            ([0, 1].map(|h| d * scale(2 * sub + h)), [0.0; 2])
        }
        DType::Q2_K => (
            [0, 1].map(|h| d * f32::from(plane(2 * sub + h) & 15)),
            [0, 1].map(|h| half(1) * f32::from(plane(2 * sub + h) >> 4)),
        ),
        _ => ([d; 2], [0.0; 2]),
    }
}

/// Adds the product of `block` with block `index` of `chunk` to `sum`.
fn add_product(block: &Block, chunk: &IntegerChunk, index: usize, mut sum: f32) -> f32 {
    let x = &chunk.quants[index * BLOCK..(index + 1) * BLOCK];
    let scale = chunk.scales[index];
    let dot = |half: usize| -> i32 {
        let range = half * 16..(half + 1) * 16;
        let products = block.quants[range.clone()].iter().zip(&x[range]).map(|(&q, &x)| i32::from(q) * i32::from(x));
        products.sum::<i32>() + i32::from(block.offset) * chunk.negative_sums[2 * index + half]
    };
    if block.granularity.halves {
        for half in 0..2 {
            sum = (dot(half) as f32).mul_add(block.scales[half] * scale, sum);
            if block.granularity.minima {
                sum = (-block.minima[half]).mul_add(chunk.scaled_half_sums[2 * index + half], sum);
            }
        }
    } else {
        sum = ((dot(0) + dot(1)) as f32).mul_add(block.scales[0] * scale, sum);
        if block.granularity.minima {
            sum = (-block.minima[0]).mul_add(chunk.scaled_sums[index], sum);
        }
    }
    sum
}

/// Rounds 32 elements to 8 bits.
pub(super) fn quantize(x: &[f32], chunk: &mut IntegerChunk, index: usize) {
    let largest = x.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
    let quants = &mut chunk.quants[index * BLOCK..(index + 1) * BLOCK];
    quants.fill(0);
    for (q, &x) in quants.iter_mut().zip(x) {
        *q = (x * inverse).round_ties_even() as i8;
    }
    let mut total = 0;
    for half in 0..2 {
        let sum: i32 = quants[half * 16..(half + 1) * 16].iter().map(|&q| i32::from(q)).sum();
        total += sum;
        chunk.negative_sums[2 * index + half] = -sum;
        chunk.scaled_half_sums[2 * index + half] = scale * sum as f32;
    }
    chunk.scales[index] = scale;
    chunk.scaled_sums[index] = scale * total as f32;
}

/// See [`super::Kernels::prepare_shared`].
///
/// # Safety
/// As there.
pub(super) unsafe fn prepare_shared(x: &[[f32; BLOCK]], chunks: SharedChunks, token: usize, column: usize) {
    let mut chunk = IntegerChunk::ZERO;
    for (b, x) in x.iter().enumerate() {
        quantize(x, &mut chunk, 0);
        // SAFETY: the caller's promise.
        unsafe { chunks.set_block(token, column + b * BLOCK, &chunk) };
    }
}

/// Fills the forms that [`Input::reset`] made room for.
pub(super) fn prepare(x: &[f32], input: &mut Input) {
    let (tokens, columns) = (input.tokens, input.columns);
    for (t, row) in x.chunks_exact(columns).take(tokens).enumerate() {
        for (c, x) in row.chunks(CHUNK).enumerate() {
            if let Some(FloatChunk(out)) = input.floats.get_mut(c * tokens + t) {
                out[..x.len()].copy_from_slice(x);
                out[x.len()..].fill(0.0);
            }
            if let Some(out) = input.integers.get_mut(c * tokens + t) {
                for (b, x) in x.chunks(BLOCK).enumerate() {
                    quantize(x, out, b);
                }
            }
        }
    }
}

/// Element `column` of row `row` of a tile of a plain type, without the scale of F8.
fn element(dtype: DType, tile: &[u8], row: usize, column: usize) -> f32 {
    let two = |at: usize| [tile[at], tile[at + 1]];
    match dtype {
        DType::F32 => {
            let at = 4 * (column * TILE_ROWS + row);
            f32::from_le_bytes([tile[at], tile[at + 1], tile[at + 2], tile[at + 3]])
        }
        DType::F16 => f16::from_le_bytes(two(2 * (column * TILE_ROWS + row))).to_f32(),
        DType::BF16 => bf16::from_le_bytes(two(column / 2 * WORD + row * 4 + column % 2 * 2)).to_f32(),
        _ => {
            let at = column / F8_COLUMNS * F8_BYTES + WORD + column % F8_COLUMNS / 4 * WORD + row * 4 + column % 4;
            e4m3_to_f32(tile[at])
        }
    }
}

/// An 8-bit float as fp8 checkpoints store it. The codes of NaN read as 480: no trained weight has them.
fn e4m3_to_f32(bits: u8) -> f32 {
    // Exponent bias 7 becomes f32's 127; the product is exact, also for denormals.
    let magnitude = f32::from_bits(u32::from(bits & 0x7f) << 20) * f32::from_bits((127 + 120) << 23);
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The factor of F8 rows for 128 columns; 1 for other types.
fn column_scale(dtype: DType, tile: &[u8], row: usize, column: usize) -> f32 {
    if dtype != DType::F8_E4M3 {
        return 1.0;
    }
    let at = column / F8_COLUMNS * F8_BYTES + 4 * row;
    f32::from_le_bytes([tile[at], tile[at + 1], tile[at + 2], tile[at + 3]])
}

/// The product of one row of a tile with token `token`.
fn dot(dtype: DType, tile: &[u8], row: usize, input: &Input, token: usize) -> f32 {
    let columns = input.columns;
    if dtype.is_quantized() {
        let tile = Tile { dtype, bytes: tile };
        return (0..columns / BLOCK).fold(0.0, |sum, index| {
            let chunk = &input.integers()[index * BLOCK / CHUNK * input.tokens + token];
            add_product(&tile.block(row, index), chunk, index % (CHUNK / BLOCK), sum)
        });
    }
    // Four sums over every fourth column hide the latency of the additions; F8 starts anew at every scale.
    let span = if dtype == DType::F8_E4M3 { F8_COLUMNS } else { usize::MAX };
    let mut total = 0.0_f32;
    let mut start = 0;
    while start < columns {
        let end = columns.min(start.saturating_add(span));
        let mut sums = [0.0_f32; 4];
        for column in start..end {
            let x = input.floats[column / CHUNK * input.tokens + token].0[column % CHUNK];
            let sum = &mut sums[column % 4];
            *sum = element(dtype, tile, row, column).mul_add(x, *sum);
        }
        let sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        total = sum.mul_add(column_scale(dtype, tile, row, start), total);
        start = end;
    }
    total
}

/// See [`super::Kernels::multiply`].
///
/// # Safety
/// As there.
pub(super) unsafe fn multiply(dtype: DType, tiles: &[u8], rows: usize, input: &Input, out: *mut f32, stride: usize) {
    let tile_bytes = tiles.len() / rows.div_ceil(TILE_ROWS);
    for row in 0..rows {
        let tile = &tiles[row / TILE_ROWS * tile_bytes..][..tile_bytes];
        for token in 0..input.tokens {
            let value = dot(dtype, tile, row % TILE_ROWS, input, token);
            // SAFETY: the caller vouches for every index `token * stride + row`.
            unsafe { out.add(token * stride + row).write(value) };
        }
    }
}

/// Writes row `row` of a packed tile as f32.
pub(super) fn unpack_row(dtype: DType, tile: &[u8], row: usize, out: &mut [f32]) {
    let columns = out.len();
    assert!(row < TILE_ROWS);
    assert_eq!(Some(tile.len()), layout::tile_bytes(dtype, columns));
    if !dtype.is_quantized() {
        for (column, out) in out.iter_mut().enumerate() {
            *out = element(dtype, tile, row, column) * column_scale(dtype, tile, row, column);
        }
        return;
    }
    let tile = Tile { dtype, bytes: tile };
    for (index, out) in out.chunks_exact_mut(BLOCK).enumerate() {
        let block = tile.block(row, index);
        for (k, out) in out.iter_mut().enumerate() {
            let quant = f32::from(i16::from(block.quants[k]) - i16::from(block.offset));
            *out = block.scales[k / 16] * quant - block.minima[k / 16];
        }
    }
}
