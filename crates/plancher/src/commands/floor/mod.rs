//! `plancher floor`: the least time a step can take on a machine, every byte accounted for.

mod arguments;
mod compare;
mod explain;
mod fit;
mod gap;
mod html;
mod json;
mod machine;
mod model;
mod quantity;
mod report;
mod roofline;
mod seed_tables;
mod sweep;
mod training;

pub(crate) use arguments::Arguments;

use anyhow::Context as _;
use plancher_floor::fit::{check, fit};
use plancher_floor::{
    Acceptance, Crossover, Draft, Floor, FloorError, Hardware, ModelShape, Regime, Setting, Speculation, crossover,
    floor, speculation,
};
use serde_json::{Map, Value};

use self::arguments::{DraftOptions, FloorCommand, MachineOptions, Options};
use crate::failure::usage;
use crate::output;

/// A mistake in the input, as everything is that this command can meet: exit status 2.
fn refused(error: impl std::fmt::Display) -> anyhow::Error {
    usage(error.to_string())
}

/// A model on a machine, with what else decides a pass.
struct Subject {
    shape: ModelShape,
    hardware: Hardware,
    setting: Setting,
    ignore_memory: bool,
}

impl Subject {
    fn open(model: &str, machine: &MachineOptions) -> anyhow::Result<Self> {
        let shape = model::open(model)?.with_weights(machine.weights, machine.head_weights);
        Ok(Self {
            shape,
            hardware: machine::open(machine)?,
            setting: machine.setting(),
            ignore_memory: machine.ignore_memory,
        })
    }

    /// The floor of a pass, after asking whether it fits.
    fn floor(&self, regime: Regime) -> plancher_floor::Result<Floor> {
        let (batch, context) = match regime {
            Regime::Decode { batch, context, .. } => (batch, context),
            Regime::Prefill { batch, prompt, .. } => (batch, prompt),
        };
        let floor = floor(&self.shape, &self.hardware, regime, self.setting)?;
        if !self.ignore_memory {
            check(&self.shape, &self.hardware, self.setting, batch, context)?;
        }
        Ok(floor)
    }
}

/// Everything that one call computes before anything is printed: an error leaves no half result.
struct Outcome {
    subject: Subject,
    floor: Floor,
    prefill: Option<Floor>,
    crossover: Option<Crossover>,
    speculation: Option<Speculation>,
    gap: Option<plancher_floor::gap::Gap>,
    sweeps: Vec<sweep::Sweep>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Some(FloorCommand::Compare(arguments)) => return compare::run(arguments),
        Some(FloorCommand::Fit(arguments)) => return fit::run(arguments),
        None => {}
    }
    let options = &arguments.options;
    if options.svg.is_some() && options.svg == options.html {
        return Err(usage("floor: `--svg` and `--html` name the same file"));
    }
    if options.seed_tables {
        return seed_tables::run(options.json);
    }
    let Some(model) = &options.model else {
        return Err(usage("floor: name a MODEL: a preset, a config.json, a directory, a GGUF file or org/name"));
    };
    let subject = Subject::open(model, &options.machine)?;
    if options.training.train {
        return training::run(options, &subject);
    }
    let outcome = compute(options, subject)?;
    // Files first: what is printed is then the whole result.
    if let Some(path) = &options.svg {
        write(path, &roofline::figure(&outcome))?;
    }
    if let Some(path) = &options.html {
        write(path, &html::page(&outcome))?;
    }
    if options.json {
        return output::json(&json::outcome(&outcome));
    }
    let mut text = report::outcome(&outcome);
    if options.explain {
        text.push_str(&explain::outcome(&outcome));
    }
    Ok(output::text(&text)?)
}

fn compute(options: &Options, subject: Subject) -> anyhow::Result<Outcome> {
    let pass = &options.pass;
    let prefill = pass.prompt.map(|prompt| Regime::Prefill { batch: pass.batch, prompt, all_logits: pass.all_logits });
    let decode = Regime::decode(pass.batch, pass.context.unwrap_or(arguments::DEFAULT_CONTEXT));
    // A prompt alone asks for prefill; with a context beside it both are shown.
    let (first, second) = match (prefill, pass.context) {
        (Some(prefill), None) => (prefill, None),
        (prefill, _) => (decode, prefill),
    };
    let floor = subject.floor(first).map_err(refused)?;
    let prefill = second.map(|regime| subject.floor(regime)).transpose().map_err(refused)?;
    let (mut crossing, mut speculated) = (None, None);
    if let Regime::Decode { batch, context, .. } = first {
        crossing = crossover(&subject.shape, &subject.hardware, context, subject.setting).map_err(refused)?;
        speculated = speculate(options, &subject, batch, context)?;
    } else if options.draft.draft.is_some() {
        return Err(usage("floor: `--draft` speeds up decoding: give `--context`, or leave `--prompt` out"));
    }
    let gap = gap::compute(options, &subject, &floor)?;
    let sweeps = options
        .sweep
        .iter()
        .map(|sweep| sweep::compute(sweep, options, &subject))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Outcome { subject, floor, prefill, crossover: crossing, speculation: speculated, gap, sweeps })
}

/// The draft that the options name, a method's preset or a model, and its length where that is known.
fn draft(options: &DraftOptions) -> anyhow::Result<Option<(Draft, Option<u64>)>> {
    let Some(name) = &options.draft else {
        if options.k.is_some() || options.acceptance.is_some() {
            return Err(usage(
                "floor: `--k` and `--acceptance` belong to `--draft`: name a model, mtp, medusa or eagle",
            ));
        }
        return Ok(None);
    };
    let draft = match Draft::preset(name) {
        Some(draft) => draft,
        None => Draft::Model(Box::new(model::open(name)?)),
    };
    let k = options.k.or(draft.usual_length());
    Ok(Some((draft, k)))
}

fn acceptance(options: &DraftOptions) -> anyhow::Result<Acceptance> {
    match options.acceptance.as_deref() {
        None => {
            Err(usage("floor: `--draft` needs `--acceptance`, which only a measurement gives: 0.7, or 0.8,0.7,0.6"))
        }
        Some([one]) => Ok(Acceptance::Constant(*one)),
        Some(list) => Ok(Acceptance::Positions(list.to_vec())),
    }
}

fn speculate(options: &Options, subject: &Subject, batch: u64, context: u64) -> anyhow::Result<Option<Speculation>> {
    let Some((draft, k)) = draft(&options.draft)? else { return Ok(None) };
    let Some(k) = k else {
        if options.sweep.iter().any(|sweep| sweep.variable == sweep::Variable::Draft) {
            return Ok(None);
        }
        return Err(usage("floor: `--draft` of a model needs `--k`, the number of drafted tokens"));
    };
    let acceptance = acceptance(&options.draft)?;
    let Subject { shape, hardware, setting, .. } = subject;
    if let Draft::Model(small) = &draft
        && !subject.ignore_memory
    {
        check_both(subject, small, batch, context).map_err(refused)?;
    }
    speculation(shape, hardware, *setting, batch, context, &draft, k, &acceptance).map(Some).map_err(refused)
}

/// Refuses a draft that does not fit beside the model it drafts for.
fn check_both(subject: &Subject, draft: &ModelShape, batch: u64, context: u64) -> plancher_floor::Result<()> {
    let Subject { shape, hardware, setting, .. } = subject;
    if hardware.memory_bytes.is_none() {
        return Ok(());
    }
    let (large, small) =
        (fit(shape, hardware, *setting, batch, context)?, fit(draft, hardware, *setting, batch, context)?);
    let needed = large.needed().saturating_add(small.needed());
    if needed <= large.capacity {
        return Ok(());
    }
    Err(FloorError::DoesNotFit {
        what: format!("{} with the draft {} at batch {batch} and context {context}", shape.name, draft.name),
        hardware: hardware.name.clone(),
        needed,
        available: large.capacity,
    })
}

fn write(path: &std::path::Path, content: &str) -> anyhow::Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))
}

/// An object with its keys in this order.
fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
