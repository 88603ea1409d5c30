//! What a thread records into a graph. It does so on a stream of its own: other threads go on using the device's, and
//! nothing of theirs gets into the graph or fails because of it.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUgraph, CUresult, CUstream};

use super::Device;
use super::faults::keep_name;
use crate::Result;

/// What this thread records.
struct State {
    /// The device that is recorded; others' work is done at once.
    device: usize,
    stream: CUstream,
    /// The kernels so far, each once.
    kernels: Vec<Arc<str>>,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// A recording that is under way on this thread; it ends with this, whatever happens in between.
pub(super) struct Recording<'a> {
    device: &'a Device,
    name: &'a str,
    stream: CUstream,
}

impl<'a> Recording<'a> {
    /// From now on this thread's work for `device`, whose context is current, is recorded. `name` is the graph's.
    pub(super) fn begin(device: &'a Device, name: &'a str) -> Result<Self> {
        let of = || format!("graph `{name}`");
        if STATE.with_borrow(Option::is_some) {
            let one_at_a_time = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            device.check_for("cuStreamBeginCapture", one_at_a_time, of)?;
        }
        let mut stream: CUstream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and `stream` is a place for the handle.
        device.check_for("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) }, of)?;
        let recording = Self { device, name, stream };
        // Relaxed: the work may allocate, and other threads may do anything. Only this stream is recorded.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream was made above.
        device.check_for("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) }, of)?;
        STATE.replace(Some(State { device: device.identity(), stream, kernels: Vec::new() }));
        Ok(recording)
    }

    /// The graph, which is the caller's now, and the names of its kernels.
    pub(super) fn end(self) -> Result<(CUgraph, Vec<Arc<str>>)> {
        let kernels = STATE.take().map(|state| state.kernels).unwrap_or_default();
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: recording began on this stream; `graph` is a place for the handle.
        let result = unsafe { sys::cuStreamEndCapture(self.stream, &raw mut graph) };
        self.device.check_for("cuStreamEndCapture", result, || format!("graph `{}`", self.name))?;
        Ok((graph, kernels))
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if STATE.with_borrow(|state| state.as_ref().is_some_and(|state| state.stream == self.stream)) {
            // The work has panicked.
            STATE.take();
            let mut graph: CUgraph = std::ptr::null_mut();
            // SAFETY: recording began on this stream; what was recorded is destroyed here and nowhere else.
            unsafe {
                let _ = sys::cuStreamEndCapture(self.stream, &raw mut graph);
                if !graph.is_null() {
                    let _ = sys::cuGraphDestroy(graph);
                }
            }
        }
        // SAFETY: the stream was made by `begin`, and nothing uses it any more.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

/// The stream on which this thread records the device's work, if it does.
pub(super) fn stream(device: usize) -> Option<CUstream> {
    STATE.with_borrow(|recording| recording.as_ref().filter(|it| it.device == device).map(|it| it.stream))
}

/// Remembers a kernel's name if this thread records the device's work; otherwise says that it does not.
pub(super) fn launched(device: usize, kernel: &Arc<str>) -> bool {
    STATE.with_borrow_mut(|recording| {
        let found = recording.as_mut().filter(|it| it.device == device);
        if let Some(it) = found {
            keep_name(&mut it.kernels, kernel);
            return true;
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_records_and_the_device_that_is_recorded_are_touched() {
        let own = std::ptr::dangling_mut();
        let norm: Arc<str> = "norm".into();
        assert!(!launched(1, &norm), "nothing is recorded yet");
        STATE.replace(Some(State { device: 1, stream: own, kernels: Vec::new() }));
        assert!(launched(1, &norm) && launched(1, &norm));
        assert!(!launched(2, &"elsewhere".into()));
        assert_eq!((stream(1), stream(2)), (Some(own), None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(stream(1), None);
                assert!(!launched(1, &"at the same time".into()));
            });
        });
        assert_eq!(STATE.take().expect("it is still recorded").kernels, [norm]);
        assert_eq!(stream(1), None);
    }
}
