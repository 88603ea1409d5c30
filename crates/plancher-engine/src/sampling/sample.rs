//! Where a nucleus should end, to judge by a sample of the logits: the largest of each block, which stands for itself,
//! and a few of the others, which stand for them. The former hold most of the mass of a peaked distribution, the latter
//! most of a flat one.

use super::candidates::BLOCK;
use super::lanes::{self, LANES, Lanes, Task};
use super::mass::{Weights, upper_exponential};
use super::place::Place;

/// Of one in so many blocks another logit is taken.
const STRIDE: usize = 4;
/// Halvings of the range of logits.
const ROUNDS: usize = 8;
/// Nats below the largest logit at which nothing weighs.
const RANGE: f32 = 24.0;
/// How far apart the guesses lie, in shares of the smaller of the masses in the nucleus and out of it: as much as a
/// sample errs.
const MARGIN_OUTSIDE: f64 = 0.4;
const MARGIN_INSIDE: f64 = 0.2;

/// The buffers of a sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    logits: Vec<f32>,
    /// The mass that each stands for.
    masses: Vec<f32>,
}

impl Sample {
    /// Two places between which the nucleus of `top_p` should end, the more likely one first.
    pub(super) fn guess(&mut self, weights: Weights<'_>, top_p: f64) -> (Place, Place) {
        lanes::dispatch(Guess { sample: self, weights, top_p })
    }

    /// Takes the sample: logits first, then the masses of many at once.
    #[inline(always)]
    fn take<L: Lanes>(&mut self, l: L, weights: Weights<'_>) {
        let n = weights.maxima.len();
        self.logits.clear();
        self.logits.extend_from_slice(weights.maxima);
        self.logits.resize(n.next_multiple_of(LANES), f32::NEG_INFINITY);
        let others = self.logits.len();
        let blocks = weights.logits.chunks_exact(BLOCK).zip(weights.maxima).enumerate();
        for (index, (block, &max)) in blocks.step_by(STRIDE) {
            // Some other place in every block; the largest is not one of the others.
            let logit = block[index * 37 % BLOCK];
            self.logits.push(if logit < max { logit } else { f32::NEG_INFINITY });
        }
        self.logits.resize(self.logits.len().next_multiple_of(LANES), f32::NEG_INFINITY);
        self.masses.resize(self.logits.len(), 0.0);
        let max = l.all(weights.max);
        for (index, (masses, x)) in self.masses.as_chunks_mut().0.iter_mut().zip(self.logits.as_chunks().0).enumerate()
        {
            let stands_for = l.all(if index * LANES < others { 1.0 } else { (STRIDE * (BLOCK - 1)) as f32 });
            *masses = l.store(l.multiply(upper_exponential(l, l.subtract(l.load(x), max)), stands_for));
        }
    }

    /// The mass of what has at least this logit.
    #[inline(always)]
    fn mass_from<L: Lanes>(&self, l: L, threshold: f32) -> f32 {
        let threshold = l.all(threshold);
        let mut sum = l.all(0.0);
        for (x, masses) in self.logits.as_chunks().0.iter().zip(self.masses.as_chunks().0) {
            sum = l.add(sum, l.keep(l.load(x), threshold, l.load(masses)));
        }
        l.sum(sum)
    }

    /// Two close logits between which those of `share` of the mass end.
    #[inline(always)]
    fn bracket<L: Lanes>(&self, l: L, max: f32, share: f64) -> (f32, f32) {
        let wanted = share as f32 * self.mass_from(l, f32::NEG_INFINITY);
        let (mut low, mut high) = (max - RANGE, max);
        for _ in 0..ROUNDS {
            let middle = f32::midpoint(low, high);
            if self.mass_from(l, middle) >= wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low, high)
    }
}

/// See [`Sample::guess`].
struct Guess<'a> {
    sample: &'a mut Sample,
    weights: Weights<'a>,
    top_p: f64,
}

impl Task for Guess<'_> {
    type Output = (Place, Place);

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> (Place, Place) {
        let Self { sample, weights, top_p } = self;
        sample.take(l, weights);
        let smaller = top_p.min(1.0 - top_p);
        let (outer, _) = sample.bracket(l, weights.max, top_p + MARGIN_OUTSIDE * smaller);
        let (_, inner) = sample.bracket(l, weights.max, top_p - MARGIN_INSIDE * smaller);
        (Place::behind(inner.max(outer)), Place::behind(outer))
    }
}
