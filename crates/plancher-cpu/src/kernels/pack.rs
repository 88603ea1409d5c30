//! Arranges stored rows as tiles (see [`super::layout`]).

use plancher_model::{DType, Scale, TensorView};
use plancher_program::TileLayout;

use super::layout::{self, F8_BYTES, F8_COLUMNS, Part, SCALE, TILE_ROWS, WORD};
use super::{Kernels, scalar};

impl TileLayout for Kernels {
    fn tile_rows(&self) -> usize {
        TILE_ROWS
    }

    fn tile_bytes(&self, dtype: DType, columns: usize) -> Option<usize> {
        layout::tile_bytes(dtype, columns)
    }

    fn pack_tile(&self, view: &TensorView<'_>, first_row: usize, out: &mut [u8]) {
        pack_tile(view, first_row, out);
    }

    fn unpack_row(&self, dtype: DType, tile: &[u8], row: usize, out: &mut [f32]) {
        scalar::unpack_row(dtype, tile, row, out);
    }
}

/// Packs `TILE_ROWS` rows from `first_row`; rows beyond the matrix are zeros.
fn pack_tile(view: &TensorView<'_>, first_row: usize, out: &mut [u8]) {
    assert_eq!(Some(out.len()), layout::tile_bytes(view.dtype(), view.columns()));
    let zeros = if first_row + TILE_ROWS > view.rows() { vec![0; view.row_bytes()] } else { Vec::new() };
    let rows: [&[u8]; TILE_ROWS] =
        std::array::from_fn(|r| if first_row + r < view.rows() { view.row(first_row + r) } else { &zeros });
    match view.dtype() {
        // A word holds one column of F32, two of BF16.
        DType::F32 | DType::BF16 => pack_columns::<4>(&rows, out),
        DType::F16 => pack_columns::<2>(&rows, out),
        DType::F8_E4M3 => pack_f8(view, first_row, &rows, out),
        dtype => pack_blocks(dtype, view.columns(), &rows, out),
    }
}

/// Units of `N` bytes: `out[unit][row][N]`, zeros after the last whole one. A ragged last unit is filled with zeros.
fn pack_columns<const N: usize>(rows: &[&[u8]; TILE_ROWS], out: &mut [u8]) {
    let stored = rows[0].len().div_ceil(N);
    for (r, row) in rows.iter().enumerate() {
        let (units, rest) = row.as_chunks::<N>();
        for (unit, group) in units.iter().zip(out.chunks_exact_mut(N * TILE_ROWS)) {
            group[r * N..(r + 1) * N].copy_from_slice(unit);
        }
        if !rest.is_empty() {
            let last = &mut out[units.len() * N * TILE_ROWS + r * N..][..N];
            last.fill(0);
            last[..rest.len()].copy_from_slice(rest);
        }
    }
    out[stored * N * TILE_ROWS..].fill(0);
}

fn pack_f8(view: &TensorView<'_>, first_row: usize, rows: &[&[u8]; TILE_ROWS], out: &mut [u8]) {
    for (chunk, out) in out.chunks_exact_mut(F8_BYTES).enumerate() {
        let columns = chunk * F8_COLUMNS..((chunk + 1) * F8_COLUMNS).min(view.columns());
        let (scales, elements) = out.split_at_mut(WORD);
        for (r, out) in scales.chunks_exact_mut(4).enumerate() {
            let row = first_row + r;
            let scale = if row < view.rows() { scale_at(view, row, columns.start) } else { 0.0 };
            out.copy_from_slice(&scale.to_le_bytes());
        }
        let parts = rows.map(|row| &row[columns.clone()]);
        pack_columns::<4>(&parts, elements);
    }
}

/// The factor on element `(row, column)`.
fn scale_at(view: &TensorView<'_>, row: usize, column: usize) -> f32 {
    match &view.tensor.scale {
        Scale::One => 1.0,
        Scale::Tensor(scale) => *scale,
        Scale::Row(scales) => scales[row],
        Scale::Block { block_rows, block_columns, values } => {
            assert!(block_columns.is_multiple_of(F8_COLUMNS), "scale blocks of {block_columns} columns");
            values[row / block_rows * view.columns().div_ceil(*block_columns) + column / block_columns]
        }
    }
}

fn pack_blocks(dtype: DType, columns: usize, rows: &[&[u8]; TILE_ROWS], out: &mut [u8]) {
    let blocks = columns / dtype.block_elements();
    for b in 0..blocks {
        let (header_at, payload_at) = layout::block_offsets(dtype, b);
        let (header, payload) = out.split_at_mut(payload_at);
        // Up to the end of the line, so that unused bytes become zero; the next block writes its own after that.
        let header = &mut header[header_at..][..64 - header_at % 64];
        header.fill(0);
        for (r, row) in rows.iter().enumerate() {
            let block = &row[b * dtype.block_bytes()..(b + 1) * dtype.block_bytes()];
            pack_block(dtype, block, r, header, payload);
        }
    }
}

fn pack_block(dtype: DType, block: &[u8], r: usize, mut header: &mut [u8], mut payload: &mut [u8]) {
    for part in layout::parts(dtype) {
        match *part {
            Part::Scale(at) => {
                header[2 * r..2 * r + 2].copy_from_slice(&block[at..at + 2]);
                header = &mut header[SCALE..];
            }
            Part::Planes(start, end) => {
                for (byte, plane) in block[start..end].iter().zip(payload.chunks_exact_mut(TILE_ROWS)) {
                    plane[r] = *byte;
                }
                payload = &mut payload[(end - start) * TILE_ROWS..];
            }
            Part::Words(start, end, flip) => {
                let (words, _) = block[start..end].as_chunks::<4>();
                for (word, out) in words.iter().zip(payload.chunks_exact_mut(WORD)) {
                    out[4 * r..4 * r + 4].copy_from_slice(&word.map(|byte| byte ^ flip));
                }
                payload = &mut payload[(end - start) * TILE_ROWS..];
            }
            Part::WordPairs(low, high) => {
                for (i, pair) in payload[..16 * WORD].chunks_exact_mut(2 * WORD).enumerate() {
                    pair[4 * r..][..4].copy_from_slice(&block[low + 4 * i..][..4]);
                    pair[WORD + 4 * r..][..4].copy_from_slice(&block[high + 4 * i..][..4]);
                }
                payload = &mut payload[16 * WORD..];
            }
            Part::FifthBits(at) => {
                let bits = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
                for k in 0..4 {
                    payload[4 * r + k] = every_fourth_bit(bits >> k);
                }
                payload = &mut payload[WORD..];
            }
        }
    }
}

/// Bits 0, 4, 8 … 28 of `x` as bits 0 … 7.
fn every_fourth_bit(x: u32) -> u8 {
    let x = x & 0x1111_1111;
    let x = (x | x >> 3) & 0x0303_0303;
    let x = (x | x >> 6) & 0x000F_000F;
    (x | x >> 12) as u8
}
