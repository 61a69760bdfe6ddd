#!/usr/bin/env python3
"""Whole models on one GPU, beside PyTorch and transformers in the same run: tokens a second.

  bench/models_cuda.py [--part train|more|decode] [--only CASE,CASE] [--tegula build/release/tegula] [--json FILE]
                       [--commit C]

  train   GPT-2 124M at three batches: eager PyTorch, torch.compile
  more    GPT-2 medium, Llama 3.2 1B's shape; GPT-2 against transformers as shipped (eager attention) and against naive
          attention under torch.compile
  decode  a token after 511 others, batch 1: SmolLM2 135M's, Llama 3.2 1B's and Llama 2 7B's shapes, against
          torch.compile with a static cache (mode reduce-overhead, that is CUDA graphs)

Training: bf16 products over f32 weights, AdamW, gradients clipped at 1, tokens made up, no dropout, seqlen 1024.
Tegula's time is `tegula bench --device cuda` (one replayed graph a step, by the device's clock); the peers' is the
wall time of forward (autocast, flash attention unless said), backward, clipping and fused AdamW. Tegula runs before and
after its peers, and the slower counts.
"""

import argparse
import datetime
import gc
import json
import subprocess
import time

import torch
from torch import nn
from torch.nn import functional

GPT2 = {"layers": 12, "heads": 12, "width": 768}
MEDIUM = {"layers": 24, "heads": 16, "width": 1024}
SMOL = {"layers": 30, "heads": 9, "kv": 3, "width": 576, "ff": 1536, "vocabulary": 49152}
LLAMA_1B = {"layers": 16, "heads": 32, "kv": 8, "width": 2048, "ff": 8192, "vocabulary": 128256}
LLAMA_7B = {"layers": 32, "heads": 32, "kv": 32, "width": 4096, "ff": 11008, "vocabulary": 32000}
SEQLEN, CONTEXT = 1024, 512

# case: part, shape, batch, peers
CASES = {
    "gpt2-b8": ("train", GPT2, 8, ("eager", "torch.compile")),
    "gpt2-b32": ("train", GPT2, 32, ("eager", "torch.compile")),
    "gpt2-b64": ("train", GPT2, 64, ("torch.compile",)),
    "gpt2-medium-b8": ("more", MEDIUM, 8, ("torch.compile",)),
    "llama-1b-b8": ("more", LLAMA_1B, 8, ("torch.compile",)),
    "gpt2-b32-vs-hf": ("more", GPT2, 32, ("transformers",)),
    "gpt2-medium-b8-vs-hf": ("more", MEDIUM, 8, ("transformers",)),
    "gpt2-b32-vs-naive": ("more", GPT2, 32, ("naive attention, torch.compile",)),
    "decode-135m": ("decode", SMOL, 1, ("torch.compile",)),
    "decode-1b": ("decode", LLAMA_1B, 1, ("torch.compile",)),
    "decode-7b": ("decode", LLAMA_7B, 1, ("torch.compile",)),
}


def ours(tegula, case):
    part, shape, batch, _ = CASES[case]
    flags = {"n-layers": shape["layers"], "n-heads": shape["heads"], "d-model": shape["width"], "dtype": "bf16",
             "vocab-size": shape.get("vocabulary", 50257), "device": "cuda", "repeats": 5,
             "model": "llama" if "kv" in shape else "gpt2", "seqlen": CONTEXT if part == "decode" else SEQLEN}
    if "kv" in shape:
        flags |= {"n-kv-heads": shape["kv"], "d-ff": shape["ff"], "tie-embeddings": "true"}
    if part != "decode":
        flags["batch"] = batch
    command = [tegula, "bench", "generate" if part == "decode" else "train", "--json"]
    for name, value in flags.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout.strip().splitlines()[-1])


def naive_attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def flash_attention(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def turned(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Layer(nn.Module):
    """Of GPT-2 without biases, or of Llama where the shape has key heads."""

    def __init__(self, shape, attend):
        super().__init__()
        self.heads, self.attend = shape["heads"], attend
        self.kv = shape.get("kv", shape["heads"])
        width, self.is_llama = shape["width"], "kv" in shape
        self.size = width // self.heads
        norm = nn.RMSNorm if self.is_llama else lambda d: nn.LayerNorm(d, bias=False)
        self.norms = nn.ModuleList([norm(width), norm(width)])
        ff = shape.get("ff", 4 * width)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, (2 if self.is_llama else 1) * ff, bias=False)
        self.down = nn.Linear(ff, width, bias=False)
        self.cache = None

    def forward(self, x, turns, at):
        parts = self.qkv(self.norms[0](x)).split([n * self.size for n in (self.heads, self.kv, self.kv)], 2)
        q, k, v = (p.view(*x.shape[:2], -1, self.size).transpose(1, 2) for p in parts)
        if turns is not None:
            q, k = (turned(t, *turns).to(v.dtype) for t in (q, k))
        if self.cache is None:
            attended = self.attend(q, k, v)
        else:
            for kept, fresh in zip(self.cache, (k, v)):
                kept.index_copy_(2, at, fresh)
            seen = (torch.arange(CONTEXT, device=x.device) <= at)[None, None, None]
            attended = functional.scaled_dot_product_attention(q, *self.cache, attn_mask=seen,
                                                               enable_gqa=self.heads != self.kv)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        y = self.up(self.norms[1](x))
        if self.is_llama:
            gate, y = y.chunk(2, -1)
            return x + self.down(functional.silu(gate) * y)
        return x + self.down(functional.gelu(y, approximate="tanh"))


class Model(nn.Module):
    def __init__(self, shape, attend=flash_attention):
        super().__init__()
        width, self.is_llama = shape["width"], "kv" in shape
        vocabulary = shape.get("vocabulary", 50257)
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if self.is_llama else nn.Embedding(SEQLEN, width)
        self.layers = nn.ModuleList([Layer(shape, attend) for _ in range(shape["layers"])])
        self.norm = nn.RMSNorm(width) if self.is_llama else nn.LayerNorm(width, bias=False)
        rates = 10000 ** (-torch.arange(0, self.layers[0].size, 2) / self.layers[0].size)
        self.register_buffer("rates", rates)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0, 0.02)

    def hidden(self, tokens, at):
        x, turns = self.tokens(tokens), None
        if self.is_llama:
            angles = at[:, None] * self.rates.float()
            turns = (angles.cos(), angles.sin())
        else:
            x = x + self.positions(at)
        for layer in self.layers:
            x = layer(x, turns, at)
        return functional.linear(self.norm(x), self.tokens.weight)

    def forward(self, tokens, targets):
        logits = self.hidden(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def transformers_gpt2(shape):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=shape["layers"], n_head=shape["heads"], n_embd=shape["width"], resid_pdrop=0,
                        embd_pdrop=0, attn_pdrop=0)
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config).cuda().train()
    return lambda tokens, targets: model(tokens, labels=tokens).loss, model


def train_peer(name, shape, batch):
    if name == "transformers":
        run, model = transformers_gpt2(shape)
    else:
        model = Model(shape, naive_attention if name.startswith("naive") else flash_attention).cuda()
        run = torch.compile(model) if "compile" in name else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    vocabulary = shape.get("vocabulary", 50257)
    tokens, targets = (torch.randint(0, vocabulary, (batch, SEQLEN), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return seconds_of(step, 4, max(5, 160 // batch)), batch * SEQLEN


def decode_peer(shape):
    model = Model(shape).cuda().bfloat16().eval()
    for layer in model.layers:
        layer.cache = [torch.zeros(1, layer.kv, CONTEXT, layer.size, device="cuda", dtype=torch.bfloat16)
                       for _ in range(2)]
    token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
    at = torch.full((1,), CONTEXT - 1, device="cuda")
    hidden = torch.compile(model.hidden, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        return seconds_of(lambda: hidden(token, at), 8, 100), 1


def seconds_of(step, n_before, n):
    for _ in range(n_before):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin = time.time()
    for _ in range(n):
        step()
    torch.cuda.synchronize()
    return (time.time() - begin) / n


def peer(case, name):
    """Its row, and its memory given back."""
    part, shape, batch, _ = CASES[case]
    torch.manual_seed(0)
    try:
        seconds, tokens = decode_peer(shape) if part == "decode" else train_peer(name, shape, batch)
        row = {"tokens_per_s": tokens / seconds, "peak_bytes": torch.cuda.max_memory_allocated()}
    except torch.cuda.OutOfMemoryError:
        row = {"tokens_per_s": 0, "error": "out of memory"}
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return row


def write(options, machine, rows):
    """The form of bench/results."""
    head = {"name": "models_h200" if "H200" in machine else "models_h100", "machine": machine, "threads": 0,
            "versions": {"torch": torch.__version__}, "commit": options.commit,
            "measures": ["tegula/kernels/cuda", "tegula/passes", "tegula/models"], "command": "bench/models_cuda.py",
            "date": datetime.date.today().isoformat()}
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    with open(options.json, "w", encoding="utf-8") as f:
        f.write(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--part", choices=("train", "more", "decode"))
    parser.add_argument("--only", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    rows = []
    for case, (part, _, _, names) in CASES.items():
        if (options.part and part != options.part) or (options.only and case not in options.only.split(",")):
            continue
        first = ours(options.tegula, case)
        peers = {name: peer(case, name) for name in names}
        again = ours(options.tegula, case)
        mine = min(first["tokens_per_s"], again["tokens_per_s"])
        best = max(peers, key=lambda name: peers[name]["tokens_per_s"])
        theirs = peers[best]["tokens_per_s"]
        row = {"case": case, "work": "generate" if part == "decode" else "train", "tokens_per_s": round(mine),
               "peak_bytes": first["peak_bytes"], "peer": round(theirs), "peer_name": best,
               "peer_peak_bytes": peers[best].get("peak_bytes"), "ratio": round(mine / theirs, 2) if theirs else None}
        if "eager" in peers:
            row["eager"] = round(peers["eager"]["tokens_per_s"])
        rows.append(row)
        machine = first["device"]
        print(json.dumps(rows[-1]), flush=True)
        if options.json:
            write(options, machine, rows)


if __name__ == "__main__":
    main()
