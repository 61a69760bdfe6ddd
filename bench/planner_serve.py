#!/usr/bin/env python3
"""What `tegula plan MODEL --serve --gpus this-cpu` says of a prompt and of a token, beside `tegula generate`.

Models are made by a training step each. What counts is CPU time with one thread, that of whole processes: of one that
makes many tokens less that of one that makes few, over the steps in between; and of one that reads long prompts less
that of one that reads short ones, over the prompts. So what a process does once does not count. Each stands between
two reference products; where their rates differ by more than 5 % from one another or from the first, it is repeated,
at most eight times. Nothing is fitted: the planner knows the peaks of this machine, what a product of 1024 reaches of
them, how fast the level of memory is read that holds the weights, and the least time of an op.

    bench/planner_serve.py --tegula build/release/tegula         # measures, writes bench/results/planner_serve.json
    bench/planner_serve.py --table bench/results/planner_serve.json [--check docs/planner.md]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import planner_cpu
import record

MODELS = [
    ("gpt2", 4, 4, 256, ""), ("gpt2", 6, 8, 512, ""), ("gpt2", 8, 12, 768, ""), ("gpt2", 8, 16, 1024, ""),
    ("llama", 4, 4, 256, ""), ("llama", 6, 8, 512, "--n-kv-heads 2"), ("llama", 8, 16, 1024, ""),
]
DTYPES, BATCHES = ("f32", "bf16"), (1, 8)
TEXTS, SHORT, LONG, FEW, MANY, SEQLEN = 8, 16, 272, 8, 72, 512


def cpu_seconds(command):
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(" ".join(map(str, command)))
    return usage.ru_utime + usage.ru_stime, json.loads(out.strip().splitlines()[-1])


def generate(args, model, dtype, prompts, batch, tokens):
    return cpu_seconds([args.tegula, "generate", "--model", model, "--prompts", prompts, "--batch", batch, "--max-tokens",
                        tokens, "--ignore-eos", "--mode", "fast", "--dtype", dtype, "--threads", 1, "--json"])


def plan(args, model, dtype, prompt, output, batch):
    command = [args.tegula, "plan", model, "--serve", "--gpus", "this-cpu", "--threads", 1, "--dtype", dtype, "--prompt",
               prompt, "--output", output, "--batch", batch, "--json"]
    return record.last_json(*command)["serve"]["layouts"][0]


def measure(args, first, model, dtype, prompts):
    """Seconds of a prompt of LONG tokens less one of SHORT, and of a step of decoding for each batch."""
    args.dtype = dtype
    for tries in range(1, planner_cpu.TRIES + 1):
        before = planner_cpu.quiet_reference(args, first)
        short_s, _ = generate(args, model, dtype, prompts[SHORT], 1, 1)
        long_s, _ = generate(args, model, dtype, prompts[LONG], 1, 1)
        tokens = {}
        for batch in BATCHES:
            few_s, few = generate(args, model, dtype, prompts[SHORT], batch, FEW)
            many_s, many = generate(args, model, dtype, prompts[SHORT], batch, MANY)
            tokens[batch] = (many_s - few_s) / (many["decode_steps"] - few["decode_steps"])
        after = planner_cpu.reference(args)
        drifted = planner_cpu.drifted(before, after, first)
        if not drifted:
            break
    return {"prefill": (long_s - short_s) / TEXTS, "tokens": tokens, "tries": tries, "drifted": drifted,
            "reference_gflops": [before, after]}


def rows_of(args, name, model, dtype, prompts, first):
    took = measure(args, first, model, dtype, prompts)
    more = {key: took[key] for key in ("tries", "drifted", "reference_gflops")}
    long = plan(args, model, dtype, LONG, 1, 1)["ttft_s"]
    short = plan(args, model, dtype, SHORT, 1, 1)["ttft_s"]
    yield {"model": name, "dtype": dtype, "what": f"{LONG} tokens of a prompt less {SHORT}", "batch": 1,
           "planned_ms": 1e3 * (long - short), "measured_ms": 1e3 * took["prefill"], **more}
    for batch in BATCHES:
        # Keys in the middle of what was measured: the planner takes prompt + output / 2.
        planned = plan(args, model, dtype, SHORT, FEW + MANY, batch)["tpot_s"]
        yield {"model": name, "dtype": dtype, "what": "a token of each text", "batch": batch,
               "planned_ms": 1e3 * planned, "measured_ms": 1e3 * took["tokens"][batch], **more}


def table(result):
    lines = ["| model | dtype | what | texts | planned, ms | measured, ms | error | |", "| --- " * 8 + "|"]
    errors = {}
    for r in result["rows"]:
        error = r["planned_ms"] / r["measured_ms"] - 1
        errors.setdefault(r["what"], []).append(abs(error))
        lines.append(f"| {r['model']} | {r['dtype']} | {r['what']} | {r['batch']} | {r['planned_ms']:.4g} | "
                     f"{r['measured_ms']:.4g} | {100 * error:+.1f} % | "
                     f"{'the reference drifted' if r['drifted'] else ''} |")
    medians = [f"{100 * sorted(e)[len(e) // 2]:.0f} % for {what}" for what, e in errors.items()]
    lines += ["", f"The median of |error| is {' and '.join(medians)}."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    record.add_flags(parser, threads=1)
    record.add_table_flags(parser)
    args = parser.parse_args()
    if args.table:
        return record.show(table(json.loads(pathlib.Path(args.table).read_text(encoding="utf-8"))), args.check)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        planner_cpu.letters(folder / "letters.txt")
        text = (folder / "letters.txt").read_text(encoding="utf-8")
        prompts = {}
        for length in (SHORT, LONG):
            prompts[length] = folder / f"{length}.txt"
            lines = [text[1000 * (1 + i):1000 * (1 + i) + length] for i in range(TEXTS)]
            prompts[length].write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        first = {}
        for dtype in DTYPES:
            args.dtype = dtype
            first[dtype] = planner_cpu.quiet_reference(args)
        for family, layers, heads, width, more in MODELS:
            name = f"{family}, {layers} layers of {width}" + (", 2 heads of keys" if more else "")
            model = folder / f"{family}-{layers}-{width}"
            record.last_json(args.tegula, "train", "--data", folder / "letters.txt", "--out", model, "--model", family,
                             "--n-layers", layers, "--n-heads", heads, "--d-model", width, *more.split(), "--seqlen",
                             SEQLEN, "--batch", 1, "--steps", 1, "--eval-every", 0, "--json")
            for dtype in DTYPES:
                for row in rows_of(args, name, model, dtype, prompts, first[dtype]):
                    rows.append(row)
                    print(f"{row['planned_ms'] / row['measured_ms'] - 1:+.3f} {row['planned_ms']:.3f} "
                          f"{row['measured_ms']:.3f} {row}", file=sys.stderr)
    record.write(args, "planner_serve", "bench/planner_serve.py", rows, record.STEP, 1)
    print(table({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
