#!/usr/bin/env python3
"""Feed-forward layers in blocks of tokens, and products of few rows.

    bench/feed_forward.py [--threads 1] [--rounds 5] [--tegula build/release/tegula]

blockwise: a training step of one layer and a head of 1,000 words, whole and in blocks, in turn; the time is the fastest
step of all rounds, the arena is the plan's. few_rows: weights that lie as [K, N] or (along k) as [N, K], cold; the share is
of the rate of plain reads between the samples. Writes bench/results/blockwise.json and few_rows.json.
"""

import argparse
import statistics
import sys

import record

LAYER = "--n-layers 1 --vocab-size 1000 --batch 1 --bias".split()
MODELS = [("gpt2, d 768", "--n-heads 12 --d-model 768", 4096, ("off", "auto")),
          ("gpt2, d 768", "--n-heads 12 --d-model 768", 2048, ("off", "auto", "1024", "256")),
          ("llama, d 512", "--model llama --n-heads 8 --d-model 512", 2048, ("off", "auto"))]
SIZES = [("3072,768", (1, 2, 4, 8, 16)), ("4096,4096", (1, 4))]


def blockwise(a):
    rows = []
    for name, flags, tokens, blocks in MODELS:
        model = [*flags.split(), *LAYER, "--seqlen", tokens]
        fastest = {}
        for _ in range(a.rounds):
            for block in blocks:
                run = record.last_json(a.tegula, "bench", "train", *model, "--blockwise", block, "--threads", a.threads,
                                       "--repeats", 1, "--json")
                fastest[block] = min(fastest.get(block, run["ms_min"]), run["ms_min"])
        for block in blocks:
            plan = record.last_json(a.tegula, "plan", *model, "--blockwise", block, "--json")
            rows.append({"model": name, "tokens": tokens, "blockwise": block, "arena_bytes": plan["arena_bytes"],
                         "step_ms": round(fastest[block], 1), "time_ratio": round(fastest[block] / fastest["off"], 3)})
            print(rows[-1], file=sys.stderr)
    record.write(a, "blockwise", f"bench/feed_forward.py --threads {a.threads} --rounds {a.rounds}", rows, record.STEP,
                 a.threads)


def few_rows(a):
    rows = []
    for size, counts in SIZES:
        n, k = map(int, size.split(","))
        for along_k in (False, True):
            for m in counts[:3] if along_k else counts:
                row = {"m": m, "n": n, "k": k, "weights": "[N, K]" if along_k else "[K, N]"}
                kinds = [("f32", ["--dtype", "f32"]), ("bf16", ["--dtype", "bf16"]), ("f16", ["--dtype", "f16"])]
                kinds = [(name, flags + ["--along-k"]) for name, flags in kinds] if along_k else kinds + [
                    ("int8", ["--weights", "int8"]), ("int4", ["--weights", "int4"])]
                for name, flags in kinds:
                    shares = [record.last_json(a.tegula, "bench", "gemm", "--shape", f"{m},{n},{k}", "--cold", *flags,
                                               "--threads", a.threads, "--json")["share_of_reads"]
                              for _ in range(a.rounds)]
                    row[name] = round(statistics.median(shares), 2)
                rows.append(row)
                print(row, file=sys.stderr)
    record.write(a, "few_rows", f"bench/feed_forward.py --threads {a.threads} --rounds {a.rounds}", rows,
                 record.PRODUCTS, a.threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="blockwise or few_rows")
    args = parser.parse_args()
    if args.only != "few_rows":
        blockwise(args)
    if args.only != "blockwise":
        few_rows(args)


if __name__ == "__main__":
    main()
