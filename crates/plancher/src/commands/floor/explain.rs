//! `--explain`: each formula with the numbers in it, and the conventions.

use std::fmt::Write as _;

use plancher_floor::{Attention, Class, Floor, Format, Operation, Regime, Weight, expected_share};

use super::quantity::{duration, grouped, scaled, significant};
use super::report::{communication_formulas, regime_name};
use super::{Outcome, Subject};

/// The conventions that every count follows.
const CONVENTIONS: &str = "\
conventions
  1. GB is 1e9 bytes.
  2. Weights read a pass: all matrices, norms, biases and the head; of the input embedding one row a token, not counted.
     Tied embeddings are stored once and read once, as the head. `--head-weights` sets the head's format alone.
  3. KV read at context S: S tokens, min(S, window) in windowed layers; latent attention kv_lora_rank + rope dim a layer
     and token; recurrent layers their constant state.
  4. head_dim is the configuration's own where it gives one, else its architecture's, else hidden / heads.
  5. FLOP are 2 per multiply-add; attention 4 · heads · head_dim · S a token and layer, S/2 on average in a causal pass
     (PaLM counts S). Prefill computes the head at the last position; `--all-logits` at all.
  6. The floor is the sum over classes of max(bytes / bandwidth, FLOP / peak).
  7. Peaks are dense rates of the fastest operands that hold the weights; `--compute` chooses, `--ceiling measured` uses
     measured rates.
  8. Quantised weights carry their scales: int4 with an fp16 scale per 128 is 4.125 bit. `--weights` leaves norms, biases,
     routers and an untied embedding as they are.
  9. Experts: E·(1 − (1 − k/E)^tokens) distinct ones are read; FLOP are those of the k routed and the shared ones.
 10. Tensor parallel: query heads, features and the vocabulary are divided; norms, routers and latent rows are held by
     every device, KV heads by several once there are more devices than heads. Two all-reduces a layer, each of two hops
     of latency and 2·(n − 1)/n of its bytes, are lines of their own.
 11. Training: 6·N a token, N the matrix parameters it passes, and 3 × the causal attention; a step moves 30 bytes a
     parameter (bf16 weights twice, gradient; f32 master and two moments, read and written). MFU counts model FLOP, HFU
     also what is computed again: full checkpointing is one more forward pass, +33.3 %.
 12. Speculation: (1 − a^(k+1)) / (1 − a) tokens a pass, k + 1 at a = 1; divided by k draft passes and one verifying pass
     of k + 1 positions, in decode passes, from the two models' own floors.
";

/// The formulas of every pass.
pub(super) fn outcome(outcome: &Outcome) -> String {
    let mut text = String::new();
    for floor in std::iter::once(&outcome.floor).chain(&outcome.prefill) {
        text.push_str(&pass(&outcome.subject, floor));
    }
    let _ = write!(text, "\n{CONVENTIONS}");
    text
}

fn pass(subject: &Subject, floor: &Floor) -> String {
    let mut text = format!("\nformulas: {}\n", regime_name(floor.regime));
    for row in &floor.operations {
        let _ = writeln!(text, "{}", row.class.name());
        let lines = if row.class == Class::Attention {
            attention_lines(subject, floor)
        } else {
            weight_lines(subject, floor, row.class)
        };
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "  {}", time_line(subject, row));
    }
    let _ = writeln!(text, "sum of the longer of both, class by class: {}", duration(floor.seconds()));
    if !floor.communication.is_empty() {
        let _ = write!(text, "communication\n{}", communication_formulas(&floor.communication));
    }
    let _ = writeln!(
        text,
        "activations (a model: every matrix reads its input and writes its output once, in bf16): {} B / {} = {}",
        grouped(floor.activation_bytes),
        scaled(subject.hardware.bandwidth, "B/s"),
        duration(floor.activation_s)
    );
    text
}

fn time_line(subject: &Subject, row: &Operation) -> String {
    let mut line = format!(
        "{} B / {} = {}",
        grouped(row.bytes),
        scaled(subject.hardware.bandwidth, "B/s"),
        duration(row.memory_s)
    );
    if row.compute_s > 0.0 {
        let _ = write!(
            line,
            "; {} FLOP / {} = {}",
            grouped(row.flops),
            scaled(row.flops as f64 / row.compute_s, "FLOP/s"),
            duration(row.compute_s)
        );
    }
    let _ = write!(line, "; {}", row.limiter().name());
    line
}

/// Equal weights of a class, counted.
fn weight_lines(subject: &Subject, floor: &Floor, class: Class) -> Vec<String> {
    let mut groups: Vec<(&Weight, u64)> = Vec::new();
    for weight in subject.shape.weights().filter(|weight| weight.class == class) {
        match groups.iter_mut().find(|(other, _)| *other == weight) {
            Some((_, count)) => *count += 1,
            None => groups.push((weight, 1)),
        }
    }
    let tokens = match floor.regime {
        Regime::Decode { batch, positions, .. } => batch * positions,
        Regime::Prefill { batch, prompt, .. } => batch * prompt,
    };
    let devices = floor.setting.tensor_parallel;
    let mut lines: Vec<String> =
        groups.into_iter().map(|(weight, count)| weight_line(weight, count, tokens, devices)).collect();
    if class != Class::Norms {
        let per_token = match (class, floor.regime) {
            (Class::Head, Regime::Prefill { batch, all_logits: false, .. }) => batch,
            _ => tokens,
        };
        lines.push(format!("FLOP: 2 × the elements one token uses × {per_token} tokens"));
    }
    lines
}

fn weight_line(weight: &Weight, count: u64, tokens: u64, devices: u64) -> String {
    let mut line = format!("{count} × ({} × {}) {}", weight.rows, weight.columns, weight.format);
    let bits = weight.format.bits();
    if weight.format.block().0 > 1 {
        let _ = write!(line, " ({} bit with scales)", significant(bits, 5));
    }
    if let Some(experts) = weight.experts {
        let share = expected_share(experts, tokens);
        let _ = write!(
            line,
            " × {} of {} experts ({} · (1 − (1 − {}/{})^{tokens}))",
            significant(share * experts.total as f64, 5),
            experts.total,
            experts.total,
            experts.active,
            experts.total
        );
    }
    if let Ok((held, of)) = weight.shard.part(devices)
        && held < of
    {
        let _ = write!(line, " × {held}/{of} on each device");
    }
    line
}

/// Equal layers, counted.
fn attention_lines(subject: &Subject, floor: &Floor) -> Vec<String> {
    let mut groups: Vec<(Attention, u64)> = Vec::new();
    for layer in &subject.shape.layers {
        match groups.iter_mut().find(|(other, _)| *other == layer.attention) {
            Some((_, count)) => *count += 1,
            None => groups.push((layer.attention, 1)),
        }
    }
    let (batch, context, what) = match floor.regime {
        Regime::Decode { batch, context, .. } => (batch, context, "read"),
        Regime::Prefill { batch, prompt, .. } => (batch, prompt, "written"),
    };
    groups
        .into_iter()
        .map(|(attention, count)| attention_line(attention, count, batch, context, floor.setting.kv, what))
        .collect()
}

fn attention_line(attention: Attention, count: u64, batch: u64, context: u64, kv: Format, what: &str) -> String {
    let visible = attention.visible(context);
    let bytes = significant(kv.bits() / 8.0, 4);
    match attention {
        Attention::Heads { n_heads, n_kv_heads, head_dim, value_dim, window } => {
            let windowed = window.map(|window| format!(" (window {window})")).unwrap_or_default();
            format!(
                "{count} layers × {n_kv_heads} KV heads × ({head_dim} + {value_dim}) × {bytes} B × {visible} tokens{windowed} × batch \
                 {batch}, {what}; FLOP 2 × {n_heads} heads × ({head_dim} + {value_dim}) a pair of tokens"
            )
        }
        Attention::Latent { n_heads, kv_rank, rope_dim, nope_dim, value_dim } => format!(
            "{count} layers × ({kv_rank} + {rope_dim}) × {bytes} B × {visible} tokens × batch {batch}, {what}; FLOP 2 × {n_heads} heads × \
             (2 × {kv_rank} + {rope_dim}) a pair when decoding on the compressed rows, ({nope_dim} + {rope_dim} + {value_dim}) in a \
             causal pass"
        ),
        Attention::Recurrent { n_heads, state_elements, flops_per_token } => format!(
            "{count} layers × {state_elements} state elements ({n_heads} heads) × 4 B × batch {batch}; {flops_per_token} FLOP a token"
        ),
    }
}
