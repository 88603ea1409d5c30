//! `lab` on a machine without a GPU: the list, skeletons, explanations, the tracking table and the report from recorded
//! evidence, and what is said about what is missing.

mod fixture;

use std::path::PathBuf;

use plancher_lab::record::{Failure, FailureKind, LabRun};

use crate::common::run;

/// A recorded run in a file of its own.
struct Evidence {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Evidence {
    fn of(run: &LabRun) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.json");
        std::fs::write(&path, serde_json::to_string(run).expect("JSON")).expect("a file");
        Self { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }
}

#[test]
fn the_twelve_steps_are_listed() {
    let text = run(&["lab", "list"]).ok();
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    let value = run(&["lab", "list", "--json"]).json();
    let steps = value.as_array().expect("a list");
    assert!((1..=12).eq(steps.iter().filter_map(|step| step["number"].as_u64())));
    assert_eq!(steps.iter().filter(|step| step["here"] == true).count(), 6);
    let saxpy = steps[0]["versions"].as_array().expect("versions");
    assert!(saxpy.iter().any(|version| version["id"] == "vectors" && version["source_sha256"].is_string()));
}

#[test]
fn a_skeleton_is_written_once_and_never_over_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.cu");
    let path = file.to_str().expect("UTF-8");
    let started = run(&["lab", "start", "transpose", "--out", path]);
    assert!(started.stderr.contains("plancher lab check transpose"), "{}", started.stderr);
    started.ok();
    let text = std::fs::read_to_string(&file).expect("it is there");
    for part in ["// Task: ", "// lab: tile = 32x32", "void transpose(", "const ELEMENT* in, // (rows, columns)"] {
        assert!(text.contains(part), "{text}");
    }
    let again = run(&["lab", "start", "transpose", "--out", path]).error(1);
    assert!(again.contains("is there already, and is left as it is"), "{again}");
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), text);
    let bf16 = run(&["lab", "start", "6", "--dtype", "bf16", "--out", "-"]).ok();
    assert!(bf16.contains("// lab: dtype = bf16\n") && bf16.contains("b is transposed"), "{bf16}");
}

#[test]
fn an_explanation_has_prediction_measurement_and_whether_it_held() {
    let mut recorded = fixture::run();
    let evidence = Evidence::of(&recorded);
    // However its lines are broken.
    let explain =
        |path: &str| run(&["lab", "explain", "saxpy", "vectors", "--evidence", path]).ok().replace("\n   ", " ");
    let text = explain(evidence.path());
    for part in [
        "changed: ",
        "predicted: 95 to 102 % of triad, limited by memory bandwidth",
        "The prediction held.",
        "explained: f32 (counted)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // A kernel that has changed since is said to have.
    recorded.steps[0].versions[2].source_sha256 = "0".repeat(64);
    let point = &mut recorded.steps[0].versions[2].points[0];
    for time in point.milliseconds.iter_mut().chain(&mut point.host_milliseconds) {
        *time *= 2.0;
    }
    let text = explain(Evidence::of(&recorded).path());
    assert!(text.contains("The prediction did NOT hold.") && text.contains("(Stale: the kernel has changed"), "{text}");
    let value = run(&["lab", "explain", "3", "--json", "--evidence", evidence.path()]).json();
    assert_eq!(value["versions"][0]["measured"][0]["prediction_held"], true);
}

#[test]
fn the_tracking_table_says_what_was_reached() {
    let mut recorded = fixture::run();
    let status = |run_: &LabRun| run(&["lab", "status", "--json", "--evidence", Evidence::of(run_).path()]).json();
    let value = status(&recorded);
    assert_eq!((&value[0]["plan_status"], &value[0]["bar_status"]), (&"passed".into(), &"passed".into()));
    assert_eq!(value[1]["plan_status"], "not_compared");
    assert!(value[1]["measured"].as_str().is_some_and(|text| text.contains("naive 1.00x, shared ")), "{value}");
    assert_eq!(value[11]["measured"], "not here yet");
    // A kernel that has changed since it decided makes the row stale, another one does not.
    let is_stale = |recorded: &mut LabRun, id: &str| {
        for version in recorded.steps[0].versions.iter_mut().filter(|version| version.version == id) {
            version.source_sha256 = "0".repeat(64);
        }
        status(recorded)[0]["stale"] == true
    };
    assert!(!is_stale(&mut recorded, "scalar") && is_stale(&mut recorded, "unrolled"));
    // A wrong kernel is no record, however fast.
    for version in &mut recorded.steps[0].versions {
        version.cases[1].error = 9.0;
    }
    assert_eq!(status(&recorded)[0]["plan_status"], "not_measured");
    let shown = run(&["lab", "status", "--evidence", Evidence::of(&recorded).path()]);
    assert!(
        shown.stderr.contains("NVIDIA H200 (sm_90a, driver 580.1, NVRTC 13.0), 2026-11-30T02:00:00Z, commit 012345678")
    );
    assert!(shown.ok().contains("not here yet"));
}

#[test]
fn the_report_is_one_page_that_loads_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("lab.html");
    let evidence = Evidence::of(&fixture::run());
    let path = out.to_str().expect("UTF-8");
    let charts = folder.path().join("lab.svg");
    let svg = charts.to_str().expect("UTF-8");
    run(&["lab", "report", "--evidence", evidence.path(), "--out", path, "--svg", svg]).ok();
    let drawn = std::fs::read_to_string(&charts).expect("it is there");
    assert!(drawn.starts_with("<svg") && drawn.contains("prefers-color-scheme:dark"), "{drawn}");
    assert!(drawn.contains("Of triad, f32 at 2^28") && drawn.ends_with("</svg>\n"));
    let page = std::fs::read_to_string(&out).expect("it is there");
    for never in ["<script", "http://", "https://", "url(", "@import", "src="] {
        let uses = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!uses.contains(never), "{never}");
    }
    for part in [
        "prefers-color-scheme:dark",
        "Tracking table",
        "Of triad, f32 at 2^28",
        "SAXPY over sizes",
        "<g><title>",
        "roofline of shared memory",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let opened = page.matches("<svg").count();
    assert!(opened >= 8 && opened == page.matches("</svg>").count(), "{opened}");
    assert!(!page.contains("NaN") && !page.contains("inf\""), "a number is missing");
}

/// A table as Nsight Compute prints it, of SAXPY with 16-byte vectors.
const TABLE: &str = "crates/plancher-lab/tests/data/ncu-saxpy.csv";

#[test]
fn an_explanation_is_held_against_a_profilers_table() {
    let evidence = Evidence::of(&fixture::run());
    let profile = |version: &str| {
        run(&["lab", "profile", "saxpy", "--only", version, "--report", TABLE, "--into", evidence.path()])
    };
    let text = profile("vectors").ok();
    for part in
        ["saxpy/vectors f32", "memory at 92 %", "3221.2 MB counted", "3207.5 MB, -0.4 %", "long_scoreboard, 90 %"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("DOES NOT HOLD"));
    // The version that loads one element a thread has 4 sectors a request, not 16.
    let wrong = profile("scalar");
    assert_eq!(wrong.status, 1);
    assert!(wrong.stdout.contains("DOES NOT HOLD"), "{}", wrong.stdout);
    assert!(
        wrong.stderr.ends_with("plancher: 1 of 1 explanations do not hold: saxpy/scalar f32\n"),
        "{}",
        wrong.stderr
    );
    // Both are in the record now, and its verdict on step 4 goes by them.
    let status = run(&["lab", "status", "--json", "--evidence", evidence.path()]).json();
    assert_eq!(status[3]["plan_status"], "missed");
    let measured = status[3]["measured"].as_str().expect("text");
    assert!(measured.contains("(2 profiled, the others counted)"), "{measured}");
}

#[test]
fn without_a_profiler_a_record_says_what_it_can() {
    let evidence = Evidence::of(&fixture::run());
    let rows = run(&[
        "lab",
        "profile",
        "reduction",
        "--only",
        "two_level",
        "--counted",
        "--json",
        "--evidence",
        evidence.path(),
    ]);
    let value = rows.json();
    assert_eq!((&value[0]["profile"]["source"], &value[0]["holds"]), (&"counted".into(), &true.into()));
    let limiter = &value[0]["checks"][0];
    assert_eq!((&limiter["what"], &limiter["holds"]), (&"limiter".into(), &true.into()));
}

#[test]
fn counting_into_a_record_counts_from_it_and_keeps_what_a_profiler_saw() {
    let evidence = Evidence::of(&fixture::run());
    let profile = |more: &[&str]| run(&[&["lab", "profile", "saxpy", "--into", evidence.path()], more].concat());
    profile(&["--only", "vectors", "--report", TABLE]).ok();
    profile(&["--only", "vectors,unrolled", "--counted"]).ok();
    let recorded: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(evidence.path()).expect("there")).expect("JSON");
    let source = |version: &str| {
        let profiles = recorded["steps"][0]["profile"].as_array().expect("profiles");
        profiles.iter().find(|profile| profile["version"] == version).expect("it is there")["source"].clone()
    };
    assert_eq!((source("vectors"), source("unrolled")), ("ncu".into(), "counted".into()));
    let twice = profile(&["--counted", "--evidence", evidence.path()]).error(2);
    assert!(twice.contains("leave `--evidence` out"), "{twice}");
    let mut without = fixture::run();
    without.steps.remove(0);
    let other = Evidence::of(&without);
    let missing = run(&["lab", "profile", "saxpy", "--counted", "--into", other.path()]).error(1);
    assert!(missing.contains("has no step `saxpy`"), "{missing}");
}

#[test]
fn a_report_never_overwrites_what_it_is_made_from() {
    let evidence = Evidence::of(&fixture::run());
    let before = std::fs::read_to_string(evidence.path()).expect("there");
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("UTF-8");
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "mine").expect("a file");
    let notes = notes.to_str().expect("UTF-8");
    let report = |more: &[&str]| run(&[&["lab", "report", "--evidence", evidence.path()], more].concat());
    for (more, status, part) in [
        (vec!["--out", evidence.path()], 2, "it would be lost"),
        (vec!["--out", page, "--svg", evidence.path()], 2, "it would be lost"),
        (vec!["--out", page, "--svg", page], 2, "are the same file"),
        (vec!["--out", notes], 1, "is not an HTML page: it is left as it is"),
        (vec!["--out", page, "--svg", "-"], 1, "`-` is no file here"),
    ] {
        let error = report(&more).error(status);
        assert!(error.contains(part), "{more:?}: {error}");
    }
    report(&["--out", page]).ok();
    report(&["--out", page]).ok();
    assert_eq!(std::fs::read_to_string(evidence.path()).expect("there"), before);
    let measured = run(&["lab", "run", "saxpy", "--out", "/no/such/folder/run.json"]).error(1);
    assert!(measured.starts_with("plancher: cannot write `/no/such/folder/run.json`"), "{measured}");
}

#[test]
fn a_kernel_is_compiled_and_looked_at_without_a_gpu() {
    if !crate::kernels::has_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for step in ["saxpy", "transpose", "reduction", "gemm", "gemm_fast"] {
        for dtype in ["f32", "bf16"] {
            let path = folder.path().join(format!("{step}_{dtype}.cu"));
            let file = path.to_str().expect("UTF-8");
            let started = run(&["lab", "start", step, "--dtype", dtype, "--out", file]);
            if started.status == 2 {
                assert!(started.error(2).contains("`--dtype` is bf16"));
                continue;
            }
            started.ok();
            let reports = run(&["lab", "check", step, file, "--compile-only", "--json"]).json();
            let reports = &reports["reports"];
            assert_eq!(reports[0]["resources"]["spill_bytes"], 0, "{reports}");
            assert_eq!(reports.as_array().map(Vec::len), Some(if step == "transpose" { 2 } else { 1 }));
        }
    }
    let scalar = "crates/plancher-lab/kernels/saxpy/1_scalar.cu";
    let text = run(&["lab", "check", "saxpy", scalar, "--compile-only"]).ok();
    assert!(text.contains("spills         none\n") && text.contains("8 blocks of 256 threads"), "{text}");
    let path = folder.path().join("oops.cu");
    let file = path.to_str().expect("UTF-8");
    let directives = "// lab: threads = 256\n// lab: per_block = 256\n";
    std::fs::write(&path, format!("{directives}extern \"C\" __global__ void saxpy() {{ oops; }}\n")).expect("a file");
    let error = run(&["lab", "check", "saxpy", file, "--compile-only"]).error(1);
    assert!(error.contains("identifier \"oops\" is undefined"), "{error}");
    std::fs::write(&path, format!("{directives}#include <cstdint>\n")).expect("a file");
    let error = run(&["lab", "check", "saxpy", "--compile-only", "--", file]).error(1);
    assert!(error.contains("`oops.cu`, line 3: `#include`: a kernel file is complete by itself"), "{error}");
    let error = run(&["lab", "check", "saxpy", "--compile-only", "/dev/zero"]).error(1);
    assert!(error.contains("it is no regular file"), "{error}");
}

#[test]
fn what_evidence_says_does_not_reach_a_terminal_as_a_command() {
    let mut recorded = fixture::run();
    recorded.machine.gpu = "NVIDIA \u{1b}]0;H200\u{7}\u{9b}2J\u{202e}".to_owned();
    recorded.date = "2026\r".to_owned();
    recorded.steps[0].versions[0].cases[0].failure = Some(Failure {
        kind: FailureKind::WrongValue,
        shape: None,
        element: None,
        expected: None,
        got: None,
        text: "\u{1b}[8mnothing".to_owned(),
    });
    recorded.steps[0].versions[1].not_run = Some("\u{1b}[8mnothing".to_owned());
    let evidence = Evidence::of(&recorded);
    let acts = |character: char| character.is_control() && character != '\n' || character == '\u{202e}';
    for arguments in [
        vec!["lab", "status"],
        vec!["lab", "explain", "saxpy"],
        vec!["lab", "explain", "saxpy", "--json"],
        vec!["lab", "profile", "saxpy", "--counted"],
        vec!["lab", "profile", "saxpy", "--counted", "--json"],
    ] {
        let shown = run(&[&arguments[..], &["--evidence", evidence.path()]].concat());
        for text in [&shown.stdout, &shown.stderr] {
            assert!(!text.contains(acts), "{arguments:?}: {text:?}");
        }
    }
    let shown = run(&["lab", "status", "--evidence", evidence.path()]);
    assert!(shown.stderr.contains(r"NVIDIA \u{1b}]0;H200\u{7}\u{9b}2J\u{202e} (sm_90a"), "{}", shown.stderr);
}

#[test]
fn what_is_wrong_is_one_line_with_its_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let mut wrong = fixture::run();
    let good = file("good.json", &serde_json::to_string(&wrong).expect("JSON"));
    wrong.schema = 7;
    let schema = file("schema.json", &serde_json::to_string(&wrong).expect("JSON"));
    wrong.schema = 1;
    wrong.steps[0].versions[0].points[0].milliseconds[0] = -1.0;
    let negative = file("negative.json", &serde_json::to_string(&wrong).expect("JSON"));
    let messages = [
        run(&["lab", "explain", "tea"]).error(2),
        run(&["lab", "explain", "9"]).error(2),
        run(&["lab", "explain", "saxpy", "nope"]).error(2),
        run(&["lab", "start", "profiling"]).error(2),
        run(&["lab", "start", "saxpy", "--dtype", "bf16"]).error(2),
        run(&["lab", "start", "saxpy", "--dtype", "f16"]).error(2),
        run(&["lab", "status", "--evidence", "/no/such/file"]).error(1),
        run(&["lab", "status", "--evidence", "Cargo.toml"]).error(1),
        run(&["lab", "report", "--evidence", &schema]).error(1),
        run(&["lab", "report", "--evidence", &good, "--out", "/no/such/folder/x"]).error(1),
        run(&["lab", "report", "--evidence", &negative]).error(1),
    ];
    let missing = format!("{}/missing.cu", folder.path().display());
    let kernel = file("mine.cu", "// lab: threads = 256\n// lab: per_block = 256\n");
    let directives = file("bad.cu", "// lab: threads = 99999\n");
    let messages = messages.into_iter().chain([
        run(&["lab", "run", "saxpy"]).error(1),
        run(&["lab", "run", "4"]).error(2),
        run(&["lab", "run", "saxpy", "--only", "fast"]).error(2),
        run(&["lab", "run"]).error(2),
        run(&["lab", "profile", "saxpy", "--only", "vectors", "--report", "Cargo.toml"]).error(1),
        run(&["lab", "profile", "saxpy", "--report", TABLE]).error(2),
        run(&["lab", "profile", "saxpy", "--only", "vectors,scalar", "--report", TABLE]).error(2),
        run(&["lab", "profile", "saxpy", "--only", "vectors", "--report", TABLE, "--dtype", "bf16"]).error(2),
        run(&["lab", "profile", "reduction", "--only", "two_level", "--report", TABLE]).error(1),
        run(&["lab", "profile", "saxpy", "--ncu", "/no/such/ncu"]).error(1),
        run(&["lab", "profile", "saxpy", "--into", "/no/such/run"]).error(1),
        run(&["lab", "profile", "4"]).error(2),
        run(&["lab", "check", "saxpy", &kernel]).error(1),
        run(&["lab", "check", "saxpy", &kernel, "--silence", "0"]).error(2),
        run(&["lab", "check", "saxpy", &missing]).error(1),
        run(&["lab", "check", "saxpy", &missing, "--compile-only"]).error(1),
        run(&["lab", "check", "saxpy", &directives, "--compile-only"]).error(1),
        run(&["lab", "check", "profiling", &kernel]).error(2),
        run(&["lab", "check", "saxpy", &kernel, "--arch", "sm_80"]).error(2),
    ]);
    let tiles = file("tiles.cu", "// lab: threads = 256\n// lab: tile = 32x32\n");
    let escapes = file("\u{1b}[2J.cu", "// lab: threads = 256\n");
    let messages = messages.chain([
        run(&["lab", "check", "saxpy", &tiles]).error(1),
        run(&["lab", "check", "saxpy", &escapes, "--compile-only"]).error(1),
    ]);
    let messages: Vec<String> = messages.collect();
    let folder = folder.path().display().to_string();
    insta::assert_snapshot!(messages.join("\n").replace(&folder, "FOLDER"));
}
