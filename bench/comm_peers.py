#!/usr/bin/env python3
"""An all-reduce between processes of this machine, beside Open MPI's: PyPI's mpi4py on Debian's Open MPI.

    bench/comm_peers.py [--processes 2,8] [--bytes 8388608] [--tegula build/release/tegula] [--python python3]

Each is a run of its own, medians of its calls; `--python` has mpi4py and numpy. Writes bench/results/comm_peers.json.
"""
import argparse
import os
import statistics
import sys
import time

import record


def peer(n_bytes):
    """One of mpirun's processes."""
    import numpy as np
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    x = np.random.rand(n_bytes // 4).astype(np.float32)
    y = np.empty_like(x)
    times = []
    for _ in range(18):
        world.Barrier()
        start = time.perf_counter()
        world.Allreduce(x, y)
        times.append(time.perf_counter() - start)
    longest = world.allreduce(statistics.median(times[3:]), op=MPI.MAX)
    if world.rank == 0:
        print(f'{{"seconds": {longest}}}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", default="2,8")
    parser.add_argument("--bytes", type=int, default=8 << 20)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peer", action="store_true", help="the peer's side")
    record.add_flags(parser, threads=1)
    a = parser.parse_args()
    if a.peer:
        peer(a.bytes)
        return
    rows = []
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for n in a.processes.split(","):
        ours = record.last_json(a.tegula, "bench", "comm", "--processes", n, "--op", "all_reduce", "--bytes", a.bytes, "--json")
        best = min(ours["rows"], key=lambda row: row["seconds"])
        mpi = record.last_json("mpirun", *root, "--oversubscribe", "-n", n, a.python, __file__, "--peer", "--bytes", a.bytes)
        rows.append({"processes": int(n), "bytes": a.bytes, "algorithm": best["algorithm"], "tegula_ms": best["seconds"] * 1e3,
                     "mpi_ms": mpi["seconds"] * 1e3, "of_mpi": best["seconds"] / mpi["seconds"]})
        print(rows[-1], flush=True)
    record.write(a, "comm_peers", "bench/comm_peers.py", rows, ["tegula/comm", "tegula/kernels/cpu/common/algorithms",
                                                              "tegula/kernels/cpu/common/collective.cpp"], 1)


if __name__ == "__main__":
    main()
