#!/usr/bin/env python3
"""Holds `plancher floor` against the speed-of-light estimates of NVIDIA's aiconfigurator 0.12.0.

Usage: benches/floor_vs_aiconfigurator.py [--plancher PATH] [--venv DIR]

Builds nothing: needs a `plancher` binary (by default target/release/plancher, else target/debug/plancher). Installs
aiconfigurator into a virtual environment outside the repository (by default under the system's temporary directory) the
first time. Prints a Markdown table and exits with status 1 when the floor is above an estimate, or at batch 1 more than
0.3 % below it.

aiconfigurator's `SOL` mode adds bytes / bandwidth or FLOP / peak of every operation, as the floor does, and counts some
activations as well: the floor must lie below it, and close at batch 1, where weights are nearly everything. Its
generation step attends to `isl + 1` tokens, so that `isl` is the context less one.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PACKAGE = "aiconfigurator==0.12.0"

# (hub name, preset, aiconfigurator system, our machine, batch, context, tensor parallel)
CONFIGURATIONS = [
    ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b", "h200_sxm", "h200", 1, 1024, 1),
    ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b", "h100_sxm", "h100-sxm", 1, 8192, 1),
    ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b", "l40s", "l40s", 1, 2048, 1),
    ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b", "h200_sxm", "h200", 64, 1024, 1),
    ("meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b", "h100_sxm", "h100-sxm", 1, 1024, 4),
    ("Qwen/Qwen3-8B", "qwen3-8b", "h200_sxm", "h200", 1, 4096, 1),
    ("Qwen/Qwen3-32B", "qwen3-32b", "h200_sxm", "h200", 1, 1024, 1),
    ("Qwen/Qwen3-32B", "qwen3-32b", "h200_sxm", "h200", 16, 8192, 1),
    ("Qwen/Qwen3-1.7B", "qwen3-1.7b", "h100_sxm", "h100-sxm", 1, 1024, 1),
    ("Qwen/Qwen3-0.6B", "qwen3-0.6b", "l4", "l4", 1, 512, 1),
]

# Runs inside the virtual environment: one JSON object a line on standard output.
ESTIMATE = r"""
import json, sys
from aiconfigurator.cli.api import cli_estimate
for model, _, system, _, batch, context, tp in json.loads(sys.argv[1]):
    result = cli_estimate(model_path=model, system_name=system, mode="static_gen", backend_name="trtllm",
                          database_mode="SOL", isl=context - 1, osl=2, batch_size=batch, tp_size=tp, stride=1)
    operations = {}
    for source in (getattr(result.summary, "_generation_latency_dict", None) or {},):
        operations.update({name: float(value) for name, value in source.items()})
    print("RESULT " + json.dumps({"tpot": result.tpot, "operations": operations}))
"""


def estimates(venv: pathlib.Path) -> list[dict]:
    python = venv / "bin" / "python"
    if not python.exists():
        print(f"installing {PACKAGE} into {venv}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True)
    run = subprocess.run([python, "-W", "ignore", "-c", ESTIMATE, json.dumps(CONFIGURATIONS)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"aiconfigurator failed:\n{run.stderr}")
    return [json.loads(line.removeprefix("RESULT ")) for line in run.stdout.splitlines() if line.startswith("RESULT ")]


def floor(plancher: pathlib.Path, preset: str, machine: str, batch: int, context: int, tp: int) -> dict:
    command = [plancher, "floor", preset, "--on", machine, "--batch", batch, "--context", context, "--tp", tp, "--json"]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    built = [path for path in (target / "release" / "plancher", target / "debug" / "plancher") if path.exists()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plancher", type=pathlib.Path, default=built[0] if built else None)
    default = pathlib.Path(tempfile.gettempdir()) / "plancher-aiconfigurator-0.12.0"
    parser.add_argument("--venv", type=pathlib.Path, default=default)
    arguments = parser.parse_args()
    if arguments.plancher is None:
        sys.exit("no plancher binary: run `cargo build --release` first, or name one with --plancher")

    bad = 0
    print(f"{PACKAGE}, SOL mode, static_gen, bf16; milliseconds a step\n")
    print("| model | machine | TP | batch | context | floor | all-reduces | aiconfigurator | without its all-reduces | floor below it by |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for configuration, estimate in zip(CONFIGURATIONS, estimates(arguments.venv), strict=True):
        _, preset, _, machine, batch, context, tp = configuration
        ours = floor(arguments.plancher, preset, machine, batch, context, tp)
        # Communication is not part of either's weights and KV: compared without it.
        theirs = estimate["tpot"]
        reduced = sum(ms for name, ms in estimate["operations"].items() if "_ar" in name or "all_reduce" in name)
        below = 100 * (1 - ours["floor_ms"] / (theirs - reduced))
        verdict = "" if below >= 0 and (batch > 1 or below <= 0.3) else " **outside**"
        bad += bool(verdict)
        print(
            f"| {preset} | {machine} | {tp} | {batch} | {context} | {ours['floor_ms']:.4f} | {ours['comm_ms']:.4f} | {theirs:.4f} "
            f"| {theirs - reduced:.4f} | {below:.3f} %{verdict} |"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
