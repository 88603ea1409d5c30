#!/usr/bin/env python3
"""Checks that `plancher` computes what llama.cpp computes, and prints a table; exit status 1 when anything differs.

Three checks. Perplexity of a real text within 0.5 % (llama.cpp rounds activations to 8 bits where weights are
quantised, so the figures cannot be equal). Greedy text: where it parts, the two most likely tokens of that step
differ by less than 0.5 nat. On the models of `--exact`, whose weights are not quantised, the text must be
equal to the end, on every file and folder given. Prompts must give the same tokens everywhere.

Only the standard library is used. How to build llama.cpp, and where models and text come from: benches/README.md.

    benches/agree_with_llama_cpp.py --llama BUILD/bin --text SPEECH.txt --model SmolLM2-135M-Instruct.Q4_1.gguf \\
        --model qwen2.5-coder-0.5b-instruct-q4_k_m.gguf --exact stories260k-f32.gguf --folder stories260k/hf
"""

import argparse
import json
import os
import re
import subprocess
import sys

PERPLEXITY_TOLERANCE = 0.005
CLOSE = 0.5  # nats between the two most likely tokens, below which rounding may choose
WINDOW = 512
TOKENS = 48
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at a lower temperature on a mountain because",
    "Three things to remember when you learn a new language:\n1.",
]


def run(argv):
    """Both outputs of a command as text; they are shown when it fails."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


class Check:
    """Two engines, and the rows of the table."""

    def __init__(self, options):
        self.options = options
        self.threads = str(options.threads)
        self.rows, self.failed = [], False

    def row(self, model, what, outcome, good):
        self.rows.append((model, what, outcome, "yes" if good else "NO"))
        self.failed |= not good
        print(f"{model}: {what}: {outcome}: {'ok' if good else 'FAILED'}", file=sys.stderr)

    def generate(self, model, *prompt):
        """`plancher`'s greedy continuation with the two most likely tokens of each step."""
        argv = [self.options.plancher, "--quiet", "generate", "--model", model, "--json", "--logprobs", "2",
                "--temperature", "0", "--repetition-penalty", "1", "--max-tokens", str(TOKENS),
                "--threads", self.threads, "--context", str(WINDOW), *prompt]
        return json.loads(run(argv)[0])

    def llama_text(self, model, prompt, ours):
        """llama.cpp's greedy continuation, and more of it than is compared: llama-completion sometimes exits before
        its last output is written, so that a text which only ends too early is asked for again."""
        argv = [f"{self.options.llama}/llama-completion", "-m", model, "-p", prompt, "-n", str(TOKENS + 16),
                "--temp", "0", "--repeat-penalty", "1", "-no-cnv", "--no-display-prompt", "-t", self.threads,
                "-c", str(WINDOW), "--no-escape", "-ngl", "0"]
        for _ in range(5):
            text, *ended = run(argv)[0].split(" [end of text]")
            if ended or not ours.startswith(text.rstrip("\n")):
                break
        return text

    def llama_tokens(self, model, prompt):
        argv = [f"{self.options.llama}/llama-tokenize", "-m", model, "-p", prompt, "--ids", "--no-escape"]
        return json.loads(run(argv)[0].strip().splitlines()[-1])

    def perplexity(self, model):
        options, chunks = self.options, str(self.options.chunks)
        ours = json.loads(run([options.plancher, "--quiet", "perplexity", model, options.text, "--context",
                               str(WINDOW), "--chunks", chunks, "--threads", self.threads, "--json"])[0])
        if ours["windows"] * WINDOW < 4096:
            sys.exit(f"`{options.text}` gives {ours['windows']} windows of {WINDOW} tokens: 4,096 tokens are asked for")
        text = "\n".join(run([f"{options.llama}/llama-perplexity", "-m", model, "-f", options.text, "-c", str(WINDOW),
                              "--chunks", chunks, "-t", self.threads, "-ngl", "0"]))
        found = re.search(r"Final estimate: PPL = ([0-9.]+)", text)
        if not found:
            sys.exit(f"llama-perplexity printed no estimate:\n{text[-2000:]}")
        mine, theirs = ours["perplexity"], float(found.group(1))
        error = mine / theirs - 1
        what = f"perplexity, {ours['windows']} windows of {WINDOW} tokens"
        self.row(label(model), what, f"{mine:.4f} and {theirs:.4f}: {error:+.2%}", abs(error) <= PERPLEXITY_TOLERANCE)

    def greedy(self, model, prompt, exact):
        """One prompt on one GGUF file. Returns what `plancher` printed."""
        ours = self.generate(model, "--raw", prompt)
        theirs = self.llama_text(model, prompt, ours["text"])
        name, what = label(model), f"greedy `{prompt.splitlines()[0][:24]}`"
        if ours["prompt_ids"] != (tokens := self.llama_tokens(model, prompt)):
            self.row(name, what, f"prompt tokens {ours['prompt_ids']} and {tokens}", False)
            return ours
        gaps = [step["top"][0]["logprob"] - step["top"][1]["logprob"] for step in ours["logprobs"]]
        texts = [step["text"] for step in ours["logprobs"]]
        # Where our text ended by an end token, theirs must end there too.
        if theirs == ours["text"] or (ours["finish_reason"] == "length" and theirs.startswith(ours["text"])):
            self.row(name, what, f"equal text, {len(gaps)} tokens", True)
        else:
            same = next(n for n in range(len(texts), -1, -1) if theirs.startswith("".join(texts[:n])))
            gap = f"{gaps[same]:.2f} nat" if same < len(gaps) else "none"
            outcome = f"{same} of {len(gaps)} tokens equal; gap there {gap}"
            self.row(name, what, outcome, not exact and same < len(gaps) and gaps[same] < CLOSE)
            if self.options.verbose:
                print(f"  ours   {ours['text']!r}\n  theirs {theirs!r}", file=sys.stderr)
        return ours

    def exact(self, prompt):
        """Every exact file equals llama.cpp, and every folder (which may lack a tokenizer) equals the first file."""
        first = [self.greedy(model, prompt, True) for model in self.options.exact][0]
        for folder in self.options.folder:
            got = self.generate(folder, "--ids", ",".join(map(str, first["prompt_ids"])))["ids"]
            equal = len(os.path.commonprefix([got, first["ids"]]))
            self.row(label(folder), f"greedy `{prompt.splitlines()[0][:24]}`",
                     f"{equal} of {len(got)} tokens those of {label(self.options.exact[0])}", got == first["ids"])


def label(path):
    """A model's name in the table: its file, or the last two parts of its folder."""
    path = os.path.abspath(path)
    return os.path.basename(path) if os.path.isfile(path) else "/".join(path.split(os.sep)[-2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True,
                        help="folder of llama-perplexity, llama-completion and llama-tokenize")
    parser.add_argument("--plancher", default="target/release/plancher")
    parser.add_argument("--model", action="append", default=[], help="a quantised GGUF file")
    parser.add_argument("--text", help="a real text for the perplexity of each --model")
    parser.add_argument("--exact", action="append", default=[], help="a GGUF file whose greedy text must be equal")
    parser.add_argument("--folder", action="append", default=[],
                        help="a Hugging Face folder of the model of the first --exact")
    parser.add_argument("--chunks", type=int, default=10, help="windows of 512 tokens (8 are 4,096 tokens)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="show both texts where they part")
    options = parser.parse_args()
    if options.model and not options.text:
        parser.error("--model needs --text")
    if options.folder and not options.exact:
        parser.error("--folder needs --exact")
    check = Check(options)
    for prompt in PROMPTS if options.exact else []:
        check.exact(prompt)
    for model in options.model:
        check.perplexity(model)
        for prompt in PROMPTS:
            check.greedy(model, prompt, False)
    print("| model | check | plancher and llama.cpp | agree |\n|---|---|---|---|")
    for row in check.rows:
        print("| " + " | ".join(row) + " |")
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
