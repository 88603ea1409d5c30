//! `plancher floor --train`: the least time, the FLOP and the memory of a training step.

use std::fmt::Write as _;

use plancher_floor::{Checkpointing, FloorError, Training, TrainingFloor, training_floor};
use serde_json::{Value, json};

use super::arguments::{DEFAULT_CONTEXT, Options};
use super::json::{communication, number, operations, subject_json};
use super::quantity::{duration, grouped, milliseconds, rate, scaled, significant};
use super::report::{apart, communication_formulas, heading, operation_rows, operations_table};
use super::{Subject, refused};
use crate::failure::usage;
use crate::output;

pub(super) fn run(options: &Options, subject: &Subject) -> anyhow::Result<()> {
    let given = &options.training;
    let training = Training {
        batch: options.pass.batch,
        sequence: options.pass.context.unwrap_or(DEFAULT_CONTEXT),
        data_parallel: given.devices,
        zero_stage: given.zero,
        checkpointing: given.checkpointing.into(),
        tokens: given.tokens,
    };
    if options.machine.weights.is_some() || options.machine.head_weights.is_some() {
        return Err(usage(
            "floor: `--train` is bf16 mixed precision: `--weights` and `--head-weights` belong to inference",
        ));
    }
    let floor = training_floor(&subject.shape, &subject.hardware, training, subject.setting).map_err(refused)?;
    if !subject.ignore_memory {
        check_memory(subject, &floor)?;
    }
    let measured = options.measured_seconds()?;
    if let Some(seconds) = measured.filter(|&seconds| seconds < floor.seconds() || seconds.is_nan()) {
        return Err(usage(format!(
            "`--measured` {seconds} s is below the floor of {} s: the step, the machine or the clock are not those of the run",
            floor.seconds()
        )));
    }
    if options.json {
        return output::json(&to_json(subject, &floor, measured));
    }
    Ok(output::text(&report(subject, &floor, measured))?)
}

fn check_memory(subject: &Subject, floor: &TrainingFloor) -> anyhow::Result<()> {
    let needed = floor.memory.total();
    match subject.hardware.memory_bytes.map(u128::from) {
        Some(available) if needed > available => Err(refused(FloorError::DoesNotFit {
            what: format!("training {}", subject.shape.name),
            hardware: subject.hardware.name.clone(),
            needed,
            available,
        })),
        _ => Ok(()),
    }
}

fn report(subject: &Subject, floor: &TrainingFloor, measured: Option<f64>) -> String {
    let training = &floor.training;
    let mut text = heading(subject);
    let _ = writeln!(
        text,
        "training step, batch {} × {} tokens on {} replicas, ZeRO {}, checkpointing {}",
        training.batch,
        training.sequence,
        training.data_parallel,
        training.zero_stage,
        name(training.checkpointing)
    );
    let mut rows = operation_rows(&floor.operations, floor.seconds());
    rows.push(total(floor));
    rows.extend(floor.communication.iter().map(|line| apart(line.name, line.bytes, line.seconds)));
    text.push_str(&operations_table(&rows));
    let memory = &floor.memory;
    let _ = writeln!(
        text,
        "\nfloor {} a step = {} tokens/s on {} devices; {} FLOP a token: 6 × {} + 3 × attention",
        duration(floor.seconds()),
        rate(floor.tokens_per_second()),
        floor.devices,
        grouped(floor.flops_per_token),
        grouped(floor.params_matmul)
    );
    let _ = writeln!(
        text,
        "memory a device: {} = weights {} + gradients {} + optimizer {} + activations {}",
        scaled(memory.total() as f64, "B"),
        scaled(memory.weights as f64, "B"),
        scaled(memory.gradients as f64, "B"),
        scaled(memory.optimizer as f64, "B"),
        scaled(memory.activations as f64, "B")
    );
    if let Some(utilisation) = utilisation(floor, measured) {
        let _ = writeln!(text, "{utilisation}");
    }
    if let Some(seconds) = floor.total_seconds() {
        let tokens = floor.training.tokens.unwrap_or_default();
        let flops = scaled(floor.flops_per_token as f64 * tokens as f64, "FLOP");
        let _ = writeln!(text, "{} tokens: {flops}, at least {}", grouped(tokens.into()), duration(seconds));
    }
    if !floor.communication.is_empty() {
        let _ = write!(text, "communication, not part of the floor\n{}", communication_formulas(&floor.communication));
    }
    let mut notes = vec![
        "traffic of activations, loss, gradient norm, data loading, communication (shown apart)".to_owned(),
        "the MTP layer".to_owned(),
    ];
    if subject.shape.predictor.is_none() {
        notes.pop();
    }
    notes.extend(subject.shape.notes.iter().cloned());
    let _ = writeln!(text, "\nnot counted: {}", notes.join("; "));
    text
}

const fn name(checkpointing: Checkpointing) -> &'static str {
    match checkpointing {
        Checkpointing::None => "none",
        Checkpointing::Selective => "selective",
        Checkpointing::Full => "full",
    }
}

fn total(floor: &TrainingFloor) -> Vec<String> {
    let bytes = floor.operations.iter().map(|row| row.bytes).sum();
    let flops: u128 = floor.operations.iter().map(|row| row.flops).sum();
    let sum = |part: fn(&plancher_floor::Operation) -> f64| milliseconds(floor.operations.iter().map(part).sum());
    vec![
        "= floor".to_owned(),
        grouped(bytes),
        scaled(flops as f64, "FLOP"),
        sum(|row| row.memory_s),
        sum(|row| row.compute_s),
        milliseconds(floor.seconds()),
        String::new(),
        "100.0 %".to_owned(),
    ]
}

/// MFU and HFU of the measured step, or the most that can be reached.
fn utilisation(floor: &TrainingFloor, measured: Option<f64>) -> Option<String> {
    let seconds = measured.unwrap_or(floor.seconds());
    let percent = |share: f64| format!("{} %", significant(100.0 * share, 4));
    let (mfu, hfu) = (percent(floor.mfu(seconds)?), percent(floor.hfu(seconds)?));
    Some(match measured {
        Some(measured) => format!("measured {}: MFU {mfu}, HFU {hfu}", duration(measured)),
        None => {
            format!("at the floor: MFU {mfu} (model FLOP over dense peak), HFU {hfu} (with what is computed again)")
        }
    })
}

fn to_json(subject: &Subject, floor: &TrainingFloor, measured: Option<f64>) -> Value {
    let seconds = measured.unwrap_or(floor.seconds());
    let training = &floor.training;
    let mut map = subject_json(subject);
    let memory = &floor.memory;
    let flops: u128 = floor.operations.iter().map(|row| row.flops).sum();
    let bytes: u128 = floor.operations.iter().map(|row| row.bytes).sum();
    let communication_ms: f64 = floor.communication.iter().map(|line| 1e3 * line.seconds).sum();
    let figures = json!({
        "regime": "training",
        "batch": training.batch,
        "context": training.sequence,
        "replicas": training.data_parallel,
        "zero": training.zero_stage,
        "checkpointing": name(training.checkpointing),
        "params_total": number(floor.params_total),
        "params_matmul": number(floor.params_matmul),
        "flops_per_token": number(floor.flops_per_token),
        "hardware_flops_per_token": number(floor.hardware_flops_per_token),
        "flops": number(flops),
        "bytes": number(bytes),
        "intensity": flops as f64 / bytes as f64,
        "floor_ms": 1e3 * floor.seconds(),
        "comm_ms": communication_ms,
        "tokens_per_step": floor.tokens_per_step,
        "tokens_per_s": floor.tokens_per_second(),
        "measured_ms": measured.map(|seconds| 1e3 * seconds),
        "mfu": floor.mfu(seconds),
        "hfu": floor.hfu(seconds),
        "memory_bytes": number(memory.total()),
        "memory": {
            "weights": number(memory.weights),
            "gradients": number(memory.gradients),
            "optimizer": number(memory.optimizer),
            "activations": number(memory.activations),
        },
        "tokens": training.tokens,
        "total_s": floor.total_seconds(),
        "operations": operations(&floor.operations, floor.seconds()),
        "communication": communication(&floor.communication),
        "not_counted": subject.shape.notes,
    });
    if let Value::Object(figures) = figures {
        map.extend(figures);
    }
    map.insert("devices".to_owned(), json!(floor.devices));
    Value::Object(map)
}
