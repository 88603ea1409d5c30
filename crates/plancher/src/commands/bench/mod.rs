//! `bench`: speed of prompts and of decoding, as llama-bench measures it, beside the machine's ceiling.

mod report;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use plancher_engine::{BenchCase, CpuBackend, DecodeReport, Sequence, bench, model_shape};
use plancher_model::Model;

use self::report::Row;
use crate::arguments::{DEFAULT_MODEL, List, MOST_WORKERS, count, parse_list};
use crate::failure::usage;
use crate::interrupt::Interruptible;
use crate::progress::Progress;
use crate::{output, session};

/// Measure prompt and decode speed, as llama-bench does, and the fraction of the machine's read ceiling reached
///
/// Tests are named as llama-bench names them: `pp512` computes a prompt of 512 tokens, `tg128` decodes 128 tokens one
/// by one, `@ d4096` means after 4096 tokens of context. Speeds are mean ± standard deviation over the repetitions,
/// after one that warms up; tokenising and sampling are not included. Numbers may be lists (`128,512`) and ranges
/// (`1-4`, `0-4096+1024`, `128-1024*2`).
///
/// Decode rows also show the bytes read a second, the percentage of the ceiling (the rate at which the same threads
/// can only read the same weights), and every row a hash of its last logits: equal hashes are equal bits.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Models: paths, presets, or org/name[@revision]
    #[arg(short, long, value_name = "MODEL", value_delimiter = ',', default_value = DEFAULT_MODEL)]
    model: Vec<String>,
    /// Prompt lengths; 0 for none
    #[arg(short = 'p', long, value_name = "N", default_value = "512", value_parser = parse_list)]
    n_prompt: Vec<List>,
    /// Numbers of tokens to decode; 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = parse_list)]
    n_gen: Vec<List>,
    /// A prompt of P tokens and N decoded ones in one test, also spelt -pg
    #[arg(long, value_name = "P,N", value_parser = pair)]
    pg: Vec<(usize, usize)>,
    /// Tokens of context before the clock starts
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_parser = parse_list)]
    n_depth: Vec<List>,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = count)]
    repetitions: usize,
    /// Numbers of worker threads [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = parse_list)]
    threads: Vec<List>,
    /// How to print the results
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Write a trace of one decoded token (of the first model, thread count and depth; the median of nine) for
    /// ui.perfetto.dev, and print where its time went
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A Markdown table
    #[default]
    Md,
    /// Comma-separated values with a header
    Csv,
    /// One JSON array
    Json,
    /// One JSON object a line, as results come
    Jsonl,
}

/// `P,N`.
fn pair(text: &str) -> Result<(usize, usize), String> {
    let expected = || format!("`{text}` is not two numbers such as `512,128`");
    let (prompt, gen_) = text.split_once(',').ok_or_else(expected)?;
    Ok((prompt.parse().map_err(|_| expected())?, gen_.parse().map_err(|_| expected())?))
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cases = cases(arguments);
    let context = cases.iter().map(|case| case.positions()).max().unwrap_or(0);
    if context == 0 {
        return Err(usage("there is nothing to measure: every `-p`, `-n` and `-pg` is 0"));
    }
    let threads: Vec<Option<usize>> = match List::concat(&arguments.threads) {
        list if list.is_empty() => vec![None],
        list if list.iter().any(|&threads| threads == 0 || threads > MOST_WORKERS) => {
            return Err(usage(format!("`--threads` must be between 1 and {MOST_WORKERS}")));
        }
        list => list.into_iter().map(Some).collect(),
    };
    let interruptible = Interruptible::begin()?;
    let mut rows = Vec::new();
    'models: for (model_index, argument) in arguments.model.iter().enumerate() {
        let model = session::open_model(argument)?;
        session::check_positions(&model, "the longest test", context)?;
        for (threads_index, &threads) in threads.iter().enumerate() {
            let mut executor = session::executor(&model, threads, context.max(2))?;
            if let (Some(path), 0, 0) = (&arguments.trace, model_index, threads_index) {
                let depth = List::concat(&arguments.n_depth).first().copied().unwrap_or(0);
                let table = trace::run(&mut executor, depth.min(context.max(2) - 2), path)?;
                // Beside results for a program to read it would be in the way.
                match arguments.output {
                    Format::Md => output::text(&table)?,
                    _ => output::note(table.trim_end()),
                }
            }
            let workers = executor.workers();
            let mut sequence = Sequence::new(Box::new(CpuBackend::new(executor)));
            for &case in &cases {
                if interruptible.is_cancelled() {
                    break 'models;
                }
                let row = measure(&model, &mut sequence, case, arguments.repetitions, workers, &interruptible)?;
                if arguments.output == Format::Jsonl {
                    output::line(&serde_json::to_string(&row)?)?;
                }
                rows.push(row);
            }
        }
    }
    report::print(&rows, arguments.output)
}

/// The tests in llama-bench's order: per depth, prompts, then decoding, then both.
fn cases(arguments: &Arguments) -> Vec<BenchCase> {
    let mut cases = Vec::new();
    for n_depth in List::concat(&arguments.n_depth) {
        let prompts = List::concat(&arguments.n_prompt).into_iter().map(|n_prompt| (n_prompt, 0));
        let decodes = List::concat(&arguments.n_gen).into_iter().map(|n_gen| (0, n_gen));
        let tests = prompts.chain(decodes).chain(arguments.pg.iter().copied());
        let tests = tests.map(|(n_prompt, n_gen)| BenchCase { n_prompt, n_gen, n_depth });
        cases.extend(tests.filter(|case| case.tokens() > 0));
    }
    cases
}

fn measure(
    model: &Arc<Model>,
    sequence: &mut Sequence,
    case: BenchCase,
    repetitions: usize,
    workers: usize,
    interruptible: &Interruptible,
) -> anyhow::Result<Row> {
    let mut bar = Progress::count(case.to_string());
    let samples = bench(sequence, case, repetitions, &mut |done| {
        bar.set(done as u64, repetitions as u64);
        !interruptible.is_cancelled()
    })?;
    if !samples.reproducible {
        tracing::warn!("{case}: repetitions gave different logits");
    }
    let decode = if case.n_prompt == 0 {
        let (tokens_per_s, _) = samples.tokens_per_s(case);
        Some(DecodeReport::new(&model_shape(model), case.mean_context().max(1), 1.0 / tokens_per_s, samples.ceiling())?)
    } else {
        None
    };
    Ok(Row::new(model, case, workers, &samples, decode))
}
