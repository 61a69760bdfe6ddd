#!/usr/bin/env python3
"""Gradient checkpointing: half of the activation memory of a 24-layer model, and what it costs.

    bench/checkpointing.py --data TEXT [--tegula build/release/tegula] [--threads 2] [--rounds 5]

Runs of the same few steps with everything kept, within budgets, and with every sqrt(N)-th block kept take turns. Time
is the fastest step of all rounds, which others on the machine disturb least; the first step of a run is left out. The
weights after the last step are compared byte by byte. Writes bench/results/checkpointing.json.
"""
import argparse
import json
import os
import sys
import tempfile

import record

MODEL = "--model gpt2 --n-layers 24 --n-heads 4 --d-model 128 --seqlen 256 --batch 4".split()
RUN = "--steps 4 --warmup 1 --eval-every 0".split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    model = MODEL + ["--threads", str(a.threads)]
    plan = [a.tegula, "plan", *model, "--json"]

    def planned(*flags):
        return record.last_json(*plan, *flags)

    def train(flags, out):
        summary = record.last_json(a.tegula, "train", "--data", out + ".txt", "--out", out, *model, *RUN, *flags,
                                   "--json")
        with open(out + "/metrics.jsonl", encoding="utf-8") as f:
            steps = [line["step_ms"] for line in map(json.loads, f) if "step_ms" in line]
        with open(out + "/latest/model.safetensors", "rb") as f:
            return summary, min(steps[1:]), f.read()

    with open(a.data, encoding="utf-8") as f:
        text = f.read(40000)  # little to validate on: steps are timed
    vocab = ["--vocab-size", str(len(set(text)))]
    whole = planned(*vocab)["arena_bytes"]
    variants = {"none": ["--checkpoint", "none"]}
    for percent in (75, 50, 33):
        variants[f"{percent} %"] = ["--memory", str(whole * percent // 100)]
    variants["sqrt"] = ["--checkpoint", "sqrt"]
    fastest, summaries, equal, weights = {}, {}, {}, None
    with tempfile.TemporaryDirectory() as tmp:
        for r in range(a.rounds):
            for name, flags in variants.items():
                out = os.path.join(tmp, f"{r}-{name.split()[0]}")
                with open(out + ".txt", "w", encoding="utf-8") as f:
                    f.write(text)
                summaries[name], step_ms, got = train(flags, out)
                weights = weights or got
                equal[name] = equal.get(name, True) and got == weights
                fastest[name] = min(fastest.get(name, step_ms), step_ms)
    rows = []
    for name, flags in variants.items():
        s = summaries[name]
        arena = planned(*vocab, *flags)["arena_bytes"]
        rows.append({
            "variant": name,
            "arena_bytes": arena,
            "arena_share": round(arena / whole, 3),
            "step_ms": round(fastest[name], 1),
            "time_ratio": round(fastest[name] / fastest["none"], 3),
            "flops_ratio": round(s["flops_per_step_planned"] / summaries["none"]["flops_per_step_planned"], 3),
            "flops_planned_equals_counted": s["flops_per_step_planned"] == s["flops_per_step_counted"],
            "peak_planned_equals_measured": s["peak_bytes_planned"] == s["peak_bytes_measured"],
            "weights_equal": equal[name],
        })
        print(rows[-1], file=sys.stderr)
    record.write(a, "checkpointing", f"bench/checkpointing.py --data TEXT --threads {a.threads}", rows,
                 record.STEP, a.threads)


if __name__ == "__main__":
    main()
