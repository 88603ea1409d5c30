//! Loops that move memory and do nothing else, with the widest vectors of the machine.

/// A way to read memory; which one is fastest differs by machine and by moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLoop {
    /// One ascending stream.
    Plain,
    /// One ascending stream that asks for lines ahead of their use.
    Prefetched,
    /// Four ascending streams side by side, a quarter of the memory each.
    FourStreams,
}

impl ReadLoop {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Prefetched, Self::FourStreams];

    /// Reads every byte of `bytes` (but a tail of less than 64) with vector loads; the result depends on all of them.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the feature is there.
                return unsafe {
                    match self {
                        Self::Plain => x86::read_avx512::<1, 0>(bytes),
                        Self::Prefetched => x86::read_avx512::<1, 4096>(bytes),
                        Self::FourStreams => x86::read_avx512::<4, 0>(bytes),
                    }
                };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature is there.
                return unsafe { x86::read_avx2(bytes) };
            }
        }
        let mut sums = [0_u64; 8];
        for block in bytes.chunks_exact(64) {
            for (sum, word) in sums.iter_mut().zip(block.chunks_exact(8)) {
                *sum ^= u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
            }
        }
        sums.iter().fold(0, |all, sum| all ^ sum)
    }
}

/// `a = b`.
///
/// # Safety
/// Both are valid for `bytes` bytes and do not overlap.
pub(super) unsafe fn copy(a: *mut u8, b: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { a.copy_from_nonoverlapping(b, bytes) };
}

/// `a = b + 3 c` on f32.
///
/// # Safety
/// All are valid for `bytes` bytes, aligned for f32, and do not overlap.
pub(super) unsafe fn triad(a: *mut u8, b: *const u8, c: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the features are there; the rest is the caller's promise.
        unsafe { x86::triad_avx2(a, b, c, bytes) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { triad_plain(a, b, c, bytes) };
}

/// # Safety
/// As for [`triad`].
#[inline]
unsafe fn triad_plain(a: *mut u8, b: *const u8, c: *const u8, bytes: usize) {
    let n = bytes / size_of::<f32>();
    // SAFETY: the caller's promise; the buffers are aligned far beyond f32.
    #[expect(clippy::cast_ptr_alignment, reason = "the caller promises the alignment")]
    let (a, b, c) = unsafe {
        (
            std::slice::from_raw_parts_mut(a.cast::<f32>(), n),
            std::slice::from_raw_parts(b.cast::<f32>(), n),
            std::slice::from_raw_parts(c.cast::<f32>(), n),
        )
    };
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + 3.0 * c;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_xor_si256,
        _mm512_loadu_si512, _mm512_reduce_add_epi64, _mm512_setzero_si512, _mm512_xor_si512,
    };

    /// One line, aligned or not.
    #[inline]
    #[target_feature(enable = "avx512f")]
    #[expect(clippy::cast_ptr_alignment, reason = "an unaligned load")]
    fn load512(line: &[u8]) -> __m512i {
        assert!(line.len() >= 64);
        // SAFETY: there are 64 bytes.
        unsafe { _mm512_loadu_si512(line.as_ptr().cast::<__m512i>()) }
    }

    /// Half a line, aligned or not.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[expect(clippy::cast_ptr_alignment, reason = "an unaligned load")]
    fn load256(half: &[u8]) -> __m256i {
        assert!(half.len() >= 32);
        // SAFETY: there are 32 bytes.
        unsafe { _mm256_loadu_si256(half.as_ptr().cast::<__m256i>()) }
    }

    /// Reads `STREAMS` equal parts side by side, asking for lines `AHEAD` bytes ahead (0: not).
    #[target_feature(enable = "avx512f")]
    pub(super) fn read_avx512<const STREAMS: usize, const AHEAD: usize>(bytes: &[u8]) -> u64 {
        const BLOCK: usize = 256;
        let mut sums = [_mm512_setzero_si512(); 4];
        let part = bytes.len() / STREAMS / BLOCK * BLOCK;
        let (parts, rest) = bytes.split_at(part * STREAMS);
        for start in (0..part).step_by(BLOCK) {
            for stream in 0..STREAMS {
                let block = &parts[stream * part + start..][..BLOCK];
                for (sum, line) in sums.iter_mut().zip(block.chunks_exact(64)) {
                    if AHEAD > 0 {
                        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(AHEAD).cast());
                    }
                    *sum = _mm512_xor_si512(*sum, load512(line));
                }
            }
        }
        for line in rest.chunks_exact(64) {
            sums[0] = _mm512_xor_si512(sums[0], load512(line));
        }
        let all = sums.iter().fold(_mm512_setzero_si512(), |all, sum| _mm512_xor_si512(all, *sum));
        _mm512_reduce_add_epi64(all) as u64
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn read_avx2(bytes: &[u8]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 4];
        for block in bytes.chunks_exact(128) {
            for (sum, half) in sums.iter_mut().zip(block.chunks_exact(32)) {
                *sum = _mm256_xor_si256(*sum, load256(half));
            }
        }
        let all = sums.iter().fold(_mm256_setzero_si256(), |all, sum| _mm256_xor_si256(all, *sum));
        // SAFETY: both are 32 bytes of plain integers.
        let words: [u64; 4] = unsafe { std::mem::transmute(all) };
        words.iter().fold(0, |all, word| all ^ word)
    }

    /// # Safety
    /// As for [`super::triad`].
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn triad_avx2(a: *mut u8, b: *const u8, c: *const u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { super::triad_plain(a, b, c, bytes) };
    }
}
