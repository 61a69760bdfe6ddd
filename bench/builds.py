#!/usr/bin/env python3
"""Works of `tegula bench` in several builds, interleaved in one run: what a change gave.

    bench/builds.py --builds before=PATH,after=PATH --name NAME [--threads 1,2] [--rounds 7] \\
        "gemm --shape 1024,768,3072 --dtype bf16" "attention --shape 1,8,1024,64 --pass fwd"

In a round each build takes its turn; its median is that of its rounds' medians, its least the least of all. A share
is of the multiply-add rate beside the samples; the last column is the first build's median time by the last one's,
round by round. Writes bench/results/NAME.json.
"""
import argparse
import json
import statistics
import sys

import record


def measure(args, builds, work, threads):
    runs = {name: [] for name, _ in builds}
    for _ in range(args.rounds):
        for name, path in builds:
            runs[name].append(record.last_json(path, "bench", *work.split(), "--threads", threads, "--repeats",
                                               args.repeats, "--json"))
    row = {"work": work, "threads": threads}
    for name, _ in builds:
        row[f"{name}_ms"] = round(statistics.median(r["ms_median"] for r in runs[name]), 3)
        row[f"{name}_least"] = round(min(r["ms_min"] for r in runs[name]), 3)
        row[f"{name}_share"] = round(statistics.median(r["share_of_peak"] for r in runs[name]), 3)
    first, last = (runs[builds[i][0]] for i in (0, -1))
    row["ratio"] = round(statistics.median(a["ms_median"] / b["ms_median"] for a, b in zip(first, last)), 3)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser, threads="1,2")
    parser.add_argument("--builds", required=True, help="NAME=PATH of each tegula, the first one's time is divided")
    parser.add_argument("--name", required=True, help="of the result")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("works", nargs="+", help="arguments of `tegula bench`")
    args = parser.parse_args()
    builds = [tuple(b.split("=", 1)) for b in args.builds.split(",")]
    rows = []
    for work in args.works:
        for threads in args.threads.split(","):
            rows.append(measure(args, builds, work, threads))
            print(json.dumps(rows[-1]), flush=True)
    works = " ".join(f"'{w}'" for w in args.works)
    record.write(args, args.name, f"bench/builds.py --threads {args.threads} --rounds {args.rounds} {works}", rows,
                 record.KERNELS, "threads by row", builds=[name for name, _ in builds])


if __name__ == "__main__":
    sys.exit(main())
