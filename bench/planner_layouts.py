#!/usr/bin/env python3
"""What the planner says of training steps that were executed on H200 (bench/results/layouts), beside what they took.

Constants come from single kernels and messages; the planner's laws were chosen with the `seen` half in view, and a few
since the `unseen` one was read. `fresh` are of models that neither has, `last` of others again: each was read once.

    bench/planner_layouts.py [--half seen|unseen|fresh|last] [--rows]   errors by set; with --rows a line each
    bench/planner_layouts.py --write docs/lab/planner_layouts.md        the page's tables
"""

import argparse
import collections
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import layouts

FILES = {"fresh": ("layouts_h200_torch_fresh", "layouts_h200x2_torch_fresh"), "last": ("layouts_h200_torch_last",)}
FOLDER = pathlib.Path(__file__).parent / "results/layouts"


def fix_of(row):
    parallel, gpus = row["parallel"], row["gpus"]
    # PyTorch's math backend, and transformers' eager attention.
    naive = "eager" if row["library"] == "transformers" else "math"
    attention = naive if row["attention"] == "naive" else row["attention"]
    zero = {"none": 0, "ddp": 0, "fsdp2": 2, "fsdp3": 3}[parallel]
    return (f"dp={gpus},tp=1,pp=1,cp=1,zero={zero},microbatch={row['batch']},remat={row['remat']},"
            f"attention={attention},loss={row['loss']}")


def planned(tegula, folder, row, flags, microbenchmarks=None):
    layers, width, heads, kv, hidden, vocabulary = layouts.MODELS[row["model"]]
    config = pathlib.Path(folder) / row["model"] / "config.json"
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({
        "model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocabulary,
        "max_position_embeddings": 131072, "tie_word_embeddings": False}))
    tokens = row["seqlen"] * row["batch"] * row["gpus"]
    done = subprocess.run([tegula, "plan", str(config), "--gpus", f"{row['gpus']}xH200", "--seqlen", str(row["seqlen"]),
                           "--batch-tokens", str(tokens), "--fix", fix_of(row), "--dtype", "bf16", "--json", *flags(row),
                           *(["--microbenchmarks", microbenchmarks] if microbenchmarks else [])],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        return None, done.stderr.strip()
    return json.loads(done.stdout)["layouts"][0], ""


def errors(pairs):
    """median, 95th percentile of |error|, mean signed, in percent"""
    signed = [100 * (p / m - 1) for p, m in pairs]
    size = sorted(map(abs, signed))
    return statistics.median(size), size[min(len(size) - 1, math.ceil(.95 * len(size)) - 1)], statistics.mean(signed)


def ranked(rows):
    """Of layouts of one model on as many devices, by seconds a token: how many pairs more than 3 % apart are in the right
    order, of how many; and by how much the one planned fastest is slower than the fastest."""
    models, right, pairs, regrets = {}, 0, 0, []
    for row, plan in rows:
        tokens = row["seqlen"] * row["batch"] * row["gpus"]
        models.setdefault(row["model"], []).append((plan["step_s"] / tokens, row["seconds"] / tokens))
    for layouts_ in models.values():
        for (p, m), (q, n) in itertools.combinations(layouts_, 2):
            if max(m, n) > 1.03 * min(m, n):
                pairs += 1
                right += (p < q) == (m < n)
        if len(layouts_) > 1:
            regrets.append(min(layouts_)[1] / min(m for _, m in layouts_) - 1)
    return right, pairs, regrets


def framework_of(row):
    if row["parallel"].startswith("fsdp"):
        return "torchtitan" if row["compiled"] else "fsdp"
    return "transformers" if row["library"] == "transformers" else "torch-compile" if row["compiled"] else "torch"


def flags_of(row):
    is_pure = row["dtype"] == "bf16"
    return ["--framework", framework_of(row), "--optimizer", "adam-pure" if is_pure else "adam"]


HEADINGS = {"seen": "Seen while the planner was made", "unseen": "Unseen until the morning of 2026-11-30",
            "fresh": "Models that neither half has, read once at noon", "last": "And others again, read once at the end"}
HEAD = ("| model, tokens, batch, dtype, recomputed, attention, loss, parallel, library | planned ms | took | | planned GB "
        "| allocated | |\n| --- | --- | --- | --- | --- | --- | --- |")


def row_text(what, plan, row):
    pairs = ((plan["step_s"] * 1e3, row["seconds"] * 1e3), (plan["peak_bytes"] / 1e9, row["allocated"] / 1e9))
    return f"| {what} | " + " | ".join(f"{p:.1f} | {m:.1f} | {100 * (p / m - 1):+.0f} %" for p, m in pairs) + " |"


def of_set(args, half, folder, out):
    """Prints the errors of a set; appends its rows to `out`."""
    all_times = []
    out += ["", f"## {HEADINGS[half]}", HEAD]
    for name in FILES.get(half, ("layouts_h200_torch", "layouts_h200x4_torch")):
        times, bytes_, inside, widths, rows = [], [], 0, [], []
        verdicts = {"ran": collections.Counter(), "ran out": collections.Counter()}
        for row in json.loads((FOLDER / f"{name}.json").read_text())["rows"]:
            # Its selective recomputation does whole feed-forward layers again: no convention that the planner has.
            if row["half"] != half or row["remat"] == "selective":
                continue
            plan, why = planned(args.tegula, folder, row, flags_of, args.microbenchmarks)
            what = " ".join(str(row[k]) for k in ("model", "seqlen", "batch", "dtype", "remat", "attention", "loss",
                                                  "parallel", "library")) + (" compiled" if row["compiled"] else "")
            if row["gpus"] > 1:
                what += f", {row['gpus']} GPUs"
            verdicts["ran" if "seconds" in row else "ran out"][plan["fit"] if plan else "does not fit"] += 1
            if plan is None or "seconds" not in row:
                if "does not fit" not in why:
                    raise SystemExit(f"{what}: {why}")
                out.append(f"| {what} | does not fit | {'' if 'seconds' in row else 'ran out of memory'} | | | | |")
                continue
            low, high = plan["interval_s"]
            rows.append((row, plan))
            times.append((plan["step_s"], row["seconds"]))
            bytes_.append((plan["peak_bytes"], row["allocated"]))
            inside += low <= row["seconds"] <= high
            widths.append(high / low)
            out.append(row_text(what, plan, row))
        for what, pairs in (("seconds", times), ("bytes", bytes_)):
            median, most, mean = errors(pairs)
            largest = max(abs(100 * (p / m - 1)) for p, m in pairs)
            print(f"{name} {half} {what}: {len(pairs)} rows, median {median:.1f} %, 95th {most:.1f} %, largest {largest:.1f} %, "
                  f"mean {mean:+.1f} %")
        all_times += times
        right, pairs, regrets = ranked(rows)
        print(f"  {right} of {pairs} pairs of one model in order: rank correlation {2 * right / pairs - 1:.2f}; the choice is "
              f"{100 * statistics.mean(regrets):.1f} % slower than the best, at most {100 * max(regrets):.1f} %")
        for what, counts in verdicts.items():
            print(f"  of steps that {what}: " + (", ".join(f"{n} {fit}" for fit, n in counts.items()) or "none"))
        print(f"  inside the interval {inside} of {len(times)}, high over low {statistics.median(widths):.2f}")
    median, most, mean = errors(all_times)
    print(f"all {half} seconds: {len(all_times)} rows, median {median:.1f} %, 95th {most:.1f} %, mean {mean:+.1f} %")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--half", choices=tuple(HEADINGS), help="one set; else all")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--microbenchmarks", help="tegula plan's: calls that were timed on the machine")
    parser.add_argument("--write", metavar="PAGE", help="puts the rows behind the page's first heading")
    args = parser.parse_args()
    out = []
    with tempfile.TemporaryDirectory() as folder:
        for half in [args.half] if args.half else HEADINGS:
            of_set(args, half, folder, out)
    if args.rows:
        print("\n".join(out))
    if args.write:
        page = pathlib.Path(args.write)
        page.write_text(page.read_text(encoding="utf-8").split("\n\n## ")[0] + "\n" + "\n".join(out) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
