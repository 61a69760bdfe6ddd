#!/usr/bin/env python3
"""Checks our matmul kernels against float64 and times them beside PyTorch's, interleaved.

  bench/cuda/matmul.py --build build/cuda --cubins DIR [--variants FILE] [--json FILE]

DIR holds what `bench_cuda_compile DIR` wrote. Each number is the median over rounds in which every kernel ran in
turn on the same tensors, each warmed up by itself. docs/kernels/matmul_cuda.md sets what a profiler counts with
--profile beside the formulas.
"""

import argparse
import ctypes
import os
import statistics

import torch

from harness import finish, interleaved, machine_state, print_sum, profile, read_variants, sustained, write_result

FIELDS = ("tile_n", "stages", "a_mn_major", "b_mn_major", "group")

# m, n, k
CHECKS = [(128, 256, 64), (1, 1, 1), (1, 300, 77), (127, 129, 65), (129, 257, 63), (333, 777, 555), (1000, 8, 3000),
          (8, 1000, 100), (2048, 512, 1024), (640, 640, 640), (4224, 300, 200), (257, 4099, 129), (513, 513, 1)]

RUNG_N = 4096  # of the f32 rungs' products


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.tegula_error.restype = ctypes.c_char_p
        for kind in ("matmul_rung", "matmul_mma", "matmul_sm90", "divergence", "mean"):
            getattr(self.lib, f"tegula_{kind}_load").restype = ctypes.c_void_p

    def load(self, kind, *args):
        handle = getattr(self.lib, f"tegula_{kind}_load")(*args)
        assert handle, self.lib.tegula_error().decode()
        return ctypes.c_void_p(handle)

    def call(self, kind, *args):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        rc = getattr(self.lib, f"tegula_{kind}_launch")(*args, stream)
        assert rc == 0, self.lib.tegula_error().decode()


class Kernel:
    """A compiled kernel: of kind matmul_rung (f32), matmul_mma or matmul_sm90 (bf16)."""

    def __init__(self, lib, name, source, cubin, v):
        self.lib, self.name = lib, name
        self.a_mn_major, self.b_mn_major = bool(v.get("a_mn_major")), bool(v.get("b_mn_major"))
        if source == "matmul_sm90.cu":
            self.kind, args = "matmul_sm90", [(ctypes.c_int * len(FIELDS))(*[v[f] for f in FIELDS])]
        elif source == "matmul_mma.cu":
            self.kind, args = "matmul_mma", [self.b_mn_major]
        else:
            self.kind, args = "matmul_rung", [name.encode()]
            self.b_mn_major = True
        self.handle = lib.load(self.kind, cubin.encode(), *args)

    @property
    def dtype(self):
        return torch.float32 if self.kind == "matmul_rung" else torch.bfloat16

    @property
    def layout(self):
        return ("am" if self.a_mn_major else "ak") + ("_bn" if self.b_mn_major else "_bk")

    def bind(self, a, b):
        """A function of no arguments that launches, and c; a [m, k] and b [k, n] lie as layout says."""
        (m, k), n = a.shape, b.shape[1]
        c = padded(m, n, self.dtype)
        stored = [t.T if major else t for t, major in ((a, self.a_mn_major), (b, not self.b_mn_major))]
        assert all(t.stride(1) == 1 for t in stored)
        pointers = (ctypes.c_void_p * 3)(*[t.data_ptr() for t in (a, b, c)])
        sizes = (ctypes.c_int64 * 8)(m, n, k, self.a_mn_major, self.b_mn_major, *[t.stride(0) for t in (*stored, c)])

        def launch(_keep=(a, b, c)):
            self.lib.call(self.kind, self.handle, pointers, sizes)
        return launch, c


def padded(rows, columns, dtype):
    """NaN, with NaN after the rows where the kernels ask for strides of 16 bytes, and below them."""
    width = columns if dtype == torch.float32 else -(-columns // 8) * 8
    return torch.full((rows + 64, width), float("nan"), dtype=dtype, device="cuda")[:rows, :columns]


def draw(rows, columns, dtype, transposed, generator):
    t = padded(columns, rows, dtype).T if transposed else padded(rows, columns, dtype)
    return t.copy_(torch.randn(rows, columns, generator=generator, device="cuda"))


def naive(a, b):
    """As the simplest kernel would: f32 sums one k after the other, rounded to the operands' type."""
    if a.dtype == torch.bfloat16:
        return (a.float() @ b.float()).bfloat16()
    total = torch.zeros(a.shape[0], b.shape[1], device="cuda")
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[k]
    return total


def check(kernel, hung_file, cases, bits):
    """The worst error over the bound, and what failed. bits: the f32 rungs' results so far, all equal."""
    worst, failures = 0.0, []
    for i, (m, n, k) in enumerate(cases):
        g = torch.Generator(device="cuda").manual_seed(100 + i)
        a = draw(m, k, kernel.dtype, kernel.a_mn_major, g)
        b = draw(k, n, kernel.dtype, not kernel.b_mn_major, g)
        launch, c = kernel.bind(a, b)
        launch()
        finish(kernel.name, hung_file)
        first = c.clone()
        same = True
        for _ in range(3):
            c.fill_(float("nan"))
            launch()
            finish(kernel.name, hung_file)
            same = same and torch.equal(first, c)
        if kernel.dtype == torch.float32:
            same = same and torch.equal(first, bits.setdefault(i, first))
        around = bool(c._base[m:].isnan().all()) and bool(c._base[:m, n:].isnan().all())
        exact = a.double() @ b.double()
        err = (c.double() - exact).abs().max().item()
        bound = 2 * (naive(a, b).double() - exact).abs().max().item() + 2 ** -22 * exact.abs().max().item()
        worst = max(worst, err / bound) if err == err else float("inf")
        if not (err <= bound and same and around):
            failures.append(f"{(m, n, k)}: err {err:.2e} bound {bound:.2e} same bits {same} "
                            f"written past the end {not around}")
    return worst, failures


def report(rows, dtype, shape, layout, times):
    m, n, k = shape
    for name, ms in sorted(times.items(), key=lambda item: statistics.median(item[1])):
        tflops = [2 * m * n * k / t / 1e9 for t in (statistics.median(ms), max(ms), min(ms))]
        rows.append({"type": dtype, "m": m, "n": n, "k": k, "layout": layout, "kernel": name, "tflops": tflops[0],
                     "lowest": tflops[1], "highest": tflops[2]})
        print(f"{dtype} {m}x{n}x{k} {layout} {name:40} {tflops[0]:7.2f} ({tflops[1]:.2f}..{tflops[2]:.2f}) TFLOP/s",
              flush=True)


def divergence_runs(lib, cubin, blocks=1056, n_rounds=4096):
    handle = lib.load("divergence", cubin.encode())
    out = torch.empty(256 * blocks, device="cuda")
    return {f"{paths} paths by {'warp' if by_warp else 'lane'}":
            lambda paths=paths, by_warp=by_warp: lib.call("divergence", handle, ctypes.c_void_p(out.data_ptr()), blocks,
                                                          paths, by_warp, n_rounds)
            for by_warp, paths in ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (0, 32), (1, 1), (1, 32))}


def mean_runs(lib, cubin, n=1 << 28):
    handle = lib.load("mean", cubin.encode())
    x, y = torch.randn(n + 2, device="cuda"), torch.empty(n, device="cuda")
    return {f"mean of three, {'through shared memory' if is_shared else 'naive'}":
            lambda is_shared=is_shared: lib.call("mean", handle, ctypes.c_void_p(x.data_ptr()),
                                                 ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(n), is_shared)
            for is_shared in (0, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/cuda")
    parser.add_argument("--cubins")
    parser.add_argument("--variants", default="bench/cuda/variants.txt")
    parser.add_argument("--only", default="", help="kernels whose name has one of these words, by commas")
    parser.add_argument("--json", default="matmul.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="8192x8192x8192,4096x4096x4096,16384x2048x8192", help="m x n x k, by commas")
    parser.add_argument("--checks", type=int, default=len(CHECKS), help="shapes to check, 0 for none")
    parser.add_argument("--no-timing", action="store_true", help="checks only")
    parser.add_argument("--profile", action="store_true", help="launch each once, for ncu")
    parser.add_argument("--small", type=int, default=0, help="with --profile: N of all products, for sanitizers")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")
    hung_file = args.json + ".hung"
    hung = set(open(hung_file, encoding="utf-8").read().split()) if os.path.exists(hung_file) else set()
    lib = Library(f"{args.build}/bench/cuda/libbench_cuda_matmul.so")
    print(machine_state(), flush=True)

    kernels, rows, checks, bits = [], [], [], {}
    for name, source, v in read_variants(args.variants):
        cubin = f"{args.cubins}/{name}.cubin"
        if not source.startswith("matmul_") or name in hung or not any(w in name for w in args.only.split(",")):
            continue
        kernel = Kernel(lib, name, source, cubin, v)
        if args.profile:
            kernels.append(kernel)
            continue
        worst, failures = check(kernel, hung_file, CHECKS[:args.checks], bits)
        print(f"{'ok  ' if not failures else 'FAIL'} {name:40} error/bound {worst:.2f}", flush=True)
        for f in failures[:4]:
            print("     ", f)
        checks.append({"kernel": name, "cases": args.checks, "error_over_bound": worst, "failures": failures})
        if not failures:
            kernels.append(kernel)
    if args.no_timing:
        print_sum(checks)
        return

    g = torch.Generator(device="cuda").manual_seed(7)
    cases = [tuple(map(int, case.split("x"))) for case in args.cases.split(",")]
    groups = {}
    for kernel in kernels:
        for shape in [(RUNG_N,) * 3] if kernel.dtype == torch.float32 else cases:
            groups.setdefault((kernel.dtype, (args.small,) * 3 if args.small else shape, kernel.layout),
                              []).append(kernel)
    for (dtype, (m, n, k), layout), members in groups.items():
        a, b = draw(m, k, dtype, layout[1] == "m", g), draw(k, n, dtype, layout[4] == "k", g)
        runs = {kernel.name: kernel.bind(a, b)[0] for kernel in members}
        out = torch.empty(m, n, dtype=dtype, device="cuda")
        runs["cublas"] = lambda a=a, b=b, out=out: torch.matmul(a, b, out=out)
        if args.profile:
            print("profiled:", (m, n, k), layout, *runs, flush=True)
            profile(runs)
            continue
        report(rows, "f32" if dtype == torch.float32 else "bf16", (m, n, k), layout, interleaved(runs, args.rounds))
        if m == n == 8192:
            best = min((row for row in rows[-len(runs):] if row["kernel"] != "cublas"), key=lambda row: -row["tflops"])
            for name in ("cublas", best["kernel"]):
                mean, state = sustained(runs[name])
                print(f"   sustained {name:40} {2 * m * n * k / mean / 1e9:6.0f} TFLOP/s  {state}", flush=True)
        del runs, a, b
        torch.cuda.empty_cache()
    branches = divergence_runs(lib, f"{args.cubins}/divergence.cubin") if "div" in args.only or not args.only else {}
    if "mean" in args.only or not args.only:
        branches |= mean_runs(lib, f"{args.cubins}/mean.cubin")
    if args.profile:
        profile(branches)
        n = len(kernels) + len(branches)
        print(f"{n} cases of {len(kernels) + bool(branches)} variants")
        return
    branch_rows = [{"case": name, "ms": statistics.median(ms)} for name, ms in interleaved(branches, 1).items()]
    for row in branch_rows:
        print(f"{row['case']:20} {row['ms']:.3f} ms")
    write_result(args.json, "matmul_cuda", "bench/cuda/matmul.py", args.commit, rows, ["matmul*"], checks=checks,
                 divergence=branch_rows)


if __name__ == "__main__":
    main()
