//! GGML's formats of 32 elements a block: one half-precision scale, in the `_1` formats also a minimum,
//! then 4, 5 or 8 bits an element. Of 4-bit parts, byte `i` holds element `i` in its low half and element
//! `i + 16` in its high half; the fifth bit of element `i` is bit `i` of a 32-bit word.

use super::half;

/// Elements of a block (`QK8_0`, `QK4_0`, …).
const BLOCK: usize = 32;

/// `block_q8_0`: `d: f16, qs: [i8; 32]`; `d * q`.
pub(super) fn q8_0(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(34).zip(out.chunks_exact_mut(BLOCK)) {
        let d = half(block);
        for (value, &q) in out.iter_mut().zip(&block[2..]) {
            *value = f32::from(q.cast_signed()) * d;
        }
    }
}

/// `block_q4_0`: `d: f16, qs: [u8; 16]`; `d * (q - 8)`.
pub(super) fn q4_0(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(18).zip(out.chunks_exact_mut(BLOCK)) {
        let d = half(block);
        nibbles(&block[2..], 0, out, |q| (f32::from(q) - 8.0) * d);
    }
}

/// `block_q4_1`: `d: f16, m: f16, qs: [u8; 16]`; `d * q + m`.
pub(super) fn q4_1(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(20).zip(out.chunks_exact_mut(BLOCK)) {
        let (d, m) = (half(block), half(&block[2..]));
        nibbles(&block[4..], 0, out, |q| f32::from(q) * d + m);
    }
}

/// `block_q5_0`: `d: f16, qh: u32, qs: [u8; 16]`; `d * (q - 16)`.
pub(super) fn q5_0(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(22).zip(out.chunks_exact_mut(BLOCK)) {
        let d = half(block);
        nibbles(&block[6..], fifth_bits(&block[2..]), out, |q| (f32::from(q) - 16.0) * d);
    }
}

/// `block_q5_1`: `d: f16, m: f16, qh: u32, qs: [u8; 16]`; `d * q + m`.
pub(super) fn q5_1(row: &[u8], out: &mut [f32]) {
    for (block, out) in row.chunks_exact(24).zip(out.chunks_exact_mut(BLOCK)) {
        let (d, m) = (half(block), half(&block[2..]));
        nibbles(&block[8..], fifth_bits(&block[4..]), out, |q| f32::from(q) * d + m);
    }
}

fn fifth_bits(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Unpacks the 32 elements of a block: 4 bits from `packed`, a fifth from `high`, each through `value`.
fn nibbles(packed: &[u8], high: u32, out: &mut [f32], value: impl Fn(u8) -> f32) {
    let fifth = |i: usize| ((high >> i & 1) as u8) << 4;
    let (low_half, high_half) = out.split_at_mut(BLOCK / 2);
    for (i, &byte) in packed.iter().enumerate() {
        low_half[i] = value(byte & 15 | fifth(i));
        high_half[i] = value(byte >> 4 | fifth(i + 16));
    }
}
