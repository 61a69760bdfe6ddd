#!/usr/bin/env python3
"""compute-sanitizer's tools over a script of this folder.

  bench/cuda/sanitize.py [--tools memcheck,initcheck,synccheck,racecheck] [--parts N] [--jobs N] [--seconds S]
                         [--kernels TEXT] [--json FILE]
                         -- bench/cuda/attention_bwd.py --cubins DIR --cases 1 [--only TEXT]

Each tool runs the command in N parts (--part I --parts N are appended), several at a time. A part fails on
a finding, on a nonzero exit, and when it does not end within S seconds. Memory is allocated tensor by
tensor, and what scripts would fill with NaN before a launch (TEGULA_UNINITIALIZED) stays as it is, so that
memcheck sees each tensor's end and initcheck what nothing wrote. --kernels: only kernels with TEXT in their
name, so that PyTorch's own do not take the time.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

PADDING = 1 << 16  # bytes behind each allocation
TOOLS = "memcheck,initcheck,synccheck,racecheck"
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
CASES = re.compile(r"^(\d+) cases of (\d+) variants(?:.*: (\d+) failed, worst error/bound ([\d.]+|inf))?", re.M)
SANITIZER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"


def run_part(tool, command, part, parts, kernels, seconds, log):
    """One part of a script's work under a tool (or under none), and what it printed."""
    under = []
    if tool:
        under = [SANITIZER, "--tool", tool, "--error-exitcode", "9"]
        under += ["--kernel-name", f"kns={kernels}"] if kernels else []
        # Allocations stand side by side, so that what reads past the end of one may read another.
        under += ["--padding", str(PADDING)] if tool == "memcheck" else []
    command = [*under, sys.executable, *command]
    if parts > 1:
        command += ["--part", str(part), "--parts", str(parts)]
    env = dict(os.environ, PYTHONFAULTHANDLER="1")
    if tool:
        env.update(PYTORCH_NO_CUDA_MEMORY_CACHING="1", TEGULA_UNINITIALIZED="1")
    start, ended = time.time(), True
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = False
            os.killpg(process.pid, 15)
            process.wait()
    with open(log, encoding="utf-8", errors="replace") as f:
        text = f.read()
    found = [int(a or b) for a, b in SUMMARY.findall(text)]
    done = CASES.search(text)
    out = {"tool": tool, "part": f"{part} of {parts}", "exit": process.returncode if ended else "out of time",
           "seconds": round(time.time() - start, 1), "findings": sum(found) if found else None}
    if done:
        out.update(cases=int(done[1]), variants=int(done[2]), failed=int(done[3] or 0), worst=float(done[4] or 0))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", default=TOOLS)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=600, help="of a part")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--logs", default=".", help="folder for what the tools print")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--name", default="sanitize", help="of the result")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    todo = [(tool, part) for tool in args.tools.split(",") for part in range(args.parts)]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda t: run_part(t[0], args.command, t[1], args.parts, args.kernels, args.seconds,
                                               f"{args.logs}/{t[0]}_{t[1]}.log"), todo):
            rows.append(row)
            print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if args.json:
        from harness import write_result
        write_result(args.json, args.name, "bench/cuda/sanitize.py", args.commit, rows,
                     ["*.cu", "*.cuh"])
    sys.exit(any(r["exit"] != 0 or r["findings"] != 0 for r in rows))


if __name__ == "__main__":
    main()
