#!/usr/bin/env python3
"""Measures `plancher` beside llama.cpp on one model file and writes evidence records.

Both engines run as separate processes, alternately (A B, B A, ...), on the same file with the same number of
threads; each pair gives one ratio. Only the standard library is used. How to build llama.cpp from its source
package, and where the model files come from: benches/README.md.

    benches/compare_llama_cpp.py --model SmolLM2-135M-Instruct.Q4_1.gguf --name smollm2-135m/q4_1 \\
        --llama BUILD/bin --text TEXT --out evidence/cpu-smollm2-q4_1.json
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

SCHEMA = 1

# What the KV cache takes at least (`SLAB_POSITIONS` in plancher-cpu/src/kv_cache.rs).
SLAB_POSITIONS = 256


def run(argv, environment=None):
    """Standard output of a command; its whole output is shown when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def peak_resident_bytes(argv):
    """Largest resident set of a command, mapped file pages included."""
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(argv)} failed")
    return usage.ru_maxrss * 1024


class Comparison:
    """One model, two engines, and the records that come of it."""

    def __init__(self, options):
        self.options = options
        self.threads = str(options.threads)
        self.plancher_rows, self.records = {}, []
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        git = ["git", "-C", root]
        self.commit = run(git + ["rev-parse", "--short=12", "HEAD"]).strip()
        self.dirty = bool(run(git + ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!evidence"]).strip())
        crates = ["plancher-cpu", "plancher-program"]
        hash_ = options.code_hash or run(["cargo", "xtask", "code-hash"] + crates).strip()
        self.code = {"crates": crates, "sha256": hash_}
        self.machine = json.loads(run([options.plancher, "doctor", "--json", "--no-bandwidth"]))

    def plancher(self, prompt, generate, depth):
        argv = [self.options.plancher, "bench", "-m", self.options.model, "-t", self.threads, "-o", "json", "-r", "1"]
        row = json.loads(run(argv + ["-p", str(prompt), "-n", str(generate), "-d", str(depth)]))[0]
        return row["samples_ts"][0], row, argv

    def llama(self, prompt, generate, depth):
        argv = [f"{self.options.llama}/llama-bench", "-m", self.options.model, "-t", self.threads, "-o", "json"]
        argv += ["-r", "1", "-ngl", "0"]
        row = json.loads(run(argv + ["-p", str(prompt), "-n", str(generate), "-d", str(depth)]))[0]
        return row["samples_ts"][0]

    def measure(self, prompt, generate, depth):
        """Interleaved pairs of tokens per second, and plancher's rows."""
        ours, theirs, rows, argv = [], [], [], None
        for pair in range(self.options.pairs):
            for engine in ("ab" if pair % 2 == 0 else "ba"):
                if engine == "a":
                    rate, row, argv = self.plancher(prompt, generate, depth)
                    ours.append(rate)
                    rows.append(row)
                else:
                    theirs.append(self.llama(prompt, generate, depth))
            print(f"  pp{prompt} tg{generate} d{depth}: {ours[-1]:.1f} / {theirs[-1]:.1f} tokens/s"
                  f" = {ours[-1] / theirs[-1]:.2f}", file=sys.stderr)
        hashes = {row["logits_hash"] for row in rows}
        if len(hashes) != 1:
            sys.exit(f"logits differ between runs: {hashes}")
        return ours, theirs, rows, argv

    def record(self, quantity, title, unit, samples, argv, **more):
        record = {
            "schema": SCHEMA, "name": f"cpu/{self.options.name}/{quantity}", "unit": unit, "title": title,
            "argv": [os.path.basename(word) for word in argv], "commit": self.commit, "dirty": self.dirty,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": self.machine, "ceilings": {}, "samples": samples, "code": self.code, "check": self.check,
        }
        record.update(more)
        self.records.append(record)

    def perplexity(self):
        """Both engines' perplexity on one text: the check that the fast path computes the same model.

        It is no timing, so that it may be measured beforehand, by the same code, and kept in a file.
        """
        options = self.options
        if options.check and os.path.exists(options.check):
            with open(options.check, encoding="utf-8") as file:
                kept = json.load(file)
            if kept["code"] == self.code:
                self.check = kept["check"]
                return
        ours = json.loads(run([options.plancher, "perplexity", options.model, options.text, "--threads", self.threads,
                               "--context", "512", "--chunks", str(options.windows), "--json"]))["perplexity"]
        done = subprocess.run([f"{options.llama}/llama-perplexity", "-m", options.model, "-f", options.text, "-c",
                               "512", "--chunks", str(options.windows), "-t", self.threads],
                              capture_output=True, text=True)
        found = re.search(r"Final estimate: PPL = ([0-9.]+)", done.stdout + done.stderr)
        if not found:
            sys.exit(f"llama-perplexity printed no estimate:\n{done.stderr[-2000:]}")
        theirs = float(found.group(1))
        self.check = {
            "against": f"perplexity of llama.cpp over {options.windows} windows of 512 tokens: {ours:.4f} and {theirs:.4f}",
            "error": abs(ours / theirs - 1), "tolerance": 0.005,
        }
        print(f"  perplexity {ours:.4f} / {theirs:.4f}", file=sys.stderr)
        if self.check["error"] > self.check["tolerance"]:
            sys.exit("perplexities differ by more than 0.5 %")
        if options.check:
            with open(options.check, "w", encoding="utf-8") as file:
                json.dump({"code": self.code, "check": self.check}, file)

    def decode(self, depth):
        ours, theirs, rows, argv = self.measure(0, self.options.generate, depth)
        suffix, where = ("", "") if depth == 0 else (str(depth), f" at depth {depth}")
        row = rows[-1]
        label = f"{self.options.label}: decode{where}"
        ceilings = {"read": [row["ceiling_gb_per_s"] for row in rows]}
        ratio_bar = self.options.decode_bar if depth == 0 else 2.0
        # The goal is one for the working set that the ceiling read: weights without a cache.
        fraction_bar = {"at_least": self.options.fraction_bar} if depth == 0 else None
        self.record(f"decode{suffix}_ratio_llama_cpp", f"{label}, tokens/s over llama.cpp's", "x", ours, argv,
                    sample_unit="tokens/s", baseline="llama.cpp", baseline_samples=theirs,
                    bytes=row["bytes_per_token"], ceilings=ceilings, bar={"at_least": ratio_bar} if ratio_bar else None,
                    logits_hash=row["logits_hash"])
        self.record(f"decode{suffix}_tokens_per_s", label, "tokens/s", ours, argv,
                    bytes=row["bytes_per_token"], ceilings=ceilings, logits_hash=row["logits_hash"])
        self.record(f"decode{suffix}_fraction_of_ceiling", f"{label}, GB/s over the read ceiling of the same bytes",
                    "x", [row["gb_per_s"] for row in rows], argv, sample_unit="GB/s", baseline="read ceiling",
                    baseline_samples=ceilings["read"], ceilings=ceilings,
                    bar=fraction_bar, logits_hash=row["logits_hash"])

    def prefill(self):
        ours, theirs, rows, argv = self.measure(512, 0, 0)
        label = f"{self.options.label}: prefill of 512 tokens"
        self.record("prefill512_ratio_llama_cpp", f"{label}, tokens/s over llama.cpp's", "x", ours, argv,
                    sample_unit="tokens/s", baseline="llama.cpp", baseline_samples=theirs, bar={"at_least": 3.0},
                    logits_hash=rows[-1]["logits_hash"])
        self.record("prefill512_tokens_per_s", label, "tokens/s", ours, argv, logits_hash=rows[-1]["logits_hash"])

    def memory_and_start(self):
        options = self.options
        argv = [options.plancher, "generate", "--model", options.model, "--raw", "Hello", "--max-tokens", "1",
                "--ignore-eos", "--threads", self.threads]
        size = os.path.getsize(options.model)
        peaks, seconds = [], []
        for _ in range(5):
            started = time.monotonic()
            run(argv)
            seconds.append(time.monotonic() - started)
            peaks.append(peak_resident_bytes(argv))
        inspected = json.loads(run([options.plancher, "inspect", options.model, "--json"]))
        cache = {"what": f"KV cache: the first slab, of {SLAB_POSITIONS} positions",
                 "value": SLAB_POSITIONS * inspected["kv_bytes_per_token"]}
        self.record("peak_memory_over_file", f"{options.label}: peak resident memory less the KV cache, over the file's size",
                    "x", peaks, argv, sample_unit="bytes", baseline="file", baseline_samples=[size] * 5,
                    deduction=cache, bar={"at_most": 1.25})
        self.record("start_to_first_token_s", f"{options.label}: whole process, start to first token and exit", "s",
                    seconds, argv, bar={"at_most": 1.0} if size < 200_000_000 else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True, help="model/format, as in the records' names")
    parser.add_argument("--label", help="what README calls it (default: --name)")
    parser.add_argument("--llama", required=True, help="folder of llama-bench and llama-perplexity")
    parser.add_argument("--text", required=True, help="a real text for perplexity")
    parser.add_argument("--plancher", default="target/release/plancher")
    parser.add_argument("--code-hash", help="output of `cargo xtask code-hash ...`, where cargo is not at hand")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--fraction-bar", type=float, default=0.92)
    parser.add_argument("--decode-bar", type=float, default=1.5, help="ratio to reach in decode; 0 for none")
    parser.add_argument("--check", help="file that keeps the perplexities for the next run of the same code")
    parser.add_argument("--only", default="decode,depth,prefill,memory")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    options.label = options.label or options.name
    comparison = Comparison(options)
    comparison.perplexity()
    parts = options.only.split(",")
    if parts == ["check"]:
        return
    if "decode" in parts:
        comparison.decode(0)
    if "prefill" in parts:
        comparison.prefill()
    if "memory" in parts:
        comparison.memory_and_start()
    if "depth" in parts:
        comparison.decode(2048)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(comparison.records, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
