//! Benchmark cases as llama-bench defines them: `pp` computes a prompt, `tg` decodes one token at a time, each
//! optionally after `depth` tokens of context. Tokenising is not part of the time, nor is sampling on the host. A backend
//! that decodes batches runs all steps of a `tg` by itself, each on the most likely token of the step before.

use std::time::Instant;

use crate::sampling::Random;
use crate::{EngineError, Executor, Result, Sequence, hash_logits};

/// One row of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct BenchCase {
    /// Prompt tokens, computed together.
    pub n_prompt: usize,
    /// Tokens decoded one by one, after the prompt.
    pub n_gen: usize,
    /// Tokens in the cache before the clock starts.
    pub n_depth: usize,
    /// Sequences decoded together; 1 unless the backend can more.
    pub batch: usize,
}

impl BenchCase {
    /// Tokens that count for the rate, of all sequences.
    #[must_use]
    pub const fn tokens(self) -> usize {
        self.batch * (self.n_prompt + self.n_gen)
    }

    /// Positions that the context of a sequence must hold.
    #[must_use]
    pub const fn positions(self) -> usize {
        self.n_depth.saturating_add(self.n_prompt).saturating_add(self.n_gen)
    }

    /// Mean positions attended to by the decode steps.
    #[must_use]
    pub const fn mean_context(self) -> usize {
        self.n_depth + self.n_prompt + self.n_gen.div_ceil(2)
    }
}

impl std::fmt::Display for BenchCase {
    /// `pp512`, `tg128`, `pp512+tg128`, `tg128 @ d4096`, `tg128 x 8`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens = match (self.n_prompt, self.n_gen) {
            (p, 0) => format!("pp{p}"),
            (0, n) => format!("tg{n}"),
            (p, n) => format!("pp{p}+tg{n}"),
        };
        let depth = if self.n_depth > 0 { format!(" @ d{}", self.n_depth) } else { String::new() };
        let batch = if self.batch > 1 { format!(" x {}", self.batch) } else { String::new() };
        f.pad(&format!("{tokens}{depth}{batch}"))
    }
}

/// What the repetitions of a case gave.
#[derive(Clone, Debug)]
pub struct BenchSamples {
    /// Seconds of each repetition by the host's clock.
    pub seconds: Vec<f64>,
    /// Seconds of each repetition's decode steps by the device's clock, where they ran on one.
    pub device_seconds: Vec<f64>,
    /// The read ceiling of each repetition, GB/s: the best that was measured right before and right after it.
    pub ceilings: Vec<f64>,
    /// Fingerprints of each sequence's last logits, the same for every repetition. A sequence's tokens do not depend on
    /// the batch that it is in.
    pub logits_hashes: Vec<u64>,
    /// False when repetitions disagreed about the logits' bits.
    pub reproducible: bool,
}

impl Default for BenchSamples {
    /// None yet.
    fn default() -> Self {
        Self {
            seconds: Vec::new(),
            device_seconds: Vec::new(),
            ceilings: Vec::new(),
            logits_hashes: Vec::new(),
            reproducible: true,
        }
    }
}

impl BenchSamples {
    fn add(&mut self, repetition: Repetition) {
        let Repetition { seconds, device_seconds, ceiling, hashes } = repetition;
        self.device_seconds.extend(device_seconds);
        self.reproducible &= self.seconds.is_empty() || hashes == self.logits_hashes;
        self.logits_hashes = hashes;
        self.seconds.push(seconds);
        self.ceilings.push(ceiling);
    }

    /// The time of each repetition over that of the same one of `other`: by the device's clock where both have one.
    #[must_use]
    pub fn ratios_to(&self, other: &Self) -> Vec<f64> {
        let by_device = !self.device_seconds.is_empty() && !other.device_seconds.is_empty();
        let times = |samples: &Self| if by_device { samples.device_seconds.clone() } else { samples.seconds.clone() };
        times(self).iter().zip(times(other)).map(|(own, other)| own / other).collect()
    }

    /// Mean and standard deviation (of the sample) of tokens per second.
    #[must_use]
    pub fn tokens_per_s(&self, case: BenchCase) -> (f64, f64) {
        mean_and_deviation(self.seconds.iter().map(|seconds| case.tokens() as f64 / seconds))
    }

    /// Mean seconds of a decode step of `case`, which has no prompt: by the device's clock where there is one.
    #[must_use]
    pub fn seconds_per_step(&self, case: BenchCase) -> f64 {
        let seconds = if self.device_seconds.is_empty() { &self.seconds } else { &self.device_seconds };
        let (mean, _) = mean_and_deviation(seconds.iter().copied());
        mean / case.n_gen as f64
    }

    /// The median of the repetitions' read ceilings, GB/s.
    #[must_use]
    pub fn ceiling(&self) -> f64 {
        let mut ceilings = self.ceilings.clone();
        ceilings.sort_unstable_by(f64::total_cmp);
        ceilings.get(ceilings.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Mean and sample standard deviation; the latter is 0 for a single value.
fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let squares = values.map(|value| (value - mean) * (value - mean)).sum::<f64>();
    (mean, if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

/// Runs `case` once to warm up and then `repetitions` times. Tokens are pseudo-random and the same every time.
/// `progress` is told the repetitions done and returns false to stop after them.
///
/// # Errors
/// When the case does not fit the context, computes nothing or has more sequences than the backend takes, or a step fails.
pub fn bench(
    sequence: &mut Sequence,
    case: BenchCase,
    repetitions: usize,
    progress: &mut dyn FnMut(usize) -> bool,
) -> Result<BenchSamples> {
    let samples = measure_in_turns(sequence, case, &[None], repetitions, progress)?;
    Ok(samples.into_iter().next().unwrap_or_default())
}

/// As [`bench()`], for several executors of one backend: the repetitions of all of them are taken in turns, so that those of
/// the same number form a pair that ran under the same conditions. What leads in one turn comes last in the next.
///
/// # Errors
/// As [`bench()`], and when the backend does not have one of them.
pub fn bench_in_turns(
    sequence: &mut Sequence,
    case: BenchCase,
    executors: &[Executor],
    repetitions: usize,
    progress: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<BenchSamples>> {
    let executors: Vec<Option<Executor>> = executors.iter().copied().map(Some).collect();
    measure_in_turns(sequence, case, &executors, repetitions, progress)
}

fn measure_in_turns(
    sequence: &mut Sequence,
    case: BenchCase,
    executors: &[Option<Executor>],
    repetitions: usize,
    progress: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<BenchSamples>> {
    let context = sequence.backend().capacity();
    if case.tokens() == 0 {
        return Err(EngineError::EmptyPrompt);
    }
    if case.positions() > context {
        return Err(EngineError::PromptTooLong { prompt: case.positions(), context });
    }
    let most = sequence.backend_mut().batch().map_or(1, |batch| batch.most());
    if case.batch > most {
        return Err(EngineError::BatchTooLarge { batch: case.batch, most });
    }
    let choose = |sequence: &mut Sequence, executor: Option<Executor>| {
        executor.map_or(Ok(()), |executor| sequence.set_executor(executor))
    };
    let warm_up = BenchCase { n_gen: case.n_gen.min(1), ..case };
    for &executor in executors {
        choose(sequence, executor)?;
        run(sequence, if case.n_prompt == 0 { warm_up } else { case })?;
    }
    let mut all = vec![BenchSamples::default(); executors.len()];
    for repetition in 0..repetitions {
        for turn in 0..executors.len() {
            let index = if repetition % 2 == 0 { turn } else { executors.len() - 1 - turn };
            choose(sequence, executors[index])?;
            all[index].add(run(sequence, case)?);
        }
        if !progress(repetition + 1) {
            break;
        }
    }
    Ok(all)
}

struct Repetition {
    seconds: f64,
    device_seconds: Option<f64>,
    ceiling: f64,
    hashes: Vec<u64>,
}

/// Tokens of sequence `index`: pseudo-random, the same every time.
fn tokens(index: usize, n: usize, vocab_size: usize) -> Vec<u32> {
    let mut random = Random::new(1 + index as u64);
    (0..n).map(|_| random.below(vocab_size as u32)).collect()
}

fn run(sequence: &mut Sequence, case: BenchCase) -> Result<Repetition> {
    if case.n_prompt == 0 && sequence.backend_mut().batch().is_some() {
        return run_steps(sequence, case);
    }
    let tokens = tokens(0, case.positions(), sequence.backend().vocab_size());
    let (depth, rest) = tokens.split_at(case.n_depth);
    let (prompt, generated) = rest.split_at(case.n_prompt);
    sequence.reset();
    if !depth.is_empty() {
        sequence.append(depth, &mut |_| true)?;
    }
    let before = sequence.read_ceiling()?;
    let started = Instant::now();
    if !prompt.is_empty() {
        sequence.append(prompt, &mut |_| true)?;
    }
    for &token in generated {
        sequence.decode(token)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let ceiling = before.max(sequence.read_ceiling()?);
    Ok(Repetition { seconds, device_seconds: None, ceiling, hashes: vec![hash_logits(sequence.last_logits())] })
}

/// All steps of a `tg` on the device, without the host in between.
fn run_steps(sequence: &mut Sequence, case: BenchCase) -> Result<Repetition> {
    let vocab_size = sequence.backend().vocab_size();
    let mut prompts: Vec<Vec<u32>> = (0..case.batch).map(|index| tokens(index, case.n_depth + 1, vocab_size)).collect();
    let first: Vec<u32> = prompts.iter_mut().filter_map(Vec::pop).collect();
    sequence.reset();
    let before = sequence.read_ceiling()?;
    let Some(batch) = sequence.backend_mut().batch() else {
        return Err(EngineError::BatchTooLarge { batch: case.batch, most: 1 });
    };
    batch.fill(&prompts)?;
    let times = batch.decode(&first, case.n_gen)?;
    let hashes = batch.logits()?.chunks(vocab_size).map(hash_logits).collect();
    sequence.reset();
    let ceiling = before.max(sequence.read_ceiling()?);
    Ok(Repetition { seconds: times.wall, device_seconds: Some(times.device), ceiling, hashes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_llama_bench() {
        let name = |n_prompt, n_gen, n_depth| BenchCase { n_prompt, n_gen, n_depth, batch: 1 }.to_string();
        assert_eq!(name(512, 0, 0), "pp512");
        assert_eq!(name(0, 128, 0), "tg128");
        assert_eq!(name(0, 128, 4096), "tg128 @ d4096");
        assert_eq!(name(64, 16, 0), "pp64+tg16");
        assert_eq!(BenchCase { n_prompt: 0, n_gen: 16, n_depth: 32, batch: 8 }.to_string(), "tg16 @ d32 x 8");
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        let of = |seconds: &[f64], device: &[f64]| BenchSamples {
            seconds: seconds.to_vec(),
            device_seconds: device.to_vec(),
            ..BenchSamples::default()
        };
        let (slow, fast) = (of(&[3.0, 8.0], &[2.0, 6.0]), of(&[3.0, 4.0], &[1.0, 4.0]));
        assert_eq!(slow.ratios_to(&fast), [2.0, 1.5]);
        assert_eq!(slow.ratios_to(&of(&[3.0, 4.0], &[])), [1.0, 2.0]);
    }

    #[test]
    fn deviation_is_that_of_a_sample() {
        let (mean, deviation) = mean_and_deviation([2.0, 4.0, 4.0, 6.0].into_iter());
        assert!((mean - 4.0).abs() < 1e-12 && (deviation - (8.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(mean_and_deviation([3.0].into_iter()), (3.0, 0.0));
    }
}
