//! A median with its interval: what is known of a quantity from samples of it.

use serde::Serialize;

use super::statistics::{median, median_interval};

/// A median and where it lies with at least 95 %, as far as the number of samples allows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// From so many samples.
    pub samples: usize,
}

impl Estimate {
    /// From samples; `None` where there are none, or one is no number.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let (low, high) = median_interval(samples);
        Some(Self { value: median(samples), low, high, samples: samples.len() })
    }

    /// Whether the intervals have a value in common: then neither is said to be larger.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Whether the interval and `low..=high` have a value in common.
    #[must_use]
    pub fn meets(&self, (low, high): (f64, f64)) -> bool {
        self.low <= high && low <= self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_touch_are_equal() {
        let of = |samples: &[f64]| Estimate::of(samples).expect("samples");
        let (slow, fast, between) = (of(&[1.0, 2.0, 3.0]), of(&[4.0, 5.0, 6.0]), of(&[3.0, 4.0]));
        assert!(!slow.overlaps(&fast) && slow.overlaps(&between) && between.overlaps(&fast));
        assert!(slow.meets((3.0, 9.0)) && !slow.meets((3.1, 9.0)));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[1.0, f64::NAN]), None);
    }
}
