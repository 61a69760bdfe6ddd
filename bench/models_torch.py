"""The peers of bench/compare_cuda.py, bench/nanogpt.py and bench/curves_cuda.py: GPT-2 and Llama in PyTorch,
transformers' GPT-2.

  bench/models_torch.py JSON    measures what JSON says in a process of its own (so that a limit can end it, and its
                                memory is gone afterwards) and prints a row of JSON:
    {"work": "machine"}                                                      {"machine", "versions"}
    {"work": "train", "name": "eager" | "torch.compile" | "naive attention, torch.compile" | "transformers",
     "shape": {"layers", "heads", "width", "seqlen", …}, "batch": 8, "device": "cuda"}
    {"work": "generate", "shape", "device"}                                  a token at the end of seqlen
    {"work": "texts", "folder": DIR, "batch": 10, "prompt": 54, "new": 970, "has_cache": true, "device"}
"""

import json
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional


def naive_attention(q, k, v, dropout):
    assert dropout == 0
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def flash_attention(q, k, v, dropout):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout,
                                                   enable_gqa=q.shape[1] != k.shape[1])


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
        self.cache, self.dropout = None, shape.get("dropout", 0)

    def dropped(self, x):
        return functional.dropout(x, self.dropout) if self.dropout and self.training else x

    def forward(self, x, turns, at):
        parts = self.qkv(self.norms[0](x)).split([n * self.size for n in (self.heads, self.kv, self.kv)], 2)
        q, k, v = (p.view(*x.shape[:2], -1, self.size).transpose(1, 2) for p in parts)
        if turns is not None:
            q, k = (turned(t, *turns).to(v.dtype) for t in (q, k))
        if self.cache is None:
            attended = self.attend(q, k, v, self.dropout if self.training else 0)
        else:
            for kept, fresh in zip(self.cache, (k, v)):
                kept.index_copy_(2, at, fresh)
            seen = (torch.arange(self.cache[0].shape[2], device=x.device) <= at)[None, None, None]
            attended = functional.scaled_dot_product_attention(q, *self.cache, attn_mask=seen,
                                                               enable_gqa=self.heads != self.kv)
        x = x + self.dropped(self.out(attended.transpose(1, 2).reshape(x.shape)))
        y = self.up(self.norms[1](x))
        if self.is_llama:
            gate, y = y.chunk(2, -1)
            return x + self.down(functional.silu(gate) * y)
        return x + self.dropped(self.down(functional.gelu(y, approximate="tanh")))


class Model(nn.Module):
    def __init__(self, shape, attend=flash_attention):
        super().__init__()
        width, self.is_llama = shape["width"], "kv" in shape
        vocabulary = shape.get("vocabulary", 50257)
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = None if self.is_llama else nn.Embedding(shape["seqlen"], width)
        self.layers = nn.ModuleList([Layer(shape, attend) for _ in range(shape["layers"])])
        self.norm = nn.RMSNorm(width) if self.is_llama else nn.LayerNorm(width, bias=False)
        rates = 10000 ** (-torch.arange(0, self.layers[0].size, 2) / self.layers[0].size)
        self.register_buffer("rates", rates)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, 0, 0.02 / (math.sqrt(2 * shape["layers"]) if deep else 1))

    def hidden(self, tokens, at):
        x, turns = self.tokens(tokens), None
        if self.is_llama:
            angles = at[:, None] * self.rates.float()
            turns = (angles.cos(), angles.sin())
        else:
            x = self.layers[0].dropped(x + self.positions(at))
        for layer in self.layers:
            x = layer(x, turns, at)
        return functional.linear(self.norm(x), self.tokens.weight)

    def forward(self, tokens, targets):
        logits = self.hidden(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def transformers_gpt2(shape, device):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=shape["layers"], n_head=shape["heads"], n_embd=shape["width"],
                        n_positions=shape["seqlen"], vocab_size=shape.get("vocabulary", 50257), resid_pdrop=0,
                        embd_pdrop=0, attn_pdrop=0)
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config).to(device).train()
    return lambda tokens, targets: model(tokens, labels=tokens).loss, model


def train_peer(name, shape, batch, device):
    if name == "transformers":
        run, model = transformers_gpt2(shape, device)
    else:
        model = Model(shape, naive_attention if name.startswith("naive") else flash_attention).to(device)
        run = torch.compile(model) if "compile" in name else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    size = (batch, shape["seqlen"])
    tokens, targets = (torch.randint(0, shape.get("vocabulary", 50257), size, device=device) for _ in range(2))

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return seconds_of(step, 4, max(5, 160 // batch), device), batch * shape["seqlen"]


def decode_peer(shape, device):
    context = shape["seqlen"]
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):  # billions of weights would take the host minutes
        model = Model(shape).eval()
        for layer in model.layers:
            layer.cache = [torch.zeros(1, layer.kv, context, layer.size) for _ in range(2)]
        token, at = torch.zeros(1, 1, dtype=torch.long), torch.full((1,), context - 1)
    hidden = torch.compile(model.hidden, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        return seconds_of(lambda: hidden(token, at), 8, 100, device), 1


def generate_peer(folder, batch, prompt, new, has_cache, device):
    """transformers' own generate() on a checkpoint, greedy."""
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    ids = torch.randint(0, model.config.vocab_size // 2, (batch, prompt), device=device)

    def run(n):
        with torch.no_grad():
            made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                                  do_sample=False, use_cache=has_cache, pad_token_id=0)
        assert made.shape == (batch, prompt + n), made.shape

    run(min(new, 16))
    return seconds_of(lambda: run(new), 0, 1, device), batch * new


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(step, n_before, n, device):
    for _ in range(n_before):
        step()
    wait(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.time()
    for _ in range(n):
        step()
    wait(device)
    return (time.time() - begin) / n


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


def machine():
    import importlib.metadata

    versions = {"torch": torch.__version__}
    try:
        versions["transformers"] = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        pass  # its rows say so
    return {"machine": torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU", "versions": versions}


PEERS = {"train": train_peer, "generate": lambda name, **more: decode_peer(**more), "texts": generate_peer}


def main():
    if len(sys.argv) != 2 or not sys.argv[1].startswith("{"):
        print(__doc__)
        return
    call = json.loads(sys.argv[1])
    work = call.pop("work")
    if work == "machine":
        print(json.dumps(machine()))
        return
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    seconds, tokens = PEERS[work](**call)
    peak = torch.cuda.max_memory_allocated() if call["device"] == "cuda" else None
    print(json.dumps({"tokens_per_s": tokens / seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
