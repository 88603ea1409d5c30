//! A draw from the whole vocabulary, or from its nucleus or what min-p leaves of it, that computes few exponentials.
//!
//! A block of tokens is drawn in proportion to an upper bound of its mass, then a token of it in proportion to the
//! masses; what falls between mass and bound is drawn again, with the mass for a bound. That is exact, however loose the
//! bounds are: a draw that falls into a mass does so in proportion to the masses.
//!
//! The nucleus needs not be known to draw from it: whether a token that was drawn belongs to it is decided by the mass
//! of what is more likely, `(1 - p) · before < p · rest`, and a token that does not belong is drawn again. Bounds of the
//! masses decide all but few cases, and a sample of the logits says in advance between which places the nucleus ends, so
//! that one pass over the logits is all that most draws take.

use super::Random;
use super::candidates::BLOCK;
use super::mass::{LOWER, Masses, UPPER, Weights};
use super::place::Place;
use super::sample::Sample;
use super::sampler::draw;

/// Blocks of a group.
const GROUP: usize = 64;

/// The buffers of a draw.
#[derive(Clone, Debug, Default)]
pub(super) struct WholeDraw {
    /// Mass of each block's tokens before the outer place, or a bound of it.
    blocks: Vec<f64>,
    /// Sum of each group of blocks.
    groups: Vec<f64>,
    sample: Sample,
    /// Logits before a place and the others.
    parts: [Vec<f32>; 2],
}

impl WholeDraw {
    /// Draws a token among those of at least `least`.
    pub(super) fn draw(&mut self, weights: Weights<'_>, least: f32, random: &mut Random) -> Option<u32> {
        let outer = Place::behind(least);
        weights.bounds(outer, &mut self.blocks);
        self.add_groups();
        self.draw_before(weights, outer, random).map(|token| token as u32)
    }

    /// Draws a token among those of at least `least` that are in the nucleus of `top_p`, below 1.
    pub(super) fn draw_from_nucleus(
        &mut self,
        weights: Weights<'_>,
        top_p: f32,
        least: f32,
        random: &mut Random,
    ) -> Option<u32> {
        let top_p = f64::from(top_p);
        let least = Place::behind(least);
        // Tokens before `inside` are in the nucleus, those that are not before `outer` are not to be drawn.
        let (mut inside, guess) = self.sample.guess(weights, top_p);
        let mut outer = least;
        let masses = weights.bounds_and_masses(inside, guess, None, &mut self.blocks);
        let total = Some(masses.inner + masses.between + masses.rest);
        if ends_before(top_p, masses.inner + masses.between, masses.rest) == Some(true) {
            outer = guess.earlier(least);
            for (bound, &max) in self.blocks.iter_mut().zip(weights.maxima) {
                *bound = if max < outer.logit() { 0.0 } else { *bound };
            }
        } else {
            weights.bounds(outer, &mut self.blocks);
        }
        if ends_before(top_p, masses.inner, masses.between + masses.rest) != Some(false) {
            inside = Place::behind(f32::INFINITY);
        }
        loop {
            self.add_groups();
            let token = self.draw_before(weights, outer, random)?;
            let logit = weights.logits[token];
            if inside.is_behind(token, logit) {
                return Some(token as u32);
            }
            let place = Place::of(token, logit);
            let Masses { inner: before, rest, .. } = weights.bounds_and_masses(place, place, total, &mut self.blocks);
            let is_out = ends_before(top_p, before, rest).unwrap_or_else(|| {
                let (before, rest) = weights.exact_split(place, &mut self.parts);
                (1.0 - top_p) * before >= top_p * rest
            });
            if !is_out {
                return Some(token as u32);
            }
            outer = place;
        }
    }

    fn add_groups(&mut self) {
        self.groups.clear();
        self.groups.extend(self.blocks.chunks(GROUP).map(sum));
    }

    /// Draws a token before `outer`, the place to which the blocks' bounds belong.
    fn draw_before(&mut self, weights: Weights<'_>, outer: Place, random: &mut Random) -> Option<usize> {
        loop {
            let (group, rest) = draw(&self.groups, random.uniform())?;
            let first = group * GROUP;
            let blocks = first..self.blocks.len().min(first + GROUP);
            let (block, rest) = draw(&self.blocks[blocks.clone()], rest)?;
            let (block, bound) = (first + block, self.blocks[first + block]);
            let start = block * BLOCK;
            let mut masses = [0.0; BLOCK];
            for ((token, mass), &logit) in (start..).zip(&mut masses).zip(&weights.logits[start..]) {
                let mass_of = weights.mass(logit);
                *mass = if outer.is_behind(token, logit) { mass_of } else { 0.0 };
            }
            let mass = sum(&masses);
            if rest * bound < mass {
                let (index, _) = draw(&masses, rest * bound / mass)?;
                return Some(start + index);
            }
            self.blocks[block] = mass;
            self.groups[group] = sum(&self.blocks[blocks]);
        }
    }
}

/// Whether the nucleus ends before a place, that is, whether the token there is out of it; `before` and `rest` are upper
/// bounds of the masses of tokens before the place and of the others. `None` when the bounds do not tell.
fn ends_before(top_p: f64, before: f64, rest: f64) -> Option<bool> {
    /// `rest` is a difference: it may be wrong by as much of the sum, which is of f32 sums of some hundred terms.
    const ROUNDING: f64 = 2e-5;
    let error = ROUNDING * (before + rest);
    let (most, least) = ((rest + error) * UPPER, (rest - error).max(0.0) * LOWER);
    if (1.0 - top_p) * before * LOWER >= top_p * most {
        Some(true)
    } else if (1.0 - top_p) * before * UPPER < top_p * least {
        Some(false)
    } else {
        None
    }
}

/// The sum, of partial sums side by side.
fn sum(values: &[f64]) -> f64 {
    let (chunks, rest) = values.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().sum::<f64>()
}
