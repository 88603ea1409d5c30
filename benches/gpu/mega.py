"""The megakernel: its speed in turns with the graph's in one process, and whether it holds: golden checkpoints,
compute-sanitizer, long runs, stops, several processes at once."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import threading
import time

from . import checks, torch_step
from .evidence import ROOT

#: Rounds of processes, and samples of each executor in a process.
ROUNDS, SAMPLES, STEPS = 3, 2, 128
TITLES = {"llama-3.2-1b": "Llama-3.2-1B", "qwen3-0.6b": "Qwen3-0.6B", "llama-3.1-8b": "Llama-3.1-8B"}
#: Milliseconds a token at each context: what must be reached, and the goal.
BARS = {
    "llama-3.2-1b": {32: (0.600, 0.555), 512: (0.66, 0.575), 2048: (0.70, 0.59), 8192: (0.80, 0.66), 32768: (1.11, 0.85)},
    "qwen3-0.6b": {32: (0.45, 0.36)},
    "llama-3.1-8b": {32: (3.55, 3.40)},
}
#: What the graph's time over the megakernel's must be.
RATIOS = {("llama-3.2-1b", 32): 1.10, ("qwen3-0.6b", 32): 1.10}
#: Also measured in PyTorch, in the same minutes.
COMPARED_AT = 32
MEGA = ("--executor", "mega")


def torch_steps(evidence):
    """PyTorch's step of each model, ready to run; one that fails is noted."""
    steps = {}
    for preset in BARS if not evidence.options.no_torch else ():
        try:
            began = time.monotonic()
            steps[preset] = torch_step.Step(preset, COMPARED_AT, STEPS)
            evidence.say(f"  torch {preset} at {COMPARED_AT}: ready in {time.monotonic() - began:.0f} s")
        except (RuntimeError, ValueError) as error:
            evidence.notes.append(f"torch {preset} at {COMPARED_AT}: {str(error)[:300]}")
    return steps


def speed(evidence):
    """Milliseconds a token, the megakernel and the graph in turns in one process, PyTorch between the processes."""
    steps = torch_steps(evidence)
    theirs, rows = {preset: [] for preset in steps}, {}
    for _ in range(ROUNDS):
        for preset, bars in BARS.items():
            depths = ",".join(str(context) for context in bars)
            found, _ = evidence.bench(["-m", preset, "-p", "0", "-n", str(STEPS), "-d", depths, "-r", str(SAMPLES),
                                       "--executor", "mega,graph"])
            for row in found:
                rows.setdefault((preset, row["n_depth"], row["executor"]), []).append(row)
            if preset in steps:
                theirs[preset] += [steps[preset].milliseconds() for _ in range(SAMPLES)]
    steps.clear()
    unequal = sum(len({row["logits_hash"] for row in found}) != 1 or not all(row["reproducible"] for row in found)
                  for found in rows.values())
    evidence.check("mega-repeat", f"the bits of the same run in {ROUNDS} processes, {SAMPLES} times in each, of the "
                   "megakernel and of the graph", unequal, 0)
    for preset, bars in BARS.items():
        for context in bars:
            figures(evidence, preset, context, rows, theirs.get(preset) if context == COMPARED_AT else None)


def figures(evidence, preset, context, rows, theirs):
    """The records of one model at one context."""
    ours, graphs = (rows.get((preset, context, executor), []) for executor in ("mega", "graph"))
    milliseconds, of_graph = ([ms for row in found for ms in row["device_ms_per_token"]] for found in (ours, graphs))
    if len(milliseconds) != ROUNDS * SAMPLES or len(of_graph) != len(milliseconds):
        raise RuntimeError(f"{preset} at {context}: {len(milliseconds)} samples of the megakernel, "
                           f"{len(of_graph)} of the graph")
    ceiling = [value for row in ours for value in row["ceiling_samples"]]
    walls = [ns / 1e6 / STEPS for row in ours for ns in row["samples_ns"]]
    title, prefix = f"{TITLES[preset]} at context {context}", f"h200/{preset}/bf16/b1/ctx{context}/mega"
    must, goal = BARS[preset][context]
    argv = ["plancher", "bench", "-m", preset, "--load-format", "dummy", "--device", "cuda", "-p", "0", "-n",
            str(STEPS), "-d", str(context), "--executor", "mega,graph"]
    common = {"sources": ["mega"], "argv": argv, "check": "mega-golden"}
    bytes_ = ours[0]["bytes_per_token"]
    evidence.record(f"{prefix}/ms_per_token", f"{title}: a token", "ms", milliseconds, bytes=bytes_,
                    ceilings={"read": ceiling}, wall_ms=walls, logits_hash=ours[0]["logits_hash"], goal=goal,
                    states={"before": ours[0]["gpu_before"], "after": ours[-1]["gpu_after"]},
                    bar={"at_most": must}, **common)
    both = {**common, "sources": ["mega", "decode"]}
    evidence.record(f"{prefix}/ratio_to_graph", f"{title}: the graph's time over the megakernel's", "x", of_graph,
                    sample_unit="ms", baseline="the graph, in turns", baseline_samples=milliseconds,
                    bar={"at_least": RATIOS[preset, context]} if (preset, context) in RATIOS else None, **both)
    rate = [bytes_ / ms / 1e6 for ms in milliseconds]
    evidence.record(f"{prefix}/fraction_of_read", f"{title}: bytes a second over the read ceiling", "x", rate,
                    sample_unit="GB/s", baseline="read ceiling", baseline_samples=ceiling[:len(rate)], **common)
    if theirs:
        evidence.record(f"{prefix}/over_torch", f"{title}: time of a token over PyTorch's", "x", milliseconds,
                        sample_unit="ms", baseline="torch.compile, one CUDA graph", baseline_samples=theirs, **common)
    middle = len(milliseconds) // 2
    evidence.say(f"  {preset} at {context}: {sorted(milliseconds)[middle]:.4f} ms (must {must}, goal {goal}), wall "
                 f"{sorted(walls)[middle]:.4f}, graph {sorted(of_graph)[middle]:.4f}, torch {(theirs or [])[:3]}")


def golden(evidence):
    """Every golden checkpoint without experts: logits of each step, and greedy tokens."""
    checks.golden(evidence, executor="mega")


def sanitizer(evidence):
    """compute-sanitizer on golden checkpoints."""
    checks.sanitizer(evidence, executor="mega")


def gpu_tests(evidence):
    """The tests of plancher-cuda about the megakernel: among them 1,000 starts and stops in the middle of launches, waits
    that are given up and named, draws equal to the graph's."""
    if not evidence.options.gpu_tests:
        raise RuntimeError("not run: no `--gpu-tests`")
    environment = {**os.environ, "PLANCHER_REQUIRE_GPU": "1"}
    done = subprocess.run([os.path.abspath(evidence.options.gpu_tests), "--test-threads=4", "mega"], capture_output=True,
                          text=True, timeout=160, env=environment, cwd=ROOT / "crates/plancher-cuda")
    verdicts = dict(re.findall(r"^test (mega\S*) \.\.\. (?:.*\n)*?(ok|FAILED)$", done.stdout, re.M))
    failed = [name for name, verdict in verdicts.items() if verdict != "ok"]
    summary = re.search(r"test result: \S+ (\d+) passed; (\d+) failed", done.stdout)
    if not summary or int(summary.group(1)) + int(summary.group(2)) == 0:
        raise RuntimeError(f"no test ran: {(done.stdout + done.stderr)[-400:]}")
    if int(summary.group(2)):
        evidence.notes.append(f"tests of the megakernel: {', '.join(failed)} failed: {done.stdout[-1500:]}")
    passed = int(summary.group(1))
    evidence.check("mega-tests", f"{passed} tests of the megakernel on the device, among them 1,000 stops in the middle "
                   "of launches", int(summary.group(2)), 0)
    evidence.record("h200/mega/tests/errors", f"{passed} tests of the megakernel on the device: packing, logits, greedy "
                    "tokens, draws, 1,000 stops in the middle of launches, waits given up", "errors",
                    [0.0] * passed + [1.0] * int(summary.group(2)), "mega-tests", ["mega"],
                    ["cargo", "test", "-p", "plancher-cuda", "--test", "gpu", "mega"], bar={"at_most": 0.0})


#: Tokens of the long run, and how long it may take beside everything else.
MANY, PATIENCE = 10_000, 120


def of_the_1b(tokens):
    """Arguments of a run of so many tokens on dummy weights."""
    return ["generate", "-m", "llama-3.2-1b", "--load-format", "dummy", "--ids", "1,2,3", "-n", str(tokens), "--context",
            str(tokens + 3), "--ignore-eos", "--temperature", "0", "--json", "--device", "cuda", *MEGA]


def long_run(evidence):
    """The tokens of one long run."""
    return json.loads(evidence.plancher(of_the_1b(MANY), PATIENCE)[0])["ids"]


def interrupted(evidence, seconds, most=100_000):
    """Whether a run that Ctrl-C stops in the middle of a launch ends soon, with what it has."""
    process = subprocess.Popen([evidence.options.plancher, *of_the_1b(most), "-v"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        for line in process.stderr:
            if "on the GPU in" in line:
                break
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        out, said = process.communicate()
        took = time.monotonic() - began
    finally:
        late.cancel()
        process.kill()
    answer = json.loads(out) if out.strip() else {"ids": [], "finish_reason": said[-200:]}
    count, reason = len(answer["ids"]), answer["finish_reason"]
    evidence.say(f"  stopped after {seconds} s: {reason}, {count} tokens, status {process.returncode} in {took:.2f} s")
    # The first comes while the kernel is compiled and its stream packed.
    return process.returncode == 0 and reason == "cancelled" and (seconds < 0.1 or count > 0) and count < most and took < 10


def endurance(evidence):
    """A long run, the same in two processes at once, 1,000 launches, stops."""
    wrong = {}
    ids = long_run(evidence)
    wrong["a run of 10,000 tokens"] = len(ids) != MANY
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(long_run, evidence) for _ in range(2)]
    for which, future in zip(("first", "second"), running):
        error = future.exception()
        if error:
            evidence.notes.append(f"the {which} of two processes at once: {str(error)[-300:]}")
        # A clear error in time is as good as a result; a hang is neither.
        wrong[f"the {which} of two processes"] = isinstance(error, subprocess.TimeoutExpired) or (
            not error and future.result() != ids)
    if all(future.exception() for future in running):
        wrong["one of two processes has a result"] = True
    rows, _ = evidence.plancher(["bench", "-m", str(checks.GOLDEN / "llama-gqa-tied"), "--device", "cuda", "-o", "json",
                                 "-p", "0", "-n", "8", "-d", "7", "-r", "1000", *MEGA], PATIENCE)
    row = json.loads(rows)[0]
    wrong["1,000 launches with the same bits"] = len(row["samples_ns"]) != 1000 or not row["reproducible"]
    for seconds in (0.05, 0.5, 1.0):
        wrong[f"a stop after {seconds} s"] = not interrupted(evidence, seconds)
    evidence.say(f"  wrong: {[what for what, is_so in wrong.items() if is_so] or 'nothing'}")
    evidence.check("endurance", "nothing: no stall, no other token, no run that does not end when it is told to",
                   sum(wrong.values()), 0)
    evidence.record("h200/mega/endurance/errors", "10,000 tokens in one run, and in two processes at once; 1,000 launches; "
                    "three stops by Ctrl-C", "errors", wrong.values(), "endurance", ["mega"],
                    ["plancher", *of_the_1b(MANY)], bar={"at_most": 0.0})
