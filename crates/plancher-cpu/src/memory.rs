//! Large zeroed memory: 2 MiB-aligned, backed by huge pages where the system has them, and not touched before its
//! owner touches it, so that its pages lie in the owner's memory node.

use std::alloc::Layout;
use std::ptr::NonNull;

/// The alignment of every buffer, and the size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate {bytes} bytes of memory")]
pub struct OutOfMemory {
    /// How much was asked for.
    pub bytes: usize,
}

/// Zeroed bytes that several workers may write through raw pointers.
#[derive(Debug)]
pub struct HugeBuffer {
    start: NonNull<u8>,
    bytes: usize,
    mapping: Mapping,
}

// SAFETY: a buffer is plain memory without interior references; who may touch which bytes when is the business of
// whoever hands out its pointer.
unsafe impl Send for HugeBuffer {}
// SAFETY: as above; shared access goes through raw pointers whose users state their own conditions.
unsafe impl Sync for HugeBuffer {}

impl HugeBuffer {
    /// `bytes` zero bytes (at least one).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(bytes: usize) -> Result<Self, OutOfMemory> {
        let bytes = bytes.max(1);
        let (mapping, start) = Mapping::new(bytes).ok_or(OutOfMemory { bytes })?;
        Ok(Self { start, bytes, mapping })
    }

    /// The first byte.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The first byte as an element of another plain type, whose alignment is at most that of the buffer.
    #[must_use]
    pub fn cast<T>(&self) -> *mut T {
        const { assert!(align_of::<T>() <= HUGE_PAGE) }
        self.start.cast::<T>().as_ptr()
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: a buffer has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The bytes. Nobody may be writing through [`HugeBuffer::as_ptr`] meanwhile.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for `bytes` initialised (zeroed) bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The bytes, exclusively.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only handle.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for HugeBuffer {
    fn drop(&mut self) {
        // SAFETY: `mapping` describes the allocation made in `new`, which nothing else frees.
        unsafe { self.mapping.free() }
    }
}

/// What has to be given back.
#[cfg(unix)]
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

#[cfg(unix)]
impl Mapping {
    fn new(bytes: usize) -> Option<(Self, NonNull<u8>)> {
        let wanted = bytes.checked_next_multiple_of(4096)?.checked_add(HUGE_PAGE)?;
        Layout::from_size_align(wanted, 1).ok()?;
        // SAFETY: a fresh anonymous mapping; no existing memory is concerned.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                wanted,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(base.cast::<u8>())?;
        let start = base.as_ptr().map_addr(|address| address.next_multiple_of(HUGE_PAGE));
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGE / 2 {
            // SAFETY: the range lies inside the mapping made above (`wanted` leaves room for the alignment).
            // Failure means small pages, which is slower and nothing else.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Some((Self { base, bytes: wanted }, NonNull::new(start)?))
    }

    unsafe fn free(&self) {
        // SAFETY: the caller frees once; base and size are those of the mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// What has to be given back.
#[cfg(not(unix))]
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    layout: Layout,
}

#[cfg(not(unix))]
impl Mapping {
    fn new(bytes: usize) -> Option<(Self, NonNull<u8>)> {
        let layout = Layout::from_size_align(bytes, HUGE_PAGE).ok()?;
        // SAFETY: `bytes` is at least one.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some((Self { base, layout }, base))
    }

    unsafe fn free(&self) {
        // SAFETY: the caller frees once; base and layout are those of the allocation.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zeroed_and_writable_to_its_last_byte() {
        for bytes in [1, 4096, HUGE_PAGE + 1, 5 * HUGE_PAGE - 7] {
            let mut buffer = HugeBuffer::new(bytes).unwrap();
            assert_eq!(buffer.as_ptr().addr() % HUGE_PAGE, 0);
            assert!(buffer.bytes().iter().all(|&byte| byte == 0));
            *buffer.bytes_mut().last_mut().unwrap() = 7;
            assert_eq!(buffer.bytes()[bytes - 1], 7);
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for bytes in [usize::MAX, usize::MAX - HUGE_PAGE, usize::MAX / 2 + 1] {
            assert_eq!(HugeBuffer::new(bytes).unwrap_err(), OutOfMemory { bytes });
        }
    }
}
