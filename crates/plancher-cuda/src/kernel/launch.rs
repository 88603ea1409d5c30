//! How a kernel is launched: the grid, and what the launch asks of the device.

use std::ffi::c_int;

use cudarc::driver::sys::{
    self, CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchAttributeValue as Value, CUlaunchConfig,
};

use super::{Arguments, Kernel};
use crate::{CudaError, Result};

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    cluster: Option<u32>,
    dependent: bool,
    cooperative: bool,
}

impl Launch {
    /// `grid` blocks of `block` threads, both `(x, y, z)`.
    #[must_use]
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, shared: 0, cluster: None, dependent: false, cooperative: false }
    }

    /// `blocks` blocks of `threads` threads.
    #[must_use]
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// Dynamic shared memory of a block, in bytes. More than 48 KiB need [`Kernel::set_dynamic_shared_memory`].
    #[must_use]
    pub const fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// Groups blocks that follow each other in x into clusters of `blocks`, which run at once and see each other's
    /// shared memory (compute capability 9.0).
    #[must_use]
    pub const fn cluster(mut self, blocks: u32) -> Self {
        self.cluster = Some(blocks);
        self
    }

    /// Programmatic dependent launch: the kernel may start before the one before it in the stream has ended, and must
    /// itself wait (`griddepcontrol.wait`) before it touches what that one writes. Ignored where the device does not
    /// have it (before compute capability 9.0): there the kernel starts after the end, and the wait must be compiled
    /// to nothing.
    #[must_use]
    pub const fn dependent(mut self) -> Self {
        self.dependent = true;
        self
    }

    /// All blocks run at once, so that they can wait for each other.
    #[must_use]
    pub const fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }
}

impl Kernel {
    /// Puts a launch on the device's stream. Does not wait for it; a failure shows at a later wait and names the
    /// kernels that may have caused it.
    ///
    /// # Errors
    /// If the arguments are not as many and as large as the kernel's parameters, if the shape is impossible, or if the
    /// device has failed.
    ///
    /// # Safety
    /// The kernel must stay inside the memory that its arguments point to. That memory must live, and must not be
    /// used in conflict with the kernel by the host, until the device has been waited for. (Dropping a
    /// [`DeviceBuffer`](crate::DeviceBuffer) waits by itself.)
    pub unsafe fn launch(&self, launch: &Launch, arguments: &Arguments) -> Result<()> {
        let device = self.device();
        if let Some(problem) = arguments.problem(&self.parameters) {
            return Err(CudaError::Launch { kernel: self.name.to_string(), problem });
        }
        let mut attributes = self.attributes(launch)?;
        let config = self.configuration(launch, &mut attributes);
        let mut pointers = arguments.pointers();
        device.bind()?;
        // SAFETY: the configuration, the attributes and the arguments live during the call and have the sizes that
        // the kernel says; what the kernel does is the caller's promise.
        let result = unsafe {
            sys::cuLaunchKernelEx(&raw const config, self.function, pointers.as_mut_ptr(), std::ptr::null_mut())
        };
        device.check_for("cuLaunchKernelEx", result, || format!("`{}` with {launch}", self.name))?;
        // Only now: an error above was either a refusal or the fault of a kernel before.
        device.launched(&self.name);
        if device.waits_after_launches() {
            device.synchronize()?;
        }
        Ok(())
    }

    /// How many clusters of this launch run on the device at once.
    ///
    /// # Errors
    /// If the launch has no clusters, or the driver does not answer.
    pub fn clusters_at_once(&self, launch: &Launch) -> Result<u32> {
        let mut attributes = self.attributes(launch)?;
        let config = self.configuration(launch, &mut attributes);
        let mut clusters: c_int = 0;
        self.device().bind()?;
        // SAFETY: the configuration lives during the call, and `clusters` is a place for the number.
        let result = unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, self.function, &raw const config) };
        self.device().check_for("cuOccupancyMaxActiveClusters", result, || format!("`{}`", self.name))?;
        Ok(u32::try_from(clusters).unwrap_or(0))
    }

    /// What the driver gets, which points to the attributes.
    fn configuration(&self, launch: &Launch, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: launch.shared,
            hStream: self.device().stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        }
    }

    fn attributes(&self, launch: &Launch) -> Result<Vec<CUlaunchAttribute>> {
        let device = self.device().properties();
        let is_hopper = device.architecture().has_bulk_copies();
        let refuse = |problem: &str| CudaError::Launch { kernel: self.name.to_string(), problem: problem.to_owned() };
        let mut attributes = Vec::new();
        let mut add = |id, value| attributes.push(CUlaunchAttribute { id, pad: [0; 4], value });
        // Every byte of the union is set first: the driver reads more of it than one member.
        let mut value = Value { pad: [0; 64] };
        if launch.cooperative {
            if !device.cooperative_launch {
                return Err(refuse("this device cannot run all blocks at once"));
            }
            value.cooperative = 1;
            add(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
        }
        if let Some(blocks) = launch.cluster {
            if !is_hopper {
                return Err(refuse("this device has no clusters"));
            }
            if blocks == 0 || !launch.grid[0].is_multiple_of(blocks) {
                return Err(refuse("its grid is no multiple of its cluster"));
            }
            let mut value = Value { pad: [0; 64] };
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
            add(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value);
        }
        if launch.dependent && is_hopper {
            let mut value = Value { pad: [0; 64] };
            value.programmaticStreamSerializationAllowed = 1;
            add(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value);
        }
        Ok(attributes)
    }
}

impl std::fmt::Display for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [grid_x, grid_y, grid_z] = self.grid;
        let [block_x, block_y, block_z] = self.block;
        write!(f, "{grid_x} x {grid_y} x {grid_z} blocks of {block_x} x {block_y} x {block_z} threads")?;
        write!(f, " and {} bytes of shared memory", self.shared)?;
        if let Some(blocks) = self.cluster {
            write!(f, " in clusters of {blocks}")?;
        }
        if self.cooperative { write!(f, ", all at once") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_says_what_it_asks_for() {
        let launch = Launch::linear(132, 256).shared(1024).cluster(2).cooperative();
        assert_eq!(
            launch.to_string(),
            "132 x 1 x 1 blocks of 256 x 1 x 1 threads and 1024 bytes of shared memory in clusters of 2, all at once"
        );
    }
}
