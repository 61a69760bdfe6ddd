"""Training steps of PyTorch on this machine's GPUs: seconds and bytes by layout, and what single kernels sustain.

The planner (docs/planner.md) is held against these. Nobody tunes it to them: constants come from `--part kernels` alone,
and rows whose `half` is "unseen" stay unread until a change is done.

  bench/layouts_torch.py --part kernels --out F.json            products, attention, copies: a rotation of a minute
  bench/layouts_torch.py --part steps --out F.json              layouts of one GPU
  torchrun --nproc_per_node 4 bench/layouts_torch.py --part steps --out F.json        layouts of several
  bench/layouts_torch.py --part steps --set fresh --share 0/2 --out F.json            every second of the later set's
  torchrun --nproc_per_node 4 bench/layouts_torch.py --part collectives --out F.json  messages by size and group
  torchrun --nproc_per_node 2 bench/layouts_torch.py --part host --out F.json         the host's time for an op, a wrapped
                                                        module, a parameter; messages beside products and copies
  bench/layouts_torch.py --part decode --out F.json             products of few rows, as in decoding
  bench/layouts_torch.py --part calls --out F.json              naive attention's two kinds; torchrun: a sharded optimizer

A row of steps: the layout as it was asked for, `seconds` (median of steps), `allocated` and `reserved` (the largest, in
steps after the first), `first_allocated`, or `out_of_memory`.
"""

import argparse
import contextlib
import gc
import json
import math
import os
import statistics
import threading
import time

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import checkpoint

from layouts import MODELS, SETS

BACKENDS = {"flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "naive": SDPBackend.MATH}

class Layer(nn.Module):
    def __init__(self, width, heads, kv, hidden, keeps_products):
        super().__init__()
        self.heads, self.kv, self.size, self.keeps_products = heads, kv, width // heads, keeps_products
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * self.size, bias=False) for n in (heads, kv, kv))
        self.o, self.gate = nn.Linear(width, width, bias=False), nn.Linear(width, hidden, bias=False)
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def attended(self, y, cos, sin):
        b, t, _ = y.shape
        q, k, v = (p(y).view(b, t, -1, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (turned(x, cos, sin) for x in (q, k))
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        return self.o(a.transpose(1, 2).reshape(b, t, -1))

    def fed(self, y):
        return self.down(functional.silu(self.gate(y)) * self.up(y))

    def forward(self, x, cos, sin):
        if self.keeps_products:  # the halves between products are made anew: norms, activation
            x = x + self.attended(checkpoint.checkpoint(self.norm1, x, use_reentrant=False), cos, sin)
            return x + checkpoint.checkpoint(lambda z: self.fed(self.norm2(z)), x, use_reentrant=False)
        x = x + self.attended(self.norm1(x), cos, sin)
        return x + self.fed(self.norm2(x))


def turned(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, layout):
        super().__init__()
        layers, width, heads, kv, hidden, vocabulary = MODELS[layout["model"]]
        self.layout, self.size = layout, width // heads
        self.table, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        keeps = layout["remat"] == "selective"
        self.layers = nn.ModuleList([Layer(width, heads, kv, hidden, keeps) for _ in range(layers)])
        self.norm = nn.RMSNorm(width)

    def loss(self, h, targets):
        return functional.cross_entropy(self.head(h).float().flatten(0, -2), targets.flatten(), reduction="sum")

    def forward(self, tokens, targets):
        t = tokens.shape[1]
        rates = 10000 ** (-torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        angles = torch.arange(t, device=tokens.device)[:, None] * rates
        x = self.table(tokens)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            if self.layout["remat"] == "full":
                x = checkpoint.checkpoint(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin)
        x = self.norm(x)
        if self.layout["loss"] == "whole":
            return self.loss(x, targets) / targets.numel()
        pieces = zip(x.flatten(0, 1).split(2048), targets.flatten().split(2048))
        return sum(checkpoint.checkpoint(self.loss, h, y, use_reentrant=False) for h, y in pieces) / targets.numel()


class Transformers(nn.Module):
    def __init__(self, layout):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        layers, width, heads, kv, hidden, vocabulary = MODELS[layout["model"]]
        config = LlamaConfig(hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers, vocab_size=vocabulary,
                             num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=layout["seqlen"],
                             use_cache=False,
                             attn_implementation="eager" if layout["attention"] == "naive" else "sdpa")
        self.model = LlamaForCausalLM(config)
        if layout["remat"] == "full":
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.layers, self.model_type = self.model.model.layers, "transformers"

    def forward(self, tokens, targets):
        return self.model(input_ids=tokens, labels=tokens).loss


class Watch:
    """Clock and power of the GPU, ten times a second."""

    def __init__(self):
        import pynvml

        pynvml.nvmlInit()
        self.nvml, self.device = pynvml, pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        self.mhz, self.watts, self.on = [], [], True
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while self.on:
            self.mhz.append(self.nvml.nvmlDeviceGetClockInfo(self.device, self.nvml.NVML_CLOCK_SM))
            self.watts.append(self.nvml.nvmlDeviceGetPowerUsage(self.device) / 1000)
            time.sleep(.1)

    def end(self):
        self.on = False
        return {"mhz": statistics.median(self.mhz), "watts": statistics.median(self.watts)} if self.mhz else {}


def parallelised(model, layout, device):
    if layout["parallel"] == "none":
        return model
    if layout["parallel"] == "ddp":
        return nn.parallel.DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    keeps = layout["parallel"] == "fsdp2"
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=not keeps)
    fully_shard(model, mp_policy=policy, reshard_after_forward=not keeps)
    return model


def measured_step(layout, device, seconds):
    torch.manual_seed(1)
    is_amp = layout["dtype"] == "amp"
    torch.set_default_dtype(torch.float32 if is_amp else torch.bfloat16)
    with device:
        model = (Transformers if layout["library"] == "transformers" else Model)(layout)
    torch.set_default_dtype(torch.float32)
    n_parameters = sum(p.numel() for p in model.parameters())
    if layout["compiled"]:
        for i, layer in enumerate(model.layers):
            model.layers[i] = torch.compile(layer)
    model = parallelised(model, layout, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    vocabulary = MODELS[layout["model"]][5]
    batches = torch.randint(vocabulary, (4, 2, layout["batch"], layout["seqlen"]), device=device)
    autocast = torch.autocast("cuda", torch.bfloat16) if is_amp and not layout["parallel"].startswith("fsdp") \
        else contextlib.nullcontext()

    def step(i):
        with autocast, sdpa_kernel(BACKENDS[layout["attention"]]):
            model(*batches[i % 4]).backward()  # what is made anew must find the same backend
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step(0)
    torch.cuda.synchronize()
    row = {"parameters": n_parameters, "first_allocated": torch.cuda.max_memory_allocated()}
    torch.cuda.reset_peak_memory_stats()
    step(1)
    torch.cuda.synchronize()
    begin, times = time.perf_counter(), []
    watch = Watch()
    enough = torch.zeros((), device=device)
    while len(times) < 4 or enough.item() == 0:
        start = time.perf_counter()
        step(len(times))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        enough.fill_(float(time.perf_counter() - begin > seconds or len(times) >= 50))
        if distributed.is_initialized():
            distributed.broadcast(enough, 0)
    return {**row, "seconds": statistics.median(times[1:]), "fastest": min(times), "steps": len(times),
            "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), **watch.end()}


def steps(args, device, world):
    rows = []
    first, every = map(int, args.share.split("/"))
    for i, layout in enumerate(SETS[args.set][world > 1]):
        if i % every != first:
            continue
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        half = ("seen", "unseen")[i % 2] if args.set == "first" else args.set
        row = {"half": half, "gpus": world, **layout}
        try:
            row.update(measured_step(layout, device, args.seconds))
        except torch.cuda.OutOfMemoryError as error:
            row["out_of_memory"] = str(error)[:200]
            if world > 1:
                raise
        except Exception as error:  # pylint: disable=broad-exception-caught
            row["error"] = f"{type(error).__name__}: {error}"[:300]
            if world > 1:
                raise
        torch._dynamo.reset()
        row["wall"] = time.perf_counter() - begin
        rows.append(row)
        write(args, rows, world)
    return rows


def kernels(args, device):
    """Each op once, in turns, for a minute: the clock is that of a training step."""
    ops = []

    def product(m, n, k, dtype=torch.bfloat16):
        a, b = (torch.randn(s, device=device).to(dtype) for s in ((m, k), (n, k)))
        ops.append(({"op": "product", "m": m, "n": n, "k": k, "dtype": str(dtype)[6:], "flops": 2 * m * n * k},
                    lambda: a @ b.T))

    for m in (512, 2048, 8192, 32768):
        for n, k in ((768, 768), (3072, 768), (1024, 1024), (2816, 1024), (2048, 2048), (5632, 2048), (4096, 4096),
                     (14336, 4096), (4096, 14336), (1024, 4096), (8192, 8192)):
            product(m, n, k)
        product(m, 32000, 2048)
    product(2048, 128256, 4096)
    product(4096, 4096, 4096, torch.float32)
    for name, backend in BACKENDS.items():
        for t, heads, size, b in ((512, 12, 64, 32), (1024, 16, 64, 8), (2048, 32, 64, 4), (2048, 32, 128, 2),
                                  (4096, 32, 128, 2), (8192, 32, 128, 1), (32768, 8, 128, 1), (32768, 12, 64, 1)):
            if name == "naive" and t > 4096:
                continue
            q, k, v, dy = (torch.randn(b, heads, t, size, device=device, dtype=torch.bfloat16) for _ in range(4))
            for x in (q, k, v):
                x.requires_grad_()
            flops = 4 * b * heads * t * t * size // 2
            about = {"attention": name, "seqlen": t, "heads": heads, "size": size, "batch": b}

            def forward(q=q, k=k, v=v, backend=backend):
                with sdpa_kernel(backend):
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

            ops.append(({"op": "attention", **about, "flops": flops}, forward))
            y = forward()
            ops.append(({"op": "attention_backward", **about, "flops": flops * 5 // 2},
                        lambda y=y, q=q, k=k, v=v, dy=dy: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)))
    for mib in (1, 16, 256, 2048):
        x = torch.empty(mib << 20, dtype=torch.uint8, device=device).random_()
        ops.append(({"op": "copy", "bytes": 2 * (mib << 20)}, x.clone))
    x = torch.randn(8192, 4096, device=device, dtype=torch.bfloat16)
    norm = nn.RMSNorm(4096, device=device, dtype=torch.bfloat16)
    ops.append(({"op": "rms_norm", "bytes": 2 * x.numel() * 2}, lambda: norm(x)))
    logits = torch.randn(8192, 32000, device=device)
    targets = torch.randint(32000, (8192,), device=device)
    ops.append(({"op": "cross_entropy_f32", "bytes": logits.numel() * 4}, lambda: functional.cross_entropy(logits, targets)))
    for dtype in (torch.float32, torch.bfloat16):
        weights = [nn.Parameter(torch.randn(1 << 24, device=device).to(dtype)) for _ in range(8)]
        for w in weights:
            w.grad = torch.randn_like(w)
        optimizer = torch.optim.AdamW(weights, fused=True)
        ops.append(({"op": "adamw", "dtype": str(dtype)[6:], "parameters": 8 << 24}, optimizer.step))
    times = [[] for _ in ops]
    for _, run in ops:
        run()
    torch.cuda.synchronize()
    begin, watch = time.perf_counter(), Watch()
    while time.perf_counter() - begin < args.seconds:
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in ops]
        for (start, end), (_, run) in zip(events, ops):
            run()  # the first call brings the caches and the queue to where the second finds them
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        for (start, end), kept in zip(events, times):
            kept.append(start.elapsed_time(end) / 1e3)
    state = watch.end()
    rows = []
    for (about, _), t in zip(ops, times):
        s = statistics.median(t)
        rows.append({**about, "seconds": s, "rounds": len(t), **({"tflops": about["flops"] / s / 1e12} if "flops" in about
                                                              else {}), **state})
    write(args, rows, 1)
    # A single product by itself for a while, at its own clock.
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    for wait in (1, 20):
        begin, watch, n = time.perf_counter(), Watch(), 0
        while time.perf_counter() - begin < wait:
            for _ in range(50):
                a @ b
            torch.cuda.synchronize()
            n += 50
        spent = time.perf_counter() - begin
        rows.append({"op": "product_alone", "m": 8192, "n": 8192, "k": 8192, "for_seconds": wait, "seconds": spent / n,
                     "tflops": 2 * 8192**3 * n / spent / 1e12, **watch.end()})
    write(args, rows, 1)


def collectives(args, device, world):
    rows = []
    for n in sorted({2, world}):
        group = distributed.new_group(list(range(n)))
        if distributed.get_rank() < n:
            for exponent in range(12, 31, 2):
                size = 1 << exponent
                whole = torch.randn(size // 2, device=device).bfloat16()
                part = torch.randn(size // 2 // n, device=device).bfloat16()
                ops = {"all_reduce": lambda: distributed.all_reduce(whole, group=group),
                       "all_gather": lambda: distributed.all_gather_into_tensor(whole, part, group=group),
                       "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole, group=group),
                       "all_to_all": lambda: distributed.all_to_all_single(torch.empty_like(whole), whole, group=group)}
                for name, run in ops.items():
                    for _ in range(3):
                        run()
                    torch.cuda.synchronize()
                    repeats = 20 if size < 1 << 26 else 5
                    start = time.perf_counter()
                    for _ in range(repeats):
                        run()
                    torch.cuda.synchronize()
                    rows.append({"op": name, "gpus": n, "bytes": size, "seconds": (time.perf_counter() - start) / repeats})
        distributed.barrier()
    write(args, rows, world)


class Narrow(nn.Module):
    """A layer's modules with so little in them that only the host's time is left."""

    def __init__(self, width=16):
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2)])
        self.products = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(7)])

    def forward(self, x):
        for part in (*self.norms, *self.products):
            x = part(x)
        return x


def host(args, device, world):
    """Seconds of the host: of an op and its backward, of a module that fully_shard wraps, of a parameter under DDP."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    rows, count = [], 32

    def timed(about, run, least=2.0):
        for _ in range(5):
            run()
        torch.cuda.synchronize()
        times, begin = [], time.perf_counter()
        while len(times) < 20 or (world == 1 and time.perf_counter() - begin < least):
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        rows.append({**about, "gpus": world, "seconds": statistics.median(times), "rounds": len(times)})

    x = torch.randn(16, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
    for n in (250, 1000):
        def chain(backward, n=n):
            y = x
            for _ in range(n):
                y = y * 1.5
            if backward:
                y.sum().backward()
        timed({"op": "host_op", "count": n}, lambda: chain(False))
        timed({"op": "host_op_and_backward", "count": n}, lambda: chain(True))

    def layers_of(dtype):
        with device:
            return nn.Sequential(*[Narrow() for _ in range(count)]).to(dtype)

    def stepped(model, autocast, checkpointed=False):
        data = torch.randn(16, 16, device=device, dtype=torch.float32 if autocast else torch.bfloat16)
        context = torch.autocast("cuda", torch.bfloat16) if autocast else contextlib.nullcontext()

        def run():
            with context:
                y = data
                for layer in (model if isinstance(model, nn.Sequential) else [model]):
                    y = checkpoint.checkpoint(layer, y, use_reentrant=False) if checkpointed else layer(y)
                y.sum().backward()
            model.zero_grad(set_to_none=True)
        return run

    for name, dtype in (("bf16", torch.bfloat16), ("amp", torch.float32)):
        about = {"layers": count, "parameters": 9 * count, "dtype": name}
        timed({"op": "host_layers", **about}, stepped(layers_of(dtype), name == "amp"))
        timed({"op": "host_layers_checkpointed", **about}, stepped(layers_of(dtype), name == "amp", True))
        if world > 1:
            model = nn.parallel.DistributedDataParallel(layers_of(dtype), device_ids=[device.index],
                                                        gradient_as_bucket_view=True)
            timed({"op": "host_layers_ddp", **about}, stepped(model, name == "amp"))
    if world > 1:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for reshard in (False, True):
            model = layers_of(torch.float32)
            for layer in model:
                fully_shard(layer, mp_policy=policy, reshard_after_forward=reshard)
            fully_shard(model, mp_policy=policy, reshard_after_forward=reshard)
            timed({"op": "host_layers_fsdp", "layers": count, "parameters": 9 * count, "zero": 3 if reshard else 2},
                  lambda model=model: (model(torch.randn(16, 16, device=device, dtype=torch.bfloat16)).sum().backward(),
                                       model.zero_grad(set_to_none=True)))
    model = layers_of(torch.float32)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    timed({"op": "host_adamw", "parameters": 9 * count}, torch.optim.AdamW(model.parameters(), fused=True).step)
    if world > 1:
        rows.extend(beside(device, world))
    write(args, rows, world)


def beside(device, world):
    """Seconds of messages alone, of products, copies or norms alone, and of both at once on two streams."""
    rows, stream = [], torch.cuda.Stream()
    x, w = torch.randn(8192, 4096, device=device, dtype=torch.bfloat16), torch.randn(4096, 4096, device=device).bfloat16()
    norm = nn.RMSNorm(4096, device=device, dtype=torch.bfloat16)
    works = {"product": lambda: x @ w.T, "copy": x.clone, "layer": lambda: norm(x.clone() @ w.T) * x}

    def spent(work, n_work, message, n_messages):
        distributed.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.cuda.stream(stream):
            for _ in range(n_messages):
                message()
        for _ in range(n_work):
            work()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    for mib in (32, 256, 1024):
        n = mib << 19
        whole, part = (torch.randn(size, device=device).bfloat16() for size in (n, n // world))
        messages = {"all_reduce": lambda whole=whole: distributed.all_reduce(whole),
                    "all_gather": lambda whole=whole, part=part: distributed.all_gather_into_tensor(whole, part),
                    "reduce_scatter": lambda whole=whole, part=part: distributed.reduce_scatter_tensor(part, whole)}
        for work_name, work in works.items():
            for name, message in messages.items():
                spent(work, 20, message, 5)
                n_work = max(1, round(.3 / (spent(work, 100, message, 0) / 100)))
                n_messages = max(1, round(.25 / (spent(work, 0, message, 20) / 20)))
                counts = torch.tensor([n_work, n_messages], device=device)
                distributed.broadcast(counts, 0)
                n_work, n_messages = counts.tolist()
                times = [[spent(work, *n) for n in ((n_work, message, 0), (0, message, n_messages),
                                                    (n_work, message, n_messages))] for _ in range(3)]
                alone, messages_alone, both = map(statistics.median, zip(*times))
                rows.append({"op": "beside", "work": work_name, "message": name, "gpus": world, "bytes": mib << 20,
                             "alone": alone, "messages_alone": messages_alone, "seconds": both,
                             "hidden": (alone + messages_alone - both) / min(alone, messages_alone)})
    return rows


def decode(args, device):
    """Products of few rows, each reading weights that no cache holds: a rotation over copies of them."""
    rows = []
    for n, k in ((4096, 4096), (6144, 4096), (1024, 4096), (14336, 4096), (4096, 14336), (28672, 4096), (128256, 4096),
                 (2048, 2048), (8192, 8192)):
        copies = [torch.randn(n, k, device=device, dtype=torch.bfloat16) for _ in range(max(2, (1 << 29) // (n * k * 2)))]
        for m in (1, 8, 64, 256):
            x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
            graph = torch.cuda.CUDAGraph()
            for w in copies[:3]:
                x @ w.T
            with torch.cuda.graph(graph):
                for w in copies:
                    x @ w.T
            times, begin = [], time.perf_counter()
            while time.perf_counter() - begin < args.seconds / 4:
                torch.cuda.synchronize()
                start = time.perf_counter()
                graph.replay()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - start) / len(copies))
            s = statistics.median(times)
            rows.append({"op": "product_of_few", "m": m, "n": n, "k": k, "dtype": "bfloat16", "seconds": s,
                         "copies": len(copies), "bytes_per_s": 2 * (n * k + m * k + m * n) / s})
    write(args, rows, 1)


def calls(args, device, world):
    """Eager attention and the math backend's, called one after another, and the optimizer's host over sharded parameters."""
    from torch.distributed.fsdp import fully_shard

    rows = []

    def timed(about, run, scale=1):
        for _ in range(5):
            run()
        times, begin = [], time.perf_counter()
        while len(times) < 20 or time.perf_counter() - begin < args.seconds / 4:
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(scale):
                run()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / scale)
        rows.append({**about, "gpus": world, "seconds": statistics.median(times), "rounds": len(times)})

    def eager(q, k, v, mask):
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -.5 + mask
        return torch.matmul(functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)

    def math_of(q, k, v, _):
        with sdpa_kernel(SDPBackend.MATH):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    if world == 1:
        for t, heads, size, b in ((16, 1, 64, 1), (1024, 16, 64, 8), (2048, 16, 64, 4), (1024, 16, 128, 8), (2048, 32, 128, 2)):
            q, k, v, dy = (torch.randn(b, t, heads, size, device=device, dtype=torch.bfloat16).transpose(1, 2) for _ in range(4))
            for x in (q, k, v):
                x.requires_grad_()
            mask = torch.full((t, t), -1e9, device=device, dtype=torch.bfloat16).triu(1)[None, None]
            for name, call in (("eager", eager), ("math", math_of)):
                about = {"attention": name, "seqlen": t, "heads": heads, "size": size, "batch": b, "scores": b * heads * t * t}
                timed({"op": "attention", **about}, lambda c=call, a=(q, k, v, mask): c(*a), 10)
                y = call(q, k, v, mask)
                timed({"op": "attention_backward", **about},
                      lambda y=y, a=(q, k, v), dy=dy: torch.autograd.grad(y, a, dy, retain_graph=True), 10)
    else:
        for n in (16, 64):
            with device:
                model = nn.Sequential(*[Narrow() for _ in range(n)])
            for layer in model:
                fully_shard(layer)
            fully_shard(model)
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
            model(torch.randn(16, 16, device=device)).sum().backward()
            timed({"op": "host_adamw_fsdp", "parameters": 9 * n}, optimizer.step)

            def cleared(model=model, optimizer=optimizer):
                optimizer.zero_grad(set_to_none=True)
                model(torch.randn(16, 16, device=device)).sum().backward()
                optimizer.step()
            timed({"op": "host_step_fsdp", "parameters": 9 * n}, cleared)
    write(args, rows, world)


def write(args, rows, world):
    if distributed.is_initialized() and distributed.get_rank() != 0:
        return
    import transformers

    name = os.path.basename(args.out).removesuffix(".json")
    launcher = f"torchrun --nproc_per_node {world} " if world > 1 else ""
    result = {"name": name, "machine": f"{world} x {torch.cuda.get_device_name()}", "threads": 0,
              "versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "commit": args.commit,
              "measures": [], "command": f"{launcher}bench/layouts_torch.py --part {args.part}",
              "date": time.strftime("%Y-%m-%d"), "rows": rows}
    with open(args.out, "w", encoding="utf-8") as f:
        f.write(json.dumps({**result, "rows": []}, indent=1)[:-4] + "[\n")
        f.write(",\n".join("  " + json.dumps(rounded(r)) for r in rows) + "\n ]\n}\n")


def rounded(row):
    return {k: float(f"{v:.6g}") if isinstance(v, float) and math.isfinite(v) else v for k, v in row.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["kernels", "steps", "collectives", "host", "decode", "calls"], required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a layout; of the rotation of kernels")
    parser.add_argument("--set", default="first", choices=sorted(SETS), help="of layouts")
    parser.add_argument("--share", default="0/1", help="i/n: every n-th layout from the i-th on, for GPUs side by side")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    world, device = int(os.environ.get("WORLD_SIZE", 1)), torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    if world > 1:
        distributed.init_process_group("nccl", device_id=device)
    if args.part == "kernels":
        kernels(args, device)
    elif args.part == "collectives":
        collectives(args, device, world)
    elif args.part == "host":
        host(args, device, world)
    elif args.part == "calls":
        calls(args, device, world)
    elif args.part == "decode":
        decode(args, device)
    else:
        steps(args, device, world)
    if world > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
