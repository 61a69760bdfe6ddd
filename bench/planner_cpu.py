#!/usr/bin/env python3
"""Training steps as `tegula plan --calibrate` predicts them, beside the same steps run by `tegula train`.

The calibration is of this machine and hour, in a folder of its own; none of the runs is in it, and nothing is
fitted to them. With one thread CPU time counts, since others may use the machine: that of a process that trains for
many steps less that of one that trains for few, over the steps in between, so that what a run does once does not
count. With several it is the wall's, the median step of a run. Each run stands between two reference products; where
their rate differs from the calibration's, or from one another's, by more than 5 %, or others take more than 5 % of the
cores, it is repeated when the product is as fast as it was, at most eight times, and the last try counts and is
marked.

    bench/planner_cpu.py --tegula build/release/tegula                   # measures, writes bench/results/planner_cpu.json
    bench/planner_cpu.py --threads 2 --dtype bf16                        # … into planner_cpu_bf16_2.json
    bench/planner_cpu.py --table bench/results/planner_cpu.json          # the table of a result
    bench/planner_cpu.py --table … --check docs/planner.md               # is it that of the page?
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import record

DRIFT, TRIES, FEW, LEAST_S, PATIENCE_S = 0.05, 8, 3, 0.8, 300
# Family, layers, heads, width, seqlen, batch, and what else.
RUNS = [
    ("gpt2", 4, 4, 128, 64, 12, ""), ("gpt2", 2, 4, 256, 128, 4, ""), ("gpt2", 6, 6, 192, 96, 6, ""),
    ("gpt2", 3, 2, 96, 40, 20, ""), ("gpt2", 5, 5, 160, 120, 5, ""), ("gpt2", 8, 4, 64, 200, 3, ""),
    ("gpt2", 2, 6, 384, 256, 2, ""), ("gpt2", 1, 8, 512, 64, 8, ""), ("gpt2", 10, 2, 64, 32, 16, ""),
    ("gpt2", 4, 4, 224, 304, 2, ""), ("gpt2", 2, 12, 192, 64, 30, ""), ("gpt2", 3, 3, 96, 512, 2, ""),
    ("gpt2", 12, 4, 128, 48, 4, ""), ("gpt2", 2, 2, 48, 24, 50, ""), ("gpt2", 6, 8, 256, 80, 3, ""),
    ("gpt2", 4, 4, 128, 64, 12, "--checkpoint sqrt"), ("gpt2", 9, 4, 128, 64, 6, "--checkpoint sqrt"),
    ("gpt2", 6, 6, 192, 96, 6, "--checkpoint sqrt"), ("gpt2", 4, 4, 224, 304, 2, "--checkpoint sqrt"),
    ("gpt2", 4, 4, 128, 64, 12, "--memory 10MiB"), ("gpt2", 8, 4, 128, 128, 4, "--memory 12MiB"),
    ("gpt2", 4, 4, 128, 64, 12, "--blockwise 128"), ("gpt2", 3, 4, 256, 128, 8, "--blockwise 256"),
    ("gpt2", 4, 4, 128, 64, 4, "--accumulate 3"), ("gpt2", 3, 6, 192, 96, 2, "--accumulate 5"),
    ("llama", 4, 4, 128, 64, 12, ""), ("llama", 2, 4, 256, 128, 4, ""), ("llama", 6, 6, 192, 96, 6, ""),
    ("llama", 3, 2, 96, 40, 20, ""), ("llama", 5, 5, 160, 120, 5, ""), ("llama", 8, 4, 64, 200, 3, ""),
    ("llama", 2, 6, 384, 256, 2, ""), ("llama", 1, 8, 512, 64, 8, ""), ("llama", 4, 8, 256, 304, 1, ""),
    ("llama", 3, 3, 96, 512, 2, ""), ("llama", 12, 4, 128, 48, 4, ""), ("llama", 2, 2, 48, 24, 50, ""),
    ("llama", 4, 4, 128, 64, 12, "--checkpoint sqrt"), ("llama", 9, 4, 128, 64, 6, "--checkpoint sqrt"),
    ("llama", 6, 6, 192, 96, 6, "--checkpoint sqrt"), ("llama", 4, 4, 128, 64, 12, "--memory 10MiB"),
    ("llama", 3, 4, 256, 128, 8, "--blockwise 256"), ("llama", 3, 6, 192, 96, 2, "--accumulate 5"),
    ("llama", 4, 4, 128, 64, 12, "--n-kv-heads 2"),
]


def flags_of(run):
    family, layers, heads, width, seqlen, batch, more = run
    return ["--model", family, "--n-layers", layers, "--n-heads", heads, "--d-model", width, "--seqlen", seqlen,
            "--batch", batch, *more.split()]


def reference(args):
    """The rate of a product; 0 where others had more than 5 % of the cores meanwhile."""
    done = record.last_json(args.tegula, "bench", "gemm", "--shape", "384,384,384", "--threads", args.threads,
                            "--dtype", args.dtype, "--repeats", 7, "--sustained", "--json")
    return done["gflops"] if done["sustained_gflops"] > (1 - DRIFT) * done["peak_gflops"] else 0


def drifted(*rates):
    return max(rates) > (1 + DRIFT) * min(rates)


def quiet_reference(args, calibrated=None):
    """The reference's rate as soon as it is the calibration's, or after all patience."""
    end = time.time() + PATIENCE_S
    while (not (rate := reference(args)) or drifted(rate, calibrated or rate)) and time.time() < end:
        time.sleep(1)
    return rate


def calibrate(args, folder):
    """Its reference's rate: that before it and after, which are alike; and its seconds."""
    start = time.time()
    while True:
        before = quiet_reference(args)
        done = subprocess.run([args.tegula, "plan", "--threads", str(args.threads), "--dtype", args.dtype,
                               "--calibrate"], check=True, capture_output=True, text=True)
        after = quiet_reference(args)
        if not drifted(before, after) and "not kept" not in done.stderr:
            return (before + after) / 2, time.time() - start
        for kept in (folder / "tegula").glob("calibration-*.json"):
            kept.unlink()


def letters(path):
    """65 characters in no order: what is learned does not matter here."""
    random.seed(1)
    text = "".join(chr(48 + i) for i in range(65))
    path.write_text(text + "".join(random.choice(text) for _ in range(60000)), encoding="utf-8")


def train(args, data, flags, steps):
    """CPU seconds of the process, and what it printed last."""
    command = [args.tegula, "train", "--data", data, *flags, "--steps", steps, "--eval-every", 0, "--save-every", 0,
               "--warmup", 1, "--json"]
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(" ".join(map(str, command)))
    return usage.ru_utime + usage.ru_stime, json.loads(out.strip().splitlines()[-1])


def measure(args, run, data, calibrated):
    flags = [*flags_of(run), "--threads", args.threads, "--dtype", args.dtype]
    plan = record.last_json(args.tegula, "plan", *flags, "--vocab-size", 65, "--calibrate", "--json")
    row = {"flags": " ".join(str(f) for f in flags_of(run)), "predicted_ms": 1e3 * plan["predicted_s"],
           "low_ms": 1e3 * plan["predicted_low_s"], "high_ms": 1e3 * plan["predicted_high_s"],
           "share_unknown": plan["predicted_share_unknown"], "roofline_ms": 1e3 * plan["seconds"]}
    steps = max(8, min(200, round(LEAST_S / plan["predicted_s"])))
    for tries in range(1, TRIES + 1):
        before = quiet_reference(args, calibrated)
        few_s = train(args, data, flags, FEW)[0] if args.threads == 1 else 0
        many_s, done = train(args, data, flags, FEW + steps)
        after = reference(args)
        row.update(measured_ms=1e3 * (many_s - few_s) / steps if args.threads == 1 else done["step_ms"],
                   wall_ms=done["step_ms"], steps=steps, tries=tries, reference_gflops=[before, after],
                   peak_planned=done["peak_bytes_planned"], peak_measured=done["peak_bytes_measured"])
        row["drifted"] = drifted(before, after, calibrated)
        if not row["drifted"]:
            break
    return row


def table(result):
    rows = result["rows"]
    lines = ["| run | predicted, ms (interval) | measured, ms | error | inside | |", "| --- | --- | --- | --- | --- | --- |"]
    errors = []
    for r in rows:
        error = r["predicted_ms"] / r["measured_ms"] - 1
        errors.append(abs(error))
        inside = r["low_ms"] <= r["measured_ms"] <= r["high_ms"]
        flags = r["flags"].replace("--model ", "").replace("--n-layers", "layers").replace("--n-heads", "heads")
        flags = flags.replace("--d-model", "width").replace("--", "")
        lines.append(f"| {flags} | {r['predicted_ms']:.4g} ({r['low_ms']:.4g} to {r['high_ms']:.4g}) | "
                     f"{r['measured_ms']:.4g} | {100 * error:+.1f} % | {'yes' if inside else 'no'} | "
                     f"{'the reference drifted' if r['drifted'] else ''} |")
    errors.sort()
    n = len(errors)
    inside = sum(r["low_ms"] <= r["measured_ms"] <= r["high_ms"] for r in rows)
    equal = sum(r["peak_planned"] == r["peak_measured"] for r in rows)
    lines += ["", f"{n} runs: the median of |error| is {100 * errors[n // 2]:.1f} %, the 95th percentile "
              f"{100 * errors[min(n - 1, -(-95 * n // 100) - 1)]:.1f} %, the largest {100 * errors[-1]:.1f} %; "
              f"{inside} lie inside their interval, {equal} have the planned peak of memory to the byte, "
              f"and of {sum(r['drifted'] for r in rows)} the reference product drifted in all {TRIES} tries."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    record.add_flags(parser, threads=1)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    record.add_table_flags(parser)
    parser.add_argument("--only", type=int, default=0, help="so many of the runs, to look at")
    args = parser.parse_args()
    if args.table:
        return record.show(table(json.loads(pathlib.Path(args.table).read_text(encoding="utf-8"))), args.check)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        data = pathlib.Path(folder) / "letters.txt"
        letters(data)
        calibrated, seconds = calibrate(args, pathlib.Path(folder))
        rows = []
        for run in RUNS[:args.only or len(RUNS)]:
            rows.append(measure(args, run, data, calibrated))
            r = rows[-1]
            print(f"{r['predicted_ms'] / r['measured_ms'] - 1:+.3f} {r['predicted_ms']:9.3f} {r['measured_ms']:9.3f} "
                  f"unknown {r['share_unknown']:.2f} tries {r['tries']} {r['flags']}", file=sys.stderr)
    name = "planner_cpu" + ("" if args.dtype == "f32" else f"_{args.dtype}")
    name += "" if args.threads == 1 else f"_{args.threads}"
    record.write(args, name, "bench/planner_cpu.py", rows, record.STEP, args.threads,
                 dtype=args.dtype, calibration_s=seconds, calibration_gflops=calibrated)
    print(table({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
