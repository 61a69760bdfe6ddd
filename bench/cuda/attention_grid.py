#!/usr/bin/env python3
"""Random cases of every feature of the attention kernels, on the device, against float64.

  bench/cuda/attention_grid.py --cubins DIR [--build build/cuda] [--compile] [--cases N] [--json FILE]

--compile only compiles the variants into DIR, which needs no GPU. The error may be twice that of a naive
kernel in the same precision, plus half an ulp of the largest result. Rows that the reference has as NaN
must be NaN, and no other. Each case is launched twice and must give the same bits. The naive
kernel of e4m3 sums scores as the tensor cores do (see attention_reference.py).
"""

import argparse
import ctypes
import itertools
import os
import random
import sys
import zlib

HEAD_DIMS = (64, 96, 128, 192, 256)
FIELDS = ("window", "packed", "documents", "softcap", "alibi", "dropout", "sinks", "f8", "mma_kb")
LENGTHS = {"n256": 256, "n1024": 1024, "n16384": 16384}  # the kernel chosen for so many queries and keys
MMA_KB = {"mma": 163, "mma99": 99, "mma227": 227}  # the kernels by mma.sync, with tiles for so much shared memory

SCORES = ("score+0.5f*tanh(score)", "score*(1.0f+0.01f*(i-j))", "exp(-score*score)",
          "abs(score)-0.25f*(h+1)", "score/(1.0f+abs(score))*4.0f")
MASKS = ("(i*7+j*3+h)%5!=0", "i-i%16>=j-j%16", "(i+j+b)%2==0", "j<sk-3", "i*j<1")


class Spec(ctypes.Structure):  # FeatureSpec of attention_grid_capi.cpp
    _fields_ = ([("type", ctypes.c_int)] + [(f, ctypes.c_int) for f in FIELDS]
                + [("bias", ctypes.c_int), ("score_fn", ctypes.c_char_p), ("mask_fn", ctypes.c_char_p)])


class Params(ctypes.Structure):  # AttentionFeatureParams
    _fields_ = [(f, ctypes.c_void_p) for f in ("cu_q", "cu_k", "documents_q", "documents_k", "slopes",
                                               "sinks", "bias")]
    _fields_ += [(f, ctypes.c_longlong) for f in ("bias_batch", "bias_head", "bias_row")]
    _fields_ += [("seed", ctypes.c_void_p), ("stream", ctypes.c_ulonglong)]
    _fields_ += [(f, ctypes.c_int) for f in ("n_sequences", "left", "right")]
    _fields_ += [(f, ctypes.c_float) for f in ("softcap", "softcap_inverse", "dropout", "keep_factor")]


def variants():
    """(head_dim, causal, type, features, score_fn, mask_fn), type 0: bf16, 1: f16, 2: f32: all that are
    plain, each feature alone under every head_dim, pairs and more at random."""
    names = [*FIELDS[:-2], "bias32", "bias16"]
    out = [(d, c, t, (), "", "") for d in HEAD_DIMS for c in (0, 1) for t in (0, 1)]
    rng = random.Random(7)
    for n, name in enumerate(names):
        for m, d in enumerate(HEAD_DIMS):
            if m % 2 == n % 2 or name in ("window", "packed"):
                out.append((d, rng.randrange(2), rng.randrange(2), (name,), "", ""))
    for n, score in enumerate(SCORES):
        out.append((HEAD_DIMS[n], n % 2, rng.randrange(2), (), score, ""))
    for n, mask in enumerate(MASKS):
        out.append((HEAD_DIMS[n], 0, rng.randrange(2), (), "", mask))
    pairs = [p for p in itertools.combinations(names, 2)
             if p not in (("bias32", "bias16"), ("packed", "documents"))]
    for n, pair in enumerate(rng.sample(pairs, 12)):
        out.append((HEAD_DIMS[n % 5], rng.randrange(2), rng.randrange(2), pair, "", ""))
    out += [(59, 0, 0, (), "", ""), (111, 1, 1, (), "", ""), (250, 1, 0, (), "", ""), (67, 1, 0, ("window",), "", ""),
            (187, 0, 1, ("packed", "softcap"), "", "")]
    for n, most in enumerate((("window", "packed"), ("window", "documents"))):
        out.append((HEAD_DIMS[2 + 2 * n], 1, n, (*most, "softcap", "alibi", "dropout", "sinks", "bias32"),
                    "score*0.5f", "(i+j)%7!=3"))
    for d in (64, 128, 192, 256):
        out += [(d, c, t, ("f8",), "", "") for c, t in ((0, 0), (1, 0), (1, 1))]
    for n, name in enumerate(names):
        out.append((64 + n % 2 * 64, n // 2 % 2, 0, ("f8", name), "", ""))
    out += [(128, 0, 0, ("f8",), SCORES[0], ""), (64, 0, 0, ("f8",), "", MASKS[0]),
            (128, 1, 0, ("f8", "window", "packed"), "", "")]
    out += [((192, 256)[n % 2], n // 2 % 2, 0, ("f8", name), "", "") for n, name in enumerate(names)]
    out += [(256, 1, 0, ("f8", "window", "packed"), "", ""),
            (256, 1, 0, ("f8", "window", "packed", "softcap", "alibi", "dropout", "sinks", "bias32"), "", "")]
    # The rung by mma.sync.
    out += [(d, c, n % 2, ("mma",), "", "") for n, d in enumerate((*HEAD_DIMS, 59, 111, 3)) for c in (0, 1)]
    out += [(HEAD_DIMS[n % 5], n // 2 % 2, 0, ("mma", name), "", "") for n, name in enumerate(names)]
    out += [(128, 0, 1, ("mma",), SCORES[0], ""), (64, 1, 0, ("mma",), "", MASKS[0]),
            (128, 1, 0, ("mma", "window", "packed"), "", ""), (256, 1, 1, ("mma", "documents", "sinks"), "", "")]
    # And with its tiles for less shared memory, and for more.
    out += [(d, c, n % 2, ("mma99",), "", "") for n, d in enumerate((*HEAD_DIMS, 59, 111, 250)) for c in (0, 1)]
    out += [(HEAD_DIMS[n % 5], n // 2 % 2, n % 2, ("mma99", name), "", "") for n, name in enumerate(names)]
    out += [(d, 1, 0, ("mma99", "window", "packed"), "", "") for d in (128, 192, 256)]
    out += [(d, 0, 1, ("mma99",), SCORES[0], "") for d in (64, 192, 256)]
    out += [(d, d > 200, n % 2, ("mma227", *more), "", "")
            for d in (192, 250) for n, more in enumerate(((), ("window",), ("packed",), ("sinks",), ("alibi", "dropout")))]
    # f32 has kernels of its own; its backward goes up to head_dim 128.
    out += [(d, c, 2, (), "", "") for d in (64, 128, 59, 3, 111) for c in (0, 1)]
    out += [((64, 128)[n % 2], n // 2 % 2, 2, (name,), "", "") for n, name in enumerate(names)]
    out += [(64, 0, 2, (), SCORES[0], ""), (128, 0, 2, (), "", MASKS[0]),
            (128, 1, 2, ("packed", "window"), "", ""), (64, 1, 2, ("documents", "sinks"), "", ""),
            (64, 1, 2, ("window", "packed", "softcap", "alibi", "dropout", "sinks", "bias32"), "", "")]
    out += [(256, 0, 2, (), "", ""), (256, 1, 2, (), "", ""), (131, 1, 2, (), "", ""), (192, 0, 2, ("window",), "", ""),
            (256, 1, 2, ("packed", "softcap"), "", ""), (256, 0, 2, ("documents", "dropout"), "", ""),
            (256, 1, 2, ("window", "alibi", "dropout", "sinks", "bias32"), "", "")]
    # What choose_attention takes for other lengths than spec_of's.
    out += [(d, c, t, (n,), "", "") for d, c, t, n in (
        (64, 1, 0, "n256"), (64, 1, 1, "n256"), (96, 0, 0, "n1024"), (96, 1, 0, "n1024"), (96, 1, 1, "n16384"),
        (128, 1, 0, "n16384"), (128, 1, 1, "n16384"), (192, 1, 0, "n1024"), (192, 0, 1, "n16384"),
        (256, 0, 0, "n1024"), (256, 1, 1, "n16384"))]
    out += [(128, 1, 0, ("sinks", "n16384"), "", ""), (128, 1, 0, (), SCORES[1], ""), (128, 1, 0, (), "", MASKS[3])]
    return list(dict.fromkeys(out))


def seed_of(v, ordered, case):
    """Of a variant's case: other variants that come or go leave it as it is."""
    return zlib.crc32(repr((*v, ordered)).encode()) * 1000 + case


def family_of(v):
    """The kernels that serve a variant."""
    return "mma" if MMA_KB.keys() & set(v[3]) else "f32" if v[2] == 2 else "f8" if "f8" in v[3] else "sm90"


def spec_of(v):
    d, causal, kind, names, score_fn, mask_fn = v
    spec = Spec(type=kind, bias=1 if "bias32" in names else 2 if "bias16" in names else 0,
                score_fn=score_fn.encode(), mask_fn=mask_fn.encode())
    for f in FIELDS:
        setattr(spec, f, int(f in names))
    spec.mma_kb = max((MMA_KB.get(name, 0) for name in names), default=0)
    n = next((LENGTHS[name] for name in names if name in LENGTHS), 1024 if kind == 1 else 4096)
    sizes = (ctypes.c_int64 * 7)(1, n, n, 1, 1, d, causal)
    return spec, sizes


class Grid:
    def __init__(self, build, cubins):
        self.lib = ctypes.CDLL(f"{build}/bench/cuda/libbench_cuda_attention.so")
        self.lib.tegula_error.restype = ctypes.c_char_p
        self.lib.tegula_grid_open.restype = self.lib.tegula_grid_load.restype = ctypes.c_void_p
        self.lib.tegula_grid_workspace_bytes.restype = ctypes.c_int64
        self.cubins = cubins.encode()

    def fail(self):
        return self.lib.tegula_error().decode()

    def compile(self, v):
        spec, sizes = spec_of(v)
        if self.lib.tegula_grid_compile(sizes, ctypes.byref(spec), self.cubins) != 0:
            print(self.fail(), flush=True)
            return 1
        return 0

    def open(self, v):
        spec, sizes = spec_of(v)
        handle = self.lib.tegula_grid_open(sizes, ctypes.byref(spec), self.cubins)
        if not handle:
            sys.exit(self.fail())
        return ctypes.c_void_p(handle)

    def load(self, v, cubin, numbers):
        """The same of a line of variants.txt: tile_n, consumers, stages, ping_pong, q_registers, section_mb;
        by mma.sync tile_n, groups."""
        spec, sizes = spec_of(v)
        handle = self.lib.tegula_grid_load(sizes, ctypes.byref(spec), cubin.encode(),
                                           (ctypes.c_int * len(numbers))(*numbers))
        if not handle:
            sys.exit(self.fail())
        return ctypes.c_void_p(handle)

    def bind(self, handle, v, params, tensors, is_causal, scale, factors=(None, None, None)):
        """A function of no arguments that launches; tensors: q, k, v, o [b, s, h, d], lse, counter. factors
        of e4m3 [b or 1, hk or 1]."""
        import torch
        spec = spec_of(v)[0]
        q, k = tensors[:2]
        sizes = (ctypes.c_int64 * 7)(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3],
                                     int(is_causal))
        n = self.lib.tegula_grid_workspace_bytes(sizes, ctypes.byref(spec))
        # Only what the kernels fill may be read: the rest is NaN, or known to initcheck.
        workspace = torch.empty(n, dtype=torch.uint8, device="cuda")
        if "TEGULA_UNINITIALIZED" not in os.environ:
            workspace.fill_(0x7F)
        all_tensors = (*tensors, workspace, *factors)
        pointers = (ctypes.c_void_p * 10)(*[None if t is None else t.data_ptr() for t in all_tensors])
        strides = (ctypes.c_int64 * 18)(*[t.stride(i) for t in tensors[:4] for i in (0, 1, 2)],
                                        *[0 if t is None or t.shape[i] == 1 else t.stride(i)
                                          for t in factors for i in (0, 1)])

        def launch(_keep=all_tensors):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            rc = self.lib.tegula_grid_launch(handle, pointers, sizes, strides, ctypes.c_float(scale),
                                             ctypes.byref(spec), ctypes.byref(params), stream)
            if rc != 0:
                raise RuntimeError(self.fail())
        return launch

    def launch(self, handle, v, case):
        """o and lse."""
        import torch
        from harness import finish
        o = case.lay_out(torch.full((case.b, case.sq, case.hq, case.d), float("nan"), device="cuda"))
        lse = torch.full((case.b, case.hq, case.sq), float("nan"), device="cuda")
        counter = torch.zeros(1, dtype=torch.int32, device="cuda")
        keep, params = given(case)
        self.bind(handle, v, params, (case.q, case.k, case.v, o, lse, counter), case.causal, case.scale,
                  case.factors)()
        finish(str(v), "attention_grid.hung")
        if case.behind.any():
            raise RuntimeError("elements behind the rows of o were written")
        del keep
        if counter.item() != 0:
            raise RuntimeError(f"the counter is {counter.item()} after a launch")
        return o, lse


def given(case):
    """What a case's features read, and the tensors that hold it."""
    import torch
    p, keep = Params(n_sequences=0, left=-1, right=-1), []
    def hold(x):
        keep.append(x)
        return x.data_ptr()
    if case.packed:
        p.cu_q, p.cu_k = (hold(torch.tensor(c, dtype=torch.int32, device="cuda")) for c in case.packed)
        p.n_sequences = len(case.packed[0]) - 1
    if case.documents:
        p.documents_q, p.documents_k = hold(case.documents_q), hold(case.documents_k)
    if case.window:
        p.left, p.right = case.window
    if case.softcap:
        p.softcap, p.softcap_inverse = case.softcap, 1 / case.softcap
    if case.slopes is not None:
        p.slopes = hold(case.slopes)
    if case.sinks is not None:
        p.sinks = hold(case.sinks)
    if case.bias is not None:
        p.bias = hold(case.bias)
        p.bias_batch, p.bias_head, p.bias_row = (
            0 if case.bias.shape[n] == 1 else case.bias.stride(n) for n in range(3))
    if case.dropout:
        p.seed = hold(torch.tensor([case.seed], dtype=torch.int64, device="cuda"))
        p.stream, p.dropout, p.keep_factor = case.stream, case.dropout, 1 / (1 - case.dropout)
    return keep, p


def refusals(grid):
    """Calls that must be refused, each by a message that says what is wrong; those that were not."""
    import torch
    from attention_reference import Case
    v = (64, 0, 0, (), "", "")
    handle, wrong = grid.open(v), []
    def call(case, says):
        try:
            grid.launch(handle, v, case)
            wrong.append(f"not refused: {says}")
        except RuntimeError as e:
            if says not in str(e):
                wrong.append(f"{e} does not say {says}")
    case = Case(2, 9, 9, 2, 2, 64)
    room = torch.zeros(1 << 16, dtype=case.dtype, device="cuda")
    case.k = room[4:].as_strided((2, 9, 2, 64), (9 * 128, 128, 64, 1))
    call(case, "k lies 8 bytes past a multiple of 16")
    case.k = room.as_strided((2, 9, 2, 64), (9 * 130, 130, 65, 1))
    call(case, "k has strides of 130 (row), 65 (head)")
    case = Case(2, 9, 9, 2, 2, 64)
    case.lay_out = lambda x: case.v
    call(case, "o and v overlap")
    case = Case(1, 9, 9, 2, 2, 64)
    case.scale = 0.0
    call(case, "scale 0 is not positive")
    return wrong


def bits_of_products(grid):
    """How far below a power of two the tensor cores keep a product of e4m3: beside a product of 2^8, and in a sum
    of 16 of them. From the lse of one query and one key, which is their score."""
    import torch
    from attention_reference import Case
    v = (64, 0, 0, ("f8",), "", "")
    handle, kept = grid.open(v), []
    for n in (1, 16):  # products of 2^8
        case = Case(1, 1, 1, 16, 16, 64, f8=[True] * 3)
        case.factors, case.scale = [torch.ones(1, 1, device="cuda")] * 3, 1.0
        q, k = (torch.zeros(1, 1, 16, 64, device="cuda") for _ in range(2))
        q[..., :n] = k[..., :n] = 16.0
        q[..., n] = 1.0
        k[..., n] = n * 256.0 * 2.0 ** -torch.arange(4, 20, device="cuda").float()  # of each head
        case.q, case.k = (case.lay_out(x, torch.float8_e4m3fn) for x in (q, k))
        _, lse = grid.launch(handle, v, case)
        kept.append(4 + (lse[0, :, 0] > n * 256.0).tolist().index(False) - 1)
    return kept


def compare(got, exact, naive, half_ulp, floor=1e-7, of_draws=0.0):
    """The error over its bound (inf where NaN, infinities or their absence differ)."""
    import torch
    got, naive = got.double(), naive.double()
    finite = torch.isfinite(exact)
    same = torch.equal(torch.isnan(got), torch.isnan(exact)) and bool(
        (got == exact)[torch.isinf(exact)].all())
    if not same:
        return float("inf")
    if not finite.any():
        return 0.0
    err = (got - exact)[finite].abs().max().item()
    of_naive = max((naive - exact)[finite].abs().max().item(), of_draws)
    bound = 2 * of_naive + half_ulp * exact[finite].abs().max().item() + floor
    return err / bound


def bits(x):
    import torch
    return x.view(torch.int32 if x.dtype == torch.float32 else torch.int16)


def naive_errors(case):
    """Of o and lse; 0 where there is none."""
    import torch
    out = []
    for exact, naive in zip(case.reference(torch.float64), case.reference(case.dtype)):
        naive = naive.to(case.dtype) if not out else naive
        e = (naive.double() - exact).abs()
        e = e[torch.isfinite(e)]
        out.append(e.max().item() if e.numel() else 0.0)
    return out


def check(grid, handle, v, case, redraw=None):
    """Worst error over bound of o and lse, and whether the bits repeat. Where the naive kernel of e4m3 or f32 may
    be exact by luck its error is that of the worst of eight draws of the operands (`redraw`)."""
    import torch
    o, lse = grid.launch(handle, v, case)
    again, lse_again = grid.launch(handle, v, case)
    repeats = torch.equal(bits(o), bits(again)) and torch.equal(bits(lse), bits(lse_again))
    exact, exact_lse = case.reference(torch.float64)
    naive, naive_lse = case.reference(case.dtype)
    def worst(draws):
        return (compare(o, exact, naive.to(case.dtype), case.half_ulp, of_draws=draws[0]),
                compare(lse, exact_lse, naive_lse, 2.0 ** (-24 if case.kind == 2 else -20), of_draws=draws[1]))
    of_o, of_lse = worst((0.0, 0.0))
    if max(of_o, of_lse) > 1 and redraw and (case.factors[0] is not None or case.kind == 2):
        of_o, of_lse = worst([max(e) for e in zip(*(naive_errors(redraw(n)) for n in range(8)))])
    return of_o, of_lse, repeats


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/cuda")
    parser.add_argument("--cubins", default="build/cubins")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parts", type=int, default=1, help="only every so-manieth variant ...")
    parser.add_argument("--part", type=int, default=0, help="... from this one on")
    parser.add_argument("--cases", type=int, default=12, help="of each variant")
    parser.add_argument("--only", default="", help="variants whose text has this")
    parser.add_argument("--family", default="", help="only these: sm90, f8, f32, mma")
    parser.add_argument("--launch-only", action="store_true", help="check nothing, for sanitizers")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    sys.path.insert(0, __file__.rpartition("/")[0] or ".")
    grid = Grid(args.build, args.cubins)
    todo = [v for v in variants() if args.only in str(v) and args.family in ("", family_of(v))]
    if args.compile:
        sys.exit(sum(grid.compile(v) for v in todo[args.part::args.parts]))
    import time
    import torch
    import attention_reference
    torch.zeros(1, device="cuda")  # makes the context
    torch.backends.cuda.matmul.allow_tf32 = False
    if any("f8" in v[3] for v in todo) and not args.launch_only:
        attention_reference.Case.kept_bits, attention_reference.Case.sum_bits = bits_of_products(grid)
        print(f"bits of products of e4m3, and of their sums: {attention_reference.Case.kept_bits}, "
              f"{attention_reference.Case.sum_bits}", flush=True)
    start, n, failures, worst, rows = time.time(), 0, 0, 0.0, []
    for v in todo[args.part::args.parts]:
        if time.time() - start > args.seconds:
            break
        handle, of_variant, failed = grid.open(v), 0.0, []
        for k in range(args.cases):
            if time.time() - start > args.seconds:
                break
            seed = seed_of(v, 0, k)
            d, causal, kind, names, score_fn, mask_fn = v
            case = attention_reference.draw_case(seed, causal, kind, d, names, score_fn, mask_fn)
            n += 1
            if args.launch_only:
                print(v, seed, flush=True)  # the last one is where a tool broke down
                grid.launch(handle, v, case)
                continue
            of_o, of_lse, repeats = check(grid, handle, v, case, lambda n, seed=seed: attention_reference.draw_case(
                seed, causal, kind, d, names, score_fn, mask_fn, operands=1 + n))
            of_variant = max(of_variant, of_o, of_lse)
            if of_o > 1 or of_lse > 1 or not repeats:
                failed.append(f"seed {seed} b{case.b} sq{case.sq} sk{case.sk} h{case.hq}/{case.hk} d{case.d} "
                              f"{case.layout} window {case.window} packed {case.packed} "
                              f"documents {case.documents}: o {of_o:.2f} lse {of_lse:.2f} repeats {repeats}")
        failures, worst = failures + len(failed), max(worst, of_variant)
        rows.append({"variant": str(v), "error_over_bound": of_variant, "failures": failed})
        if failed:
            print(f"FAIL {v}: {len(failed)}", flush=True)
            for f in failed[:3]:
                print("    ", f, flush=True)
    alone = args.family in ("", "sm90") and not args.only and args.part == 0 and not args.launch_only
    for d, causal, kind in ((64, 0, 0), (128, 1, 0), (256, 1, 1)) if alone else ():
        v = (d, causal, kind, (), "", "")
        case = attention_reference.Case(3, 100, 150, 4, 2, d, causal, kind, layout="far")
        of_o, of_lse, repeats = check(grid, grid.open(v), v, case)
        n, worst = n + 1, max(worst, of_o, of_lse)
        if of_o > 1 or of_lse > 1 or not repeats:
            failures += 1
            print(f"FAIL {v}, elements past 2^31: o {of_o:.2f} lse {of_lse:.2f} repeats {repeats}")
    wrong = refusals(grid) if alone else []
    failures += len(wrong)
    for w in wrong:
        print("FAIL", w)
    print(f"{n} cases of {len(rows)} variants in {time.time() - start:.0f} s: {failures} failed, "
          f"worst error/bound {worst:.2f}", flush=True)
    if args.json:
        from harness import write_result
        summary = {"what": "forward " + args.only, "variants": len(todo), "cases": n, "failed": failures,
                   "worst_error_over_bound": worst}
        write_result(args.json, "attention_grid_cuda", "bench/cuda/attention_grid.py", args.commit, [summary],
                     ["attention*"], checks=rows)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
