//! Medians and their intervals, from raw samples.

/// The median of `values`; not a number where there are none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    if sorted.is_empty() {
        return f64::NAN;
    }
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// A distribution-free interval for the median: the innermost pair of order statistics whose binomial coverage is at
/// least 95 %, or the whole range where there are too few samples for that (n < 6). Not numbers where there are none.
#[must_use]
pub fn median_interval(values: &[f64]) -> (f64, f64) {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 {
        return (f64::NAN, f64::NAN);
    }
    let mut tail = 0.0;
    let mut probability = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut rank = 0;
    // `tail` = P(at most `rank` of n fair coins show heads); stop before both tails together exceed 5 %.
    for k in 0..n / 2 {
        tail += probability;
        if 2.0 * tail > 0.05 {
            break;
        }
        rank = k;
        probability *= (n - k) as f64 / (k + 1) as f64;
    }
    (sorted[rank], sorted[n - 1 - rank])
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median(&[]).is_nan() && median_interval(&[]).0.is_nan());
    }

    #[test]
    fn interval_uses_the_order_statistics_of_the_binomial() {
        // Few samples: the range. n = 9: coverage of (2nd, 8th) is 1 - 2 * 10 / 512 = 96.1 %.
        assert_eq!(median_interval(&[5.0, 1.0, 3.0, 2.0, 4.0]), (1.0, 5.0));
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(median_interval(&nine), (2.0, 8.0));
        // n = 20: (6th, 15th), the textbook value.
        let twenty: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(median_interval(&twenty), (6.0, 15.0));
    }
}
