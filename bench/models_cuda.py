#!/usr/bin/env python3
"""A training step of whole models on one GPU, beside PyTorch eager and torch.compile in the same run.

  bench/models_cuda.py [--tegula build/release/tegula] [--batches 8,32] [--json FILE] [--commit C]

GPT-2 124M (no biases, tied embeddings), seqlen 1024, bf16 products over f32 weights, AdamW, gradients clipped at 1,
tokens made up. Tegula's time is `tegula bench train --device cuda` (one replayed graph a step, by the device's clock);
PyTorch's is the wall time of forward (autocast, flash attention), backward, clipping and its fused AdamW. Tegula's
figure is taken before and after the peers', and the slower of the two counts.
"""

import argparse
import datetime
import json
import subprocess
import time

LAYERS, HEADS, WIDTH, SEQLEN, VOCABULARY = 12, 12, 768, 1024, 50257


def ours(tegula, batch):
    command = [tegula, "bench", "train", "--model", "gpt2", "--n-layers", LAYERS, "--n-heads", HEADS, "--d-model", WIDTH,
               "--seqlen", SEQLEN, "--vocab-size", VOCABULARY, "--batch", batch, "--dtype", "bf16", "--device", "cuda",
               "--repeats", 5, "--json"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def gpt2():
    import torch
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH, bias=False) for _ in range(2)])
            sizes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
            self.products = nn.ModuleList([nn.Linear(a, b, bias=False) for a, b in sizes])

        def forward(self, x):
            qkv, out, up, down = self.products
            heads = [t.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)
                     for t in qkv(self.norms[0](x)).split(WIDTH, 2)]
            attended = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + out(attended.transpose(1, 2).reshape(x.shape))
            return x + down(functional.gelu(up(self.norms[1](x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQLEN, WIDTH)
            self.layers, self.norm = nn.ModuleList([Layer() for _ in range(LAYERS)]), nn.LayerNorm(WIDTH, bias=False)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, 0, 0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions(torch.arange(SEQLEN, device=tokens.device))
            for layer in self.layers:
                x = layer(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Model().cuda()


def peer(batch, is_compiled, steps):
    import torch

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = gpt2()
    run = torch.compile(model) if is_compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens, targets = (torch.randint(0, VOCABULARY, (batch, SEQLEN), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(6):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin = time.time()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    seconds = (time.time() - begin) / steps
    return {"tokens_per_s": batch * SEQLEN / seconds, "peak_bytes": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    rows = []
    for batch in (int(b) for b in options.batches.split(",")):
        first = ours(options.tegula, batch)
        peers = {name: peer(batch, name == "torch.compile", 240 // batch) for name in ("eager", "torch.compile")}
        again = ours(options.tegula, batch)
        mine = min(first["tokens_per_s"], again["tokens_per_s"])
        best = max(peers, key=lambda name: peers[name]["tokens_per_s"])
        rows.append({"case": f"gpt2-b{batch}", "work": "train", "tokens_per_s": mine, "peak_bytes": first["peak_bytes"],
                     "first_ms": first["first_ms"], "peers": peers, "peer_name": best,
                     "ratio": mine / peers[best]["tokens_per_s"], "device": first["device"]})
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"name": "models_cuda", "machine": rows[0]["device"], "commit": options.commit,
                       "command": "bench/models_cuda.py", "date": datetime.date.today().isoformat(), "rows": rows}, f,
                      indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
