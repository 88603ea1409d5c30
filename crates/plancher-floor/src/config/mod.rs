//! From a parsed `config.json` to a [`ModelShape`]. More architectures are understood here than the loader runs;
//! one that is not is refused by name, and what a known one has but is not counted is listed in
//! [`ModelShape::notes`].

mod deepseek;
mod experts;
mod fields;
mod gpt;
mod llama;
mod parts;
mod quantization;

use fields::Fields;
use serde_json::Value;

use crate::error::Result;
use crate::{FloorError, Format, ModelShape};

/// The architectures understood, as error messages list them.
pub const ARCHITECTURES: &str = "llama, mistral, qwen2, qwen3, smollm3, phi3, gemma, gemma2, gemma3, mixtral, qwen2_moe, \
     qwen3_moe, qwen3_next, gpt_oss, deepseek_v2, deepseek_v3, opt, gpt2, gpt_neox";

/// Reads the configuration of a model as the hub has it.
///
/// # Errors
/// When the architecture is not understood, a needed field is missing or has an impossible value, or the weights
/// are quantised by a method that is not understood.
pub fn from_json(name: &str, config: &Value) -> Result<ModelShape> {
    let fields = Fields::new("config.json", config)?;
    let architecture = architecture(fields)?;
    let base = stored_format(fields)?;
    let format = base.unwrap_or(Format::Bf16);
    let shape = match architecture {
        "gemma3" => match fields.object("text_config")? {
            Some(text) => llama::read(name, "gemma3", text, format).map(|mut shape| {
                shape.notes.push("the vision tower and its projector".to_owned());
                shape
            }),
            None => llama::read(name, "gemma3", fields, format),
        },
        "mixtral" | "qwen2_moe" | "qwen3_moe" | "qwen3_next" | "gpt_oss" => {
            experts::read(name, architecture, fields, format)
        }
        "deepseek_v2" | "deepseek_v3" => deepseek::read(name, fields, format),
        "opt" => gpt::read_opt(name, fields, format),
        "gpt2" => gpt::read_gpt2(name, fields, format),
        "gpt_neox" => gpt::read_gpt_neox(name, fields, format),
        other => llama::read(name, other, fields, format),
    }?;
    let mut shape = quantization::apply(shape, fields, format)?;
    if base.is_none() {
        shape.notes.push("the configuration names no `torch_dtype`: weights are taken as bf16".to_owned());
    }
    Ok(shape)
}

/// The architecture by `architectures`, else by `model_type`, in the spelling of `model_type`.
fn architecture(fields: Fields<'_>) -> Result<&'static str> {
    let name = match fields.list("architectures")?.and_then(<[Value]>::first) {
        Some(first) => {
            first.as_str().ok_or_else(|| FloorError::invalid("architectures", format!("`{first}` is not a string")))?
        }
        None => fields
            .text("model_type")?
            .ok_or_else(|| FloorError::invalid("architectures", "is missing, and so is `model_type`"))?,
    };
    let known = [
        ("LlamaForCausalLM", "llama"),
        ("MistralForCausalLM", "mistral"),
        ("Qwen2ForCausalLM", "qwen2"),
        ("Qwen3ForCausalLM", "qwen3"),
        ("SmolLM3ForCausalLM", "smollm3"),
        ("Phi3ForCausalLM", "phi3"),
        ("GemmaForCausalLM", "gemma"),
        ("Gemma2ForCausalLM", "gemma2"),
        ("Gemma3ForCausalLM", "gemma3"),
        ("Gemma3ForConditionalGeneration", "gemma3"),
        ("gemma3_text", "gemma3"),
        ("MixtralForCausalLM", "mixtral"),
        ("Qwen2MoeForCausalLM", "qwen2_moe"),
        ("Qwen3MoeForCausalLM", "qwen3_moe"),
        ("Qwen3NextForCausalLM", "qwen3_next"),
        ("GptOssForCausalLM", "gpt_oss"),
        ("DeepseekV2ForCausalLM", "deepseek_v2"),
        ("DeepseekV3ForCausalLM", "deepseek_v3"),
        ("OPTForCausalLM", "opt"),
        ("GPT2LMHeadModel", "gpt2"),
        ("GPTNeoXForCausalLM", "gpt_neox"),
    ];
    known
        .into_iter()
        .find(|(class, model_type)| name == *class || name == *model_type)
        .map(|(_, model_type)| model_type)
        .ok_or_else(|| FloorError::UnsupportedArchitecture { name: name.to_owned() })
}

/// The format that `dtype` or `torch_dtype` names.
fn stored_format(fields: Fields<'_>) -> Result<Option<Format>> {
    let text = fields.object("text_config").ok().flatten();
    for (fields, field) in [(Some(fields), "dtype"), (Some(fields), "torch_dtype"), (text, "torch_dtype")] {
        let Some(name) = fields.map(|fields| fields.text(field)).transpose()?.flatten() else { continue };
        return match name {
            "bfloat16" => Ok(Some(Format::Bf16)),
            "float16" => Ok(Some(Format::F16)),
            "float32" => Ok(Some(Format::F32)),
            other => Err(FloorError::invalid(field, format!("`{other}` is not bfloat16, float16 or float32"))),
        };
    }
    Ok(None)
}

/// The window of each layer, from `layer_types` where it is given, else by `sliding`.
fn windows(
    fields: Fields<'_>,
    n_layers: u64,
    window: Option<u64>,
    sliding: impl Fn(u64) -> bool,
) -> Result<Vec<Option<u64>>> {
    let needed = || window.ok_or_else(|| FloorError::invalid("sliding_window", "is missing, but layers slide"));
    let Some(types) = fields.list("layer_types")? else {
        return (0..n_layers).map(|layer| if sliding(layer) { needed().map(Some) } else { Ok(None) }).collect();
    };
    if types.len() as u64 != n_layers {
        return Err(FloorError::invalid("layer_types", format!("has {} entries for {n_layers} layers", types.len())));
    }
    types
        .iter()
        .map(|layer| match layer.as_str() {
            Some("full_attention" | "linear_attention") => Ok(None),
            Some("sliding_attention") => needed().map(Some),
            _ => Err(FloorError::invalid("layer_types", format!("`{layer}` is not understood"))),
        })
        .collect()
}
