#!/usr/bin/env python3
"""A GGUF model beside ik_llama.cpp, in one run: reading a prompt, and decoding behind texts of some length.

    bench/gguf_peers.py --model FILE.gguf [--name gguf_peers] [--depths 0,2000,8000] [--data README.md]
                        [--tegula build/release/tegula] [--threads 2] [--rounds 5]

The peer is PyPI's ik-llama-cpp-python, which must be installed for this Python. Both keep keys and values in f16, and
get the ids that `tegula encode` gives for the same text, in turns, a process each; what is timed is the calls that
compute (its llama_decode, our steps), without loading. Medians of all rounds. Writes bench/results/NAME.json.
A model of a billion weights is made by bench/gguf_random.py.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import record

PREFILL = 512
DECODED = 64


def peer(model, ids, decoded, threads):
    """What ik_llama.cpp takes for the prompt and for each token behind it, in ms."""
    from ik_llama_cpp import _ctypes_api as C
    from ik_llama_cpp._internals import IkContext, IkModel, make_batch_range, make_batch_single
    m = IkModel(model)
    context = IkContext(m, n_ctx=max(1024, len(ids) + decoded + 64), n_threads=threads)
    step = context._n_ubatch

    def read():
        start = time.perf_counter()
        for i in range(0, len(ids), step):
            batch = make_batch_range(ids[i:i + step], pos_start=i, logits_last=i + step >= len(ids))
            if context.decode(batch):
                sys.exit("llama_decode failed")
            C.llama_batch_free(batch)
        return time.perf_counter() - start
    read()  # the first call makes its graphs and touches its memory
    context.kv_cache_clear()
    prefill = read()
    start = time.perf_counter()
    for i in range(decoded):
        batch = make_batch_single(ids[i % len(ids)], len(ids) + i)
        if context.decode(batch):
            sys.exit("llama_decode failed")
        C.llama_batch_free(batch)
    took = time.perf_counter() - start
    return {"prefill_ms": prefill * 1e3, "token_ms": took * 1e3 / decoded}


def ours(a, prompt, n):
    done = record.last_json(a.tegula, "generate", "--model", a.model, "--prompts", prompt, "--max-tokens", n + 1,
                            "--temperature", 0, "--ignore-eos", "--threads", a.threads, "--cache-dtype", "f16", "--json")
    return {"prefill_ms": done["prefill_ms"], "token_ms": done["decode_ms"] / max(1, done["decode_steps"])}


def theirs(a, ids, n):
    done = subprocess.run([sys.executable, __file__, "--peer", "--model", a.model, "--threads", str(a.threads), "--rounds",
                           str(n)], input=json.dumps(ids), text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stderr[-2000:]}\ngguf_peers: the peer failed; is ik-llama-cpp-python installed here?")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", default="README.md")
    parser.add_argument("--name", default="gguf_peers")
    parser.add_argument("--depths", default="0,2000,8000", help="tokens before those that are decoded")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="store_true", help="the peer's side: ids from standard input")
    record.add_flags(parser)
    a = parser.parse_args()
    if a.peer:
        print(json.dumps(peer(a.model, json.load(sys.stdin), a.rounds, a.threads)))
        return
    with open(a.data, encoding="utf-8") as f:
        text = " ".join(f.read().split())
    text *= 1 + 60000 // len(text)
    rows = []
    works = [(f"prefill {PREFILL}", PREFILL, 1)]
    works += [(f"decode at {d}", max(int(d), 8), DECODED) for d in a.depths.split(",")]
    with tempfile.TemporaryDirectory() as tmp:
        for name, length, n in works:
            prompt = os.path.join(tmp, "prompt.txt")
            # As many words as make the length, by halves.
            low, high = 0, len(text)
            while low < high:
                middle = (low + high + 1) // 2
                with open(prompt, "w", encoding="utf-8") as f:
                    f.write(text[:middle])
                ids = record.last_json(a.tegula, "encode", "--model", a.model, "--text", prompt)[0]
                low, high = (middle, high) if len(ids) <= length else (low, middle - 1)
            with open(prompt, "w", encoding="utf-8") as f:
                f.write(text[:low])
            ids = record.last_json(a.tegula, "encode", "--model", a.model, "--text", prompt)[0]
            key = "prefill_ms" if n == 1 else "token_ms"
            mine, other = [], []
            for _ in range(a.rounds):
                mine.append(ours(a, prompt, n)[key])
                other.append(theirs(a, ids, n)[key])
            row = {"work": name, "tokens": len(ids), "tegula_ms": statistics.median(mine),
                   "ik_ms": statistics.median(other), "tegula_all_ms": mine, "ik_all_ms": other}
            row["ratio"] = row["ik_ms"] / row["tegula_ms"]
            print(f"{name}: {len(ids)} tokens, tegula {row['tegula_ms']:.2f} ms, ik {row['ik_ms']:.2f} ms, "
                  f"{row['ratio']:.2f} x", flush=True)
            rows.append(row)
    command = f"bench/gguf_peers.py --model FILE.gguf --name {a.name} --depths {a.depths}"
    record.write(a, a.name, command, rows, record.KERNELS, a.threads, model=os.path.basename(a.model),
                 columns=["work", "tokens", "tegula_ms", "ik_ms", "ratio"])


if __name__ == "__main__":
    main()
