"""The lab's own tests on the device: is every cheat caught, and is every verdict on a learner's file the right one?"""

import hashlib
import os
import re
import subprocess

from .evidence import ROOT

LAB = ROOT / "crates/plancher-lab"
#: What the verdicts depend on: the harness, and the tests with their kernels.
SOURCES = ["src/harness/*.rs", "kernels/harness.cu", "tests/gpu/common.rs"]

#: Kinds of tests, and what they show.
KINDS = {
    "cheats": "ways to cheat or to break a promise, each rejected, and an honest kernel that is believed: verdicts that are wrong",
    "learners": "files of learners, 10 wrong in different ways and 3 right: verdicts that are wrong",
}


def sources(kind):
    """The hashes of the files that a kind of tests is made of."""
    kernels = {"cheats": ["tests/kernels/cheats.cu"], "learners": ["tests/kernels/wrong_*.cu", "tests/kernels/right_*.cu"]}
    patterns = [*SOURCES, f"tests/gpu/{kind}.rs", *kernels[kind]]
    paths = [path for pattern in patterns for path in sorted(LAB.glob(pattern))]
    return [{"source": str(path.relative_to(ROOT)), "source_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in paths]


def tests(evidence):
    """Both kinds, one test after another: each measures."""
    for kind in KINDS:
        one_kind(evidence, kind)


def one_kind(evidence, kind):
    if not evidence.options.lab_tests:
        raise RuntimeError("not run: no `--lab-tests`")
    command = [os.path.abspath(evidence.options.lab_tests), "--test-threads=1", f"{kind}::"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=LAB,
                          env={**os.environ, "PLANCHER_REQUIRE_GPU": "1"})
    verdicts = dict(re.findall(rf"^test ({kind}::\S+) \.\.\. (?:.*\n)*?(ok|FAILED)$", done.stdout, re.M))
    summary = re.search(r"test result: \S+ (\d+) passed; (\d+) failed; 0 ignored", done.stdout)
    if not verdicts or not summary or len(verdicts) != int(summary.group(1)) + int(summary.group(2)):
        raise RuntimeError(f"{len(verdicts)} tests were seen to end: {(done.stdout + done.stderr)[-600:]}")
    failed = [name for name, verdict in verdicts.items() if verdict != "ok"]
    if failed:
        evidence.notes.append(f"{', '.join(failed)}: {done.stdout[-1500:]}")
    evidence.check(f"lab-{kind}", f"{len(verdicts)} tests on the device", len(failed), 0)
    evidence.record(f"h200/lab/{kind}/errors", f"The lab, {len(verdicts)} tests on the device: {KINDS[kind]}", "errors",
                    [float(verdict != "ok") for verdict in verdicts.values()], f"lab-{kind}", [],
                    ["cargo", "test", "-p", "plancher-lab", "--test", "gpu", f"{kind}::"], kernels=sources(kind),
                    tests=sorted(verdicts), bar={"at_most": 0.0})
