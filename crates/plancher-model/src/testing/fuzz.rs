//! The bodies of the fuzz targets in `/fuzz`, also run here for a bounded count of seeded inputs.

use std::path::Path;

/// Whatever the bytes are, the reader returns; what it accepts lies inside the file without overlap, and its
/// errors are one line.
///
/// # Panics
/// When that is not so.
pub fn check_safetensors_header(bytes: &[u8]) {
    match crate::read_safetensors_header(Path::new("fuzz"), bytes) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(tensors) => {
            let mut ranges: Vec<_> = tensors.values().map(|t| (t.offset, t.offset + t.bytes)).collect();
            ranges.sort_unstable();
            assert!(ranges.iter().all(|&(begin, end)| begin >= 8 && begin <= end && end <= bytes.len()));
            assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}
