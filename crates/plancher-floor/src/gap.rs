//! The gap between a floor and a measured time, split by the terms that can be estimated. Each term says whether it is
//! arithmetic, a model or a measurement; what is left is named as unexplained.

use crate::error::Result;
use crate::pass::Floor;
use crate::{FloorError, Hardware, ModelShape};

/// One kernel of a CUDA graph behind another, both empty, 132 blocks: measured on one H200 (driver 580.159, CUDA 13.0),
/// November 2026.
pub const KERNEL_IN_GRAPH_S: f64 = 0.55e-6;
/// A flag written by one SM and seen by another, one way, memory idle: measured on the same H200.
pub const FLAG_ONE_WAY_S: f64 = 0.56e-6;
/// Kernels a layer of an engine that fuses what is usual: norm, QKV, rotary and cache, attention, output, norm, gate and
/// up with activation, down is 7 to 11; the least is taken.
pub const KERNELS_PER_LAYER: u64 = 7;
/// Points in a layer at which everything waits for everything before: QKV, attention, output, gate and up, down.
pub const DEPENDENCIES_PER_LAYER: u64 = 5;

/// How the measured step was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// One kernel after the other, in a CUDA graph.
    Kernels,
    /// One persistent kernel whose parts signal each other.
    Megakernel,
    /// CPU threads: no launch, and no cost of a signal measured here.
    Cpu,
}

/// Where a term comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Follows from bytes, FLOP and rates.
    Arithmetic,
    /// A count from a model times a measured cost.
    Model,
    /// A measured rate.
    Measurement,
}

impl Origin {
    /// The word that tables show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Model => "model",
            Self::Measurement => "measurement",
        }
    }
}

/// A part of the measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct GapTerm {
    /// What it is.
    pub name: &'static str,
    /// Its seconds.
    pub seconds: f64,
    /// Where it comes from.
    pub origin: Origin,
    /// How it was computed, with the numbers.
    pub formula: String,
}

/// A measured time against its floor.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The measured seconds.
    pub measured: f64,
    /// Floor over measured: the fraction of the data sheet that was reached.
    pub of_datasheet: f64,
    /// The same with the measured ceiling, where one is known.
    pub of_ceiling: Option<f64>,
    /// The parts, the floor first.
    pub terms: Vec<GapTerm>,
    /// Measured seconds that no term explains; negative when the terms claim more than was lost.
    pub unexplained: f64,
}

/// Splits `measured` seconds of the pass that `floor` describes.
///
/// # Errors
/// When the measured time is not above 0, or is below the floor: then bytes, machine or clock are wrong.
pub fn gap(shape: &ModelShape, hardware: &Hardware, floor: &Floor, measured: f64, executor: Executor) -> Result<Gap> {
    if !(measured.is_finite() && measured > 0.0) {
        return Err(FloorError::invalid("measured", format!("`{measured}` s is not a time above 0")));
    }
    let least = floor.seconds();
    if measured < least {
        return Err(FloorError::invalid(
            "measured",
            format!(
                "{:.3} us is below the floor of {:.3} us: the bytes, the machine or the clock are not those of the run",
                measured * 1e6,
                least * 1e6
            ),
        ));
    }
    let mut terms = vec![GapTerm {
        name: "floor",
        seconds: least,
        origin: Origin::Arithmetic,
        formula: format!("{} B and {} FLOP at the rates of {}", floor.bytes(), floor.flops(), hardware.name),
    }];
    let rounded = |rate: f64| (rate / 1e8).round() / 10.0;
    // Of a machine that is known by measurement alone, both are the same.
    if let Some(ceiling) = hardware.measured.as_ref().filter(|ceiling| ceiling.bandwidth < hardware.bandwidth) {
        terms.push(GapTerm {
            name: "bandwidth that the memory really gives",
            seconds: floor.memory_s() * (hardware.bandwidth / ceiling.bandwidth - 1.0),
            origin: Origin::Measurement,
            formula: format!(
                "{} B at {} instead of {} GB/s",
                floor.bytes(),
                rounded(ceiling.bandwidth),
                rounded(hardware.bandwidth)
            ),
        });
    }
    for line in &floor.communication {
        terms.push(GapTerm {
            name: line.name,
            seconds: line.seconds,
            origin: Origin::Arithmetic,
            formula: line.formula.clone(),
        });
    }
    terms.extend(execution_terms(shape, hardware, floor, executor));
    let explained: f64 = terms.iter().map(|term| term.seconds).sum();
    Ok(Gap {
        measured,
        of_datasheet: least / measured,
        of_ceiling: hardware
            .at_measured_ceiling()
            .ok()
            .map(|ceiling| least * hardware.bandwidth / ceiling.bandwidth / measured),
        terms,
        unexplained: measured - explained,
    })
}

/// What the way of execution adds.
fn execution_terms(shape: &ModelShape, hardware: &Hardware, floor: &Floor, executor: Executor) -> Vec<GapTerm> {
    let layers = shape.layers.len() as u64;
    let model = |name, seconds, formula| GapTerm { name, seconds, origin: Origin::Model, formula };
    let activations = model(
        "activations",
        floor.activation_s,
        format!("{} B at {:.0} GB/s", floor.activation_bytes, hardware.bandwidth / 1e9),
    );
    match executor {
        Executor::Kernels => {
            // Norm, head and pick stand outside the layers.
            let kernels = KERNELS_PER_LAYER * layers + 3;
            let launches = model(
                "launches",
                kernels as f64 * KERNEL_IN_GRAPH_S,
                format!("({KERNELS_PER_LAYER} × {layers} + 3) kernels × {:.2} us", KERNEL_IN_GRAPH_S * 1e6),
            );
            vec![launches, activations]
        }
        Executor::Megakernel => {
            let hops = DEPENDENCIES_PER_LAYER * layers + 2;
            let latency = model(
                "dependency latency",
                hops as f64 * FLAG_ONE_WAY_S,
                format!("({DEPENDENCIES_PER_LAYER} × {layers} + 2) hops × {:.2} us", FLAG_ONE_WAY_S * 1e6),
            );
            vec![latency, activations]
        }
        // Activations of one token stay in the caches of a CPU.
        Executor::Cpu => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Regime, Setting, floor, presets};

    fn llama_1b(measured: f64, executor: Executor) -> Result<Gap> {
        let model = presets::model("llama-3.2-1b").unwrap();
        let h200 = presets::hardware("h200").unwrap();
        let floor = floor(&model, &h200, Regime::decode(1, 32), Setting::default()).unwrap();
        gap(&model, &h200, &floor, measured, executor)
    }

    #[test]
    fn the_terms_and_the_rest_add_up_to_the_measured_time() {
        for executor in [Executor::Kernels, Executor::Megakernel, Executor::Cpu] {
            let gap = llama_1b(760e-6, executor).unwrap();
            let sum: f64 = gap.terms.iter().map(|term| term.seconds).sum();
            assert!((sum + gap.unexplained - gap.measured).abs() < 1e-12);
            assert_eq!(format!("{:.0} %", 100.0 * gap.of_datasheet), "68 %");
            assert_eq!(format!("{:.0} %", 100.0 * gap.of_ceiling.unwrap()), "71 %");
        }
    }

    #[test]
    fn launches_belong_to_kernels_and_hops_to_a_megakernel() {
        let names = |executor| -> Vec<&str> {
            llama_1b(760e-6, executor).unwrap().terms.iter().map(|term| term.name).collect()
        };
        assert!(names(Executor::Kernels).contains(&"launches"));
        assert!(names(Executor::Megakernel).contains(&"dependency latency"));
        let launches = llama_1b(1e-3, Executor::Kernels).unwrap();
        let term = launches.terms.iter().find(|term| term.name == "launches").unwrap();
        assert!((term.seconds - 115.0 * 0.55e-6).abs() < 1e-12);
    }

    #[test]
    fn a_time_below_the_floor_is_refused() {
        assert!(llama_1b(500e-6, Executor::Kernels).unwrap_err().to_string().contains("below the floor"));
        for measured in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(llama_1b(measured, Executor::Kernels).is_err());
        }
    }
}
