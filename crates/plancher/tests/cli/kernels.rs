//! `kernels`, and how missing libraries of NVIDIA's are told. Compiling is skipped where there is no NVRTC, unless
//! `PLANCHER_REQUIRE_NVRTC=1` (CI sets it, having installed one).

use std::process::Command;

use crate::common::{command, output, run};

/// The program where NVIDIA's libraries cannot be found.
fn without_nvidia(arguments: &[&str]) -> Option<Command> {
    let mut command = command(arguments);
    for name in
        ["PLANCHER_NVRTC_DIR", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "HOME"]
    {
        command.env_remove(name);
    }
    command.env("PATH", "");
    let installed = ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu/libnvrtc.so"];
    let is_there = installed.iter().any(|path| std::path::Path::new(path).exists());
    (!is_there).then_some(command)
}

/// Whether there is an NVRTC to compile with.
pub(crate) fn has_nvrtc() -> bool {
    let found = run(&["doctor", "--no-bandwidth", "--json"]).json()["gpu"]["nvrtc"]["version"].is_string();
    assert!(found || std::env::var_os("PLANCHER_REQUIRE_NVRTC").is_none(), "there is no NVRTC");
    found
}

#[test]
fn files_are_listed_with_their_kernels_and_architectures() {
    let value = run(&["kernels", "list", "--json"]).json();
    let files = value.as_array().expect("a list");
    let latency = files.iter().find(|file| file["name"] == "latency").expect("it is there");
    let kernels = latency["kernels"].as_array().expect("a list");
    assert!(kernels.iter().any(|kernel| kernel == "latency_grid_barrier"));
    assert!(latency["architectures"].as_array().is_some_and(|list| list.iter().any(|name| name == "sm_90a")));
    assert_eq!(latency["source_sha256"].as_str().map(str::len), Some(64));
    let text = run(&["kernels", "list"]).ok();
    assert!(files.iter().all(|file| text.contains(file["name"].as_str().expect("a name"))), "{text}");
}

#[test]
fn a_file_compiles_for_a_named_architecture_and_is_shown_as_machine_code() {
    if !has_nvrtc() {
        return;
    }
    let cache = tempfile::tempdir().expect("a directory");
    let compile = || {
        let mut command = command(&["kernels", "compile", "latency", "--arch", "sm_80,sm_90a", "--json"]);
        output(command.env("XDG_CACHE_HOME", cache.path())).json()
    };
    let (cold, warm) = (compile(), compile());
    for (report, cached) in [(&cold, false), (&warm, true)] {
        let rows = report["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row["cached"] == cached && row["cubin_bytes"].as_u64() > Some(0)));
        assert_eq!(report["findings"].as_array().map(Vec::len), Some(0));
    }
    assert_eq!(cold["rows"][0]["kernels"], warm["rows"][0]["kernels"]);
    let table = run(&["kernels", "compile", "latency", "--arch", "sm_90a"]).ok();
    assert!(table.lines().any(|line| line.starts_with("| latency_flag") && line.contains("sm_90a")), "{table}");
    let sass = run(&["kernels", "sass", "latency"]);
    if sass.status == 0 {
        assert!(sass.stdout.contains(".text.latency_empty:") && sass.stdout.contains("ACQBULK"));
    } else {
        assert!(sass.error(1).contains("`nvdisasm` was not found"));
    }
}

#[test]
fn a_wrong_name_says_what_there_is() {
    let unknown = run(&["kernels", "compile", "nope"]).error(2);
    assert!(unknown.contains("'nope'") && unknown.contains("bandwidth, latency"), "{unknown}");
    let architecture = run(&["kernels", "compile", "--arch", "gfx90a"]).error(2);
    assert!(architecture.contains("`gfx90a` is no GPU architecture"), "{architecture}");
    if has_nvrtc() {
        let old = run(&["kernels", "compile", "--arch", "sm_75"]).error(2);
        assert!(old.starts_with("plancher: `--arch` is sm_75, but nothing of "), "{old}");
    }
    let shape = run(&["kernels", "sass", "latency", "--shape", "round"]).error(2);
    assert_eq!(shape, "plancher: `--shape` is `round`, but `latency` has `device`");
}

#[test]
fn what_is_missing_is_told_with_the_places_and_what_to_install() {
    let Some(mut compile) = without_nvidia(&["kernels", "compile"]) else { return };
    let error = output(&mut compile).error(1);
    for part in ["`libnvrtc.so` was not found (looked in ", "/usr/local/cuda/lib64", "pip install nvidia-cuda-nvrtc"] {
        assert!(error.contains(part), "{error}");
    }
    let Some(mut doctor) = without_nvidia(&["doctor", "--no-bandwidth", "--json"]) else { return };
    let value = output(&mut doctor).json();
    assert!(value["gpu"]["nvrtc"]["problem"].as_str().is_some_and(|problem| problem.contains("PLANCHER_NVRTC_DIR")));
    assert!(value["gpu"]["nvrtc"]["found"].is_null() && value["gpu"]["devices"].is_array());
}
