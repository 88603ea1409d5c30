//! Every version of every step: right in all five cases, right when it is timed, at possible speeds.

use plancher_lab::catalogue::STEPS;
use plancher_lab::engine::{RunOptions, run_steps};
use plancher_lab::verdict::{counts, rightness};

use crate::common::{SILENCE, child, gpu};

#[test]
fn every_version_is_right_and_its_times_count() {
    let Some(gpu) = gpu() else { return };
    // The measuring process has the device for itself.
    drop(gpu);
    let options = RunOptions {
        steps: STEPS.to_vec(),
        versions: Vec::new(),
        quick: std::env::var_os("PLANCHER_LAB_FULL").is_none(),
        child: child(),
        silence: SILENCE,
        argv: vec!["lab".into(), "run".into(), "all".into()],
        commit: String::new(),
        dirty: true,
    };
    let run = run_steps(&options, &mut |line| eprintln!("{line}")).expect("it runs");
    if let Some(path) = std::env::var_os("PLANCHER_LAB_OUT") {
        std::fs::write(path, serde_json::to_string_pretty(&run).expect("it is JSON")).expect("writable");
    }
    eprintln!("{} s", run.seconds);
    let mut problems = Vec::new();
    for step in &run.steps {
        for version in &step.versions {
            let name = format!("{} {} {}", step.step, version.version, version.dtype);
            let right = rightness(version);
            if !right.is_right() {
                problems.push(format!("{name}: {right:?}"));
            }
            for point in &version.points {
                if let Err(problem) = counts(&run.machine, version.dtype, point) {
                    problems.push(format!("{name}: {problem}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
