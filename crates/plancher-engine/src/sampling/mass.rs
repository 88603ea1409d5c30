//! Masses of a whole vocabulary, sums of `exp(logit - max)`, bounded from both sides for a few operations a logit.
//!
//! The bound: written in fixed point and moved into an exponent's place, `z` reads as the float `2ⁿ(1 + f)` where `n + f`
//! is `z` and `0 ≤ f < 1` (Schraudolph, "A fast, compact approximation of the exponential function", 1999). That is
//! `2^z` where `f` is 0 and at most `2 / (e ln 2)` = 1.06148 times as much between.

use plancher_cpu::kernels::{Kernels, exponential};

use super::candidates::BLOCK;
use super::lanes::{self, LANES, Lanes, Plain, Task};
use super::place::Place;

/// Fractional bits of the fixed point: [`Lanes::move_bits`] puts what is before them into the exponent.
const FRACTION: u32 = 15;
/// Its unit in nats, inverted.
const SCALE: f32 = std::f32::consts::LOG2_E * (1 << FRACTION) as f32;
/// In this binade floats are integers, so that adding it rounds; 127 is the exponent's bias.
const BIAS: f32 = (8_388_608 + (127 << FRACTION)) as f32;
/// What gives the least normal number: it stands in for whatever is less, minus infinity and NaN.
const LEAST: f32 = (8_388_608 + (1 << FRACTION)) as f32;

/// A mass is at most this times the sum of its upper bounds. What rounding takes from a bound is less: the fixed point
/// 2⁻¹⁶, the two operations that lead there 2⁻¹⁶, the f32 sums of some hundred terms 2⁻¹⁷, `exponential` 2⁻²².
pub(super) const UPPER: f64 = 1.0001;
/// A mass is at least this times the sum of its upper bounds, but for what `exponential` takes for 0 (2⁻¹²⁵ each).
pub(super) const LOWER: f64 = 1.0 / 1.0616;

/// At least `exp(x)`, and at most 1.0616 times as much while `x >= -87`, for `x <= 0`.
#[inline(always)]
pub(super) fn upper_exponential<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    let shifted = l.add(l.multiply(x, l.all(SCALE)), l.all(BIAS));
    l.move_bits(l.larger(shifted, l.all(LEAST)))
}

/// Upper bounds of the masses at temperature 1 of the tokens before the inner place, from there to the outer one, and
/// of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Masses {
    pub(super) inner: f64,
    pub(super) between: f64,
    pub(super) rest: f64,
}

/// What the tokens of a vocabulary weigh.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights<'a> {
    /// `(vocab_size)`.
    pub(super) logits: &'a [f32],
    /// The largest of each block.
    pub(super) maxima: &'a [f32],
    /// The largest, finite.
    pub(super) max: f32,
    pub(super) inverse_temperature: f32,
}

impl Weights<'_> {
    /// The mass of a logit at the temperature.
    #[inline]
    pub(super) fn mass(&self, logit: f32) -> f64 {
        f64::from(exponential((logit - self.max) * self.inverse_temperature))
    }

    /// Writes upper bounds of the masses at the temperature of each block's tokens before `outer`.
    pub(super) fn bounds(&self, outer: Place, bounds: &mut Vec<f64>) {
        bounds.resize(self.maxima.len(), 0.0);
        lanes::dispatch(OnlyBounds { weights: self, outer, bounds });
    }

    /// As [`Self::bounds`], if looser, and the masses at temperature 1. `inner` is `outer` or before it. When the sum of
    /// all masses is known from an earlier call, blocks without a token before `outer` are passed over.
    pub(super) fn bounds_and_masses(
        &self,
        inner: Place,
        outer: Place,
        total: Option<f64>,
        bounds: &mut Vec<f64>,
    ) -> Masses {
        bounds.resize(self.maxima.len(), 0.0);
        let masses = lanes::dispatch(BoundsAndMasses { weights: self, inner, outer, total, bounds });
        #[expect(clippy::float_cmp, reason = "exactly 1 changes nothing")]
        if self.inverse_temperature != 1.0 {
            lanes::dispatch(AtTemperature { weights: self, outer, bounds });
        }
        masses
    }

    /// The masses at temperature 1 of the tokens before `place` and of the others, as exactly as `exponential` is. Both
    /// are monotonic in `place`: the order of the sums is the same, only that some terms are 0. `parts` is scratch.
    pub(super) fn exact_split(&self, place: Place, parts: &mut [Vec<f32>; 2]) -> (f64, f64) {
        for part in &mut *parts {
            part.resize(self.maxima.len() * BLOCK, 0.0);
        }
        let [before, rest] = parts;
        lanes::dispatch(Split { logits: self.logits, place, before, rest });
        let kernels = Kernels::best();
        let mass = |part: &[f32]| kernels.sum_of_exponentials(part, self.max);
        (mass(before), mass(rest))
    }

    /// The bound at the temperature of a block's tokens before `outer`, which tells them by one threshold.
    #[inline(always)]
    fn bound<L: Lanes>(&self, l: L, start: usize, block: &[f32; BLOCK], outer: Place) -> f64 {
        let (max, scale) = (l.all(self.max), l.all(self.inverse_temperature));
        let threshold = l.all(outer.threshold(start));
        let mut sum = l.all(0.0);
        for x in block.as_chunks().0 {
            let x = l.load(x);
            let mass = upper_exponential(l, l.multiply(l.subtract(x, max), scale));
            sum = l.add(sum, l.keep(x, threshold, mass));
        }
        f64::from(l.sum(sum)) * UPPER
    }

    /// Adds to `totals` the bounds at temperature 1 of a block's tokens: of all, of those before `outer`, of those
    /// before `inner`, which tell them by one threshold each. Returns the second of the block.
    #[inline(always)]
    fn add<L: Lanes>(
        &self,
        l: L,
        start: usize,
        block: &[f32; BLOCK],
        inner: Place,
        outer: Place,
        totals: &mut [L::Vector; 3],
    ) -> f64 {
        let max = l.all(self.max);
        let (inner, outer) = (l.all(inner.threshold(start)), l.all(outer.threshold(start)));
        let [mut all, before_outer, mut before_inner] = *totals;
        let mut bound = l.all(0.0);
        for x in block.as_chunks().0 {
            let x = l.load(x);
            let mass = upper_exponential(l, l.subtract(x, max));
            all = l.add(all, mass);
            bound = l.add(bound, l.keep(x, outer, mass));
            before_inner = l.add(before_inner, l.keep(x, inner, mass));
        }
        *totals = [all, l.add(before_outer, bound), before_inner];
        f64::from(l.sum(bound)) * UPPER
    }
}

impl Weights<'_> {
    /// What [`Self::add`] adds and returns, for a block in which a place lies: token by token.
    #[inline(never)]
    fn add_mixed(&self, start: usize, block: &[f32; BLOCK], inner: Place, outer: Place) -> ([[f32; LANES]; 3], f64) {
        let (mut totals, mut bound) = ([[0.0; LANES]; 3], 0.0);
        for (token, &logit) in (start..).zip(block) {
            bound += self.add(Plain, token, &lanes::one(logit), inner, outer, &mut totals);
        }
        (totals, bound)
    }
}

/// See [`Weights::bounds`].
struct OnlyBounds<'a> {
    weights: &'a Weights<'a>,
    outer: Place,
    bounds: &'a mut [f64],
}

impl Task for OnlyBounds<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { weights, outer, bounds } = self;
        let (full, last) = lanes::blocks_of(weights.logits);
        for (index, bound) in bounds.iter_mut().enumerate() {
            let (start, block) = (index * BLOCK, full.get(index).unwrap_or(&last));
            *bound = 0.0;
            if weights.maxima[index] < outer.logit() {
                continue;
            }
            if outer.is_uniform(start) {
                *bound = weights.bound(l, start, block, outer);
                continue;
            }
            for (token, &logit) in (start..).zip(block) {
                *bound += weights.bound(Plain, token, &lanes::one(logit), outer);
            }
        }
    }
}

/// See [`Weights::bounds_and_masses`].
struct BoundsAndMasses<'a> {
    weights: &'a Weights<'a>,
    inner: Place,
    outer: Place,
    total: Option<f64>,
    bounds: &'a mut [f64],
}

impl Task for BoundsAndMasses<'_> {
    type Output = Masses;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> Masses {
        /// Blocks that are summed in f32 before the sums go on in f64.
        const GROUP: usize = 16;
        let Self { weights, inner, outer, total, bounds } = self;
        let mut sums = [0.0; 3];
        let (full, last) = lanes::blocks_of(weights.logits);
        for (group, bounds) in bounds.chunks_mut(GROUP).enumerate() {
            let mut totals = [l.all(0.0); 3];
            for (index, bound) in (group * GROUP..).zip(bounds) {
                let (start, block) = (index * BLOCK, full.get(index).unwrap_or(&last));
                if total.is_some() && weights.maxima[index] < outer.logit() {
                    *bound = 0.0;
                    continue;
                }
                if outer.is_uniform(start) && inner.is_uniform(start) {
                    *bound = weights.add(l, start, block, inner, outer, &mut totals);
                    continue;
                }
                let (sums, mixed) = weights.add_mixed(start, block, inner, outer);
                *bound = mixed;
                for (total, sum) in totals.iter_mut().zip(&sums) {
                    *total = l.add(*total, l.load(sum));
                }
            }
            for (sum, total) in sums.iter_mut().zip(totals) {
                *sum += f64::from(l.sum(total));
            }
        }
        let [all, outer, inner] = sums;
        let all = total.unwrap_or(all);
        Masses { inner, between: (outer - inner).max(0.0), rest: (all - outer).max(0.0) }
    }
}

/// Makes bounds of masses at temperature 1 into bounds of masses at the temperature. A mass changes by the factor
/// `exp((logit - max) · (1 / temperature - 1))`, which is largest for a block's largest logit when colder, for the least
/// one before `outer` when hotter. No block weighs more than as many of its largest logits would.
struct AtTemperature<'a> {
    weights: &'a Weights<'a>,
    outer: Place,
    bounds: &'a mut [f64],
}

impl Task for AtTemperature<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { weights: &Weights { maxima, max, inverse_temperature, .. }, outer, bounds } = self;
        let change = inverse_temperature - 1.0;
        let hottest = (f64::from(outer.logit() - max) * f64::from(change)).min(700.0).exp();
        for (bounds, maxima) in bounds.chunks_mut(LANES).zip(maxima.chunks(LANES)) {
            let mut x = [f32::NEG_INFINITY; LANES];
            x[..maxima.len()].copy_from_slice(maxima);
            let difference = l.subtract(l.load(&x), l.all(max));
            let mass = |scale| l.store(upper_exponential(l, l.multiply(difference, l.all(scale))));
            let (factors, largest) = (mass(change.max(0.0)), mass(inverse_temperature));
            for ((bound, factor), largest) in bounds.iter_mut().zip(factors).zip(largest) {
                let factor = if change > 0.0 { f64::from(factor) } else { hottest };
                *bound = (*bound * factor).min(BLOCK as f64 * f64::from(largest)) * UPPER;
            }
        }
    }
}

/// Copies the logits before a place and the others, minus infinity in place of what is left out.
struct Split<'a> {
    logits: &'a [f32],
    place: Place,
    before: &'a mut [f32],
    rest: &'a mut [f32],
}

impl Task for Split<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { logits, place, before, rest } = self;
        let (full, last) = lanes::blocks_of(logits);
        let none = l.all(f32::NEG_INFINITY);
        let (before, rest) = (before.as_chunks_mut::<BLOCK>().0, rest.as_chunks_mut::<BLOCK>().0);
        for (index, (before, rest)) in before.iter_mut().zip(rest).enumerate() {
            let (start, block) = (index * BLOCK, full.get(index).unwrap_or(&last));
            let threshold = l.all(place.threshold(start));
            let of_block = before.as_chunks_mut().0.iter_mut().zip(rest.as_chunks_mut().0).zip(block.as_chunks().0);
            for ((before, rest), x) in of_block {
                let x = l.load(x);
                *before = l.store(l.select(x, threshold, x, none));
                *rest = l.store(l.select(x, threshold, none, x));
            }
            if !place.is_uniform(start) {
                for (n, &logit) in block.iter().enumerate() {
                    let is_before = place.is_behind(start + n, logit);
                    before[n] = if is_before { logit } else { f32::NEG_INFINITY };
                    rest[n] = if is_before { f32::NEG_INFINITY } else { logit };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bounds of `exp` on the machine's vectors and on plain ones.
    struct Uppers<'a>(&'a [[f32; LANES]]);

    impl Task for Uppers<'_> {
        type Output = Vec<f32>;

        fn run<L: Lanes>(self, l: L) -> Vec<f32> {
            self.0.iter().flat_map(|x| l.store(upper_exponential(l, l.load(x)))).collect()
        }
    }

    #[test]
    fn bounds_hold_and_are_the_same_bits_without_vectors() {
        let values: Vec<f32> = (0..800_000).map(|n| -(n as f32) / 9200.0).collect();
        let (x, _) = values.as_chunks();
        let uppers = lanes::dispatch(Uppers(x));
        assert_eq!(uppers, Uppers(x).run(Plain));
        for (&x, upper) in values.iter().zip(uppers) {
            let (mass, upper) = (f64::from(exponential(x)), f64::from(upper));
            assert!(mass <= upper * UPPER && mass >= upper * LOWER, "exp({x}) is {mass}, its bound {upper}");
        }
    }

    #[test]
    fn what_has_no_mass_has_hardly_a_bound() {
        let x = [f32::NEG_INFINITY, f32::NAN, f32::MIN, -1e30, -88.0, -1e4, -200.0, -100.0];
        assert!(Uppers(&[x]).run(Plain).iter().all(|&upper| upper > 0.0 && upper < 1e-37));
        assert_eq!(Uppers(&[x]).run(Plain), lanes::dispatch(Uppers(&[x])));
    }

    #[test]
    fn bounds_of_blocks_hold_at_every_temperature() {
        let logits: Vec<f32> = (0..1000).map(|n| (n * 7919 % 1000) as f32 / 40.0).collect();
        let mut maxima = Vec::new();
        let max = super::super::candidates::block_maxima(&logits, &mut maxima);
        for inverse_temperature in [1.0, 0.1, 0.7, 1.5, 30.0, 1e30] {
            let weights = Weights { logits: &logits, maxima: &maxima, max, inverse_temperature };
            for outer in [Place::behind(f32::NEG_INFINITY), Place::behind(20.0), Place::of(130, logits[130])] {
                let (mut tight, mut loose) = (Vec::new(), Vec::new());
                weights.bounds(outer, &mut tight);
                let masses = weights.bounds_and_masses(outer, outer, None, &mut loose);
                for (index, block) in logits.chunks(BLOCK).enumerate() {
                    let tokens = (index * BLOCK..).zip(block).filter(|&(token, &logit)| outer.is_behind(token, logit));
                    let mass: f64 = tokens.map(|(_, &logit)| weights.mass(logit)).sum();
                    assert!(mass <= tight[index] && mass <= loose[index], "{inverse_temperature} {outer:?} {index}");
                }
                let (before, rest) = weights.exact_split(outer, &mut Default::default());
                for (exact, upper) in [(before, masses.inner), (rest, masses.rest)] {
                    let error = 2e-5 * (before + rest);
                    assert!(exact <= upper * UPPER + error && exact >= upper * LOWER - error, "{exact} {upper}");
                }
            }
        }
    }
}
