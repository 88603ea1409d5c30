//! What went wrong on a device. Kernels run later than they are launched, and the driver reports a failure at whatever
//! call comes next; so the names of the kernels launched since the last successful wait are kept for the message.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUresult;

use crate::driver::describe;
use crate::{CudaError, Result};

/// More names than this are not kept: a message should stay readable.
const MOST_NAMES: usize = 12;

#[derive(Debug)]
pub(super) struct Faults {
    state: Mutex<State>,
    wait_after_launches: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Kernels launched since the device was last known to be well, each once.
    recent: Vec<Arc<str>>,
    failure: Option<CudaError>,
}

impl Default for Faults {
    fn default() -> Self {
        let wait_after_launches = std::env::var_os("PLANCHER_CUDA_SYNC").is_some_and(|value| value == "1");
        Self { state: Mutex::default(), wait_after_launches }
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn launched(&self, kernel: &Arc<str>) {
        keep_name(&mut self.state().recent, kernel);
    }

    /// A graph was launched.
    pub(super) fn replayed(&self, graph: &Arc<str>, kernels: &[Arc<str>]) {
        let state = &mut *self.state();
        // Replays follow each other thousands of times without a wait: the graph's name stands for its kernels' names.
        if !state.recent.contains(graph) {
            [graph].into_iter().chain(kernels).for_each(|name| keep_name(&mut state.recent, name));
        }
    }

    pub(super) fn all_well(&self) {
        self.state().recent.clear();
    }

    /// Whether every launch is to be waited for.
    pub(super) const fn waits_after_launches(&self) -> bool {
        self.wait_after_launches
    }

    /// The failure that was kept.
    pub(super) fn check(&self) -> Result<()> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    /// Keeps the first failure, and returns it.
    pub(super) fn failed(&self, result: CUresult) -> CudaError {
        let (name, text) = describe(result);
        self.keep(name, text)
    }

    fn keep(&self, name: String, text: String) -> CudaError {
        let mut state = self.state();
        let kernels = match state.recent.as_slice() {
            [] => "work that was not ours".to_owned(),
            [kernel] => format!("`{kernel}`"),
            kernels => {
                let names: Vec<String> = kernels.iter().map(|kernel| format!("`{kernel}`")).collect();
                format!("one of {} (set `PLANCHER_CUDA_SYNC=1` to see which)", names.join(", "))
            }
        };
        state.failure.get_or_insert(CudaError::Fault { kernels, name, text }).clone()
    }
}

/// Adds a name to those of a message, once, and not without bound.
pub(super) fn keep_name(names: &mut Vec<Arc<str>>, name: &Arc<str>) {
    if names.len() < MOST_NAMES && !names.contains(name) {
        names.push(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(faults: &Faults) -> String {
        faults.keep("CUDA_ERROR_ILLEGAL_ADDRESS".into(), "an illegal memory access was encountered".into()).to_string()
    }

    #[test]
    fn a_failure_names_the_kernels_since_the_last_wait_and_stays() {
        let faults = Faults::default();
        faults.launched(&"before".into());
        faults.all_well();
        let guilty: Arc<str> = "attention".into();
        faults.launched(&guilty);
        faults.launched(&guilty);
        assert!(faults.check().is_ok());
        let first = fail(&faults);
        assert_eq!(
            first,
            "the GPU failed in `attention`: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"
        );
        faults.launched(&"later".into());
        assert_eq!(fail(&faults), first);
        assert_eq!(faults.check().expect_err("it stays").to_string(), first);
    }

    #[test]
    fn a_graph_stands_for_its_kernels_once_it_runs() {
        let faults = Faults::default();
        let (graph, norm, matvec): (Arc<str>, Arc<str>, Arc<str>) =
            ("graph step".into(), "norm".into(), "matvec".into());
        let kernels = [norm, matvec];
        assert!(fail(&Faults::default()).contains("work that was not ours"));
        faults.replayed(&graph, &kernels);
        faults.replayed(&graph, &kernels);
        assert!(fail(&faults).contains("one of `graph step`, `norm`, `matvec` ("));
    }

    #[test]
    fn several_kernels_are_all_named_but_not_without_bound() {
        let faults = Faults::default();
        for kernel in 0..100 {
            faults.launched(&format!("kernel{kernel}").into());
        }
        let message = fail(&faults);
        assert!(message.contains("one of `kernel0`, `kernel1`") && !message.contains("kernel99"), "{message}");
    }
}
