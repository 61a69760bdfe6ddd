#!/usr/bin/env python3
"""Layouts that 16-byte copies cannot reach, through the plug-in, which copies them into rows that they can.

  bench/cuda/padded.py --library build/release/libtegula_cuda.so [--launch-only]

Forward and backward of attention against float64; the bounds are attention_grid.py's and attention_bwd.py's.
"""

import argparse
import itertools
import os
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from attention_bwd import gradients, rounding_of_ds  # noqa: E402
from attention_grid import compare  # noqa: E402
from attention_reference import Case  # noqa: E402
from kernels_cuda import Library  # noqa: E402


def laid_out(x, is_transposed):
    """The same values without gaps, or with rows where columns were."""
    return x.transpose(1, 3).contiguous().transpose(1, 3) if is_transposed else x.contiguous()


def check(lib, kernels, d, is_causal, kind, is_transposed, launch_only):
    """The worst error over its bound."""
    case = Case(2, 150, 211, 4, 2, d, is_causal, kind, seed=d)
    attrs = f"scale=f{case.scale!r};is_causal=b{is_causal}"
    q, k, v, do = (laid_out(t, is_transposed) for t in (case.q, case.k, case.v, case.do))
    o, lse = torch.full_like(q, float("nan")), torch.full((2, 4, 150), float("nan"), device="cuda")
    forward, name = lib.call("attention", attrs, [q, k, v], [o, lse])
    grads = [torch.full_like(t, float("nan")) for t in (q, k, v)]
    backward, name_of_backward = lib.call("attention_bwd", attrs, [q, k, v, o, lse, do], grads)
    kernels |= {name, name_of_backward}
    forward()
    backward()
    torch.cuda.synchronize()
    if launch_only:
        return 0.0
    exact, exact_lse = case.reference(torch.float64)
    naive, naive_lse = case.reference(case.dtype)
    worst = max(compare(o, exact, naive.to(case.dtype), case.half_ulp),
                compare(lse, exact_lse, naive_lse, 2.0 ** -20))
    wanted = gradients(case, exact, exact_lse, None, torch.float64)
    low = gradients(case, case.lay_out(exact), exact_lse.float(), None, case.dtype)
    largest, rounding = max(w.abs().max().item() for w in wanted.values()), rounding_of_ds(case)
    for got, which in zip(grads, ("dq", "dk", "dv")):
        floor = 2.0 ** -20 * largest + 1e-7 + rounding.get(which, 0.0)
        worst = max(worst, compare(got, wanted[which], low[which].to(case.dtype), case.half_ulp, floor))
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/release/libtegula_cuda.so")
    parser.add_argument("--launch-only", action="store_true", help="check nothing, for sanitizers")
    args = parser.parse_args()
    torch.zeros(1, device="cuda")
    lib, start, kernels, worst, n, failed = Library(args.library), time.time(), set(), 0.0, 0, 0
    for case in itertools.product((100, 36), (0, 1), (0, 1), (False, True)):
        ratio = check(lib, kernels, *case, args.launch_only)
        n, worst, failed = n + 1, max(worst, ratio), failed + (ratio > 1)
        if ratio > 1:
            print("FAIL", case, ratio)
    print(f"{n} cases of {len(kernels)} variants in {time.time() - start:.0f} s: {failed} failed, "
          f"worst error/bound {worst:.2f}; {sorted(kernels)}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
