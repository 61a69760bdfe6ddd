#!/usr/bin/env python3
"""nanoGPT's CPU setting, Tegula beside PyTorch, in one run.

    bench/nanogpt_cpu.py --data TEXT [--tegula build/release/tegula] [--threads 2] [--rounds 5]

Step time: short training runs of both alternate; each side's figure is the median over rounds of its median step.
Loss: one full run of Tegula (2000 steps), loss over the whole validation split. PyTorch's model below is the same
architecture, initialisation and optimizer, eager, with fused AdamW and its own attention.
Needs torch (the venv of script/oracle has it). Writes bench/results/nanogpt_cpu.json.
"""
import argparse
import json
import math
import statistics
import sys
import time

import record
import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, SEQLEN, BATCH = 4, 4, 128, 64, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm2 = nn.LayerNorm(WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, HEADS, d // HEADS).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, WIDTH)
        self.positions = nn.Embedding(SEQLEN, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * LAYERS) if deep else 1))

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.norm(h), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def torch_round(state, steps):
    """Median ms of a training step."""
    model, optimizer, data = state
    times = []
    for _ in range(steps):
        at = torch.randint(len(data) - SEQLEN - 1, (BATCH,))
        x = torch.stack([data[i : i + SEQLEN] for i in at])
        y = torch.stack([data[i + 1 : i + 1 + SEQLEN] for i in at])
        start = time.perf_counter()
        loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def flags(args, steps):
    return [args.tegula, "train", "--data", args.data, "--tokenizer", "chars", "--model", "gpt2", "--n-layers", "4",
            "--n-heads", "4", "--d-model", "128", "--seqlen", "64", "--batch", "12", "--steps", str(steps), "--lr", "1e-3",
            "--min-lr", "1e-4", "--warmup", "100", "--beta2", "0.99", "--weight-decay", "0.1", "--grad-clip", "1",
            "--dropout", "0", "--eval-every", "0", "--threads", str(args.threads), "--json"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--skip-loss", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    text = open(args.data, encoding="utf-8").read()
    alphabet = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.tensor([alphabet[c] for c in text[: len(text) * 9 // 10]])
    model = Model(len(alphabet))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    state = (model, torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True), data)
    torch_round(state, 20)
    ours, theirs = [], []
    for _ in range(args.rounds):
        theirs.append(torch_round(state, args.steps))
        ours.append(record.last_json(*flags(args, args.steps))["step_ms"])
    row = {"torch_step_ms": round(statistics.median(theirs), 3), "tegula_step_ms": round(statistics.median(ours), 3)}
    row["ratio"] = round(row["torch_step_ms"] / row["tegula_step_ms"], 3)
    if not args.skip_loss:
        full = record.last_json(*flags(args, 2000))
        row.update({k: full[k] for k in ("val_loss", "train_loss", "params", "flops_per_step_planned",
                                         "flops_per_step_counted", "peak_bytes_planned", "peak_bytes_measured")})
    record.write(args, "nanogpt_cpu", "bench/nanogpt_cpu.py --data TEXT", [row],
                 record.STEP, args.threads, {"torch": torch.__version__})
    print(json.dumps(row))


if __name__ == "__main__":
    sys.exit(main())
