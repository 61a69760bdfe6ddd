#!/usr/bin/env python3
"""Whole models on one GPU, beside PyTorch and transformers in the same run: tokens a second.

  bench/compare_cuda.py --part train|more|decode [--only CASE,CASE] [--text FILE] [--tegula build/release/tegula]
                        [--json FILE] [--commit C] [--seconds 470] [--list] [--small] [--device cuda|cpu]

  train   GPT-2 124M at three batches: eager PyTorch, torch.compile; its memory at batch 64 with a budget; the first
          start of its step; GPT-2 against transformers as shipped (eager attention, biases; ours has them, too)
  more    GPT-2 medium, Llama 3.2 1B's shape; GPT-2 medium against transformers; against naive attention under
          torch.compile
  decode  a token after 511 others, batch 1: SmolLM2 135M's, Llama 3.2 1B's and Llama 2 7B's shapes, against
          torch.compile with a static cache (mode reduce-overhead, that is CUDA graphs); GPT-2, 10 texts of 970 new
          tokens, with a KV cache and without (--no-cache), against transformers; nanoGPT's GPU setting
          (bench/nanogpt.py; --text: Tiny Shakespeare)

Training: bf16 products over f32 weights, AdamW, gradients clipped at 1, tokens made up, no dropout, seqlen 1024.
Tegula's time is `tegula bench --device cuda` (one replayed graph a step, by the device's clock); the peers' is the
wall time of forward (autocast, flash attention unless said), backward, clipping and fused AdamW. Tegula runs before and
after its peers, and the slower counts.

Each command is a process with a limit (--list shows that of each case), so that a peer that hangs costs only itself: its row then says
why it has no peer. A row is written as soon as there is something of it, and again as more comes; a part ends within
--seconds and names the cases that it left out. Rows of other parts in the file of --json (default:
bench/results/models_h200.json or models_h100.json, by the card) stay. --small runs everything with models of seconds, for a
machine without a GPU (--device cpu, or a driver made for tests).
"""

import argparse
import datetime
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import nanogpt
from limits import Failed, Limit

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = {"layers": 12, "heads": 12, "width": 768, "seqlen": 1024}
MEDIUM = {"layers": 24, "heads": 16, "width": 1024, "seqlen": 1024}
LLAMA_1B = {"layers": 16, "heads": 32, "kv": 8, "width": 2048, "ff": 8192, "vocabulary": 128256, "seqlen": 1024}
# Decoding: seqlen tokens with the one that is decoded.
SMOL = {"layers": 30, "heads": 9, "kv": 3, "width": 576, "ff": 1536, "vocabulary": 49152, "seqlen": 512}
LLAMA_1B_TOKEN = LLAMA_1B | {"seqlen": 512}
LLAMA_7B = {"layers": 32, "heads": 32, "kv": 32, "width": 4096, "ff": 11008, "vocabulary": 32000, "seqlen": 512}
SMALL = {"layers": 1, "heads": 2, "width": 32, "ff": 64, "vocabulary": 300, "seqlen": 64}
NEW_TOKENS, TEXTS = 970, 10
PEAK_FLOPS = 989.4e12  # bf16, dense, of an H100's or H200's data sheet
MFU = ("PaLM, App. B: (6 parameters + 12 layers x width x context) FLOPs a token of training, a third of it of decoding, "
       "no recomputation, the table once, over 989.4 TFLOP/s")


def parameters(shape):
    """That multiply: all matrices, the table once."""
    kv = shape.get("kv", shape["heads"]) * shape["width"] // shape["heads"]
    up = 2 if "kv" in shape else 1
    layer = 2 * shape["width"] ** 2 + 2 * shape["width"] * kv + (up + 1) * shape["width"] * shape.get("ff", 4 * shape["width"])
    return shape["layers"] * layer + shape.get("vocabulary", 50257) * shape["width"]


def mfu(shape, tokens_per_s, work):
    of_token = 6 * parameters(shape) + 12 * shape["layers"] * shape["width"] * shape["seqlen"]
    return round(of_token / (3 if work == "generate" else 1) * tokens_per_s / PEAK_FLOPS, 5)


def scaled(options, shape):
    """The shape, or with --small one of the same family."""
    if not options.small:
        return shape
    small = SMALL | ({"kv": 1} if "kv" in shape else {})
    return small if "ff" in shape else {k: v for k, v in small.items() if k != "ff"}


def bench_command(options, work, shape, batch, *more):
    flags = {"n-layers": shape["layers"], "n-heads": shape["heads"], "d-model": shape["width"], "dtype": "bf16",
             "vocab-size": shape.get("vocabulary", 50257), "device": options.device, "repeats": 5,
             "model": "llama" if "kv" in shape else "gpt2", "seqlen": shape["seqlen"]}
    if "kv" in shape:
        flags |= {"n-kv-heads": shape["kv"], "d-ff": shape["ff"], "tie-embeddings": "true"}
    if work == "train":
        flags["batch"] = batch
    return [options.tegula, "bench", work, "--json", *(str(x) for k, v in flags.items() for x in (f"--{k}", v)), *more]


def peer_row(options, limit, **call):
    """What models_torch.py measures; where it comes to nothing, why."""
    command = [sys.executable, os.path.join(options.peers, "models_torch.py"), json.dumps(call | {"device": options.device})]
    try:
        return limit.run_json(command)
    except Failed as error:
        return {"error": str(error)}


def row_of(work, shape, mine, peak_bytes, peers):
    """Beside the fastest of the peers {name: row} that came to an end."""
    done = {name: row["tokens_per_s"] for name, row in peers.items() if "error" not in row}
    best = max(done, key=done.get, default=None)
    row = {"work": work, "tokens_per_s": round(mine), "peer": round(done[best]) if done else None, "peer_name": best,
           "ratio": round(mine / done[best], 3) if done else None, "peak_bytes": peak_bytes,
           "mfu": mfu(shape, mine, work)}
    if done:
        row["peer_peak_bytes"] = peers[best].get("peak_bytes")
    failed = [f"{name}: {row['error']}" for name, row in peers.items() if "error" in row]
    if failed:
        row["no_peer"] = "; ".join(failed)
    if "eager" in done:
        row["eager"] = round(done["eager"])
    return row


def beside(work, shape, batch, names, *flags):
    """A case of tokens a second, ours before and after the named peers."""

    def run(options, limit):
        of, n = scaled(options, shape), min(batch, 2) if options.small else batch
        command = bench_command(options, work, of, n, *flags)
        first, peers = limit.run_json(command), {}
        mine = first["tokens_per_s"]
        yield row_of(work, of, mine, first.get("peak_bytes"), peers)
        more = {"name": "torch.compile", "shape": of} | ({"batch": n} if work == "train" else {})
        for name in names:
            # Room for the others, and for ours again.
            least = limit.left() / (len(names) - len(peers)) - (10 if limit.left() > 60 else 0)
            peers[name] = peer_row(options, limit.within(least), work=work, **more | {"name": name})
            yield row_of(work, of, mine, first.get("peak_bytes"), peers)
        mine = min(mine, limit.run_json(command)["tokens_per_s"])
        yield row_of(work, of, mine, first.get("peak_bytes"), peers)

    return run


def with_budget(options, limit):
    """Batch 64 in less than 16 GB: activations within 13 GiB, the rest computed again."""
    shape = scaled(options, GPT2)
    done = limit.run_json(bench_command(options, "train", shape, 2 if options.small else 64, "--memory", "13GiB"))
    yield {"work": "other", "tokens_per_s": round(done["tokens_per_s"]), "peak_bytes": done.get("peak_bytes"),
           "mfu": mfu(shape, done["tokens_per_s"], "train")}


def first_start(options, limit):
    """Seconds of the first step with an empty kernel cache, and with a full one."""
    command = bench_command(options, "train", scaled(options, GPT2), 2 if options.small else 8)
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (limit.run_json(command, TEGULA_KERNEL_CACHE=cache).get("first_ms", 0) / 1e3 for _ in range(2))
    yield {"work": "other", "seconds": round(cold, 3), "cached_seconds": round(warm, 3)}


def nano(options, limit):
    if not options.text:
        raise Failed("needs --text FILE, Tiny Shakespeare")
    race = nanogpt.Race(options.tegula, options.text, options.device, options.small, 99 if options.small else 1.5, limit,
                        options.peers)
    yield from race.rows((1337, 1338, 1339))


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


def checkpoint(options, limit, folder, shape):
    """A GPT-2 of the shape that has learned nothing, of bytes."""
    text, out, context = os.path.join(folder, "text.txt"), os.path.join(folder, "model"), shape["seqlen"]
    with open(text, "w", encoding="utf-8") as f:
        f.write("".join(random.Random(1).choices("abcdefgh \n", k=40 * context)))
    limit.run_json([options.tegula, "train", "--data", text, "--tokenizer", "bytes", "--n-layers", shape["layers"], "--n-heads",
                    shape["heads"], "--d-model", shape["width"], "--seqlen", context, "--batch", 1, "--steps", 1, "--warmup", 0,
                    "--eval-every", 0, "--device", options.device, "--out", out, "--json"])
    wide = os.path.join(folder, "wide")  # without the manifest, which says what the files were
    os.mkdir(wide)
    for name in os.listdir(os.path.join(out, "latest")):
        if name.startswith(("config", "tokenizer", "model")):
            shutil.copy(os.path.join(out, "latest", name), wide)
    widen_vocabulary(wide, shape.get("vocabulary", 50257))
    return wide


def generate_ours(options, limit, model, folder, prompt, new, *flags):
    """TEXTS texts at once: seconds of reading and decoding, and the memory they took."""
    prompts = os.path.join(folder, "prompts.txt")
    with open(prompts, "w", encoding="utf-8") as f:
        for i in range(TEXTS):
            f.write("".join(random.Random(i).choices("abcdefgh ", k=prompt - 1)) + "a\n")
    done = limit.run_json([options.tegula, "generate", "--model", model, "--prompts", prompts, "--batch", TEXTS,
                           "--max-tokens", new, "--temperature", "0", "--ignore-eos", "--dtype", "bf16", "--device",
                           options.device, "--json", *flags])
    for each in done["each"]:
        if each["new_tokens"] != new or each["prompt_tokens"] != prompt:
            raise Failed(f"{each} instead of {prompt} and {new} tokens")
    return (done["prefill_ms"] + done["decode_ms"]) / 1e3, done["peak_bytes"]


def generate(options, limit):
    """With and without a KV cache; what is compiled is cached by the first of two runs."""
    shape, new = scaled(options, GPT2), 40 if options.small else NEW_TOKENS
    prompt, tokens, row, peers = shape["seqlen"] - new, TEXTS * new, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        model = checkpoint(options, limit, folder, shape)
        call = {"work": "texts", "folder": model, "batch": TEXTS, "prompt": prompt, "new": new}
        seconds = {}
        for name, flags, has_cache in (("seconds", (), True), ("seconds_without_cache", ("--no-cache",), False)):
            for _ in range(2):
                seconds[name], peak = generate_ours(options, limit, model, folder, prompt, new, *flags)
            theirs = peer_row(options, limit, **call, has_cache=has_cache)
            if has_cache:
                peers = {"transformers": theirs}
                mean = shape | {"seqlen": shape["seqlen"] - new // 2}  # of what a token sees
                row = row_of("generate", mean, tokens / seconds[name], peak, peers)
            if "error" in theirs:
                row["no_peer_" + name] = theirs["error"]
            else:
                seconds["peer_" + name] = tokens / theirs["tokens_per_s"]
            row |= {key: round(x, 6) for key, x in seconds.items()}
            yield row
        yield row | {"cache_gains": round(seconds["seconds_without_cache"] / seconds["seconds"], 2)}


COMPILED = ("torch.compile",)
# Of the table in the docs.
COLUMNS = ("case", "tokens_per_s", "peer", "peer_name", "ratio", "mfu", "peak_bytes", "peer_peak_bytes", "seconds",
           "peer_seconds", "cached_seconds", "seconds_without_cache")
CASES = {  # name: part, seconds that it may take, what makes its row (again and again, as more is known)
    "gpt2-b8": ("train", 110, beside("train", GPT2, 8, ("eager", "torch.compile"))),
    "gpt2-b32": ("train", 120, beside("train", GPT2, 32, ("eager", "torch.compile"))),
    "gpt2-b64": ("train", 100, beside("train", GPT2, 64, COMPILED)),
    "gpt2-b64-memory": ("train", 40, with_budget),
    "first-start": ("train", 60, first_start),
    "gpt2-b32-vs-hf": ("train", 80, beside("train", GPT2, 32, ("transformers",), "--bias")),
    "gpt2-medium-b8": ("more", 130, beside("train", MEDIUM, 8, COMPILED)),
    "llama-1b-b8": ("more", 130, beside("train", LLAMA_1B, 8, COMPILED)),
    "gpt2-medium-b8-vs-hf": ("more", 80, beside("train", MEDIUM, 8, ("transformers",), "--bias")),
    "gpt2-b32-vs-naive": ("more", 130, beside("train", GPT2, 32, ("naive attention, torch.compile",))),
    "decode-135m": ("decode", 80, beside("generate", SMOL, 1, COMPILED)),
    "decode-1b": ("decode", 80, beside("generate", LLAMA_1B_TOKEN, 1, COMPILED)),
    "decode-7b": ("decode", 110, beside("generate", LLAMA_7B, 1, COMPILED)),
    "generate-gpt2-b10": ("decode", 240, generate),
    "nanogpt": ("decode", 240, nano),
}


def write(path, machine, new_rows, versions):
    """The form of bench/results; rows of the same case are replaced, others stay."""
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            rows = {row["case"]: row for row in json.load(f)["rows"]}
    rows |= {row["case"]: row for row in new_rows}
    ordered = sorted(rows.values(), key=lambda row: list(CASES).index(row["case"]) if row["case"] in CASES else 99)
    head = {"name": os.path.splitext(os.path.basename(path))[0], "machine": machine, "threads": 0, "versions": versions,
            "commit": new_rows[-1]["commit"], "measures": ["tegula/kernels/cuda", "tegula/passes", "tegula/models"],
            "command": "bench/compare_cuda.py --part train|more|decode", "date": datetime.date.today().isoformat(),
            "mfu": MFU, "columns": COLUMNS}
    lines = ",\n".join("  " + json.dumps(row) for row in ordered)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n')
    os.replace(path + ".new", path)  # whoever ends this loses no row


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
    parser.add_argument("--seconds", type=float, default=470)
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--small", action="store_true", help="models of seconds")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--peers", default=HERE, help="folder of what plays the peers")
    options = parser.parse_args()
    cases = chosen(options)
    if options.list:
        print("\n".join(f"{CASES[name][0]:7} {name:21} {CASES[name][1]} s" for name in cases))
        return
    part = Limit(options.seconds)
    facts = part.run_json([sys.executable, os.path.join(options.peers, "models_torch.py"), '{"work": "machine"}'])
    commit = options.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                              check=False).stdout.strip()
    path = options.json or f"bench/results/models_{'h200' if 'H200' in facts['machine'] else 'h100'}.json"
    if options.small and not options.json:
        sys.exit("compare_cuda.py: --small measures nothing: say with --json where its rows go")
    left_out = []
    for name in cases:
        _, most, rows = CASES[name]
        row = None
        try:
            for row in rows(options, part.within(most)):
                row = {"case": name} | row | {"commit": commit}
                write(path, facts["machine"], [row], facts["versions"])
        except Exception as error:  # whatever it is, it costs no other row
            left_out.append(f"{name} ({'the rest of it: ' if row else ''}{type(error).__name__}: {error})")
        if row:
            print(json.dumps(row), flush=True)
    if left_out:
        sys.exit("left out: " + "; ".join(left_out))


if __name__ == "__main__":
    main()
