//! The arithmetic of a worker: products of packed weight tiles with prepared inputs, and the layout of those tiles.
//! `scalar` is the reference; the other instruction sets are chosen at run time.

#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exponential;
#[cfg(target_arch = "x86_64")]
#[expect(non_camel_case_types, reason = "formats are named as everywhere")]
mod format;
mod input;
mod isa;
mod layout;
mod pack;
mod scalar;
#[cfg(test)]
mod tests;
mod vector;

use plancher_model::DType;

pub use attention::{ATTENTION_CHUNK, AttentionRows};
pub use exponential::exponential;
pub use input::{BLOCK as CHUNK_BLOCK, Input, SharedChunks};
pub use isa::{Isa, IsaError};
pub use layout::TILE_ROWS;
pub use vector::Gate;

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    isa: Isa,
}

impl Kernels {
    /// Prepares `x`, `(tokens, columns)`, for products with matrices of the types in `dtypes`; reuses `input`'s
    /// memory.
    ///
    /// # Panics
    /// When `x` is not `tokens * columns` long, or `columns` is zero.
    pub fn prepare(&self, x: &[f32], tokens: usize, columns: usize, dtypes: &[DType], input: &mut Input) {
        assert!(columns > 0 && x.len() == tokens * columns, "{} elements are not ({tokens}, {columns})", x.len());
        #[cfg(target_arch = "x86_64")]
        if self.isa == Isa::Amx && tokens >= amx::MIN_TOKENS {
            // SAFETY: an instruction set that the machine lacks cannot be constructed.
            return unsafe { amx::prepare(x, tokens, columns, dtypes, input) };
        }
        input.reset(tokens, columns, dtypes);
        match self.isa {
            // SAFETY: an instruction set that the machine lacks cannot be constructed.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Amx => unsafe { avx512::prepare(x, input) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::prepare(x, input) },
            _ => scalar::prepare(x, input),
        }
    }

    /// Whether products of many tokens with weights of `dtype` read 8-bit chunks, so that inputs can be shared.
    #[must_use]
    pub fn reads_chunks(&self, dtype: DType) -> bool {
        // The tile unit reads another form, which is not made for sharing.
        self.isa != Isa::Amx && dtype.is_quantized()
    }

    /// Prepares `x` as columns `column ..` of `token`.
    ///
    /// # Panics
    /// When `column` or the length of `x` is not a multiple of 32.
    ///
    /// # Safety
    /// The token and the columns exist in `chunks`, and nobody else touches them meanwhile.
    pub unsafe fn prepare_shared(&self, x: &[f32], chunks: SharedChunks, token: usize, column: usize) {
        let (blocks, rest) = x.as_chunks();
        assert!(rest.is_empty() && column.is_multiple_of(input::BLOCK), "{} columns from {column} on", x.len());
        // SAFETY: the caller's promises; an instruction set that the machine lacks cannot be constructed.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Amx => avx512::prepare_shared(blocks, chunks, token, column),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::prepare_shared(blocks, chunks, token, column),
                _ => scalar::prepare_shared(blocks, chunks, token, column),
            }
        }
    }

    /// `out[t * stride + r] = dot(row r, x[t])` for `rows` rows packed in `tiles` and every prepared token `t`.
    /// Results do not depend on which tile a row is in, nor on how rows are shared out.
    ///
    /// # Panics
    /// When `tiles` is not a whole number of tiles for `rows` rows of the prepared columns, or the input was not
    /// prepared for `dtype`.
    ///
    /// # Safety
    /// `out` is valid for writes at every index named above, and nobody else touches those elements meanwhile.
    pub unsafe fn multiply(
        &self,
        dtype: DType,
        tiles: &[u8],
        rows: usize,
        input: &Input,
        out: *mut f32,
        stride: usize,
    ) {
        let tile_bytes = layout::tile_bytes(dtype, input.columns).and_then(|n| n.checked_mul(rows.div_ceil(TILE_ROWS)));
        assert_eq!(Some(tiles.len()), tile_bytes, "{rows} rows of {} {dtype} columns", input.columns);
        assert!(input.is_prepared(dtype), "the input was not prepared for {dtype}");
        if rows == 0 {
            return;
        }
        match self.isa {
            // SAFETY: the caller's promise, passed on; an instruction set that the machine lacks cannot be constructed.
            #[cfg(target_arch = "x86_64")]
            Isa::Amx if !input.parts.is_empty() => unsafe { amx::multiply(dtype, tiles, rows, input, out, stride) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Amx => unsafe { avx512::multiply(dtype, tiles, rows, input, out, stride) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::multiply(dtype, tiles, rows, input, out, stride) },
            // SAFETY: the caller's promise, passed on.
            _ => unsafe { scalar::multiply(dtype, tiles, rows, input, out, stride) },
        }
    }
}
