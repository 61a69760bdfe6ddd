"""The peers of bench/compare_cuda.py and bench/curves_cuda.py: GPT-2 and Llama in PyTorch, transformers' GPT-2.

  bench/models_torch.py --text FILE [--seed S] [--target 1.5]    nanoGPT's GPU setting under torch.compile: a line
                                                                 "step N validation loss X" for each evaluation
"""

import argparse
import gc
import math
import time

import torch
from torch import nn
from torch.nn import functional

SEQLEN, CONTEXT = 1024, 512


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
        self.positions = None if self.is_llama else nn.Embedding(shape.get("seqlen", SEQLEN), width)
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


def row_of(run):
    """What run() gives, seconds and tokens, as a row; its memory is given back."""
    torch.manual_seed(0)
    try:
        seconds, tokens = run()
        row = {"tokens_per_s": tokens / seconds, "peak_bytes": torch.cuda.max_memory_allocated()}
    except torch.cuda.OutOfMemoryError:
        row = {"tokens_per_s": 0, "error": "out of memory"}
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return row


def generate_peer(folder, batch, prompt, new, has_cache):
    """transformers' own generate() on a checkpoint, greedy."""
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16).cuda().eval()
    ids = torch.randint(0, 200, (batch, prompt), device="cuda")

    def run():
        with torch.no_grad():
            model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, use_cache=has_cache,
                           pad_token_id=0)

    return seconds_of(run, 1, 1), batch * new


# nanoGPT's config/train_shakespeare_char.py.
NANO = {"layers": 6, "heads": 6, "width": 384, "seqlen": 256}
NANO_BATCH, NANO_STEPS, NANO_WARMUP, NANO_EVERY, NANO_DROPOUT = 64, 5000, 100, 250, 0.2


def nano_split(text):
    """Ids of characters: the training and the validation split, as `tegula train --tokenizer chars` has them."""
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    ids = torch.tensor([number[c] for c in text])
    n = int(0.9 * len(ids))
    return ids[:n], ids[n:], len(alphabet)


class NanoLayer(Layer):
    def forward(self, x, turns, at):
        drop = functional.dropout
        q, k, v = (t.view(*x.shape[:2], -1, self.size).transpose(1, 2)
                   for t in self.qkv(self.norms[0](x)).chunk(3, 2))
        rate = NANO_DROPOUT if self.training else 0
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=rate)
        x = x + drop(self.out(o.transpose(1, 2).reshape(x.shape)), rate)
        y = functional.gelu(self.up(self.norms[1](x)), approximate="tanh")
        return x + drop(self.down(y), rate)


def learning_rate(step, steps, warmup, most, least):
    """Linear warm-up, then a cosine, as nanoGPT and `tegula train` have it; steps count from 0."""
    if step < warmup:
        return most * (step + 1) / (warmup + 1)
    share = (step - warmup) / max(steps - warmup, 1)
    return least + 0.5 * (1 + math.cos(math.pi * min(share, 1))) * (most - least)


def adamw(model, rate, decay, beta1=0.9, beta2=0.99, **more):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}],
                             lr=rate, betas=(beta1, beta2), eps=1e-8, **more)


def train_nano(options):
    with open(options.text, encoding="utf-8") as f:
        train, validation, vocabulary = nano_split(f.read())
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    model = Model(NANO | {"vocabulary": vocabulary})
    model.layers = nn.ModuleList([NanoLayer(NANO, flash_attention) for _ in range(NANO["layers"])])
    for name, parameter in model.layers.named_parameters():
        if parameter.dim() == 2:
            deep = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(parameter, 0, 0.02 / (math.sqrt(2 * NANO["layers"]) if deep else 1))
    model = model.cuda()
    run, optimizer, seqlen = torch.compile(model), adamw(model, 1e-3, 0.1, fused=True), NANO["seqlen"]

    def loss_of(split, places):
        x = torch.stack([split[i:i + seqlen] for i in places]).cuda(non_blocking=True)
        y = torch.stack([split[i + 1:i + 1 + seqlen] for i in places]).cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            return run(x, y)

    def evaluate():
        model.eval()
        rows = list(range(0, len(validation) - seqlen - 1, seqlen))
        with torch.no_grad():
            sums = [loss_of(validation, rows[i:i + NANO_BATCH]) * len(rows[i:i + NANO_BATCH])
                    for i in range(0, len(rows), NANO_BATCH)]
        model.train()
        return float(sum(sums)) / len(rows)

    for step in range(1, NANO_STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step - 1, NANO_STEPS, NANO_WARMUP, 1e-3, 1e-4)
        loss_of(train, torch.randint(len(train) - seqlen - 1, (NANO_BATCH,)).tolist()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % NANO_EVERY == 0:
            loss = evaluate()
            print(f"step {step}  validation loss {loss:.4f}", flush=True)
            if loss <= options.target:
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--target", type=float, default=1.5)
    train_nano(parser.parse_args())


if __name__ == "__main__":
    main()
