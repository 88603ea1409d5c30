//! Which logical CPUs the process may use, in the order in which workers should take them, and pinning to them.

use std::sync::OnceLock;

/// Logical CPUs this process was allowed to use when it first asked: first one of each physical core, then their
/// siblings. Empty where the system does not tell.
#[must_use]
pub fn allowed_cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        let mut cpus: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|id| id.id).collect();
        cpus.sort_unstable();
        let mut seen = std::collections::HashMap::<(usize, usize), usize>::new();
        let mut ranked: Vec<(usize, usize)> = cpus
            .iter()
            .map(|&cpu| {
                let rank = physical_core(cpu).map_or(0, |core| {
                    let taken = seen.entry(core).or_insert(0);
                    *taken += 1;
                    *taken - 1
                });
                (rank, cpu)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, cpu)| cpu).collect()
    })
}

/// Physical cores among [`allowed_cpus`]; at least one.
#[must_use]
pub fn physical_cores() -> usize {
    let cpus = allowed_cpus();
    let cores: std::collections::HashSet<_> = cpus.iter().filter_map(|&cpu| physical_core(cpu)).collect();
    let known = if cores.is_empty() { cpus.len() } else { cores.len() };
    if known > 0 { known } else { std::thread::available_parallelism().map_or(1, std::num::NonZero::get) }
}

/// `(package, core)` of a logical CPU, where the system tells.
fn physical_core(cpu: usize) -> Option<(usize, usize)> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}")).ok()?;
        text.trim().parse::<usize>().ok()
    };
    Some((read("physical_package_id")?, read("core_id")?))
}

/// Pins the calling thread to the CPU of worker `worker` for good. Workers beyond the CPUs are left to the system.
pub(crate) fn pin_worker(worker: usize) {
    if let Some(&cpu) = allowed_cpus().get(worker) {
        core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
    }
}

/// Pins the calling thread to worker 0's CPU until dropped; does nothing where the former CPU set could not be
/// restored.
#[must_use]
pub(crate) struct PinnedCaller {
    #[cfg(target_os = "linux")]
    former: Option<libc::cpu_set_t>,
}

#[cfg(target_os = "linux")]
impl PinnedCaller {
    /// Pins the calling thread.
    pub(crate) fn pin() -> Self {
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: a CPU set is an array of integers, for which zeros are valid.
        let mut former: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `former` is valid for `bytes` bytes; thread 0 is the calling one.
        let got = unsafe { libc::sched_getaffinity(0, bytes, &raw mut former) };
        if got != 0 || allowed_cpus().is_empty() {
            return Self { former: None };
        }
        pin_worker(0);
        Self { former: Some(former) }
    }
}

#[cfg(target_os = "linux")]
impl Drop for PinnedCaller {
    fn drop(&mut self) {
        if let Some(former) = &self.former {
            // SAFETY: the set was filled by `sched_getaffinity` on this thread and is valid for its size.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const *former) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl PinnedCaller {
    /// Pins the calling thread.
    pub(crate) fn pin() -> Self {
        Self {}
    }
}
