//! The table that `ncu --csv --page raw` prints: a line of names, a line of units, a line for each launch. What stands
//! before it (`==PROF==` messages) is passed over. The table comes from a file, so nothing in it is believed before it has
//! been looked at.

use std::collections::BTreeMap;

use crate::record::ProfileRun;
use crate::step::OccupancyLimiter;
use crate::{Dtype, LabError, Result, Shape};

use super::unit;

/// The sections that are asked for, by `--section`.
pub const SECTIONS: &[&str] = &["SpeedOfLight", "WarpStateStats", "Occupancy"];

/// The metrics that are asked for beside them, by `--metrics`.
pub const METRICS: &[&str] = &[
    TIME,
    READ,
    WRITTEN,
    CONFLICTS[0].0,
    CONFLICTS[0].1,
    CONFLICTS[1].0,
    CONFLICTS[1].1,
    PASSES[0].0,
    PASSES[1].0,
    SECTORS[0].0,
    SECTORS[0].1,
    SECTORS[1].0,
    SECTORS[1].1,
];

const TIME: &str = "gpu__time_duration.sum";
const READ: &str = "dram__bytes_read.sum";
const WRITTEN: &str = "dram__bytes_write.sum";
/// Conflicts of shared memory's banks and the requests that had them, loads and stores.
const CONFLICTS: [(&str, &str); 2] = [
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "smsp__inst_executed_op_shared_ld.sum"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "smsp__inst_executed_op_shared_st.sum"),
];
/// Passes through shared memory and the same requests.
const PASSES: [(&str, &str); 2] = [
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", CONFLICTS[0].1),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", CONFLICTS[1].1),
];
/// 32-byte sectors and the requests to global memory that touched them, loads and stores.
const SECTORS: [(&str, &str); 2] = [
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
];
const ACTIVE: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";

/// Units of Speed of Light: their names here, and the first of these metrics that is there.
const SPEED_OF_LIGHT: [(&str, &[&str]); 4] = [
    (unit::MEMORY, &["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]),
    (unit::L2, &["lts__throughput.avg.pct_of_peak_sustained_elapsed"]),
    (
        unit::L1,
        &["l1tex__throughput.avg.pct_of_peak_sustained_active", "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"],
    ),
    (unit::COMPUTE, &["sm__throughput.avg.pct_of_peak_sustained_elapsed"]),
];

/// What may keep blocks from a multiprocessor, with the number of blocks that it allows.
const OCCUPANCY: [(OccupancyLimiter, &str); 4] = [
    (OccupancyLimiter::Threads, "launch__occupancy_limit_warps"),
    (OccupancyLimiter::Registers, "launch__occupancy_limit_registers"),
    (OccupancyLimiter::SharedMemory, "launch__occupancy_limit_shared_mem"),
    (OccupancyLimiter::Blocks, "launch__occupancy_limit_blocks"),
];

/// The most launches that are read.
const MOST_LAUNCHES: usize = 100_000;

/// A number with its unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The number.
    pub value: f64,
    /// As the table names it: `Mbyte`, `us`, `%`.
    pub unit: String,
}

/// One launch of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: String,
    /// Its metrics; those that are no numbers are left out.
    pub metrics: BTreeMap<String, Metric>,
}

impl Launch {
    fn number(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).map(|metric| metric.value)
    }

    /// A metric in units of its kind: bytes, seconds.
    fn scaled(&self, name: &str) -> Option<f64> {
        let metric = self.metrics.get(name)?;
        Some(metric.value * factor(&metric.unit)?)
    }

    /// A metric for each request, of loads and of stores: where there was a request.
    fn per_request(&self, metrics: [(&str, &str); 2]) -> Vec<(f64, f64)> {
        metrics.into_iter().filter_map(|(of, requests)| Some((self.number(of)?, self.number(requests)?))).collect()
    }
}

/// What a unit is in bytes or seconds; 1 where there is nothing to scale.
fn factor(unit: &str) -> Option<f64> {
    // Of a rate (`Gbyte/second`) or a quotient nothing is asked here.
    let unit = unit.split('/').next().unwrap_or_default();
    let (prefix, scale) = match unit {
        "ns" | "nsecond" => return Some(1e-9),
        "us" | "usecond" => return Some(1e-6),
        "ms" | "msecond" => return Some(1e-3),
        "s" | "second" => return Some(1.0),
        _ if unit.ends_with("byte") => (unit.trim_end_matches("byte"), 1000.0_f64),
        _ => return Some(1.0),
    };
    let power = ["", "K", "M", "G", "T"].iter().position(|known| known.eq_ignore_ascii_case(prefix))?;
    Some(scale.powi(i32::try_from(power).ok()?))
}

/// Reads a table; `file` is what messages call it.
///
/// # Errors
/// If there is no table in it, or a launch has no name.
pub fn read_table(file: &str, text: &str) -> Result<Vec<Launch>> {
    let wrong = |problem: String| LabError::File { path: file.to_owned(), problem };
    let start = text.lines().scan(0, |at, line| {
        let here = *at;
        *at += line.len() + 1;
        Some((here, line))
    });
    let header = start.into_iter().find(|(_, line)| line.starts_with("\"ID\",") || line.starts_with("ID,"));
    let Some((start, _)) = header else {
        return Err(wrong("no line of it begins with `\"ID\",`, as a table of `ncu --csv --page raw` does".to_owned()));
    };
    let table = text.get(start..).unwrap_or_default();
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(table.as_bytes());
    let names = reader.headers().map_err(|error| wrong(one_line(&error)))?.clone();
    let kernel_column = names
        .iter()
        .position(|name| name == "Kernel Name")
        .ok_or_else(|| wrong("its table has no column `Kernel Name`".to_owned()))?;
    let mut units = csv::StringRecord::new();
    let mut launches = Vec::new();
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| wrong(one_line(&error)))?;
        if index == 0 && record.get(0).is_none_or(str::is_empty) {
            units = record;
            continue;
        }
        // Messages may follow the table.
        let Some(kernel) = record.get(kernel_column).filter(|_| record.len() == names.len()) else { continue };
        if launches.len() == MOST_LAUNCHES {
            return Err(wrong(format!("it has more than {MOST_LAUNCHES} launches")));
        }
        let metrics = names.iter().enumerate().filter_map(|(column, name)| {
            let value: f64 = record.get(column)?.replace(',', "").trim().parse().ok()?;
            let unit = units.get(column).unwrap_or_default().to_owned();
            value.is_finite().then(|| (name.to_owned(), Metric { value, unit }))
        });
        launches.push(Launch { kernel: bare_name(kernel), metrics: metrics.collect() });
    }
    if launches.is_empty() {
        return Err(wrong("its table has no launch".to_owned()));
    }
    Ok(launches)
}

/// `saxpy(float, const float *, …)` is `saxpy`.
fn bare_name(kernel: &str) -> String {
    kernel.split('(').next().unwrap_or_default().trim().to_owned()
}

fn one_line(error: &csv::Error) -> String {
    error.to_string().replace('\n', " ")
}

/// The launches of `kernel` in a table of several versions that were launched one after another, each so often as `counts`
/// says.
///
/// # Errors
/// If there are more or fewer.
pub fn split(file: &str, launches: &[Launch], kernel: &str, counts: &[u32]) -> Result<Vec<Vec<Launch>>> {
    let mut ours = launches.iter().filter(|launch| launch.kernel == kernel).cloned();
    let split: Vec<Vec<Launch>> = counts.iter().map(|&count| ours.by_ref().take(count as usize).collect()).collect();
    let full = split.iter().zip(counts).all(|(launches, &count)| launches.len() == count as usize);
    if full && ours.next().is_none() {
        return Ok(split);
    }
    let (found, expected) =
        (launches.iter().filter(|launch| launch.kernel == kernel).count(), counts.iter().sum::<u32>());
    Err(LabError::File {
        path: file.to_owned(),
        problem: format!("it has {found} launches of the kernel `{kernel}`, and there were {expected}"),
    })
}

/// One run of a version's kernel as a profile: its longest launch, and for times and bytes the short ones that follow it (a
/// reduction is launched again on its own sums).
///
/// # Errors
/// If no launch is of `kernel`, or the longest has no time.
pub fn summarize(
    file: &str,
    launches: &[Launch],
    kernel: &str,
    (version, dtype, shape): (&str, Dtype, Option<Shape>),
    source: &str,
) -> Result<ProfileRun> {
    let wrong = |problem: String| LabError::File { path: file.to_owned(), problem };
    let ours: Vec<&Launch> = launches.iter().filter(|launch| launch.kernel == kernel).collect();
    let time = |launch: &Launch| launch.scaled(TIME).unwrap_or(0.0);
    let place = (0..ours.len())
        .max_by(|&a, &b| time(ours[a]).total_cmp(&time(ours[b])))
        .ok_or_else(|| wrong(format!("no launch in it is of the kernel `{kernel}`")))?;
    let longest = ours[place];
    if time(longest) <= 0.0 {
        return Err(wrong(format!("its launches of `{kernel}` have no `{TIME}`")));
    }
    let follows = ours[place + 1..].iter().copied().take_while(|launch| 2.0 * time(launch) < time(longest));
    let chain: Vec<&Launch> = std::iter::once(longest).chain(follows).collect();
    let total = |name: &str| {
        let all: Option<Vec<f64>> = chain.iter().map(|launch| launch.scaled(name)).collect();
        all.map(|values| values.iter().sum())
    };
    // Conflicts are those of loads and stores together.
    let together = |of: [(&str, &str); 2]| {
        let both = longest.per_request(of).into_iter().reduce(|a, b| (a.0 + b.0, a.1 + b.1));
        both.map(|(count, requests)| if requests > 0.0 { count / requests } else { 0.0 })
    };
    // Sectors are those of loads or of stores, whichever move more: a product stores once for thousands of loads.
    let sectors = longest.per_request(SECTORS).into_iter().filter(|(_, requests)| *requests > 0.0);
    let sectors = sectors.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(sectors, requests)| sectors / requests);
    let (occupancy_limiter, also_limits) = occupancy_limiters(longest);
    Ok(ProfileRun {
        version: version.to_owned(),
        dtype,
        shape,
        duration_us: 1e6 * chain.iter().map(|launch| time(launch)).sum::<f64>(),
        dram_bytes_read: total(READ),
        dram_bytes_written: total(WRITTEN),
        sol: speed_of_light(longest),
        stalls: stalls(longest),
        bank_conflicts: together(CONFLICTS),
        shared_passes: together(PASSES),
        sectors_per_request: sectors,
        occupancy_percent: longest.number(ACTIVE),
        occupancy_limiter,
        also_limits,
        source: source.to_owned(),
    })
}

fn speed_of_light(launch: &Launch) -> BTreeMap<String, f64> {
    let mut units: BTreeMap<String, f64> = SPEED_OF_LIGHT
        .iter()
        .filter_map(|(name, metrics)| {
            let percent = metrics.iter().find_map(|metric| launch.number(metric))?;
            Some(((*name).to_owned(), percent))
        })
        .collect();
    // The pipe of the tensor cores has another name on every architecture.
    let is_tensor =
        |name: &str| name.starts_with("sm__") && name.contains("pipe_tensor") && name.contains(".pct_of_peak");
    let tensor = launch.metrics.iter().filter(|(name, _)| is_tensor(name)).map(|(_, metric)| metric.value);
    if let Some(percent) = tensor.reduce(f64::max) {
        units.insert(unit::TENSOR.to_owned(), percent);
    }
    units
}

/// Shares of what warps waited for: all reasons but that they were chosen.
fn stalls(launch: &Launch) -> BTreeMap<String, f64> {
    let reason = |name: &str| -> Option<String> {
        let reason =
            name.strip_prefix("smsp__average_warps_issue_stalled_")?.strip_suffix("_per_issue_active.ratio")?;
        (reason != "selected" && !reason.ends_with("_not_issued")).then(|| reason.to_owned())
    };
    let found: BTreeMap<String, f64> =
        launch.metrics.iter().filter_map(|(name, metric)| Some((reason(name)?, metric.value.max(0.0)))).collect();
    let all: f64 = found.values().sum();
    if all <= 0.0 {
        return BTreeMap::new();
    }
    found.into_iter().map(|(reason, value)| (reason, value / all)).collect()
}

/// What allows the fewest blocks, and what else allows as few; the first in [`OCCUPANCY`]'s order comes first.
fn occupancy_limiters(launch: &Launch) -> (Option<OccupancyLimiter>, Vec<OccupancyLimiter>) {
    let limits = || OCCUPANCY.iter().filter_map(|(limiter, metric)| Some((*limiter, launch.number(metric)?)));
    let least = limits().map(|(_, blocks)| blocks).fold(f64::INFINITY, f64::min);
    let mut limiters = limits().filter(|(_, blocks)| *blocks <= least).map(|(limiter, _)| limiter);
    (limiters.next(), limiters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = include_str!("../../tests/data/ncu-saxpy.csv");

    #[test]
    fn a_table_is_read_with_its_units() {
        let launches = read_table("x.csv", TABLE).expect("a table");
        assert_eq!(
            launches.iter().map(|launch| launch.kernel.as_str()).collect::<Vec<_>>(),
            ["fill", "saxpy", "saxpy"]
        );
        let profile = summarize("x.csv", &launches, "saxpy", ("vectors", Dtype::F32, None), "ncu").expect("a profile");
        assert!((profile.duration_us - 1000.0).abs() < 1e-9, "{profile:?}");
        assert_eq!(profile.dram_bytes_read, Some(2_147_500_000.0));
        assert_eq!(profile.dram_bytes_written, Some(1_060_000_000.0));
        assert_eq!(profile.sol.get(unit::MEMORY), Some(&91.5));
        assert_eq!(profile.sol.get(unit::COMPUTE), Some(&14.2));
        assert_eq!(profile.occupancy_limiter, Some(OccupancyLimiter::Threads));
        assert_eq!((profile.bank_conflicts, profile.sectors_per_request), (Some(0.0), Some(16.0)));
        assert!((profile.stalls["long_scoreboard"] - 0.9).abs() < 1e-9, "{:?}", profile.stalls);
        assert!(!profile.stalls.contains_key("selected"));
    }

    #[test]
    fn a_table_of_an_h200_is_read_as_it_was_printed() {
        let launches = read_table("x.csv", include_str!("../../tests/data/ncu-h200.csv")).expect("a table");
        let profile = |kernel: &str| {
            summarize("x.csv", &launches, kernel, ("v", Dtype::F32, None), "ncu 2025.3").expect("a profile")
        };
        let saxpy = profile("saxpy");
        assert!((saxpy.duration_us - 363.744).abs() < 1e-6, "{saxpy:?}");
        assert_eq!((saxpy.dram_bytes_read, saxpy.dram_bytes_written), (Some(1_073_776_384.0), Some(514_910_208.0)));
        assert_eq!((saxpy.sol.get(unit::MEMORY), saxpy.sol.get(unit::L2)), (Some(&90.77), Some(&91.99)));
        assert_eq!((saxpy.bank_conflicts, saxpy.occupancy_limiter), (Some(0.0), Some(OccupancyLimiter::Threads)));
        let sectors = saxpy.sectors_per_request.expect("counted");
        assert!((sectors - 16.0).abs() < 0.1, "{sectors}");
        let top = saxpy.stalls.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(reason, _)| reason.as_str());
        assert_eq!(top, Some("long_scoreboard"));
        assert_eq!(profile("reduce").occupancy_limiter, Some(OccupancyLimiter::Registers));
        // Columns of a tile without padding: 31 more passes for each load, none for a store.
        let shared = profile("transpose_shared").bank_conflicts.expect("counted");
        assert!((15.0..16.5).contains(&shared), "{shared}");
    }

    #[test]
    fn of_several_launches_the_longest_counts_with_the_short_ones_behind_it() {
        let launch = |microseconds: f64| Launch {
            kernel: "reduce".to_owned(),
            metrics: [(TIME.to_owned(), Metric { value: microseconds, unit: "us".to_owned() })].into(),
        };
        let duration = |times: &[f64]| {
            let launches: Vec<Launch> = times.iter().map(|&time| launch(time)).collect();
            let profile = summarize("x.csv", &launches, "reduce", ("v", Dtype::F32, None), "ncu").expect("a profile");
            profile.duration_us.round() as u32
        };
        assert_eq!(duration(&[1000.0, 8.0, 2.0]), 1010);
        assert_eq!(duration(&[998.0, 8.0, 2.0, 1000.0, 8.0, 3.0, 999.0, 8.0, 2.0]), 1011);
        assert_eq!(duration(&[7.0, 7.1, 7.2]), 7);
    }

    #[test]
    fn launches_of_several_versions_are_told_apart_by_their_order() {
        let launch = |kernel: &str, microseconds: f64| Launch {
            kernel: kernel.to_owned(),
            metrics: [(TIME.to_owned(), Metric { value: microseconds, unit: "us".to_owned() })].into(),
        };
        let table = [launch("reduce", 9.0), launch("fill", 1.0), launch("reduce", 2.0), launch("reduce", 7.0)];
        let times = |counts: &[u32]| -> Result<Vec<Vec<f64>>, String> {
            let split = split("x.csv", &table, "reduce", counts).map_err(|error| error.to_string())?;
            let time = |launch: &Launch| launch.number(TIME).unwrap_or(0.0);
            Ok(split.iter().map(|launches| launches.iter().map(time).collect()).collect())
        };
        assert_eq!(times(&[2, 1]), Ok(vec![vec![9.0, 2.0], vec![7.0]]));
        assert_eq!(times(&[2, 0, 1]), Ok(vec![vec![9.0, 2.0], vec![], vec![7.0]]));
        let error =
            Err("`x.csv` cannot be read: it has 3 launches of the kernel `reduce`, and there were 2".to_owned());
        assert_eq!(times(&[1, 1]), error);
        assert!(times(&[2, 2]).is_err());
    }

    #[test]
    fn what_is_no_table_is_an_error_in_one_line() {
        let error = |text: &str| read_table("x.csv", text).expect_err(text).to_string();
        assert!(error("").contains("`x.csv` cannot be read: no line of it begins with"));
        assert!(error("==ERROR== ERR_NVGPUCTRPERM\n").contains("no line of it begins"));
        assert!(error("\"ID\",\"Name\"\n").contains("no column `Kernel Name`"));
        assert!(error("\"ID\",\"Kernel Name\"\n\"\",\"\"\n").contains("has no launch"));
        let launches =
            read_table("x.csv", "\"ID\",\"Kernel Name\",\"a\"\n\"0\",\"k(int)\",\"nan\"\n").expect("a table");
        assert!(launches[0].metrics.keys().eq(["ID"]));
        let error =
            summarize("x.csv", &launches, "k", ("v", Dtype::F32, None), "ncu").expect_err("no time").to_string();
        assert!(error.contains("have no `gpu__time_duration.sum`"), "{error}");
        let error = summarize("x.csv", &launches, "j", ("v", Dtype::F32, None), "ncu").expect_err("none").to_string();
        assert!(error.contains("no launch in it is of the kernel `j`"), "{error}");
    }

    #[test]
    fn units_are_scaled() {
        for (unit, expected) in
            [("byte", 1.0), ("Kbyte", 1e3), ("Mbyte", 1e6), ("Gbyte", 1e9), ("us", 1e-6), ("%", 1.0)]
        {
            assert_eq!(factor(unit), Some(expected), "{unit}");
        }
        assert_eq!(factor("Xbyte"), None);
    }
}
