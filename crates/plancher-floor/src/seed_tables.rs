//! The tables that the course "GPU for artificial intelligence" prints about decoding, training and megakernels, each
//! figure beside what the arithmetic of this crate gives for it, and why they differ.

use crate::error::Result;
use crate::{
    Acceptance, Draft, Format, Hardware, ModelShape, Regime, Setting, WholePass, crossover, fit, floor, presets,
    speculation, tokens_per_pass,
};

/// One figure of the tables.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedRow {
    /// Which figure.
    pub figure: &'static str,
    /// The value as printed there.
    pub printed: &'static str,
    /// The value by the arithmetic here.
    pub computed: String,
    /// Why they differ, or that they do not.
    pub reason: String,
}

/// Weight bytes that one device reads for a token, the model alone.
fn weights(model: &ModelShape, hardware: &Hardware, devices: u64) -> Result<f64> {
    let setting = Setting { tensor_parallel: devices, ..Setting::default() };
    Ok(floor(model, hardware, Regime::decode(1, 1), setting)?.weight_bytes_read() as f64)
}

/// All rows, computed now.
///
/// # Errors
/// Those of [`floor`]; the shipped models and machines give none.
pub fn seed_tables() -> Result<Vec<SeedRow>> {
    let mut rows = thresholds()?;
    rows.extend(least_times()?);
    rows.extend(fractions()?);
    rows.extend(long_context()?);
    rows.extend(speculation_rows()?);
    rows.extend(training_rows());
    Ok(rows)
}

fn thresholds() -> Result<Vec<SeedRow>> {
    let h100 = presets::hardware("h100-sxm")?;
    let ridge = h100.peaks.best(Format::Bf16).map_or(0.0, |(_, peak)| h100.ridge(peak));
    let llama_8b = presets::model("llama-3.1-8b")?;
    let crossing = crossover(&llama_8b, &h100, 8192, Setting::default())?;
    let memory_from = match crossing.map(|crossing| crossing.whole_pass) {
        Some(WholePass::NeverFromContext(context)) => context - 1,
        _ => 0,
    };
    Ok(vec![
        SeedRow {
            figure: "machine threshold of the H100 in bf16, FLOP per byte",
            printed: "296",
            computed: format!("{ridge:.1}"),
            reason: "989.4e12 / 3.35e12; 296 rounds the peak to 990e12 first".to_owned(),
        },
        SeedRow {
            figure: "batch 1 / 16 / 64 / 512 against it",
            printed: "×296, ×18, ×4.6, compute",
            computed: format!("×{:.0}, ×{:.1}, ×{:.2}, compute", ridge, ridge / 16.0, ridge / 64.0),
            reason: format!(
                "at 512 the linear layers are limited by compute, but with more than {memory_from} tokens of context the whole \
                 pass of Llama-3.1-8B stays limited by memory at any batch"
            ),
        },
    ])
}

fn least_times() -> Result<Vec<SeedRow>> {
    let h100 = presets::hardware("h100-sxm")?;
    let ms = |bytes: f64| 1e3 * bytes / h100.bandwidth;
    let model = |name: &str, devices| -> Result<f64> { Ok(ms(weights(&presets::model(name)?, &h100, devices)?)) };
    let (one, eight) = (model("llama-3.2-1b", 1)?, model("llama-3.1-8b", 1)?);
    let (seventy, large) = (model("llama-3.1-70b", 2)?, model("llama-3.1-405b", 8)?);
    let llama_8b = presets::model("llama-3.1-8b")?;
    let at = |context| -> Result<f64> {
        Ok(1e3 * floor(&llama_8b, &h100, Regime::decode(1, context), Setting::default())?.memory_s())
    };
    let eight_ways = Setting { tensor_parallel: 8, ..Setting::default() };
    let missing = -fit::fit(&presets::model("llama-3.1-405b")?, &h100, eight_ways, 1, 1)?.margin();
    Ok(vec![
        SeedRow {
            figure: "least time of 1 B / 8 B / 70 B on 2 / 405 B on 8 H100, round numbers of parameters, no KV",
            printed: "0.60 ms 1675, 4.78 209, 20.9 48, 30.2 33",
            computed: format!(
                "{:.3} ms {:.0}, {:.3} {:.0}, {:.3} {:.0}, {:.2} {:.0}",
                ms(2e9),
                1e3 / ms(2e9),
                ms(16e9),
                1e3 / ms(16e9),
                ms(70e9),
                1e3 / ms(70e9),
                ms(405e9 / 4.0),
                1e3 / ms(405e9 / 4.0)
            ),
            reason: "2 bytes a parameter over 3.35e12 B/s; the same".to_owned(),
        },
        SeedRow {
            figure: "the same for Llama-3.2-1B / 3.1-8B / 70B on 2 / 405B on 8, as stored",
            printed: "0.60 ms 1675, 4.78 209, 20.9 48, 30.2 33",
            computed: format!(
                "{one:.3} ms {:.0}, {eight:.3} {:.0}, {seventy:.2} {:.0}, {large:.2} {:.0}",
                1e3 / one,
                1e3 / eight,
                1e3 / seventy,
                1e3 / large
            ),
            reason: format!(
                "real parameters, of which the embedding table is not read ({:.3} GB for the 8B); the 405B in bf16 does not fit \
                 on 8 × 80 GB: {missing} bytes too many a device",
                weights(&llama_8b, &h100, 1)? / 1e9
            ),
        },
        SeedRow {
            figure: "the 8B with its KV cache at 8192 / 131072 tokens",
            printed: "4.78 ms",
            computed: format!("{:.2} / {:.2} ms", at(8192)?, at(131_072)?),
            reason: "the formula has a term for the KV cache, the table leaves it out".to_owned(),
        },
    ])
}

fn fractions() -> Result<Vec<SeedRow>> {
    let h100 = presets::hardware("h100-sxm")?;
    let floor_us = 1e6 / 1350.0;
    let stored_us = 1e6 * weights(&presets::model("llama-3.2-1b")?, &h100, 1)? / h100.bandwidth;
    let stalls = 7.0 * 16.0 * 5.0;
    let (fewest, most) = (7.0 * 16.0 * 1.3, 11.0 * 16.0 * 1.3);
    let (gap_half, gap_770) = (floor_us, 1e6 / 770.0 - floor_us);
    let percent = |part: f64, whole: f64| 100.0 * part / whole;
    Ok(vec![
        SeedRow {
            figure: "50 % of 1350 passes a second",
            printed: "~770",
            computed: format!("{:.0}", 0.5 * 1350.0),
            reason: format!(
                "770 is a model of stalls: 7 launches × 16 layers × 5 us + {floor_us:.0} us = {:.2} ms",
                (stalls + floor_us) / 1e3
            ),
        },
        SeedRow {
            figure: "78 % of it",
            printed: "~1050, < 1 ms",
            computed: format!(
                "{:.0}–{:.0}, {:.3}–{:.3} ms",
                0.78 * 1350.0,
                0.78 * 1e6 / stored_us,
                stored_us / 0.78 / 1e3,
                floor_us / 0.78 / 1e3
            ),
            reason: "of 1350, or of the 1355 that 2.4716 GB give; the same".to_owned(),
        },
        SeedRow {
            figure: "launches, 7 to 11 a layer × 1.3 us, as a cause of the lost 50 %",
            printed: "first cause",
            computed: format!("{fewest:.0}–{most:.0} us for 16 layers"),
            reason: format!(
                "{:.0}–{:.0} % of the gap at 50 %, {:.0}–{:.0} % of the one at 770 passes a second; stragglers and refill are \
                 the rest",
                percent(fewest, gap_half),
                percent(most, gap_half),
                percent(fewest, gap_770),
                percent(most, gap_770)
            ),
        },
        SeedRow {
            figure: "42 % of the time for activations, 40 us of 600 for barriers between warps",
            printed: "losses of classic engines",
            computed: format!("{:.1} %, {:.1} %", percent(250.0, 600.0), percent(40.0, 600.0)),
            reason: "these are a megakernel's own breakdown on a B200: 250 of 600 us, and 40 of 600".to_owned(),
        },
    ])
}

fn long_context() -> Result<Vec<SeedRow>> {
    let llama_8b = presets::model("llama-3.1-8b")?;
    let cache = |context| -> Result<f64> { Ok(llama_8b.kv_bytes(context, Format::Bf16, 1)? as f64) };
    let (context, theta) = (131_072, 8e9);
    let full = cache(context)?;
    let attention =
        llama_8b.layers.iter().map(|layer| layer.attention.decode_flops(1, context, 1)).sum::<Result<u128>>()? as f64;
    let intensity = |batch: f64| batch * (2.0 * theta + attention) / (2.0 * theta + batch * full);
    Ok(vec![
        SeedRow {
            figure: "KV cache of an 8B model at 128k",
            printed: "17.2 GB",
            computed: format!("{:.3} GB", full / 1e9),
            reason: format!("131072 tokens × 131072 B; 128,000 tokens are {:.3} GB", cache(128_000)? / 1e9),
        },
        SeedRow {
            figure: "the plateau 2Θ/c of the intensity there",
            printed: "~0.9",
            computed: format!("{:.3}, with attention {:.2}", 2.0 * theta / full, (2.0 * theta + attention) / full),
            reason: format!(
                "the FLOP of attention are left out: they add {:.0} FLOP per KV byte, the ratio of query to KV heads; batch 1 \
                 and 4 are at {:.2} and {:.2}",
                attention / full,
                intensity(1.0),
                intensity(4.0)
            ),
        },
    ])
}

fn speculation_rows() -> Result<Vec<SeedRow>> {
    let acceptance = Acceptance::Constant(0.7);
    let tokens = tokens_per_pass(5, &acceptance)?;
    let h100 = presets::hardware("h100-sxm")?;
    let draft = Draft::Model(Box::new(presets::model("llama-3.2-1b")?));
    let target = presets::model("llama-3.1-8b")?;
    let real = speculation(&target, &h100, Setting::default(), 1, 1, &draft, 5, &acceptance)?;
    Ok(vec![SeedRow {
        figure: "draft of k = 5 at 70 % acceptance",
        printed: "~3.5 tokens, ~2.5×",
        computed: format!("{tokens:.2} tokens, {:.2}× with a 1B draft for an 8B", real.speedup),
        reason: format!(
            "3.5 is k·a; the expectation is (1 − a^(k+1)) / (1 − a); 2.5× needs a draft pass of {:.3} of a decode pass, the \
             1B's is {:.3}",
            (tokens / 2.5 - 1.0) / 5.0,
            real.draft_cost
        ),
    }])
}

fn training_rows() -> Vec<SeedRow> {
    let (batch, sequence) = (8.0, 4096.0);
    let bits = |group_bits: f64| 16.0 / group_bits;
    vec![
        SeedRow {
            figure: "training intensity at batch 8 and 4096 tokens",
            printed: "98 000",
            computed: format!("{:.0}, or {:.0}", 3.0 * batch * sequence, 6.0 * batch * sequence / 30.0),
            reason: "the first reads the weights once a step; one AdamW step moves 30 bytes a parameter: bf16 weights read \
                     twice and gradient written, 6; f32 master and two moments read and written, 24"
                .to_owned(),
        },
        SeedRow {
            figure: "FLOP that checkpointing adds",
            printed: "~30 %",
            computed: format!("{:.1} %", 100.0 / 3.0),
            reason: "full recomputation is one more forward pass beside three".to_owned(),
        },
        SeedRow {
            figure: "regimes: training, prefill, decode, decode at batch b",
            printed: "6ΘbS, 2ΘbS, 2Θ, 2Θb over 2Θ",
            computed: "6ΘbS + 3A, 2ΘbS + A, 2Θ + A, 2Θb + bA over 2Θ + b·KV".to_owned(),
            reason: "as is, with the attention A (4 · layers · heads · head_dim · S a token, half of it in a causal pass) and \
                     the KV bytes beside it"
                .to_owned(),
        },
        SeedRow {
            figure: "traffic of INT4 against bf16",
            printed: "÷ 4",
            computed: format!("÷ {:.2}, ÷ {:.2}", bits(4.125), bits(4.25)),
            reason: "an fp16 scale for each 128 weights, and with an fp16 zero point".to_owned(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_gives_what_the_arithmetic_gives() {
        let rows: Vec<(String, String)> =
            seed_tables().unwrap().into_iter().map(|row| (row.computed, row.reason)).collect();
        insta::assert_debug_snapshot!(rows);
    }
}
