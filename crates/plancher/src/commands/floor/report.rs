//! What `plancher floor` prints: the table by class of operation, the verdict, and what is not counted.

use std::fmt::Write as _;

use plancher_floor::{
    Attention, Communication, Crossover, Floor, Hardware, Limiter, ModelShape, Operation, Regime, Speculation,
    WholePass,
};

use super::quantity::{duration, grouped, milliseconds, rate, scaled, significant};
use super::{Outcome, Subject, gap, sweep};
use crate::table::markdown;

/// The whole report.
pub(super) fn outcome(outcome: &Outcome) -> String {
    let Outcome { subject, floor, prefill, crossover, speculation, gap: gap_found, sweeps } = outcome;
    let mut text = heading(subject);
    text.push_str(&pass(subject, floor));
    if let Some(crossover) = crossover {
        text.push_str(&crossings(crossover, floor.regime));
    }
    if let Some(prefill) = prefill {
        text.push('\n');
        text.push_str(&pass(subject, prefill));
    }
    if let Some(speculation) = speculation {
        text.push_str(&speculated(speculation));
    }
    if let Some(gap_found) = gap_found {
        text.push_str(&gap::report(gap_found));
    }
    for sweep in sweeps {
        text.push_str(&sweep::report(sweep));
    }
    let _ = writeln!(text, "\nnot counted: {}", not_counted(subject, floor).join("; "));
    text
}

/// One line for the model, one for the machine.
pub(super) fn heading(subject: &Subject) -> String {
    format!("{}\n{}\n\n", model_line(&subject.shape), machine_line(&subject.hardware, subject.setting.tensor_parallel))
}

pub(super) fn model_line(shape: &ModelShape) -> String {
    let total = shape.params_total().unwrap_or_default();
    let active = shape.params_active().unwrap_or_default();
    format!(
        "{}: {} parameters stored, {} read by one token, {} layers",
        shape.name,
        grouped(total),
        grouped(active),
        shape.layers.len()
    )
}

pub(super) fn machine_line(hardware: &Hardware, devices: u64) -> String {
    let mut line = format!("{}: {} a second", hardware.name, scaled(hardware.bandwidth, "B"));
    let peaks = &hardware.peaks;
    let rates =
        [("f32", peaks.f32), ("bf16", peaks.bf16), ("fp8", peaks.fp8), ("int8", peaks.int8), ("fp4", peaks.fp4)];
    for (name, peak) in rates {
        if let Some(peak) = peak {
            let _ = write!(line, ", {name} {}", scaled(peak, "FLOP/s"));
        }
    }
    if let Some(memory) = hardware.memory_bytes {
        let _ = write!(line, ", {}", scaled(memory as f64, "B"));
    }
    if devices > 1 {
        let _ = write!(line, "; {devices} devices, figures of one");
    }
    let _ = write!(line, "\n  ({})", hardware.source);
    line
}

/// What a pass is, in words.
pub(super) fn regime_name(regime: Regime) -> String {
    match regime {
        Regime::Decode { batch, context, .. } => format!("decode, batch {batch}, context {context}"),
        Regime::Prefill { batch, prompt, .. } => format!("prefill, batch {batch}, prompt {prompt}"),
    }
}

/// The table of one pass and its verdict.
fn pass(subject: &Subject, floor: &Floor) -> String {
    let (header, rows) = pass_rows(floor);
    let mut text = format!("{}\n{}", regime_name(floor.regime), markdown(&header, 1, &rows));
    let _ = writeln!(text, "\n{}", verdict(floor));
    let overlapped = floor.overlapped_seconds();
    if overlapped < 0.9995 * floor.seconds() {
        let _ = writeln!(
            text,
            "with all classes overlapped (the single maximum over the totals): {}",
            duration(overlapped)
        );
    }
    if let Some((compute, peak)) = floor.peak {
        let _ = writeln!(text, "peak: dense {} {} for most of the FLOP", compute.name(), scaled(peak, "FLOP/s"));
    } else {
        let _ = writeln!(text, "no peak is known for `{}`: compute is not counted", subject.hardware.name);
    }
    text
}

/// The table of one pass: classes, their sum, and what stands beside it.
pub(super) fn pass_rows(floor: &Floor) -> ([&'static str; 8], Vec<Vec<String>>) {
    let mut rows = operation_rows(&floor.operations, floor.seconds());
    rows.push(total_row(floor));
    rows.extend(floor.communication.iter().map(|line| apart(line.name, line.bytes, line.seconds)));
    rows.push(apart("activations", floor.activation_bytes, floor.activation_s));
    let mut step = vec![String::new(); HEADER.len()];
    "= step".clone_into(&mut step[0]);
    step[5] = milliseconds(floor.step_seconds());
    rows.push(step);
    (HEADER, rows)
}

const HEADER: [&str; 8] = ["class", "bytes", "FLOP", "memory ms", "compute ms", "ms", "limit", "share"];

/// The rows of classes, shared with training.
pub(super) fn operation_rows(operations: &[Operation], seconds: f64) -> Vec<Vec<String>> {
    operations
        .iter()
        .map(|row| {
            vec![
                row.class.name().to_owned(),
                grouped(row.bytes),
                scaled(row.flops as f64, "FLOP"),
                milliseconds(row.memory_s),
                milliseconds(row.compute_s),
                milliseconds(row.seconds()),
                row.limiter().name().to_owned(),
                format!("{:.1} %", 100.0 * row.seconds() / seconds),
            ]
        })
        .collect()
}

pub(super) fn operations_table(rows: &[Vec<String>]) -> String {
    markdown(&HEADER, 1, rows)
}

fn total_row(floor: &Floor) -> Vec<String> {
    vec![
        "= floor".to_owned(),
        grouped(floor.bytes()),
        scaled(floor.flops() as f64, "FLOP"),
        milliseconds(floor.memory_s()),
        milliseconds(floor.compute_s()),
        milliseconds(floor.seconds()),
        floor.limiter().name().to_owned(),
        "100.0 %".to_owned(),
    ]
}

/// A line beside the floor, not part of it.
pub(super) fn apart(name: &str, bytes: u128, seconds: f64) -> Vec<String> {
    vec![
        format!("+ {name}"),
        grouped(bytes),
        String::new(),
        String::new(),
        String::new(),
        milliseconds(seconds),
        String::new(),
        String::new(),
    ]
}

/// The one line that says it.
pub(super) fn verdict(floor: &Floor) -> String {
    let mut line = format!("floor {} = {} tokens/s", duration(floor.seconds()), rate(floor.tokens_per_second()));
    let _ = match floor.regime {
        Regime::Decode { batch, context, .. } => {
            let _ = write!(line, " at ");
            if batch > 1 {
                let _ = write!(line, "batch {batch}, ");
            }
            write!(line, "context {context}; reads {}", scaled(floor.bytes() as f64, "B"))
        }
        Regime::Prefill { batch, prompt, .. } => {
            let _ = write!(line, " for {batch} × {prompt} tokens");
            write!(line, "; moves {}", scaled(floor.bytes() as f64, "B"))
        }
    };
    let _ = write!(line, "; {}-bound", floor.limiter().name());
    if let Some(ridge) = floor.ridge {
        let intensity = floor.intensity();
        let _ = if intensity < ridge {
            write!(line, ", {}× below the ridge", significant(ridge / intensity, 3))
        } else {
            write!(line, ", {}× above the ridge", significant(intensity / ridge, 3))
        };
    }
    line
}

/// Both crossovers in words.
pub(super) fn crossings(crossover: &Crossover, regime: Regime) -> String {
    let context = regime.context();
    let linear = match crossover.linear_layers {
        Some(batch) => format!("the linear layers from batch {batch} on"),
        None => "the linear layers at no batch".to_owned(),
    };
    let whole = match crossover.whole_pass {
        WholePass::FromBatch(batch) => format!("the whole pass at context {context} from batch {batch} on"),
        WholePass::NeverFromContext(first) => {
            format!("the whole pass never, from context {first} on (each sequence adds more KV time than FLOP time)")
        }
    };
    format!("compute-bound: {linear}; {whole}\n")
}

/// Speculation in words.
pub(super) fn speculated(speculation: &Speculation) -> String {
    let (decode, draft, verify) = speculation.seconds;
    format!(
        "\nspeculation, k = {}: {} tokens a pass, speed-up {}\n  {} / ({} × {} + {}): a draft pass reads {} and takes {}, decode {}, \
         verifying {} positions {}\n  {} tokens/s\n",
        speculation.k,
        significant(speculation.tokens_per_pass, 4),
        significant(speculation.speedup, 4),
        significant(speculation.tokens_per_pass, 4),
        speculation.k,
        significant(speculation.draft_cost, 4),
        significant(speculation.verify_cost, 4),
        scaled(speculation.draft_bytes as f64, "B"),
        duration(draft),
        duration(decode),
        speculation.k + 1,
        duration(verify),
        rate(speculation.tokens_per_second),
    )
}

/// What the floor leaves out, for this model, pass and machine.
pub(super) fn not_counted(subject: &Subject, floor: &Floor) -> Vec<String> {
    let mut notes = vec![
        "activations (shown apart), launches, synchronisation, sampling".to_owned(),
        "arithmetic of norms, softmax, rotary embedding and activation functions".to_owned(),
    ];
    match floor.regime {
        Regime::Decode { .. } => notes.push("writing the new KV entries (with the activations)".to_owned()),
        Regime::Prefill { all_logits, .. } => {
            notes.push("reading KV entries again in attention (KV bytes are those written)".to_owned());
            if !all_logits {
                notes.push("logits but the last".to_owned());
            }
        }
    }
    if floor.setting.tensor_parallel > 1 {
        notes.push("gathering the logits between devices".to_owned());
    }
    let layers = &subject.shape.layers;
    if layers.iter().any(|layer| matches!(layer.attention, Attention::Recurrent { .. })) {
        notes.push("writing the recurrent states".to_owned());
    }
    if subject.shape.predictor.is_some() {
        notes.push("the multi-token-prediction layer (`--draft mtp` uses it)".to_owned());
    }
    let positions = floor.regime.context();
    if let Some(most) = subject.shape.context_length.filter(|&most| positions > most) {
        notes.push(format!("that the model was made for {most} positions, fewer than the {positions} asked for"));
    }
    notes.extend(subject.shape.notes.iter().cloned());
    notes
}

/// The lines of communication as their formulas.
pub(super) fn communication_formulas(lines: &[Communication]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {}: {} = {}", line.name, line.formula, duration(line.seconds));
        text
    })
}

/// `memory` or `compute`, for cells.
pub(super) fn limiter(floor: &Floor) -> &'static str {
    match floor.limiter() {
        Limiter::Memory => "memory",
        Limiter::Compute => "compute",
    }
}
