#!/usr/bin/env python3
"""What each feature of attention costs: its time over the plain kernel's at the same shape, samples of both
alternating. The gain of a mask that hides keys is divided out: the ratio is of time per visible pair."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEATURES = {  # flags, share of the pairs that are visible
    "causal": (["--causal"], 0.5),
    "window 128": (["--causal", "--window", "127"], None),
    "grouped heads (4 a key head)": (["--kv-heads", "{h4}"], 1),
    "one key head": (["--kv-heads", "1"], 1),
    "ALiBi": (["--with", "alibi"], 1),
    "softcap": (["--with", "softcap"], 1),
    "bias, and its gradient": (["--with", "bias"], 1),
    "bias of keys, and its gradient": (["--with", "bias-of-keys"], 1),
    "dropout": (["--with", "dropout"], 1),
    "two packed sequences": (["--with", "varlen"], 0.5),
    "heads before tokens in memory": (["--with", "strided"], 1),
    "bf16": (["--dtype", "bf16"], 1),
    "f16": (["--dtype", "f16"], 1),
    "odd head size (d - 3)": (["--shape", "{odd}"], None),
}


def measure(binary, flags, args):
    done = subprocess.run([binary, "bench", "attention", *flags, "--threads", str(args.threads), "--repeats", "3",
                           "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default=str(ROOT / "build/release/tegula"))
    parser.add_argument("--shape", default="1,8,1024,64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="features whose name contains this")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    b, h, n, d = (int(x) for x in args.shape.split(","))
    rows = []
    print(f"{'feature':34} forward  backward   (time per visible pair over the plain kernel's)")
    for name, (flags, share) in FEATURES.items():
        if args.only and args.only not in name:
            continue
        flags = [f.format(h4=max(1, h // 4), odd=f"{b},{h},{n},{d - 3}") for f in flags]
        if name.startswith("window"):
            share = (128 * n - 128 * 127 / 2) / n / n
        if name.startswith("odd"):
            share = (d - 3) / d
        row = {"feature": name}
        for column in ("fwd", "bwd"):
            shape = [] if "--shape" in flags else ["--shape", args.shape]
            pairs = [(measure(args.bin, ["--shape", args.shape, "--pass", column], args),
                      measure(args.bin, [*shape, *flags, "--pass", column], args)) for _ in range(args.rounds)]
            row[column] = statistics.median(x["ms_min"] / plain["ms_min"] / share for plain, x in pairs)
        rows.append(row)
        print(f"{name:34} {row['fwd']:7.2f} {row['bwd']:9.2f}", flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
