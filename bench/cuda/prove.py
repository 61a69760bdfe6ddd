#!/usr/bin/env python3
"""Every CUDA kernel under compute-sanitizer's tools and over random cases, in many processes on one GPU.

  bench/cuda/prove.py --compile --cubins DIR [--jobs 2]
  bench/cuda/prove.py --what sanitize,grids --cubins DIR [--library FILE] [--jobs 16] [--only TEXT] [--seconds S]
                      [--json FILE]

--compile needs no GPU. It puts the kernels into DIR, and into DIR/checked those of the backward as racecheck wants
them (docs/kernels/attention_bwd_sm90.md). A row of the result is a family of kernels under a tool, or its grid: random
cases against float64, as the scripts named here say. What a part printed lies in LOGS.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import subprocess
import sys
import time

from sanitize import TOOLS, run_part

COMPILE_PARTS = 32
FIXED = re.compile(r"^\S+ (matmul_\w+|divergence|attention_(naive|tiled|decode))\.cu")
HERE = os.path.dirname(os.path.abspath(__file__))


@dataclasses.dataclass
class Family:
    """Kernels that a script runs: how, under a sanitizer and over a grid, and in how many parts."""
    name: str
    script: str
    sanitized: tuple
    grid: tuple
    parts: int = 1
    grid_parts: int = 1
    has_checked: bool = False  # racecheck needs kernels of its own
    splits_cases: bool = False  # parts have all variants, and each some of the cases
    plugin: bool = False  # by the plug-in's C calls
    filter: str = "attention"  # of kernels' names, so that PyTorch's do not take the time


def families(n_launches):
    """n_launches: of a variant under a sanitizer."""
    launch, n = ("--launch-only", "--cases"), str(n_launches)
    forward, backward = "attention_grid.py", "attention_bwd.py"
    return [
        Family("attention_bwd_mma", backward, (*launch, n, "--family", "mma"), ("--cases", "9", "--family", "mma"), 6, 10,
               True),
        Family("attention_bwd_sm90", backward, (*launch, n, "--family", "sm90"), ("--cases", "10", "--family", "sm90"), 4,
               10, True),
        Family("attention_f32_bwd_sm90", backward, (*launch, n, "--family", "f32"), ("--cases", "42", "--family", "f32"), 2,
               8, True),
        Family("attention_mma", forward, (*launch, n, "--family", "mma"), ("--cases", "15", "--family", "mma"), 3, 4),
        Family("attention_sm90", forward, (*launch, n, "--family", "sm90"), ("--cases", "14", "--family", "sm90"), 3, 6),
        Family("attention_sm90 of e4m3", forward, (*launch, n, "--family", "f8"), ("--cases", "56", "--family", "f8"), 2, 6),
        Family("attention_f32_sm90", forward, (*launch, n, "--family", "f32"), ("--cases", "34", "--family", "f32"), 1, 3),
        Family("attention_decode", "decode.py", (*launch, "60"), ("--no-timing", "--cases", "1000"), 2, 3,
               splits_cases=True),
        Family("attention_naive, attention_tiled", "attention.py",
               ("--launch-only", "--quick", "--rungs", "--variants", "/dev/null"),
               ("--no-timing", "--rungs", "--variants", "/dev/null")),
        Family("matmul, divergence", "matmul.py", ("--profile", "--small", "201"), ("--no-timing",), filter=""),
        Family("attention_pad, through the plug-in", "padded.py", ("--launch-only",), (), plugin=True,
               filter="attention_pad"),
    ]


def compile_all(args):
    """Each variant's cubin, unless it is there; how many failed or lost something."""
    checked = f"{args.cubins}/checked"
    os.makedirs(checked, exist_ok=True)
    fixed = f"{args.cubins}/variants.txt"  # those that no script here compiles for itself
    with open(f"{HERE}/variants.txt", encoding="utf-8") as all_lines, open(fixed, "w", encoding="utf-8") as out:
        out.writelines(line for line in all_lines if FIXED.search(line))
    todo = [([f"{args.build}/bench/cuda/bench_cuda_compile", args.cubins, fixed], {})]
    for script, folder, env in (("attention_grid.py", args.cubins, {}), ("attention_bwd.py", args.cubins, {}),
                                ("attention_bwd.py", checked, {"TEGULA_CHECKED": "1"})):
        todo += [([sys.executable, f"{HERE}/{script}", "--compile", "--build", args.build, "--cubins", folder, "--parts",
                   str(COMPILE_PARTS), "--part", str(part)], env) for part in range(COMPILE_PARTS)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        return sum(pool.map(lambda job: subprocess.run([*args.under, *job[0]], env=dict(os.environ, **job[1]),
                                                       check=False).returncode != 0, todo))


def command_of(family, args, sanitized, cubins):
    words = family.sanitized if sanitized else family.grid
    where = ["--library", args.library] if family.plugin else ["--build", args.build, "--cubins", cubins]
    return [f"{HERE}/{family.script}", *where, *words]


def jobs_of(args):
    """(family, tool or "", part, parts, command), those that take longest first."""
    for family in families(args.launches):
        if not any(text in family.name for text in args.only.split(",")) or (family.plugin and not args.library):
            continue
        if "sanitize" in args.what:
            for tool in args.tools.split(","):
                cubins = f"{args.cubins}/checked" if tool == "racecheck" and family.has_checked else args.cubins
                parts = family.parts * (2 if family.parts > 1 and tool in ("racecheck", "initcheck") else 1)
                for part in range(parts):
                    yield family, tool, part, parts, command_of(family, args, True, cubins)
        if "grids" in args.what:
            for part in range(family.grid_parts):
                yield family, "", part, family.grid_parts, command_of(family, args, False, args.cubins)


def run(job, args):
    family, tool, part, parts, command = job
    left = args.seconds - (time.time() - args.start)
    if left < 5:
        return {"exit": "out of time", "seconds": 0}
    if not tool and "attention_" in family.script:
        command = [*command, "--seconds", str(int(left - 15))]  # so that it ends with what it did
    return run_part(tool, command, part, parts, family.filter if tool != "initcheck" else "", left,
                    f"{args.logs}/{re.sub('[^a-z0-9]+', '_', family.name)}_{tool or 'grid'}_{part}.log")


def row_of(family, tool, parts):
    """One row of the parts of a family under a tool, or of its grid."""
    def total(key):
        return sum(p.get(key) or 0 for p in parts)
    variants = parts[0].get("variants") if family.splits_cases else total("variants")
    row = {"kernels": family.name, "tool": tool or "grid", "variants": variants, "cases": total("cases")}
    if tool:
        row["findings"] = total("findings")
    else:
        row["failed"], row["worst error/bound"] = total("failed"), max(p.get("worst") or 0 for p in parts)
    row["parts not ended well"] = sum(p["exit"] != 0 for p in parts)
    row["seconds, of a part at most"] = max(p["seconds"] for p in parts)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/cuda")
    parser.add_argument("--cubins", default="build/cubins")
    parser.add_argument("--library", default="", help="libtegula_cuda.so, for the kernels that only it launches")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--under", default="", help="with --compile: a command that each process runs under")
    parser.add_argument("--what", default="sanitize,grids")
    parser.add_argument("--tools", default=TOOLS)
    parser.add_argument("--launches", type=int, default=2, help="of a variant under a sanitizer")
    parser.add_argument("--only", default="", help="families whose name has one of these, by commas")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1e5, help="of all")
    parser.add_argument("--logs", default="prove_logs")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    args.under, args.start = args.under.split(), time.time()
    if args.compile:
        sys.exit(compile_all(args))
    os.makedirs(args.logs, exist_ok=True)
    parts = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = list(jobs_of(args))
        for job, done in zip(jobs, pool.map(lambda j: run(j, args), jobs)):
            parts.setdefault((job[0].name, job[1]), (job[0], []))[1].append(done)
            print(job[0].name, job[1] or "grid", job[2], done, flush=True)
    rows = [row_of(family, tool, of) for (_, tool), (family, of) in parts.items()]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if args.json:
        from harness import write_result
        write_result(args.json, "prove_cuda", "bench/cuda/prove.py", args.commit, rows,
                     ["*.cu", "*.cuh", "plugin"])
    sys.exit(any(row["parts not ended well"] or row.get("findings") or row.get("failed") for row in rows))


if __name__ == "__main__":
    main()
