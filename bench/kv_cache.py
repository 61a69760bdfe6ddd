#!/usr/bin/env python3
"""What a KV cache saves, by the number of new tokens: `tegula generate` with and without --no-cache.

    bench/kv_cache.py [--tegula build/release/tegula] [--threads 2] [--rounds 3] [--new 64,128,256,512] [--device cpu]

A GPT-2 of 4 layers, 256 wide, trained for a step (its weights hardly matter), continues a prompt of 16 tokens, one text
and (of the two shortest lengths) ten at once, both ways in turns. Time is reading and decoding, without loading; medians of all rounds. The texts of
both must be equal. Writes bench/results/kv_cache.json.
"""
import argparse
import os
import statistics
import sys
import tempfile

import record

MODEL = "--model gpt2 --n-layers 4 --n-heads 4 --d-model 256 --seqlen 1024 --tokenizer bytes".split()
PROMPT = "a prompt, so long"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new", default="64,128,256,512")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    a = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        data, out, prompts = (os.path.join(tmp, name) for name in ("text.txt", "model", "prompts.txt"))
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(f"line {i} of {i * 7919 % 1000}\n" for i in range(1000))
        record.last_json(a.tegula, "train", "--data", data, "--out", out, *MODEL, "--batch", 1, "--steps", 1, "--eval-every", 0,
                         "--json")
        for texts in (1, 10):
            with open(prompts, "w", encoding="utf-8") as f:
                f.writelines(PROMPT[i % 3:][:16 - i % 2] + "\n" for i in range(texts))
            lengths = [int(x) for x in a.new.split(",")]
            for new in lengths if texts == 1 else lengths[:2]:
                seconds, made = {True: [], False: []}, {}
                for _ in range(a.rounds):
                    for caches, taken in seconds.items():
                        done = record.last_json(
                            a.tegula, "generate", "--model", out, "--prompts", prompts, "--batch", texts, "--max-tokens", new,
                            "--ignore-eos", "--threads", a.threads, "--device", a.device, "--json",
                            *([] if caches else ["--no-cache"]))
                        taken.append((done["prefill_ms"] + done["decode_ms"]) / 1e3)
                        made[caches] = done["texts"]
                if made[True] != made[False]:
                    sys.exit(f"{texts} texts of {new} tokens differ")
                cached, whole = (statistics.median(seconds[caches]) for caches in (True, False))
                rows.append({"texts": texts, "new tokens": new, "with a cache, s": round(cached, 3),
                             "without, s": round(whole, 3), "tokens/s with": round(texts * new / cached),
                             "without": round(texts * new / whole), "ratio": round(whole / cached, 2)})
                print(rows[-1], flush=True)
    record.write(a, "kv_cache", f"bench/kv_cache.py --threads {a.threads} --rounds {a.rounds} --new {a.new}"
                 + " --device cuda" * (a.device == "cuda"), rows, ["tegula/kernels/cpu", "tegula/serve"], a.threads)


if __name__ == "__main__":
    main()
