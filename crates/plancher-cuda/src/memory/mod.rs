//! Memory: arrays on the device, and arrays of the host that the device sees.

mod device_buffer;
mod pinned;

use bytemuck::Pod;

pub use device_buffer::DeviceBuffer;
pub use pinned::PinnedBuffer;

use crate::{CudaError, Result};

/// The bytes of `len` elements.
fn byte_size<T: Pod>(len: usize) -> Result<usize> {
    let limit = isize::MAX as usize / size_of::<T>().max(1);
    if len > limit {
        return Err(CudaError::Range { what: "elements of a buffer", value: len as u64, limit: limit as u64 });
    }
    Ok(len * size_of::<T>())
}

/// Checks that `count` elements from `at` on lie within `len`.
fn range(what: &'static str, at: usize, count: usize, len: usize) -> Result<()> {
    match at.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        end => Err(CudaError::Range { what, value: end.unwrap_or(usize::MAX) as u64, limit: len as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_do_not_overflow_and_ranges_stay_inside() {
        assert_eq!(byte_size::<u32>(3), Ok(12));
        assert!(byte_size::<u64>(usize::MAX).is_err());
        assert!(range("end", 2, 2, 4).is_ok());
        assert!(range("end", 3, 2, 4).is_err());
        let error = range("end of what is read", usize::MAX, 2, 4).expect_err("beyond");
        assert_eq!(error.to_string(), format!("`end of what is read` is {}, and at most 4 is possible", u64::MAX));
    }
}
