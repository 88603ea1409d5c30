//! The measuring process played by a shell: what it says, what it leaves out, and how it ends.

use super::*;
use crate::record::Case;
use crate::verdict::{Rightness, rightness};
use crate::{Dtype, Shape};

/// A measuring process that says these lines, and then does `end`.
fn says(lines: &[String], end: &str) -> ChildCommand {
    let lines: Vec<String> =
        lines.iter().map(|line| format!("printf '\\n%s%s\\n' $PLANCHER_LAB_KEY '{}'\n", line.trim_end())).collect();
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

/// A message without its key.
fn line(message: &Message) -> String {
    message.signed("").trim_start_matches('\n').to_owned()
}

fn begins(what: &str) -> String {
    line(&Message::Begins { kernel: 0, what: what.into() })
}

fn case(failure: Option<Failure>) -> String {
    case_of(Case::Tails, failure)
}

fn case_of(case: Case, failure: Option<Failure>) -> String {
    let run = CaseRun { case, shapes: vec![Shape::Vector(127)], error: 0.5, limit: 1.0, failure, not_taken: None };
    line(&Message::Case { kernel: 0, run })
}

fn measured(command: &ChildCommand, count: usize) -> Result<Answer> {
    measure(command, &request(count), Duration::from_millis(700), &mut |_| {})
}

#[test]
fn a_process_that_says_all_is_believed() {
    let end = line(&Message::End(Box::new(Machine { gpu: "a GPU".into(), ..Machine::default() })));
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
fn a_kernel_that_only_hangs_when_it_is_timed_is_a_hang_too() {
    let mut said = Case::ALL.map(|case| case_of(case, None)).to_vec();
    said.push(begins("timing 268435456"));
    let answer = measured(&says(&said, "sleep 60"), 1).expect("it answers");
    let kernel = request(1).kernels.remove(0);
    let version = crate::engine::run::record(&kernel, "", answer.kernels.into_iter().next().expect("one"));
    let Rightness::Wrong(case) = rightness(&version) else { panic!("{version:?}") };
    let failure = case.failure.as_ref().expect("it hung");
    assert_eq!((case.case, failure.kind), (Case::Nominal, FailureKind::Hang));
    assert_eq!(failure.text, "timing 268435456: it did not end within 0 s");
}

#[test]
fn a_kernel_that_is_slow_but_ends_is_waited_for() {
    let alive = line(&Message::Alive);
    let end = format!("printf '\\n%s%s\\n' $PLANCHER_LAB_KEY '{}'", line(&Message::End(Box::default())).trim_end());
    let slow = format!(
        "for i in 1 2 3 4; do sleep 0.3; printf '\\n%s%s\\n' $PLANCHER_LAB_KEY '{}'; done\n{end}",
        alive.trim_end()
    );
    let answer = measured(&says(&[begins("timing 8")], &slow), 1).expect("it answers");
    assert_eq!(answer.kernels[0].ended, None);
}

#[test]
fn what_a_kernel_prints_is_no_message() {
    let forged = line(&Message::End(Box::default()));
    let print = format!(
        "printf '\\377 no text\\n{}\\n0123456789abcdef%s\\nhalf a line' '{}'",
        forged.trim(),
        forged.trim_end()
    );
    let end = format!("{print}\nprintf '\\n%s%s\\n' $PLANCHER_LAB_KEY '{}'\nexit 7", case(None).trim_end());
    let answer = measured(&says(&[begins("tails")], &end), 1).expect("it answers");
    assert_eq!(answer.kernels[0].cases.len(), 1);
    let failure = answer.kernels[0].ended.as_ref().expect("it never said the end");
    assert_eq!(failure.text, "tails: the process ended (exit status: 7)");
}

#[test]
fn a_file_whose_compiling_takes_too_much_does_not_compile_and_the_lab_goes_on() {
    let mine = |text: Option<&str>| {
        let mut request = request(2);
        request.kernels[0].text = text.map(str::to_owned);
        request
    };
    let little = Bounds { longest: Duration::from_millis(300), most: 64 << 20 };
    let silence = Duration::from_millis(1500);
    let measured = |end: &str, text, bounds| {
        measure_within(&says(&[begins(COMPILING)], end), &mine(text), (silence, bounds), &mut |_| {})
            .expect("it answers")
    };
    let slow = measured("sleep 60", Some("text"), little);
    let failure = slow.kernels[0].not_run.as_ref().expect("it was ended");
    assert_eq!(failure.kind, FailureKind::DoesNotCompile);
    assert_eq!(failure.text, "compiling was ended: it was not done within 0 s");
    // The other one is ours.
    assert_eq!(slow.kernels[1].ended.as_ref().map(|failure| failure.kind), Some(FailureKind::Hang));
    if cfg!(target_os = "linux") {
        let large = measured("exec tail /dev/zero", Some("text"), Bounds { most: 64 << 20, ..Bounds::COMPILING });
        let failure = large.kernels[0].not_run.as_ref().expect("it was ended");
        assert_eq!(failure.text, "compiling was ended: it took more than 64 MiB of memory");
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
    let broken = line(&Message::Broken { text: "there is no driver".into() });
    let error = measured(&says(&[broken], "exit 1"), 1).expect_err("nothing was measured").to_string();
    assert_eq!(error, "the measuring process failed: there is no driver");
    let error = measured(&says(&[], "exit 1"), 1).expect_err("nothing was measured").to_string();
    assert!(error.contains("before the first kernel: the process ended"), "{error}");
    let missing = ChildCommand { program: "no such program".into(), arguments: Vec::new(), environment: Vec::new() };
    assert!(measured(&missing, 1).expect_err("there is none").to_string().contains("cannot be started"));
}
