//! The best that a GPU does, measured: rates of memory traffic, costs of going from one kernel or block to the next,
//! matrix products of the vendor's library. Speeds are compared with these, not with data sheets.

mod bandwidth;
mod latency;
mod products;
mod statistics;

use serde::Serialize;

pub use bandwidth::{BANDWIDTH, Bench, Grid, Rate, Traffic};
pub use latency::{Cost, LATENCY, Step};
pub use products::{Number, ProductRate};

use crate::{Compiler, Device, Properties, Result};

/// What was measured on one device.
#[derive(Debug, Clone, Serialize)]
pub struct Ceilings {
    /// The device.
    pub device: Properties,
    /// Rates of memory traffic.
    pub rates: Vec<Rate>,
    /// Costs on the way from one piece of work to the next.
    pub costs: Vec<Cost>,
    /// Rates of matrix products by cuBLASLt; empty where it is not found.
    pub products: Vec<ProductRate>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The most bytes of memory used. With less than a few times the second-level cache, that one is measured.
    pub memory: u64,
    /// Samples of each figure; the median counts.
    pub samples: usize,
    /// Repetitions of each step within a sample.
    pub repetitions: u32,
}

impl Effort {
    /// Enough for figures to be compared with: some seconds.
    pub const FULL: Self = Self { memory: 8 << 30, samples: 5, repetitions: 2000 };
    /// Enough to see that everything runs, under `compute-sanitizer` for example.
    pub const LEAST: Self = Self { memory: 1 << 20, samples: 1, repetitions: 10 };
}

impl Ceilings {
    /// Measures everything. Uses at most half of the free memory.
    ///
    /// # Errors
    /// If a kernel does not compile or fails, or if what was read is not what was written.
    pub fn measure(device: &Device, compiler: &Compiler, effort: Effort) -> Result<Self> {
        Ok(Self {
            device: device.properties().clone(),
            rates: bandwidth::measure(device, compiler, &Traffic::ALL, effort)?,
            costs: latency::measure(device, compiler, effort)?,
            products: products::measure(device, compiler, effort)?,
        })
    }

    /// Measures only reading, which is what decoding is compared with.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn measure_reading(device: &Device, compiler: &Compiler) -> Result<Self> {
        let rates = bandwidth::measure(device, compiler, &[Traffic::Read, Traffic::BulkRead], Effort::FULL)?;
        Ok(Self { device: device.properties().clone(), rates, costs: Vec::new(), products: Vec::new() })
    }

    /// The best rate, in GB/s, of reading `working_set` bytes over and over: between the sizes that were measured, along
    /// the logarithm of the size. What fits into the second-level cache is not counted as memory: below the smallest
    /// size measured, that one's rate stands. `None` if reading was not measured.
    #[must_use]
    pub fn read_ceiling(&self, working_set: u64) -> Option<f64> {
        bandwidth::read_ceiling(&self.rates, working_set)
    }

    /// The rate of one kind of traffic at its largest working set, in GB/s.
    #[must_use]
    pub fn rate(&self, traffic: Traffic) -> Option<f64> {
        let rates = self.rates.iter().filter(|rate| rate.traffic == traffic);
        rates.max_by_key(|rate| rate.working_set).map(|rate| rate.gb_per_s)
    }

    /// The best rate of matrix products with these numbers, in TFLOP/s.
    #[must_use]
    pub fn matmul(&self, number: Number) -> Option<f64> {
        let products = self.products.iter().filter(|product| product.number == number);
        products.map(|product| product.tflop_per_s).max_by(f64::total_cmp)
    }

    /// The cost of one kind of step, in microseconds.
    #[must_use]
    pub fn cost(&self, step: Step) -> Option<f64> {
        self.costs.iter().find(|cost| cost.step == step).map(|cost| cost.microseconds)
    }
}
