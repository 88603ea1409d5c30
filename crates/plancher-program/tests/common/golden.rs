//! The golden checkpoints: small models of every architecture with what transformers computed of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plancher_model::{Model, StoredTensor, read_safetensors_header};

/// Each checkpoint has so many.
pub const PROMPTS: usize = 3;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every golden checkpoint but those with mixtures of experts, which cannot be lowered.
pub fn models() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("tests/golden")).expect("the goldens are in the repository");
    let directories = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir());
    let names = directories.filter_map(|path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned));
    let mut names: Vec<_> = names.filter(|name| !["mixtral", "qwen3-moe"].contains(&name.as_str())).collect();
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    names
}

pub fn open(path: &Path) -> Model {
    Model::open(path).unwrap_or_else(|e| panic!("{e}"))
}

/// What transformers computed.
pub struct Golden {
    bytes: Vec<u8>,
    tensors: BTreeMap<String, StoredTensor>,
}

impl Golden {
    pub fn read(model: &str) -> Self {
        let path = root().join("tests/golden").join(model).join("golden.safetensors");
        let bytes = std::fs::read(&path).expect("the golden values are in the repository");
        let tensors = read_safetensors_header(&path, &bytes).unwrap_or_else(|e| panic!("{e}"));
        Self { bytes, tensors }
    }

    fn bytes(&self, name: &str, dtype: &str) -> &[u8] {
        let tensor = &self.tensors[name];
        assert_eq!(tensor.dtype, dtype, "{name}");
        &self.bytes[tensor.offset..tensor.offset + tensor.bytes]
    }

    pub fn tokens(&self, name: &str) -> Vec<u32> {
        let (values, _) = self.bytes(name, "I64").as_chunks::<8>();
        values.iter().map(|&value| u32::try_from(i64::from_le_bytes(value)).expect("a token")).collect()
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        let (values, _) = self.bytes(name, "F32").as_chunks::<4>();
        values.iter().map(|&value| f32::from_le_bytes(value)).collect()
    }
}

/// `‖a − b‖ / ‖b‖`.
pub fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut b.iter().map(|b| f64::from(*b)))
}

pub fn largest(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(token, _)| token as u32)
}
