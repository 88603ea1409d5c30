//! The models and machines that ship with the crate, as data with their sources.

mod hardware;

pub use hardware::{HARDWARE_NAMES, hardware};

use serde_json::{Map, Value};

use crate::error::Result;
use crate::{FloorError, ModelShape, config};

/// The fields of each model's own `config.json` that decide its floor; `_source` says where it lies.
const MODELS: &str = include_str!("models.json");

fn models() -> Map<String, Value> {
    serde_json::from_str(MODELS).unwrap_or_default()
}

/// The names of the shipped models.
#[must_use]
pub fn model_names() -> Vec<String> {
    models().into_iter().map(|(name, _)| name).collect()
}

/// The shipped model of that name.
///
/// # Errors
/// When there is none.
pub fn model(name: &str) -> Result<ModelShape> {
    match models().get(name) {
        Some(config) => config::from_json(name, config),
        None => Err(FloorError::UnknownName {
            kind: "model preset",
            name: name.to_owned(),
            known: model_names().join(", "),
        }),
    }
}

/// Where the shipped model's configuration was taken from.
#[must_use]
pub fn model_source(name: &str) -> Option<String> {
    models().get(name)?.get("_source")?.as_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn every_model_has_the_parameters_its_checkpoint_has() {
        let expected: [(&str, u128); 21] = [
            ("llama-2-7b", 6_738_415_616),
            ("llama-2-13b", 13_015_864_320),
            ("llama-2-70b", 68_976_648_192),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("llama-3.1-405b", 405_853_388_800),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-8b", 8_190_735_360),
            ("qwen3-32b", 32_762_123_264),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("mixtral-8x7b", 46_702_792_704),
            ("mistral-7b", 7_241_732_096),
            ("gpt-oss-20b", 20_914_757_184),
            ("deepseek-v3", 671_026_419_200),
            ("gemma-3-270m", 268_098_176),
            ("smollm2-135m", 134_515_008),
            ("qwen2.5-coder-0.5b", 494_032_768),
        ];
        let found: Vec<(String, u128)> = model_names()
            .into_iter()
            .map(|name| (name.clone(), model(&name).unwrap().params_total().unwrap()))
            .collect();
        assert_eq!(found, expected.map(|(name, params)| (name.to_owned(), params)));
    }

    #[test]
    fn kv_bytes_a_token_are_those_of_the_model_cards() {
        let kv = |name: &str| model(name).unwrap().kv_bytes_per_token(Format::Bf16).unwrap();
        assert_eq!(kv("llama-3.1-8b"), 131_072);
        assert_eq!(kv("llama-2-7b"), 524_288);
        assert_eq!(kv("qwen3-0.6b"), 114_688);
        assert_eq!(kv("deepseek-v3"), 70_272);
        assert_eq!(kv("mixtral-8x7b"), 131_072);
        assert_eq!(kv("gpt-oss-20b"), 49_152);
        assert_eq!(kv("gemma-3-270m"), 18_432);
    }

    #[test]
    fn every_preset_names_its_source_and_an_unknown_one_lists_them() {
        for name in model_names() {
            assert!(model_source(&name).unwrap().starts_with("https://huggingface.co/"));
        }
        assert!(model("llama-9").unwrap_err().to_string().contains("deepseek-v3"));
    }
}
