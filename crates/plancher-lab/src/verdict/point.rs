//! What one timed size says: rates, fractions of ceilings, and whether the times can be at all.

use super::estimate::Estimate;
use crate::harness::times_disagree;
use crate::record::{Label, Machine, PointRun};
use crate::step::Ceiling;
use crate::{Dtype, plural};

/// Fewer samples prove nothing.
pub const MINIMUM_SAMPLES: usize = 5;

/// `TFLOP/s` where the point is compared with a matrix product, else `GB/s`.
#[must_use]
pub fn unit(point: &PointRun) -> &'static str {
    if is_product(point) { "TFLOP/s" } else { "GB/s" }
}

const fn is_product(point: &PointRun) -> bool {
    matches!(point.ceiling, Ceiling::Cublas)
}

/// The rate of every launch, in [`unit()`].
#[must_use]
pub fn rates(point: &PointRun) -> Vec<f64> {
    let work = if is_product(point) { point.flops as f64 / 1e12 } else { point.bytes as f64 / 1e9 };
    point.milliseconds.iter().map(|milliseconds| work / (milliseconds / 1e3)).collect()
}

/// The rate.
#[must_use]
pub fn rate(point: &PointRun) -> Option<Estimate> {
    Estimate::of(&rates(point))
}

/// Of its ceiling, from pairs of a launch and the ceiling's right after it; `None` where the cache served what is compared with
/// the memory.
#[must_use]
pub fn fraction(point: &PointRun) -> Option<Estimate> {
    if point.ceiling_samples.len() != point.milliseconds.len() || is_served_by_cache(point) {
        return None;
    }
    let ratios = rates(point).into_iter().zip(&point.ceiling_samples).map(|(rate, ceiling)| rate / ceiling);
    Estimate::of(&ratios.collect::<Vec<_>>())
}

/// Whether a ceiling of the memory says nothing of the point: its data lie in the cache, at least in part.
fn is_served_by_cache(point: &PointRun) -> bool {
    point.label == Label::L2 && !matches!(point.ceiling, Ceiling::L2 | Ceiling::Cublas)
}

/// Of what the data sheet promises; `None` where it is not known, or the cache served what is compared with the memory.
#[must_use]
pub fn datasheet_fraction(machine: &Machine, dtype: Dtype, point: &PointRun) -> Option<Estimate> {
    if is_served_by_cache(point) {
        return None;
    }
    let most = if is_product(point) { peak(machine, dtype) } else { machine.datasheet_bandwidth_gb_per_s };
    let most = most.filter(|&most| most > 0.0)?;
    Estimate::of(&rates(point).into_iter().map(|rate| rate / most).collect::<Vec<_>>())
}

/// Of the ceiling called `ceiling`; `None` where it was not measured beside it.
#[must_use]
pub fn fraction_of(ceiling: Ceiling, machine: &Machine, dtype: Dtype, point: &PointRun) -> Option<Estimate> {
    match ceiling {
        Ceiling::DataSheet => datasheet_fraction(machine, dtype, point),
        ceiling if ceiling == point.ceiling => fraction(point),
        _ => None,
    }
}

fn peak(machine: &Machine, dtype: Dtype) -> Option<f64> {
    match dtype {
        Dtype::F32 => machine.datasheet_tflops.fp32,
        Dtype::Bf16 => machine.datasheet_tflops.bf16,
    }
}

/// Why a time cannot be: a launch that is faster than the data sheet's bandwidth moves its bytes, where they lie in memory,
/// or than its arithmetic does the operations.
#[must_use]
pub fn below_floor(machine: &Machine, dtype: Dtype, point: &PointRun) -> Option<String> {
    let least = point.milliseconds.iter().copied().min_by(f64::total_cmp)?;
    let seconds = least / 1e3;
    let moved = point.bytes as f64 / seconds / 1e9;
    if let Some(most) =
        machine.datasheet_bandwidth_gb_per_s.filter(|&most| point.label == Label::Memory && moved > most)
    {
        return Some(format!("{least:.4} ms means {moved:.0} GB/s, more than the memory can move ({most:.0} GB/s)"));
    }
    let done = point.flops as f64 / seconds / 1e12;
    let most = peak(machine, dtype).filter(|&most| done > most)?;
    Some(format!("{least:.4} ms means {done:.1} TFLOP/s, more than the arithmetic can do ({most:.1} TFLOP/s)"))
}

/// Why the point's times do not count, where they do not.
///
/// # Errors
/// Says why: a failure that was recorded, too few samples, no launch verified, a time below the floor, or clocks that do not
/// agree.
pub fn counts(machine: &Machine, dtype: Dtype, point: &PointRun) -> Result<(), String> {
    if let Some(failure) = &point.failure {
        return Err(failure.text.clone());
    }
    if point.milliseconds.len() < MINIMUM_SAMPLES {
        return Err(format!("{}, fewer than {MINIMUM_SAMPLES}", plural(point.milliseconds.len(), "sample")));
    }
    if point.verified == 0 {
        return Err("no timed launch was verified".to_owned());
    }
    if point.host_milliseconds.len() != point.milliseconds.len() {
        let (device, host) = (point.milliseconds.len(), point.host_milliseconds.len());
        return Err(format!("{device} times by the device's clock and {host} by the host's"));
    }
    // What was judged when it was measured is judged again.
    below_floor(machine, dtype, point).or_else(|| times_disagree(point)).map_or(Ok(()), Err)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Shape;
    use crate::record::Peaks;

    pub(in crate::verdict) fn machine() -> Machine {
        Machine {
            datasheet_bandwidth_gb_per_s: Some(4800.0),
            datasheet_tflops: Peaks { fp32: Some(67.0), bf16: Some(989.0) },
            ..Machine::default()
        }
    }

    /// A point of 4.8 GB and 67 GFLOP: 1 ms is the data sheet's bandwidth and its f32 arithmetic.
    pub(in crate::verdict) fn point(milliseconds: &[f64], ceiling: Ceiling) -> PointRun {
        PointRun {
            shape: Shape::Vector(1 << 28),
            elements: 1 << 28,
            bytes: 4_800_000_000,
            flops: 67_000_000_000,
            milliseconds: milliseconds.to_vec(),
            host_milliseconds: milliseconds.to_vec(),
            ceiling,
            ceiling_samples: milliseconds
                .iter()
                .map(|_| if ceiling == Ceiling::Cublas { 50.0 } else { 4000.0 })
                .collect(),
            label: Label::Memory,
            verified: 2,
            in_flight_bytes: None,
            sweep: false,
            failure: None,
        }
    }

    #[test]
    fn fractions_are_of_pairs_and_of_the_data_sheet() {
        let mut point = point(&[1.2, 1.2, 1.5, 1.2, 1.2], Ceiling::Triad);
        point.ceiling_samples[2] = 3200.0;
        // A launch that a slow moment hit is compared with a ceiling that it hit as well.
        let fraction = fraction(&point).expect("paired");
        assert!(fraction.high - fraction.low < 1e-12 && (fraction.value - 1.0).abs() < 1e-12, "{fraction:?}");
        let sheet = datasheet_fraction(&machine(), Dtype::F32, &point).expect("known");
        assert!((sheet.value - 1.0 / 1.2).abs() < 1e-12);
        assert_eq!(fraction_of(Ceiling::Copy, &machine(), Dtype::F32, &point), None);
        point.ceiling_samples.pop();
        assert_eq!(super::fraction(&point), None);
    }

    #[test]
    fn a_product_is_rated_by_its_operations() {
        let point = point(&[2.0; 5], Ceiling::Cublas);
        assert_eq!((unit(&point), rate(&point).map(|rate| rate.value)), ("TFLOP/s", Some(33.5)));
    }

    #[test]
    fn what_the_cache_serves_is_no_part_of_the_memorys_ceiling() {
        let mut point = point(&[1.2; 5], Ceiling::Triad);
        point.label = Label::L2;
        assert_eq!((super::fraction(&point), datasheet_fraction(&machine(), Dtype::F32, &point)), (None, None));
        point.ceiling = Ceiling::L2;
        assert!(super::fraction(&point).is_some());
    }

    #[test]
    fn times_below_the_floor_do_not_count() {
        let counts = |change: &dyn Fn(&mut PointRun)| {
            let mut point = point(&[1.01, 1.02, 1.03, 1.02, 1.01], Ceiling::Triad);
            change(&mut point);
            counts(&machine(), Dtype::F32, &point)
        };
        assert_eq!(counts(&|_| {}), Ok(()));
        let error = counts(&|point| point.milliseconds[3] = 0.9).expect_err("too fast");
        assert_eq!(error, "0.9000 ms means 5333 GB/s, more than the memory can move (4800 GB/s)");
        // What the cache holds is not held against the memory, but the arithmetic has its floor too.
        let error = counts(&|point| (point.label, point.milliseconds[3]) = (Label::L2, 0.9)).expect_err("too fast");
        assert_eq!(error, "0.9000 ms means 74.4 TFLOP/s, more than the arithmetic can do (67.0 TFLOP/s)");
        assert!(counts(&|point| (point.label, point.milliseconds[3], point.flops) = (Label::L2, 0.9, 1)).is_ok());
        let error = counts(&|point| point.host_milliseconds = vec![9.0; 5]).expect_err("work elsewhere");
        assert!(error.ends_with("something ran that the marks do not enclose"), "{error}");
        let error = counts(&|point| point.host_milliseconds.clear()).expect_err("no host's times");
        assert_eq!(error, "5 times by the device's clock and 0 by the host's");
        assert_eq!(counts(&|point| point.verified = 0), Err("no timed launch was verified".to_owned()));
        assert_eq!(counts(&|point| point.milliseconds.truncate(4)), Err("4 samples, fewer than 5".to_owned()));
    }
}
