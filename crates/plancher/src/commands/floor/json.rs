//! `--json`: the same figures for machines. Bytes and FLOP are those of one device.

use plancher_floor::{Communication, Crossover, Floor, Operation, Speculation, WholePass};
use serde_json::{Map, Value, json};

use super::report::not_counted;
use super::{Outcome, Subject, gap, object, sweep};

/// Exact while it fits in 64 bits, else the nearest float.
pub(super) fn number(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value as f64), |value| json!(value))
}

pub(super) fn outcome(outcome: &Outcome) -> Value {
    let Outcome { subject, floor, prefill, crossover, speculation, gap: gap_found, sweeps } = outcome;
    let mut map = subject_json(subject);
    map.extend(pass(floor));
    if let Some(crossover) = crossover {
        map.insert("crossover".to_owned(), crossover_json(crossover));
    }
    if let Some(prefill) = prefill {
        map.insert("prefill".to_owned(), Value::Object(pass(prefill)));
    }
    if let Some(speculation) = speculation {
        map.insert("tokens_per_pass".to_owned(), json!(speculation.tokens_per_pass));
        map.insert("speedup".to_owned(), json!(speculation.speedup));
        map.insert("speculation".to_owned(), speculation_json(speculation));
    }
    if let Some(gap_found) = gap_found {
        map.insert("gap".to_owned(), gap::to_json(gap_found));
    }
    if !sweeps.is_empty() {
        map.insert("sweeps".to_owned(), sweeps.iter().map(sweep::to_json).collect());
    }
    map.insert("not_counted".to_owned(), json!(not_counted(subject, floor)));
    Value::Object(map)
}

pub(super) fn subject_json(subject: &Subject) -> Map<String, Value> {
    let Subject { shape, hardware, setting, .. } = subject;
    object([
        ("model", json!(shape.name)),
        ("hardware", json!(hardware.name)),
        ("hardware_source", json!(hardware.source)),
        ("bandwidth", json!(hardware.bandwidth)),
        ("devices", json!(setting.tensor_parallel)),
    ])
}

/// The figures of one pass.
pub(super) fn pass(floor: &Floor) -> Map<String, Value> {
    let (regime, batch, tokens) = match floor.regime {
        plancher_floor::Regime::Decode { batch, context, .. } => ("decode", batch, ("context", context)),
        plancher_floor::Regime::Prefill { batch, prompt, .. } => ("prefill", batch, ("prompt", prompt)),
    };
    object([
        ("regime", json!(regime)),
        ("batch", json!(batch)),
        (tokens.0, json!(tokens.1)),
        ("kv_format", json!(floor.setting.kv.to_string())),
        ("params_total", number(floor.params_total)),
        ("params_read", number(floor.params_read)),
        ("weight_bytes_read", number(floor.weight_bytes_read())),
        ("kv_bytes_per_token", number(floor.kv_bytes_per_token)),
        ("kv_bytes_read", number(floor.kv_bytes())),
        ("flops", number(floor.flops())),
        ("bytes", number(floor.bytes())),
        ("intensity", json!(floor.intensity())),
        ("ridge", json!(floor.ridge)),
        ("peak", json!(floor.peak.map(|(compute, rate)| json!({"operands": compute.name(), "flops_per_s": rate})))),
        ("limiter", json!(floor.limiter().name())),
        ("floor_ms", json!(1e3 * floor.seconds())),
        ("overlapped_ms", json!(1e3 * floor.overlapped_seconds())),
        ("memory_ms", json!(1e3 * floor.memory_s())),
        ("compute_ms", json!(1e3 * floor.compute_s())),
        ("comm_ms", json!(1e3 * floor.communication_s())),
        ("activation_bytes", number(floor.activation_bytes)),
        ("activation_ms", json!(1e3 * floor.activation_s)),
        ("step_ms", json!(1e3 * floor.step_seconds())),
        ("tokens_per_s", json!(floor.tokens_per_second())),
        ("operations", operations(&floor.operations, floor.seconds())),
        ("communication", communication(&floor.communication)),
    ])
}

pub(super) fn operations(rows: &[Operation], seconds: f64) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "class": row.class.name(),
                "bytes": number(row.bytes),
                "flops": number(row.flops),
                "memory_ms": 1e3 * row.memory_s,
                "compute_ms": 1e3 * row.compute_s,
                "ms": 1e3 * row.seconds(),
                "limiter": row.limiter().name(),
                "share": row.seconds() / seconds,
            })
        })
        .collect()
}

pub(super) fn communication(lines: &[Communication]) -> Value {
    lines
        .iter()
        .map(|line| {
            json!({"name": line.name, "bytes": number(line.bytes), "ms": 1e3 * line.seconds, "formula": line.formula})
        })
        .collect()
}

fn crossover_json(crossover: &Crossover) -> Value {
    let (from_batch, never_from_context) = match crossover.whole_pass {
        WholePass::FromBatch(batch) => (Some(batch), None),
        WholePass::NeverFromContext(context) => (None, Some(context)),
    };
    json!({
        "linear_layers_from_batch": crossover.linear_layers,
        "whole_pass_from_batch": from_batch,
        "whole_pass_never_from_context": never_from_context,
    })
}

fn speculation_json(speculation: &Speculation) -> Value {
    let (decode, draft, verify) = speculation.seconds;
    json!({
        "k": speculation.k,
        "draft_cost": speculation.draft_cost,
        "verify_cost": speculation.verify_cost,
        "draft_bytes": number(speculation.draft_bytes),
        "decode_ms": 1e3 * decode,
        "draft_ms": 1e3 * draft,
        "verify_ms": 1e3 * verify,
        "tokens_per_s": speculation.tokens_per_second,
    })
}
