#!/usr/bin/env python3
"""Attention and products at 1, 2, 4, ... threads beside the multiply-add rate of as many threads.

    bench/scaling.py [--threads 16] [--rounds 3] [--only attention] [--tegula build/release/tegula]

`scaling` is the speed-up over one thread divided by that of the multiply-add rate measured between the
samples: of each thread its best burst of 0.1 ms. `sustained` is the same by the rate that multiply-adds keep
for as long as a sample, timed by the same clock, so that a core that others slow down for part of the time
counts for what it gave. `apart` compares shares of as many processes of one thread at once, each with a small
work of its own, by their own time: they share the machine and nothing of ours.
Writes bench/results/scaling.json.
"""
import argparse
import json
import statistics
import subprocess
import sys

import record

ROWS = [  # the last: the shape of each process apart, about a thread's part
    ("attention fwd, full, d 64", "attention --pass fwd", "1,16,1024,64", "1,1,1024,64"),
    ("attention fwd, causal, N 2048, d 128", "attention --pass fwd --causal", "1,8,2048,128", "1,1,2048,128"),
    ("attention fwd+bwd, full, d 64", "attention --pass fwdbwd", "1,16,1024,64", "1,1,1024,64"),
    ("attention fwd, causal, d 64, bf16", "attention --pass fwd --causal --dtype bf16", "1,16,1024,64", "1,1,1024,64"),
    ("gemm 2048^3", "gemm", "2048,2048,2048", "512,512,2048"),
    ("gemm 2048^3, bf16", "gemm --dtype bf16", "2048,2048,2048", "512,512,2048"),
]


def command(args, flags, shape, threads, repeats):
    return [str(part) for part in (args.tegula, "bench", *flags.split(), "--shape", shape, "--threads", threads,
                                   "--repeats", repeats, "--sustained", "--json")]


def share_apart(args, flags, shape, count):
    """The mean share of `count` processes at once; some 0.5 s each, so that nearly all of it is side by side."""
    runs = [subprocess.Popen(command(args, flags, shape, 1, args.repeats_apart), stdout=subprocess.PIPE, text=True)
            for _ in range(count)]
    out = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
        raise subprocess.CalledProcessError(1, runs[0].args)
    return statistics.mean(json.loads(text.strip().splitlines()[-1])["share_of_peak"] for text in out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser, threads=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--repeats-apart", type=int, default=25, help="of each process apart")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    args = parser.parse_args()
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= args.threads]
    rows = []
    for name, flags, shape, shape_apart in ROWS:
        if args.only not in name:
            continue
        runs = {n: [] for n in counts}
        apart = {n: [] for n in (1, counts[-1])}
        for _ in range(args.rounds):  # the counts take turns
            for n in counts:
                runs[n].append(record.last_json(*command(args, flags, shape, n, args.repeats)))
            for n, shares in apart.items():
                shares.append(share_apart(args, flags, shape_apart, n))
        row = {"work": name}
        for n in counts:
            speed = statistics.median(r["gflops"] for r in runs[n])
            share = statistics.median(r["share_of_peak"] for r in runs[n])
            sustained = statistics.median(r["gflops"] / r["sustained_gflops"] for r in runs[n])
            if n == 1:
                first, first_sustained = share, sustained
            row[f"gflops_{n}"] = round(speed, 1)
            row[f"share_{n}"] = round(share, 3)
            row[f"scaling_{n}"] = round(share / first, 3)
            row[f"sustained_{n}"] = round(sustained / first_sustained, 3)
        row[f"apart_{counts[-1]}"] = round(statistics.median(apart[counts[-1]]) / statistics.median(apart[1]), 3)
        rows.append(row)
        print(json.dumps(row), flush=True)
    record.write(args, "scaling", f"bench/scaling.py --threads {args.threads}", rows,
                 record.KERNELS, "threads by row")


if __name__ == "__main__":
    sys.exit(main())
