#!/usr/bin/env python3
"""Draws the pictures of docs/benchmarks.md from bench/results/*.json: how many times as fast as a peer.

  bench/plots.py           draws docs/bench_training.svg, docs/bench_cpu.svg and docs/bench_gpu.svg
  bench/plots.py --check   fails if that would change one of them

Each line is a work, each dot a series: right of the line at 1 Tegula is faster, left of it slower. The axis is
logarithmic, so that twice as fast and half as fast lie equally far from 1.
"""

import argparse
import html
import json
import math
import pathlib
import re
import sys
from typing import NamedTuple

WIDTH, LEFT, RIGHT, ROW = 860, 300, 690, 17
TICKS = (0.25, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 10, 16, 25, 40)


class Source(NamedTuple):
    """Rows of a result whose name matches: a group of the picture, a series, and the column with the ratio."""
    group: str
    series: str
    result: str
    pattern: str = ""
    column: str = "ratio"


EAGER, COMPILED, BEST = "beside PyTorch, eager", "beside torch.compile", "beside the best of cuDNN, FlashAttention and cuBLASLt"
ZEN3, ZEN4, AMX = "Zen 3", "Zen 4", "Xeon with AMX"
COLORS = {EAGER: "#0969da", COMPILED: "#bc4c00", BEST: "#0969da", ZEN3: "#57606a", ZEN4: "#0969da", AMX: "#bc4c00"}
F32, BF16, INT8 = r"(?!.*(bf16|int8))", r"(?=.*bf16)", r"(?=.*int8)"

PLOTS = {
    "bench_training.svg": ("A training step, and a decoded token, on two threads but where it says one: times as fast as PyTorch", [
        Source("Xeon with AMX", EAGER, "train_torch_compiled"),
        Source("Xeon with AMX", COMPILED, "train_torch_compiled", "", "ratio_compiled"),
        Source("Zen 4", EAGER, "train_torch_zen4"),
        Source("Zen 3", EAGER, "train_torch_zen3_later"),
        Source("AMD EPYC, one thread", EAGER, "lstm_1_threads"),
        Source("AMD EPYC, two threads", EAGER, "lstm_2_threads"),
    ]),
    "bench_cpu.svg": ("CPU kernels on two threads: times as fast as PyTorch", [
        Source("Attention, f32", ZEN3, "compare_torch_zen3", F32 + "attention"),
        Source("Attention, f32", ZEN4, "compare_torch_zen4", F32 + "attention"),
        Source("Attention, f32", AMX, "compare_torch", F32 + "attention"),
        Source("Attention, bf16", ZEN4, "compare_torch_zen4", BF16 + "attention"),
        Source("Attention, bf16", AMX, "compare_torch_ways", BF16 + "attention"),
        Source("Decoding, beside the fastest of PyTorch's ways", AMX, "compare_torch_ways", "decode"),
        Source("Products, f32", ZEN3, "compare_torch_gemm_zen3", F32 + "gemm"),
        Source("Products, f32", ZEN4, "compare_torch_zen4", F32 + "gemm"),
        Source("Products, f32", AMX, "compare_torch", F32 + "gemm"),
        Source("Products, bf16", ZEN4, "compare_torch_zen4", BF16 + "gemm"),
        Source("Products, bf16", AMX, "compare_torch_ways", BF16 + "gemm"),
        Source("Products, int8", ZEN4, "compare_torch_zen4", INT8 + "gemm"),
        Source("Products, int8", AMX, "compare_torch", INT8 + "gemm"),
    ]),
    "bench_gpu.svg": ("Single calls on an H200: times as fast as PyTorch", [
        Source("Attention, bf16", BEST, "compare_cuda", "attention (fwd|bwd) d", "over_best_peer"),
        Source("Attention, f32", BEST, "compare_cuda", "attention ... f32", "over_best_peer"),
        Source("Products, bf16", BEST, "compare_cuda", "gemm", "over_best_peer"),
        Source("Decoding, bf16, 32 query and 8 KV heads", BEST, "compare_cuda", "decode", "over_best_peer"),
    ]),
}


def label_of(row):
    return f"{row['work']} {row['shape']}" if "shape" in row else row["work"]


def points_of(sources, results):
    """{group: {label: {series: ratio}}}, in the order in which the sources mention them."""
    groups = {}
    for source in sources:
        found = [row for row in results[source.result]["rows"]
                 if re.match(source.pattern, label_of(row)) and row.get(source.column) is not None]
        if not found:
            raise ValueError(f"no row of {source.result} has a {source.column} and matches '{source.pattern}'")
        for row in found:
            lines = groups.setdefault(source.group, {})
            lines.setdefault(label_of(row), {})[source.series] = row[source.column]
    return groups


def text(x, y, words, **more):
    attributes = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{html.escape(words)}</text>'


def axis_of(ratios):
    """Where a ratio lies, and the ticks in sight."""
    low = max((t for t in TICKS if t <= min(ratios)), default=TICKS[0])
    high = min((t for t in TICKS if t >= max(ratios)), default=TICKS[-1])
    low, high = min(low, 0.7), max(high, 1.5)
    span = math.log(high / low)
    return (lambda r: LEFT + math.log(r / low) / span * (RIGHT - LEFT)), [t for t in TICKS if low <= t <= high]


def draw(title, sources, results):
    groups = points_of(sources, results)
    at, ticks = axis_of([r for lines in groups.values() for dots in lines.values() for r in dots.values()])
    series = list(dict.fromkeys(source.series for source in sources))
    top, y, body = 58, 58, []
    for group, lines in groups.items():
        y += ROW + 6
        body.append(text(12, y, group, font_weight="bold"))
        for label, dots in lines.items():
            y += ROW
            ends = [at(r) for r in (1, *dots.values())]
            body.append(text(24, y + 4, label))
            body.append(f'<path d="M{min(ends):.1f} {y}H{max(ends):.1f}" stroke="#afb8c1" stroke-width="2"/>')
            body += [f'<circle cx="{at(dots[s]):.1f}" cy="{y}" r="4.5" fill="{COLORS[s]}"><title>{s}: {dots[s]}</title>'
                     '</circle>' for s in series if s in dots]
            body += [text(RIGHT + 14 + 44 * i, y + 4, f"{dots[s]:.2f}", fill=COLORS[s])
                     for i, s in enumerate(series) if s in dots]
    bottom = y + 14
    used = list(dict.fromkeys(source.result for source in sources))
    foot = [text(12, bottom + 18 + 14 * i, f"{name}: commit {results[name]['commit']}, {results[name]['date']}", fill="#57606a",
                 font_size=10.5) for i, name in enumerate(used)]
    height = bottom + 18 + 14 * len(used)
    legend, x = [], LEFT
    for s in series:
        legend += [f'<circle cx="{x}" cy="34" r="4.5" fill="{COLORS[s]}"/>', text(x + 9, 38, s)]
        x += 28 + 6.5 * len(s)
    grid = [f'<path d="M{at(t):.1f} {top}V{bottom}" stroke="{"#24292f" if t == 1 else "#d0d7de"}"/>' +
            text(at(t), top - 5, f"{t:g}", text_anchor="middle", fill="#57606a") for t in ticks]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', text(12, 18, title, font_weight="bold"),
        *legend, *grid, *body, *foot, "</svg>", ""])


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture is stale")
    parser.add_argument("--results", type=pathlib.Path, default=root / "bench" / "results")
    parser.add_argument("--docs", type=pathlib.Path, default=root / "docs", help="folder of the pictures")
    arguments = parser.parse_args()
    names = {source.result for _, sources in PLOTS.values() for source in sources}
    results = {n: json.loads((arguments.results / f"{n}.json").read_text(encoding="utf-8")) for n in names}
    stale = 0
    for name, (title, sources) in PLOTS.items():
        file, picture = arguments.docs / name, draw(title, sources, results)
        if arguments.check and (not file.exists() or file.read_text(encoding="utf-8") != picture):
            print(f"{name} is stale: run bench/plots.py")
            stale = 1
        elif not arguments.check:
            file.write_text(picture, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
