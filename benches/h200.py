#!/usr/bin/env python3
"""Measures `plancher` on an NVIDIA H200 and writes the evidence: speed beside PyTorch's, with the checks that the figures
are of something right. One command, some minutes, on the machine with the GPU (Python 3.12 with torch and transformers):

    benches/h200.py --plancher target/release/plancher --commit $(git rev-parse --short=12 HEAD) --out h200.json

Every piece has its own time-out, and what it found is written at once: one failure does not lose the rest. A piece
that failed is named at the end and in the exit status. Then `evidence/h200.json` is what was written, and
`cargo xtask evidence --write` holds it to the rules and brings README's table up to date.

`--only` runs some of the pieces; with `--keep evidence/h200.json` the records of the others stay, as long as the kernels
that they measured are those in the tree:

    benches/h200.py ... --keep evidence/h200.json --only mega-golden,transformers,mega
    benches/h200.py ... --keep evidence/h200.json --only mega-sanitizer,mega-tests,endurance,smollm2
    benches/h200.py ... --keep evidence/h200.json --only lab-tests --lab-tests PROGRAM
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time

from gpu import checks, lab, mega, torch_step
from gpu.evidence import Evidence
from gpu.weights import PRESETS

STEPS = 128
#: Rounds in which Plancher and PyTorch take turns, and samples of each in a round.
ROUNDS, SAMPLES = 3, 2
TITLES = {"llama-3.2-1b": "Llama-3.2-1B", "qwen3-0.6b": "Qwen3-0.6B", "llama-3.1-8b": "Llama-3.1-8B"}
#: Milliseconds a token that were to be reached.
BARS = {("llama-3.2-1b", 32): 0.795, ("llama-3.2-1b", 2048): 0.90, ("qwen3-0.6b", 32): 0.70, ("llama-3.1-8b", 32): 4.20}
#: What PyTorch is measured at: each takes a compilation.
COMPARED = [("llama-3.2-1b", 32), ("qwen3-0.6b", 32), ("llama-3.1-8b", 32)]


def machine(evidence):
    """What the GPU, its driver and its compiler are; no paths."""
    found = json.loads(evidence.plancher(["doctor", "--json", "--no-bandwidth"])[0])["gpu"]
    device = found["devices"][0]
    telemetry = device.get("telemetry") or {}
    evidence.machine.update({
        "gpu": device["properties"]["name"], "memory_bytes": device["properties"]["memory"],
        "multiprocessors": device["properties"]["multiprocessors"], "driver": telemetry.get("driver"),
        "cuda": found["driver"]["version"], "nvrtc": found["nvrtc"]["version"],
    })
    evidence.say(f"  {evidence.machine}")


def decode(evidence):
    """Milliseconds a token, interleaved with PyTorch."""
    theirs_of = {}
    for preset, context in COMPARED if not evidence.options.no_torch else []:
        try:
            began = time.monotonic()
            theirs_of[preset, context] = torch_step.Step(preset, context, STEPS)
            evidence.say(f"  torch {preset} at {context}: ready in {time.monotonic() - began:.0f} s")
        except (RuntimeError, ValueError) as error:
            evidence.notes.append(f"torch {preset} at {context}: {str(error)[:300]}")
    rows, theirs = {}, {key: [] for key in theirs_of}
    for _ in range(ROUNDS):
        for preset in TITLES:
            batch = ["-b", "1,8"] if preset == "llama-3.1-8b" else []
            arguments = ["-m", preset, "-p", "0", "-n", str(STEPS), "-d", "32,2048", "-r", str(SAMPLES),
                         "--executor", "graph", *batch]
            found, said = evidence.bench(arguments)
            evidence.loads.setdefault(preset, []).extend(loading_seconds(said))
            for row in found:
                rows.setdefault((preset, row["n_depth"], row["n_batch"]), []).append(row)
            for key, step in theirs_of.items():
                if key[0] == preset:
                    theirs[key] += [step.milliseconds() for _ in range(SAMPLES)]
    theirs_of.clear()
    hashes = {key: {row["logits_hash"] for row in found} for key, found in rows.items()}
    unequal = sum(len(found) != 1 for found in hashes.values()) + sum(
        not row["reproducible"] for found in rows.values() for row in found)
    evidence.check("repeat", f"the bits of the same run in {ROUNDS} processes, {SAMPLES} times in each", unequal, 0)
    ceilings = []
    for (preset, context, batch), found in rows.items():
        samples = [ms for row in found for ms in row["device_ms_per_token"]]
        ceiling = [value for row in found for value in row["ceiling_samples"]]
        ceilings += ceiling
        walls = [ns / 1e6 / STEPS for row in found for ns in row["samples_ns"]]
        title = f"{TITLES[preset]} at context {context}" + (f", batch {batch}" if batch > 1 else "")
        prefix = f"h200/{preset}/bf16/b{batch}/ctx{context}/graph"
        argv = ["plancher", "bench", "-m", preset, "--load-format", "dummy", "--device", "cuda", "-p", "0", "-n",
                str(STEPS), "-d", str(context), "-b", str(batch), "--executor", "graph"]
        states = {"before": found[0]["gpu_before"], "after": found[-1]["gpu_after"]}
        common = {"sources": ["decode"], "argv": argv, "check": preset if preset in evidence.checks else "golden"}
        bytes_ = found[0]["bytes_per_token"] * batch
        bar = BARS.get((preset, context)) if batch == 1 else None
        evidence.record(f"{prefix}/ms_per_token", f"{title}: a decode step", "ms", samples, bytes=bytes_,
                        ceilings={"read": ceiling}, wall_ms=walls, states=states,
                        logits_hash=found[0]["logits_hash"], bar={"at_most": bar} if bar else None, **common)
        rate = [bytes_ / ms / 1e6 for ms in samples]
        evidence.record(f"{prefix}/fraction_of_read", f"{title}: bytes a second over the read ceiling", "x", rate,
                        sample_unit="GB/s", baseline="read ceiling", baseline_samples=ceiling[:len(rate)], **common)
        if theirs.get((preset, context)) and batch == 1:
            evidence.record(f"{prefix}/over_torch", f"{title}: time of a step over PyTorch's", "x", samples,
                            sample_unit="ms", baseline="torch.compile, one CUDA graph",
                            baseline_samples=theirs[preset, context], **common)
        evidence.say(f"  {preset} b{batch} ctx{context}: {sorted(samples)[len(samples) // 2]:.4f} ms, wall "
                     f"{sorted(walls)[len(walls) // 2]:.4f}, torch {theirs.get((preset, context), [])[:3]}")
        if batch == 8:
            alone = [ms for row in rows[preset, context, 1] for ms in row["device_ms_per_token"]]
            evidence.record(f"{prefix}/over_b1", f"{title}: time of a step over that of one sequence", "x", samples,
                            sample_unit="ms", baseline="batch 1", baseline_samples=alone,
                            bar={"at_most": 1.25} if context == 32 else None, **common)
    evidence.record("h200/ceiling/read_gb_per_s", "reading memory and nothing else", "GB/s", ceilings, "repeat",
                    ["ceiling"], ["plancher", "bench", "--device", "cuda"])


def loading_seconds(said):
    """The times that `-v` reports for putting weights on the GPU."""
    return [float(ms) / 1e3 for ms in re.findall(r"on the GPU in ([0-9.]+) ms", said)]


def prefill_flops(preset, tokens):
    """FLOP of a causal pass over `tokens` tokens with logits of the last."""
    config = PRESETS[preset]
    hidden, heads, kv_heads = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    head_dim = config.get("head_dim", hidden // heads)
    weights = hidden * head_dim * (2 * heads + 2 * kv_heads) + 3 * hidden * config["intermediate_size"]
    attention = 4 * heads * head_dim * tokens * (tokens + 1) // 2
    return config["num_hidden_layers"] * (2 * weights * tokens + attention) + 2 * config["vocab_size"] * hidden


def prefill(evidence, preset="llama-3.1-8b", tokens=2048):
    """Prefill beside the rate of a bf16 matrix product, in turns."""
    seconds, products, states = [], [], []
    for _ in range(ROUNDS):
        products += [torch_step.matmul_tflops() for _ in range(SAMPLES)]
        rows, said = evidence.bench(["-m", preset, "-p", str(tokens), "-n", "0", "-r", str(SAMPLES)])
        evidence.loads.setdefault(preset, []).extend(loading_seconds(said))
        seconds += [ns / 1e9 for ns in rows[0]["samples_ns"]]
        states += [rows[0]["gpu_before"], rows[0]["gpu_after"]]
    flops = prefill_flops(preset, tokens)
    rates = [flops / second / 1e12 for second in seconds]
    argv = ["plancher", "bench", "-m", preset, "--load-format", "dummy", "--device", "cuda", "-p", str(tokens), "-n", "0"]
    common = {"check": "golden", "sources": ["prefill"], "argv": argv}
    evidence.record(f"h200/{preset}/bf16/prefill{tokens}/fraction_of_matmul", f"{TITLES[preset]}: prefill of {tokens} "
                    "tokens, FLOP/s over a bf16 product's", "x", rates, sample_unit="TFLOP/s", states=states,
                    baseline="cuBLAS, 8192³", baseline_samples=products, bar={"at_least": 0.5}, **common)
    evidence.record(f"h200/{preset}/bf16/prefill{tokens}/s", f"{TITLES[preset]}: prefill of {tokens} tokens", "s",
                    seconds, flops=flops, **common)
    evidence.say(f"  {sorted(rates)[len(rates) // 2]:.0f} of {sorted(products)[len(products) // 2]:.0f} TFLOP/s")


def start(evidence):
    """Loading, and the first process's compilation of kernels beside a later one's."""
    if len(evidence.loads.get("llama-3.1-8b", [])) >= 5:
        evidence.record("h200/llama-3.1-8b/bf16/load_s", "Llama-3.1-8B: 16 GB of dummy weights on the GPU", "s",
                        evidence.loads["llama-3.1-8b"], "golden", ["decode"], ["plancher", "bench", "-v"],
                        bar={"at_most": 20.0})
    cold, warm = [], []
    command = ["generate", "-m", "llama-3.2-1b", "--load-format", "dummy", "--ids", "1,2,3", "-n", "4", "-q"]
    for _ in range(5):
        with tempfile.TemporaryDirectory() as cache:
            for times in (cold, warm):
                began = time.monotonic()
                evidence.plancher([*command, "--device", "cuda"], environment={**os.environ, "XDG_CACHE_HOME": cache})
                times.append(time.monotonic() - began)
    for name, title, times, bar in (("first", "first ever, kernels compiled", cold, 10.0),
                                    ("later", "kernels from the cache", warm, None)):
        evidence.record(f"h200/llama-3.2-1b/bf16/{name}_process_s", f"Llama-3.2-1B: whole process with 4 tokens, {title}",
                        "s", times, "golden", ["decode", "prefill", "mega"], ["plancher", *command], bar=bar and {"at_most": bar})
    evidence.say(f"  cold {cold}, warm {warm}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plancher", required=True, help="the program")
    parser.add_argument("--out", required=True, help="where the records go")
    parser.add_argument("--commit", required=True, help="the commit that the program was built from")
    parser.add_argument("--dirty", action="store_true", help="it was built from changed files")
    parser.add_argument("--smollm2", help="SmolLM2-135M-Instruct.Q4_1.gguf, where it is at hand")
    parser.add_argument("--deadline", type=float, default=340, help="seconds for all of it")
    parser.add_argument("--only", default="", help="pieces to run, separated by commas [default: all]")
    parser.add_argument("--keep", metavar="FILE", help="records of an earlier run, for what this one does not measure")
    parser.add_argument("--gpu-tests", metavar="PROGRAM", help="the test program `gpu` of plancher-cuda")
    parser.add_argument("--lab-tests", metavar="PROGRAM", help="the test program `gpu` of plancher-lab")
    parser.add_argument("--no-torch", action="store_true", help="do not compare with PyTorch")
    evidence = Evidence(parser.parse_args())
    options = evidence.options
    wanted = {name for name in options.only.split(",") if name}

    def some(pieces):
        return [piece for piece in pieces if not wanted or piece[0] in wanted]
    evidence.piece("machine", 20, machine)
    # What the figures' checks are comes first, then the figures, then what takes long.
    evidence.together(75, some([("golden", checks.golden), ("mega-golden", mega.golden), ("batches", checks.batches),
                                ("transformers", checks.transformers_1b)]))
    for name, work, seconds in some([("mega", mega.speed, 150), ("decode", decode, 130), ("prefill", prefill, 40)]):
        evidence.piece(name, seconds, work)
    evidence.together(170, some([("sanitizer", checks.sanitizer), ("mega-sanitizer", mega.sanitizer),
                                 ("mega-tests", mega.gpu_tests), ("endurance", mega.endurance),
                                 ("smollm2", checks.smollm2 if options.smollm2 else no_model)]))
    for name, work, seconds in some([("lab-tests", lab.tests, 90), ("start", start, 50)]):
        evidence.piece(name, seconds, work)
    for line in evidence.notes + evidence.failures:
        print(line)
    wrong = [name for name, check in evidence.checks.items() if check["error"] > check["tolerance"]]
    print(f"{len(evidence.records)} records; checks above their tolerance: {', '.join(wrong) or 'none'}; "
          f"pieces that failed: {len(evidence.failures)}")
    return 1 if wrong or evidence.failures else 0


def no_model(_):
    raise RuntimeError("not run: no `--smollm2`")


if __name__ == "__main__":
    # A thread whose work came too late must not keep the process.
    status = main()
    sys.stdout.flush()
    os._exit(status)
