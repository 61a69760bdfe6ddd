#!/usr/bin/env python3
"""Checks our attention kernels against float64 and times them beside PyTorch's, interleaved.

  bench/cuda/attention.py --build build/cuda --cubins DIR [--variants FILE] [--json FILE] [--quick]

DIR holds what `bench_cuda_compile DIR` wrote. FLOPs are 4 b hq sq sk d, causal counted half. Each number
is the median over rounds in which every kernel ran in turn on the same tensors. A variant that hangs ends
the process with status 3 after its name was added to FILE.hung; run again and it is skipped.
"""

import argparse
import ctypes
import itertools
import os
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_grid import Grid, Params
from harness import (finish, interleaved, machine_state, print_sum, profile, read_variants, sustained, time_ms,
                     write_result)

FIELDS = ("head_dim", "causal", "tile_n", "consumers", "stages", "ping_pong", "q_registers",
          "lazy_log2", "section_mb")

F8_NUMBERS = ("tile_n", "consumers", "stages", "ping_pong", "q_registers", "section_mb")

F32_FIELDS = ("head_dim", "causal", "tile_n", "consumers", "slots", "lazy_log2", "section_mb")
F32_SOURCE = "attention_f32_sm90.cu"

F32_PEERS = {"efficient": SDPBackend.EFFICIENT_ATTENTION}
PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}

# batch, seqlen_q, seqlen_k, query heads, KV heads
CHECKS = [(1, 128, 128, 1, 1), (2, 1, 1, 2, 1), (1, 1, 3, 2, 2), (1, 239, 1, 2, 1),
          (1, 799, 3, 1, 1), (1, 3, 513, 4, 1), (2, 113, 203, 4, 2), (1, 108, 256, 2, 2),
          (1, 1023, 1024, 2, 1), (1, 1024, 1023, 2, 2), (3, 333, 777, 6, 2), (1, 777, 333, 3, 3),
          (1, 2048, 2048, 8, 1), (5, 640, 640, 16, 16), (1, 4224, 4224, 2, 1)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.tegula_error.restype = ctypes.c_char_p
        for f in (self.lib.tegula_attention_load, self.lib.tegula_attention_f32_load,
                  self.lib.tegula_rung_load):
            f.restype = ctypes.c_void_p

    def attention(self, cubin, v):
        spec = (ctypes.c_int * len(FIELDS))(*[v[f] for f in FIELDS])
        handle = self.lib.tegula_attention_load(cubin.encode(), spec)
        assert handle, self.lib.tegula_error().decode()
        return Kernel(self.lib, self.lib.tegula_attention_launch, handle, False)

    def attention_f32(self, cubin, v):
        spec = (ctypes.c_int * len(F32_FIELDS))(*[v[f] for f in F32_FIELDS])
        handle = self.lib.tegula_attention_f32_load(cubin.encode(), spec)
        assert handle, self.lib.tegula_error().decode()
        return Kernel(self.lib, self.lib.tegula_attention_f32_launch, handle, False, torch.float32)

    def rung(self, cubin, head_dim):
        handle = self.lib.tegula_rung_load(cubin.encode(), ctypes.c_int(head_dim))
        assert handle, self.lib.tegula_error().decode()
        return Kernel(self.lib, self.lib.tegula_rung_launch, handle, head_dim == 0)


class Kernel:
    def __init__(self, lib, call, handle, needs_scores, dtype=torch.bfloat16):
        self.lib, self.call, self.handle = lib, call, ctypes.c_void_p(handle)
        self.needs_scores, self.dtype = needs_scores, dtype
        self.counter = torch.zeros(1, dtype=torch.int32, device="cuda")

    def bind(self, q, k, v, is_causal, scale):
        """A function of no arguments that launches, and its outputs; tensors are [b, s, h, d]."""
        b, sq, hq, d = q.shape
        sk, hk = k.shape[1], k.shape[2]
        o = torch.full((b, sq, hq, d), float("nan"), dtype=q.dtype, device="cuda")
        lse = torch.full((b, hq, sq), float("nan"), device="cuda")
        extra = torch.empty(b * hq * sq * sk, device="cuda") if self.needs_scores else self.counter
        room = 0  # of the parts
        if self.dtype == torch.float32:
            room = 256 + 6 * b * (sq * hq + 2 * sk * hk) * (64 if d <= 64 else 128 if d <= 128 else 256)
        workspace = torch.empty(room, dtype=torch.uint8, device="cuda")
        pointers = (ctypes.c_void_p * 7)(*[t.data_ptr() for t in (q, k, v, o, lse, extra, workspace)])
        sizes = (ctypes.c_int64 * 7)(b, sq, sk, hq, hk, d, int(is_causal))
        strides = (ctypes.c_int64 * 12)(
            *[t.stride(i) for t in (q, k, v, o) for i in (0, 1, 2)])
        keep = (q, k, v, o, lse, extra, workspace)

        def launch(_keep=keep):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            rc = self.call(self.handle, pointers, sizes, strides, ctypes.c_float(scale), stream)
            assert rc == 0, self.lib.tegula_error().decode()
        return launch, o, lse


def reference(q, k, v, is_causal, scale, dtype):
    """o and lse in `dtype`; for bfloat16 with f32 scores and bf16 weights, as a naive kernel would."""
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    sq, sk, g = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    q, k, v = (t.to(compute).transpose(1, 2) for t in (q, k, v))
    k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    s = q @ k.transpose(2, 3) * scale
    if is_causal:
        hidden = torch.ones(sq, sk, dtype=torch.bool, device="cuda").tril(sk - sq).logical_not()
        s.masked_fill_(hidden, float("-inf"))
    lse = torch.logsumexp(s, -1)
    w = torch.exp(s - torch.where(lse.isinf(), torch.zeros_like(lse), lse)[..., None])
    if dtype == torch.bfloat16:
        w = w.bfloat16().float()
    return (w @ v).transpose(1, 2), lse


def inputs(b, sq, sk, hq, hk, d, seed, spread=1.0, packed=False, dtype=torch.bfloat16):
    g = torch.Generator(device="cuda").manual_seed(seed)
    def draw(s, h):
        return torch.randn(b, s, h, d, generator=g, device="cuda") * spread
    if packed:  # q, k and v side by side in one tensor
        all_heads = torch.cat([draw(sq, hq), draw(sq, hk), draw(sq, hk)], 2).to(dtype)
        return all_heads.split([hq, hk, hk], 2)
    return [t.to(dtype) for t in (draw(sq, hq), draw(sk, hk), draw(sk, hk))]


def check(name, kernel, d, is_causal, hung_file, cases, launch_only=False):
    """The worst error over the bound, and what failed."""
    torch.backends.cuda.matmul.allow_tf32 = False
    worst, failures = 0.0, []
    for i, (b, sq, sk, hq, hk) in enumerate(cases):
        for spread in (1.0, 6.0) if i % 4 == 0 else (1.0,):
            dtype = kernel.dtype
            q, k, v = inputs(b, sq, sk, hq, hk, d, 100 + i, spread, sq == sk, dtype)
            scale = d ** -0.5
            launch, o, lse = kernel.bind(q, k, v, is_causal, scale)
            launch()
            finish(name, hung_file)
            if launch_only:
                continue
            first = o.clone()
            for _ in range(3):
                launch()
            finish(name, hung_file)
            ref, ref_lse = reference(q, k, v, is_causal, scale, torch.float64)
            naive, naive_lse = reference(q, k, v, is_causal, scale, dtype)
            err = (o.double() - ref).abs().max().item()
            bound = 2 * (naive.to(dtype).double() - ref).abs().max().item() + 1e-6
            if dtype == torch.float32:  # half an ulp
                bound += 2 ** -25 * ref.abs().max().item() - 9e-7
            seen = ~ref_lse.isinf()
            lse_same = bool((lse.isinf() == ref_lse.isinf()).all())
            lse_err = (lse.double() - ref_lse)[seen].abs().max().item() if seen.any() else 0.0
            lse_bound = 2 ** -20 * (1 + ref_lse[seen].abs().max().item()) if seen.any() else 0.0
            lse_bound += 2 * (naive_lse.double() - ref_lse)[seen].abs().max().item() if seen.any() else 0.0
            ok = err <= bound and lse_same and lse_err <= lse_bound and torch.equal(first, o)
            if kernel.counter.item() != 0:
                ok = False
            worst = max(worst, err / bound) if err == err else float("inf")
            if not ok:
                failures.append(f"{(b, sq, sk, hq, hk)} x{spread}: err {err:.2e} bound {bound:.2e} "
                                f"lse {lse_err:.2e} bound {lse_bound:.2e} {lse_same} "
                                f"repeat {torch.equal(first, o)} counter {kernel.counter.item()}")
                kernel.counter.zero_()
    return worst, failures


def peer(backend, q, k, v, is_causal):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    def launch():
        with sdpa_kernel(backend):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return launch


def allowed(runs):
    """Those that run: a peer may not have a shape."""
    out = {}
    for name, launch in runs.items():
        try:
            launch()
            torch.cuda.synchronize()
            out[name] = launch
        except RuntimeError as e:
            print(f"   {name}: {str(e).splitlines()[0]}")
    return out


def outputs(q):
    """o, lse and a counter for a launch."""
    b, n, h, _ = q.shape
    return (torch.empty_like(q), torch.empty(b, h, n, device="cuda"),
            torch.zeros(1, dtype=torch.int32, device="cuda"))


def f8_runs(grid, variants, q, k, v, is_causal):
    """The chosen kernel of bf16, and those of e4m3 with a factor for each head, as variants.txt has them."""
    d, params = q.shape[3], Params(left=-1, right=-1)
    plain, low = (d, is_causal, 0, (), "", ""), (d, is_causal, 0, ("f8",), "", "")
    runs = {"bf16": grid.bind(grid.open(plain), plain, params, (q, k, v, *outputs(q)), is_causal, d ** -0.5)}
    tensors, factors = zip(*[quantised(x) for x in (q, k, v)])
    for name, n in variants.items():
        if (n["head_dim"], n["causal"]) == (d, is_causal):
            handle = grid.load(low, f"{grid.cubins.decode()}/{name}.cubin", [n[f] for f in F8_NUMBERS])
            runs[name] = grid.bind(handle, low, params, (*tensors, *outputs(q)), is_causal, d ** -0.5, factors)
    return runs


def quantised(x):
    """x [b, s, h, d] as e4m3, and what it is to be multiplied with [b, h]."""
    factor = x.float().abs().amax((1, 3)) / 448
    return (x.float() / factor[:, None, :, None]).to(torch.float8_e4m3fn), factor


def window_runs(grid, q, k, v, left):
    """Query i sees the keys [i - left, i]: ours, and PyTorch's flash attention."""
    b, n, h, d = q.shape
    variant = (d, 1, 0, ("window",), "", "")
    ours = grid.bind(grid.open(variant), variant, Params(left=left, right=-1),
                     (q, k, v, *outputs(q)), True, d ** -0.5)

    def flash():
        torch.ops.aten._flash_attention_forward(q, k, v, None, None, n, n, 0.0, True, False,
                                                scale=d ** -0.5, window_size_left=left,
                                                window_size_right=0)
    return {f"d{d}_causal_window{left}": ours, "flash": flash}


def mma_runs(grid, variants, q, k, v, is_causal):
    """The rung by mma.sync as variants.txt has it, and PyTorch's flash attention, which uses mma.sync too."""
    d, runs = q.shape[3], {"flash": peer(SDPBackend.FLASH_ATTENTION, q, k, v, bool(is_causal))}
    rung = (d, is_causal, 0, ("mma",), "", "")
    for name, n in variants.items():
        if (n["head_dim"], n["causal"]) == (d, is_causal):
            handle = grid.load(rung, f"{grid.cubins.decode()}/{name}.cubin", (n["tile_n"], n["groups"]))
            runs[name] = grid.bind(handle, rung, Params(left=-1, right=-1), (q, k, v, *outputs(q)), is_causal,
                                   d ** -0.5)
    return runs


def report(rows, what, d, is_causal, n, flops, times):
    for name, ms in times.items():
        tflops = [flops / t / 1e9 for t in (statistics.median(ms), max(ms), min(ms))]
        rows.append(result_row(what, d, is_causal, n, name, *tflops))
        print(f"{what} d{d} {'causal' if is_causal else 'full':6} N{n:6} {name:40} {tflops[0]:6.0f} "
              f"({tflops[1]:.0f}..{tflops[2]:.0f}) TFLOP/s", flush=True)


def result_row(what, head_dim, is_causal, seqlen, kernel, tflops, lowest=None, highest=None):
    return {"what": what, "head_dim": head_dim, "mask": "causal" if is_causal else "full",
            "seqlen": seqlen, "kernel": kernel, "tflops": tflops, "lowest": lowest,
            "highest": highest}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/cuda")
    parser.add_argument("--cubins", required=True)
    parser.add_argument("--variants", default="bench/cuda/variants.txt")
    parser.add_argument("--json", default="attention.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer checks")
    parser.add_argument("--launch-only", action="store_true", help="check and time nothing, for sanitizers")
    parser.add_argument("--no-timing", action="store_true", help="checks only")
    parser.add_argument("--profile", action="store_true", help="launch each once, for ncu")
    parser.add_argument("--name", default="attention_cuda", help="of the result")
    parser.add_argument("--ours", action="store_true", help="time no peers")
    parser.add_argument("--no-sustained", action="store_true", help="no longer stretches with clock and power")
    parser.add_argument("--f32", action="store_true", help="the kernels of f32 instead")
    parser.add_argument("--rungs", action="store_true", help="time the lower rungs too")
    parser.add_argument("--cases", default="128:0:16384,128:1:16384,128:1:4096,128:1:1024,"
                        "64:0:16384,64:1:16384,64:1:1024,256:0:16384,256:1:16384,"
                        "192:0:16384,192:1:16384,96:0:16384,96:1:16384",
                        help="head_dim:causal:seqlen,...")
    parser.add_argument("--windows", default="128:1024:16384,64:1024:16384,256:1024:16384",
                        help="head_dim:keys before a query's own:seqlen,...")
    parser.add_argument("--f8", default="128:0:16384,128:1:16384,128:1:4096,128:1:1024,64:0:16384,64:1:16384,256:0:16384,"
                        "256:1:16384",
                        help="of e4m3 beside bf16; head_dim:causal:seqlen,...")
    parser.add_argument("--mma", default="", help="the rung by mma.sync; head_dim:causal:seqlen,...")
    args = parser.parse_args()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    hung_file = args.json + ".hung"
    hung = set(open(hung_file, encoding="utf-8").read().split()) if os.path.exists(hung_file) else set()
    lib = Library(f"{args.build}/bench/cuda/libbench_cuda_attention.so")
    print(machine_state(), flush=True)
    f8 = {name: v for name, _, v in read_variants(args.variants) if "f8" in v}
    variants = {name: v for name, source, v in read_variants(args.variants)
                if source == (F32_SOURCE if args.f32 else "attention_sm90.cu")
                and not {"window", "f8"} & set(v)}
    kernels, rows, checks = {}, [], []
    cases = [] if args.profile else CHECKS[::3] if args.quick else CHECKS
    for name, v in variants.items():
        cubin = f"{args.cubins}/{name}.cubin"
        if name in hung or not os.path.exists(cubin):
            print(f"skipped {name}")
            continue
        kernel = lib.attention_f32(cubin, v) if args.f32 else lib.attention(cubin, v)
        worst, failures = check(name, kernel, v["head_dim"], v["causal"], hung_file, cases, args.launch_only)
        print(f"{'ok  ' if not failures else 'FAIL'} {name:40} error/bound {worst:.2f}", flush=True)
        for f in failures[:4]:
            print("     ", f)
        checks.append({"kernel": name, "cases": len(cases), "error_over_bound": worst,
                       "failures": failures})
        if not failures:
            kernels[name] = kernel
    rungs = {}
    for d in (64, 128) if args.rungs else ():
        for name, kernel in ((f"naive_d{d}", lib.rung(f"{args.cubins}/naive.cubin", 0)),
                             (f"tiled_d{d}", lib.rung(f"{args.cubins}/tiled_d{d}.cubin", d))):
            for is_causal in (False, True):
                worst, failures = check(name, kernel, d, is_causal, hung_file, cases[:-2], args.launch_only)
                print(f"{'ok  ' if not failures else 'FAIL'} {name:12} error/bound {worst:.2f}",
                      flush=True)
                for f in failures[:4]:
                    print("     ", f)
                checks.append({"kernel": name, "causal": is_causal, "cases": len(cases[:-2]),
                               "error_over_bound": worst, "failures": failures})
            rungs[name] = kernel

    print_sum(checks)
    if args.no_timing or args.launch_only:
        return
    a = torch.randn(8192, 8192, device="cuda").bfloat16()
    gemm = 2 * 8192 ** 3 / time_ms(lambda a=a: a @ a, 0.15 if not args.profile else 0) / 1e9
    print(f"cuBLASLt 8192^3 bf16: {gemm:.0f} TFLOP/s", flush=True)
    rows.append({"what": "matmul", "seqlen": 8192, "kernel": "cublaslt", "tflops": gemm})
    del a
    for case in args.cases.split(",") if args.cases else ():
        d, is_causal, n = map(int, case.split(":"))
        b, h = 16384 // n, max(1, 2048 // d)
        dtype, peers = (torch.float32, F32_PEERS) if args.f32 else (torch.bfloat16, PEERS)
        q, k, v = inputs(b, n, n, h, h, d, 7, dtype=dtype)
        flops = 4 * b * h * n * n * d / (2 if is_causal else 1)
        peers = {} if args.ours else peers
        runs = {name: peer(backend, q, k, v, bool(is_causal)) for name, backend in peers.items()}
        for name, kernel in kernels.items():
            if (variants[name]["head_dim"], variants[name]["causal"]) == (d, is_causal):
                runs[name] = kernel.bind(q, k, v, bool(is_causal), d ** -0.5)[0]
        runs = allowed(runs)
        best = next(name for name in runs if name in kernels)
        if args.profile:
            profile(runs)
        else:
            times = interleaved(runs, args.rounds)
            report(rows, "forward f32" if args.f32 else "forward", d, is_causal, n, flops, times)
            best = min((name for name in runs if name in kernels),
                       key=lambda name: statistics.median(times[name]))
        if n == 16384 and not args.profile and not args.no_sustained:
            for name in (*list(peers)[:1], best):
                mean, state = sustained(runs[name])
                print(f"   sustained {name:40} {flops / mean / 1e9:6.0f} TFLOP/s  {state}", flush=True)
        del runs, q, k, v
        torch.cuda.empty_cache()
    for case in args.f8.split(",") if args.f8 and not args.profile and not args.f32 else ():
        d, is_causal, n = map(int, case.split(":"))
        b, h = 16384 // n, max(1, 2048 // d)
        q, k, v = inputs(b, n, n, h, h, d, 7)
        report(rows, "forward e4m3", d, is_causal, n, 4 * b * h * n * n * d / (2 if is_causal else 1),
               interleaved(f8_runs(Grid(args.build, args.cubins), f8, q, k, v, is_causal), args.rounds))
        del q, k, v
        torch.cuda.empty_cache()
    mma = {name: v for name, source, v in read_variants(args.variants) if source == "attention_mma.cu"}
    for case in args.mma.split(",") if args.mma else ():
        d, is_causal, n = map(int, case.split(":"))
        b, h = 16384 // n, max(1, 2048 // d)
        q, k, v = inputs(b, n, n, h, h, d, 7)
        report(rows, "forward mma.sync", d, is_causal, n, 4 * b * h * n * n * d / (2 if is_causal else 1),
               interleaved(allowed(mma_runs(Grid(args.build, args.cubins), mma, q, k, v, is_causal)), args.rounds))
        del q, k, v
        torch.cuda.empty_cache()
    for case in args.windows.split(",") if args.windows and not args.profile and not args.f32 else ():
        d, left, n = map(int, case.split(":"))
        b, h = 16384 // n, max(1, 2048 // d)
        q, k, v = inputs(b, n, n, h, h, d, 7)
        pairs = sum(min(i, left) + 1 for i in range(n))
        report(rows, f"forward window {left}", d, 1, n, 4 * b * h * pairs * d,
               interleaved(allowed(window_runs(Grid(args.build, args.cubins), q, k, v, left)),
                           args.rounds))
    if args.rungs:
        for d, is_causal in itertools.product((128,), (0, 1)):
            b, h, n = 1, 16, 4096
            q, k, v = inputs(b, n, n, h, h, d, 7)
            flops = 4 * b * h * n * n * d / (2 if is_causal else 1)
            for name in (f"naive_d{d}", f"tiled_d{d}"):
                launch = rungs[name].bind(q, k, v, bool(is_causal), d ** -0.5)[0]
                if args.profile:
                    profile({name: launch})
                    continue
                ms = time_ms(launch)
                rows.append(result_row("forward", d, is_causal, n, name, flops / ms / 1e9))
                print(f"rung {name} {'causal' if is_causal else 'full'} N{n}: "
                      f"{flops / ms / 1e9:.2f} TFLOP/s", flush=True)
    write_result(args.json, args.name, "bench/cuda/attention.py", args.commit, rows,
                 ["attention_f32*"] if args.f32 else ["attention_sm90*", "attention_f8*", "attention_mma*"], checks=checks)


if __name__ == "__main__":
    main()
