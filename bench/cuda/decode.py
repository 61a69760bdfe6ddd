#!/usr/bin/env python3
"""Checks our decoding attention against float64 and times it beside PyTorch's.

  bench/cuda/decode.py --build build/cuda --cubins DIR [--cases 1000] [--json FILE]

DIR holds what `bench_cuda_compile DIR` wrote. TB/s are the bytes of K and V over the time of a launch, replayed in
CUDA graphs that all sides take in turn; cold: every launch reads another copy, together more than twice the L2 cache.
"""

import argparse
import ctypes
import datetime
import json
import random
import statistics
import subprocess
import sys
import time

import torch
from harness import graph_of, graph_us
from torch.nn.attention import SDPBackend, sdpa_kernel

PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
COLD_BYTES = 160 << 20  # of K and V: more than twice 60 MB


def ints(kind, values):
    return (kind * len(values))(*values)


class Decode:
    """A compiled variant."""

    def __init__(self, lib, cubins, head_dim, rows, is_paged, is_f16, heads, warps, blocks, slots):
        self.lib, self.is_f16, self.heads = lib, is_f16, heads
        self.name = (f"decode_d{head_dim}_r{rows}{f'_h{heads}' if heads > 1 else ''}{'_paged' if is_paged else ''}"
                     f"{'_f16' if is_f16 else ''}")
        self.spec = ints(ctypes.c_int, [head_dim, rows, is_paged, is_f16, warps, blocks,
                                        1 if head_dim == 256 else slots, heads])
        handle = lib.tegula_decode_load(f"{cubins}/{self.name}.cubin".encode(), self.spec)
        assert handle, lib.tegula_error().decode()
        self.handle = ctypes.c_void_p(handle)

    def best_heads(self, q, sk, hk):
        """KV heads of a block for sequences of one length."""
        sizes = ints(ctypes.c_int64, [q.shape[0], q.shape[1], sk, q.shape[2], hk, q.shape[3], 0, -1, 0, self.is_f16, 1])
        return self.lib.tegula_decode_heads(sizes)

    def bind(self, q, k, v, scale, is_causal=False, window=-1, lengths=None, pages=None, split=0, with_lse=True,
             is_settled=False):
        """A function that launches, o and lse. k, v: [b, s, h, d], or pages [n, page_size, h, d]."""
        b, sq, hq, d = q.shape
        hk, page_size = k.shape[2], k.shape[1] if pages is not None else 0
        sk = pages.shape[1] * page_size if pages is not None else k.shape[1]
        if lengths is not None:
            sk = max(lengths)
        o = torch.full((b, sq, hq, d), float("nan"), dtype=q.dtype, device="cuda")
        lse = torch.full((b, hq, sq), float("nan"), device="cuda")
        sizes = ints(ctypes.c_int64, [b, sq, sk, hq, hk, d, is_causal, window, page_size, self.is_f16,
                                     self.heads])
        keys = ctypes.c_int64(split or self.lib.tegula_decode_split(sizes))
        n_bytes = self.lib.tegula_decode_workspace_bytes(sizes, keys)
        workspace = torch.full((n_bytes // 4,), float("nan"), device="cuda")
        counters = torch.zeros(self.lib.tegula_decode_blocks(sizes), dtype=torch.int32, device="cuda")
        lens = torch.tensor(lengths, dtype=torch.int32, device="cuda") if lengths is not None else None
        def at(t):
            return t.data_ptr() if t is not None else None
        pointers = ints(ctypes.c_void_p, [at(t) for t in (q, k, v, o, lse if with_lse else None, lens, pages, workspace,
                                                          counters)])
        strides = ints(ctypes.c_int64, [t.stride(i) for t in (q, k, v, o) for i in (0, 1, 2)])
        per_sequence = pages.shape[1] if pages is not None else 0
        keep = (q, k, v, o, lse, lens, pages, workspace, counters)

        def launch(_keep=keep):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            rc = self.lib.tegula_decode_launch(self.handle, pointers, sizes, strides, keys,
                                               ctypes.c_int64(per_sequence), int(is_settled), ctypes.c_float(scale),
                                               stream)
            assert rc == 0, self.lib.tegula_error().decode()
        return launch, o, lse


def reference(q, k, v, scale, is_causal, window, dtype):
    """o [sq, hq, d] and lse [hq, sq] of one sequence; for 16 bits as a naive kernel of that precision."""
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    sq, sk = q.shape[0], k.shape[0]
    group = q.shape[1] // k.shape[1]
    q, k, v = (t.to(compute).transpose(0, 1) for t in (q, k, v))
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    s = q @ k.transpose(1, 2) * scale
    row = torch.arange(sq, device="cuda")[:, None] + sk - sq
    key = torch.arange(sk, device="cuda")[None]
    hidden = torch.zeros(sq, sk, dtype=torch.bool, device="cuda")
    if is_causal:
        hidden |= key > row
    if window >= 0:
        hidden |= key < row - window
    s = s.masked_fill(hidden, float("-inf"))
    lse = torch.logsumexp(s, -1)
    w = torch.exp(s - torch.where(lse.isinf(), torch.zeros_like(lse), lse)[..., None])
    if dtype != torch.float64:
        w = w.to(dtype).float()
    return (w @ v).transpose(0, 1), lse


def heads_of_a_block(head_dim, rows, is_f16):
    """How many KV heads it may have, of the kernels that are compiled."""
    return (1,) if rows > 8 else (1, 4) if is_f16 else (1, 2, 4) if head_dim > 128 else (1, 2, 4, 8)


def random_case(rng):
    head_dim, is_paged = rng.choice((64, 64, 128, 128, 256, rng.randrange(8, 257, 8))), rng.random() < 0.5
    group = rng.choice((1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 16, 25, 71, 128))
    sq = rng.randint(1, max(1, 40 // group)) if rng.random() < 0.4 else 1
    b, hk = rng.choice((1, 1, 2, 3, 5)), rng.choice((1, 2, 3))
    is_f16 = rng.random() < 0.4
    heads = rng.choice(heads_of_a_block(head_dim, group * sq, is_f16))
    hk *= heads
    longest = rng.choice((1, 3, 16, 17, 100, 511, 512, 513, 1000, 2049, 5000))
    lengths = [rng.choice((longest, longest, rng.randint(0, longest))) for _ in range(b)]
    return {"head_dim": head_dim, "is_f16": is_f16, "page_size": rng.choice((1, 7, 8, 16, 16, 48, 64, 256)) if is_paged else 0,
            "group": group, "sq": sq, "b": b, "hk": hk, "heads": heads, "is_settled": rng.random() < 0.5,
            "lengths": lengths, "is_causal": rng.random() < 0.5,
            "window": rng.choice((-1, -1, 0, 5, 300)), "spread": rng.choice((1, 1, 6)),
            "split": rng.choice((0, 64, 512, 512, 1024))}


def far_apart(t, apart):
    """The same values, entries of the first dim so many elements apart."""
    room = torch.empty((t.shape[0] - 1) * apart + t[0].numel(), dtype=t.dtype, device="cuda")
    return room.as_strided(t.shape, (apart, *t.stride()[1:])).copy_(t)


def far_cases():
    """Elements past 2^31 of keys and values, dense and in pages."""
    shared = {"is_f16": False, "group": 4, "sq": 1, "b": 3, "hk": 2, "heads": 1, "is_settled": False,
              "lengths": [700, 511, 64], "is_causal": False, "window": -1, "spread": 1, "split": 512}
    for head_dim, page_size in ((64, 0), (128, 0), (64, 256), (128, 256)):
        yield {"head_dim": head_dim, "page_size": page_size, "far": 1 << (28 if page_size else 30), **shared}


def check_one(kernels, case, seed, launch_only=False):
    """Error over bound, and what is wrong."""
    g = torch.Generator(device="cuda").manual_seed(seed)
    dtype = torch.float16 if case["is_f16"] else torch.bfloat16
    def draw(*shape):
        return (torch.randn(*shape, generator=g, device="cuda") * case["spread"]).to(dtype)
    b, hk, d, sq = case["b"], case["hk"], case["head_dim"], case["sq"]
    hq, longest, size = hk * case["group"], max(case["lengths"]), case["page_size"]
    q, k, v = draw(b, sq, hq, d), draw(b, longest, hk, d), draw(b, longest, hk, d)
    first = [max(0, n - sq - case["window"]) if case["window"] >= 0 else 0 for n in case["lengths"]]
    for i, n in enumerate(case["lengths"]):  # what nobody sees
        k[i, n:], v[i, n:] = float("nan"), float("nan")
        k[i, :min(first[i], n)], v[i, :min(first[i], n)] = float("nan"), float("nan")
    scale = d ** -0.5
    tile = 64 if d <= 64 else 128 if d <= 128 else 256
    rows = 8 if sq * case["group"] <= 8 or tile == 256 else 16
    kernel = kernels[tile, rows, size > 0, case["is_f16"], case["heads"]]
    args = {"is_causal": case["is_causal"], "window": case["window"], "lengths": case["lengths"],
            "split": case["split"], "is_settled": case["is_settled"]}
    if size:
        n_pages = -(-longest // size)
        order = torch.randperm(b * n_pages + 3, generator=g, device="cuda")[:b * n_pages].int().view(b, n_pages)
        pool_k = torch.full((b * n_pages + 3, size, hk, d), float("nan"), dtype=q.dtype, device="cuda")
        pool_v = pool_k.clone()
        for pool, t in ((pool_k, k), (pool_v, v)):
            padded = torch.full((b, n_pages * size, hk, d), float("nan"), dtype=q.dtype, device="cuda")
            padded[:, :longest] = t
            pool[order.long().flatten()] = padded.view(b * n_pages, size, hk, d)
        if "far" in case:
            pool_k, pool_v = (far_apart(t, case["far"]) for t in (pool_k, pool_v))
        launch, o, lse = kernel.bind(q, pool_k, pool_v, scale, pages=order, **args)
    else:
        if "far" in case:
            k, v = (far_apart(t, case["far"]) for t in (k, v))
        launch, o, lse = kernel.bind(q, k, v, scale, **args)
    launch()
    torch.cuda.synchronize()
    if launch_only:
        return 0.0, []
    once = o.clone()
    for _ in range(2):
        launch()
    torch.cuda.synchronize()
    wrong = [] if torch.equal(once, o) else ["repeat"]
    worst = 0.0
    for i, n in enumerate(case["lengths"]):
        seq = (q[i], k[i, :n], v[i, :n])
        seq = (seq[0], seq[1].nan_to_num(0), seq[2].nan_to_num(0))
        ref, ref_lse = reference(*seq, scale, case["is_causal"], case["window"], torch.float64)
        naive, naive_lse = reference(*seq, scale, case["is_causal"], case["window"], dtype)
        err = (o[i].double() - ref).abs().max().item()
        bound = 2 * (naive.to(dtype).double() - ref).abs().max().item() + 1e-6
        seen = ~ref_lse.isinf()
        if not (lse[i].isinf() == ref_lse.isinf()).all():
            wrong.append(f"lse of sequence {i}")
        elif seen.any():
            lse_err = (lse[i].double() - ref_lse)[seen].abs().max().item()
            lse_bound = 2 * (naive_lse.double() - ref_lse)[seen].abs().max().item() + 2 ** -20 * (
                1 + ref_lse[seen].abs().max().item())
            worst = max(worst, lse_err / lse_bound) if lse_err == lse_err else float("inf")
            if not lse_err <= lse_bound:
                wrong.append(f"lse {lse_err:.2e} > {lse_bound:.2e}")
        worst = max(worst, err / bound) if err == err else float("inf")
        if not err <= bound:
            wrong.append(f"sequence {i}: {err:.2e} > {bound:.2e}")
    if b > 1 and not size and case["split"]:  # the bits of a sequence alone
        alone, o1, _ = kernel.bind(q[:1], k[:1], v[:1], scale, **{**args, "lengths": case["lengths"][:1]})
        alone()
        torch.cuda.synchronize()
        if not torch.equal(o1[0], o[0]):
            wrong.append("bits depend on the batch")
    return worst, wrong


def time_case(kernels, b, sk, hq, hk, d, rounds, splits):
    """Rows of results: ours and PyTorch's, warm and cold."""
    kv_bytes = 2 * b * sk * hk * d * 2
    copies = max(1, -(-COLD_BYTES // kv_bytes))
    q = torch.randn(b, 1, hq, d, device="cuda").bfloat16()
    sets = [[torch.randn(b, sk, hk, d, device="cuda").bfloat16() for _ in range(2)] for _ in range(copies)]
    scale = d ** -0.5
    rows = 8 if hq // hk <= 8 else 16
    makers = {}

    def ours(paged, in_order=False, heads=0, **kw):
        def make(k, v):
            args = dict(kw)
            if paged:
                n = sk // paged
                order = torch.arange(b * n, device="cuda") if in_order else torch.randperm(b * n, device="cuda")
                args["pages"] = order.int().view(b, n)
                k, v = k.view(b * n, paged, hk, d), v.view(b * n, paged, hk, d)
            kernel = kernels[d, rows, paged > 0, False, 1]
            n_heads = heads or kernel.best_heads(q, sk, hk)
            return kernels[d, rows, paged > 0, False, n_heads].bind(q, k, v, scale, with_lse=False, **args)[0]
        return make
    makers["tegula"] = ours(0)
    makers["tegula, a head a block"] = ours(0, heads=1)
    makers["tegula, pages of 16"] = ours(16)
    makers["tegula, pages of 16, settled"] = ours(16, is_settled=True)
    makers["tegula, pages of 16 in order, settled"] = ours(16, in_order=True, is_settled=True)
    makers["tegula, splits of 512"] = ours(0, heads=1, split=512)
    for split in splits:
        makers[f"tegula, split {split}"] = ours(0, split=split)
    for name, backend in PEERS.items():
        def peer(k, v, backend=backend):
            qt, kt, vt = (t.transpose(1, 2) for t in (q, k, v))
            def launch():
                with sdpa_kernel(backend):
                    torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, enable_gqa=hq != hk)
            return launch
        makers[name] = peer
    graphs, out = {}, []
    for name, make in makers.items():
        try:
            bound = [make(*s) for s in sets]
            n = max(20, 2 * copies)
            graphs[name, "cold"] = graph_of([bound[i % copies] for i in range(n)]), n, bound
            if kv_bytes < 40 << 20:
                graphs[name, "warm"] = graph_of([bound[0]] * 20), 20, bound
        except (RuntimeError, AssertionError) as e:
            print(f"{name}: {str(e).splitlines()[0][:90]}", flush=True)
            torch.cuda.synchronize()
    times = {key: [] for key in graphs}
    for _ in range(rounds):
        for key in random.sample(sorted(graphs), len(graphs)):
            times[key].append(graph_us(*graphs[key][:2]))
    for (name, cache), us in times.items():
        row = {"batch": b, "seqlen_k": sk, "heads": f"{hq} / {hk}", "head_dim": d, "cache": cache, "kernel": name,
               "us": round(statistics.median(us), 2), "tb_per_s": round(kv_bytes / statistics.median(us) / 1e6, 3),
               "lowest": round(kv_bytes / max(us) / 1e6, 3), "highest": round(kv_bytes / min(us) / 1e6, 3)}
        out.append(row)
        print(f"B{b} N{sk} {cache} {name:38} {row['us']:9.2f} us {row['tb_per_s']:.3f} TB/s", flush=True)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/cuda")
    parser.add_argument("--cubins", required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--parts", type=int, default=1, help="only every so-manieth case ...")
    parser.add_argument("--part", type=int, default=0, help="... from this one on")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--splits", default="", help="also time these keys per split")
    parser.add_argument("--warps", type=int, default=8, help="what DIR was compiled with")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--launch-only", action="store_true", help="check and time nothing, for sanitizers")
    parser.add_argument("--no-timing", action="store_true", help="checks only")
    parser.add_argument("--json", default="")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")
    lib = ctypes.CDLL(f"{args.build}/bench/cuda/libbench_cuda_attention.so")
    lib.tegula_error.restype = ctypes.c_char_p
    lib.tegula_decode_load.restype = ctypes.c_void_p
    for size in (lib.tegula_decode_workspace_bytes, lib.tegula_decode_split, lib.tegula_decode_blocks):
        size.restype = ctypes.c_int64
    kernels = {(d, r, p, h, n): Decode(lib, args.cubins, d, r, p, h, n, args.warps, args.blocks, args.slots)
               for d in (64, 128, 256) for r in (8, 16)[:1 if d == 256 else 2] for p in (False, True)
               for h in (False, True) for n in heads_of_a_block(d, r, h)}
    rng, start = random.Random(1), time.time()
    worst, failed, n = 0.0, 0, 0
    cases = [*(random_case(rng) for _ in range(args.cases)), *(() if args.launch_only else far_cases())]
    for seed, case in list(enumerate(cases))[args.part::args.parts]:
        if args.launch_only:
            print(case, flush=True)  # the last one is where a tool broke down
        n += 1
        ratio, wrong = check_one(kernels, case, seed, args.launch_only)
        worst = max(worst, ratio)
        if wrong:
            failed += 1
            if failed < 8:
                print("FAIL", case, wrong[:3], flush=True)
    print(f"{n} cases of {len(kernels)} variants in {time.time() - start:.0f} s: {failed} failed, "
          f"worst error/bound {worst:.2f}", flush=True)
    if args.no_timing or args.launch_only:
        sys.exit(failed > 0)
    rows, splits = [], [int(n) for n in args.splits.split(",") if n]
    for b, n in ((1, 8192), (1, 131072), (16, 8192), (64, 4096)):
        rows += time_case(kernels, b, n, 32, 8, 128, args.rounds, splits)
    if args.json:
        smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True, check=False).stdout.strip().replace(", ", ", driver ")
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"name": "decode_cuda", "machine": smi.partition(",")[0],
                       "threads": "on the GPU",
                       "versions": {"driver": smi.partition(" driver ")[2], "torch": torch.__version__},
                       "commit": args.commit, "measures": ["tegula/kernels/cuda/attention_decode*",
                                                           "tegula/kernels/cuda/attention_split.cuh"],
                       "command": "bench/cuda/decode.py --cubins build/cubins --json bench/results/decode_cuda.json",
                       "date": datetime.date.today().isoformat(), "checked": args.cases, "failed": failed,
                       "error_over_bound": worst, "rows": rows}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
