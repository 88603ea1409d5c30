//! What the integration tests share: golden files, the models beside the checkout, and comparisons.
#![expect(dead_code, reason = "every test file uses its own part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plancher_cpu::{Executor, LogitsOf, Options};
use plancher_model::Model;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The directory of golden checkpoint `name`.
pub(crate) fn golden(name: &str) -> PathBuf {
    workspace().join("tests/golden").join(name)
}

/// The names of all golden checkpoints that have reference logits; those of experts have none.
pub(crate) fn goldens() -> Vec<String> {
    let entries = std::fs::read_dir(workspace().join("tests/golden")).unwrap().map(|entry| entry.unwrap());
    let directories = entries.filter(|entry| entry.path().join("golden.safetensors").exists());
    let mut names: Vec<String> = directories.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    assert!(names.len() >= 6, "found only {names:?}");
    names
}

/// A path in the shared folder beside the checkout, if it is there.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PLANCHER_SHARED").map_or_else(|| workspace().join("../shared"), PathBuf::from);
    let path = root.join(path);
    if !path.exists() {
        eprintln!("skipped: `{}` is not there", path.display());
        return None;
    }
    Some(path)
}

/// An executor for the model at `path`.
pub(crate) fn executor(path: &Path, options: &Options) -> Executor {
    let model = Arc::new(Model::open(path).unwrap());
    Executor::new(&model, options, &|_, _| ()).unwrap()
}

/// Options for a test with `threads` workers.
pub(crate) fn options(threads: usize) -> Options {
    Options { threads, context: 512, spin: Duration::ZERO, ..Options::default() }
}

/// Appends `tokens` and returns the logits of all of them.
pub(crate) fn prefill_all(executor: &mut Executor, tokens: &[u32]) -> Vec<f32> {
    executor.prefill(tokens, LogitsOf::All, &mut |_| true).unwrap().to_vec()
}

/// The index of the largest element.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(index, _)| index as u32)
}

/// `|a - b| / |b|`.
pub(crate) fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut b.iter().map(|b| f64::from(*b)))
}

/// A safetensors file of f32 and i64 tensors, by name.
pub(crate) struct GoldenFile {
    bytes: Vec<u8>,
    ranges: HashMap<String, (usize, usize)>,
}

impl GoldenFile {
    /// Reads a file that is known to be well-formed.
    pub(crate) fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
        let entries = json.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
        let ranges = entries.map(|(name, entry)| {
            let offset = |i: usize| 8 + header + entry["data_offsets"][i].as_u64().unwrap() as usize;
            (name.clone(), (offset(0), offset(1)))
        });
        Self { ranges: ranges.collect(), bytes }
    }

    fn range(&self, name: &str) -> Option<&[u8]> {
        self.ranges.get(name).map(|&(start, end)| &self.bytes[start..end])
    }

    /// An f32 tensor.
    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        let bytes = self.range(name).unwrap();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// An i64 tensor of tokens, if there is one.
    pub(crate) fn tokens(&self, name: &str) -> Option<Vec<u32>> {
        let bytes = self.range(name)?;
        Some(bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect())
    }
}
