"""What the scripts of bench/cuda share: the list of variants, timing in the steady state, raw results."""

import json
import os
import random
import subprocess
import sys
import time

import torch

HANG_S = 100 if "TEGULA_UNINITIALIZED" in os.environ else 10  # under a sanitizer a launch may take long


def read_variants(path):
    """Name, source and defines (without TEGULA_, in lower case) of each line of variants.txt."""
    for line in open(path, encoding="utf-8"):
        words = line.split("#")[0].split()
        if words:
            pairs = (word.split("=") for word in words[2:])
            yield words[0], words[1], {key.lower(): int(value) for key, value in pairs}


def finish(name, hung_file):
    """Waits for the GPU; a kernel that does not end ends the process."""
    done = torch.cuda.Event()
    done.record()
    start = time.time()
    while not done.query():
        if time.time() - start > HANG_S:
            print(f"HANG {name}", flush=True)
            with open(hung_file, "a", encoding="utf-8") as f:
                f.write(name + "\n")
            os._exit(3)
        time.sleep(1e-4)


def time_ms(launch, warm_s=0.15, timed_s=0.1):
    """Mean over timed_s, after warm_s of the same work: the card runs at its power limit, and what ran
    just before decides its clock for a tenth of a second."""
    begin, warm, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    launch()
    begin.record()
    launch()
    warm.record()
    warm.synchronize()
    one = max(1e-3, begin.elapsed_time(warm) / 1e3)
    for _ in range(int(warm_s / one) + 1):
        launch()
    n = int(timed_s / one) + 2
    begin.record()
    for _ in range(n):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / n


def profile(runs):
    """Each once, for a profiler that counts launches."""
    for launch in runs.values():
        launch()
        torch.cuda.synchronize()


def interleaved(runs, rounds):
    ms = {name: [] for name in runs}
    for _ in range(rounds):
        for name in random.sample(sorted(runs), len(runs)):
            ms[name].append(time_ms(runs[name]))
    return ms


def graph_of(launches):
    """A graph of launches one after another."""
    for launch in launches[:2]:
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    return graph


def graph_us(graph, n_launches):
    """Mean microseconds of a launch, over three replays."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(3):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / (3 * n_launches)


def print_sum(checks):
    """Of lists of kernels' checks, as prove.py reads it."""
    failed = sum(len(c["failures"]) for c in checks)
    print(f"{sum(c['cases'] for c in checks)} cases of {len(checks)} variants: {failed} failed, worst error/bound "
          f"{max((c['error_over_bound'] for c in checks), default=0):.2f}", flush=True)


def machine_state():
    query = "name,driver_version,clocks.sm,power.draw,temperature.gpu"
    return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
                          capture_output=True, text=True, check=False).stdout.strip()


def sustained(launch, seconds=0.8):
    """Mean ms over a longer stretch, with the clock and power read in its middle."""
    launch()
    torch.cuda.synchronize()
    one = time_ms(launch, 0, 0.02)
    n = max(10, int(seconds * 1000 / one))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(n):
        launch()
    end.record()
    time.sleep(seconds * 0.5)
    state = machine_state()
    end.synchronize()
    return begin.elapsed_time(end) / n, state


def write_result(path, name, script, commit, rows, measures, **more):
    """`measures`: what the figures are of, as git's pathspecs below tegula/kernels/cuda."""
    gpu, driver = machine_state().split(", ")[:2]
    out = {"name": name, "machine": gpu, "threads": "on the GPU",
           "versions": {"driver": driver, "torch": torch.__version__},
           "commit": commit, "measures": [f"tegula/kernels/cuda/{part}" for part in measures], "command": " ".join([script, *sys.argv[1:]]),
           "date": time.strftime("%Y-%m-%d"), "rows": rows, **more}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)
        f.write("\n")
