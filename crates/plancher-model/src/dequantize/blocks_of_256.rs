//! GGML's "K" formats of 256 elements a block (`QK_K`): groups of 16 or 32 elements have integer scales,
//! some also integer minimums, and one or two half-precision numbers multiply those. In every format the
//! group of element `e` is `e / 16` or `e / 32`; how bits are spread over bytes is said at each function.

use super::half;

/// Elements of a block.
const BLOCK: usize = 256;

/// `block_q2_K`: `scales: [u8; 16], qs: [u8; 64], d: f16, dmin: f16`. 16 groups of 16; a group's byte holds
/// its scale in the low and its minimum in the high half; `d * scale * q - dmin * minimum`.
pub(super) fn q2_k(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(84).zip(out.chunks_exact_mut(BLOCK)) {
        let (scales, qs) = (&block[..16], &block[16..80]);
        let (d, dmin) = (half(&block[80..]), half(&block[82..]));
        for (group, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(scales[group] & 15);
            let minimum = dmin * f32::from(scales[group] >> 4);
            for (value, q) in out.iter_mut().zip(two_bits(qs, group)) {
                *value = scale * f32::from(q) - minimum;
            }
        }
    }
}

/// `block_q3_K`: `hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16`. 16 groups of 16; the third bit
/// of element `e` is bit `e / 32` of `hmask[e % 32]`, and means minus 4 when it is *not* set;
/// `d * scale * q`.
pub(super) fn q3_k(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(110).zip(out.chunks_exact_mut(BLOCK)) {
        let (mask, qs) = (&block[..32], &block[32..96]);
        let scales = q3_k_scales(&block[96..108]);
        let d = half(&block[108..]);
        for (group, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(scales[group]);
            let third = mask[group % 2 * 16..].iter().map(|bits| bits >> (group / 2) & 1);
            for ((value, low), third) in out.iter_mut().zip(two_bits(qs, group)).zip(third) {
                *value = scale * (f32::from(low | third << 2) - 4.0);
            }
        }
    }
}

/// `block_q4_K`: `d: f16, dmin: f16, scales: [u8; 12], qs: [u8; 128]`. 8 groups of 32; groups `2 i` and
/// `2 i + 1` are the low and high halves of bytes `32 i..32 i + 32`; `d * scale * q - dmin * minimum`.
pub(super) fn q4_k(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(144).zip(out.chunks_exact_mut(BLOCK)) {
        let qs = &block[16..];
        groups_of_32(block, out, |group, i| qs[group / 2 * 32 + i] >> (group % 2 * 4) & 15);
    }
}

/// `block_q5_K`: `d: f16, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`. As [`q4_k`], with a
/// fifth bit: bit `e / 32` of `qh[e % 32]`.
pub(super) fn q5_k(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(176).zip(out.chunks_exact_mut(BLOCK)) {
        let (qh, qs) = (&block[16..48], &block[48..]);
        groups_of_32(block, out, |group, i| qs[group / 2 * 32 + i] >> (group % 2 * 4) & 15 | (qh[i] >> group & 1) << 4);
    }
}

/// `block_q6_K`: `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`. 16 groups of 16. In each half of
/// the block, quarter `r` (32 elements) has its low 4 bits in `ql[32 (r % 2)..]`, in the low halves of the
/// bytes for `r < 2`, and its high 2 bits at bit `2 r` of `qh`; `d * scale * (q - 32)`.
pub(super) fn q6_k(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(210).zip(out.chunks_exact_mut(BLOCK)) {
        let (ql, qh, scales) = (&block[..128], &block[128..192], &block[192..208]);
        let d = half(&block[208..]);
        for (group, out) in out.chunks_exact_mut(16).enumerate() {
            let scale = d * f32::from(scales[group].cast_signed());
            let (n, r, start) = (group / 8, group / 2 % 4, group % 2 * 16);
            for (i, value) in out.iter_mut().enumerate() {
                let low = ql[64 * n + r % 2 * 32 + start + i] >> (r / 2 * 4) & 15;
                let high = qh[32 * n + start + i] >> (2 * r) & 3;
                *value = scale * (f32::from(low | high << 4) - 32.0);
            }
        }
    }
}

/// The 16 elements of `group` in `qs: [u8; 64]` of [`q2_k`] and [`q3_k`]: element `e` is at bits
/// `2 (e % 128 / 32)` of byte `32 (e / 128) + e % 32`.
fn two_bits(qs: &[u8], group: usize) -> impl Iterator<Item = u8> {
    let bytes = &qs[group / 8 * 32 + group % 2 * 16..][..16];
    bytes.iter().map(move |byte| byte >> (group / 2 % 4 * 2) & 3)
}

/// The arithmetic shared by [`q4_k`] and [`q5_k`]; `quant(group, i)` is element `i` of a group.
fn groups_of_32(block: &[u8], out: &mut [f32], quant: impl Fn(usize, usize) -> u8) {
    let (d, dmin) = (half(block), half(&block[2..]));
    let (scales, minimums) = k_scales_and_minimums(&block[4..16]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let scale = d * f32::from(scales[group]);
        let minimum = dmin * f32::from(minimums[group]);
        for (i, value) in out.iter_mut().enumerate() {
            *value = scale * f32::from(quant(group, i)) - minimum;
        }
    }
}

/// The 6-bit scales and minimums of a `Q4_K` or `Q5_K` block's 8 groups from their 12 packed bytes
/// (GGML's `get_scale_min_k4`): the first four of each are the low 6 bits of bytes 0–3 and 4–7; the last
/// four have their low 4 bits in bytes 8–11 and their high 2 bits on top of bytes 0–3 and 4–7.
///
/// # Panics
/// When `packed` has fewer than 12 bytes.
#[must_use]
pub fn k_scales_and_minimums(packed: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut minimums) = ([0; 8], [0; 8]);
    for i in 0..4 {
        scales[i] = packed[i] & 63;
        minimums[i] = packed[i + 4] & 63;
        scales[i + 4] = packed[i + 8] & 15 | packed[i] >> 6 << 4;
        minimums[i + 4] = packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4;
    }
    (scales, minimums)
}

/// The scales, -32 to 31, of a `Q3_K` block's 16 groups from their 12 packed bytes: low 4 bits in the
/// halves of bytes 0–7, high 2 bits of group `i` at bit `2 (i / 4)` of byte `8 + i % 4`.
///
/// # Panics
/// When `packed` has fewer than 12 bytes.
#[must_use]
pub fn q3_k_scales(packed: &[u8]) -> [i8; 16] {
    std::array::from_fn(|i| {
        let low = packed[i % 8] >> (i / 8 * 4) & 15;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        (low | high << 4).cast_signed() - 32
    })
}
