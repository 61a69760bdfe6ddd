#!/usr/bin/env python3
"""How near the tuner comes to the best of all points with a tenth of the trials.

  bench/tuner.py [--threads N] [--runs 3] [--shapes M,N,K ...] [--name tuner]

Per shape and run: every point of dot_packed's space is timed, and the learned search spends a tenth of as
many trials (one at least); then the kernel's own rule, the search's choice and the best of all are timed once
more, interleaved. Writes bench/results/NAME.json.
"""

import argparse

import record

SHAPES = ("2048,2048,2048", "1024,768,3072", "1024,3072,768", "512,768,768", "256,1024,1024", "333,777,555",
          "48,3072,768", "64,384,1536", "200,1000,300", "16,3072,768", "768,50304,64", "64,64,20000")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    record.add_flags(parser)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--name", default="tuner", help="of the result")
    args = parser.parse_args()
    rows = []
    for shape in args.shapes:
        for run in range(args.runs):
            found = record.last_json(args.tegula, "tune", "gemm", "--shape", shape, "--exhaustive",
                                     "--threads", args.threads, "--json")
            rows.append({"run": str(run + 1), "m,n,k": shape, "points": found["points"], "trials": found["trials"],
                         "rule_ms": round(found["rule_ms"], 4), "tuned_ms": round(found["tuned_ms"], 4),
                         "best_ms": round(found["best_ms"], 4), "reached": round(found["reached"], 4),
                         "rule_reaches": round(found["rule_reaches"], 4)})
            print(rows[-1], flush=True)
            record.write(args, args.name, f"bench/tuner.py --threads {args.threads} --runs {args.runs}", rows,
                         record.TUNER, args.threads)


if __name__ == "__main__":
    main()
