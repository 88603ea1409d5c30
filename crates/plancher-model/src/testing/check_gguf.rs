//! What must hold for any bytes read as a GGUF file: shared by the fuzz target and the tests.

use std::path::Path;

use crate::{GgmlType, Gguf, GgufVocabulary};

/// Reads everything in `bytes` that can be read without a model; memory and time stay proportional to their number.
///
/// # Panics
/// When what the reader accepted does not lie inside the file.
pub fn check_gguf(bytes: &[u8]) {
    let Ok(gguf) = Gguf::parse(Path::new("fuzz.gguf"), bytes) else { return };
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
