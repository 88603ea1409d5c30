//! The batch at which a pass stops being limited by memory: once for the linear layers alone, once for the whole
//! pass with its KV cache. They are not the same batch, and the second need not exist.

use crate::error::Result;
use crate::fit::partition_point;
use crate::pass::{Regime, Setting, floor};
use crate::{Class, Hardware, ModelShape};

/// Batches beyond this are taken as "never".
const MOST: u64 = 1 << 30;

/// Where bytes and FLOP take equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossover {
    /// The smallest batch at which the linear layers are limited by compute; `None` when none is.
    pub linear_layers: Option<u64>,
    /// What holds for the whole pass at the context asked for.
    pub whole_pass: WholePass,
}

/// The crossover of the whole pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholePass {
    /// From this batch on, compute limits.
    FromBatch(u64),
    /// Memory limits at any batch, and does so from this context on: each sequence brings more time in KV bytes than
    /// in FLOP.
    NeverFromContext(u64),
}

/// Both crossovers of decoding at `context`; `None` when the machine's peaks are not known.
///
/// # Errors
/// Those of [`floor`].
pub fn crossover(shape: &ModelShape, hardware: &Hardware, context: u64, setting: Setting) -> Result<Option<Crossover>> {
    // Seconds of compute over seconds of memory, of the linear layers and of all.
    let reached = |batch: u64, context: u64, whole: bool| -> Result<bool> {
        let floor = floor(shape, hardware, Regime::decode(batch, context), setting)?;
        let rows = floor.operations.iter().filter(|row| whole || row.class != Class::Attention);
        let (memory, compute) =
            rows.fold((0.0, 0.0), |(memory, compute), row| (memory + row.memory_s, compute + row.compute_s));
        Ok(compute >= memory)
    };
    let one = floor(shape, hardware, Regime::decode(1, context), setting)?;
    if one.peak.is_none() {
        return Ok(None);
    }
    let linear_layers = partition_point(1, MOST, |batch| reached(batch, context, false))?;
    let whole_pass = if let Some(batch) = partition_point(1, MOST, |batch| reached(batch, context, true))? {
        WholePass::FromBatch(batch)
    } else {
        let first = partition_point(1, context, |context| Ok(!reached(MOST, context, true)?))?;
        WholePass::NeverFromContext(first.unwrap_or(context))
    };
    Ok(Some(Crossover { linear_layers, whole_pass }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn of(model: &str, hardware: &str, context: u64) -> Crossover {
        let model = presets::model(model).unwrap();
        let hardware = presets::hardware(hardware).unwrap();
        crossover(&model, &hardware, context, Setting::default()).unwrap().unwrap()
    }

    #[test]
    fn llama_8b_on_an_h100_stays_memory_bound_above_393_tokens() {
        let short = of("llama-3.1-8b", "h100-sxm", 100);
        // Norms are bytes without FLOP, so that the batch is the ridge of 295.3 and a little.
        assert_eq!(short.linear_layers, Some(296));
        assert_eq!(short.whole_pass, WholePass::FromBatch(397));
        let long = of("llama-3.1-8b", "h100-sxm", 8192);
        assert_eq!(long.linear_layers, Some(296));
        assert_eq!(long.whole_pass, WholePass::NeverFromContext(394));
    }

    #[test]
    fn experts_move_the_crossover_of_the_linear_layers_far_out() {
        let dense = of("llama-3.1-8b", "h200", 1).linear_layers.unwrap();
        let mixtral = of("mixtral-8x7b", "h200", 1).linear_layers.unwrap();
        // Each token uses 2 of 8 experts: four times the tokens for the experts' weights.
        assert!(mixtral > 3 * dense && mixtral < 4 * dense + 8, "{dense} {mixtral}");
    }

    #[test]
    fn without_peaks_there_is_no_crossover() {
        let model = presets::model("llama-3.2-1b").unwrap();
        let cpu = Hardware::from_bandwidth("cpu", 30e9, "test").unwrap();
        assert_eq!(crossover(&model, &cpu, 1, Setting::default()).unwrap(), None);
    }
}
