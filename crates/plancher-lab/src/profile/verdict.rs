//! A version's explanation held against a profile: is what was said to limit it what does, do the bytes add up, do warps
//! wait for what was said, does what was said keep more blocks away.

use serde::Serialize;

use super::unit;
use crate::record::ProfileRun;
use crate::step::{Change, Claims, Limiter, Prediction};
use crate::{Dtype, Operation, Shape};

/// How far measured bytes may be from the count.
pub const NEARLY: f64 = 0.03;

/// Below this, in per cent, no unit is said to limit a kernel: it waits.
const BUSY: f64 = 60.0;

/// How much of the arithmetic's share the tensor cores must have to be what limits it.
const TENSOR_SHARE: f64 = 0.8;

/// Units that are so near to each other, in per cent, are equally busy: what streams through memory streams through the
/// second-level cache too.
const TIE: f64 = 3.0;

/// How far a count per request may be from the prediction, as a part of it.
const PER_REQUEST: f64 = 0.1;

/// What may be counted a request where something is predicted, at least.
const COUNTED_BESIDE: f64 = 0.5;

/// How much of all passes through shared memory may be counted as conflicts where none is predicted. The counter also counts
/// waiting for other traffic of the same banks: kernels that are free of conflicts by construction were seen to have up to
/// 0.14 a pass, whether a request takes one (4 bytes a lane) or four (16 bytes a lane).
const COUNTED_AS_NONE: f64 = 0.2;

/// One part of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which part.
    pub what: &'static str,
    /// What the catalogue says.
    pub declared: String,
    /// What had been predicted, where a profile has refuted that and something else is said since.
    pub predicted: Option<String>,
    /// What was measured.
    pub found: String,
    /// Whether they agree; `None` where it cannot be told.
    pub holds: Option<bool>,
}

impl Check {
    /// Whether there is a measurement, judged or not.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.found != UNMEASURED
    }
}

/// The part that a verdict needs.
const LIMITER: &str = "limiter";

const UNMEASURED: &str = "not measured";

/// An explanation with its parts checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The parts.
    pub checks: Vec<Check>,
}

impl Explanation {
    /// Whether no part is wrong and at least the limiter could be told.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.is_told() && self.checks.iter().all(|check| check.holds != Some(false))
    }

    /// Whether the limiter could be told, or something else is wrong: what is left is no verdict.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let limiter = |check: &Check| check.what == LIMITER && check.holds.is_some();
        self.checks.iter().any(|check| limiter(check) || check.holds == Some(false))
    }

    /// Whether a part of it is not what was predicted.
    #[must_use]
    pub fn is_corrected(&self) -> bool {
        self.checks.iter().any(|check| check.predicted.is_some())
    }

    /// How many parts were not measured.
    #[must_use]
    pub fn unmeasured(&self) -> usize {
        self.checks.iter().filter(|check| !check.is_measured()).count()
    }

    /// How many parts hold, and how many could be told.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let told = || self.checks.iter().filter_map(|check| check.holds);
        (told().filter(|&holds| holds).count(), told().count())
    }
}

/// Holds what is said of a version, its prediction with the changes since, against `profile`. `first` is the version's first
/// type, of which counts a request are said; `operation` at `shape` is what was profiled, for the count of bytes.
#[must_use]
pub fn explanation(
    prediction: &Prediction,
    changes: &[Change],
    first: Option<Dtype>,
    profile: &ProfileRun,
    work: Option<(Operation, Shape)>,
) -> Explanation {
    let predicted = prediction.claims();
    let said = changes.iter().fold(predicted, |claims, &change| claims.with(change));
    let before = checks_of(&predicted, first, profile, work);
    let with_prediction = |check: Check| {
        let predicted = before.iter().find(|before| before.what == check.what);
        let predicted = predicted.map_or_else(|| "nothing".to_owned(), |before| before.declared.clone());
        Check { predicted: Some(predicted).filter(|predicted| *predicted != check.declared), ..check }
    };
    Explanation { checks: checks_of(&said, first, profile, work).into_iter().map(with_prediction).collect() }
}

fn checks_of(
    said: &Claims,
    first: Option<Dtype>,
    profile: &ProfileRun,
    work: Option<(Operation, Shape)>,
) -> Vec<Check> {
    let is_first = first == Some(profile.dtype);
    let mut checks = vec![limiter(said.limiter, profile)];
    checks.extend(work.map(|(operation, shape)| bytes(said.bytes, operation, shape, profile)));
    checks.push(stalls(said.top_stalls, profile));
    // As few blocks may be all that several things allow: each of them is the limiter.
    let limiters: Vec<_> = profile.occupancy_limiter.iter().chain(&profile.also_limits).collect();
    checks.push(Check {
        what: "keeps more blocks away",
        declared: said.occupancy_limiter.to_string(),
        predicted: None,
        found: match limiters.as_slice() {
            [] => unmeasured(),
            found => found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
        },
        holds: (!limiters.is_empty()).then(|| limiters.contains(&&said.occupancy_limiter)),
    });
    let beside = |declared: f64| (PER_REQUEST * declared).max(COUNTED_BESIDE);
    let none = profile.shared_passes.map_or(COUNTED_BESIDE, |passes| COUNTED_AS_NONE * passes);
    let conflicts = |declared: f64| if declared == 0.0 { none } else { beside(declared) };
    checks.extend(said.bank_conflicts_per_request.map(|declared| {
        per_request("bank conflicts a request", declared, conflicts(declared), profile.bank_conflicts, is_first)
    }));
    checks.extend(said.sectors_per_request.map(|declared| {
        per_request("sectors a request", declared, beside(declared), profile.sectors_per_request, is_first)
    }));
    checks
}

/// What is said of a request is said of a version's first type: half as wide a number makes another count.
fn per_request(what: &'static str, declared: f64, allowed: f64, found: Option<f64>, is_first: bool) -> Check {
    Check {
        what,
        declared: format!("{declared:.1}"),
        predicted: None,
        found: found.map_or_else(unmeasured, |found| format!("{found:.2}")),
        holds: found.filter(|_| is_first).map(|found| (found - declared).abs() <= allowed),
    }
}

fn unmeasured() -> String {
    UNMEASURED.to_owned()
}

/// The unit with the highest Speed of Light must be the declared one, or as busy as that; one that waits has none above [`BUSY`].
fn limiter(declared: Limiter, profile: &ProfileRun) -> Check {
    let share = |name: &str| profile.sol.get(name).copied();
    let highest = profile
        .sol
        .iter()
        // The tensor cores are counted in the arithmetic too.
        .filter(|(name, _)| *name != unit::TENSOR)
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map(|(name, percent)| match share(unit::TENSOR) {
            Some(tensor) if name == unit::COMPUTE && tensor >= TENSOR_SHARE * percent => (unit::TENSOR, tensor),
            _ => (name.as_str(), *percent),
        });
    let wanted = match declared {
        Limiter::Memory => unit::MEMORY,
        Limiter::L2 => unit::L2,
        Limiter::L1 => unit::L1,
        Limiter::Compute => unit::COMPUTE,
        Limiter::TensorCores => unit::TENSOR,
        Limiter::Latency => "",
    };
    // A count knows nothing of caches: what is not busy by it may still be kept from it by one.
    let knows_caches = profile.sol.contains_key(unit::L1);
    let holds =
        highest.filter(|(_, percent)| knows_caches || *percent >= BUSY).and_then(|(name, percent)| match declared {
            Limiter::Latency => Some(percent < BUSY),
            Limiter::L1 | Limiter::L2 if !knows_caches => None,
            // Arithmetic that the tensor cores do is theirs.
            _ if (name, wanted) == (unit::TENSOR, unit::COMPUTE) => Some(false),
            _ => Some(share(wanted).is_some_and(|wanted| percent - wanted <= TIE)),
        });
    Check {
        what: LIMITER,
        declared: declared.to_string(),
        predicted: None,
        found: highest.map_or_else(unmeasured, |(name, percent)| format!("{name} at {percent:.0} %")),
        holds,
    }
}

/// Bytes that moved against those that must. A product reads its operands again when the cache has lost them: no verdict.
fn bytes(said: f64, operation: Operation, shape: Shape, profile: &ProfileRun) -> Check {
    let counted = operation.bytes(profile.dtype, shape) as f64;
    let moved = profile.dram_bytes_read.zip(profile.dram_bytes_written).map(|(read, written)| read + written);
    let ratio = moved.filter(|_| counted > 0.0).map(|moved| moved / counted);
    Check {
        what: "bytes of memory",
        declared: if (said - 1.0).abs() <= NEARLY {
            format!("{:.1} MB counted", counted / 1e6)
        } else {
            format!("{said:.2} times the {:.1} MB counted", counted / 1e6)
        },
        predicted: None,
        found: moved.map_or_else(unmeasured, |moved| {
            format!("{:.1} MB, {:+.1} %", moved / 1e6, 100.0 * (ratio.unwrap_or(1.0) - 1.0))
        }),
        holds: ratio.filter(|_| operation != Operation::Gemm).map(|ratio| (ratio / said - 1.0).abs() <= NEARLY),
    }
}

/// What warps wait for most must be one of the two reasons named.
fn stalls(said: [&str; 2], profile: &ProfileRun) -> Check {
    let top = profile.stalls.iter().max_by(|a, b| a.1.total_cmp(b.1));
    Check {
        what: "warps wait for",
        declared: said.join(" or "),
        predicted: None,
        found: top.map_or_else(unmeasured, |(reason, share)| format!("{reason}, {:.0} % of waiting", 100.0 * share)),
        holds: top.map(|(reason, _)| said.contains(&reason.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::OccupancyLimiter;

    const PREDICTION: Prediction = Prediction {
        text: "",
        limiter: Limiter::Memory,
        fraction: (0.9, 1.0),
        fraction_bf16: None,
        bank_conflicts_per_request: Some(0.0),
        sectors_per_request: Some(4.0),
        top_stalls: ["long_scoreboard", "lg_throttle"],
        occupancy_limiter: OccupancyLimiter::Threads,
    };

    fn units(units: &[(&str, f64)]) -> std::collections::BTreeMap<String, f64> {
        units.iter().map(|(name, percent)| ((*name).to_owned(), *percent)).collect()
    }

    fn profile() -> ProfileRun {
        ProfileRun {
            version: "v".to_owned(),
            dtype: Dtype::F32,
            shape: None,
            duration_us: 10.0,
            dram_bytes_read: Some(8000.0),
            dram_bytes_written: Some(4100.0),
            sol: units(&[(unit::MEMORY, 91.0), (unit::L1, 30.0), (unit::COMPUTE, 20.0), (unit::TENSOR, 0.0)]),
            stalls: [("long_scoreboard".to_owned(), 0.8), ("wait".to_owned(), 0.2)].into(),
            bank_conflicts: Some(0.05),
            shared_passes: None,
            sectors_per_request: Some(4.0),
            occupancy_percent: Some(90.0),
            occupancy_limiter: Some(OccupancyLimiter::Threads),
            also_limits: Vec::new(),
            source: "ncu".to_owned(),
        }
    }

    fn wrong(change: impl FnOnce(&mut ProfileRun)) -> Vec<&'static str> {
        let mut profile = profile();
        change(&mut profile);
        let work = Some((Operation::Saxpy, Shape::Vector(1000)));
        let explanation = explanation(&PREDICTION, &[], Some(Dtype::F32), &profile, work);
        explanation.checks.iter().filter(|check| check.holds == Some(false)).map(|check| check.what).collect()
    }

    #[test]
    fn an_explanation_holds_or_says_which_part_does_not() {
        assert!(wrong(|_| {}).is_empty());
        assert_eq!(wrong(|profile| profile.sol = units(&[(unit::MEMORY, 40.0), (unit::L1, 80.0)])), ["limiter"]);
        // Within three per cent of the busiest is as busy.
        assert!(
            wrong(|profile| profile.sol = units(&[(unit::MEMORY, 90.0), (unit::L2, 92.0), (unit::L1, 20.0)]))
                .is_empty()
        );
        assert_eq!(wrong(|profile| profile.dram_bytes_written = Some(4400.0)), ["bytes of memory"]);
        assert_eq!(wrong(|profile| profile.stalls = [("barrier".into(), 1.0)].into()), ["warps wait for"]);
        assert_eq!(
            wrong(|profile| profile.occupancy_limiter = Some(OccupancyLimiter::Registers)),
            ["keeps more blocks away"]
        );
        let tie = |profile: &mut ProfileRun| {
            profile.occupancy_limiter = Some(OccupancyLimiter::Registers);
            profile.also_limits = vec![OccupancyLimiter::Threads];
        };
        assert!(wrong(tie).is_empty());
        assert_eq!(wrong(|profile| profile.bank_conflicts = Some(1.0)), ["bank conflicts a request"]);
        // In its other type the version has other counts.
        assert!(
            wrong(|profile| (profile.dtype, profile.bank_conflicts, profile.dram_bytes_read) =
                (Dtype::Bf16, Some(1.0), Some(1900.0)))
            .is_empty()
        );
        assert_eq!(wrong(|profile| profile.sectors_per_request = Some(32.0)), ["sectors a request"]);
        // What is counted beside passes is no conflict, in a kernel that takes four passes a request either.
        let beside =
            |passes| wrong(|profile| (profile.bank_conflicts, profile.shared_passes) = (Some(0.66), passes)).is_empty();
        assert!(beside(Some(4.66)) && !beside(Some(1.66)) && !beside(None));
    }

    #[test]
    fn a_correction_is_what_is_checked_and_keeps_the_prediction_in_sight() {
        let checked = |changes: &[Change]| {
            let sol = units(&[(unit::MEMORY, 70.0), (unit::L2, 80.0), (unit::L1, 30.0)]);
            let profile = ProfileRun { sol, ..profile() };
            explanation(&PREDICTION, changes, Some(Dtype::F32), &profile, Some((Operation::Saxpy, Shape::Vector(1000))))
        };
        let before = checked(&[]);
        assert!(!before.holds() && !before.is_corrected());
        let after = checked(&[Change::Limiter(Limiter::L2)]);
        assert!(after.holds() && after.is_corrected());
        assert_eq!(after.checks[0].predicted.as_deref(), Some("memory bandwidth"));
        assert!(after.checks[1..].iter().all(|check| check.predicted.is_none()));
        // A correction can be as wrong as a prediction.
        let wrong = checked(&[Change::Limiter(Limiter::L2), Change::Bytes(1.2)]);
        assert_eq!(wrong.checks[1].declared, "1.20 times the 0.0 MB counted");
        assert!(!wrong.holds());
    }

    #[test]
    fn latency_is_that_no_unit_is_busy_and_tensor_cores_are_the_arithmetic_that_they_do() {
        let holds = |limiter, shares: &[(&str, f64)]| {
            super::limiter(limiter, &ProfileRun { sol: units(shares), ..profile() }).holds
        };
        assert_eq!(holds(Limiter::Latency, &[(unit::MEMORY, 40.0), (unit::L1, 30.0)]), Some(true));
        assert_eq!(holds(Limiter::Latency, &[(unit::MEMORY, 70.0)]), Some(false));
        let busy = [(unit::COMPUTE, 90.0), (unit::TENSOR, 88.0), (unit::L1, 30.0)];
        assert_eq!(holds(Limiter::TensorCores, &busy), Some(true));
        assert_eq!(holds(Limiter::Compute, &busy), Some(false));
        // Counted figures know nothing of caches.
        let counted = [(unit::MEMORY, 80.0), (unit::COMPUTE, 20.0)];
        assert_eq!(holds(Limiter::L1, &counted), None);
        assert_eq!(holds(Limiter::Memory, &counted), Some(true));
        assert_eq!(holds(Limiter::Compute, &counted), Some(false));
        assert_eq!(holds(Limiter::Latency, &[(unit::MEMORY, 40.0)]), None);
        assert_eq!(holds(Limiter::Memory, &[]), None);
    }

    #[test]
    fn a_product_may_read_more_than_it_must() {
        let check = bytes(1.0, Operation::Gemm, Shape::cube(16), &profile());
        assert_eq!((check.holds, check.found.as_str()), (None, "0.0 MB, +293.9 %"));
    }
}
