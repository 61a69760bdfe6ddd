#!/usr/bin/env python3
"""Tegula's CPU kernels beside PyTorch's, interleaved in one run.

    bench/compare_torch.py [--threads 2] [--rounds 3] [--only attention] [--tegula build/release/tegula]

Per row both sides take turns; a side's time is the median over rounds of its median, its least that of
all samples. FLOPs are those of the mathematics (a causal mask halves them), the same for both; `share`
is of the multiply-add rate measured beside Tegula's samples. Where PyTorch has several ways (decoding with fewer
heads of keys than of queries), all take turns, give the same numbers, and the fastest counts; `torch_way` names it.
`torch_bf16` says what PyTorch's products of bf16 run on. Needs torch. Writes bench/results/compare_torch.json.
"""
import argparse
import functools
import json
import re
import statistics
import sys
import time

import record
import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "int8": torch.int8}

# (name, what, arguments of `tegula bench`)
ROWS = [
    ("attention fwd, full, d 64", "attention", "1,8,1024,64", "f32", "fwd", False, 0),
    ("attention fwd, full, d 128", "attention", "1,8,1024,128", "f32", "fwd", False, 0),
    ("attention fwd, causal, N 1024, d 64", "attention", "1,8,1024,64", "f32", "fwd", True, 0),
    ("attention fwd, causal, N 4096, d 64", "attention", "1,4,4096,64", "f32", "fwd", True, 0),
    ("attention fwd, causal, N 2048, d 128", "attention", "1,4,2048,128", "f32", "fwd", True, 0),
    ("attention fwd+bwd, full, d 64", "attention", "1,8,1024,64", "f32", "fwdbwd", False, 0),
    ("attention fwd+bwd, full, d 128", "attention", "1,8,1024,128", "f32", "fwdbwd", False, 0),
    ("attention fwd+bwd, causal, N 1024, d 64", "attention", "1,8,1024,64", "f32", "fwdbwd", True, 0),
    ("attention fwd+bwd, causal, N 4096, d 64", "attention", "1,4,4096,64", "f32", "fwdbwd", True, 0),
    ("attention fwd+bwd, causal, N 2048, d 128", "attention", "1,4,2048,128", "f32", "fwdbwd", True, 0),
    ("attention fwd, full, d 64, bf16", "attention", "1,8,1024,64", "bf16", "fwd", False, 0),
    ("attention fwd, full, d 128, bf16", "attention", "1,8,1024,128", "bf16", "fwd", False, 0),
    ("attention fwd, causal, N 1024, d 64, bf16", "attention", "1,8,1024,64", "bf16", "fwd", True, 0),
    ("attention fwd, causal, N 4096, d 64, bf16", "attention", "1,4,4096,64", "bf16", "fwd", True, 0),
    ("attention fwd, causal, N 2048, d 128, bf16", "attention", "1,4,2048,128", "bf16", "fwd", True, 0),
    ("attention fwd, full, N 2048, d 128, bf16", "attention", "1,4,2048,128", "bf16", "fwd", False, 0),
    ("attention fwd+bwd, full, d 64, bf16", "attention", "1,8,1024,64", "bf16", "fwdbwd", False, 0),
    ("attention fwd+bwd, full, d 128, bf16", "attention", "1,8,1024,128", "bf16", "fwdbwd", False, 0),
    ("attention fwd+bwd, causal, N 1024, d 64, bf16", "attention", "1,8,1024,64", "bf16", "fwdbwd",
     True, 0),
    ("attention fwd+bwd, causal, N 4096, d 64, bf16", "attention", "1,4,4096,64", "bf16", "fwdbwd",
     True, 0),
    ("attention fwd+bwd, causal, N 2048, d 128, bf16", "attention", "1,4,2048,128", "bf16", "fwdbwd",
     True, 0),
    ("attention fwd+bwd, full, N 2048, d 128, bf16", "attention", "1,4,2048,128", "bf16", "fwdbwd",
     False, 0),
    ("decode, 8192 keys, 32 and 8 heads, d 128", "decode", "1,32,8192,128", "f32", "fwd", False, 8),
    ("decode, the same, bf16", "decode", "1,32,8192,128", "bf16", "fwd", False, 8),
    ("gemm 2048^3", "gemm", "2048,2048,2048", "f32", "fwd", False, 0),
    ("gemm 1024x768x3072", "gemm", "1024,768,3072", "f32", "fwd", False, 0),
    ("gemm 1024x3072x768", "gemm", "1024,3072,768", "f32", "fwd", False, 0),
    ("gemm 2048^3, bf16", "gemm", "2048,2048,2048", "bf16", "fwd", False, 0),
    ("gemm 1024x768x3072, bf16", "gemm", "1024,768,3072", "bf16", "fwd", False, 0),
    ("gemm 1024x3072x768, bf16", "gemm", "1024,3072,768", "bf16", "fwd", False, 0),
    ("gemm 2048^3, int8", "gemm", "2048,2048,2048", "int8", "fwd", False, 0),
    ("gemm 1024x768x3072, int8", "gemm", "1024,768,3072", "int8", "fwd", False, 0),
    ("gemm 1024x3072x768, int8", "gemm", "1024,3072,768", "int8", "fwd", False, 0),
]


def torch_bf16():
    """The instructions that oneDNN, which makes PyTorch's products, takes for bf16 on this machine."""
    flags = record.cpu_flags()
    if not torch.backends.mkldnn.is_available():
        return "none: no oneDNN"
    if "amx_bf16" in flags:
        return "native: AMX"
    if "avx512_bf16" in flags:
        return "native: AVX-512"
    return "none: widened to f32" if "avx512bw" in flags else "none: reference"


def decode_ways(q, k, v):
    """One query a head against a cache: what PyTorch's users write for it."""
    group = q.shape[1] // k.shape[1]
    if group == 1:
        return {"as it is": lambda: F.scaled_dot_product_attention(q, k, v)}

    def enable_gqa(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def expanded(q, k, v):
        wide = [t[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for t in (k, v)]
        return F.scaled_dot_product_attention(q, *wide)

    def heads_as_queries(q, k, v):  # of the one head of keys that they share: no mask tells them apart
        b, h, _, d = q.shape
        return F.scaled_dot_product_attention(q.reshape(b, h // group, group, d), k, v).reshape(b, h, 1, d)

    ways = {f.__name__: f for f in (enable_gqa, expanded, heads_as_queries)}
    exact = [f(q.double(), k.double(), v.double()) for f in ways.values()]
    if any((one - exact[0]).abs().max() > 1e-12 for one in exact):
        raise RuntimeError("PyTorch's ways to decode are not one function")
    kept = [t.repeat_interleave(group, 1) for t in (k, v)]  # a cache of `group` times the size
    return {**{name: functools.partial(f, q, k, v) for name, f in ways.items()},
            "expanded_cache": lambda: F.scaled_dot_product_attention(q, *kept)}


def torch_ways(row):
    """Functions that do the work, by name."""
    _, what, shape, dtype, mode, causal, kv_heads = row
    size = [int(n) for n in shape.split(",")]
    t = DTYPES[dtype]
    if what == "gemm":
        m, n, k = size
        if dtype == "int8":  # without scales: PyTorch has no more
            a, b = (torch.randint(-128, 128, at, dtype=t) for at in ((m, k), (k, n)))
            return {"as it is": lambda: torch._int_mm(a, b)}
        a, b = torch.rand(m, k).sub(0.5).to(t), torch.rand(k, n).sub(0.5).to(t)
        return {"as it is": lambda: a @ b}
    b, h, n, d = size
    queries, kv = (1, kv_heads or h) if what == "decode" else (n, kv_heads or h)
    # Heads lie within a token, as a model's projections leave them.
    q = torch.rand(b, queries, h, d).sub(0.5).to(t).transpose(1, 2)
    k, v = (torch.rand(b, n, kv, d).sub(0.5).to(t).transpose(1, 2) for _ in range(2))
    if what == "decode":
        return decode_ways(q, k, v)
    if mode == "fwd":
        return {"as it is": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)}
    for x in (q, k, v):
        x.requires_grad_(True)
    grad = torch.rand(b, h, queries, d).to(t)

    def both():
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.autograd.grad(out, (q, k, v), grad)
    return {"as it is": both}


def torch_ms(work, seconds, threads):
    # As `tegula bench`: of one thread its own time, whatever else the machine does.
    clock = time.process_time if threads == 1 else time.perf_counter
    work()
    times = []
    end = clock() + seconds
    while len(times) < 7 or clock() < end:
        start = clock()
        work()
        times.append((clock() - start) * 1e3)
    return statistics.median(times), min(times)


def tegula(args, row):
    _, what, shape, dtype, mode, causal, kv_heads = row
    command = [args.tegula, "bench", what, "--shape", shape, "--dtype", dtype, "--threads",
               args.threads, "--json"]
    if what == "attention":
        command += ["--pass", mode] + (["--causal"] if causal else [])
    if kv_heads:
        command += ["--kv-heads", kv_heads]
    return record.last_json(*command)


def measure(args, row):
    ways = torch_ways(row)
    times, ours = {name: [] for name in ways}, []
    for _ in range(args.rounds):
        for name, work in ways.items():
            times[name].append(torch_ms(work, args.seconds, args.threads))
        ours.append(tegula(args, row))
    medians = {name: statistics.median(median for median, _ in samples) for name, samples in times.items()}
    way = min(medians, key=medians.get)
    torch_median, theirs = medians[way], times[way]
    ms = statistics.median(r["ms_median"] for r in ours)
    peak = statistics.median(r["peak_gflops"] for r in ours)
    flops = ours[0]["flops"]
    return {"work": row[0], "torch_ms": round(torch_median, 3), "tegula_ms": round(ms, 3),
            "torch_least": round(min(least for _, least in theirs), 3),
            "tegula_least": round(min(r["ms_min"] for r in ours), 3), "ratio": round(torch_median / ms, 3),
            "torch_share": round(flops / torch_median / 1e6 / peak, 3),
            "tegula_share": round(flops / ms / 1e6 / peak, 3), "peak_gflops": round(peak, 1),
            **({"torch_way": way, "other_ways": ", ".join(f"{n} {m:.3f} ms" for n, m in medians.items() if n != way)}
               if len(ways) > 1 else {}),
            **({"torch_bf16": torch_bf16()} if row[3] == "bf16" else {})}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of PyTorch's samples in a round")
    parser.add_argument("--only", default="", help="rows whose name matches, anywhere")
    parser.add_argument("--name", default="compare_torch", help="of the result")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for row in ROWS:
        if re.search(args.only, row[0]):
            rows.append(measure(args, row))
            print(json.dumps(rows[-1]), flush=True)
    only = f" --only '{args.only}' --name {args.name}" if args.only else ""
    record.write(args, args.name, f"bench/compare_torch.py --threads {args.threads}{only}", rows,
                 [*record.ATTENTION, *record.PRODUCTS], args.threads, {"torch": torch.__version__})


if __name__ == "__main__":
    sys.exit(main())
