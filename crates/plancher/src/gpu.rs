//! Whether there is a GPU that can be used, and the model on it.

use std::time::Instant;

use plancher_cuda::libraries::{Environment, Kind};
use plancher_cuda::{Compiler, CudaError, Device};
use plancher_engine::{Backend, CudaBackend, CudaOptions};
use plancher_model::Model;

use crate::output;
use crate::placement::Found;
use crate::progress::Progress;

/// Looks at GPU `ordinal`: driver, device and compiler.
pub(crate) fn look(ordinal: usize) -> Found {
    let usable = || -> plancher_cuda::Result<()> {
        Device::open(ordinal)?;
        Compiler::find()?.check_driver()
    };
    match usable() {
        Ok(()) => Found::Usable,
        // A driver without a GPU is what some containers have: no reason to speak unless asked.
        Err(CudaError::NoDevice { count: 0, .. }) => Found::Nothing,
        Err(CudaError::Driver { name, .. }) if name == "CUDA_ERROR_NO_DEVICE" => Found::Nothing,
        Err(_) if Environment::of_process().find(Kind::Driver).found.is_none() => Found::Nothing,
        Err(error) => Found::Unusable(error.to_string()),
    }
}

/// Makes a backend on a GPU.
pub(crate) fn backend(model: &Model, options: CudaOptions) -> anyhow::Result<Box<dyn Backend>> {
    let started = Instant::now();
    let mut progress = Progress::bytes("loading");
    let backend = CudaBackend::new(model, options, &mut |done, total| progress.set(done, total))?;
    drop(progress);
    tracing::info!(
        "put {} on the GPU in {:.0} ms",
        output::bytes(backend.weight_bytes()),
        1e3 * started.elapsed().as_secs_f64()
    );
    if let Some(note) = backend.note() {
        output::note(note);
    }
    if let Some(reason) = backend.refusal() {
        output::note(&format!("decoding by the graph of kernels: {reason}"));
    }
    Ok(Box::new(backend))
}
