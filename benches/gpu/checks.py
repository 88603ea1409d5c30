"""Whether the GPU computes the right thing: golden checkpoints, transformers, a real model beside the CPU, and
compute-sanitizer."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import uuid

import torch
from safetensors.torch import load_file

from . import gguf, weights
from .evidence import ROOT

GOLDEN = ROOT / "tests/golden"
#: No mixture of experts on the GPU.
EXPERTS = {"mixtral", "qwen3-moe"}
#: Logits of unquantised models agree with float32 within this, as ARCHITECTURE.md says of the CPU.
TOLERANCE = 1e-2


def relative(ours, reference):
    return ((ours - reference).norm() / reference.norm()).item()


def ids_of(tensor):
    return ",".join(str(token) for token in tensor.tolist())


def logits(evidence, model, ids, directory, device="cuda", more=(), timeout=60):
    """Logits of every position."""
    out = pathlib.Path(directory) / f"{uuid.uuid4()}.safetensors"
    evidence.plancher(["logits", model, "--ids", ids, "--device", device, "-q", "--out", str(out), *more], timeout)
    return load_file(str(out))["logits"]


def golden_one(evidence, name, directory):
    """Relative error of each prompt's logits, tokens that differ where the gap forbids it, bits that differ."""
    golden = load_file(str(GOLDEN / name / "golden.safetensors"))
    model, errors, wrong, unequal = str(GOLDEN / name), [], 0, 0
    for length in (7, 45):
        key = next(key for key in golden if key.startswith("prompt.") and golden[key].numel() == length)
        reference, number = golden[key.replace("prompt", "logits")], key.split(".", 1)[1]
        ours = logits(evidence, model, ids_of(golden[key]), directory)
        errors.append(relative(ours, reference))
        if length == 7:
            largest = (ours - reference).abs().max().item()
            command = ["generate", "-m", model, "--ids", ids_of(golden[key]), "--ignore-eos", "-n", "32", "--json"]
            runs = [json.loads(evidence.plancher([*command, "--device", "cuda"])[0])["ids"] for _ in range(2)]
            unequal += runs[0] != runs[1]
            greedy, gap = golden[f"greedy.{number}"].tolist(), golden[f"gap.{number}"].tolist()
            for ours_, theirs, gap_ in zip(runs[0], greedy, gap):
                if ours_ != theirs:
                    wrong += gap_ > 2 * largest
                    break
    return name, max(errors), int(wrong), int(unequal)


def golden(evidence):
    """Every golden checkpoint without experts, each in its own processes, several at a time."""
    names = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name not in EXPERTS)
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda name: golden_one(evidence, name, directory), names))
    for name, error, wrong, unequal in results:
        evidence.say(f"  {name:22} {error:.2e} wrong {wrong} unequal runs {unequal}")
    wrong, unequal = sum(r[2] for r in results), sum(r[3] for r in results)
    worst = max(r[1] for r in results)
    # fp8 checkpoints hold weights that 16 bits hold exactly; all are held to the same tolerance.
    error = worst if not wrong and not unequal else float(wrong + unequal)
    evidence.check("golden", f"transformers float32 on {len(names)} golden checkpoints, greedy tokens and two runs' "
                   "tokens included", error, TOLERANCE)
    evidence.record("h200/golden/relative_error", f"{len(names)} golden checkpoints: logits' relative error "
                    f"(the largest {worst:.1e})", "x", [r[1] for r in results], "golden", ["prefill", "decode"],
                    ["plancher", "logits", "--device", "cuda"], bar={"at_most": TOLERANCE})


def batches(evidence):
    """A sequence in a batch of 3 and of 8 has the bits that it has alone."""
    differing = 0
    for name in ("llama-gqa-tied", "qwen3-qknorm", "gemma3"):
        command = ["bench", "-m", str(GOLDEN / name), "--device", "cuda", "-o", "json", "-p", "0", "-n", "32", "-d", "7"]
        rows = json.loads(evidence.plancher([*command, "-b", "1,3,8", "-r", "2"])[0])
        alone, three, eight = (row["batch_hashes"] for row in rows)
        differing += (alone != three[:1]) + (three != eight[:3]) + sum(not row["reproducible"] for row in rows)
    evidence.check("batch", "the bits of the same sequences decoded alone, 3 and 8 together (32 tokens)", differing, 0)


def transformers_1b(evidence, preset="llama-3.2-1b"):
    """The dummy checkpoint of the 1B, saved, loaded by transformers in float32 and by Plancher as files."""
    from transformers import AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as directory:
        weights.save(preset, directory)
        ids = torch.randint(0, 128000, (64,), generator=torch.Generator().manual_seed(7))
        dummy = logits(evidence, preset, ids_of(ids), directory, more=("--load-format", "dummy"))
        stored = logits(evidence, directory, ids_of(ids), directory)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).cuda().eval()
        torch.backends.cuda.matmul.allow_tf32 = False
        with torch.no_grad():
            reference = model(ids.unsqueeze(0).cuda()).logits[0].float().cpu()
    del model
    torch.cuda.empty_cache()
    errors = [relative(ours, theirs) for ours, theirs in zip(dummy, reference)]
    unequal = 0 if torch.equal(dummy, stored) else 1
    evidence.check(preset, "transformers float32 on the same dummy checkpoint, 64 positions; the checkpoint read from "
                   "its file gives the same bits", relative(dummy, reference) + unequal, TOLERANCE)
    evidence.record(f"h200/{preset}/bf16/logits/relative_error", "Llama-3.2-1B, dummy weights: logits' error against "
                    "transformers float32", "x", errors, preset, ["prefill"],
                    ["plancher", "logits", preset, "--load-format", "dummy", "--device", "cuda"],
                    bar={"at_most": TOLERANCE})


def smollm2(evidence):
    """A real model teacher-forced over 256 tokens: GPU and CPU on the same bf16 weights."""
    path = evidence.options.smollm2
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")[:4000]
    with tempfile.TemporaryDirectory() as directory:
        tokens = pathlib.Path(directory) / "tokens.safetensors"
        evidence.plancher(["logits", path, "--prompt", text, "--device", "cpu", "-q", "--out", str(tokens)])
        ids = ids_of(load_file(str(tokens))["ids"][:256])
        checkpoint = os.path.join(directory, "smollm2-bf16")
        gguf.convert(path, checkpoint)
        gpu, cpu = (logits(evidence, checkpoint, ids, directory, device) for device in ("cuda", "cpu"))
    best = cpu.topk(2, -1)
    gaps, difference = best.values[:, 0] - best.values[:, 1], (gpu - cpu).abs().amax(-1)
    wrong = ((gpu.argmax(-1) != best.indices[:, 0]) & (gaps > 2 * difference)).sum().item()
    answer, _ = evidence.plancher(["generate", "-m", path, "--device", "cuda", "-q", "--temperature", "0", "-n", "60",
                                   "Explain in one sentence why the sky is blue."])
    evidence.notes.append(f"SmolLM2 on the GPU: {' '.join(answer.split())}")
    errors = [relative(ours, theirs) for ours, theirs in zip(gpu, cpu)]
    # The CPU's kernels round nothing but the cache (f16) on bf16 weights: what differs is mostly the GPU's rounding.
    evidence.check("smollm2", f"the CPU on the same bf16 weights over {len(errors)} tokens of text: best tokens equal "
                   "wherever the gap exceeds the difference", relative(gpu, cpu) if not wrong else float(wrong), 2e-2)
    same = (gpu.argmax(-1) == best.indices[:, 0]).sum().item()
    evidence.record("h200/smollm2-135m/bf16/teacher_forced/relative_error", f"SmolLM2-135M over {len(errors)} tokens: "
                    f"logits' error against the CPU ({same} best tokens equal)", "x", errors, "smollm2", ["prefill"],
                    ["plancher", "logits", "smollm2-135m", "--device", "cuda"])


def sanitizer_one(evidence, tool, name):
    """Errors that one tool of compute-sanitizer counts."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    # The driver is asked for the parameters of kernels until it says that there are no more: no error.
    command = [program, "--tool", tool, "--print-limit", "3", "--report-api-errors", "no"]
    done = subprocess.run(command + sanitized(evidence, name), capture_output=True, text=True, timeout=100,
                          env=OWN_PRODUCTS)
    text = done.stdout + done.stderr
    found = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", text)
    if not found:
        raise RuntimeError(f"{tool} on {name}: ended with {done.returncode}: {text[-400:]}")
    count = int(found.group(1) or found.group(2))
    if count:
        evidence.notes.append(f"{tool} on {name}: {text[:1500]}")
    return count


#: Our own kernel multiplies: the tools do not see what cuBLASLt's kernels write by bulk copies.
OWN_PRODUCTS = {**os.environ, "PLANCHER_MATMUL": "own"}


def sanitized(evidence, name):
    """Prefill, then some steps of the loop on the device; quiet, so that no ceiling is measured."""
    return [evidence.options.plancher, "generate", "-m", str(GOLDEN / name), "--ids", "1,2,3,4,5,6,7", "-n", "4",
            "--ignore-eos", "--device", "cuda", "-q"]


def sanitizer(evidence):
    """All four tools on golden checkpoints, at once, with the kernels compiled before."""
    runs = [(tool, name) for name in ("llama-gqa-tied", "qwen3-qknorm")
            for tool in ("memcheck", "racecheck", "initcheck", "synccheck")]
    for name in dict.fromkeys(name for _, name in runs):
        subprocess.run(sanitized(evidence, name), check=True, capture_output=True, timeout=60, env=OWN_PRODUCTS)
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        running = [pool.submit(sanitizer_one, evidence, *run) for run in runs]
    counts, problems = {}, []
    for run, future in zip(runs, running):
        if future.exception():
            problems.append(str(future.exception())[-300:])
        else:
            counts[run] = future.result()
    evidence.say(f"  {counts}")
    evidence.check("sanitizer", "nothing: memcheck, racecheck, initcheck and synccheck find no error",
                   sum(counts.values()), 0)
    evidence.record("h200/sanitizer/errors", "compute-sanitizer on two golden checkpoints: memcheck, racecheck, "
                    "initcheck, synccheck", "errors", counts.values(), "sanitizer", ["prefill", "decode"],
                    ["compute-sanitizer", "plancher", "generate", "--device", "cuda"], bar={"at_most": 0.0})
    if problems:
        raise RuntimeError("; ".join(problems))
