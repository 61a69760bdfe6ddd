#!/usr/bin/env python3
"""compute-sanitizer over a step of three families, and over a few tokens of their generation.

  bench/cuda/sanitize_models.py [--tegula build/release/tegula] [--tools memcheck,racecheck,...] [--families gpt2,llama,moe]
                                [--dtype bf16] [--seconds S] [--json FILE] [--dry-run]

A small model of each family trains three steps (the first launches kernel by kernel, the later ones replay a graph), then
writes 8 tokens. A tool's run fails on a finding, on another exit than 0, and when it takes longer than S seconds;
--dry-run prints the commands, and runs them without a tool where there is no compute-sanitizer.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOOLS = "memcheck,initcheck,synccheck,racecheck"
SANITIZER = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
FAMILIES = {"gpt2": [], "llama": ["--n-kv-heads", "1"], "moe": ["--n-experts", "4"], "gemma2": [], "mistral": [], "qwen2": []}
SHAPE = "--n-layers 2 --n-heads 2 --d-model 128 --seqlen 64 --batch 2 --steps 3 --warmup 1 --eval-every 0".split()


def commands(tegula, family, dtype, text, out, device):
    yield [tegula, "train", "--model", family, "--data", text, "--out", out, "--dtype", dtype, "--device", device,
           *SHAPE, *FAMILIES[family]]
    yield [tegula, "generate", "--model", out, "--prompt", "line 7", "--max-tokens", "8", "--device", device,
           "--dtype", "f32" if family == "moe" else dtype]


def run(tool, command, seconds):
    under = [SANITIZER, "--tool", tool, "--error-exitcode", "9"] if tool else []
    begin = time.time()
    try:
        done = subprocess.run(under + command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"exit": "out of time", "findings": None, "seconds": round(time.time() - begin, 1), "text": ""}
    said = done.stdout + done.stderr
    found = [int(a or b) for a, b in SUMMARY.findall(said)]
    return {"exit": done.returncode, "findings": sum(found) if found else None, "seconds": round(time.time() - begin, 1),
            "text": said[-2000:]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tegula", default="build/release/tegula")
    p.add_argument("--tools", default=TOOLS)
    p.add_argument("--families", default="gpt2,llama,moe")
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--device", default="cuda")
    p.add_argument("--seconds", type=float, default=400)
    p.add_argument("--json", default="")
    p.add_argument("--dry-run", action="store_true")
    o = p.parse_args()
    is_there = os.access(SANITIZER, os.X_OK)
    if not is_there and not o.dry_run:
        sys.exit("sanitize_models.py: no compute-sanitizer: install CUDA's (cuda-sanitizer), or --dry-run")
    tools = [""] if o.dry_run else o.tools.split(",")
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write("".join(f"line {i} of {i * 7919 % 1000}\n" for i in range(400)))
        for family in o.families.split(","):
            if family not in FAMILIES:
                sys.exit(f"sanitize_models.py: no family {family}; there are {', '.join(FAMILIES)}")
            for tool in tools:
                out = os.path.join(folder, f"{family}-{tool or 'plain'}")
                for command in commands(o.tegula, family, o.dtype, text, out, o.device):
                    if o.dry_run:
                        print(" ".join(command), flush=True)
                    row = {"family": family, "tool": tool or "none", "work": command[1]} | run(tool, command, o.seconds)
                    is_bad = row["exit"] != 0 or (tool and row["findings"] != 0)
                    failed |= bool(is_bad)
                    said = row.pop("text")
                    rows.append(row)
                    print(json.dumps(row), *([said] if is_bad else []), flush=True)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
