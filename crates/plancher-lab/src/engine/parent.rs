//! Starting the measuring process, listening to it, and ending it when it says nothing for too long. What is left to measure
//! after a kernel that hung or faulted is measured by another one.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bounds::{Bounds, resident};
use super::protocol::{COMPILING, KEY, KernelRequest, Message, Request};
use crate::record::{CaseRun, CeilingRun, Failure, FailureKind, Machine, PointRun, Resources};
use crate::{LabError, Result};

/// How the measuring process is started; it must call [`child_main`](super::child_main).
#[derive(Debug, Clone)]
pub struct ChildCommand {
    /// The program, usually this one.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables of its environment, besides those of this process.
    pub environment: Vec<(String, String)>,
}

/// No message is as long as this, in bytes.
const LONGEST_LINE: u64 = 16 << 20;

/// What was measured of one kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) options: Vec<String>,
    pub(super) resources: Option<Resources>,
    pub(super) not_run: Option<Failure>,
    pub(super) cases: Vec<CaseRun>,
    pub(super) points: Vec<PointRun>,
    /// How often it was launched for a tool to watch, where that is all.
    pub(super) launches: u32,
    /// It hung, or took the process with it: doing what, and how.
    pub(super) ended: Option<Failure>,
}

/// What was measured of a request.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) machine: Option<Machine>,
    pub(super) ceilings: Vec<CeilingRun>,
    pub(super) kernels: Vec<Measured>,
}

/// A process that measures.
struct Process {
    child: Child,
    messages: Receiver<Message>,
    errors: Option<JoinHandle<String>>,
}

/// How a process ended.
enum End {
    /// It said all.
    Complete,
    /// It said nothing for too long, and was ended.
    Silence,
    /// Compiling took too much, and was ended.
    Compiling(String),
    /// It ended by itself before it had said all.
    Early(String),
    /// It cannot measure here at all.
    Broken(String),
}

/// Has a request measured. `silence` is how long the process may say nothing; `progress` gets a line before each thing that
/// is done.
pub(super) fn measure(
    command: &ChildCommand,
    request: &Request,
    silence: Duration,
    progress: &mut dyn FnMut(&str),
) -> Result<Answer> {
    measure_within(command, request, (silence, Bounds::COMPILING), progress)
}

fn measure_within(
    command: &ChildCommand,
    request: &Request,
    (silence, bounds): (Duration, Bounds),
    progress: &mut dyn FnMut(&str),
) -> Result<Answer> {
    let mut answer = Answer { kernels: vec![Measured::default(); request.kernels.len()], ..Answer::default() };
    let mut done = 0;
    let mut first = true;
    while first || done < request.kernels.len() {
        let rest = Request {
            kernels: request.kernels[done..].to_vec(),
            ceilings: request.ceilings && first,
            ..request.clone()
        };
        first = false;
        let mut listener = Listener { answer: &mut answer, offset: done, kernels: &request.kernels, at: None };
        let end = listen(command, &rest, (silence, bounds), &mut listener, progress)?;
        let at = listener.at.clone();
        let (kind, how) = match end {
            End::Complete => return Ok(answer),
            End::Broken(text) => return Err(LabError::Child(text)),
            End::Silence => (FailureKind::Hang, format!("it did not end within {} s", silence.as_secs())),
            End::Compiling(how) => (FailureKind::DoesNotCompile, how),
            End::Early(how) => (FailureKind::Crash, how),
        };
        let Some((kernel, what)) = at else {
            return Err(LabError::Child(format!("before the first kernel: {how}")));
        };
        // A fault has been reported with its case or point.
        let measured = &mut answer.kernels[kernel];
        let failure = |text| Failure { kind, shape: None, element: None, expected: None, got: None, text };
        if kind == FailureKind::DoesNotCompile {
            measured.not_run = Some(failure(how));
        } else if !measured.has_fault() {
            measured.ended = Some(failure(format!("{what}: {how}")));
        }
        done = kernel + 1;
    }
    Ok(answer)
}

impl Measured {
    /// Whether a fault of the device was reported.
    fn has_fault(&self) -> bool {
        let mut failures =
            self.cases.iter().map(|case| &case.failure).chain(self.points.iter().map(|point| &point.failure));
        failures.any(|failure| failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Fault))
    }
}

/// Puts messages where they belong.
struct Listener<'a> {
    answer: &'a mut Answer,
    /// The first kernel of the process's request.
    offset: usize,
    kernels: &'a [KernelRequest],
    /// Which kernel it is at, and what it does.
    at: Option<(usize, String)>,
}

impl Listener<'_> {
    /// Whether the last that it heard is that a learner's file is being compiled.
    fn compiles_a_file(&self) -> bool {
        let at = self.at.as_ref().filter(|(_, what)| what == COMPILING);
        at.is_some_and(|(kernel, _)| self.kernels[*kernel].text.is_some())
    }

    /// Takes a message; returns how the process ends, if this says so.
    fn take(&mut self, message: Message, progress: &mut dyn FnMut(&str)) -> Option<End> {
        let offset = self.offset;
        let answer = &mut *self.answer;
        let kernel = |kernels: &'_ mut Vec<Measured>, index: usize| kernels.get_mut(offset + index).map(std::mem::take);
        let mut change = |index: usize, change: &mut dyn FnMut(&mut Measured)| {
            if let Some(mut measured) = kernel(&mut answer.kernels, index) {
                change(&mut measured);
                answer.kernels[offset + index] = measured;
            }
        };
        match message {
            Message::Machine(machine) => {
                answer.machine.get_or_insert(*machine);
            }
            Message::Ceiling(run) => answer.ceilings.push(run),
            Message::Begins { kernel, what } => {
                if let Some(of) = self.kernels.get(offset + kernel) {
                    progress(&format!("{} {}: {what}", of.version, of.dtype));
                    self.at = Some((offset + kernel, what));
                }
            }
            Message::Compiled { kernel, options, resources } => change(kernel, &mut |measured| {
                measured.options.clone_from(&options);
                measured.resources = Some(resources.clone());
            }),
            Message::NotRun { kernel, failure } => {
                change(kernel, &mut |measured| measured.not_run = Some(failure.clone()));
            }
            Message::Case { kernel, run } => change(kernel, &mut |measured| measured.cases.push(run.clone())),
            Message::Point { kernel, run } => change(kernel, &mut |measured| measured.points.push((*run).clone())),
            Message::Launched { kernel, launches } => change(kernel, &mut |measured| measured.launches = launches),
            Message::Done { .. } | Message::Alive => {}
            Message::Broken { text } => {
                // Once a kernel has begun, the trouble may be of its making.
                return Some(if self.at.is_some() { End::Early(text) } else { End::Broken(text) });
            }
            Message::End(machine) => {
                answer.machine = Some(match answer.machine.take() {
                    Some(first) => Machine { state_after: machine.state_after, ..first },
                    None => *machine,
                });
                return Some(End::Complete);
            }
        }
        None
    }
}

fn listen(
    command: &ChildCommand,
    request: &Request,
    (silence, bounds): (Duration, Bounds),
    listener: &mut Listener<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<End> {
    let mut process = Process::start(command, request)?;
    let mut since = Instant::now();
    // While it compiles a file that nobody vouches for: the memory that it had before.
    let mut compiling: Option<u64> = None;
    let end = loop {
        let patience = silence.saturating_sub(since.elapsed());
        let wait = if compiling.is_some() { patience.min(Bounds::INTERVAL) } else { patience };
        match process.messages.recv_timeout(wait) {
            Ok(message) => {
                if let Some(end) = listener.take(message, progress) {
                    break end;
                }
                since = Instant::now();
                let process = process.child.id();
                compiling = listener.compiles_a_file().then(|| resident(process));
            }
            Err(RecvTimeoutError::Timeout) => {
                let process = process.child.id();
                if let Some(how) = compiling.and_then(|before| bounds.exceeded(process, since, before)) {
                    break End::Compiling(how);
                }
                if since.elapsed() >= silence {
                    break End::Silence;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break End::Early(String::new()),
        }
    };
    let early = matches!(&end, End::Early(text) if text.is_empty());
    let status = process.stop(matches!(end, End::Silence | End::Compiling(_)), silence);
    if early {
        let errors = process.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let last = errors.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        return Ok(End::Early(format!("the process ended ({status}){last}")));
    }
    Ok(end)
}

impl Process {
    fn start(command: &ChildCommand, request: &Request) -> Result<Self> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            LabError::Child(format!("`{}` {what}: {error}", command.program.display()))
        };
        // Nobody knows it beforehand.
        let key = format!("{:016x}", RandomState::new().build_hasher().finish());
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .env(KEY, &key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed("cannot be started", &error))?;
        let messages = messages(child.stdout.take(), key);
        let errors = child.stderr.take().map(tail);
        let text = serde_json::to_string(request).map_err(|error| failed("cannot be asked", &error))?;
        if let Some(mut input) = child.stdin.take() {
            // A process that has ended already is noticed by its silence.
            let _ = input.write_all(text.as_bytes());
        }
        Ok(Self { child, messages, errors })
    }

    /// Ends it if it is to be ended, or does not end by itself; returns its status in words.
    fn stop(&mut self, now: bool, patience: Duration) -> String {
        if !now && let Some(status) = self.wait(patience.min(Duration::from_secs(20))) {
            return status.to_string();
        }
        let _ = self.child.kill();
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let start = std::time::Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if start.elapsed() < patience => std::thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

/// The messages in a process's output, as they come; ends when the output does. What else is printed there is left out.
fn messages(output: Option<ChildStdout>, key: String) -> Receiver<Message> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(mut output) = output.map(BufReader::new) else { return };
        let mut line = Vec::new();
        loop {
            line.clear();
            // The end of a line that is longer is taken for another one, which is no message either.
            match output.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if let Some(message) = Message::read(&line, &key)
                && sender.send(message).is_err()
            {
                return;
            }
        }
    });
    receiver
}

/// Reads what a process says of errors, and keeps the first few KiB of it.
fn tail(mut errors: ChildStderr) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.by_ref().take(1 << 16).read_to_end(&mut text);
        // The rest is read too, lest the process waits for somebody to do so.
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    })
}

#[cfg(test)]
mod tests;
