//! CUDA graphs: work recorded once and replayed with one call.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUgraphExec};

use crate::{Device, Result};

/// Recorded work. Whatever it uses (kernels, memory) must outlive it, which is why replaying is unsafe.
#[derive(Debug)]
pub struct Graph {
    device: Device,
    recorded: CUgraph,
    executable: CUgraphExec,
    name: Arc<str>,
    /// The kernels' names, each once.
    kernels: Vec<Arc<str>>,
    nodes: usize,
}

// SAFETY: the handles are the driver's, which may be used from any thread, one at a time (`replay` borrows mutably).
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` puts on the device's stream from this thread; nothing of it runs. `name` stands for the graph in messages.
    ///
    /// # Errors
    /// If `work` fails, waits, or does something else that cannot be recorded.
    pub fn capture(device: &Device, name: &str, work: impl FnOnce() -> Result<()>) -> Result<Self> {
        let (graph, kernels) = device.record(name, work)?;
        let mut recorded = Self {
            device: device.clone(),
            recorded: graph,
            executable: std::ptr::null_mut(),
            name: format!("graph {name}").into(),
            kernels,
            nodes: 0,
        };
        // SAFETY: without a place for the nodes, only their number is written.
        let result = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut recorded.nodes) };
        device.check("cuGraphGetNodes", result)?;
        // SAFETY: the graph is complete, and `executable` is a place for the handle.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut recorded.executable, graph, 0) };
        device.check_for("cuGraphInstantiate", result, || format!("graph `{name}`"))?;
        // SAFETY: the executable graph is this device's. Uploading now takes it out of the first replay.
        let result = unsafe { sys::cuGraphUpload(recorded.executable, device.stream()) };
        device.check_for("cuGraphUpload", result, || format!("graph `{name}`"))?;
        Ok(recorded)
    }

    /// Puts the recorded work on the stream once. Does not wait for it.
    ///
    /// # Errors
    /// If the device has failed.
    ///
    /// # Safety
    /// What [`Kernel::launch`](crate::Kernel::launch) asks for holds for every kernel in it: all that was recorded must
    /// still live.
    pub unsafe fn replay(&mut self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the executable graph is this device's; what its kernels do is the caller's promise.
        let result = unsafe { sys::cuGraphLaunch(self.executable, self.device.stream()) };
        self.device.check_for("cuGraphLaunch", result, || format!("`{}`", self.name))?;
        self.device.replayed(&self.name, &self.kernels);
        if self.device.waits_after_launches() { self.device.synchronize() } else { Ok(()) }
    }

    /// How many launches, copies and fills were recorded.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.bind().is_err() {
            return;
        }
        // SAFETY: both handles were made by `capture` and are destroyed once; the driver waits for a replay that runs.
        unsafe {
            if !self.executable.is_null() {
                let _ = sys::cuGraphExecDestroy(self.executable);
            }
            if !self.recorded.is_null() {
                let _ = sys::cuGraphDestroy(self.recorded);
            }
        }
    }
}
