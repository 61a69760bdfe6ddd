#!/usr/bin/env python3
"""How near the tuner comes to the best of all points with a tenth of the trials.

  bench/tuner.py [--threads N] [--shapes M,N,K ...]

Per shape: every point of dot_packed's space is timed, and the learned search spends a tenth of as
many trials; then the kernel's own rule, the search's choice and the best of all are timed once
more, interleaved. Writes bench/results/tuner.json.
"""

import argparse

import record

SHAPES = ("2048,2048,2048", "1024,768,3072", "768,50304,64", "333,777,555", "16,3072,768",
          "64,64,20000")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    args = parser.parse_args()
    rows = []
    for shape in args.shapes:
        found = record.last_json(args.tegula, "tune", "gemm", "--shape", shape, "--exhaustive",
                                 "--threads", args.threads, "--json")
        rows.append({"m,n,k": shape, "points": found["points"], "trials": found["trials"],
                     "rule_ms": round(found["rule_ms"], 4), "tuned_ms": round(found["tuned_ms"], 4),
                     "best_ms": round(found["best_ms"], 4),
                     "reached": round(found["reached"], 4),
                     "rule_reaches": round(found["rule_reaches"], 4)})
        print(rows[-1], flush=True)
        record.write(args, "tuner", f"bench/tuner.py --threads {args.threads}", rows,
                     threads=args.threads)


if __name__ == "__main__":
    main()
