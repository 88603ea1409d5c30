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


#: What computes logits: prefill, beside which the graph decodes, or decode steps of the megakernel.
LOGITS_BY = {"graph": (), "mega": ("--decode=mega",)}


def golden_one(evidence, name, directory, executor):
    """Relative error of each prompt's logits, tokens that differ where the gap forbids it, bits that differ; or why the
    executor does not take the model."""
    golden = load_file(str(GOLDEN / name / "golden.safetensors"))
    model, errors, wrong, unequal = str(GOLDEN / name), [], 0, 0
    for length in (7, 45):
        key = next(key for key in golden if key.startswith("prompt.") and golden[key].numel() == length)
        reference, number = golden[key.replace("prompt", "logits")], key.split(".", 1)[1]
        try:
            ours = logits(evidence, model, ids_of(golden[key]), directory, more=LOGITS_BY[executor])
        except RuntimeError as error:
            if executor == "graph" or "megakernel" not in str(error) or "gave up" in str(error):
                raise
            return name, str(error).partition(" ended with ")[2]
        errors.append(relative(ours, reference))
        if length == 7:
            largest = (ours - reference).abs().max().item()
            command = ["generate", "-m", model, "--ids", ids_of(golden[key]), "--ignore-eos", "-n", "32", "--json",
                       "--device", "cuda", "--executor", executor]
            runs = [json.loads(evidence.plancher(command)[0])["ids"] for _ in range(2)]
            unequal += runs[0] != runs[1]
            greedy, gap = golden[f"greedy.{number}"].tolist(), golden[f"gap.{number}"].tolist()
            for ours_, theirs, gap_ in zip(runs[0], greedy, gap):
                if ours_ != theirs:
                    wrong += gap_ > 2 * largest
                    break
    return name, max(errors), int(wrong), int(unequal)


def golden(evidence, executor="graph"):
    """Every golden checkpoint without experts, each in its own processes, several at a time."""
    names = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name not in EXPERTS)
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda name: golden_one(evidence, name, directory, executor), names))
    results = [result for result in found if len(result) == 4]
    for name, *reason in (result for result in found if len(result) != 4):
        evidence.notes.append(f"golden checkpoint {name} is not for {executor}: {reason[0]}")
    for name, error, wrong, unequal in results:
        evidence.say(f"  {name:22} {error:.2e} wrong {wrong} unequal runs {unequal}")
    wrong, unequal = sum(r[2] for r in results), sum(r[3] for r in results)
    worst = max(r[1] for r in results)
    # fp8 checkpoints hold weights that 16 bits hold exactly; all are held to the same tolerance.
    error = worst if not wrong and not unequal else float(wrong + unequal)
    check, part, who = {"graph": ("golden", "", ""), "mega": ("mega-golden", "mega/", "the megakernel's ")}[executor]
    count = f"{len(results)}" if len(results) == len(names) else f"{len(results)} of {len(names)}"
    evidence.check(check, f"transformers float32 on {count} golden checkpoints, greedy tokens and two runs' tokens "
                   "included", error, TOLERANCE)
    evidence.record(f"h200/golden/{part}relative_error", f"{count} golden checkpoints: {who}logits' relative error "
                    f"(the largest {worst:.1e})", "x", [r[1] for r in results], check,
                    ["mega"] if executor == "mega" else ["prefill", "decode"],
                    ["plancher", "logits", "--device", "cuda", *LOGITS_BY[executor]], bar={"at_most": TOLERANCE})


def batches(evidence):
    """A sequence in a batch of 3 and of 8 has the bits that it has alone."""
    differing = 0
    for name in ("llama-gqa-tied", "qwen3-qknorm", "gemma3"):
        command = ["bench", "-m", str(GOLDEN / name), "--device", "cuda", "-o", "json", "-p", "0", "-n", "32", "-d", "7",
                   "--executor", "graph"]
        rows = json.loads(evidence.plancher([*command, "-b", "1,3,8", "-r", "2"])[0])
        alone, three, eight = (row["batch_hashes"] for row in rows)
        differing += (alone != three[:1]) + (three != eight[:3]) + sum(not row["reproducible"] for row in rows)
    evidence.check("batch", "the bits of the same sequences decoded alone, 3 and 8 together (32 tokens)", differing, 0)


def references(directory, ids):
    """Logits of transformers on a checkpoint, (positions, vocabulary): in float32, and in PyTorch's own bf16."""
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).cuda().eval()
    torch.backends.cuda.matmul.allow_tf32 = False
    found = []
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            found.append(model.to(dtype)(ids.unsqueeze(0).cuda()).logits[0].float().cpu())
    del model
    torch.cuda.empty_cache()
    return found


def divergences(reference, others, block=64):
    """The KL divergence of each of `others` from the reference at every position, in nats."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = [[] for _ in others]
    for first in range(0, len(reference), block):
        expected = reference[first:first + block].to(device).double().log_softmax(-1)
        for kept, other in zip(found, others):
            other = other[first:first + block].to(device).double().log_softmax(-1)
            kept.append((expected.exp() * (expected - other)).sum(-1).cpu())
    return [torch.cat(kept) for kept in found]


def transformers_1b(evidence, preset="llama-3.2-1b", positions=512):
    """The dummy checkpoint of the 1B, saved, loaded by transformers in float32 and by Plancher as files; prefill, and
    every position by a step of the megakernel."""
    with tempfile.TemporaryDirectory() as directory:
        weights.save(preset, directory)
        ids = torch.randint(0, 128000, (positions,), generator=torch.Generator().manual_seed(7))
        of_dummy = ("--load-format", "dummy")
        dummy = logits(evidence, preset, ids_of(ids), directory, more=of_dummy)
        stored = logits(evidence, directory, ids_of(ids), directory)
        reference, half = references(directory, ids)
        command = ["plancher", "logits", preset, *of_dummy, "--device", "cuda"]
        unequal = 0 if torch.equal(dummy, stored) else 1
        errors = [relative(ours, theirs) for ours, theirs in zip(dummy, reference)]
        evidence.check(preset, f"transformers float32 on the same dummy checkpoint, {positions} positions; the checkpoint "
                       "read from its file gives the same bits", relative(dummy, reference) + unequal, TOLERANCE)
        evidence.record(f"h200/{preset}/bf16/logits/relative_error", "Llama-3.2-1B, dummy weights: logits' error against "
                        "transformers float32", "x", errors, preset, ["prefill"], command, bar={"at_most": TOLERANCE})
        mega = logits(evidence, preset, ids_of(ids), directory, more=(*of_dummy, *LOGITS_BY["mega"]))
    errors = [relative(ours, theirs) for ours, theirs in zip(mega, reference)]
    command += LOGITS_BY["mega"]
    evidence.check("mega-transformers", f"transformers float32 on the same dummy checkpoint, {positions} positions",
                   relative(mega, reference), TOLERANCE)
    evidence.record(f"h200/{preset}/bf16/mega/logits/relative_error", "Llama-3.2-1B, dummy weights: error of the "
                    "megakernel's logits against transformers float32", "x", errors, "mega-transformers", ["mega"], command,
                    bar={"at_most": TOLERANCE})
    ours, theirs = divergences(reference, (mega, half))
    evidence.check("mega-divergence", f"PyTorch bf16 on the same checkpoint: mean KL divergence to float32 over {positions} "
                   f"positions, {ours.mean():.2e} against {theirs.mean():.2e} nats", ours.mean() / theirs.mean(), 1)
    # Of blocks of 64 positions each.
    ours, theirs = (kl.view(-1, 64).mean(-1).tolist() for kl in (ours, theirs))
    evidence.record(f"h200/{preset}/bf16/mega/divergence_over_torch", "Llama-3.2-1B, dummy weights: mean KL divergence of "
                    "64 positions to float32 over PyTorch bf16's", "x", ours, "mega-divergence", ["mega"], command,
                    sample_unit="nats", baseline="transformers in bf16", baseline_samples=theirs, bar={"at_most": 1.0})


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
        cpu = logits(evidence, checkpoint, ids, directory, "cpu")
        gpu = {executor: logits(evidence, checkpoint, ids, directory, more=more) for executor, more in LOGITS_BY.items()}
    best = cpu.topk(2, -1)
    for executor, ours in gpu.items():
        gaps, difference = best.values[:, 0] - best.values[:, 1], (ours - cpu).abs().amax(-1)
        wrong = ((ours.argmax(-1) != best.indices[:, 0]) & (gaps > 2 * difference)).sum().item()
        errors = [relative(mine, theirs) for mine, theirs in zip(ours, cpu)]
        check, part, who = {"graph": ("smollm2", "", "logits'"),
                            "mega": ("mega-smollm2", "mega/", "the megakernel's logits'")}[executor]
        # The CPU's kernels round nothing but the cache (f16) on bf16 weights: what differs is mostly the GPU's rounding.
        evidence.check(check, f"the CPU on the same bf16 weights over {len(errors)} tokens of text: best tokens equal "
                       "wherever the gap exceeds the difference", relative(ours, cpu) if not wrong else float(wrong), 2e-2)
        same = (ours.argmax(-1) == best.indices[:, 0]).sum().item()
        evidence.record(f"h200/smollm2-135m/bf16/{part}teacher_forced/relative_error", f"SmolLM2-135M over {len(errors)} "
                        f"tokens: {who} error against the CPU ({same} best tokens equal)", "x", errors, check,
                        ["mega"] if executor == "mega" else ["prefill"],
                        ["plancher", "logits", "smollm2-135m", "--device", "cuda", *LOGITS_BY[executor]])
        answer, _ = evidence.plancher(["generate", "-m", path, "--device", "cuda", "-q", "--temperature", "0", "-n", "60",
                                       "--executor", executor, "Explain in one sentence why the sky is blue."])
        evidence.notes.append(f"SmolLM2 on the GPU ({executor}): {' '.join(answer.split())}")


def sanitizer_one(evidence, tool, name, executor):
    """Errors that one tool of compute-sanitizer counts."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    # The driver is asked for the parameters of kernels until it says that there are no more: no error.
    command = [program, "--tool", tool, "--print-limit", "3", "--report-api-errors", "no"]
    done = subprocess.run(command + sanitized(evidence, name, executor), capture_output=True, text=True, timeout=100,
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


def sanitized(evidence, name, executor):
    """Prefill, then some steps of the loop on the device, one model's with a draw; quiet, so that no ceiling is measured."""
    drawn = ["--temperature", "0.8", "--top-k", "40", "--top-p", "0.95", "--repetition-penalty", "1.1", "--seed", "1"]
    return [evidence.options.plancher, "generate", "-m", str(GOLDEN / name), "--ids", "1,2,3,4,5,6,7", "-n", "4",
            "--ignore-eos", "--device", "cuda", "-q", "--executor", executor, *(drawn if name == "qwen3-qknorm" else ())]


#: racecheck knows no flags in shared memory, by which the megakernel's warps meet: it would report each as a race.
#: `tests/protocol` holds the protocol to the memory model instead.
TOOLS = {"graph": ("memcheck", "racecheck", "initcheck", "synccheck"), "mega": ("memcheck", "initcheck", "synccheck")}


def sanitizer(evidence, executor="graph"):
    """The tools that can tell on golden checkpoints, at once, with the kernels compiled before."""
    runs = [(tool, name) for name in ("llama-gqa-tied", "qwen3-qknorm") for tool in TOOLS[executor]]
    tools = f"{', '.join(TOOLS[executor][:-1])} and {TOOLS[executor][-1]}"
    for name in dict.fromkeys(name for _, name in runs):
        subprocess.run(sanitized(evidence, name, executor), check=True, capture_output=True, timeout=60, env=OWN_PRODUCTS)
    with concurrent.futures.ThreadPoolExecutor(len(runs)) as pool:
        running = [pool.submit(sanitizer_one, evidence, *run, executor) for run in runs]
    counts, problems = {}, []
    for run, future in zip(runs, running):
        if future.exception():
            problems.append(str(future.exception())[-300:])
        else:
            counts[run] = future.result()
    evidence.say(f"  {counts}")
    check, part, who, sources = {"graph": ("sanitizer", "", "", ["prefill", "decode"]),
                                 "mega": ("mega-sanitizer", "mega/", ", the megakernel", ["mega"])}[executor]
    evidence.check(check, f"nothing: {tools} find no error", sum(counts.values()), 0)
    evidence.record(f"h200/sanitizer/{part}errors", f"compute-sanitizer on two golden checkpoints{who}: {tools}",
                    "errors", counts.values(), check, sources,
                    ["compute-sanitizer", "plancher", "generate", "--device", "cuda", "--executor", executor],
                    bar={"at_most": 0.0})
    if problems:
        raise RuntimeError("; ".join(problems))
