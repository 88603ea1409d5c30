//! Arguments that several commands share, and the parsers that name the flag when a value is out of range.

use clap::{Args, ValueEnum};
use plancher_engine::Executor;
use plancher_engine::sampling::SamplingParams;
use plancher_model::GenerationDefaults;

use crate::placement::{PlacementOptions, Restrictions};

/// The default preset.
pub(crate) const DEFAULT_MODEL: &str = "smollm2-135m";

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelOption {
    /// The model: a path, a preset, or org/name[@revision]
    #[arg(short, long, value_name = "MODEL", default_value = DEFAULT_MODEL, env = "PLANCHER_MODEL")]
    pub(crate) model: String,
}

/// How it runs.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Worker threads [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = worker_count, allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Positions of the context: prompt and answer together [default: the model's, at most 8192]
    #[arg(short, long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) placement: PlacementOptions,
    /// What runs the decode steps on a GPU
    #[arg(long, value_enum, default_value_t)]
    pub(crate) executor: StepExecutor,
}

impl RunOptions {
    /// The options that were given and only one kind of device has, by name.
    pub(crate) fn restrictions(&self) -> Restrictions {
        Restrictions { cpu: self.threads.map(|_| "--threads"), gpu: self.executor.gpu_option() }
    }
}

/// What runs the decode steps of one sequence on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StepExecutor {
    /// The persistent kernel where model, GPU and its memory allow it, else the graph
    #[default]
    Auto,
    /// A CUDA graph of kernels, replayed for every token
    Graph,
    /// One persistent kernel that decodes many tokens in a launch; it keeps a second copy of the weights
    Mega,
}

impl StepExecutor {
    /// The option by name and value, where it asks for something that only a GPU has.
    pub(crate) const fn gpu_option(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Graph => Some("--executor graph"),
            Self::Mega => Some("--executor mega"),
        }
    }
}

impl From<StepExecutor> for Executor {
    fn from(executor: StepExecutor) -> Self {
        match executor {
            StepExecutor::Auto => Self::Auto,
            StepExecutor::Graph => Self::Graph,
            StepExecutor::Mega => Self::Mega,
        }
    }
}

/// How tokens are chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling (in this order: penalty, top-k, top-p, min-p, temperature)")]
pub(crate) struct SamplingOptions {
    /// Divide the logits by T before drawing; 0 always takes the most likely token [default: the model's, else 0]
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Draw from the K most likely tokens; 0 for all [default: the model's, else 0]
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<usize>,
    /// Draw from the fewest most likely tokens that hold probability P together [default: the model's, else 1]
    #[arg(long, value_name = "P", value_parser = top_p, allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Draw from tokens at least P times as likely as the most likely one [default: the model's, else 0]
    #[arg(long, value_name = "P", value_parser = min_p, allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Divide the positive logits of tokens that occurred by R, multiply the negative ones [default: the model's, else 1]
    #[arg(long, value_name = "R", value_parser = repetition_penalty, allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Seed of the draw; the same seed gives the same text
    #[arg(long, value_name = "SEED", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
}

impl SamplingOptions {
    /// The settings: what was given, else what the model's files say, else greedy.
    pub(crate) fn resolve(&self, model: &GenerationDefaults) -> SamplingParams {
        let neutral = SamplingParams::default();
        SamplingParams {
            temperature: self.temperature.or(model.temperature).unwrap_or(neutral.temperature),
            top_k: self.top_k.or(model.top_k).unwrap_or(neutral.top_k),
            top_p: self.top_p.or(model.top_p).unwrap_or(neutral.top_p),
            min_p: self.min_p.or(model.min_p).unwrap_or(neutral.min_p),
            repetition_penalty: self
                .repetition_penalty
                .or(model.repetition_penalty)
                .unwrap_or(neutral.repetition_penalty),
            seed: self.seed,
        }
    }
}

/// A whole number, 1 or more.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Err("must be 1 or more".to_owned()),
        Ok(value) => Ok(value),
        Err(error) => Err(error.to_string()),
    }
}

/// The most workers that a program is scheduled for.
pub(crate) const MOST_WORKERS: usize = 256;

/// A number of worker threads.
pub(crate) fn worker_count(text: &str) -> Result<usize, String> {
    match count(text)? {
        workers if workers > MOST_WORKERS => Err(format!("must be at most {MOST_WORKERS}")),
        workers => Ok(workers),
    }
}

fn checked(text: &str, set: impl FnOnce(&mut SamplingParams, f32)) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "is not a number".to_owned())?;
    let mut params = SamplingParams::default();
    set(&mut params, value);
    match params.validate() {
        Err(plancher_engine::EngineError::Parameter { expected, .. }) => Err(format!("must be {expected}")),
        Err(error) => Err(error.to_string()),
        Ok(()) => Ok(value),
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.temperature = value)
}

fn top_p(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.top_p = value)
}

fn min_p(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.min_p = value)
}

fn repetition_penalty(text: &str) -> Result<f32, String> {
    checked(text, |params, value| params.repetition_penalty = value)
}

/// Token ids separated by commas or white space.
pub(crate) fn parse_ids(text: &str) -> Result<Vec<u32>, String> {
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| format!("`{word}` is not a token id")))
        .collect()
}

/// A list of numbers given as one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List(pub(crate) Vec<usize>);

impl List {
    /// All numbers of several lists.
    pub(crate) fn concat(lists: &[Self]) -> Vec<usize> {
        lists.iter().flat_map(|list| list.0.iter().copied()).collect()
    }
}

/// Numbers as llama-bench lists them: `512`, `128,256`, `1-4`, `0-4096+1024`, `128-1024*2`.
pub(crate) fn parse_list(text: &str) -> Result<List, String> {
    const MOST: usize = 1000;
    let mut values = Vec::new();
    for part in text.split(',') {
        let number =
            |text: &str| text.trim().parse::<usize>().map_err(|_| format!("`{part}` is not a number or range"));
        let Some((first, rest)) = part.split_once('-') else {
            values.push(number(part)?);
            continue;
        };
        let (last, step, factor) = match (rest.split_once('+'), rest.split_once('*')) {
            (Some((last, step)), _) => (last, number(step)?, 1),
            (None, Some((last, factor))) => (last, 0, number(factor)?),
            (None, None) => (rest, 1, 1),
        };
        let (mut value, last) = (number(first)?, number(last)?);
        if value > last {
            return Err(format!("`{part}` is a range that ends before it begins"));
        }
        while value <= last {
            values.push(value);
            let next = value.checked_mul(factor).and_then(|product| product.checked_add(step));
            match next {
                Some(next) if next > value && values.len() < MOST => value = next,
                _ => return Err(format!("`{part}` is a range without an end")),
            }
        }
    }
    Ok(List(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_llama_bench() {
        assert_eq!(parse_list("512"), Ok(List(vec![512])));
        assert_eq!(parse_list("0,128"), Ok(List(vec![0, 128])));
        assert_eq!(parse_list("1-4"), Ok(List(vec![1, 2, 3, 4])));
        assert_eq!(parse_list("0-4096+2048,7"), Ok(List(vec![0, 2048, 4096, 7])));
        assert_eq!(parse_list("128-1024*2"), Ok(List(vec![128, 256, 512, 1024])));
        for bad in ["", "a", "1,", "5-", "0-8*2", "1-9*1", "1-9+0", "-3", "2-1", "0-99999999"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_separated_by_commas_or_space() {
        assert_eq!(parse_ids("1,2 3\n4, 5"), Ok(vec![1, 2, 3, 4, 5]));
        assert_eq!(parse_ids(" "), Ok(vec![]));
        assert!(parse_ids("1,-2").is_err() && parse_ids("4294967296").is_err());
    }

    #[test]
    fn a_flag_wins_over_the_models_own_setting() {
        let model = GenerationDefaults { temperature: Some(0.6), top_k: Some(20), ..GenerationDefaults::default() };
        let options = SamplingOptions {
            temperature: Some(0.0),
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            seed: 3,
        };
        let params = options.resolve(&model);
        assert_eq!((params.temperature.to_bits(), params.top_k, params.seed), (0, 20, 3));
    }
}
