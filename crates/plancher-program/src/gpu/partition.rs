//! Who has which rows: whole units, dealt out in order.

use std::ops::Range;

/// `rows` in units of `unit` rows, dealt to workers in order: worker `w` of `W` has the units
/// `w * U / W .. (w + 1) * U / W` of `U`. The last unit may be cut short by the end of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    rows: usize,
    unit: usize,
    workers: usize,
}

impl Partition {
    /// # Panics
    /// Never: a unit or a number of workers of 0 counts as 1.
    #[must_use]
    pub fn new(rows: usize, unit: usize, workers: usize) -> Self {
        Self { rows, unit: unit.max(1), workers: workers.max(1) }
    }

    /// All rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows of a unit.
    #[must_use]
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// How many units there are.
    #[must_use]
    pub fn units(&self) -> usize {
        self.rows.div_ceil(self.unit)
    }

    /// The most units that one worker has.
    #[must_use]
    pub fn most_units(&self) -> usize {
        self.units().div_ceil(self.workers)
    }

    /// The rows of `worker`; empty when there are fewer units than workers and it has none.
    #[must_use]
    pub fn share(&self, worker: usize) -> Range<usize> {
        let edge = |worker: usize| {
            // In 128 bits, since nothing keeps a caller from asking for any worker.
            let units = worker as u128 * self.units() as u128 / self.workers as u128;
            units.saturating_mul(self.unit as u128).min(self.rows as u128) as usize
        };
        edge(worker)..edge(worker.saturating_add(1))
    }

    /// Who has `row`; `None` beyond the last row.
    #[must_use]
    pub fn owner(&self, row: usize) -> Option<usize> {
        if row >= self.rows {
            return None;
        }
        let unit = (row / self.unit) as u128;
        // The last worker whose first unit is not after it: the largest w with w * U <= unit * W + (W - 1).
        let worker = ((unit + 1) * self.workers as u128 - 1) / self.units() as u128;
        Some(worker as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_share_of_its_owner_alone() {
        for (rows, unit, workers) in [(3072, 8, 128), (37, 8, 3), (8, 16, 5), (1, 1, 1), (100, 8, 132), (131, 1, 132)] {
            let partition = Partition::new(rows, unit, workers);
            let mut next = 0;
            for worker in 0..workers {
                let share = partition.share(worker);
                assert_eq!(share.start, next.min(share.start));
                assert!(share.len() <= partition.most_units() * unit);
                for row in share.clone() {
                    assert_eq!(partition.owner(row), Some(worker), "{row} of {rows} in {unit}s by {workers}");
                }
                assert!(share.is_empty() || share.start == next);
                next = next.max(share.end);
            }
            assert_eq!((next, partition.owner(rows)), (rows, None));
        }
    }
}
