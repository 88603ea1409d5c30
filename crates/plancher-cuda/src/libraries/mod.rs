//! Finding NVIDIA's libraries at run time: the driver, NVRTC, cuBLASLt and NVML. Nothing of CUDA is needed to build
//! Plancher or to start it; what is missing becomes an error that says where it was looked for and what to install.

mod load;
mod search;

pub use search::{Environment, Kind, Library};

pub(crate) use load::{Loaded, load, preload};
