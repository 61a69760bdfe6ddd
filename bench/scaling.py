#!/usr/bin/env python3
"""Attention and products at 1, 2, 4, ... threads beside the multiply-add rate of as many threads.

    bench/scaling.py [--threads 16] [--rounds 3] [--only attention] [--tegula build/release/tegula]

`scaling` is the speed-up over one thread divided by that of the multiply-add rate measured between
the samples. Writes bench/results/scaling.json.
"""
import argparse
import json
import statistics
import sys

import record

ROWS = [
    ("attention fwd, full, d 64", "attention --shape 1,16,1024,64 --pass fwd"),
    ("attention fwd, causal, N 2048, d 128", "attention --shape 1,8,2048,128 --pass fwd --causal"),
    ("attention fwd+bwd, full, d 64", "attention --shape 1,16,1024,64 --pass fwdbwd"),
    ("attention fwd, causal, d 64, bf16",
     "attention --shape 1,16,1024,64 --pass fwd --causal --dtype bf16"),
    ("gemm 2048^3", "gemm --shape 2048,2048,2048"),
    ("gemm 2048^3, bf16", "gemm --shape 2048,2048,2048 --dtype bf16"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser, threads=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name holds this")
    args = parser.parse_args()
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= args.threads]
    rows = []
    for name, flags in ROWS:
        if args.only not in name:
            continue
        runs = {n: [] for n in counts}
        for _ in range(args.rounds):  # the counts take turns
            for n in counts:
                runs[n].append(record.last_json(args.tegula, "bench", *flags.split(), "--threads", n,
                                                "--repeats", args.repeats, "--json"))
        row = {"work": name}
        for n in counts:
            speed = statistics.median(r["gflops"] for r in runs[n])
            share = statistics.median(r["share_of_peak"] for r in runs[n])
            if n == 1:
                first = share
            row[f"gflops_{n}"] = round(speed, 1)
            row[f"share_{n}"] = round(share, 3)
            row[f"scaling_{n}"] = round(share / first, 3)
        rows.append(row)
        print(json.dumps(row), flush=True)
    record.write(args, "scaling", f"bench/scaling.py --threads {args.threads}", rows)


if __name__ == "__main__":
    sys.exit(main())
