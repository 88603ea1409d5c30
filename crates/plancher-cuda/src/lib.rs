//! NVIDIA GPUs, found at run time: kernels compiled by NVRTC for the device found, and what is needed to run them.
//!
//! Nothing of CUDA is needed to build this crate. The driver and NVRTC are looked for when they are first used
//! ([`libraries`]); what is missing becomes a [`CudaError`] that says where it was looked for.
//!
//! ```no_run
//! use plancher_cuda::{Arguments, Compiler, Device, DeviceBuffer, Launch, Module, Source, Specialization};
//!
//! # fn main() -> plancher_cuda::Result<()> {
//! const DOUBLE: Source = Source {
//!     name: "double",
//!     text: "extern \"C\" __global__ void twice(float* x) { x[threadIdx.x] *= FACTOR; }",
//! };
//! let device = Device::open(0)?;
//! let constants = Specialization::new().define("FACTOR", 2);
//! let cubin = Compiler::find()?.compile(DOUBLE, &constants, device.architecture())?;
//! let kernel = Module::load(&device, &cubin)?.kernel("twice")?;
//! let numbers = DeviceBuffer::from_slice(&device, &[1.0_f32, 2.0])?;
//! // SAFETY: two threads, two numbers, which live until after the download.
//! unsafe { kernel.launch(&Launch::linear(1, 2), &Arguments::new().buffer(&numbers))? };
//! assert_eq!(numbers.download()?, [2.0, 4.0]);
//! # Ok(())
//! # }
//! ```

mod architecture;
pub mod catalogue;
pub mod ceilings;
mod compiler;
mod decode;
mod device;
mod driver;
mod error;
mod event;
mod graph;
mod kernel;
mod kv_cache;
pub mod libraries;
mod matmul;
pub mod mega;
mod memory;
mod prefill;
mod telemetry;
mod weights;

pub use architecture::{Architecture, NoArchitecture};
pub use compiler::{Compiler, Cubin, KernelResources, Source, Specialization};
pub use decode::{DecodeOptions, Decoder, Executor, Sampling, StepTimes};
pub use device::{Device, Memory, Properties};
pub use driver::{CudaVersion, Driver, OLDEST_DRIVER, driver};
pub use error::{CudaError, Result};
pub use event::{Event, device_milliseconds};
pub use graph::Graph;
pub use kernel::{Arguments, Kernel, Launch, Loader, Module, TensorMap, Tiled};
pub use kv_cache::{KvCache, PAGE};
pub use matmul::{Matmul, MatmulChoice, Output, Product, ProductF32};
pub use mega::MegaOptions;
pub use memory::{DeviceBuffer, PinnedBuffer};
pub use prefill::{DEFAULT_CHUNK, Prefill, PrefillLogits, Prefilled};
pub use telemetry::Telemetry;
pub use weights::{DeviceMatrix, DeviceWeights, Element, LayerWeights, LoadOptions, ROW_MULTIPLE, RopeTable, padded};
