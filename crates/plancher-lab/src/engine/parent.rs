//! Starting the measuring process, listening to it, and ending it when it says nothing for too long. What is left to measure
//! after a kernel that hung or faulted is measured by another one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::protocol::{KernelRequest, Message, Request};
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

/// What was measured of one kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) options: Vec<String>,
    pub(super) resources: Option<Resources>,
    pub(super) not_run: Option<Failure>,
    pub(super) cases: Vec<CaseRun>,
    pub(super) points: Vec<PointRun>,
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
    messages: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

/// How a process ended.
enum End {
    /// It said all.
    Complete,
    /// It said nothing for too long, and was ended.
    Silence,
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
        let end = listen(command, &rest, silence, &mut listener, progress)?;
        let at = listener.at.clone();
        let (kind, how) = match end {
            End::Complete => return Ok(answer),
            End::Broken(text) => return Err(LabError::Child(text)),
            End::Silence => (FailureKind::Hang, format!("it did not end within {} s", silence.as_secs())),
            End::Early(how) => (FailureKind::Crash, how),
        };
        let Some((kernel, what)) = at else {
            return Err(LabError::Child(format!("before the first kernel: {how}")));
        };
        // A fault has been reported with its case or point.
        let measured = &mut answer.kernels[kernel];
        if !measured.has_fault() {
            let text = format!("{what}: {how}");
            measured.ended = Some(Failure { kind, shape: None, element: None, expected: None, got: None, text });
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
            Message::Done { .. } => {}
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
    silence: Duration,
    listener: &mut Listener<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<End> {
    let mut process = Process::start(command, request)?;
    let end = loop {
        match process.messages.recv_timeout(silence) {
            Ok(line) => {
                if let Some(end) = Message::read(&line).and_then(|message| listener.take(message, progress)) {
                    break end;
                }
            }
            Err(RecvTimeoutError::Timeout) => break End::Silence,
            Err(RecvTimeoutError::Disconnected) => break End::Early(String::new()),
        }
    };
    let early = matches!(&end, End::Early(text) if text.is_empty());
    let status = process.stop(matches!(end, End::Silence), silence);
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
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed("cannot be started", &error))?;
        let messages = lines(child.stdout.take());
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

/// The lines of a process's output, as they come; ends when the output does.
fn lines(output: Option<ChildStdout>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = output.map(|output| BufReader::new(output).lines()).into_iter().flatten();
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
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
mod tests {
    use super::*;
    use crate::record::Case;
    use crate::{Dtype, Shape};

    /// A measuring process that says these lines, and then does `end`.
    fn says(lines: &[String], end: &str) -> ChildCommand {
        let lines: Vec<String> = lines.iter().map(|line| format!("printf '%s\\n' '{}'\n", line.trim_end())).collect();
        let script = format!("cat > /dev/null\necho 'running 1 test'\n{}{end}", lines.concat());
        ChildCommand { program: "sh".into(), arguments: vec!["-c".into(), script], environment: Vec::new() }
    }

    fn request(count: usize) -> Request {
        let kernel = |index| KernelRequest { version: format!("v{index}"), dtype: Dtype::F32, text: None };
        Request {
            step: "saxpy".into(),
            kernels: (0..count).map(kernel).collect(),
            quick: true,
            ceilings: false,
            launches_only: None,
        }
    }

    fn begins(what: &str) -> String {
        Message::Begins { kernel: 0, what: what.into() }.line()
    }

    fn case(failure: Option<Failure>) -> String {
        let run = CaseRun {
            case: Case::Tails,
            shapes: vec![Shape::Vector(127)],
            error: 0.5,
            limit: 1.0,
            failure,
            not_taken: None,
        };
        Message::Case { kernel: 0, run }.line()
    }

    fn measured(command: &ChildCommand, count: usize) -> Result<Answer> {
        measure(command, &request(count), Duration::from_millis(700), &mut |_| {})
    }

    #[test]
    fn a_process_that_says_all_is_believed() {
        let end = Message::End(Box::new(Machine { gpu: "a GPU".into(), ..Machine::default() })).line();
        let answer = measured(&says(&[begins("tails"), case(None), end], ""), 1).expect("it answers");
        assert_eq!(answer.machine.map(|machine| machine.gpu).as_deref(), Some("a GPU"));
        assert_eq!((answer.kernels[0].cases.len(), &answer.kernels[0].ended), (1, &None));
    }

    #[test]
    fn a_kernel_that_never_ends_is_a_hang_and_the_next_one_gets_a_process_of_its_own() {
        let answer = measured(&says(&[begins("case `tails`, 127")], "sleep 60"), 2).expect("it answers");
        for kernel in &answer.kernels {
            let failure = kernel.ended.as_ref().expect("it hung");
            assert_eq!(failure.kind, FailureKind::Hang);
            assert_eq!(failure.text, "case `tails`, 127: it did not end within 0 s");
        }
    }

    #[test]
    fn a_process_that_dies_names_what_it_was_doing() {
        let answer = measured(&says(&[begins("timing 8")], "echo 'out of luck' >&2; exit 7"), 1).expect("it answers");
        let failure = answer.kernels[0].ended.as_ref().expect("it died");
        assert_eq!(failure.kind, FailureKind::Crash);
        assert_eq!(failure.text, "timing 8: the process ended (exit status: 7): out of luck");
    }

    #[test]
    fn a_fault_that_was_reported_is_not_reported_twice() {
        let fault = Failure {
            kind: FailureKind::Fault,
            shape: None,
            element: None,
            expected: None,
            got: None,
            text: "a fault".into(),
        };
        let answer = measured(&says(&[begins("tails"), case(Some(fault))], "exit 3"), 1).expect("it answers");
        assert_eq!((answer.kernels[0].cases.len(), &answer.kernels[0].ended), (1, &None));
    }

    #[test]
    fn a_machine_that_cannot_measure_is_an_error() {
        let broken = Message::Broken { text: "there is no driver".into() }.line();
        let error = measured(&says(&[broken], "exit 1"), 1).expect_err("nothing was measured").to_string();
        assert_eq!(error, "the measuring process failed: there is no driver");
        let error = measured(&says(&[], "exit 1"), 1).expect_err("nothing was measured").to_string();
        assert!(error.contains("before the first kernel: the process ended"), "{error}");
        let missing =
            ChildCommand { program: "no such program".into(), arguments: Vec::new(), environment: Vec::new() };
        assert!(measured(&missing, 1).expect_err("there is none").to_string().contains("cannot be started"));
    }
}
