//! The loop that stays on the device: each step ends by choosing the tokens with which the next one begins, so that the
//! host only replays the graph, a few steps ahead of the tokens that it has read.

use std::task::Poll;
use std::time::{Duration, Instant};

use super::Decoder;
use super::decoder::End;
use super::sampling::{Sampling, ring_size};
use crate::{CudaError, Event, Result};

/// Steps that are given to the device before the host has read the tokens of the first of them: enough that the device
/// never waits, and few to wait for when the loop ends.
const AHEAD: usize = 4;

/// After this long without a token the device is asked whether it has failed.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);

/// A loop under way.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) batch: usize,
    pub(super) end: End,
    /// Whether the megakernel takes the steps.
    pub(super) in_mega: bool,
    /// Tokens after one of which the megakernel ends.
    pub(super) end_tokens: Vec<u32>,
    /// Tokens that will be asked for at most.
    pub(super) most: usize,
    /// Tokens that the device was told to choose, for each sequence.
    pub(super) asked: usize,
    /// Tokens that the host has read.
    pub(super) read: usize,
}

/// How long steps took, all together, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// By the device's clock, from the first step's start to the last one's end.
    pub device: f64,
    /// By the host's clock, from asking to having.
    pub wall: f64,
}

impl Decoder {
    /// Begins a loop over the first sequences, one for each of `settings`, from their logits as prefill or the last
    /// step left them. `histories` are the tokens that the repetition penalty covers. At most `most` tokens of each
    /// sequence (at least 1) will be asked for. After one of `end_tokens` the device need not run on: the caller will
    /// hardly ask for more, though it may.
    ///
    /// # Errors
    /// If the caches do not have room for them, there are fewer sequences, or the device fails.
    pub fn start(
        &mut self,
        settings: &[Sampling],
        histories: &[&[u32]],
        most: usize,
        end_tokens: &[u32],
    ) -> Result<()> {
        let batch = settings.len();
        self.end_loop()?;
        self.device.synchronize()?;
        // The last token chosen is never appended.
        self.ready(batch, most.saturating_sub(1))?;
        self.chooser.start(settings, histories)?;
        let in_mega = self.is_in_mega(batch);
        if let (true, Some(mega)) = (in_mega, &mut self.mega) {
            mega.begin();
        }
        self.choose(batch)?;
        let end = if settings.iter().all(Sampling::is_greedy) { End::Greedy } else { End::Choose };
        let (most, end_tokens) = (most.max(1), end_tokens.to_vec());
        self.running = Some(Running { batch, end, in_mega, end_tokens, most, asked: 1, read: 0 });
        // The megakernel begins when it is known that there is a token to begin with.
        if in_mega { Ok(()) } else { self.run_ahead() }
    }

    /// The next token of each sequence; `None` for one without a finite logit. Before each but the first, the one
    /// before was appended.
    ///
    /// # Errors
    /// If the device fails, or more tokens are asked for than [`Self::start`] was told.
    pub fn next_tokens(&mut self) -> Result<Vec<Option<u32>>> {
        if self.running.as_ref().is_some_and(|running| running.in_mega) {
            return Ok(vec![self.next_of_mega()?]);
        }
        self.run_ahead()?;
        let Some(running) = &mut self.running else { return Err(not_running()) };
        if running.read == running.asked {
            return Err(not_running());
        }
        let (batch, number) = (running.batch, running.read as u32 + 1);
        running.read += 1;
        (0..batch).map(|sequence| self.wait_for(sequence, number)).collect()
    }

    /// Ends the loop, in the middle of a launch too. Every sequence then holds `positions` positions, or as many as it has
    /// if that is fewer.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn stop(&mut self, positions: usize) -> Result<()> {
        let outcome = match (&self.running, &mut self.mega) {
            (Some(running), Some(mega)) if running.in_mega => mega.stop(),
            _ => self.device.synchronize(),
        };
        if let Some(running) = self.running.take() {
            // What the megakernel appended beyond what was read is forgotten.
            let appended = if running.in_mega { running.read.saturating_sub(1) } else { running.asked - 1 };
            self.advance(running.batch, appended);
            for sequence in 0..running.batch {
                self.truncate(sequence, positions);
            }
        }
        outcome
    }

    /// Appends `steps` tokens to each of the first sequences, first `tokens`, then the most likely one each time, and
    /// measures it. Nothing comes back to the host in between.
    ///
    /// # Errors
    /// If the caches do not have room for them, there are fewer sequences, or the device fails.
    pub fn run(&mut self, tokens: &[u32], steps: usize) -> Result<StepTimes> {
        let batch = tokens.len();
        self.end_loop()?;
        if let (true, &[token]) = (self.is_in_mega(batch), tokens) {
            return self.run_in_mega(token, steps);
        }
        self.device.synchronize()?;
        self.enter(tokens, steps)?;
        self.chooser.start(&vec![Sampling::GREEDY; batch], &[])?;
        let wall = Instant::now();
        let first = Event::record(&self.device)?;
        for _ in 0..steps {
            self.replay(batch, End::Greedy)?;
        }
        let device = Event::record(&self.device)?.milliseconds_since(&first)? / 1e3;
        self.device.synchronize()?;
        self.advance(batch, steps);
        Ok(StepTimes { device, wall: wall.elapsed().as_secs_f64() })
    }

    /// Gives the device steps until it is far enough ahead.
    fn run_ahead(&mut self) -> Result<()> {
        const { assert!(AHEAD < ring_size(), "tokens must not be overwritten before they are read") };
        while let Some(running) = &mut self.running {
            if running.asked >= running.most || running.asked > running.read + AHEAD {
                break;
            }
            running.asked += 1;
            let (batch, end) = (running.batch, running.end);
            self.replay(batch, end)?;
        }
        Ok(())
    }

    fn wait_for(&self, sequence: usize, number: u32) -> Result<Option<u32>> {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if let Poll::Ready(token) = self.chooser.token(sequence, number) {
                    return Ok(token);
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > PATIENCE {
                // Waits for what was asked, or says what went wrong.
                self.device.synchronize()?;
                return match self.chooser.token(sequence, number) {
                    Poll::Ready(token) => Ok(token),
                    Poll::Pending => {
                        Err(CudaError::Unsupported(format!("the device ended its steps without token {number}")))
                    }
                };
            }
        }
    }
}

pub(super) fn not_running() -> CudaError {
    CudaError::Unsupported("no token was asked of the device's loop".to_owned())
}
