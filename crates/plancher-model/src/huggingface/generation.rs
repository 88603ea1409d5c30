//! `generation_config.json`: end tokens and sampling defaults. Every field is optional, and so is the file.

use std::path::Path;

use crate::json::{Fields, read_object};
use crate::{GenerationDefaults, Result};

/// Reads `generation_config.json` of `directory`; end tokens of `config.json` (`model`) count as well.
pub(super) fn read(directory: &Path, model: Fields<'_>) -> Result<GenerationDefaults> {
    let mut defaults = GenerationDefaults::default();
    let path = directory.join("generation_config.json");
    if path.exists() {
        let object = read_object(&path)?;
        let fields = Fields::new(&path, &object);
        defaults.end_tokens = fields.tokens("eos_token_id")?;
        defaults.begin_token = fields.tokens("bos_token_id")?.first().copied();
        read_sampling(fields, &mut defaults)?;
    }
    for source in [Some(model), model.object("text_config")?].into_iter().flatten() {
        defaults.end_tokens.extend(source.tokens("eos_token_id")?);
        let begin = source.tokens("bos_token_id")?.first().copied();
        defaults.begin_token = defaults.begin_token.or(begin);
    }
    let mut seen = std::collections::HashSet::new();
    defaults.end_tokens.retain(|&token| seen.insert(token));
    Ok(defaults)
}

fn read_sampling(fields: Fields<'_>, defaults: &mut GenerationDefaults) -> Result<()> {
    let within = |name: &str, low: f64, high: f64| -> Result<Option<f32>> {
        let number = fields.number(name)?;
        match number {
            Some(n) if !(low..=high).contains(&n) => {
                Err(fields.invalid(name, format!("is {n}, expected a number from {low} to {high}")))
            }
            _ => Ok(number.map(|n| n as f32)),
        }
    };
    defaults.temperature = within("temperature", 0.0, 100.0)?;
    defaults.top_p = within("top_p", 0.0, 1.0)?;
    defaults.min_p = within("min_p", 0.0, 1.0)?;
    defaults.repetition_penalty = within("repetition_penalty", 0.01, 100.0)?;
    // Zero switches it off.
    if fields.value("top_k").is_some_and(|value| value.as_u64() != Some(0)) {
        defaults.top_k = fields.size("top_k", crate::limits::VOCABULARY)?;
    }
    // Said outright, this means greedy decoding, whatever else is set.
    if fields.flag("do_sample")? == Some(false) {
        defaults.temperature = Some(0.0);
    }
    Ok(())
}
