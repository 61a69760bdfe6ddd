#!/usr/bin/env python3
"""The attention backward: random cases of every feature against float64, and times beside PyTorch's.

  bench/cuda/attention_bwd.py --cubins DIR [--build build/cuda] [--compile] [--cases N] [--json FILE]
                              [--timings d:causal:N,...] [--repeats N] [--shapes N] [--launch-only]

--compile only compiles the variants into DIR, which needs no GPU. The error of a gradient may be twice that
of a naive kernel in the same precision, plus half an ulp of its largest value (those of a bias and of sinks
are f32), 2^-20 of the largest of all gradients and, but for dv and sinks, one rounding of dP - delta: where a row
sees one key the difference is 0, and what is left is as large as the rounding of its terms. The naive
kernel may be exact by luck: where a gradient in f32, or one of dq, dk and dv of fewer than 64 elements, is out
of bound, its error is that of the worst of eight draws of the operands. What the reference has as NaN must be
NaN, and nothing else. FLOPs are 10 b hq sq sk d, causal counted half; timed as attention.py does.
"""

import argparse
import ctypes
import itertools
import os
import random
import sys
import time

from attention_grid import LENGTHS, MMA_KB, compare, family_of, given, seed_of, spec_of, variants

FEW = 64  # elements of a gradient

TIMINGS = ("256:0:16384,256:1:16384,192:0:16384,192:1:16384,128:0:16384,128:1:16384,128:1:4096,"
           "128:1:1024,96:0:16384,96:1:16384,64:0:16384,64:1:16384,64:1:4096,64:1:1024")


class Backward:
    """A variant (see attention_grid.variants), compiled into `cubins` if it is not there."""
    lib = None

    def __init__(self, build, cubins, variant, ordered=0, tiles=None):
        if Backward.lib is None:
            Backward.lib = ctypes.CDLL(f"{build}/bench/cuda/libbench_cuda_attention.so")
            self.lib.tegula_error.restype = ctypes.c_char_p
            self.lib.tegula_bwd_open.restype = ctypes.c_void_p
            self.lib.tegula_bwd_workspace_bytes.restype = ctypes.c_int64
        self.spec, self.sizes = spec_of(variant)
        self.ordered, self.cubins = ordered, cubins.encode()
        self.tiles = (ctypes.c_int * 6)(*tiles) if tiles else None
        self.handle = None

    def fail(self):
        return self.lib.tegula_error().decode()

    def compile(self):
        """Whether it does without loss."""
        rc = self.lib.tegula_bwd_compile(self.sizes, ctypes.byref(self.spec), self.ordered,
                                         self.cubins, self.tiles)
        if rc != 0:
            print(self.fail(), flush=True)
        return rc == 0

    def open(self):
        handle = self.lib.tegula_bwd_open(self.sizes, ctypes.byref(self.spec), self.ordered,
                                          self.cubins, self.tiles)
        assert handle, self.fail()
        self.handle = ctypes.c_void_p(handle)
        self.is_ordered = self.lib.tegula_bwd_repeats(self.handle)
        return self

    def bind(self, case, o, lse, d_lse=None):
        """A function of no arguments that launches, and the gradients by name."""
        import torch
        def like(x):
            y = torch.full_like(x, float("nan")) if x.is_contiguous() else case.lay_out(
                torch.full(x.shape, float("nan"), device="cuda"))
            return y
        grads = {"dq": like(case.q), "dk": like(case.k), "dv": like(case.v)}
        if case.bias is not None:
            grads["dbias"] = torch.zeros(case.bias.shape, device="cuda")
        if case.sinks is not None:
            grads["dsinks"] = torch.full_like(case.sinks, float("nan"))
        keep, params = given(case)
        sizes = (ctypes.c_int64 * 7)(case.b, case.sq, case.sk, case.hq, case.hk, case.d, case.causal)
        n = self.lib.tegula_bwd_workspace_bytes(self.handle, sizes, ctypes.byref(self.spec),
                                                ctypes.c_int64(params.n_sequences))
        # Only what the kernels fill may be read: the rest is NaN, or known to initcheck.
        workspace = torch.empty(n // 4, device="cuda")
        if "TEGULA_UNINITIALIZED" not in os.environ:
            workspace.fill_(float("nan"))
        tensors = (case.q, case.k, case.v, o, case.do, grads["dq"], grads["dk"], grads["dv"])
        more = (lse, d_lse, grads.get("dbias"), grads.get("dsinks"), workspace)
        pointers = (ctypes.c_void_p * 13)(*[None if t is None else t.data_ptr() for t in tensors + more])
        strides = (ctypes.c_int64 * 24)(*[t.stride(i) for t in tensors for i in (0, 1, 2)])

        def launch(_keep=(tensors, more, keep)):
            if "dbias" in grads:
                grads["dbias"].zero_()
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            rc = self.lib.tegula_bwd_launch(self.handle, pointers, sizes, strides,
                                            ctypes.c_float(case.scale), ctypes.byref(self.spec),
                                            ctypes.byref(params), stream)
            if rc != 0:
                raise RuntimeError(self.fail())
        return launch, grads


def unleaked(a, b, sees):
    """a @ b, where row j of b reaches row i only if sees[i, j]; a is 0 where it does not."""
    import torch
    bad = torch.isnan(b)
    if not bad.any():
        return a @ b
    reached = sees.to(b.dtype) @ bad.to(b.dtype) > 0
    return (a @ torch.where(bad, torch.zeros_like(b), b)).masked_fill(reached, float("nan"))


def gradients(case, o, lse, d_lse, dtype):
    """dq, dk, dv and those of bias and sinks, of o and lse as they are given; torch.float64, or the case's
    dtype for f32 sums, and P and dS rounded to 16 bits."""
    import torch
    low = dtype != torch.float64
    compute = torch.float32 if low else torch.float64
    g, hk = case.hq // case.hk, case.hk
    q, k, v, do, o = (t.to(compute).transpose(1, 2) for t in (case.q, case.k, case.v, case.do, o))
    k, v = (t.repeat_interleave(g, 1) for t in (k, v))
    lse = lse.to(compute)
    raw = (q @ k.transpose(2, 3)) * torch.tensor(case.scale, dtype=torch.float32).to(compute).item()
    raw.requires_grad_()
    s, sees = case.scores(raw)
    slope = torch.autograd.grad(s.sum(), raw)[0] if s.numel() else s
    s = s.detach()
    none = lse == float("-inf")
    p = torch.exp(s - torch.where(none, torch.zeros_like(lse), lse)[..., None])
    p = torch.where(sees & ~none[..., None], p, torch.zeros_like(p))
    delta = (o * do).sum(-1)
    if d_lse is not None:
        delta = delta - d_lse.to(compute)
    ds = p * (case.dropped(do @ v.transpose(2, 3)) - delta[..., None])
    sees = sees & ~none[..., None]
    ds = torch.where(sees, ds, torch.zeros_like(ds))
    out = {}
    if case.bias is not None:
        dims = [n for n in range(3) if case.bias.shape[n] == 1]
        out["dbias"] = ds.sum(dims, keepdim=True) if dims else ds
    if case.sinks is not None:
        with_sink = torch.exp(case.sinks.to(compute)[:, None] - lse) * delta
        out["dsinks"] = -torch.where(none, torch.zeros_like(lse), with_sink).sum((0, 2))
    ds = torch.where(sees, ds * slope, torch.zeros_like(ds))
    def rounded(x):
        return x.to(case.dtype).to(compute) if low else x
    def of_keys(x):
        return x.view(case.b, hk, g, case.sk, case.d).sum(2).transpose(1, 2)
    seen_by = sees.transpose(2, 3)
    out["dq"] = (unleaked(rounded(ds), k, sees) * case.scale).transpose(1, 2)
    out["dk"] = of_keys(unleaked(rounded(ds).transpose(2, 3), q, seen_by) * case.scale)
    out["dv"] = of_keys(unleaked(rounded(case.dropped(p)).transpose(2, 3), do, seen_by))
    return out


def poison(case, rng):
    """NaN instead of infinities, and in a query too."""
    import torch
    for t in (case.k, case.v):
        if t.numel():
            t[torch.isinf(t)] = float("nan")
    if torch.isnan(case.v).any() and case.sq > 1 and rng.random() < 0.7:
        rng.choice([case.q, case.do])[:, rng.randrange(case.sq)] = float("nan")


def check(kernel, case, rng, redraw, launch_only=False):
    """The worst error over its bound of each gradient, and whether bits repeat that should."""
    import torch
    from harness import finish
    poison(case, rng)
    o, lse = case.reference(torch.float64)
    d_lse = None
    if rng.random() < 0.3:
        d_lse = torch.randn(lse.shape, generator=torch.Generator().manual_seed(rng.randrange(1 << 40))).to(o.device)
    low_o, lse32 = case.lay_out(o), lse.float().contiguous()
    launch, grads = kernel.bind(case, low_o, lse32, d_lse)
    launch()
    finish("attention_bwd", "attention_bwd.hung")
    if launch_only:
        return {}, True
    first = {name: g.clone() for name, g in grads.items()}
    launch()
    finish("attention_bwd", "attention_bwd.hung")
    sums = case.bias is not None and 1 in case.bias.shape[:3] and case.b * case.hq * case.sq > 1
    fixed = {"dk", "dv", "dsinks"} | ({"dq"} if kernel.is_ordered else set()) | (
        set() if sums else {"dbias"})
    repeats = all(torch.equal(g.nan_to_num(7.0), first[name].nan_to_num(7.0))
                  for name, g in grads.items() if name in fixed)
    exact = gradients(case, o, lse, d_lse, torch.float64)
    naive = gradients(case, low_o, lse32, d_lse, case.dtype)
    largest = max((e[torch.isfinite(e)].abs().max().item() for e in exact.values()
                   if torch.isfinite(e).any()), default=0.0)
    rounding = rounding_of_ds(case)
    def bounded(draws):
        worst = {}
        for name, e in exact.items():
            got, low = grads[name], naive[name]
            floor = 2.0 ** -20 * largest + 1e-7 + rounding.get(name, 0.0)
            half_ulp = 2.0 ** -24
            if name[1] in "qkv":
                low, half_ulp = low.to(case.dtype), case.half_ulp
            if e.numel() > 0:
                worst[name] = compare(got, e, low, half_ulp, floor, draws.get(name, 0.0))
        return worst
    worst = bounded({})
    lucky = [name for name, e in exact.items()
             if case.kind == 2 or (name[1] in "qkv" and e.numel() < FEW)]
    if any(worst.get(name, 0) > 1 for name in lucky):
        draws = [naive_errors(redraw(n), d_lse) for n in range(8)]
        worst = bounded({name: max(d[name] for d in draws) for name in lucky})
    return worst, repeats


def naive_errors(case, d_lse):
    """Of each gradient; 0 where there is none."""
    import torch
    o, lse = case.reference(torch.float64)
    naive, out = gradients(case, o.to(case.dtype), lse.float(), d_lse, case.dtype), {}
    for name, e in gradients(case, o, lse, d_lse, torch.float64).items():
        e = (naive[name].double() - e).abs()
        e = e[torch.isfinite(e)]
        out[name] = e.max().item() if e.numel() else 0.0
    return out


def rounding_of_ds(case):
    """What rounding dP - delta to f32 once, at the size of its terms, makes of dq, dk and the gradient of a bias,
    which is the difference itself."""
    import torch
    g, low = case.hq // case.hk, torch.float32
    do, v = (t.to(low).transpose(1, 2).abs().nan_to_num(0) for t in (case.do, case.v))
    if case.sq * case.sk == 0:
        return {}
    terms = (do @ v.repeat_interleave(g, 1).transpose(2, 3)).max().item()
    one = 2.0 ** -23 * terms
    def of(t):
        return one * case.scale * t.to(low).abs().nan_to_num(0).max().item()
    return {"dq": of(case.k), "dk": of(case.q), "dbias": one}


def all_variants():
    """Those of the grid as they come, and the ordered mode for a third of the narrow ones."""
    out = []
    for v in variants():
        if "f8" in v[3] or LENGTHS.keys() & set(v[3]) or (v[2] == 2 and v[0] > 128):
            continue
        if v[2] == 2 and {"bias32", "bias16"} & set(v[3]) and "softcap" in v[3]:
            v = (*v[:3], tuple(f for f in v[3] if f != "softcap"), *v[4:])  # not both in f32
        if v[0] == 256 and len(v[3]) > 4:
            v = (192, *v[1:])  # all at once spills in the widest
        out.append((v, 0))
        of_mma = MMA_KB.keys() & set(v[3])
        heavy = set(v[3]) - {"window", "packed", "documents", "sinks", *MMA_KB} or v[4] or v[5]
        if v[2] == 2 or ((v[0] <= 128 or of_mma) and not heavy):
            out.append((v, 1))
    out += [((d, 0, 0, ("bias32",), "", ""), 0) for d in (192, 256)]
    return list(dict.fromkeys(out))


def wanted(args, v):
    return args.only in str(v) and args.family in ("", family_of(v))


def edge_cases(variant, launch_only):
    """Of a variant, beside those at random: without queries, and without keys; a bias of which a tile ends behind
    the last row, at the end of its tensor; tiles of queries that one block alone sees, between others; and batch
    entries 2^30 elements apart."""
    from attention_reference import Case
    d, causal, kind, names, score_fn, mask_fn = variant
    if score_fn or mask_fn or len(names) > 1:
        return
    name = names[0] if names else ""
    features = {"bias32": {"bias": (1, (False,) * 3)}, "bias16": {"bias": (2, (False,) * 3)},
                "window": {"window": (3, 3)}, "mma": {}, "": {}}.get(name)
    shapes = {"bias32": [(1, 65, 128, 1, 1), (3, 1, 1, 6, 2)],
              "bias16": [(1, 65, 128, 1, 1), (3, 1, 1, 6, 2)], "window": [(1, 640, 640, 4, 4)],
              "mma": [(2, 0, 200, 4, 2), (2, 200, 0, 4, 2)], "": [(2, 0, 200, 4, 2), (2, 200, 0, 4, 2)]}.get(name, ())
    if not names and kind == 0 and not launch_only:
        yield lambda operands=9: Case(3, 100, 150, 4, 2, d, causal, kind, seed=operands, layout="far")
    for seed, shape in enumerate(shapes):
        yield lambda operands=seed, shape=shape: Case(*shape, d, causal, kind, seed=operands, **features)


def run_checks(args, rows):
    from attention_reference import draw_case
    start, n, failures, worst = time.time(), 0, 0, 0.0
    todo = [(v, o) for v, o in all_variants() if wanted(args, v)][args.part::args.parts]
    for v, ordered in todo:
        if time.time() - start > args.seconds:
            break
        of_variant, failed = 0.0, []
        try:
            kernel = Backward(args.build, args.cubins, v, ordered).open()
        except AssertionError as e:
            print(f"no variant {v}: {e}", flush=True)
            failures += 1
            continue
        d, causal, kind, names, score_fn, mask_fn = v
        cases = [lambda operands=None, seed=seed_of(v, ordered, k): draw_case(seed, causal, kind, d, names, score_fn,
                                                                              mask_fn, operands=operands)
                 for k in range(args.first, args.first + args.cases)]
        for k, drawn in enumerate([*cases, *edge_cases(v, args.launch_only)], args.first):
            case, rng = drawn(), random.Random(seed_of(v, ordered, k))
            if args.launch_only:
                print(v, ordered, k, flush=True)  # the last one is where a tool broke down
            errors, repeats = check(kernel, case, rng, lambda n, drawn=drawn: drawn(operands=1 + n), args.launch_only)
            n += 1
            of_variant = max([of_variant, *errors.values()])
            if max(errors.values(), default=0) > 1 or not repeats:
                failed.append(f"case {k} b{case.b} sq{case.sq} sk{case.sk} h{case.hq}/{case.hk} "
                              f"d{case.d} {case.layout} window {case.window} packed {case.packed} "
                              f"documents {case.documents}: repeats {repeats} "
                              + " ".join(f"{a} {e:.2f}" for a, e in errors.items()))
        failures, worst = failures + len(failed), max(worst, of_variant)
        rows.append({"variant": str(v), "ordered": ordered, "error_over_bound": of_variant,
                     "failures": failed})
        if failed:
            print(f"FAIL {v} ordered {ordered}: {len(failed)} cases", flush=True)
            for f in failed[:2]:
                print("     ", f[:300], flush=True)
    print(f"{n} cases of {len(rows)} variants in {time.time() - start:.0f} s: {failures} failed, "
          f"worst error/bound {worst:.2f}", flush=True)
    return failures


def timed_case(d, causal, n, kind=0, **features):
    from attention_reference import Case
    b, h = 16384 // n, max(1, 2048 // d)
    return Case(b, n, n, h, h, d, causal, kind, **features)


def forward(case):
    """o [b, s, h, d] and lse [b, h, s] by PyTorch's kernel, for timings."""
    import torch
    tensors = [t.transpose(1, 2) for t in (case.q, case.k, case.v)]
    if case.kind == 2:
        o, lse = torch.ops.aten._scaled_dot_product_efficient_attention(
            *tensors, None, True, 0.0, bool(case.causal))[:2]
        return o.transpose(1, 2), lse[..., :case.sq].contiguous()
    o, lse = torch.ops.aten._scaled_dot_product_flash_attention(*tensors, 0.0, bool(case.causal))[:2]
    return o.transpose(1, 2), lse


def peer(backend, case):
    import torch
    from torch.nn.attention import sdpa_kernel
    q, k, v = (t.transpose(1, 2).detach().requires_grad_() for t in (case.q, case.k, case.v))
    with sdpa_kernel(backend):
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(case.causal))
    do = case.do.transpose(1, 2)
    return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)


def run_repeats(args):
    """Bitwise repeats of what is ordered, at a size that fills the device."""
    import torch
    failures = 0
    cases = [(d, int(d <= 128 or bool(names)), 0, names) for names in ((), ("mma",)) for d in (64, 96, 128, 192, 256)]
    for d, ordered, kind, names in [*cases, (64, 1, 2, ()), (128, 1, 2, ())]:
        variant = (d, 1, kind, names, "", "")
        if not wanted(args, variant):
            continue
        kernel = Backward(args.build, args.cubins, variant, ordered).open()
        case = timed_case(d, 1, 2048, kind, seed=d)
        o, lse = forward(case)
        launch, grads = kernel.bind(case, o, lse)
        launch()
        first = {name: g.clone() for name, g in grads.items()}
        same = 0
        for _ in range(args.repeats):
            launch()
            same += all(torch.equal(g, first[name]) for name, g in grads.items())
        print(f"d{d} {' '.join(names)}{'f32 ' * (kind == 2)}ordered: {same} of {args.repeats} repeats have the same bits",
              flush=True)
        failures += same != args.repeats
    return failures


def run_shapes(args):
    """The ordered mode over shapes of few blocks and many, few keys and many: it ends, repeats its bits, and agrees
    with the other mode."""
    import torch
    from attention_reference import Case
    shapes = ((1, 16384, 16384, 1, 1), (1, 65536, 65536, 1, 1), (1, 16384, 16384, 2, 1), (1, 8192, 8192, 3, 3),
              (2, 4096, 4096, 8, 2), (1, 16384, 4096, 4, 4), (1, 100, 20000, 2, 2), (1, 20000, 100, 2, 2),
              (3, 1000, 1000, 5, 5), (16, 300, 300, 16, 1), (64, 64, 64, 32, 8), (2, 0, 300, 4, 2), (2, 300, 0, 4, 2))
    failures = 0
    for d, causal, kind in itertools.product((64, 96, 128), (0, 1), (0, 2)):
        variant = (d, causal, kind, (), "", "")
        if (d == 96 and kind == 2) or not wanted(args, variant):
            continue
        kernels = [Backward(args.build, args.cubins, variant, o).open() for o in (0, 1)]
        for b, sq, sk, hq, hk in shapes:
            case = Case(b, sq, sk, hq, hk, d, causal, kind)
            o, lse = torch.randn_like(case.q), torch.full((b, hq, sq), 3.0, device="cuda")
            (plain, want), (ordered, got) = (k.bind(case, o, lse) for k in kernels)
            plain(), ordered()
            first = {name: g.clone() for name, g in got.items()}
            wrong = [name for name, w in want.items() if w.numel() and (
                (w - got[name]).abs().max() > 0.02 * w.abs().max() or got[name].isnan().any())]
            for _ in range(args.shapes):
                ordered()
                wrong += [f"{name} again" for name, g in got.items() if not torch.equal(g, first[name])]
            failures += bool(wrong)
            if wrong:
                print(f"FAIL d{d} causal {causal} b{b} sq{sq} sk{sk} h{hq}/{hk}: {wrong[:4]}", flush=True)
        print(f"d{d} {'causal' if causal else 'full'} of type {kind}: {len(shapes)} shapes, {failures} failed so far", flush=True)
    return failures


def run_timings(args, rows):
    import statistics
    import torch
    from attention import F32_PEERS, PEERS
    from harness import interleaved
    for spec in args.timings.split(","):
        d, causal, n, kind = (*map(int, spec.split(":")), 0)[:4]
        case = timed_case(d, causal, n, kind, seed=7)
        o, lse = forward(case)
        runs = {}
        peers = F32_PEERS if kind == 2 else {"flash": PEERS["flash"]} if args.mma else PEERS
        for name, backend in peers.items() if not args.ours else ():
            run = peer(backend, case)
            try:
                run()
                runs[name] = run
            except RuntimeError as e:
                print(f"{name} d{d}: {str(e).splitlines()[0]}")
        for which in args.mma.split(";") if args.mma else ():
            tiles, _, kb = which.partition("@")
            numbers = [int(n) for n in tiles.split(",")] if tiles[0] in "1234" else None
            kernel = Backward(args.build, args.cubins, (d, causal, kind, ("mma" + kb,), "", ""),
                              int(tiles == "ordered"), numbers)
            runs["mma " + which] = kernel.open().bind(case, o, lse)[0]
        for ordered in () if args.mma else (0, 1) if d <= 128 else (0,):
            kernel = Backward(args.build, args.cubins, (d, causal, kind, (), "", ""), ordered).open()
            runs["ours_ordered" if ordered else "ours"] = kernel.bind(case, o, lse)[0]
        flops = 10 * case.b * case.hq * n * n * d / (2 if causal else 1)
        for name, ms in interleaved(runs, args.rounds).items():
            rates = [flops / t / 1e9 for t in (statistics.median(ms), max(ms), min(ms))]
            what = "backward f32" if kind == 2 else "backward mma.sync" if args.mma else "backward"
            rows.append({"what": what, "head_dim": d, "mask": "causal" if causal else "full",
                         "seqlen": n, "kernel": name, "tflops": rates[0], "lowest": rates[1],
                         "highest": rates[2]})
            print(f"{what} d{d} {'causal' if causal else 'full':6} N{n:6} {name:16} {rates[0]:5.0f} "
                  f"({rates[1]:.0f}..{rates[2]:.0f}) TFLOP/s", flush=True)
        del runs, case, o, lse
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/cuda")
    parser.add_argument("--cubins", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parts", type=int, default=1, help="only every so-manieth variant ...")
    parser.add_argument("--part", type=int, default=0, help="... from this one on")
    parser.add_argument("--cases", type=int, default=8, help="of each variant")
    parser.add_argument("--first", type=int, default=0, help="of the cases of each variant")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no variant after so long")
    parser.add_argument("--only", default="", help="variants whose text has this")
    parser.add_argument("--family", default="", help="only these: sm90, f32, mma")
    parser.add_argument("--launch-only", action="store_true", help="check nothing, for sanitizers")
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--shapes", type=int, default=0, help="the ordered mode so often over shapes of all kinds")
    parser.add_argument("--timings", default="", help="head_dim:causal:seqlen,..., of f32 with :2 after it, or all")
    parser.add_argument("--ours", action="store_true", help="time no peers")
    parser.add_argument("--mma", default="", help="time the kernels by mma.sync and flash only: chosen;ordered, with tiles for "
                        "so many KB (chosen@227), or the numbers groups,pairs,shares,queries,keys,adds_dq;...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--name", default="attention_bwd_cuda", help="of the result")
    args = parser.parse_args()
    if args.compile:
        todo = [(v, o) for v, o in all_variants() if wanted(args, v)][args.part::args.parts]
        sys.exit(sum(not Backward(args.build, args.cubins, v, o).compile() for v, o in todo))
    args.timings = TIMINGS if args.timings == "all" else args.timings
    import torch
    torch.zeros(1, device="cuda")  # a context
    rows, checks = [], []
    failures = run_checks(args, checks) if args.cases else 0
    failures += run_repeats(args) if args.repeats else 0
    failures += run_shapes(args) if args.shapes else 0
    if args.timings:
        run_timings(args, rows)
    if args.json:
        from harness import write_result
        write_result(args.json, args.name, "bench/cuda/attention_bwd.py", args.commit, rows,
                     ["attention*bwd*"], checks=checks)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
