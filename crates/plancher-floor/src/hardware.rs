//! What a machine can do at best: bandwidth, peaks, memory and links of one device, each with its source.

use crate::error::Result;
use crate::{FloorError, Format};

/// Dense matmul rates of one device, FLOP/s (for integers: operations/s). A rate that is not known stays out
/// of every comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// f32 operands outside the matrix units.
    pub f32: Option<f64>,
    /// bf16 or f16 operands, f32 accumulation.
    pub bf16: Option<f64>,
    /// fp8 operands.
    pub fp8: Option<f64>,
    /// int8 operands.
    pub int8: Option<f64>,
    /// fp4 operands.
    pub fp4: Option<f64>,
}

/// The operand type whose peak applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the types' own")]
pub enum Compute {
    F32,
    Bf16,
    Fp8,
    Int8,
    Fp4,
}

impl Compute {
    // Of equal rates the later is named.
    const ALL: [Self; 5] = [Self::F32, Self::Bf16, Self::Int8, Self::Fp8, Self::Fp4];

    /// The name that reports use and [`Compute::from_name`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Fp4 => "fp4",
        }
    }

    /// The type of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|compute| compute.name() == name).ok_or_else(|| FloorError::UnknownName {
            kind: "operand type",
            name: name.to_owned(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    const fn bits(self) -> u32 {
        match self {
            Self::F32 => 32,
            Self::Bf16 => 16,
            Self::Fp8 | Self::Int8 => 8,
            Self::Fp4 => 4,
        }
    }
}

impl Peaks {
    /// The rate for operands of one type.
    #[must_use]
    pub const fn get(&self, compute: Compute) -> Option<f64> {
        match compute {
            Compute::F32 => self.f32,
            Compute::Bf16 => self.bf16,
            Compute::Fp8 => self.fp8,
            Compute::Int8 => self.int8,
            Compute::Fp4 => self.fp4,
        }
    }

    /// The fastest known rate whose operands hold `format`'s elements: a floor must not assume a slower one.
    #[must_use]
    pub fn best(&self, format: Format) -> Option<(Compute, f64)> {
        Compute::ALL
            .into_iter()
            .filter(|compute| compute.bits() >= format.operand_bits())
            .filter_map(|compute| Some((compute, self.get(compute)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The connection between devices of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Bytes/s that one device can send, one direction.
    pub bandwidth: f64,
    /// Seconds until a word written by one device is seen by another.
    pub latency: f64,
    /// Where the two figures come from.
    pub source: String,
}

/// Ceilings measured on such a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Bytes/s of a pure read.
    pub bandwidth: f64,
    /// Sustained matmul rates.
    pub peaks: Peaks,
    /// What was measured, and where.
    pub source: String,
}

/// One device of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// The name that reports show.
    pub name: String,
    /// Bytes/s of its memory.
    pub bandwidth: f64,
    /// Its dense matmul rates.
    pub peaks: Peaks,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// What connects it to others.
    pub link: Option<Link>,
    /// Measured ceilings, where there are any.
    pub measured: Option<Measured>,
    /// Where bandwidth, peaks and memory come from.
    pub source: String,
}

/// No machine does more or less in a second; beyond them a unit was mistaken.
const MOST: f64 = 1e21;
const LEAST: f64 = 1e6;

impl Hardware {
    /// A machine of which only the memory bandwidth is known, in bytes/s: compute is then not counted.
    ///
    /// # Errors
    /// When the bandwidth is not a positive, plausible number.
    pub fn from_bandwidth(name: impl Into<String>, bandwidth: f64, source: impl Into<String>) -> Result<Self> {
        let hardware = Self {
            name: name.into(),
            bandwidth,
            peaks: Peaks::default(),
            memory_bytes: None,
            link: None,
            measured: None,
            source: source.into(),
        };
        hardware.check()?;
        Ok(hardware)
    }

    /// Whether every figure is a positive, plausible number.
    ///
    /// # Errors
    /// When one is not; the message names it.
    pub fn check(&self) -> Result<()> {
        let rate = |field: &str, value: f64| {
            if (LEAST..=MOST).contains(&value) {
                return Ok(());
            }
            Err(FloorError::invalid(
                field,
                format!("`{value}` of `{}` is not a rate from 1e6 to 1e21 a second", self.name),
            ))
        };
        let all = |prefix: &str, peaks: &Peaks| {
            Compute::ALL.into_iter().try_for_each(|compute| match peaks.get(compute) {
                Some(value) => rate(&format!("{prefix}.{}", compute.name()), value),
                None => Ok(()),
            })
        };
        rate("bandwidth", self.bandwidth)?;
        all("peaks", &self.peaks)?;
        if self.memory_bytes == Some(0) {
            return Err(FloorError::invalid("memory_bytes", format!("`0` of `{}`", self.name)));
        }
        if let Some(link) = &self.link {
            rate("link.bandwidth", link.bandwidth)?;
            if !(0.0..=1.0).contains(&link.latency) {
                return Err(FloorError::invalid(
                    "link.latency",
                    format!("`{}` is not between 0 and 1 s", link.latency),
                ));
            }
        }
        if let Some(measured) = &self.measured {
            rate("measured.bandwidth", measured.bandwidth)?;
            all("measured.peaks", &measured.peaks)?;
        }
        Ok(())
    }

    /// The same machine at its measured ceilings instead of its data sheet; peaks that were not measured stay.
    ///
    /// # Errors
    /// When no ceiling was measured.
    pub fn at_measured_ceiling(&self) -> Result<Self> {
        let Some(measured) = &self.measured else {
            return Err(FloorError::invalid(
                "ceiling",
                format!(
                    "no measured ceiling is known for `{}`: measure it, or name a hardware file that has one",
                    self.name
                ),
            ));
        };
        let mut hardware = self.clone();
        hardware.name = format!("{} (measured ceiling)", self.name);
        hardware.bandwidth = measured.bandwidth;
        let (new, old) = (&measured.peaks, &self.peaks);
        hardware.peaks = Peaks {
            f32: new.f32.or(old.f32),
            bf16: new.bf16.or(old.bf16),
            fp8: new.fp8.or(old.fp8),
            int8: new.int8.or(old.int8),
            fp4: new.fp4.or(old.fp4),
        };
        hardware.source.clone_from(&measured.source);
        Ok(hardware)
    }

    /// The peak for weights or KV entries in `format`: of `compute` where that is chosen, else the fastest that
    /// holds them. `None` when the machine's rates are not known.
    ///
    /// # Errors
    /// When the chosen type has no known rate on this machine although others have.
    pub fn peak(&self, format: Format, compute: Option<Compute>) -> Result<Option<(Compute, f64)>> {
        let Some(compute) = compute else { return Ok(self.peaks.best(format)) };
        match self.peaks.get(compute) {
            Some(peak) => Ok(Some((compute, peak))),
            None => Err(FloorError::invalid(
                "compute",
                format!("no dense `{}` rate is known for `{}`", compute.name(), self.name),
            )),
        }
    }

    /// FLOP per byte above which the bf16 peak limits, or that of the chosen type.
    #[must_use]
    pub fn ridge(&self, peak: f64) -> f64 {
        peak / self.bandwidth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_formats_reach_the_fastest_peak_that_holds_them() {
        let peaks = Peaks { f32: Some(1.0), bf16: Some(2.0), fp8: Some(4.0), int8: None, fp4: Some(8.0) };
        assert_eq!(peaks.best(Format::F32), Some((Compute::F32, 1.0)));
        assert_eq!(peaks.best(Format::Bf16), Some((Compute::Bf16, 2.0)));
        assert_eq!(peaks.best(Format::Q8_0), Some((Compute::Fp8, 4.0)));
        assert_eq!(peaks.best(Format::Mxfp4), Some((Compute::Fp4, 8.0)));
        assert_eq!(Peaks::default().best(Format::Bf16), None);
    }

    #[test]
    fn impossible_rates_are_refused_by_name() {
        for bandwidth in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e30] {
            let error = Hardware::from_bandwidth("x", bandwidth, "test").unwrap_err().to_string();
            assert!(error.starts_with("`bandwidth`: "), "{error}");
        }
        let mut hardware = Hardware::from_bandwidth("x", 1e9, "test").unwrap();
        assert!(hardware.at_measured_ceiling().is_err());
        assert!(hardware.peak(Format::Bf16, Some(Compute::Fp8)).is_err());
        hardware.peaks.fp8 = Some(-1.0);
        assert!(hardware.check().unwrap_err().to_string().starts_with("`peaks.fp8`"));
    }
}
