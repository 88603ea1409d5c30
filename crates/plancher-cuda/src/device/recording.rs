//! What a thread records into a graph. It does so on a stream of its own: other threads go on using the device's, and
//! nothing of theirs gets into the graph or fails because of it.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;

use super::faults::keep_name;

/// A recording that is under way on this thread.
struct Recording {
    /// The device that is recorded; others' work is done at once.
    device: usize,
    stream: CUstream,
    /// The kernels so far, each once.
    kernels: Vec<Arc<str>>,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// From now on this thread's work for the device is recorded on `stream`. `device` tells devices apart.
pub(super) fn begin(device: usize, stream: CUstream) {
    RECORDING.replace(Some(Recording { device, stream, kernels: Vec::new() }));
}

/// The recording has ended; returns the names of its kernels.
pub(super) fn end() -> Vec<Arc<str>> {
    RECORDING.take().map(|recording| recording.kernels).unwrap_or_default()
}

/// The stream on which this thread records the device's work, if it does.
pub(super) fn stream(device: usize) -> Option<CUstream> {
    RECORDING.with_borrow(|recording| recording.as_ref().filter(|it| it.device == device).map(|it| it.stream))
}

/// Remembers a kernel's name if this thread records the device's work; otherwise says that it does not.
pub(super) fn launched(device: usize, kernel: &Arc<str>) -> bool {
    RECORDING.with_borrow_mut(|recording| {
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
        let (own, other) = (std::ptr::dangling_mut(), std::ptr::null_mut());
        let norm: Arc<str> = "norm".into();
        assert!(!launched(1, &norm), "nothing is recorded yet");
        begin(1, own);
        assert!(launched(1, &norm) && launched(1, &norm));
        assert!(!launched(2, &"elsewhere".into()));
        assert_eq!((stream(1), stream(2)), (Some(own), None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(stream(1), None);
                assert!(!launched(1, &"at the same time".into()));
            });
        });
        assert_eq!(end(), [norm]);
        assert_eq!(stream(1), None);
        begin(1, other);
        assert!(end().is_empty(), "nothing of the recording before");
    }
}
