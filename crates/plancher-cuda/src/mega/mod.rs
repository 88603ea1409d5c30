//! The megakernel: `kernels/mega.cu` decodes many tokens of one sequence in one launch. This is what surrounds it: the
//! [plan](plancher_program::gpu) for model and device, the packed copy of the weights, the parameters, the launch, the
//! block of host memory through which tokens come and a request to stop goes.
//!
//! No plan runs that the [checker](plancher_program::gpu::check) has not passed.
//!
//! All blocks of a launch must be on the device at once, since they wait for each other: that is checked when the
//! kernel is made, and the launch is a cooperative one, which the driver refuses otherwise. A second process on the same
//! GPU takes turns with this one, whole devices at a time, and so cannot keep some of the blocks away.
//!
//! No wait in the kernel is endless: after [`MegaOptions::patience`] polls the waiter reports and all blocks end. The
//! error ([`CudaError::Stalled`](crate::CudaError::Stalled)) names who waited for what. Nothing is left of it: every launch
//! begins with an empty exchange. [`trace`] says where a step's time went.

mod control;
mod kernel;
mod launch;
mod memory;
mod pack;
mod parameters;
mod report;
pub mod trace;
mod verdict;

pub(crate) use control::RING;
pub(crate) use kernel::MEGA;
pub use launch::MegaOptions;
pub(crate) use launch::{Mega, Operands};
pub(crate) use pack::MEGA_PACK;
pub(crate) use parameters::Mode;
