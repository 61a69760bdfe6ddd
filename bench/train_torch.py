#!/usr/bin/env python3
"""Training steps and greedy decoding, Tegula beside PyTorch, interleaved in one run.

    bench/train_torch.py [--threads 2] [--rounds 2] [--only NAME] [--by-op] [--no-compile] [--tegula BINARY]

PyTorch's side is GPT-2 without biases, its own attention, gradient clipping, fused AdamW, on tokens made up; bf16 is
autocast. LSTM models are `nn.LSTM`'s. It takes its turns eager and by torch.compile (loss and gradients; the optimizer is one kernel as it is):
`compiled_ms` is its step, and `compile_s` apart what the first two steps took longer than that, from an empty cache.
`ratio` is to the eager step, `ratio_compiled` to the compiled one. A side's time is the median over rounds of its median
step. Decoding: one token at the end of the context, weights and cache in bf16, Tegula's cold (models in turn, 1 GiB of
them), PyTorch's weights as they come, which more than fill the caches; `share` is the least bytes over time, of plain
reads in the same run. Needs torch. Writes bench/results/train_torch.json.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import record
import torch
import torch.nn as nn
import torch.nn.functional as F
from steps import RECURRENT, SETTINGS, tegula_step


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, cache=None):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, d // self.heads).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).split(d, 2))
        if cache is not None:  # [2, b, heads, context, width of a head], full but for its end
            cache[0][:, :, -s:], cache[1][:, :, -s:] = k, v
            k, v = cache
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers, heads, width, seqlen, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(seqlen, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y=None, caches=None):
        at = torch.arange(x.shape[1]) if caches is None else torch.tensor([caches[0].shape[3] - 1])
        h = self.tokens(x) + self.positions(at)
        for i, block in enumerate(self.blocks):
            h = block(h, None if caches is None else caches[i])
        logits = F.linear(self.norm(h), self.tokens.weight)
        return logits if y is None else F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


class Recurrent(nn.Module):
    """Tegula's LSTM model: embedding, layers, tied head. PyTorch's layers have two biases, of which one would do."""

    def __init__(self, layers, width, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, x, y):
        logits = F.linear(self.layers(self.tokens(x))[0], self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def training(setting, is_compiled=False):
    """A function that makes one step."""
    _, layers, heads, width, seqlen, batch, vocab, dtype = setting
    model = Recurrent(layers, width, vocab) if setting in RECURRENT else Model(layers, heads, width, seqlen, vocab)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    x, y = (torch.randint(vocab, (batch, seqlen)) for _ in range(2))
    loss_of = torch.compile(model, dynamic=False) if is_compiled else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = loss_of(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def decoding(setting):
    """A function that decodes one token after a full context."""
    _, layers, heads, width, seqlen, _, vocab, _ = setting
    model = Model(layers, heads, width, seqlen, vocab).to(torch.bfloat16).eval()
    caches = [torch.rand(2, 1, heads, seqlen, width // heads).to(torch.bfloat16) for _ in range(layers)]
    x = torch.zeros(1, 1, dtype=torch.long)

    @torch.no_grad()
    def step():
        return model(x, caches=caches).argmax()
    return step


def torch_ms(step, seconds):
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def compiled(setting):
    """The step, and the seconds of its first two runs, in which everything is compiled."""
    step = training(setting, is_compiled=True)
    start = time.perf_counter()
    step()
    step()
    return step, time.perf_counter() - start


def measure(args, setting):
    is_decoding = setting[-1] == "decode"
    step = (decoding if is_decoding else training)(setting)
    step()
    fast, first_s = compiled(setting) if args.compile and not is_decoding else (None, 0)
    theirs, theirs_compiled, ours = [], [], []
    for i in range(args.rounds):
        theirs.append(torch_ms(step, args.seconds))
        if fast:
            theirs_compiled.append(torch_ms(fast, args.seconds))
        by_op = ["--by-op"] if args.by_op and i + 1 == args.rounds else []
        ours.append(tegula_step(args, setting, "--mode", args.mode, *by_op))
    torch_median = statistics.median(theirs)
    ms = statistics.median(r["ms_median"] for r in ours)
    tokens = 1 if setting[-1] == "decode" else setting[4] * setting[5]
    row = {"work": setting[0], "torch_ms": round(torch_median, 2), "tegula_ms": round(ms, 2),
           "ratio": round(torch_median / ms, 3), "torch_tokens_per_s": round(1e3 * tokens / torch_median, 1),
           "tegula_tokens_per_s": round(1e3 * tokens / ms, 1)}
    if fast:
        fast_ms = statistics.median(theirs_compiled)
        row.update({"compiled_ms": round(fast_ms, 2), "ratio_compiled": round(fast_ms / ms, 3),
                    "compile_s": round(first_s - 2 * fast_ms / 1e3, 1)})
    if is_decoding:
        row["share_of_reads"] = round(statistics.median(r["share_of_reads"] for r in ours), 3)
    else:
        row["share_of_peak"] = round(statistics.median(r["share_of_peak"] for r in ours), 3)
    return row, ours[-1].get("ops")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="of Tegula's samples in a round")
    parser.add_argument("--seconds", type=float, default=2, help="of PyTorch's samples in a round, two at least")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--mode", default="exact", help="Tegula's sums: exact or fast")
    parser.add_argument("--by-op", action="store_true", help="keep what each kernel takes, too")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True,
                        help="time torch.compile's step, too (needs a C++ compiler)")
    parser.add_argument("--name", default="train_torch", help="of the result")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    cache = tempfile.TemporaryDirectory()  # what an earlier run has compiled is not found
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name
    torch.manual_seed(1337)
    flags = "".join(f" --{k} {v}" for k, v in (("only", args.only), ("mode", args.mode), ("name", args.name))
                    if v != parser.get_default(k))
    command = f"bench/train_torch.py --threads {args.threads} --rounds {args.rounds} --repeats {args.repeats}{flags}"
    rows, ops = [], {}
    for setting in SETTINGS + RECURRENT:
        if args.only not in setting[0]:
            continue
        row, by_op = measure(args, setting)
        rows.append(row)
        if by_op:
            ops[setting[0]] = by_op
        print(json.dumps(row), flush=True)
        record.write(args, args.name, command, rows, record.STEP, args.threads,
                     {"torch": torch.__version__}, **({"ops": ops} if ops else {}))


if __name__ == "__main__":
    sys.exit(main())
