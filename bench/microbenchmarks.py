#!/usr/bin/env python3
"""Writes what calls of a device took, for `tegula plan MODEL --gpus NxNAME --microbenchmarks FILE`.

  bench/microbenchmarks.py --out F.json                                  with torch: this machine's GPU, two minutes
  torchrun --nproc_per_node 2 bench/microbenchmarks.py --out F.json      messages between two of them, too
  bench/microbenchmarks.py --dry-run --out F.json                        the same calls, small and on the CPU: a rehearsal
  bench/microbenchmarks.py --from-layouts --out F.json                   from bench/results/layouts, without torch
  bench/microbenchmarks.py --from-comm F --device NAME --out F.json      from `tegula bench comm --json`

The format is described in tools/microbenchmarks/microbenchmarks.h. Products, attention and copies are timed in turns, with
random data, each behind calls that keep the GPU's queue filled; a product alone for ten seconds gives the clock that its power
leaves. Messages are timed one after another, as a framework issues them.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import sys
import time

FORMAT = {"format": "tegula.microbenchmarks", "version": 1}
RAW = pathlib.Path(__file__).parent / "results/layouts"
SHAPES = ((768, 768), (3072, 768), (2048, 2048), (5632, 2048), (4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096),
          (8192, 8192))
ROWS = (2048, 8192, 32768)
# Sequences, heads, elements of a head, length.
ATTENTION = ((32, 12, 64, 512), (8, 16, 64, 1024), (4, 32, 64, 2048), (2, 16, 64, 8192), (1, 12, 64, 32768),
             (8, 16, 128, 512), (4, 16, 128, 1024), (2, 32, 128, 2048), (2, 32, 128, 4096), (1, 32, 128, 8192),
             (1, 8, 128, 32768))
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def rounded(row):
    return {k: float(f"{v:.6g}") if isinstance(v, float) and math.isfinite(v) else v for k, v in row.items()}


def write(path, device, source, sections):
    result = {**FORMAT, "device": device, "source": source}
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(result, indent=1)[:-2])
        for name, rows in sections.items():
            if rows:
                f.write(f',\n "{name}": [\n' + ",\n".join("  " + json.dumps(rounded(r)) for r in rows) + "\n ]")
        f.write("\n}\n")


# From results that are there already.

def raw(name):
    return json.loads((RAW / f"{name}.json").read_text())["rows"]


def host_rows(rows):
    """The host's constants (Sustained::host) from seconds of chains and of narrow layers."""
    out = []

    def add(what, seconds):
        out.append({"what": what, "value": seconds})

    def of(op, **about):
        return [r for r in rows if r["op"] == op and all(r.get(k) == v for k, v in about.items())]

    for r in of("host_op_and_backward"):
        add("op", r["seconds"] / r["count"])
    for name, dtype in (("module", "bf16"), ("autocast_module", "amp")):
        for plain in of("host_layers", dtype=dtype):
            n = plain["parameters"]
            add(name, plain["seconds"] / n)
            for r in of("host_layers_checkpointed", dtype=dtype):
                add("recomputed", r["seconds"] / plain["seconds"])
            for r in of("host_layers_ddp", dtype=dtype):
                add("ddp_parameter", max(1e-6, (r["seconds"] - plain["seconds"]) / n))
            for name_of, zero in (("sharded_once", 2), ("sharded_twice", 3)) if dtype == "bf16" else ():
                for r in of("host_layers_fsdp", zero=zero):
                    add(name_of, (r["seconds"] - plain["seconds"]) / r["layers"])
    for r in of("host_adamw"):
        add("parameter", r["seconds"] / r["parameters"])
    return out


def from_layouts():
    kernels = raw("kernels_h200_torch")
    products = [r for r in kernels if r["op"] == "product"]
    # The first calls of a round find the GPU's queue empty: they wait for the host.
    products = [{k: r[k] for k in ("m", "n", "k", "seconds")} | {"dtype": {"bfloat16": "bf16", "float32": "f32"}[r["dtype"]]}
                for r in products[5:]]
    attention = [{"kernel": r["attention"], "dtype": "bf16", "batch": r["batch"], "heads": r["heads"], "seqlen": r["seqlen"],
                  "head_dim": r["size"], "mask": "causal",
                  "direction": "backward" if r["op"].endswith("backward") else "forward", "seconds": r["seconds"]}
                 for r in kernels if r["op"].startswith("attention") and r["attention"] != "naive"]  # which is products
    copies = [{"bytes": r["bytes"], "seconds": r["seconds"]} for r in kernels if r["op"] == "copy" and r["bytes"] > 1 << 28]  # no cache holds them
    turns = next(r for r in kernels if r["op"] == "product")["mhz"]
    clock = [{"what": "clock", "value": r["mhz"] / turns} for r in kernels
             if r["op"] == "product_alone" and r["for_seconds"] > 10]
    collectives = [{"op": r["op"], "ranks": r["gpus"], "at_once": 1, "bytes": r["bytes"], "seconds": r["seconds"]}
                   for r in raw("collectives_h200x4_torch")]
    return {"copies": copies, "products": products, "attention": attention, "collectives": collectives,
            "constants": host_rows(raw("host_h200x2_torch")) + clock}


def from_comm(path):
    """The fastest algorithm of every op and size; ops that the planner does not price stay out, and are said."""
    lines = pathlib.Path(path).read_text().strip().splitlines()
    table = json.loads(lines[-1])
    rows = [{"op": r["op"], "ranks": r["ranks"], "at_once": 1, "bytes": r["bytes"], "seconds": r["seconds"]}
            for r in table["rows"] if r["chosen"] and r["op"] in OPS]
    left = sorted({r["op"] for r in table["rows"]} - set(OPS))
    if left:
        print(f"not among what clusters are planned by: {', '.join(left)}", file=sys.stderr)
    return {"collectives": rows}


# Measured here.

class Machine:
    """The GPU, or with --dry-run the CPU: the same calls, small."""

    def __init__(self, is_dry):
        import torch

        self.torch, self.is_dry, self.shrink, self.is_silent = torch, is_dry, 64 if is_dry else 1, False
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        rank = int(os.environ.get("LOCAL_RANK", 0))
        self.device = torch.device("cpu") if is_dry else torch.device("cuda", rank)
        if not is_dry:
            torch.cuda.set_device(self.device)
        if self.world > 1:
            torch.distributed.init_process_group("gloo" if is_dry else "nccl")
        self.name = "cpu" if is_dry else torch.cuda.get_device_name()

    def synchronize(self):
        if not self.is_dry:
            self.torch.cuda.synchronize()

    def small(self, n, least=16):
        return max(least, n // self.shrink)

    def random(self, *shape, dtype=None):
        x = self.torch.randn(*shape, device=self.device)
        return x.to(dtype or self.torch.bfloat16)

    def mhz(self):
        """None where nothing says it (torch asks nvidia-ml-py)."""
        if self.is_dry:
            return 1000
        try:
            return self.torch.cuda.clock_rate()
        except (ModuleNotFoundError, RuntimeError) as error:
            if not self.is_silent:
                print(f"the clock is not known, and its section is left out: {error}", file=sys.stderr)
            self.is_silent = True
            return None

    def turns(self, ops, seconds):
        """Medians of seconds of each call, all in turns."""
        times = [[] for _ in ops]
        for run in ops:
            run()
        self.synchronize()
        begin = time.perf_counter()
        clocks = []
        while len(times[0]) < 3 or time.perf_counter() - begin < seconds:
            if self.is_dry:
                for run, kept in zip(ops, times):
                    start = time.perf_counter()
                    run()
                    kept.append(time.perf_counter() - start)
                continue
            events = [[self.torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in ops]
            self.torch.cuda._sleep(20_000_000)  # clocks, some 10 ms: the queue fills, and nothing waits for the host
            for (start, end), run in zip(events, ops):
                run()  # the caches and the queue are as the second call finds them in a step
                start.record()
                run()
                end.record()
            clocks.append(self.mhz())
            self.synchronize()
            for (start, end), kept in zip(events, times):
                kept.append(start.elapsed_time(end) / 1e3)
        return [statistics.median(t) for t in times], None if None in clocks else statistics.median(clocks or [self.mhz()])


def kernels(machine, seconds):
    torch = machine.torch
    rows, ops = [], []

    def add(section, about, run):
        rows.append((section, about))
        ops.append(run)

    for m in ROWS:
        for n, k in SHAPES:
            m_, n_, k_ = (machine.small(x) for x in (m, n, k))
            a, b = machine.random(m_, k_), machine.random(n_, k_)
            add("products", {"dtype": "bf16", "m": m_, "n": n_, "k": k_}, lambda a=a, b=b: a @ b.T)
    for kernel, backend in backends(torch):
        for batch, heads, size, length in ATTENTION:
            length, heads = machine.small(length), machine.small(heads, 2)
            q, k, v, dy = (machine.random(batch, heads, length, size) for _ in range(4))
            for x in (q, k, v):
                x.requires_grad_()

            def forward(q=q, k=k, v=v, backend=backend):
                with contextlib.nullcontext() if machine.is_dry else torch.nn.attention.sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

            try:
                y = forward()
            except RuntimeError as error:
                print(f"{kernel} does not run here, and is left out: {str(error).splitlines()[0]}", file=sys.stderr)
                break
            about = {"kernel": kernel, "dtype": "bf16", "batch": batch, "heads": heads, "seqlen": length, "head_dim": size,
                     "mask": "causal"}
            add("attention", {**about, "direction": "forward"}, forward)
            add("attention", {**about, "direction": "backward"},
                lambda y=y, q=q, k=k, v=v, dy=dy: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
    for mib in (256, 512, 1024, 4096):
        x = torch.empty(machine.small(mib << 20), dtype=torch.uint8, device=machine.device).random_()
        add("copies", {"bytes": 2 * x.numel()}, x.clone)
    times, full_mhz = machine.turns(ops, seconds)
    sections = {"copies": [], "products": [], "attention": []}
    for (section, about), s in zip(rows, times):
        sections[section].append({**about, "seconds": s})
    return sections, full_mhz


def backends(torch):
    from torch.nn.attention import SDPBackend

    return (("flash2", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION))


def clock(machine, seconds, full_mhz):
    """The clock of the second half of a product's run alone, when power has settled."""
    if full_mhz is None:
        return []
    n = machine.small(8192)
    a, b = machine.random(n, n), machine.random(n, n)
    begin, clocks = time.perf_counter(), []
    while time.perf_counter() - begin < seconds:
        for _ in range(50):
            a @ b
        clocks.append(machine.mhz())
        machine.synchronize()
    mhz = statistics.median(clocks[len(clocks) // 2:])
    return [{"what": "clock", "value": min(1.0, mhz / full_mhz)}]


def collectives(machine):
    torch, rows = machine.torch, []
    distributed = torch.distributed
    n = machine.world
    for exponent in range(12, 22 if machine.is_dry else 31):
        size = 1 << exponent
        whole, part = machine.random(size // 2), machine.random(size // 2 // n)
        other = torch.empty_like(whole)
        runs = {"all_reduce": lambda: distributed.all_reduce(whole),
                "all_gather": lambda: distributed.all_gather_into_tensor(whole, part),
                "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole),
                "all_to_all": lambda: distributed.all_to_all_single(other, whole)}
        for op, run in runs.items():
            try:
                for _ in range(3):
                    run()
            except RuntimeError as error:
                print(f"{op} does not run here, and is left out: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            times = []
            for _ in range(5):
                distributed.barrier()
                machine.synchronize()
                repeats = 20 if size < 1 << 26 else 5
                start = time.perf_counter()
                for _ in range(repeats):
                    run()
                machine.synchronize()
                times.append((time.perf_counter() - start) / repeats)
            rows.append({"op": op, "ranks": n, "at_once": 1, "bytes": size, "seconds": statistics.median(times)})
    return rows


def host(machine):
    """Seconds of narrow layers and chains, which only the host takes time for."""
    torch, nn, rows, count = machine.torch, machine.torch.nn, [], 4 if machine.is_dry else 32
    from torch.utils import checkpoint

    def timed(about, run):
        for _ in range(3):
            run()
        machine.synchronize()
        times = []
        for _ in range(10):
            start = time.perf_counter()
            run()
            machine.synchronize()
            times.append(time.perf_counter() - start)
        rows.append({**about, "seconds": statistics.median(times)})

    class Narrow(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2)])
            self.products = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(7)])

        def forward(self, x):
            for part in (*self.norms, *self.products):
                x = part(x)
            return x

    x = machine.random(16, 16).requires_grad_()

    def chain(n):
        y = x
        for _ in range(n):
            y = y * 1.5
        y.sum().backward()

    for n in (250, 500, 1000):
        timed({"op": "host_op_and_backward", "count": n}, lambda n=n: chain(n))

    def layers_of(n, dtype):
        with machine.device:
            return nn.Sequential(*[Narrow() for _ in range(n)]).to(dtype)

    def stepped(model, is_amp, is_again=False):
        data = machine.random(16, 16, dtype=torch.float32 if is_amp else torch.bfloat16)
        amp = torch.autocast(machine.device.type, torch.bfloat16) if is_amp else contextlib.nullcontext()

        def run():
            with amp:
                y = data
                for layer in (model if isinstance(model, nn.Sequential) else [model]):
                    y = checkpoint.checkpoint(layer, y, use_reentrant=False) if is_again else layer(y)
                y.sum().backward()
            model.zero_grad(set_to_none=True)
        return run

    for name, dtype in (("bf16", torch.bfloat16), ("amp", torch.float32)):
        about, is_amp = {"layers": count, "parameters": 9 * count, "dtype": name}, name == "amp"
        timed({"op": "host_layers", **about}, stepped(layers_of(count, dtype), is_amp))
        timed({"op": "host_layers_checkpointed", **about}, stepped(layers_of(count, dtype), is_amp, True))
        if machine.world > 1:
            ids = None if machine.is_dry else [machine.device.index]
            model = nn.parallel.DistributedDataParallel(layers_of(count, dtype), device_ids=ids, gradient_as_bucket_view=True)
            timed({"op": "host_layers_ddp", **about}, stepped(model, is_amp))
    if machine.world > 1 and not machine.is_dry:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for zero in (2, 3):
            model = layers_of(count, torch.float32)
            for layer in (*model, model):
                fully_shard(layer, mp_policy=policy, reshard_after_forward=zero == 3)
            timed({"op": "host_layers_fsdp", "layers": count, "parameters": 9 * count, "zero": zero},
                  lambda model=model: (model(machine.random(16, 16)).sum().backward(), model.zero_grad(set_to_none=True)))
    model = layers_of(count, torch.float32)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    timed({"op": "host_adamw", "parameters": 9 * count}, torch.optim.AdamW(model.parameters(), fused=True).step)
    return host_rows(rows)


def measured(args):
    machine = Machine(args.dry_run)
    sections, full_mhz = kernels(machine, .5 if args.dry_run else args.seconds)
    # All GPUs at once, as in a step.
    sections["collectives"] = collectives(machine) if machine.world > 1 else []
    sections["constants"] = clock(machine, .5 if args.dry_run else 10, full_mhz) + host(machine)
    is_first = machine.world == 1 or machine.torch.distributed.get_rank() == 0
    if machine.world > 1:
        machine.torch.distributed.destroy_process_group()
    source = f"torch {machine.torch.__version__}, {machine.world} x {machine.name}, {time.strftime('%Y-%m-%d')}"
    return is_first, machine.name, source, sections


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=60, help="of the rotation of products, attention and copies")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--from-layouts", action="store_true")
    parser.add_argument("--from-comm", metavar="FILE")
    parser.add_argument("--device", help="the device's name, with --from-comm")
    args = parser.parse_args()
    if args.from_layouts:
        write(args.out, "NVIDIA H200", "bench/results/layouts: torch 2.11, 2026-11-29", from_layouts())
        return 0
    if args.from_comm:
        if not args.device:
            parser.error("--from-comm needs --device, the name of what it was measured on")
        write(args.out, args.device, "tegula bench comm", from_comm(args.from_comm))
        return 0
    is_first, name, source, sections = measured(args)
    if is_first:
        write(args.out, args.device or name, source, sections)
    return 0


if __name__ == "__main__":
    sys.exit(main())
