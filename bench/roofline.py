#!/usr/bin/env python3
"""Where kernels stand under the roofline of their machine: measured by `tegula bench`, drawn as SVG.

  bench/roofline.py measure --device cpu|cuda --json FILE [--bin build/release/tegula] [--machine TEXT]
                            [--commit C] [--threads T] [--only WORD]
  bench/roofline.py draw FILE.json... OUT.svg

`draw` also takes what kernels_cuda.py and the scripts of bench/cuda wrote: Tegula's own kernels of matmul_cuda,
attention_cuda, attention_mma_cuda, attention_bwd_mma_cuda and compare_cuda.

A point is at (operations / least bytes, operations / s): every operand read once and every result written once, the
operations that people count (products; a causal mask halves). Roofs: on the CPU the most f32 multiply-adds and plain
reads of memory that `tegula bench` measured beside the kernels, on a GPU the highest clocks times the widest units.
Rungs of a ladder read more than the least bytes, and stand below for that; kernels whose data a cache holds may stand
above the memory's roof.
"""

import argparse
import datetime
import html
import json
import math
import subprocess
import sys

from record import KERNELS, compiler

BF16 = ["--dtype", "bf16"]
# family, label, arguments of `tegula bench`
CUDA = [
    *[("f32 products, 4096³", name, ["gemm", "--shape", "4096,4096,4096", "--kernel", "matmul_" + name])
      for name in ("v1", "v1_5", "v2", "v3", "v3_coalesced", "v3_conflict_free", "v3_double_buffered")],
    *[("bf16 products, 8192³", name, ["gemm", "--shape", "8192,8192,8192", *BF16, "--kernel", name])
      for name in ("matmul_mma", "matmul_sm90")],
    ("attention rungs, N 2048 d 128", "naive",
     ["attention", "--shape", "1,16,2048,128", *BF16, "--kernel", "attention_naive"]),
    ("attention rungs, N 2048 d 128", "tiled",
     ["attention", "--shape", "1,16,2048,128", *BF16, "--kernel", "attention_tiled"]),
    ("attention rungs, N 2048 d 128", "mma",
     ["attention", "--shape", "1,16,2048,128", *BF16, "--kernel", "attention_mma"]),
    *[("attention forward", f"d{d}{' causal' if causal else ''} N{n}",
       ["attention", "--shape", f"{16384 // n},{2048 // d},{n},{d}", *BF16, *(["--causal"] if causal else [])])
      for d, causal, n in ((128, 0, 16384), (128, 1, 16384), (128, 1, 1024), (64, 0, 16384), (64, 1, 1024),
                           (256, 1, 16384))],
    *[("attention backward", f"d{d}{' causal' if causal else ''} N{n}",
       ["attention", "--shape", f"{16384 // n},{2048 // d},{n},{d}", *BF16, "--pass", "bwd",
        *(["--causal"] if causal else [])])
      for d, causal, n in ((128, 0, 16384), (128, 1, 16384), (128, 1, 1024), (64, 0, 16384), (256, 1, 16384))],
    *[("decoding, cold", f"B{b} N{n}", ["decode", "--shape", f"{b},32,{n},128", "--kv-heads", "8", *BF16, "--cold"])
      for b, n in ((1, 8192), (1, 131072), (16, 8192), (64, 4096))],
]
CPU = [
    *[("f32 products, 512³", name, ["gemm", "--shape", "512,512,512", "--kernel", name])
      for name in ("dot_naive", "dot_cache_tiled", "dot_register_tiled", "dot_packed")],
    ("products", "2048³", ["gemm", "--shape", "2048,2048,2048"]),
    ("products", "1024×768×3072", ["gemm", "--shape", "1024,768,3072"]),
    ("products", "2048³ bf16", ["gemm", "--shape", "2048,2048,2048", *BF16]),
    *[("one row, cold", name, ["gemm", "--shape", "1,4096,4096", "--cold", *more])
      for name, more in (("f32", []), ("bf16", BF16), ("int8 weights", ["--weights", "int8"]),
                         ("int4 weights", ["--weights", "int4"]))],
    *[("attention forward", f"d{d}{' causal' if causal else ''} N{n}",
       ["attention", "--shape", f"1,8,{n},{d}", *(["--causal"] if causal else [])])
      for d, causal, n in ((64, 0, 1024), (64, 1, 1024), (64, 1, 4096), (128, 0, 1024), (128, 1, 2048))],
    *[("attention forward + backward", f"d{d}{' causal' if causal else ''} N{n}",
       ["attention", "--shape", f"1,8,{n},{d}", "--pass", "fwdbwd", *(["--causal"] if causal else [])])
      for d, causal, n in ((64, 0, 1024), (64, 1, 1024), (128, 0, 1024), (128, 1, 2048))],
    *[("attention of bf16", f"{pass_} d{d}{' causal' if causal else ''} N{n}",
       ["attention", "--shape", f"1,8,{n},{d}", *BF16, "--pass", pass_, *(["--causal"] if causal else [])])
      for pass_ in ("fwd", "bwd") for d, causal, n in ((64, 1, 1024), (128, 0, 1024), (128, 1, 2048))],
    *[("products of int8", f"{shape.replace(',', '×')}{more}",
       ["gemm", "--shape", shape, "--dtype", "int8", *(["--weights", "int4"] if more else [])])
      for shape, more in (("2048,2048,2048", ""), ("1024,768,3072", ""), ("1024,768,3072", " int4 weights"))],
    *[("decoding, cold", t, ["decode", "--shape", "1,32,8192,128", "--kv-heads", "8", "--cold", "--dtype", t])
      for t in ("f32", "bf16")],
]


# CPU: what is no product, alone.
OPS = ["ops", "--shape", "4096,1024", "--vocab-size", "8192", "--cold"]
# CPU: every kernel of a training step, each where it takes longest.
STEPS = [["train", "--model", model, "--n-layers", "2", "--n-heads", "6", "--d-model", "384", "--seqlen", "256",
          "--batch", "4", "--vocab-size", "8192", "--by-op"] for model in ("gpt2", "llama")]


def tool(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def row_of(family, label, j, ms):
    numbers = {"gflops": j["gflops"], "gbytes_per_s": j["gbytes_per_s"],
               "flops_per_byte": j["gflops"] / j["gbytes_per_s"], "ms": ms}
    return {"family": family, "label": label, "kernel": j["kernel"],
            **{name: float(f"{x:.4g}") for name, x in numbers.items()}}


def op_rows(args):
    """The ops that compute anything; those that only move bytes have no place on a roofline."""
    ops = tool(args.bin, "bench", *OPS, "--json", "--repeats", str(args.repeats), "--threads", str(args.threads))["ops"]
    return [row_of("ops, cold", op["op"], op, op["ms_median"]) for op in ops if op["gflops"] > 0]


def step_rows(args):
    """The same of kernels of training steps."""
    longest = {}
    for step in STEPS:
        for op in tool(args.bin, "bench", *step, "--json", "--repeats", "3", "--threads", str(args.threads))["ops"]:
            key = op["kernel"] if op["kernel"] != "fused" else f'fused, {op["phase"]}'
            if op["gflops"] > 0 and (key not in longest or op["ms"] > longest[key]["ms"]):
                longest[key] = op
    return [row_of("in a training step, longest call", key, op, op["ms"] / op["launches"])
            for key, op in sorted(longest.items(), key=lambda item: -item[1]["ms"])]


def write(args, machine, roofs, rows):
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump({"name": f"roofline_{args.device}", "machine": machine,
                   "threads": args.threads if args.device == "cpu" else "on the GPU", "versions": compiler(args.bin),
                   "commit": args.commit, "measures": KERNELS if args.device == "cpu" else ["tegula/kernels/cuda"],
                   "command": f"bench/roofline.py measure --device {args.device} --json {args.json}",
                   "date": datetime.date.today().isoformat(), "roofs": roofs, "rows": rows}, f, indent=1)
        f.write("\n")


def measure(args):
    more = ["--device", args.device, "--json", "--repeats", str(args.repeats)]
    if args.device == "cpu":
        more += ["--threads", str(args.threads)]
    rows, roofs, machine = [], {}, args.machine
    for family, label, bench in CUDA if args.device == "cuda" else CPU:
        if args.only not in " ".join(bench):
            continue
        try:
            j = tool(args.bin, "bench", *bench, *more)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            print(f"{family} {label}: {e}", flush=True)
            continue
        rows.append(row_of(family, label, j, j["ms_median"]))
        name = "bf16 tensor cores" if args.device == "cuda" and "bf16" in bench else "f32 multiply-adds"
        roof = roofs.setdefault(name, {"roof": name, "gflops": 0, "gbytes_per_s": 0})
        roof["gflops"] = max(roof["gflops"], j["peak_gflops"])
        machine = machine or j.get("device", "")
        for each in roofs.values():
            each["gbytes_per_s"] = max(each["gbytes_per_s"], j.get("peak_gbytes_per_s", j.get("read_gbytes_per_s", 0)))
        print(f"{family:32} {label:24} {j['gflops']:10.1f} GFLOP/s {rows[-1]['flops_per_byte']:9.2f} FLOP/B",
              flush=True)
        write(args, machine, list(roofs.values()), rows)  # what is there survives an end on the way
    if args.device == "cpu" and args.only in "ops":
        rows += op_rows(args)
    if args.device == "cpu" and args.only in "train":
        rows += step_rows(args)
    write(args, machine, list(roofs.values()), rows)


# What `tegula bench --device cuda --json` says of a device whose results carry no roofs of their own.
DEVICES = {"NVIDIA H200": [{"roof": "bf16 tensor cores", "gflops": 1.0705e6, "gbytes_per_s": 4814.3},
                           {"roof": "f32 multiply-adds", "gflops": 6.691e4, "gbytes_per_s": 4814.3}]}
PEER_KERNELS = ("cudnn", "flash", "cublas", "cublaslt")


def point(family, label, kernel, gflops, flops, least_bytes):
    return {"family": family, "label": label, "kernel": kernel, "gflops": gflops, "flops_per_byte": flops / least_bytes,
            "gbytes_per_s": gflops * least_bytes / flops}


def product_point(family, label, kernel, tflops, m, n, k, size):
    return point(family, label, kernel, tflops * 1e3, 2 * m * n * k, size * (m * n + n * k + m * k))


def attention_point(family, label, kernel, tflops, d, is_causal, n, is_backward):
    """16,384 tokens of 2048 in all. Forward: q, k, v and o; backward: those, do, and three gradients; lse."""
    batch, heads = 16384 // n, 2048 // d
    flops = 4 * batch * heads * n * n * d * (0.5 if is_causal else 1) * (2.5 if is_backward else 1)
    least = (8 if is_backward else 4) * 16384 * heads * d * 2 + 4 * 16384 * heads
    return point(family, label, kernel, tflops * 1e3, flops, least)


def points_of(result):
    """Dots of a raw result, whoever wrote it."""
    for row in result["rows"]:
        kernel = row.get("kernel", "")
        if "flops_per_byte" in row:
            yield row
        elif "m" in row and kernel not in PEER_KERNELS:
            sizes = (row["m"], row["n"], row["k"])
            is_f32 = row["type"] == "f32"
            if is_f32 or (kernel.startswith("mma") and row["m"] == row["n"]):
                yield product_point(f"{row['type']} products, rungs", f"{kernel}, {sizes[0]}³", kernel, row["tflops"],
                                    *sizes, 4 if is_f32 else 2)
        elif kernel.startswith(("naive", "tiled", "mma")):
            is_backward = row["what"].startswith("backward")
            name = f"mma{' ordered' if 'ordered' in kernel else ''} d{row['head_dim']}" if "mma" in kernel else kernel
            yield attention_point("attention backward, mma.sync" if is_backward else "attention, rungs",
                                  f"{name} {row['mask']} N{row['seqlen']}", kernel, row["tflops"], row["head_dim"],
                                  row["mask"] == "causal", row["seqlen"], is_backward)
        elif "tegula" in row:
            yield compared_point(row)


def compared_point(row):
    """Of kernels_cuda.py's rows."""
    work, shape, rate = row["work"], row["shape"], row["tegula"]
    if work == "gemm":
        m, n, k = map(int, shape.split(",")[0].split("x"))
        return product_point("bf16 products, wgmma", shape, "matmul_sm90", rate, m, n, k, 2)
    if work.startswith("decode"):  # a key is one multiplication and one addition of K and of V for 4 query heads
        return point("decoding", f"{shape} {work[8:]}", "attention_decode", rate * 4e3, 4, 1)
    d, mask, n = shape.split()
    is_backward = work.endswith("bwd")
    return attention_point("attention backward, sm_90a" if is_backward else "attention forward, sm_90a", shape, work,
                           rate, int(d[1:]), mask == "causal", int(n[1:]), is_backward)


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1080, 62, 400, 44, 52
COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#0a7ea4", "#57606a")


class Plot:
    def __init__(self, rows, roofs):
        families = len({r["family"] for r in rows})
        self.height = max(560, TOP + 24 + 13 * len(rows) + 19 * families)
        xs = [r["flops_per_byte"] for r in rows]
        ys = [r["gflops"] for r in rows] + [r["gflops"] for r in roofs]
        self.x = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)) + 0.05)
        self.y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 0.02)

    def at(self, x, y):
        across = (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), self.height - BOTTOM - up * (self.height - TOP - BOTTOM)


def amount(log10):
    for unit, power in (("P", 6), ("T", 3), ("G", 0), ("M", -3)):
        if log10 >= power:
            return f"{10 ** (log10 - power):g} {unit}FLOP/s"
    return f"{10 ** log10:g} GFLOP/s"


def axes(plot):
    for e in range(plot.x[0], plot.x[1] + 1):
        x, y = plot.at(10 ** e, 10 ** plot.y[0])
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{10 ** e:g}</text>'
    for e in range(plot.y[0], plot.y[1] + 1):
        x, y = plot.at(10 ** plot.x[0], 10 ** e)
        yield f'<line class="grid" x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{amount(e)[:-6]}</text>'
    yield (f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{plot.height - 14}" text-anchor="middle">operations per byte of '
           'operands and results</text>')
    yield f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="middle">FLOP/s</text>'


def roof_lines(plot, roofs):
    low, high = 10 ** plot.x[0], 10 ** plot.x[1]
    for roof in roofs:
        corner = roof["gflops"] / roof["gbytes_per_s"]
        begin = max(low, 10 ** plot.y[0] / roof["gbytes_per_s"])
        points = [(begin, begin * roof["gbytes_per_s"]), (corner, roof["gflops"]), (high, roof["gflops"])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (plot.at(*p) for p in points))
        yield f'<polyline class="roof" points="{path}"/>'
        x, y = plot.at(high, roof["gflops"])
        yield (f'<text class="roof-name" x="{x - 4:.1f}" y="{y - 5:.1f}" text-anchor="end">{html.escape(roof["roof"])} '
               f'{tidy(roof["gflops"])}</text>')
    yield f'<text class="roof-name" x="{LEFT + 8}" y="{TOP + 14}">memory {roofs[0]["gbytes_per_s"]:,.4g} GB/s</text>'


def plain(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def tidy(gflops):
    return f"{gflops / 1e3:,.4g} TFLOP/s" if gflops >= 1e3 else f"{gflops:,.4g} GFLOP/s"


def free_place(x, y, taken):
    """Near (x, y), and away from the dots and numbers that are there."""
    for radius in (11, 17, 24, 32):
        for turn in range(12):
            px = x + radius * math.cos(turn * math.pi / 6)
            py = y - radius * math.sin(turn * math.pi / 6)
            if all(abs(px - tx) > 11 or abs(py - ty) > 9 for tx, ty in taken):
                return px, py
    return x, y - 11


def dots(plot, rows, families):
    """Numbered dots, and beside the plot what each number is."""
    places = [plot.at(r["flops_per_byte"], r["gflops"]) for r in rows]
    taken, left, line = list(places), WIDTH - RIGHT + 24, TOP
    for i, (row, (x, y)) in enumerate(zip(rows, places), 1):
        color = COLORS[families.index(row["family"]) % len(COLORS)]
        px, py = free_place(x, y, taken)
        taken.append((px, py))
        title = f'{row["family"]}, {row["label"]} ({row["kernel"]}): {tidy(row["gflops"])}'
        yield (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"><title>{html.escape(title)}</title></circle>'
               f'<text class="number" x="{px:.1f}" y="{py + 3:.1f}" text-anchor="middle" fill="{color}">{i}</text>')
        if i == 1 or rows[i - 2]["family"] != row["family"]:
            line += 19
            yield (f'<text x="{left}" y="{line}" style="fill:{color};font-weight:bold">'
                   f'{html.escape(row["family"])}</text>')
        line += 13
        yield (f'<text class="entry" x="{left + 18}" y="{line}" text-anchor="end">{i}</text>'
               f'<text class="entry" x="{left + 24}" y="{line}">{html.escape(row["label"])}</text>'
               f'<text class="entry" x="{WIDTH - 12}" y="{line}" text-anchor="end">{tidy(row["gflops"])}, '
               f'{plain(row["gbytes_per_s"])} GB/s</text>')


def draw(args):
    *sources, svg = args.files
    results = []
    for source in sources:
        with open(source, encoding="utf-8") as f:
            results.append(json.load(f))
    machine = results[0]["machine"]
    roofs = results[0].get("roofs") or next(r for name, r in DEVICES.items() if machine.startswith(name))
    rows = [p for result in results for p in points_of(result)]
    order = list(dict.fromkeys(r["family"] for r in rows))
    rows.sort(key=lambda r: order.index(r["family"]))
    plot, families = Plot(rows, roofs), list(dict.fromkeys(r["family"] for r in rows))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {plot.height}" width="{WIDTH}" '
             f'height="{plot.height}">',
             "<style>text{font:12px sans-serif}.grid{stroke:#d0d7de;stroke-width:.7}"
             ".roof{fill:none;stroke:#24292f;stroke-width:1.6}.roof-name{font-style:italic}.number{font-size:9px}"
             ".entry{font-size:10.5px}</style>",
             f'<rect width="{WIDTH}" height="{plot.height}" fill="#fff"/>',
             f'<text x="{LEFT}" y="18" font-weight="bold">{html.escape(machine)}</text>']
    parts += [*axes(plot), *roof_lines(plot, roofs), *dots(plot, rows, families)]
    parts.append("</svg>")
    with open(svg, "w", encoding="utf-8") as f:
        f.write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    m = commands.add_parser("measure")
    m.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    m.add_argument("--json", required=True)
    m.add_argument("--bin", default="build/release/tegula")
    m.add_argument("--machine", default="")
    m.add_argument("--commit", default="")
    m.add_argument("--threads", type=int, default=0)
    m.add_argument("--repeats", type=int, default=7)
    m.add_argument("--only", default="", help="benchmarks whose arguments have this word")
    m.set_defaults(run=measure)
    d = commands.add_parser("draw")
    d.add_argument("files", nargs="+", help="raw results, and last the picture")
    d.set_defaults(run=draw)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
