#!/usr/bin/env python3
"""The matmul ladder on one thread: what each rung reads (formula and count), its time and its share
of the multiply-add peak.

  bench/matmul_ladder.py [--n 512] [--plot-only]

Writes bench/results/matmul_ladder.json, and from it docs/kernels/matmul_cpu.svg: every rung on the
roofs of the machine, by the bytes it reads out of L1 and out of memory.
"""

import argparse
import json
import math
import pathlib

import record

COUNT_N = 192  # counts are taken on a smaller product; formulas scale
SVG = pathlib.Path("docs/kernels/matmul_cpu.svg")
NAMES = {"dot_naive": "naive", "dot_cache_tiled": "cache-tiled",
         "dot_register_tiled": "register-tiled", "dot_packed": "packed"}


def measure(args):
    counted = record.last_json(args.tegula, "bench", "gemm", "--shape", f"{COUNT_N},{COUNT_N},{COUNT_N}",
                               "--reads", "--json")
    rows = []
    for rung in counted["rungs"]:
        assert rung["is_equal"], rung
        slow = rung["kernel"] == "dot_naive"
        timed = record.last_json(args.tegula, "bench", "gemm", "--shape", f"{args.n},{args.n},{args.n}",
                                 "--kernel", rung["kernel"], "--threads", 1,
                                 "--repeats", 1 if slow else 7, "--json")
        rows.append({"rung": rung["kernel"], "L1 reads": rung["l1_formula"], "L1 formula": rung["l1_reads"],
                     "L1 counted": rung["l1_counted"], "memory reads": rung["memory_formula"],
                     "memory formula": rung["memory_reads"], "memory counted": rung["memory_counted"],
                     "ms": round(timed["ms_median"], 3), "gflops": round(timed["gflops"], 3),
                     "share_of_peak": round(timed["share_of_peak"], 4)})
        print(rows[-1], flush=True)
    record.write(args, "matmul_ladder", f"bench/matmul_ladder.py --n {args.n}", rows,
                 record.PRODUCTS, 1, n=args.n, count_n=COUNT_N, peak_gflops=round(counted["peak_gflops"], 2),
                 l1_gbytes_per_s=round(counted["l1_gbytes_per_s"], 2),
                 memory_gbytes_per_s=round(counted["memory_gbytes_per_s"], 2))


def plot(result):
    width, height, left, right, top, bottom = 760, 420, 70, 20, 20, 60
    x_range, y_range = (0.1, 100.0), (0.05, 200.0)

    def at(x, y):
        fx = math.log(x / x_range[0]) / math.log(x_range[1] / x_range[0])
        fy = math.log(y / y_range[0]) / math.log(y_range[1] / y_range[0])
        return left + fx * (width - left - right), height - bottom - fy * (height - top - bottom)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for decade in range(-2, 3):
        for value, is_x in ((10.0**decade, True), (10.0**decade, False)):
            low, high = x_range if is_x else y_range
            if not low <= value <= high:
                continue
            x, y = at(value, y_range[0]) if is_x else at(x_range[0], value)
            x2, y2 = at(value, y_range[1]) if is_x else at(x_range[1], value)
            anchor, dx, dy = ("middle", 0, 16) if is_x else ("end", -6, 4)
            out.append(f'<path d="M{x:.1f} {y:.1f}L{x2:.1f} {y2:.1f}" stroke="#ddd"/>'
                       f'<text x="{x + dx:.1f}" y="{y + dy:.1f}" text-anchor="{anchor}">{value:g}</text>')
    peak = result["peak_gflops"]
    for roof, name, color in ((result["l1_gbytes_per_s"], "L1", "#c60"),
                              (result["memory_gbytes_per_s"], "memory", "#06c")):
        knee = peak / roof
        start = max(x_range[0], y_range[0] / roof)
        x1, y1 = at(start, start * roof)
        x2, y2 = at(min(knee, x_range[1]), min(knee, x_range[1]) * roof)
        out.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{color}" stroke-width="2"/>'
                   f'<text x="{x1 + 8:.1f}" y="{y1 - 8:.1f}" fill="{color}">{name} {roof:g} GB/s</text>')
    x1, y1 = at(x_range[0], peak)
    x2, y2 = at(x_range[1], peak)
    out.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#333" stroke-width="2"/>'
               f'<text x="{x2:.1f}" y="{y1 - 6:.1f}" text-anchor="end">multiply-add peak {peak:g} GFLOP/s</text>')
    flops = 2.0 * result["count_n"]**3
    for row in result["rows"]:
        for reads, color in ((row["L1 counted"], "#c60"), (row["memory counted"], "#06c")):
            x, y = at(min(flops / (4 * reads), x_range[1]), max(row["gflops"], y_range[0]))
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}">'
                       f'<title>{row["rung"]}: {row["gflops"]} GFLOP/s</title></circle>')
        x, y = at(min(flops / (4 * row["memory counted"]), x_range[1]), max(row["gflops"], y_range[0]))
        below = 14 if row["rung"] == "dot_cache_tiled" else 0  # it reads what the next rung reads
        out.append(f'<text x="{x + 9:.1f}" y="{y + 4 + below:.1f}">{NAMES[row["rung"]]}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 14}" text-anchor="middle">'
               'operations per byte read: out of L1 (orange), out of memory (blue)</text>'
               f'<text transform="translate(16 {height / 2}) rotate(-90)" text-anchor="middle">GFLOP/s</text>'
               "</svg>\n")
    SVG.write_text("\n".join(out), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--plot-only", action="store_true", help="draw anew what was measured")
    args = parser.parse_args()
    if not args.plot_only:
        measure(args)
    with open(f"{args.results}/matmul_ladder.json", encoding="utf-8") as f:
        plot(json.load(f))


if __name__ == "__main__":
    main()
