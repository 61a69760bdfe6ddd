#!/usr/bin/env python3
"""Graphs of bench/graphs.py over our own passes, and as --superopt rewrites them, timed in turns.

    bench/superopt.py [--tegula build/release/tegula] [--threads 1] [--device cpu] [--seconds 2] [--mode fast]

Each graph is searched twice, each time without what an earlier search found: on a device the second one finds the
kernels of the first compiled. Times are the second's. Writes bench/results/superopt_DEVICE.json.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import record

BENCH = pathlib.Path(__file__).resolve().parent
GRAPHS = ["nasrnn", "nasrnn steps=8 batch=64", "inception", "inception batch=8", "resnext", "resnext batch=8",
          "attention", "attention rows=2048 width=1024"]
CODE = ["tegula/passes", "tegula/cost", "tegula/runtime/superopt_trial.cpp"]
KERNELS = {"cpu": "tegula/kernels/cpu", "cuda": "tegula/kernels/cuda"}


def searched(args, path, folder):
    where = ["--device", "cuda"] if args.device == "cuda" else ["--threads", args.threads]
    command = [args.tegula, "bench", "graph", path, "--superopt", args.seconds, "--mode", args.mode, *where,
               "--repeats", args.repeats, "--tune-cache", folder, "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"refused": done.stderr.strip()}
    return json.loads(done.stdout.strip().splitlines()[-1])


def row_of(args, graph, folder):
    text = subprocess.run([sys.executable, BENCH / "graphs.py", *graph.split()], check=True, capture_output=True,
                          text=True).stdout
    path = folder / "graph.tg"
    path.write_text(text, encoding="utf-8")
    first, again = (searched(args, path, folder / str(k)) for k in range(2))
    if "refused" in again:
        return {"graph": graph, "refused": again["refused"]}, ""
    for f in (first, again):
        print(json.dumps({"graph": graph, **f}), flush=True)
    return {"graph": graph, "plain_ms": again["ms_without"], "rewritten_ms": again["ms"],
            "times_faster": again["times_faster"], "first_search_s": first["search_s"],
            "first_ready_s": first["ready_s"], "search_s": again["search_s"], "ready_s": again["ready_s"],
            "candidates": again["candidates"], "rules": ", ".join(f"{r['name']} {r['times']}" for r in again["rules"]),
            "is_budget_spent": again["is_budget_spent"]}, again["device"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    record.add_flags(parser, threads=1)
    parser.add_argument("--device", choices=sorted(KERNELS), default="cpu")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--mode", choices=("exact", "fast"), default="fast")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--graph", action="append", help="with its sizes, as bench/graphs.py takes them; default: all")
    args = parser.parse_args()
    rows, device = [], ""
    for graph in args.graph or GRAPHS:
        with tempfile.TemporaryDirectory() as folder:
            row, name = row_of(args, graph, pathlib.Path(folder))
        device = name or device
        rows.append(row)
        print(json.dumps(row), flush=True)
    is_cuda = args.device == "cuda"
    args.machine = args.machine or (device if is_cuda else "")
    record.write(args, f"superopt_{args.device}", f"bench/superopt.py --device {args.device} --seconds {args.seconds:g} "
                 f"--mode {args.mode}", rows, [*CODE, KERNELS[args.device]], None if is_cuda else args.threads)


if __name__ == "__main__":
    main()
