//! Whether there is a GPU that can be used.

use plancher_cuda::libraries::{Environment, Kind};
use plancher_cuda::{Compiler, CudaError, Device};

use crate::placement::Found;

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

/// Makes a backend on GPU `ordinal` for up to `batch` sequences of `context` positions.
pub(crate) fn backend(
    model: &std::sync::Arc<plancher_model::Model>,
    ordinal: usize,
    context: usize,
    batch: usize,
) -> anyhow::Result<Box<dyn plancher_engine::Backend>> {
    let _ = (model, ordinal, context, batch);
    anyhow::bail!("this build has no decode step for GPUs")
}
