//! `exp` and sums of `exp` over a vocabulary, written so that the compiler turns the loops into vector code. The
//! standard library's `exp` is a call a value, which for 150,000 tokens costs as much as a layer.

/// `exp(x)` for `x <= 0`, within 3 ulp; 0 below -87, where the result would be subnormal, and for NaN.
#[inline]
pub(crate) fn exp(x: f32) -> f32 {
    // exp(x) = 2^n · 2^f with n the nearest integer to x / ln 2, and f in [-0.5, 0.5].
    const MAGIC: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer and leaves it in the low bits
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let in_range = x >= -87.0;
    let x = if in_range { x } else { 0.0 };
    let shifted = x * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    // Taylor series of exp(r) for |r| <= 0.3466, to the term below half an ulp.
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    // n shifted into the exponent: MAGIC's own bits leave at the top.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(p.to_bits()));
    if in_range { power } else { 0.0 }
}

/// `Σ exp((x - max) * scale)` over `values`, NaN counting as nothing. `max` is at least every value, `scale >= 0`.
pub(crate) fn sum(values: &[f32], max: f32, scale: f32) -> f64 {
    const LANES: usize = 16;
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += exp((x - max) * scale);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += exp((x - max) * scale);
    }
    lanes.iter().map(|&lane| f64::from(lane)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_standard_library() {
        for step in 0..=86_000 {
            let x = -(step as f32) / 1000.0;
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) / want - 1.0).abs();
            assert!(error < 3.0 * f64::from(f32::EPSILON) / 2.0, "exp({x}) is {} off by {error:e}", exp(x));
        }
        assert_eq!(exp(0.0).to_bits(), 1.0f32.to_bits());
        assert!([-1e30, f32::NEG_INFINITY, f32::NAN].into_iter().all(|x| exp(x) == 0.0));
    }

    #[test]
    fn sum_counts_every_value_once() {
        for n in [0, 1, 15, 16, 17, 1000] {
            let values: Vec<f32> = (0..n).map(|i| -((i % 37) as f32) / 5.0).collect();
            let want: f64 = values.iter().map(|&x| (f64::from(x) * 0.5).exp()).sum();
            assert!((sum(&values, 0.0, 0.5) - want).abs() <= 1e-6 * want, "{n}");
        }
    }
}
