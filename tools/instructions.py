#!/usr/bin/env python3
"""Counts instructions executed, which do not depend on noise, and compares them with the record.

    tools/instructions.py [--tegula build/release/tegula] [--write]

Run under valgrind, on AVX2 kernels and one thread:
  compile gpt2, compile llama   building, differentiating, rewriting and planning a training step of 12 layers of
                                width 768, batch 8 x 1024 tokens, once more in the same process
  run loop                      one run of a small training step's plan, what its kernels execute left out
  tokenizer                     1 MB of text into the ids of a BPE of 512
  checkpoint                    opening a model: verifying its files, mapping them, planning to generate
Fails where one takes 3 % more than tools/instructions.json says; --write writes that file, which belongs into the
commit that changes the count. Another compiler or C library than the record's makes other counts: then nothing is
compared.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

RECORD = pathlib.Path(__file__).with_suffix(".json")
MARGIN = 1.03
BIG = "--seqlen 1024 --batch 8 --n-layers 12 --n-heads 12 --d-model 768 --threads 1".split()
SMALL = ("--tokenizer bpe:512 --n-layers 2 --n-heads 2 --d-model 16 --seqlen 16 --batch 2 --threads 1 --warmup 1 "
         "--eval-every 0 --save-every 0").split()
ENVIRONMENT = {**os.environ, "TEGULA_ISA": "avx2"}
LOOP = ("tegula::Session::run(", "tegula::Session::run_step(", "tegula::Session::launch(")


def run(*command):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")


def made_up_text(size):
    """Made-up words, frequent ones and rare ones: always the same."""
    state = 1
    def draw(n):
        nonlocal state
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        return (state >> 33) % n
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(syllables[draw(len(syllables))] for _ in range(1 + draw(4))) for _ in range(5000)]
    text, length = [], 0
    while length < size:
        word = words[draw(1 + draw(len(words)))] + (".\n" if draw(12) == 0 else " ")
        text.append(word)
        length += len(word)
    return "".join(text)[:size]


class Profile:
    """What functions executed themselves, and what in the calls from one to another."""

    def __init__(self, path):
        self.own = collections.Counter()
        self.cost, self.calls = collections.Counter(), collections.Counter()  # by (caller, callee)
        names = {}

        def name_of(text):  # "(12) name" the first time, "(12)" later
            number, _, name = text.partition(" ")
            return names.setdefault(number, name)

        caller = callee = None
        for line in path.read_text().splitlines():
            if line.startswith("fn="):
                caller = name_of(line[3:])
            elif line.startswith("cfn="):
                callee = name_of(line[4:])
            elif line.startswith("calls="):
                self.calls[caller, callee] += int(line[6:].split()[0])
                continue
            elif line[:1] in "0123456789+-*" and " " in line:
                count = int(line.rsplit(" ", 1)[1])
                if callee is None:
                    self.own[caller] += count
                else:
                    self.cost[caller, callee] += count
                    callee = None

    def total(self):
        return sum(self.own.values())

    def within(self, prefix):
        """All that was executed in calls of a function that does not call itself."""
        return sum(cost for (_, callee), cost in self.cost.items() if callee.startswith(prefix))


class Works:
    def __init__(self, tegula, folder):
        self.tegula, self.folder = tegula, pathlib.Path(folder)

    def profile(self, name, *command):
        path = self.folder / f"{name}.callgrind"
        run("valgrind", "--tool=callgrind", f"--callgrind-out-file={path}", self.tegula, *command)
        return Profile(path)

    def make_model(self):
        """A text of 1 MB, and a model trained on the beginning of it for a step."""
        text = made_up_text(1_000_000)
        (self.folder / "text.txt").write_text(text)
        (self.folder / "short.txt").write_text(text[:20_000])
        (self.folder / "none.txt").write_text("a")
        run(self.tegula, "train", "--data", str(self.folder / "short.txt"), "--out", str(self.folder / "model"),
            "--steps", "1", *SMALL)

    def compile(self, model):
        one, three = (self.profile(f"{model}{n}", "plan", "--model", model, *BIG, "--repeat", str(n)).total()
                      for n in (1, 3))
        return (three - one) // 2

    def run_loop(self):
        p = self.profile("loop", "train", "--data", str(self.folder / "short.txt"), "--out",
                         str(self.folder / "loop"), "--steps", "10", *SMALL)
        runs = sum(n for (_, callee), n in p.calls.items() if callee.startswith(LOOP[0]))
        own = sum(n for name, n in p.own.items() if name.startswith(LOOP))
        helpers = sum(n for (caller, callee), n in p.cost.items()
                      if caller.startswith(LOOP) and not callee.startswith(LOOP) and "Call const&" not in callee)
        return (own + helpers) // runs

    def tokenizer(self):
        model = str(self.folder / "model")
        text, none = (self.profile(name, "encode", "--model", model, "--length", str(1 << 30), "--text",
                                   str(self.folder / f"{name}.txt")).total() for name in ("text", "none"))
        return text - none

    def checkpoint(self):
        p = self.profile("checkpoint", "generate", "--model", str(self.folder / "model"), "--prompt", "ba",
                         "--max-tokens", "1", "--threads", "1")
        return p.within("tegula::Generator::open(") + p.within("tegula::Generator::prepare(")

    def count(self):
        self.make_model()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = {"compile gpt2": pool.submit(self.compile, "gpt2"),
                    "compile llama": pool.submit(self.compile, "llama"), "run loop": pool.submit(self.run_loop),
                    "tokenizer": pool.submit(self.tokenizer), "checkpoint": pool.submit(self.checkpoint)}
            return {name: job.result() for name, job in jobs.items()}


def toolchain(tegula):
    note = re.search(rb"GCC: \([^)]*\) ([\d.]+)", pathlib.Path(tegula).read_bytes())
    return {"g++": note[1].decode() if note else "", "libc": " ".join(platform.libc_ver())}


def compare(counts, made_with, record):
    """Lines to print, and what fails: names of counts that are too far above the record's."""
    missing = [name for name, n in counts.items() if n <= 0]
    if missing:
        sys.exit(f"{', '.join(missing)}: nothing was counted: functions have other names now, mend {pathlib.Path(__file__).name}")
    known = record.get("instructions", {})
    lines = [f"{name:14} {n:12,} instructions, " + (f"{100 * (n / known[name] - 1):+.2f} %" if name in known else "new")
             for name, n in counts.items()]
    if record.get("made_with") != made_with:
        return lines + [f"made with {made_with}, the record with {record.get('made_with')}: not compared"], []
    return lines, [name for name, n in counts.items() if n > MARGIN * known.get(name, 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--write", action="store_true", help="write the record instead of comparing with it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = Works(os.path.abspath(args.tegula), folder).count()
    made_with = toolchain(args.tegula)
    if args.write:
        RECORD.write_text(json.dumps({"made_with": made_with, "instructions": counts}, indent=1) + "\n")
    lines, too_many = compare(counts, made_with, json.loads(RECORD.read_text()) if RECORD.exists() else {})
    print("\n".join(lines))
    if too_many:
        sys.exit(f"{', '.join(too_many)}: over 3 % more than {RECORD.name} says: find what takes them, or run "
                 "tools/instructions.py --write and say in the same commit why they are worth it")


if __name__ == "__main__":
    main()
