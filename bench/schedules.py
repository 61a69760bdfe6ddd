#!/usr/bin/env python3
"""Plays every schedule on four ranks with eight micro-batches: the table and the pictures of docs/schedules.md.

  bench/schedules.py           rewrites them
  bench/schedules.py --check   fails if that would change the table

A rank's layers take 1 ms forward, 1 ms for input gradients and 1 ms for weight gradients of a micro-batch, whatever
stages they are cut into, so each rank computes for 24 ms. What is printed follows from the schedules alone.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "schedules.md"
BEGIN, END = "<!-- schedules -->\n", "<!-- end -->\n"
STEP = ["plan", "--n-layers", "8", "--n-heads", "2", "--d-model", "16", "--seqlen", "16", "--vocab-size", "64", "--batch",
        "1", "--accumulate", "8", "--target", "zen4", "--json"]
ONE, HALF = ["--stages", "4", "--part-ms", "1,1,1"], ["--stages", "8", "--part-ms", ".5,.5,.5"]
# Flags, and how many of what is in flight are a micro-batch of a rank's layers.
SCHEDULES = {"forward_only": (ONE, 1), "in_turns": (ONE, 1), "gpipe": (ONE, 1), "one_f_one_b": (ONE, 1),
             "interleaved": (HALF, 2), "zero_bubble": (ONE, 1), "zero_bubble_h2": (ONE, 1), "zero_bubble_v": (HALF, 2),
             "chimera": (ONE, 1), "dual_pipe": (ONE, 1), "tera_pipe": ([*ONE, "--slices", "4"], 4)}
PICTURES = ("one_f_one_b", "interleaved", "zero_bubble", "zero_bubble_v", "chimera", "dual_pipe")


def play(tool, name, *more):
    done = subprocess.run([tool, *STEP, *SCHEDULES[name][0], "--schedule", name, *more], check=True, text=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def table(tool):
    lines = ["| schedule | step, ms | waiting | longest wait of a rank between its first and its last part, ms | "
             "in flight, micro-batches of a rank's layers |", "| --- | --- | --- | --- | --- |"]
    for name, (_, parts) in SCHEDULES.items():
        plan = play(tool, name)
        ranks = plan["ranks"]
        held = [r["peak_in_flight"] / parts for r in ranks]
        lines.append(f"| `{name}` | {1e3 * plan['seconds']:.4g} | {100 * plan['bubble']:.1f} % | "
                     f"{round(1e3 * max(r['waits_s'] for r in ranks), 6):.3g} | {', '.join(f'{h:.3g}' for h in held)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--bin", default=str(ROOT / "build" / "release" / "tegula"))
    options = parser.parse_args()
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    new = head + BEGIN + table(options.bin) + END + rest.split(END)[1]
    if options.check:
        if new != page:
            print("docs/schedules.md is not what bench/schedules.py writes: run it", file=sys.stderr)
        return new != page
    PAGE.write_text(new)
    for name in PICTURES:
        play(options.bin, name, "--gantt", str(ROOT / "docs" / "schedules" / f"{name}.svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
