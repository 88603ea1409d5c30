//! What tests on a GPU share: the device, golden checkpoints, a paged cache with its blocks in disorder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plancher_cuda::{Compiler, Device, DeviceWeights, KvCache, LoadOptions, MatmulChoice, PAGE, Prefill, Result};
use plancher_model::{Model, read_safetensors_header};

/// A GPU with a compiler.
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) compiler: Compiler,
}

impl Gpu {
    /// The first GPU; nothing where there is none or no compiler, unless `PLANCHER_REQUIRE_GPU` is set.
    pub(crate) fn open() -> Option<Self> {
        let open = || -> Result<Self> { Ok(Self { device: Device::open(0)?, compiler: Compiler::find()? }) };
        match open() {
            Ok(gpu) => Some(gpu),
            Err(error) if std::env::var_os("PLANCHER_REQUIRE_GPU").is_some() => panic!("{error}"),
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    pub(crate) fn has_cublaslt(&self) -> bool {
        let found = plancher_cuda::Matmul::new(&self.device, &self.compiler, MatmulChoice::CublasLt);
        if let Err(error) = &found {
            assert!(std::env::var_os("PLANCHER_REQUIRE_GPU").is_none(), "{error}");
            eprintln!("skipped: {error}");
        }
        found.is_ok()
    }

    pub(crate) fn load(&self, model: &Model, options: LoadOptions) -> Arc<DeviceWeights> {
        let weights = DeviceWeights::load(&self.device, &self.compiler, model, options, &mut |_, _| {});
        Arc::new(weights.expect("a small model"))
    }

    pub(crate) fn prefill(&self, weights: &Arc<DeviceWeights>, chunk: usize, choice: MatmulChoice) -> Prefill {
        Prefill::new(&self.device, &self.compiler, Arc::clone(weights), chunk, choice).expect("kernels and buffers")
    }

    /// A cache for sequence 1 of up to `positions`, whose blocks do not follow each other.
    pub(crate) fn cache(&self, weights: &DeviceWeights, positions: usize) -> KvCache {
        let mut cache = KvCache::new(&self.device, weights.config(), 2, positions, None).expect("a small cache");
        for end in (1..=positions).step_by(PAGE) {
            for sequence in [0, 1] {
                cache.reserve(sequence, end).expect("room for both");
            }
        }
        cache
    }
}

/// A prompt and what Hugging Face computes for it in float32.
pub(crate) struct Golden {
    pub(crate) prompt: Vec<u32>,
    /// `(prompt, vocab_size)`.
    pub(crate) logits: Vec<f32>,
}

impl Golden {
    /// All prompts of a checkpoint, the longest last.
    pub(crate) fn all(checkpoint: &Path) -> Vec<Self> {
        let path = checkpoint.join("golden.safetensors");
        let bytes = std::fs::read(&path).expect("golden.safetensors");
        let tensors = read_safetensors_header(&path, &bytes).expect("a header");
        let data = |name: &str| tensors.get(name).map(|tensor| &bytes[tensor.offset..tensor.offset + tensor.bytes]);
        let golden = |index: usize| {
            let prompt = data(&format!("prompt.{index}"))?;
            let logits = data(&format!("logits.{index}"))?;
            Some(Self {
                prompt: prompt.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32).collect(),
                logits: logits.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            })
        };
        (0..).map_while(golden).collect()
    }
}

/// The checkpoints that can be opened: all but mixtures of experts.
pub(crate) fn golden_checkpoints() -> Vec<PathBuf> {
    // Tests run in their package's folder.
    let folder = Path::new("../../tests/golden");
    let entries = std::fs::read_dir(folder).expect("golden checkpoints").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = entries
        .filter(|path| path.join("golden.safetensors").exists() && path.join("model.safetensors").exists())
        .filter(|path| !["mixtral", "qwen3-moe"].iter().any(|name| path.ends_with(name)))
        .collect();
    paths.sort();
    paths
}

/// `‖a − b‖ / ‖b‖`; infinite where a number is not finite.
pub(crate) fn relative_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    if a.iter().any(|a| !a.is_finite()) {
        return f64::INFINITY;
    }
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let norm: f64 = b.iter().map(|b| f64::from(*b).powi(2)).sum();
    (difference / norm).sqrt()
}
