#!/usr/bin/env python3
"""Whole models on one GPU, beside PyTorch and transformers in the same run: tokens a second.

  bench/compare_cuda.py --part train|more|decode [--only CASE,CASE] [--text FILE] [--tegula build/release/tegula]
                        [--json FILE] [--commit C] [--seconds 480] [--list]

  train   GPT-2 124M at three batches: eager PyTorch, torch.compile; its memory at batch 64 with a budget; the first
          start of its step; nanoGPT's GPU setting, seconds from the command to a validation loss of 1.5 (--text: Tiny
          Shakespeare), the median of three seeds, all of the validation split evaluated every 250 steps by both
  more    GPT-2 medium, Llama 3.2 1B's shape; GPT-2 against transformers as shipped (eager attention) and against naive
          attention under torch.compile
  decode  a token after 511 others, batch 1: SmolLM2 135M's, Llama 3.2 1B's and Llama 2 7B's shapes, against
          torch.compile with a static cache (mode reduce-overhead, that is CUDA graphs); GPT-2, 10 texts of 970 new
          tokens, with a KV cache and without (the sum of prefills of 12 lengths, by trapezoids), against transformers

Training: bf16 products over f32 weights, AdamW, gradients clipped at 1, tokens made up, no dropout, seqlen 1024.
Tegula's time is `tegula bench --device cuda` (one replayed graph a step, by the device's clock); the peers' is the
wall time of forward (autocast, flash attention unless said), backward, clipping and fused AdamW. Tegula runs before and
after its peers, and the slower counts. A part ends after --seconds and names the cases that it left out. Rows of other
parts in the file of --json (default: bench/results/models_h200.json or models_h100.json, by the card) stay.
"""

import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

GPT2 = {"layers": 12, "heads": 12, "width": 768}
MEDIUM = {"layers": 24, "heads": 16, "width": 1024}
SMOL = {"layers": 30, "heads": 9, "kv": 3, "width": 576, "ff": 1536, "vocabulary": 49152}
LLAMA_1B = {"layers": 16, "heads": 32, "kv": 8, "width": 2048, "ff": 8192, "vocabulary": 128256}
LLAMA_7B = {"layers": 32, "heads": 32, "kv": 32, "width": 4096, "ff": 11008, "vocabulary": 32000}
SEQLEN, CONTEXT = 1024, 512
PEAK_FLOPS = 989.4e12  # bf16, dense, of an H100's or H200's data sheet
MFU = ("PaLM, App. B: (6 parameters + 12 layers x width x context) FLOPs a token of training, a third of it of decoding, "
       "no recomputation, the table once, over 989.4 TFLOP/s")
NEW_TOKENS, TEXTS = 970, 10
NANO_FLAGS = ("--tokenizer chars --n-layers 6 --n-heads 6 --d-model 384 --seqlen 256 --batch 64 --dropout 0.2 --steps 5000 "
              "--warmup 100 --lr 0.001 --min-lr 0.0001 --beta2 0.99 --weight-decay 0.1 --eval-every 250 "
              "--dtype bf16 --mode fast --device cuda").split()


def parameters(shape):
    """That multiply: all matrices, the table once."""
    kv = shape.get("kv", shape["heads"]) * shape["width"] // shape["heads"]
    up = 2 if "kv" in shape else 1
    layer = 2 * shape["width"] ** 2 + 2 * shape["width"] * kv + (up + 1) * shape["width"] * shape.get("ff", 4 * shape["width"])
    return shape["layers"] * layer + shape.get("vocabulary", 50257) * shape["width"]


def mfu(shape, tokens_per_s, work):
    context = CONTEXT if work == "generate" else SEQLEN
    of_token = 6 * parameters(shape) + 12 * shape["layers"] * shape["width"] * context
    return round(of_token / (3 if work == "generate" else 1) * tokens_per_s / PEAK_FLOPS, 5)


def run_json(command, **env):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ, **env))
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-400:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def bench_command(tegula, work, shape, batch, *more):
    flags = {"n-layers": shape["layers"], "n-heads": shape["heads"], "d-model": shape["width"], "dtype": "bf16",
             "vocab-size": shape.get("vocabulary", 50257), "device": "cuda", "repeats": 5,
             "model": "llama" if "kv" in shape else "gpt2", "seqlen": CONTEXT if work == "generate" else SEQLEN}
    if "kv" in shape:
        flags |= {"n-kv-heads": shape["kv"], "d-ff": shape["ff"], "tie-embeddings": "true"}
    if work == "train":
        flags["batch"] = batch
    return [tegula, "bench", work, "--json", *(str(x) for k, v in flags.items() for x in (f"--{k}", v)), *more]


def beside(work, shape, batch, names):
    """A case of tokens a second, ours before and after the named peers."""

    def run(options):
        import models_torch as peers

        first = run_json(bench_command(options.tegula, work, shape, batch))
        rows = {name: peers.row_of(lambda name=name: peers.decode_peer(shape) if work == "generate"
                                   else peers.train_peer(name, shape, batch)) for name in names}
        again = run_json(bench_command(options.tegula, work, shape, batch))
        mine = min(first["tokens_per_s"], again["tokens_per_s"])
        best = max(rows, key=lambda name: rows[name]["tokens_per_s"])
        row = row_of(work, mine, rows[best]["tokens_per_s"], best, first["peak_bytes"], mfu(shape, mine, work))
        row["peer_peak_bytes"] = rows[best].get("peak_bytes")
        if "eager" in rows:
            row["eager"] = round(rows["eager"]["tokens_per_s"])
        return row

    return run


def row_of(work, mine, theirs, name, peak_bytes=None, share=None):
    return {"work": work, "tokens_per_s": round(mine), "peer": round(theirs), "peer_name": name,
            "ratio": round(mine / theirs, 3) if theirs else None, "peak_bytes": peak_bytes, "mfu": share}


def with_budget(options):
    """The least memory of batch 64: activations within 19 GiB."""
    done = run_json(bench_command(options.tegula, "train", GPT2, 64, "--memory", "19GiB"))
    return {"work": "other", "tokens_per_s": round(done["tokens_per_s"]), "peak_bytes": done["peak_bytes"],
            "mfu": mfu(GPT2, done["tokens_per_s"], "train")}


def first_start(options):
    """Seconds of the first step with an empty kernel cache, and with a full one."""
    command = bench_command(options.tegula, "train", GPT2, 8)
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (run_json(command, TEGULA_KERNEL_CACHE=cache)["first_ms"] / 1e3 for _ in range(2))
    return {"work": "other", "seconds": round(cold, 3), "cached_seconds": round(warm, 3)}


def seconds_to(command, target=1.5):
    """From the command to the line of stderr or stdout that says a validation loss of at most `target`."""
    begin = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    last, lines = None, []
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if "validation loss" in line:
                last = float(line.split("validation loss")[1].split()[0])
                if last <= target:
                    return time.time() - begin
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    raise RuntimeError(f"never at {target}, last {last}: {' '.join(lines[-3:])[-300:]}")


def nano(options):
    if not options.text:
        raise LookupError("needs --text FILE, Tiny Shakespeare")
    here = os.path.dirname(os.path.abspath(__file__))
    ours, theirs = [], []
    for seed in (1337, 1338, 1339):
        ours.append(seconds_to([options.tegula, "train", "--data", options.text, "--seed", str(seed), *NANO_FLAGS]))
        theirs.append(seconds_to([sys.executable, os.path.join(here, "models_torch.py"), "--text", options.text,
                                  "--seed", str(seed)]))
    mine, peer = statistics.median(ours), statistics.median(theirs)
    return {"work": "other", "seconds": round(mine, 2), "peer_seconds": round(peer, 2), "peer_name": "torch.compile",
            "ratio": round(peer / mine, 3), "all_seconds": [round(x, 2) for x in ours + theirs]}


def widen_vocabulary(folder, n):
    """The checkpoint in `folder` with n rows in its table, the ones that there are over and over: its tokenizer's
    ids stay what they were."""
    config_path, path = os.path.join(folder, "config.json"), os.path.join(folder, "model.safetensors")
    with open(config_path, encoding="utf-8") as f:
        config = json.load(f)
    config["vocab_size"] = n
    with open(config_path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    parts, at, name = [], 0, "transformer.wte.weight"
    for key, t in sorted(((k, t) for k, t in header.items() if k != "__metadata__"),
                         key=lambda kt: kt[1]["data_offsets"]):
        piece = data[slice(*t["data_offsets"])]
        if key == name:
            rows = t["shape"][0]
            row_bytes = len(piece) // rows
            piece = (piece * (n // rows + 1))[:n * row_bytes]
            t["shape"][0] = n
        t["data_offsets"] = [at, at + len(piece)]
        parts.append(piece)
        at += len(piece)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(parts))


def checkpoint(tegula, folder, shape, vocabulary, context, device):
    """A GPT-2 that has learned nothing, of bytes."""
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.write("".join(random.Random(1).choices("abcdefgh \n", k=40 * context)))
    out = os.path.join(folder, "model")
    command = [tegula, "train", "--data", text, "--tokenizer", "bytes", "--n-layers", shape["layers"], "--n-heads",
               shape["heads"], "--d-model", shape["width"], "--seqlen", context, "--batch", 1, "--steps", 1, "--warmup", 0,
               "--eval-every", 0, "--device", device, "--out", out]
    subprocess.run([str(x) for x in command], check=True, capture_output=True)
    wide = os.path.join(folder, "wide")  # without the manifest, which says what the files were
    os.mkdir(wide)
    for name in os.listdir(os.path.join(out, "latest")):
        if name.startswith(("config", "tokenizer", "model")):
            shutil.copy(os.path.join(out, "latest", name), wide)
    widen_vocabulary(wide, vocabulary)
    return wide


def generate_seconds(tegula, model, folder, prompt, new, device, dtype="bf16"):
    """Of TEXTS texts at once: (prefill, decoding)."""
    prompts = os.path.join(folder, "prompts.txt")
    with open(prompts, "w", encoding="utf-8") as f:
        for i in range(TEXTS):
            f.write("".join(random.Random(i).choices("abcdefgh ", k=prompt - 1)) + "a\n")
    done = run_json([tegula, "generate", "--model", model, "--prompts", prompts, "--batch", str(TEXTS), "--max-tokens",
                     str(new), "--temperature", "0", "--ignore-eos", "--dtype", dtype, "--device", device, "--json"])
    for each in done["each"]:
        if each["new_tokens"] != new or each["prompt_tokens"] != prompt:
            raise RuntimeError(f"{each} instead of {prompt} and {new} tokens")
    return done["prefill_ms"] / 1e3, done["decode_ms"] / 1e3


def trapezoids(points, begin, end):
    """The sum over begin, …, end - 1 of what goes through `points` (place, value) in straight lines."""
    total = 0
    for at in range(begin, end):
        (x0, y0), (x1, y1) = next(((a, b) for a, b in zip(points, points[1:]) if a[0] <= at <= b[0]),
                                  (points[-2], points[-1]))
        total += y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return total


def generate_both(tegula, folder, shape, vocabulary, context, new, device, dtype="bf16", n_lengths=12):
    """Seconds with and without a KV cache."""
    model = checkpoint(tegula, folder, shape, vocabulary, context, device)
    prompt = context - new
    generate_seconds(tegula, model, folder, prompt, 2, device, dtype)  # what is compiled is cached
    prefill, decode = generate_seconds(tegula, model, folder, prompt, new, device, dtype)
    lengths = sorted({prompt + i * (new - 1) // (n_lengths - 1) for i in range(n_lengths)})
    points = [(n, min(generate_seconds(tegula, model, folder, n, 1, device, dtype)[0] for _ in range(2)))
              for n in lengths]
    return model, prefill + decode, trapezoids(points, prompt, context)


def generate(options):
    import models_torch as peers

    with tempfile.TemporaryDirectory() as folder:
        model, cached, whole = generate_both(options.tegula, folder, GPT2, 50257, 1024, NEW_TOKENS, "cuda")
        prompt = 1024 - NEW_TOKENS
        theirs, theirs_whole = (peers.row_of(lambda c=c: peers.generate_peer(model, TEXTS, prompt, NEW_TOKENS, c))
                                for c in (True, False))
    tokens = TEXTS * NEW_TOKENS
    row = row_of("generate", tokens / cached, theirs["tokens_per_s"], "transformers", None,
                 mfu(GPT2, tokens / cached, "generate"))
    return row | {"seconds": round(cached, 3), "seconds_without_cache": round(whole, 3),
                  "cache_gains": round(whole / cached, 2), "peer_seconds": round(tokens / theirs["tokens_per_s"], 3),
                  "peer_seconds_without_cache": round(tokens / theirs_whole["tokens_per_s"], 3)}


CASES = {  # name: part, what makes its row
    "gpt2-b8": ("train", beside("train", GPT2, 8, ("eager", "torch.compile"))),
    "gpt2-b32": ("train", beside("train", GPT2, 32, ("eager", "torch.compile"))),
    "gpt2-b64": ("train", beside("train", GPT2, 64, ("torch.compile",))),
    "gpt2-b64-memory": ("train", with_budget),
    "first-start": ("train", first_start),
    "nanogpt": ("train", nano),
    "gpt2-medium-b8": ("more", beside("train", MEDIUM, 8, ("torch.compile",))),
    "llama-1b-b8": ("more", beside("train", LLAMA_1B, 8, ("torch.compile",))),
    "gpt2-b32-vs-hf": ("more", beside("train", GPT2, 32, ("transformers",))),
    "gpt2-medium-b8-vs-hf": ("more", beside("train", MEDIUM, 8, ("transformers",))),
    "gpt2-b32-vs-naive": ("more", beside("train", GPT2, 32, ("naive attention, torch.compile",))),
    "decode-135m": ("decode", beside("generate", SMOL, 1, ("torch.compile",))),
    "decode-1b": ("decode", beside("generate", LLAMA_1B, 1, ("torch.compile",))),
    "decode-7b": ("decode", beside("generate", LLAMA_7B, 1, ("torch.compile",))),
    "generate-gpt2-b10": ("decode", generate),
}


def write(path, machine, new_rows, commit, versions):
    """The form of bench/results; rows of the same case are replaced, others stay."""
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            rows = {row["case"]: row for row in json.load(f)["rows"]}
    rows |= {row["case"]: row for row in new_rows}
    ordered = sorted(rows.values(), key=lambda row: list(CASES).index(row["case"]) if row["case"] in CASES else 99)
    head = {"name": os.path.splitext(os.path.basename(path))[0], "machine": machine, "threads": 0, "versions": versions,
            "commit": commit, "measures": ["tegula/kernels/cuda", "tegula/passes", "tegula/models"],
            "command": "bench/compare_cuda.py --part train|more|decode", "date": datetime.date.today().isoformat(),
            "mfu": MFU}
    lines = ",\n".join("  " + json.dumps(row) for row in ordered)
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n')


def chosen(options):
    only = options.only.split(",") if options.only else list(CASES)
    for name in only:
        if name not in CASES:
            sys.exit(f"compare_cuda.py: no case {name}; there are {', '.join(CASES)}")
    return [name for name in CASES if name in only and options.part in (None, CASES[name][0])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--part", choices=("train", "more", "decode"))
    parser.add_argument("--only", default="")
    parser.add_argument("--text", default="", help="of nanoGPT's setting")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    options = parser.parse_args()
    cases = chosen(options)
    if options.list:
        print("\n".join(f"{CASES[name][0]:7} {name}" for name in cases))
        return
    import torch

    torch.set_float32_matmul_precision("high")
    commit = options.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                              check=False).stdout.strip()
    machine = torch.cuda.get_device_name()
    path = options.json or f"bench/results/models_{'h200' if 'H200' in machine else 'h100'}.json"
    begin, rows, left_out = time.time(), [], []
    for name in cases:
        if time.time() - begin > options.seconds:
            left_out.append(f"{name} (no time left)")
            continue
        try:
            rows.append({"case": name} | CASES[name][1](options) | {"commit": commit})
        except (RuntimeError, LookupError, subprocess.CalledProcessError) as error:
            left_out.append(f"{name} ({error})")
            continue
        print(json.dumps(rows[-1]), flush=True)
        write(path, machine, rows, commit, {"torch": torch.__version__})
    if left_out:
        sys.exit("left out: " + "; ".join(left_out))


if __name__ == "__main__":
    main()
