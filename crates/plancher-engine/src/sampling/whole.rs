//! A draw from the whole vocabulary that computes few of its exponentials. Each block's mass is bounded by its largest
//! logit; a draw that falls between a block's mass and its bound lowers the bound to the mass, and is made again. Any
//! draw is exact, however loose the bounds are: given that it falls into a mass, it does so in proportion to the masses.

use plancher_cpu::kernels::exponential;

use super::Random;
use super::candidates::BLOCK;
use super::sampler::draw;

/// Blocks of a group.
const GROUP: usize = 64;

/// The buffers of a draw.
#[derive(Clone, Debug, Default)]
pub(super) struct WholeDraw {
    /// Mass of each block, or a bound of it.
    blocks: Vec<f64>,
    /// Sum of each group of blocks.
    groups: Vec<f64>,
}

impl WholeDraw {
    /// Draws from `logits`, whose blocks have these `maxima` and whose largest is `max`.
    pub(super) fn draw(
        &mut self,
        logits: &[f32],
        maxima: &[f32],
        inverse_temperature: f32,
        max: f32,
        random: &mut Random,
    ) -> Option<u32> {
        let mass = |logit: f32| f64::from(exponential((logit - max) * inverse_temperature));
        self.blocks.clear();
        self.blocks.extend(maxima.iter().map(|&maximum| BLOCK as f64 * mass(maximum)));
        self.groups.clear();
        self.groups.extend(self.blocks.chunks(GROUP).map(|group| group.iter().sum::<f64>()));
        loop {
            let (group, rest) = draw(&self.groups, random.uniform())?;
            let first = group * GROUP;
            let blocks = first..self.blocks.len().min(first + GROUP);
            let (block, rest) = draw(&self.blocks[blocks.clone()], rest)?;
            let (block, bound) = (first + block, self.blocks[first + block]);
            let start = block * BLOCK;
            let mut masses = [0.0; BLOCK];
            for (mass_of, &logit) in masses.iter_mut().zip(&logits[start..]) {
                *mass_of = mass(logit);
            }
            let sum: f64 = masses.iter().sum();
            if rest * bound < sum {
                let (index, _) = draw(&masses, rest * bound / sum)?;
                return Some((start + index) as u32);
            }
            self.blocks[block] = sum;
            self.groups[group] = self.blocks[blocks].iter().sum();
        }
    }
}
