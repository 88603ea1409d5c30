//! What this machine is, as far as it tells: read from `/proc` and `/sys` on Linux. What cannot be read is `None` or
//! empty; nothing here fails.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::affinity::{allowed_cpus, physical_cores};

/// A cache of CPU 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// `Data`, `Instruction`, `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Logical CPUs that share it.
    pub shared_by: usize,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The CPU's name for itself.
    pub cpu: Option<String>,
    /// `x86_64`, `aarch64`, …
    pub architecture: &'static str,
    /// `linux`, `macos`, …
    pub system: &'static str,
    /// Instruction-set extensions that matter here, of those that the CPU has.
    pub features: Vec<String>,
    /// Logical CPUs that this process may use.
    pub threads: usize,
    /// Physical cores among them.
    pub cores: usize,
    /// Caches as CPU 0 sees them, nearest first.
    pub caches: Vec<Cache>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of memory that could be had now.
    pub available_memory: Option<u64>,
    /// State of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Memory nodes.
    pub numa_nodes: usize,
    /// Current clock of CPU 0 in MHz.
    pub mhz: Option<u32>,
}

/// Extensions that some kernel or some report cares about, by their names in `/proc/cpuinfo`.
const FEATURES: [&str; 17] = [
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
];

impl Machine {
    /// Looks around.
    #[must_use]
    pub fn detect() -> Self {
        let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
        let meminfo = text("/proc/meminfo").unwrap_or_default();
        let cpu0 = Path::new("/sys/devices/system/cpu/cpu0");
        let allowed = allowed_cpus().len();
        Self {
            cpu: field(&cpuinfo, "model name"),
            architecture: std::env::consts::ARCH,
            system: std::env::consts::OS,
            features: features(&cpuinfo),
            threads: if allowed > 0 { allowed } else { physical_cores() },
            cores: physical_cores(),
            caches: caches(&cpu0.join("cache")),
            memory: kibibytes(&meminfo, "MemTotal"),
            available_memory: kibibytes(&meminfo, "MemAvailable"),
            huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|state| selected(&state)),
            numa_nodes: numa_nodes(),
            mhz: mhz(cpu0, &cpuinfo),
        }
    }
}

/// A short text file, trimmed.
fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn features(cpuinfo: &str) -> Vec<String> {
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    FEATURES.iter().filter(|feature| flags.contains(feature)).map(ToString::to_string).collect()
}

/// A `name: 123 kB` line in bytes.
fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let value = field(meminfo, name)?;
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets of `always [madvise] never`.
fn selected(state: &str) -> Option<String> {
    let (_, rest) = state.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// A size such as `32768K`.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The length of a list such as `0-3,8`.
fn list_length(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |length, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        length.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn caches(directory: &Path) -> Vec<Cache> {
    let mut caches: Vec<Cache> = (0..16)
        .map_while(|index| {
            let read = |name: &str| text(directory.join(format!("index{index}")).join(name));
            Some(Cache {
                level: read("level")?.parse().ok()?,
                kind: read("type")?,
                bytes: size(&read("size")?)?,
                shared_by: read("shared_cpu_list").and_then(|list| list_length(&list)).unwrap_or(1),
            })
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

fn numa_nodes() -> usize {
    text("/sys/devices/system/node/online").and_then(|list| list_length(&list)).unwrap_or(1)
}

fn mhz(cpu: &Path, cpuinfo: &str) -> Option<u32> {
    let scaling = text(cpu.join("cpufreq/scaling_cur_freq")).and_then(|khz| khz.parse::<u32>().ok());
    let listed = || field(cpuinfo, "cpu MHz").and_then(|mhz| mhz.parse::<f64>().ok()).map(|mhz| mhz as u32);
    scaling.map(|khz| khz / 1000).or_else(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_notations_are_understood() {
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("260M"), Some(260 << 20));
        assert_eq!(size("7"), Some(7));
        assert_eq!((size("12X"), size(""), size("99999999999999999999K")), (None, None, None));
        assert_eq!(list_length("0-3,8"), Some(5));
        assert_eq!((list_length("3-0"), list_length("a"), list_length("")), (None, None, None));
        assert_eq!(selected("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(selected("always"), None);
        assert_eq!(kibibytes("MemTotal:       2048 kB\n", "MemTotal"), Some(2 << 20));
        assert_eq!(kibibytes("MemTotal: 99999999999999999999 kB", "MemTotal"), None);
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2 avx512f sse\n";
        assert_eq!(field(cpuinfo, "model name").as_deref(), Some("Some CPU"));
        assert_eq!(features(cpuinfo), ["avx2", "avx512f"]);
    }

    #[test]
    fn this_machine_has_at_least_one_core_and_one_thread() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1 && machine.threads >= machine.cores, "{machine:?}");
        assert!(machine.numa_nodes >= 1);
    }

    #[test]
    fn a_directory_without_caches_gives_none() {
        assert_eq!(caches(Path::new("/nonexistent")), []);
    }
}
