#!/usr/bin/env python3
"""A training run of GPT-2 beside PyTorch's on the same batches, from the same weights: how far the losses are apart.

  bench/curves_cuda.py --data TEXT [--steps 500] [--device cuda|cpu] [--dtype bf16|f32] [--n-layers 12] [--d-model 768]
                       [--n-heads 12] [--seqlen 256] [--batch 8] [--tokenizer bytes] [--tegula build/release/tegula]
                       [--svg FILE] [--json FILE] [--ours-only]

Tegula writes the first weights, a file says the order of the batches (`train --batches`), both train with AdamW, a
warm-up and a cosine, gradients clipped at 1, no dropout; PyTorch with torch.autocast where the dtype is bf16. Printed: the
largest gap between the two losses of a step, the mean gap, and the same of the losses' means over 20 steps, which
noise of single batches does not move. --ours-only runs Tegula's side alone, twice, in f32 and in the dtype: what
is said then is the gap between those two, and no PyTorch is needed.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

MEAN_OF = 20


def flags_of(o, **more):
    flags = {"n-layers": o.n_layers, "d-model": o.d_model, "n-heads": o.n_heads,
             "seqlen": o.seqlen, "batch": o.batch, "warmup": min(100, o.steps // 5), "lr": o.lr, "min-lr": o.lr / 10,
             "eval-every": 0, "save-every": 0} | more
    return [str(x) for key, value in flags.items() for x in ("--" + key.replace("_", "-"), value)]


def run(*command):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} {command[1]}: {done.stderr.strip()[-400:]}")
    return done.stdout


def first_weights(o, folder):
    """A run of one step that changes nothing."""
    out = os.path.join(folder, "first")
    run(o.tegula, "train", "--data", o.data, "--tokenizer", o.tokenizer, "--out", out,
        *flags_of(o, steps=1, warmup=0) + ["--lr", "0", "--min-lr", "0", "--weight-decay", "0"])
    return out


def write_batches(o, folder, first):
    """The order of batches, and all tokens of the text."""
    rows = json.loads(run(o.tegula, "encode", "--model", first, "--text", o.data))
    tokens = [i for row in rows for i in row] if isinstance(rows[0], list) else rows
    draw = random.Random(o.seed)
    n = int(0.9 * len(tokens)) - o.seqlen - 2
    places = [[draw.randrange(n) for _ in range(o.batch)] for _ in range(o.steps)]
    path = os.path.join(folder, "batches.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(" ".join(map(str, row)) + "\n" for row in places))
    return path, places, tokens


def train_ours(o, folder, first, batches, dtype):
    out = tempfile.mkdtemp(dir=folder)
    run(o.tegula, "train", "--data", o.data, "--init-from", first, "--out", out, "--batches", batches, "--dtype", dtype,
        "--device", o.device, *flags_of(o, steps=o.steps))
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return [row["loss"] for row in rows if "loss" in row]


def read_safetensors(path):
    """Of f32: {name: (shape, bytes)}."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items() if t["dtype"] == "F32"}


def load_torch(o, folder):
    """The checkpoint in models_torch.Model: GPT-2's products have their weights as [in, out]."""
    import torch
    from models_torch import Model

    weights = {}
    for name, (shape, data) in read_safetensors(os.path.join(folder, "model.safetensors")).items():
        weights[name] = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)
    vocabulary = weights["transformer.wte.weight"].shape[0]
    model = Model({"layers": o.n_layers, "heads": o.n_heads, "width": o.d_model, "seqlen": o.seqlen,
                   "vocabulary": vocabulary})
    names = {"tokens.weight": "wte.weight", "positions.weight": "wpe.weight", "norm.weight": "ln_f.weight"}
    for i in range(o.n_layers):
        for ours, theirs in (("norms.0", "ln_1"), ("qkv", "attn.c_attn"), ("out", "attn.c_proj"), ("norms.1", "ln_2"),
                             ("up", "mlp.c_fc"), ("down", "mlp.c_proj")):
            names[f"layers.{i}.{ours}.weight"] = f"h.{i}.{theirs}.weight"
    state = {}
    for ours, theirs in names.items():
        w = weights.pop("transformer." + theirs)
        is_product = ours.startswith("layers") and "norms" not in ours
        state[ours] = w.T.contiguous() if is_product else w
    # The file's form has biases; without --bias they stay zeros.
    unknown = [name for name, w in weights.items() if not name.endswith(".bias") or w.any()]
    if unknown:
        sys.exit(f"curves_cuda.py: what are {', '.join(unknown)}?")
    missing = [key for key in model.state_dict() if key not in state and key != "rates"]
    if missing:
        sys.exit(f"curves_cuda.py: the checkpoint has no {', '.join(missing)}")
    model.load_state_dict(state, strict=False)
    return model.to(o.device)


def train_torch(o, folder, places, tokens, dtype):
    import torch
    from models_torch import adamw, learning_rate

    model, ids = load_torch(o, folder), torch.tensor(tokens)
    optimizer, losses = adamw(model, o.lr, 0.1), []
    for step, row in enumerate(places):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, o.steps, min(100, o.steps // 5), o.lr, o.lr / 10)
        x = torch.stack([ids[i:i + o.seqlen] for i in row]).to(o.device)
        y = torch.stack([ids[i + 1:i + 1 + o.seqlen] for i in row]).to(o.device)
        with torch.autocast(o.device, torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    return losses


def means(losses):
    return [sum(losses[i:i + MEAN_OF]) / MEAN_OF for i in range(0, len(losses) - MEAN_OF + 1, MEAN_OF)]


def gaps(a, b):
    if len(a) != len(b):
        sys.exit(f"curves_cuda.py: {len(a)} and {len(b)} steps")
    apart = [abs(x - y) for x, y in zip(a, b)]
    smooth = [abs(x - y) for x, y in zip(means(a), means(b))]
    worst = max(range(len(apart)), key=apart.__getitem__)
    return {"steps": len(a), "largest_gap": apart[worst], "at_step": worst + 1, "mean_gap": sum(apart) / len(apart),
            f"largest_gap_of_{MEAN_OF}": max(smooth, default=None), "first": [a[0], b[0]], "last": [a[-1], b[-1]]}


def draw(path, curves):
    """The curves as an SVG of their own."""
    width, height, top = 900, 420, max(max(c) for c in curves.values())
    least = min(min(c) for c in curves.values())
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    for (name, losses), color, y in zip(curves.items(), ("#3b78c3", "#c3553b"), (20, 40)):
        points = " ".join(f"{40 + i * (width - 60) / max(len(losses) - 1, 1):.1f},"
                          f"{20 + (top - loss) / max(top - least, 1e-9) * (height - 60):.1f}"
                          for i, loss in enumerate(losses))
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1"/>'
                   f'<text x="{width - 240}" y="{y}" fill="{color}">{name}</text>')
    out.append(f'<text x="4" y="20">{top:.2f}</text><text x="4" y="{height - 40}">{least:.2f}</text></svg>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--tegula", default="build/release/tegula")
    p.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    p.add_argument("--dtype", default="bf16", choices=("bf16", "f32"))
    p.add_argument("--tokenizer", default="bytes")
    for name, value in (("steps", 500), ("n-layers", 12), ("d-model", 768), ("n-heads", 12), ("seqlen", 256), ("batch", 8),
                        ("seed", 1)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--lr", type=float, default=6e-4)
    p.add_argument("--svg", default="")
    p.add_argument("--json", default="")
    p.add_argument("--ours-only", action="store_true")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first = first_weights(o, folder)
        batches, places, tokens = write_batches(o, folder, first)
        curves = {f"Tegula, {o.dtype}, {o.device}": train_ours(o, folder, first, batches, o.dtype)}
        if o.ours_only:
            curves["Tegula in f32 on the CPU"] = train_ours(argparse.Namespace(**{**vars(o), "device": "cpu"}), folder, first,
                                                    batches, "f32")
        else:
            latest = os.path.realpath(os.path.join(first, "latest"))
            curves[f"PyTorch, {o.dtype}"] = train_torch(o, latest, places, tokens, o.dtype)
    said = {"curves": list(curves)} | gaps(*curves.values())
    print(json.dumps(said))
    if o.svg:
        draw(o.svg, curves)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(said | {"losses": curves}, f)


if __name__ == "__main__":
    main()
