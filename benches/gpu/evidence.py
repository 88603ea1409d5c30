"""Evidence records, and running Plancher: everything that a figure needs beside its samples."""

import concurrent.futures
import datetime
import hashlib
import json
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "crates/plancher-cuda/kernels"

#: The files of kernels that each kind of run uses, beside the common one. Products are cuBLASLt's where it is found,
#: and else those of `matmul*`: which ran is not told apart.
SOURCES = {
    "decode": ["weights.cu", "embed.cu", "matvec*", "attention_decode.cu", "sample.cu"],
    "prefill": ["weights.cu", "prefill.cu", "attention_prefill.cu", "matmul*"],
    "mega": ["weights.cu", "mega*"],
    "ceiling": ["bandwidth.cu"],
}

#: Checks that a record of an earlier run may vouch for, where that run's kernels are still those of today.
CHECKS_OF = {"golden": "h200/golden/relative_error", "mega-golden": "h200/golden/mega/relative_error"}


def kernels(*kinds):
    """The hashes of every source that `kinds` of runs use."""
    patterns = ["common.cuh"] + [pattern for kind in kinds for pattern in SOURCES[kind]]
    names = dict.fromkeys(path.name for pattern in patterns for path in sorted(KERNELS.glob(pattern)))
    return [{"source": f"crates/plancher-cuda/kernels/{name}",
             "source_sha256": hashlib.sha256((KERNELS / name).read_bytes()).hexdigest()} for name in names]


def is_unchanged(kernel):
    """Whether a record's kernel is the one in the tree."""
    path = ROOT / kernel["source"]
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == kernel["source_sha256"]


class OutOfTime(BaseException):
    """A piece took longer than it may; nothing inside of it may catch this."""


class Evidence:
    """The records so far, and what they share."""

    def __init__(self, options):
        self.options, self.records, self.checks = options, [], {}
        self.notes, self.failures = [], []
        self.started, self.machine, self.loads = time.monotonic(), {}, {}
        self.kept = self.keep(options.keep) if options.keep else []

    def keep(self, path):
        """Records of an earlier run whose kernels have not changed; the others are noted."""
        records, kept = json.loads(pathlib.Path(path).read_text(encoding="utf-8")), []
        for record in records:
            if all(is_unchanged(kernel) for kernel in record["kernels"]):
                kept.append(record)
            else:
                self.notes.append(f"not kept, a kernel has changed since: {record['name']}")
        by_name = {record["name"]: record for record in kept}
        self.checks.update({check: by_name[name]["check"] for check, name in CHECKS_OF.items() if name in by_name})
        return kept

    def say(self, text):
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", file=sys.stderr, flush=True)

    def left(self):
        return self.options.deadline - (time.monotonic() - self.started)

    def piece(self, name, seconds, work):
        """Runs one piece; whatever goes wrong in it, the others go on."""
        if self.left() < min(seconds, 10):
            return self.failed(name, "not run, no time left")

        def alarm(*_):
            raise OutOfTime(f"not done within {seconds:.0f} s")
        self.say(f"{name} ...")
        seconds = max(1, int(min(seconds, self.left())))
        signal.signal(signal.SIGALRM, alarm)
        signal.alarm(seconds)
        try:
            work(self)
        except (Exception, OutOfTime) as error:  # noqa: BLE001: one failure must not lose the rest
            self.failed(name, error)
        finally:
            signal.alarm(0)
            self.write()

    def together(self, seconds, pieces):
        """Runs pieces that time nothing all at once, for at most `seconds`."""
        pool = concurrent.futures.ThreadPoolExecutor(len(pieces) or 1)
        running = {pool.submit(work, self): name for name, work in pieces}
        done, late = concurrent.futures.wait(running, min(seconds, self.left()))
        for future in late:
            # What a piece waits for has a time-out of its own, so that it ends.
            self.failed(running[future], f"not done within {seconds:.0f} s")
        for future in done:
            if future.exception():
                self.failed(running[future], future.exception())
        pool.shutdown(wait=False)
        self.write()

    def failed(self, name, error):
        kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
        self.failures.append(f"{name}: {kind}{str(error)[-1500:]}")
        self.say(self.failures[-1])

    def plancher(self, arguments, timeout=60, environment=None):
        """Standard output of a run, and what it said."""
        done = subprocess.run([self.options.plancher, *arguments], capture_output=True, text=True, timeout=timeout,
                              env=environment)
        if done.returncode != 0:
            raise RuntimeError(f"plancher {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-600:]}")
        return done.stdout, done.stderr

    def bench(self, arguments, timeout=60):
        """Rows of `plancher bench` on dummy weights, and what it said."""
        command = ["bench", "-v", "--device", "cuda", "--load-format", "dummy", "-o", "json", *arguments]
        out, said = self.plancher(command, timeout)
        return json.loads(out), said

    def check(self, name, against, error, tolerance):
        self.checks[name] = {"against": against, "error": float(error), "tolerance": tolerance}
        verdict = "" if error <= tolerance else "  ABOVE THE TOLERANCE"
        self.say(f"  {name}: {error:.3g} (tolerance {tolerance:g}){verdict}")

    def record(self, name, title, unit, samples, check, sources, argv, **more):
        """Adds a record; `check` names one of the checks, without which `xtask evidence` refuses it."""
        record = {
            "schema": 1, "name": name, "unit": unit, "title": title, "argv": argv, "commit": self.options.commit,
            "dirty": self.options.dirty,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": self.machine, "ceilings": {}, "samples": [float(sample) for sample in samples],
            "check": self.checks.get(check), "kernels": kernels(*sources),
        }
        record.update({key: value for key, value in more.items() if value is not None})
        self.records.append(record)

    def write(self):
        """Writes what there is, and what is kept of an earlier run: also when a later piece ends the process."""
        measured = {record["name"] for record in self.records}
        records = [record for record in self.kept if record["name"] not in measured] + self.records
        text = json.dumps(records, indent=1, allow_nan=False)
        if str(ROOT) in text:
            raise RuntimeError("a path of this machine got into the records")
        pathlib.Path(self.options.out).write_text(text + "\n", encoding="utf-8")
