#!/usr/bin/env python3
"""Two stages of a pipeline on two cores, a process and a thread each, beside one rank with one thread: a step by the clock.

    bench/pipelines.py [--tegula build/release/tegula] [--rounds 3]

Runs take turns; medians count. The machine must have no other work: load_before says whether it had. Two runs of one
rank at once say what the two cores give each other. Writes bench/results/pipelines.json.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

import record

RUN = ("--model gpt2 --n-layers 8 --n-heads 4 --d-model 256 --seqlen 128 --batch 4 --accumulate 8 --mode exact --threads 1 "
       "--tokenizer bytes --eval-every 0 --warmup 1 --json").split()


def main():
    parser = argparse.ArgumentParser()
    record.add_flags(parser, threads=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    a = parser.parse_args()
    stages = ["--mesh", "pp=2", "--processes", "2", "--schedule"]
    variants = {"one rank": [[]], "two runs of one rank": [[], []], "pp=2, 1f1b": [[*stages, "1f1b"]],
                "pp=2, zb-h1": [[*stages, "zb-h1"]]}
    step_ms = {name: [] for name in variants}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as tmp:
        text = pathlib.Path(tmp) / "text.txt"
        r = random.Random(1)
        text.write_text("".join(r.choice("abcdefghijklmnopqrstuvwxyz \n") for _ in range(60000)), encoding="utf-8")
        for _ in range(a.rounds):
            for name, runs in variants.items():
                at_once = [subprocess.Popen([a.tegula, "train", "--data", text, *RUN, "--steps", str(a.steps), *flags],
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for flags in runs]
                outs = [process.communicate()[0] for process in at_once]
                step_ms[name].append(max(json.loads(out.strip().splitlines()[-1])["step_ms"] for out in outs))
    one = statistics.median(step_ms["one rank"])
    rows = [{"what": name, "step_ms": statistics.median(took), "least_ms": min(took), "most_ms": max(took),
             "times_as_fast": one / statistics.median(took), "at least": 1.35 if "pp" in name else None}
            for name, took in step_ms.items()]
    print(*(json.dumps(row) for row in rows), f"load before: {load}", sep="\n")
    record.write(a, "pipelines", f"bench/pipelines.py --rounds {a.rounds} --steps {a.steps}", rows,
                 [*record.STEP, "tegula/comm"], a.threads)


if __name__ == "__main__":
    main()
