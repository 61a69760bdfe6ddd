#!/usr/bin/env python3
"""What a training step on the CPU takes, kernel by kernel, beside the least it could take: of the settings of f32.

    bench/step_bounds.py [--threads 2] [--repeats 5] [--only NAME] [--tegula build/release/tegula]

A kernel's bound is the larger of its operations over the multiply-add rate measured beside the step, and of its least
bytes over plain reads of memory (`tegula bench gemm --cold`). What the caches still hold may come faster. Times are
the fastest of --rounds runs, kernel by kernel. Writes bench/results/step_bounds.json.
"""
import argparse
import sys

import record
from steps import SETTINGS, tegula_step

KINDS = {"dot_packed": "products", "fused": "elementwise, sums of rows"}


def kind(op):
    """Products by direction, AdamW apart, all else by kernel."""
    name = KINDS.get(op["kernel"], op["kernel"])
    if op["kernel"] == "dot_packed" and op["phase"] == "backward":
        return "products, of weights" if is_of_weights(op) else "products, of inputs"
    if op["phase"] == "update":
        return "update"
    return name


def dims(text):
    return [int(d) for d in text.split("[")[1].split("]")[0].split(",")]


def is_of_weights(op):
    """dW has no dim of tokens: both operands begin with those."""
    shapes = op["shapes"].replace("->", "").split()
    a, b = dims(shapes[0]), dims(shapes[1])
    return a[:-1] == b[:-1]


def table(name, runs, read_gbytes):
    peak = max(r["peak_gflops"] for r in runs)
    rows, fastest = {}, {}
    for op in (op for run in runs for op in run["ops"]):
        key = op["phase"], op["kernel"], op["shapes"]
        fastest[key] = min(fastest.get(key, op), op, key=lambda o: o["ms"])
    for op in fastest.values():
        row = rows.setdefault(kind(op), {"work": name, "kernel": kind(op), "launches": 0, "ms": 0.0, "bound_ms": 0.0})
        row["launches"] += op["launches"]
        row["ms"] += op["ms"]
        row["bound_ms"] += op["ms"] * max(op["gflops"] / peak, op["gbytes_per_s"] / read_gbytes)
    step_ms = sum(row["ms"] for row in rows.values())
    for row in rows.values():
        row["share_of_step"] = row["ms"] / step_ms
        row["over_bound"] = row["ms"] / row["bound_ms"] if row["bound_ms"] > 0 else None
        row["lost_ms"] = row["ms"] - row["bound_ms"]
    return [{k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}
            for row in sorted(rows.values(), key=lambda r: -r["ms"]) if row["share_of_step"] > 0.002]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="settings whose name holds this")
    args = parser.parse_args()
    read = record.last_json(args.tegula, "bench", "gemm", "--shape", "1,4096,4096", "--cold", "--threads", args.threads,
                            "--json")["read_gbytes_per_s"]
    rows = []
    for setting in SETTINGS:
        if args.only in setting[0] and setting[-1] == "f32":
            runs = [tegula_step(args, setting, "--by-op") for _ in range(args.rounds)]
            rows += table(setting[0], runs, read)
    for row in rows:
        print(row)
    record.write(args, "step_bounds", f"bench/step_bounds.py --threads {args.threads} --rounds {args.rounds}", rows,
                 record.STEP, args.threads, read_gbytes_per_s=read)


if __name__ == "__main__":
    sys.exit(main())
