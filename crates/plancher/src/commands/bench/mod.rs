//! `bench`: speed of prompts and of decoding, as llama-bench measures it, beside the machine's ceiling.

mod report;
mod trace;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use plancher_cpu::Executor;
use plancher_engine::{
    Backend, BenchCase, BenchSamples, CpuBackend, CudaBackend, DecodeReport, DecodeSteps, Executor as StepExecutor,
    Sequence, bench, bench_in_turns, model_shape,
};
use plancher_model::Model;

use self::report::{Device, Row};
use crate::arguments::{self, DEFAULT_MODEL, List, MOST_WORKERS, count, parse_list};
use crate::failure::usage;
use crate::interrupt::Interruptible;
use crate::output;
use crate::placement::{self, Placement, PlacementOptions, Restrictions};
use crate::progress::Progress;
use crate::session::{self, Session};

/// Measure prompt and decode speed, as llama-bench does, and the fraction of the machine's read ceiling reached
///
/// Tests are named as llama-bench names them: `pp512` computes a prompt of 512 tokens, `tg128` decodes 128 tokens one
/// by one, `@ d4096` means after 4096 tokens of context. Speeds are mean ± standard deviation over the repetitions,
/// after one that warms up; tokenising and sampling are not included. Numbers may be lists (`128,512`) and ranges
/// (`1-4`, `0-4096+1024`, `128-1024*2`).
///
/// Decode rows also show the bytes read a second, the percentage of the ceiling (the rate at which the same threads
/// can only read the same weights; on a GPU, the rate at which it can only read its memory), and every row a hash of its
/// last logits: equal hashes are equal bits.
///
/// On a GPU a decode test runs all its steps on the device, each on the most likely token of the step before; times are
/// given by the device's clock and by the host's. `x 8` means 8 sequences decoded together. A test of a prompt and decoding
/// together goes step by step through the host. `--executor mega,graph` measures both in turns, on one copy of the model, and
/// gives the ratio of their times, pair by pair.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Models: paths, presets, or org/name[@revision]
    #[arg(short, long, value_name = "MODEL", value_delimiter = ',', default_value = DEFAULT_MODEL)]
    model: Vec<String>,
    /// Prompt lengths; 0 for none
    #[arg(short = 'p', long, value_name = "N", default_value = "512", value_parser = parse_list, allow_negative_numbers = true)]
    n_prompt: Vec<List>,
    /// Numbers of tokens to decode; 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_parser = parse_list, allow_negative_numbers = true)]
    n_gen: Vec<List>,
    /// A prompt of P tokens and N decoded ones in one test, also spelt -pg
    #[arg(long, value_name = "P,N", value_parser = pair, allow_negative_numbers = true)]
    pg: Vec<(usize, usize)>,
    /// Tokens of context before the clock starts
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_parser = parse_list, allow_negative_numbers = true)]
    n_depth: Vec<List>,
    /// Repetitions of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = count, allow_negative_numbers = true)]
    repetitions: usize,
    /// Numbers of sequences that a decode test decodes together, at most 64; more than 1 needs a GPU
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = parse_list, allow_negative_numbers = true)]
    batch: Vec<List>,
    /// Numbers of worker threads [default: one per physical core]
    #[arg(short, long, value_name = "N", value_parser = parse_list, allow_negative_numbers = true)]
    threads: Vec<List>,
    #[command(flatten)]
    placement: PlacementOptions,
    /// What runs the decode steps of one sequence on a GPU; several are measured in turns
    #[arg(long, value_enum, value_name = "EXECUTOR", value_delimiter = ',', default_value = "auto")]
    executor: Vec<arguments::StepExecutor>,
    /// How to print the results
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Write a trace of one decoded token (of the first model, thread count and depth; the median of nine) for
    /// ui.perfetto.dev, and print where its time went; on a GPU it is one of the megakernel, and a FILE that ends in
    /// `.svg` becomes a picture of one layer; may be given again
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Also write the tables of a GPU's trace as JSON
    #[arg(long, value_name = "FILE", requires = "trace")]
    trace_table: Option<PathBuf>,
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
    if List::concat(&arguments.batch).contains(&0) {
        return Err(usage("`--batch` must be 1 or more"));
    }
    if cases.is_empty() {
        return Err(usage("there is nothing to measure: every `-p`, `-n` and `-pg` is 0"));
    }
    let threads: Vec<Option<usize>> = match List::concat(&arguments.threads) {
        list if list.is_empty() => vec![None],
        list if list.iter().any(|&threads| threads == 0 || threads > MOST_WORKERS) => {
            return Err(usage(format!("`--threads` must be between 1 and {MOST_WORKERS}")));
        }
        list => list.into_iter().map(Some).collect(),
    };
    let restrictions = Restrictions {
        cpu: threads[0].map(|_| "--threads"),
        gpu: arguments.executor.iter().find_map(|executor| executor.gpu_option()),
    };
    let batch = cases.iter().map(|case| case.batch).max().unwrap_or(1);
    if batch > 1 && arguments.executor.contains(&arguments::StepExecutor::Mega) {
        return Err(usage(format!("`--batch` is {batch}, but `--executor mega` decodes one sequence at a time")));
    }
    let placement = placement::decide(arguments.placement.device, restrictions)?;
    if placement == Placement::Cpu && batch > 1 {
        return Err(usage(format!("`--batch` is {batch}, but the CPU decodes one sequence at a time")));
    }
    let of_gpu = arguments.trace_table.is_some() || arguments.trace.iter().any(|path| trace::is_picture(path));
    if placement == Placement::Cpu && of_gpu {
        return Err(usage("pictures and `--trace-table` are of a GPU's trace, and this one is of the CPU"));
    }
    let only_graph = arguments.executor.iter().all(|&executor| executor == arguments::StepExecutor::Graph);
    if placement != Placement::Cpu && !arguments.trace.is_empty() && only_graph {
        return Err(usage("`--trace` is of the megakernel, which `--executor graph` does not run"));
    }
    let interruptible = Interruptible::begin()?;
    let mut rows = Vec::new();
    'models: for (model_index, argument) in arguments.model.iter().enumerate() {
        for (threads_index, &threads) in threads.iter().enumerate() {
            let mut session = Session::open_on(argument, arguments.placement.load_format, placement)?;
            let context = cases.iter().map(|case| case.positions()).max().unwrap_or(0);
            session::check_positions(&session.model, "the longest test", context)?;
            let is_traced = !arguments.trace.is_empty() && model_index == 0 && threads_index == 0;
            let (mut sequence, workers) = if session.placement == Placement::Cpu {
                let mut executor = session.executor(threads, context.max(2))?;
                if is_traced {
                    trace_cpu(arguments, &mut executor, context.max(2))?;
                }
                let workers = executor.workers();
                (Sequence::new(Box::new(CpuBackend::new(executor))), workers)
            } else {
                let room = if is_traced { traced_positions(arguments, &session.model) } else { 0 };
                let executor = to_make(&arguments.executor, &cases, is_traced);
                let mut backend = session.backend(None, context.max(room).max(2), batch, executor)?;
                if is_traced {
                    trace_gpu(arguments, backend.as_mut(), &session.model)?;
                }
                (Sequence::new(backend), 0)
            };
            for &case in &cases {
                if interruptible.is_cancelled() {
                    break 'models;
                }
                for row in measure(&session.model, &mut sequence, case, arguments, workers, &interruptible)? {
                    if arguments.output == Format::Jsonl {
                        output::line(&serde_json::to_string(&row)?)?;
                    }
                    rows.push(row);
                }
            }
        }
    }
    report::print(&rows, arguments.output)
}

/// Tokens of context before what is traced.
fn traced_depth(arguments: &Arguments) -> usize {
    List::concat(&arguments.n_depth).first().copied().unwrap_or(0)
}

/// Positions that tracing on a GPU likes to have, if the model has them.
fn traced_positions(arguments: &Arguments, model: &Model) -> usize {
    traced_depth(arguments).saturating_add(CudaBackend::TRACE_STEPS).min(model.config.context_length)
}

fn trace_files(arguments: &Arguments) -> trace::Files<'_> {
    trace::Files { traces: &arguments.trace, table: arguments.trace_table.as_deref() }
}

/// Traces a token of the program's threads and shows its table.
fn trace_cpu(arguments: &Arguments, executor: &mut Executor, context: usize) -> anyhow::Result<()> {
    let table = trace::cpu(executor, traced_depth(arguments).min(context - 2), trace_files(arguments))?;
    show_trace(arguments, &table)
}

/// Traces a token of the megakernel and shows its tables.
fn trace_gpu(arguments: &Arguments, backend: &mut dyn Backend, model: &Model) -> anyhow::Result<()> {
    let Some(backend) = backend.cuda() else {
        return Err(usage("`--trace`: the GPU cannot be used; with `--device cpu` the trace is of the CPU"));
    };
    backend.can_trace().map_err(|reason| usage(format!("`--trace`: {reason}")))?;
    let table = trace::mega(backend, model, traced_depth(arguments), trace_files(arguments))?;
    show_trace(arguments, &table)
}

/// Beside results for a program to read, tables would be in the way.
fn show_trace(arguments: &Arguments, table: &str) -> anyhow::Result<()> {
    match arguments.output {
        Format::Md => output::text(table)?,
        _ => output::note(table.trim_end()),
    }
    Ok(())
}

/// The tests in llama-bench's order: per depth, prompts, then decoding by batch, then both.
fn cases(arguments: &Arguments) -> Vec<BenchCase> {
    let batches = List::concat(&arguments.batch);
    let mut cases = Vec::new();
    for n_depth in List::concat(&arguments.n_depth) {
        let prompts = List::concat(&arguments.n_prompt).into_iter().map(|n_prompt| (n_prompt, 0, 1));
        let decodes = List::concat(&arguments.n_gen).into_iter();
        let decodes = decodes.flat_map(|n_gen| batches.iter().map(move |&batch| (0, n_gen, batch)));
        let both = arguments.pg.iter().map(|&(n_prompt, n_gen)| (n_prompt, n_gen, 1));
        let tests = prompts.chain(decodes).chain(both);
        let tests = tests.map(|(n_prompt, n_gen, batch)| BenchCase { n_prompt, n_gen, n_depth, batch });
        cases.extend(tests.filter(|case| case.tokens() > 0));
    }
    cases
}

/// What a backend must be able to run, for these executors and tests; what is traced is the megakernel.
fn to_make(executors: &[arguments::StepExecutor], cases: &[BenchCase], is_traced: bool) -> StepExecutor {
    use arguments::StepExecutor as Asked;
    let decodes_one = cases.iter().any(|case| case.n_gen > 0 && case.batch == 1);
    if executors.contains(&Asked::Mega) {
        StepExecutor::Mega
    } else if is_traced || (executors.contains(&Asked::Auto) && decodes_one) {
        StepExecutor::Auto
    } else {
        StepExecutor::Graph
    }
}

/// A row for each executor; one where there is no choice.
fn measure(
    model: &Model,
    sequence: &mut Sequence,
    case: BenchCase,
    arguments: &Arguments,
    workers: usize,
    interruptible: &Interruptible,
) -> anyhow::Result<Vec<Row>> {
    let repetitions = arguments.repetitions;
    let mut bar = Progress::count(case.to_string());
    let mut progress = |done: usize| {
        bar.set(done as u64, repetitions as u64);
        !interruptible.is_cancelled()
    };
    let before = sequence.telemetry();
    let decodes_one = case.n_gen > 0 && case.batch == 1;
    let (samples, executors) = if decodes_one && sequence.backend().executor().is_some() {
        let asked: Vec<StepExecutor> = arguments.executor.iter().map(|&executor| executor.into()).collect();
        let samples = bench_in_turns(sequence, case, &asked, repetitions, &mut progress)?;
        let mut names = Vec::new();
        for executor in asked {
            sequence.set_executor(executor)?;
            names.push(sequence.backend().executor());
        }
        (samples, names)
    } else {
        let of_batch = sequence.backend().executor().filter(|_| case.n_gen > 0).map(|_| StepExecutor::Graph);
        (vec![bench(sequence, case, repetitions, &mut progress)?], vec![of_batch])
    };
    let after = sequence.telemetry();
    let first = samples.first().cloned().unwrap_or_default();
    let rows = samples.iter().zip(&executors).enumerate().map(|(index, (samples, &executor))| {
        if !samples.reproducible {
            tracing::warn!("{case}: repetitions gave different logits");
        }
        let decode = decode_report(model, sequence, case, samples)?;
        let device = Device::of(sequence.backend(), before, after);
        let mut row = Row::new(model, case, workers, samples, decode, device, executor);
        if let (1.., Some(base)) = (index, executors[0]) {
            row.compare(base, samples.ratios_to(&first));
        }
        Ok(row)
    });
    rows.collect()
}

/// A decode test beside its floor.
fn decode_report(
    model: &Model,
    sequence: &Sequence,
    case: BenchCase,
    samples: &BenchSamples,
) -> anyhow::Result<Option<DecodeReport>> {
    if case.n_prompt > 0 {
        return Ok(None);
    }
    let steps =
        DecodeSteps { batch: case.batch, context: case.mean_context().max(1), seconds: samples.seconds_per_step(case) };
    let storage = sequence.backend().storage();
    Ok(Some(DecodeReport::new(&model_shape(model), storage, steps, samples.ceiling())?))
}
