#!/usr/bin/env python3
"""What compiling costs and what passes bring.

    bench/passes.py --data TEXT [--tegula build/release/tegula] [--threads 2] [--rounds 5]

compile_time: building, differentiating, rewriting and planning a training step of GPT-2's size, the fastest of
each part.
passes: step time with every pass and without some; runs take turns, and a figure is the fastest step of all rounds,
which others on the machine disturb least. Writes bench/results/compile_time.json and passes.json.
"""
import argparse
import json
import os
import tempfile

import record

BIG = "--seqlen 1024 --batch 8 --n-layers 12 --n-heads 12 --d-model 768"
COMPILED = {"gpt2": "", "gpt2, biases": "--bias", "llama": "--model llama", "gpt2, bf16": "--dtype bf16",
            "gpt2, 3 GiB": "--memory 3GiB"}
SMALL = "--n-layers 4 --n-heads 4 --d-model 128 --seqlen 64 --batch 12 --steps 40 --warmup 1 --eval-every 0"
STEPS = [("gpt2, biases", "--bias", ("", "bias_activation", "fuse", "cse,views,algebra")),
         ("llama", "--model llama", ("", "merge_products", "fuse")), ("gpt2, bf16", "--dtype bf16", ("",))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=5, help="of step times; 0: none")
    parser.add_argument("--plans", type=int, default=30)
    a = parser.parse_args()

    def last_json(*command):
        return record.last_json(a.tegula, *command, "--json")

    rows = []
    for name, flags in COMPILED.items():
        runs = [last_json("plan", *BIG.split(), *flags.split(), "--repeat", "4") for _ in range(a.plans)]
        parts = {k: min(r[k] for r in runs) for k in ("build_ms", "passes_ms", "plan_ms")}
        p = runs[0]
        rows.append({"model": name, "nodes": p["nodes_built"], "launches": p["steps"],
                     **{k: round(v, 2) for k, v in parts.items()}, "sum_ms": round(sum(parts.values()), 2),
                     "arena_bytes": p["arena_bytes"], "lower_bound_bytes": p["arena_lower_bound_bytes"]})
    record.write(a, "compile_time", f"bench/passes.py --data TEXT: build/release/tegula plan {BIG}", rows,
                 record.COMPILE, 1)
    if a.rounds == 0:
        return

    with open(a.data, encoding="utf-8") as f:
        text = f.read(40000)
    fastest, losses = {}, {}
    with tempfile.TemporaryDirectory() as tmp:
        data = os.path.join(tmp, "text.txt")
        with open(data, "w", encoding="utf-8") as f:
            f.write(text)
        for r in range(a.rounds):
            for model, flags, variants in STEPS:
                for without in variants:
                    out = os.path.join(tmp, f"{r}-{model}-{without}".replace(" ", ""))
                    leave_out = ["--passes=" + ",".join("-" + p for p in without.split(","))] if without else []
                    s = last_json("train", "--data", data, "--out", out, *SMALL.split(), *flags.split(),
                                  "--threads", a.threads, *leave_out)
                    with open(out + "/metrics.jsonl", encoding="utf-8") as f:
                        steps = [line["step_ms"] for line in map(json.loads, f) if "step_ms" in line]
                    key = model, without
                    fastest[key] = min(fastest.get(key, steps[-1]), *steps[1:])
                    losses[key] = s["val_loss"]
    record.write(a, "passes", "bench/passes.py --data TEXT", [
        {"model": model, "without": without or None, "step_ms": round(ms, 2),
         "time_ratio": round(ms / fastest[model, ""], 3), "val_loss": losses[model, without],
         "same_loss": losses[model, without] == losses[model, ""]} for (model, without), ms in fastest.items()],
        record.STEP, a.threads)


if __name__ == "__main__":
    main()
