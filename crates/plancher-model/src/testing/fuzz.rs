//! The bodies of the fuzz targets in `/fuzz`, also run here for a bounded count of seeded inputs.

use std::path::Path;

use crate::{GgmlType, Gguf, GgufVocabulary};

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

/// Reads everything in `bytes` that can be read without a model; memory and time stay proportional to their number.
///
/// # Panics
/// When what the reader accepted does not lie inside the file.
pub fn check_gguf(bytes: &[u8]) {
    let gguf = match Gguf::parse(Path::new("fuzz"), bytes) {
        Ok(gguf) => gguf,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let metadata = &gguf.metadata;
    for (key, value) in metadata.iter() {
        let shown = format!("{value} {}", value.type_name());
        assert!(!shown.contains('\n') && shown.len() < 1000, "{shown}");
        // Exactly one getter of a family can succeed, and none may panic.
        let _ = (metadata.text(key), metadata.unsigned(key), metadata.token(key), metadata.number(key));
        let _ = (metadata.flag(key), metadata.texts(key), metadata.floats(key), metadata.integers(key));
    }
    let _ = GgufVocabulary::from_metadata(metadata);
    for tensor in &gguf.tensors {
        let size = match tensor.ggml_type {
            GgmlType::Supported(dtype) => dtype.row_bytes(tensor.columns()).expect("whole blocks") * tensor.rows(),
            _ => 0,
        };
        assert!(tensor.offset + size <= bytes.len(), "{} ends past the file", tensor.name);
    }
}
