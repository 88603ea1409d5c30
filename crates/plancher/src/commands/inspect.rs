//! `inspect`: what a model is, from its files alone.

use std::collections::BTreeMap;

use clap::Args;
use plancher_engine::{KV_FORMAT, model_shape};
use plancher_floor::Class;
use plancher_model::{LayerConfig, Model, Tensor, TensorKey};
use serde::Serialize;

use crate::arguments::DEFAULT_MODEL;
use crate::output::{bytes, grouped};
use crate::{output, prompt, session, table};

/// Show what a model is: architecture, shapes, tensor types, bytes a token, tokenizer, template
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The model: a path, a preset, or org/name[@revision]
    #[arg(value_name = "MODEL", default_value = DEFAULT_MODEL)]
    model: String,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print the chat template's source
    #[arg(long)]
    template: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    path: String,
    architecture: &'static str,
    layers: usize,
    hidden_size: usize,
    feed_forward_size: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    context_length: usize,
    window: Option<usize>,
    windowed_layers: usize,
    rope_layers: usize,
    tied_embeddings: bool,
    file_bytes: u64,
    parameters: u64,
    parameters_read_per_token: u64,
    weight_bytes: u64,
    weight_bytes_read_per_token: u64,
    kv_bytes_per_token: u64,
    types: Vec<TypeUse>,
    tokenizer: Option<String>,
    begin_token: Option<u32>,
    end_tokens: Vec<u32>,
    chat_template: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tensors: Vec<TensorRow>,
}

#[derive(Serialize)]
struct TypeUse {
    name: &'static str,
    tensors: usize,
    parameters: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct TensorRow {
    role: String,
    name: String,
    #[serde(rename = "type")]
    dtype: &'static str,
    rows: usize,
    columns: usize,
    bytes: u64,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let model = session::open_model(&arguments.model)?;
    if arguments.template {
        let template = model.chat_template.as_ref();
        let template = template.ok_or_else(|| anyhow::anyhow!("`{}` has no chat template", model.path.display()))?;
        return Ok(output::line(template.source()?)?);
    }
    let report = report(&model, arguments.tensors)?;
    if arguments.json { output::json(&report) } else { Ok(output::text(&text(&report))?) }
}

/// Stored bytes of a tensor.
pub(crate) fn tensor_bytes(tensor: &Tensor) -> u64 {
    tensor.dtype.row_bytes(tensor.columns).unwrap_or(0) as u64 * tensor.rows as u64
}

/// Tensors that are stored, in the order of the model; a tied head is the embedding.
fn stored(model: &Model) -> Vec<(TensorKey, &Tensor)> {
    let is_copy = |key: &TensorKey| model.config.tied_embeddings && *key == TensorKey::Embedding;
    let mut tensors: Vec<_> = model.weights.iter().filter(|(key, _)| !is_copy(key)).collect();
    tensors.sort_by_key(|(key, _)| *key);
    tensors
}

/// Stored parameters and their bytes.
pub(crate) fn parameters_and_bytes(model: &Model) -> (u64, u64) {
    let tensors = stored(model);
    let parameters = tensors.iter().map(|(_, tensor)| tensor.rows as u64 * tensor.columns as u64).sum();
    (parameters, tensors.iter().map(|(_, tensor)| tensor_bytes(tensor)).sum())
}

fn report(model: &Model, list_tensors: bool) -> anyhow::Result<Report> {
    let config = &model.config;
    let shape = model_shape(model);
    let read = |weight: &&plancher_floor::Weight| weight.class != Class::Embedding;
    let mut types: BTreeMap<&'static str, TypeUse> = BTreeMap::new();
    let tensors = stored(model);
    for (_, tensor) in &tensors {
        let name = tensor.dtype.name();
        let entry = types.entry(name).or_insert(TypeUse { name, tensors: 0, parameters: 0, bytes: 0 });
        entry.tensors += 1;
        entry.parameters += tensor.rows as u64 * tensor.columns as u64;
        entry.bytes += tensor_bytes(tensor);
    }
    let mut types: Vec<TypeUse> = types.into_values().collect();
    types.sort_by_key(|entry| std::cmp::Reverse(entry.bytes));
    let (parameters, weight_bytes) = parameters_and_bytes(model);
    let mut parameters_read = 0;
    let mut bytes_read = 0;
    for weight in shape.weights().filter(read) {
        let elements = weight.elements()?;
        parameters_read += elements as u64;
        bytes_read += weight.format.bytes(elements)? as u64;
    }
    let most = |size: fn(&LayerConfig) -> usize| config.layers.iter().map(size).max().unwrap_or(0);
    let rows = tensors.iter().filter(|_| list_tensors).map(|(key, tensor)| TensorRow {
        role: key.to_string(),
        name: tensor.name.clone(),
        dtype: tensor.dtype.name(),
        rows: tensor.rows,
        columns: tensor.columns,
        bytes: tensor_bytes(tensor),
    });
    Ok(Report {
        path: model.path.display().to_string(),
        architecture: config.architecture.name(),
        layers: config.layers.len(),
        hidden_size: config.hidden_size,
        feed_forward_size: most(LayerConfig::feed_forward_rows),
        heads: most(|layer| layer.n_heads),
        kv_heads: most(|layer| layer.n_kv_heads),
        head_dim: most(|layer| layer.head_dim),
        vocab_size: config.vocab_size,
        context_length: config.context_length,
        window: config.layers.iter().find_map(|layer| layer.window),
        windowed_layers: config.layers.iter().filter(|layer| layer.window.is_some()).count(),
        rope_layers: config.layers.iter().filter(|layer| layer.rope.is_some()).count(),
        tied_embeddings: config.tied_embeddings,
        file_bytes: model.weights.files().iter().map(|file| file.bytes().len() as u64).sum(),
        parameters,
        parameters_read_per_token: parameters_read,
        weight_bytes,
        weight_bytes_read_per_token: bytes_read,
        kv_bytes_per_token: shape.kv_bytes_per_token(KV_FORMAT)? as u64,
        types,
        tokenizer: model.tokenizer.as_ref().map(|tokenizer| tokenizer.description().to_owned()),
        begin_token: model.generation.begin_token,
        end_tokens: prompt::end_tokens(model),
        chat_template: model.chat_template.is_some(),
        tensors: rows.collect(),
    })
}

fn text(report: &Report) -> String {
    let mut fields: Vec<(&str, String)> = Vec::new();
    let mut field = |name, value| fields.push((name, value));
    let window = match (report.window, report.windowed_layers) {
        (Some(window), n) if n == report.layers => format!(", window {window}"),
        (Some(window), n) => format!(", window {window} in {n} layers"),
        (None, _) => String::new(),
    };
    let rope = match report.rope_layers {
        n if n == report.layers => String::new(),
        n => format!(", rotary embedding in {n} layers"),
    };
    field("model", report.path.clone());
    field("architecture", report.architecture.to_owned());
    field("layers", format!("{}{window}{rope}", report.layers));
    field("hidden size", format!("{}, feed-forward {}", report.hidden_size, report.feed_forward_size));
    field("heads", format!("{} query, {} key/value, of {}", report.heads, report.kv_heads, report.head_dim));
    field(
        "vocabulary",
        format!("{}{}", report.vocab_size, if report.tied_embeddings { ", head tied to the embedding" } else { "" }),
    );
    field("context", format!("{} positions", report.context_length));
    field(
        "parameters",
        format!("{} stored, {} read per token", grouped(report.parameters), grouped(report.parameters_read_per_token)),
    );
    field(
        "weights",
        format!("{} stored, {} read per token", bytes(report.weight_bytes), bytes(report.weight_bytes_read_per_token)),
    );
    field("keys and values", format!("{} per token of context (f16)", bytes(report.kv_bytes_per_token)));
    field("file", bytes(report.file_bytes));
    field("tokenizer", report.tokenizer.clone().unwrap_or_else(|| "none: token ids only".to_owned()));
    field("begin token", report.begin_token.map_or_else(|| "none".to_owned(), |token| token.to_string()));
    let end = report.end_tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    field("end tokens", if end.is_empty() { "none".to_owned() } else { end });
    field("chat template", if report.chat_template { "yes (--template prints it)" } else { "none" }.to_owned());
    let rows = report.types.iter().map(|entry| {
        vec![entry.name.to_owned(), entry.tensors.to_string(), grouped(entry.parameters), bytes(entry.bytes)]
    });
    let mut out = table::fields(&fields);
    out.push('\n');
    out.push_str(&table::markdown(&["type", "tensors", "parameters", "size"], 1, &rows.collect::<Vec<_>>()));
    if !report.tensors.is_empty() {
        let rows = report.tensors.iter().map(|row| {
            let shape = format!("{} x {}", row.rows, row.columns);
            vec![row.role.clone(), row.name.clone(), row.dtype.to_owned(), shape, bytes(row.bytes)]
        });
        out.push('\n');
        out.push_str(&table::markdown(&["role", "tensor", "type", "shape", "size"], 3, &rows.collect::<Vec<_>>()));
    }
    out
}
