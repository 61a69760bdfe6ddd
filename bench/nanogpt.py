#!/usr/bin/env python3
"""nanoGPT's two settings of Shakespeare's characters, Tegula beside PyTorch in one run.

    bench/nanogpt.py cpu --data TEXT [--threads 2] [--rounds 5] [--steps 100] [--skip-loss]
    bench/nanogpt.py gpu --data TEXT [--seeds 1337,1338,1339] [--target 1.5] [--seconds 400] [--device cuda] [--small]

  cpu  4 layers, 128 wide, 64 tokens, batch 12. Step time: short training runs of both alternate; each side's figure is
       the median over rounds of its median step, PyTorch's eager. Loss: one full run of Tegula (2000 steps), over the
       whole validation split.
  gpu  config/train_shakespeare_char.py: 6 layers, 6 heads, 384 wide, 256 tokens, batch 64, dropout 0.2, bf16. Seconds
       from the command to a validation loss of --target, the median over the seeds, beside torch.compile started alike.
       A file says which batches both train on (train --batches); both evaluate the whole validation split every 250
       steps. Nothing compiled is there at the start of a run. The first seed then runs again with what it compiled.
       --small: a model of seconds, for a machine without a GPU.

The architecture, initialisation and optimizer of both sides are the same; PyTorch's has fused AdamW. Writes
bench/results/nanogpt_cpu.json or nanogpt_gpu.json (of the gpu's setting after each seed).
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time

import record
from limits import Failed, Limit

LAPTOP = {"layers": 4, "heads": 4, "width": 128, "seqlen": 64, "batch": 12, "dropout": 0, "steps": 2000, "warmup": 100}
SHAKESPEARE = {"layers": 6, "heads": 6, "width": 384, "seqlen": 256, "batch": 64, "dropout": 0.2, "steps": 5000,
               "warmup": 100, "every": 250}
SMALL = {"layers": 1, "heads": 2, "width": 32, "seqlen": 16, "batch": 4, "dropout": 0.2, "steps": 40, "warmup": 4, "every": 10}
RATE, LEAST, DECAY = 1e-3, 1e-4, 0.1
HERE = os.path.dirname(os.path.abspath(__file__))


def flags(tegula, data, setting, **more):
    named = {"data": data, "tokenizer": "chars", "model": "gpt2", "n-layers": setting["layers"], "n-heads": setting["heads"],
             "d-model": setting["width"], "seqlen": setting["seqlen"], "batch": setting["batch"], "steps": setting["steps"],
             "lr": RATE, "min-lr": LEAST, "warmup": setting["warmup"], "beta2": 0.99, "weight-decay": DECAY,
             "grad-clip": 1, "dropout": setting["dropout"]} | more
    return [tegula, "train", *(str(x) for k, v in named.items() for x in ("--" + k.replace("_", "-"), v))]


def read_text(path):
    """Ids of characters: training split, validation split, how many characters there are."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    ids, n = [number[c] for c in text], len(text) * 9 // 10
    return ids[:n], ids[n:], len(number)


def model_of(setting, vocabulary):
    from models_torch import Model, adamw

    model = Model(setting | {"vocabulary": vocabulary})
    return model, lambda: adamw(model, RATE, DECAY, fused=True)


def batch_of(split, places, seqlen):
    import torch

    return (torch.stack([split[i + shift:i + shift + seqlen] for i in places]) for shift in (0, 1))


def torch_round(model, optimizer, data, steps):
    """Median ms of a training step."""
    import torch

    times = []
    for _ in range(steps):
        x, y = batch_of(data, torch.randint(len(data) - LAPTOP["seqlen"] - 1, (LAPTOP["batch"],)).tolist(), LAPTOP["seqlen"])
        start = time.perf_counter()
        model(x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def laptop(args):
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    train, _, vocabulary = read_text(args.data)
    model, optimizer = model_of(LAPTOP, vocabulary)
    state = (model, optimizer(), torch.tensor(train))
    torch_round(*state, 20)
    more = {"eval-every": 0, "threads": args.threads}
    ours, theirs = [], []
    for _ in range(args.rounds):
        theirs.append(torch_round(*state, args.steps))
        short = flags(args.tegula, args.data, LAPTOP, **more | {"steps": args.steps})
        ours.append(record.last_json(*short, "--json")["step_ms"])
    row = {"torch_step_ms": round(statistics.median(theirs), 3), "tegula_step_ms": round(statistics.median(ours), 3)}
    row["ratio"] = round(row["torch_step_ms"] / row["tegula_step_ms"], 3)
    if not args.skip_loss:
        full = record.last_json(*flags(args.tegula, args.data, LAPTOP, **more), "--json")
        row.update({k: full[k] for k in ("val_loss", "train_loss", "params", "flops_per_step_planned",
                                         "flops_per_step_counted", "peak_bytes_planned", "peak_bytes_measured")})
    record.write(args, "nanogpt_cpu", "bench/nanogpt.py cpu --data TEXT", [row], record.STEP, args.threads,
                 {"torch": torch.__version__})
    print(json.dumps(row))


def write_batches(path, data, setting, seed):
    n = len(read_text(data)[0]) - setting["seqlen"]
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(setting["steps"]):
            f.write(" ".join(str(draw.randrange(n)) for _ in range(setting["batch"])) + "\n")


def train_peer(call):
    """The setting under torch.compile: a line "step N  validation loss X" for each evaluation."""
    import torch
    from models_torch import learning_rate

    setting, device = call["setting"], call["device"]
    train, validation, vocabulary = read_text(call["data"])
    train, validation = torch.tensor(train), torch.tensor(validation)
    with open(call["batches"], encoding="utf-8") as f:
        batches = [[int(x) for x in line.split()] for line in f]
    torch.manual_seed(call["seed"])
    torch.set_float32_matmul_precision("high")
    model, optimizer = model_of(setting, vocabulary)
    run, seqlen, batch = torch.compile(model.to(device)), setting["seqlen"], setting["batch"]
    optimizer = optimizer()

    def loss_of(split, places):
        both = batch_of(split, places, seqlen)
        x, y = (t.pin_memory().to(device, non_blocking=True) if device == "cuda" else t for t in both)
        with torch.autocast(device, torch.bfloat16):
            return run(x, y)

    def evaluate():
        rows = list(range(0, len(validation) - seqlen, seqlen))
        parts = [rows[i:i + batch] for i in range(0, len(rows), batch)]
        model.eval()
        with torch.no_grad():
            total = sum(loss_of(validation, part) * len(part) for part in parts)
        model.train()
        return float(total) / len(rows)

    for step, places in enumerate(batches, 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step - 1, setting["steps"], setting["warmup"], RATE, LEAST)
        loss_of(train, places).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % setting["every"] == 0:
            print(f"step {step}  validation loss {evaluate():.4f}", flush=True)


class Race:
    """Both sides of the GPU's setting, from the command to the target."""

    def __init__(self, tegula, data, device, small, target, limit, peers=HERE):
        self.tegula, self.data, self.device, self.limit = tegula, data, device, limit
        self.setting = SMALL if small else SHAKESPEARE
        self.target, self.peers = target, peers

    def ours(self, seed, batches, cache):
        command = flags(self.tegula, self.data, self.setting, seed=seed, batches=batches, device=self.device, dtype="bf16",
                        mode="fast", **{"eval-every": self.setting["every"]})
        return self.limit.seconds_to(command, self.target, TEGULA_KERNEL_CACHE=cache)[0]

    def theirs(self, seed, batches, cache):
        call = {"setting": self.setting, "data": self.data, "batches": batches, "seed": seed, "device": self.device}
        return self.limit.seconds_to([sys.executable, self.peers + "/nanogpt.py", "peer", "--call", json.dumps(call)], self.target,
                                     TORCHINDUCTOR_CACHE_DIR=cache + "/torch", TRITON_CACHE_DIR=cache + "/triton")[0]

    def rows(self, seeds):
        """A row after each seed, with all that there is so far."""
        mine, peer, cached = [], [], {}
        with tempfile.TemporaryDirectory() as folder:
            for seed in (*seeds, seeds[0]):
                batches, cache = os.path.join(folder, f"batches_{seed}.txt"), os.path.join(folder, f"cache_{seed}")
                is_again = os.path.exists(batches)
                if not is_again:
                    write_batches(batches, self.data, self.setting, seed)
                    os.mkdir(cache)
                try:
                    pair = self.ours(seed, batches, cache), self.theirs(seed, batches, cache)
                except Failed as error:
                    if not mine:
                        raise
                    yield self.row(mine, peer, cached) | {"left_out": f"seed {seed}{' again' * is_again}: {error}"}
                    return
                if is_again:
                    cached = {"cached_seconds": round(pair[0], 4), "peer_cached_seconds": round(pair[1], 4)}
                else:
                    mine.append(pair[0]), peer.append(pair[1])
                yield self.row(mine, peer, cached)

    def row(self, mine, peer, cached):
        ours, theirs = statistics.median(mine), statistics.median(peer)
        return {"work": "other", "to_loss": self.target, "seconds": round(ours, 4), "peer_seconds": round(theirs, 4),
                "peer_name": "torch.compile", "ratio": round(theirs / ours, 3), "n_seeds": len(mine), **cached,
                "all_seconds": [round(x, 4) for x in mine], "peer_all_seconds": [round(x, 4) for x in peer]}


def race(args):
    seeds = [int(x) for x in args.seeds.split(",")]
    limit = Limit(args.seconds)
    facts = limit.run_json([sys.executable, args.peers + "/models_torch.py", '{"work": "machine"}'])
    args.machine = args.machine or facts["machine"]
    row = {}
    for row in Race(args.tegula, args.data, args.device, args.small, args.target, limit, args.peers).rows(seeds):
        record.write(args, "nanogpt_gpu", "bench/nanogpt.py gpu --data TEXT" + " --small" * args.small, [row],
                     ["tegula/kernels/cuda", "tegula/passes", "tegula/models"], 0, facts["versions"])
    print(json.dumps(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=("cpu", "gpu", "peer"))
    parser.add_argument("--data")
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--skip-loss", action="store_true")
    parser.add_argument("--seeds", default="1337,1338,1339")
    parser.add_argument("--target", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--peers", default=HERE, help="folder of what plays the peer")
    parser.add_argument("--call", type=json.loads, help="of setting peer: what Race.theirs says")
    args = parser.parse_args()
    try:
        {"cpu": laptop, "gpu": race, "peer": lambda a: train_peer(a.call)}[args.setting](args)
    except Failed as error:
        sys.exit(f"nanogpt.py: {error}")


if __name__ == "__main__":
    sys.exit(main())
