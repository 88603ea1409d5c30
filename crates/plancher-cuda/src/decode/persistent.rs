//! Steps of one sequence by the megakernel: launches of many tokens, which the host reads while the kernel runs on.

use std::task::Poll;
use std::time::Instant;

use super::decoder::End;
use super::token_loop::{PATIENCE, StepTimes, not_running};
use super::{Decoder, Executor, Sampling};
use crate::mega::trace::StepTrace;
use crate::mega::{MegaOptions, Mode};
use crate::{CudaError, Event, Result};

impl Decoder {
    /// How the megakernel is run, if there is one.
    #[must_use]
    pub fn mega_options(&self) -> Option<MegaOptions> {
        self.mega.as_ref().map(crate::mega::Mega::options)
    }

    /// Changes how the megakernel is run, from the next launch on.
    pub fn set_mega_options(&mut self, options: MegaOptions) {
        if let Some(mega) = &mut self.mega {
            mega.set_options(options);
        }
    }

    /// The plan that the megakernel runs, if there is one.
    #[must_use]
    pub fn mega_plan(&self) -> Option<&plancher_program::gpu::Plan> {
        self.mega.as_ref().map(crate::mega::Mega::plan)
    }

    /// Elements of stage `stage` in the stream of `worker`, as they were packed: to be compared with the plan's packer.
    ///
    /// # Errors
    /// If there is no such stage, or the device fails.
    #[doc(hidden)]
    pub fn mega_stage(&self, worker: usize, stage: usize) -> Result<Vec<u16>> {
        self.mega.as_ref().ok_or_else(no_mega)?.stage(worker, stage)
    }

    /// Replaces an instruction, to see what becomes of a program that is wrong.
    ///
    /// # Errors
    /// If there is no such instruction, or the device fails.
    ///
    /// # Safety
    /// The kernel believes its instructions: rows must be rows of the worker, stages must not be more than it has.
    #[doc(hidden)]
    pub unsafe fn set_mega_instruction(&mut self, worker: usize, index: usize, words: [u32; 4]) -> Result<()> {
        self.end_loop()?;
        self.mega.as_mut().ok_or_else(no_mega)?.set_instruction(worker, index, words)
    }

    /// Whether the megakernel runs steps of so many sequences.
    pub(super) fn is_in_mega(&self, batch: usize) -> bool {
        batch == 1 && self.executor == Executor::Mega && self.mega.is_some()
    }

    /// Puts a launch of the megakernel on the stream, for which [`Self::ready`] has been called.
    pub(super) fn launch(&mut self, mode: Mode, steps: usize, end_tokens: &[u32]) -> Result<()> {
        let mega = self.mega.as_mut().ok_or_else(no_mega)?;
        // SAFETY: `ready` has reserved the positions; weights, cache and buffers belong to this decoder, which drops the
        // megakernel first.
        unsafe { mega.launch(mode, steps, end_tokens) }
    }

    /// Waits for the megakernel.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.device.synchronize()?;
        let Some(mega) = &mut self.mega else { return Ok(()) };
        match mega.failure() {
            None => Ok(()),
            Some(error) => {
                mega.stop()?;
                Err(error)
            }
        }
    }

    /// Ends the loop under way, if there is one; what it appended and nobody took note of is forgotten.
    pub(super) fn end_loop(&mut self) -> Result<()> {
        match (self.running.take(), &mut self.mega) {
            (Some(running), Some(mega)) if running.in_mega => mega.stop(),
            _ => Ok(()),
        }
    }

    /// [`Self::run`] by the megakernel.
    pub(super) fn run_in_mega(&mut self, token: u32, steps: usize) -> Result<StepTimes> {
        self.device.synchronize()?;
        self.enter(&[token], steps)?;
        self.chooser.start(&[Sampling::GREEDY], &[])?;
        let each = match &mut self.mega {
            Some(mega) => {
                mega.begin();
                mega.options().tokens_per_launch.max(1)
            }
            None => return Err(no_mega()),
        };
        let wall = Instant::now();
        let first = Event::record(&self.device)?;
        for done in (0..steps).step_by(each) {
            self.launch(Mode::Greedy, each.min(steps - done), &[])?;
        }
        let device = Event::record(&self.device)?.milliseconds_since(&first)? / 1e3;
        self.finish()?;
        let wall = wall.elapsed().as_secs_f64();
        self.took(steps)?;
        Ok(StepTimes { device, wall })
    }

    /// Takes note of `steps` steps of the first sequence, if the megakernel took them all.
    fn took(&mut self, steps: usize) -> Result<()> {
        let position = self.buffers.positions.download_range(0, 1)?[0] as usize;
        let taken = position.saturating_sub(self.positions[0]);
        if taken != steps {
            return Err(CudaError::Unsupported(format!(
                "the megakernel ended after {taken} of {steps} tokens: no logit was a finite number"
            )));
        }
        self.advance(1, steps);
        Ok(())
    }

    /// Appends `steps` tokens to the first sequence as [`Self::run`] does, by a megakernel that leaves a trace of the last
    /// of them. It is compiled when it is first needed, and costs the other one nothing.
    ///
    /// # Errors
    /// If there is no megakernel, as for [`Self::run`], or if the trace cannot be read.
    pub fn run_traced(&mut self, token: u32, steps: usize) -> Result<StepTrace> {
        self.end_loop()?;
        self.device.synchronize()?;
        self.enter(&[token], steps)?;
        self.chooser.start(&[Sampling::GREEDY], &[])?;
        let last = self.positions[0] + steps.saturating_sub(1);
        let Some(mega) = &mut self.mega else { return Err(no_mega()) };
        mega.begin();
        // SAFETY: as for `launch`.
        unsafe { mega.launch_traced(&mut self.loader, steps)? };
        self.finish()?;
        self.took(steps)?;
        self.mega.as_ref().ok_or_else(no_mega)?.trace(last)
    }

    /// The next token of a loop in the megakernel. Where more were asked for and none is under way, the kernel runs on
    /// before the caller has this one.
    pub(super) fn next_of_mega(&mut self) -> Result<Option<u32>> {
        self.launch_for_loop()?;
        let Some(running) = self.running.as_mut().filter(|running| running.read < running.asked) else {
            return Err(not_running());
        };
        let number = running.read as u32 + 1;
        let token = self.wait_for_mega(number);
        let Some(running) = &mut self.running else { return Err(not_running()) };
        match token {
            Ok(token) => {
                running.read += 1;
                let ends = token.is_none_or(|token| running.end_tokens.contains(&token));
                if ends {
                    // So has the launch, if it was one that chose it.
                    running.asked = running.read;
                }
                if token.is_none() {
                    running.most = running.read;
                }
                if !ends {
                    self.launch_for_loop()?;
                }
                Ok(token)
            }
            Err(error) => {
                // Only `stop` is left to do.
                (running.asked, running.most) = (running.read, running.read);
                if let Some(mega) = &mut self.mega {
                    mega.stop()?;
                }
                Err(error)
            }
        }
    }

    fn wait_for_mega(&self, number: u32) -> Result<Option<u32>> {
        let mega = self.mega.as_ref().ok_or_else(no_mega)?;
        // The first one is chosen before the megakernel begins.
        let look = || if number == 1 { self.chooser.token(0, number) } else { mega.token(number) };
        let check = || mega.failure().map_or(Ok(()), Err);
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if let Poll::Ready(token) = look() {
                    check()?;
                    return Ok(token);
                }
                std::hint::spin_loop();
            }
            check()?;
            if start.elapsed() > PATIENCE && self.device.is_idle()? {
                check()?;
                return match look() {
                    Poll::Ready(token) => Ok(token),
                    Poll::Pending => {
                        Err(CudaError::Unsupported(format!("the megakernel ended without token {number}")))
                    }
                };
            }
        }
    }

    /// Launches the megakernel for the loop under way when every token that it was asked for has been read.
    pub(super) fn launch_for_loop(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        if running.read < running.asked || running.asked >= running.most {
            return Ok(());
        }
        let each = self.mega.as_ref().map_or(1, |mega| mega.options().tokens_per_launch.clamp(1, crate::mega::RING));
        let steps = each.min(running.most - running.asked);
        let mode = if running.end == End::Greedy { Mode::Greedy } else { Mode::Sample };
        running.asked += steps;
        let end_tokens = running.end_tokens.clone();
        self.launch(mode, steps, &end_tokens)
    }
}

fn no_mega() -> CudaError {
    CudaError::Unsupported("there is no megakernel".to_owned())
}
