#!/usr/bin/env python3
"""Eight texts at once, beside one after another, of a model 512 wide: what sharing each step of decoding saves.

    bench/batches.py [--data README.md] [--tegula build/release/tegula] [--threads 2] [--rounds 5] [--tokens 64]

A model of each setting is trained for a step (its weights hardly matter: all texts have as many tokens), then
continues eight prompts of uneven lengths, in batches of 8 and of 1 in turns. Time is reading the prompts and decoding,
without loading; medians of all rounds. The texts of both must be equal. Writes bench/results/batches.json.
"""
import argparse
import os
import statistics
import sys
import tempfile

import record

SETTINGS = [
    # name, flags of the model, dtype
    ("GPT-2, 6 layers", "--model gpt2 --n-layers 6 --n-heads 8 --d-model 512", "f32"),
    ("GPT-2, 6 layers", "--model gpt2 --n-layers 6 --n-heads 8 --d-model 512", "bf16"),
    ("Llama, 6 layers, 2 heads of keys", "--model llama --n-layers 6 --n-heads 8 --n-kv-heads 2 --d-model 512", "f32"),
    ("Llama, 6 layers, 2 heads of keys", "--model llama --n-layers 6 --n-heads 8 --n-kv-heads 2 --d-model 512", "bf16"),
]
PROMPTS = 8


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="README.md")
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    a = parser.parse_args()
    with open(a.data, encoding="utf-8") as f:
        text = f.read()
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        data, prompts = os.path.join(tmp, "text.txt"), os.path.join(tmp, "prompts.txt")
        with open(data, "w", encoding="utf-8") as f:
            f.write(text)
        words = text.replace("\n", " ")
        with open(prompts, "w", encoding="utf-8") as f:
            f.writelines(words[40 * i:40 * i + 8 + 9 * i] + "\n" for i in range(PROMPTS))
        for name, model, dtype in SETTINGS:
            out = os.path.join(tmp, model.split()[1])
            if not os.path.exists(out):
                record.last_json(a.tegula, "train", "--data", data, "--out", out, *model.split(), "--seqlen", 256,
                                 "--batch", 1, "--steps", 1, "--eval-every", 0, "--json")
            seconds, texts, steps = {1: [], PROMPTS: []}, {}, {}
            for _ in range(a.rounds):
                for batch, taken in seconds.items():
                    done = record.last_json(a.tegula, "generate", "--model", out, "--prompts", prompts, "--batch", batch,
                                            "--max-tokens", a.tokens, "--ignore-eos", "--dtype", dtype, "--threads",
                                            a.threads, "--json")
                    taken.append((done["prefill_ms"] + done["decode_ms"]) / 1e3)
                    texts.setdefault(batch, done["texts"])
                    steps[batch] = done["decode_steps"]
            if texts[1] != texts[PROMPTS]:
                sys.exit(f"{name}, {dtype}: the texts differ")
            one, all_ = statistics.median(seconds[1]), statistics.median(seconds[PROMPTS])
            rows.append({"model": name, "dtype": dtype, "decode_steps": steps[PROMPTS], "one after another, s": round(one, 3),
                         "eight at once, s": round(all_, 3), "ratio": round(all_ / one, 3)})
            print(rows[-1], flush=True)
    record.write(a, "batches", f"bench/batches.py --threads {a.threads} --rounds {a.rounds} --tokens {a.tokens}", rows,
                 ["tegula/kernels/cpu", "tegula/models", "tegula/serve"], a.threads)


if __name__ == "__main__":
    main()
