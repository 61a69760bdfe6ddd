#!/usr/bin/env python3
"""Tegula's CUDA kernels beside PyTorch's (cuDNN, flash attention, cuBLASLt) on one GPU, in one run.

  bench/kernels_cuda.py [--library build/release/libtegula_cuda.so] [--only attention,gemm,decode]
                        [--rounds 3] [--json FILE] [--commit C]

Both sides work on the same tensors and stream. A figure is the median over rounds in which every kernel ran in a
random order, each in the steady state (bench/cuda/harness.py); decoding is timed as graphs of launches, warm and cold
(over 256 MiB of keys and values or more in turn). TFLOP/s: a causal mask counts half, the backward 2.5 forwards.
`difference` is that of our results from the first peer's, as norms; `at least` and `aim` are what the kernels were
written for. Kernels are the plug-in's own choice, by its C calls; `tegula bench --device cuda` times the same without
PyTorch.
"""

import argparse
import ctypes
import os
import random
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "cuda"))
from harness import graph_of, graph_us, interleaved, machine_state, write_result  # noqa: E402

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
F32_PEERS = {"efficient": SDPBackend.EFFICIENT_ATTENTION}
DTYPES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}  # tegula::DType
TOKENS, HIDDEN = 16384, 2048
COLD_BYTES = 256 << 20
MAX_RANK = 8

# head_dim, causal, queries and keys, pass
ATTENTION = [(128, 0, 16384, "fwd"), (128, 1, 16384, "fwd"), (128, 1, 1024, "fwd"), (128, 1, 4096, "fwd"),
             (128, 0, 16384, "bwd"), (128, 1, 16384, "bwd"), (128, 1, 1024, "bwd"), (128, 1, 4096, "bwd"),
             (64, 0, 16384, "fwd"), (64, 1, 16384, "fwd"),
             (64, 0, 16384, "bwd"), (64, 1, 16384, "bwd"), (64, 1, 1024, "bwd"),
             (256, 1, 16384, "fwd"), (256, 0, 16384, "bwd"), (256, 1, 16384, "bwd"),
             (64, 1, 4096, "fwd f32"), (64, 1, 4096, "bwd f32")]
GEMM = [(8192, 8192, 8192), (4096, 4096, 4096), (16384, 2048, 8192)]
DECODE = [(1, 8192), (1, 131072), (16, 8192), (64, 4096)]  # 32 query and 8 KV heads of 128
# At least and aim, by work and shape; a matrix product's are shares of its peer's.
WANTED = {
    "attention fwd": {"d128 full N16384": (590, 720), "d128 causal N16384": (560, 690), "d128 causal N1024": (360, 450),
                      "d128 causal N4096": (500, 620), "d64 full N16384": (440, 520), "d64 causal N16384": (415, 500),
                      "d256 causal N16384": (560, 730)},
    "attention bwd": {"d128 full N16384": (470, 630), "d128 causal N16384": (480, 600), "d128 causal N1024": (240, 320),
                      "d128 causal N4096": (400, 500), "d64 full N16384": (380, 490), "d64 causal N16384": (370, 470),
                      "d64 causal N1024": (200, 260), "d256 full N16384": (380, 500), "d256 causal N16384": (390, 500)},
    "attention fwd f32": {"d64 causal N4096": (60, 100)},
    "attention bwd f32": {"d64 causal N4096": (60, 100)},
    "gemm": {"8192x8192x8192, b [k n]": (0.85, 0.97), "8192x8192x8192, b [n k]": (0.85, 0.97)},
    "decode, warm": {"B1 N8192": (2.4, 3.0)},
    "decode, cold": {"B1 N131072": (4.0, 4.4), "B16 N8192": (4.2, 4.5), "B64 N4096": (4.2, 4.5)},
}


class Tensor(ctypes.Structure):  # TegulaTensor of capi.cpp
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
                ("shape", ctypes.c_int64 * MAX_RANK), ("stride", ctypes.c_int64 * MAX_RANK)]

    @staticmethod
    def of(t):
        return Tensor(t.data_ptr(), DTYPES[t.dtype], t.dim(), (ctypes.c_int64 * MAX_RANK)(*t.shape),
                      (ctypes.c_int64 * MAX_RANK)(*t.stride()))


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.tegula_cuda_error.restype = ctypes.c_char_p
        self.lib.tegula_cuda_call.restype = ctypes.c_void_p
        self.lib.tegula_cuda_call_workspace_bytes.restype = ctypes.c_int64

    def call(self, op, attrs, inputs, outputs, kernel=""):
        """A function of no arguments that launches, and the kernel's name. Raises RuntimeError."""
        lists = [(Tensor * len(ts))(*map(Tensor.of, ts)) for ts in (inputs, outputs)]
        handle = self.lib.tegula_cuda_call(op.encode(), kernel.encode(), attrs.encode(), len(inputs), lists[0],
                                           len(outputs), lists[1])
        if not handle:
            raise RuntimeError(self.lib.tegula_cuda_error().decode())
        handle = ctypes.c_void_p(handle)
        size = self.lib.tegula_cuda_call_workspace_bytes(handle)
        workspace = torch.empty(max(1, size), dtype=torch.uint8, device="cuda")
        name = ctypes.create_string_buffer(64)
        self.lib.tegula_cuda_call_kernel(handle, name, 64)

        def launch(_keep=(inputs, outputs, workspace)):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            if self.lib.tegula_cuda_call_launch(handle, ctypes.c_void_p(workspace.data_ptr()), stream) != 0:
                raise RuntimeError(self.lib.tegula_cuda_error().decode())
        return launch, name.value.decode()


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def difference(ours, peers):
    """Norm of what differs over the peer's."""
    return max(((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(ours, peers))


def allowed(makers):
    """Those that can be made and run."""
    runs = {}
    for name, make in makers.items():
        try:
            runs[name] = make()
            runs[name][0]()
            torch.cuda.synchronize()
        except RuntimeError as e:
            print(f"   {name}: {str(e).splitlines()[0][:120]}", flush=True)
    return runs


def sdpa(q, k, v, is_causal, backend, gqa=False):
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)),
                                                                is_causal=is_causal, enable_gqa=gqa).transpose(1, 2)


def attention_makers(lib, q, k, v, is_causal, pass_):
    """name → () → (launch, results): ours and the peers'."""
    b, n, h, d = q.shape
    attrs = f"scale=f{d ** -0.5!r}" + (";is_causal=b1" if is_causal else "")
    o, lse, do = torch.empty_like(q), torch.empty(b, h, n, device="cuda"), normal(b, n, h, d, dtype=q.dtype)
    forward, _ = lib.call("attention", attrs, [q, k, v], [o, lse])
    forward()
    peers = F32_PEERS if q.dtype == torch.float32 else PEERS

    def ours():
        if pass_ == "fwd":
            return forward, [o]
        grads = [torch.empty_like(t) for t in (q, k, v)]
        return lib.call("attention_bwd", attrs, [q, k, v, o, lse, do], grads)[0], grads

    def peer(backend):
        if pass_ == "fwd":
            return (lambda: sdpa(q, k, v, is_causal, backend)), [sdpa(q, k, v, is_causal, backend)]
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out = sdpa(*leaves, is_causal, backend)
        launch = lambda: torch.autograd.grad(out, leaves, do, retain_graph=True)  # noqa: E731
        return launch, launch()
    makers = {"tegula": ours}
    makers.update({name: lambda backend=backend: peer(backend) for name, backend in peers.items()})
    return makers


def add_row(rows, work, shape, unit, rates, differs=None):
    """rates: name → (median, lowest, highest). One row a case, printed as it comes."""
    best = max((r[0] for name, r in rates.items() if name != "tegula"), default=None)
    row = {"work": work, "shape": shape, "unit": unit}
    row.update({name: round(rates[name][0], 3) for name in sorted(rates, key=lambda n: (n != "tegula", n))})
    if "tegula" in rates:
        row["lowest"], row["highest"] = (round(r, 3) for r in rates["tegula"][1:])
        if best:
            row["over_best_peer"] = round(rates["tegula"][0] / best, 3)
        if differs is not None:
            row["difference"] = differs
        row["at least"], row["aim"] = WANTED.get(work, {}).get(shape, (None, None))
    rows.append(row)
    print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()),
          flush=True)


def rated(rows, work, shape, flops, runs, rounds):
    times = interleaved({name: run[0] for name, run in runs.items()}, rounds)
    rates = {name: tuple(flops / t / 1e9 for t in (statistics.median(ms), max(ms), min(ms)))
             for name, ms in times.items()}
    peer = next((name for name in runs if name != "tegula"), None)
    differs = difference(runs["tegula"][1], runs[peer][1]) if peer and "tegula" in runs else None
    add_row(rows, work, shape, "TFLOP/s", rates, differs)


def time_attention(lib, rows, rounds):
    for d, is_causal, n, pass_ in ATTENTION:
        b, h = TOKENS // n, HIDDEN // d
        q, k, v = (normal(b, n, h, d, dtype=torch.float32 if "f32" in pass_ else torch.bfloat16) for _ in range(3))
        shape = f"d{d} {'causal' if is_causal else 'full'} N{n}"
        try:
            makers = attention_makers(lib, q, k, v, bool(is_causal), pass_[:3])
        except RuntimeError as e:
            print(f"   attention {pass_} {shape}: {e}", flush=True)
            continue
        flops = 4 * b * h * n * n * d * (0.5 if is_causal else 1) * (2.5 if pass_[:3] == "bwd" else 1)
        rated(rows, f"attention {pass_}", shape, flops, allowed(makers), rounds)
        torch.cuda.empty_cache()


def time_gemm(lib, rows, rounds):
    for m, n, k in GEMM:
        for layout in ("k n", "n k"):
            a, b = normal(m, k), normal(*((k, n) if layout == "k n" else (n, k)))
            c, right = torch.empty(m, n, dtype=a.dtype, device="cuda"), b if layout == "k n" else b.T
            out = torch.empty_like(c)
            makers = {"tegula": lambda: (lib.call("dot", f"dims=sm k, {layout} -> m n", [a, b], [c])[0], [c]),
                      "cublaslt": lambda: ((lambda: torch.matmul(a, right, out=out)), [out])}
            rated(rows, "gemm", f"{m}x{n}x{k}, b [{layout}]", 2 * m * n * k, allowed(makers), rounds)


def time_decode(lib, rows, rounds, heads=32, kv_heads=8, d=128):
    for b, n in DECODE:
        kv_bytes = 4 * b * n * kv_heads * d
        sets = [[normal(b, n, kv_heads, d) for _ in range(2)] for _ in range(max(1, -(-COLD_BYTES // kv_bytes)))]
        q = normal(b, 1, heads, d)

        def ours(k, v):
            o, lse = torch.empty_like(q), torch.empty(b, heads, 1, device="cuda")
            return lib.call("attention", f"scale=f{d ** -0.5!r}", [q, k, v], [o, lse])[0], [o]

        def peer(backend, k, v):
            return (lambda: sdpa(q, k, v, False, backend, True)), [sdpa(q, k, v, False, backend, True)]
        makers = {"tegula": ours, **{name: lambda k, v, be=be: peer(be, k, v) for name, be in PEERS.items()}}
        firsts = allowed({name: lambda make=make, sets=sets: make(*sets[0]) for name, make in makers.items()})
        graphs = {}
        for name in firsts:
            bound = [makers[name](*s)[0] for s in sets]
            launches = [bound[i % len(bound)] for i in range(max(20, 2 * len(bound)))]
            graphs[name, "cold"] = graph_of(launches), len(launches), bound
            if kv_bytes < 40 << 20:
                graphs[name, "warm"] = graph_of(bound[:1] * 20), 20, bound
        times = {key: [] for key in graphs}
        for _ in range(3 * rounds):
            for key in random.sample(sorted(graphs), len(graphs)):
                times[key].append(graph_us(*graphs[key][:2]))
        for cache in ("warm", "cold"):
            rates = {name: tuple(kv_bytes / t / 1e6 for t in (statistics.median(us), max(us), min(us)))
                     for (name, c), us in times.items() if c == cache}
            if rates:
                add_row(rows, f"decode, {cache}", f"B{b} N{n}", "TB/s", rates)
        del sets, graphs
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/libtegula_cuda.so")
    parser.add_argument("--only", default="attention,gemm,decode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    torch.zeros(1, device="cuda")
    lib = Library(args.library)
    print(machine_state(), flush=True)
    rows = []
    for name, time_it in (("attention", time_attention), ("gemm", time_gemm), ("decode", time_decode)):
        if name in args.only.split(","):
            time_it(lib, rows, args.rounds)
    if args.json:
        write_result(args.json, "compare_cuda", "bench/kernels_cuda.py", args.commit, rows,
                     ["*.cu", "*.cuh", "plugin"])


if __name__ == "__main__":
    main()
