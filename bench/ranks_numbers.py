#!/usr/bin/env python3
"""What a step over ranks costs beside one rank's: processor seconds, the largest process, memory while saving, mode exact.

    bench/ranks_numbers.py [--tegula build/release/tegula] [--rounds 5]

Runs take turns and the least of all rounds counts, which others on the machine disturb least. Processor seconds are
those of all processes of a run, from its start to its end, by the operating system; what one rank does is the same
step. Memory is the sum of the processes' PSS (/proc/PID/smaps_rollup), sampled while a run saves after every step.
Mode exact is beside fast by processor seconds of steps: those of a long run less those of a short one, without what
both do once; the time of a step on two ranks would be that of whoever else is at work. Writes
bench/results/ranks_numbers.json.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time

import record

# 12.7 million parameters: an exchange is small beside the step, and weights beside program and libraries.
MODEL = "--model llama --n-layers 4 --n-heads 8 --n-kv-heads 8 --d-model 512 --seqlen 128 --batch 8".split()
RUN = "--warmup 1 --eval-every 0 --lr 0.001 --mode exact --threads 1 --tokenizer chars".split()
SMALL = "--model gpt2 --n-layers 4 --n-heads 8 --d-model 256 --seqlen 128 --batch 8 --warmup 1 --eval-every 0 --threads 1".split()


def children(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text(encoding="utf-8").split():
            found += children(int(child))
    return found


def pss_bytes(pid):
    """Of a process and all that it began, those that are still there."""
    total = 0
    try:
        for one in children(pid):
            for line in pathlib.Path(f"/proc/{one}/smaps_rollup").read_text(encoding="utf-8").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    except (OSError, ProcessLookupError):
        return 0  # one has just ended: no whole sum
    return total


def processor_seconds(pid):
    """By process, with what its own ended children took."""
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for one in children(pid):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            seconds[one] = (int(fields[11]) + int(fields[12])) / ticks
        except OSError:
            pass
    return seconds


class Watched:
    """A run of the tool, looked at while it goes on."""

    def __init__(self, command, watches_memory):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.peak_pss, self.by_process = 0, {}
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        ended = threading.Event()

        def look():
            while not ended.is_set():
                try:
                    if watches_memory:
                        self.peak_pss = max(self.peak_pss, pss_bytes(process.pid))
                    for pid, seconds in processor_seconds(process.pid).items():
                        self.by_process[pid] = max(seconds, self.by_process.get(pid, 0))
                except (OSError, ProcessLookupError):
                    pass
                time.sleep(.005 if watches_memory else .02)

        watcher = threading.Thread(target=look)
        watcher.start()
        out, err = process.communicate()
        ended.set()
        watcher.join()
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{err}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() counts in hundredths
        self.seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.summary = json.loads(out.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    record.add_flags(parser, threads=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    a = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        text = pathlib.Path(tmp) / "text.txt"
        r = random.Random(1)
        text.write_text("".join(r.choice("abcdefghijklmnopqrstuvwxyz \n") for _ in range(60000)), encoding="utf-8")

        def train(*flags, out=None, watches_memory=False):
            where = ["--out", os.path.join(tmp, out), "--overwrite"] if out else []
            return Watched([a.tegula, "train", "--data", text, *where, *flags, "--json"], watches_memory)

        # Divided: what all processes do is little more than what one rank does.
        variants = {"one rank": [], "dp=4": ["--mesh", "dp=4", "--processes", 4],
                    "dp=2,tp=2": ["--mesh", "dp=2,tp=2", "--processes", 4],
                    "dp=4, ZeRO-3": ["--mesh", "dp=4", "--processes", 4, "--zero", 3]}
        seconds, share = {}, {}
        for _ in range(a.rounds):
            for name, flags in variants.items():
                run = train(*MODEL, *RUN, "--steps", a.steps, *flags)
                if run.seconds < seconds.get(name, 1e9):
                    seconds[name] = run.seconds
                    share[name] = max(run.by_process.values())
        for name in list(variants)[1:]:
            rows.append({"what": f"processor seconds of 4 processes, {name}", "of one rank": seconds["one rank"],
                         "of all": seconds[name], "ratio": seconds[name] / seconds["one rank"], "at most": 1.5})
            rows.append({"what": f"those of the largest process, {name}", "of one rank": seconds["one rank"],
                         "of all": share[name], "ratio": share[name] / seconds["one rank"], "at most": .45})
        # Memory while saving.
        save = ["--steps", 3, "--save-every", 1]
        mib = {}
        for name in ("one rank", "dp=4, ZeRO-3"):
            mib[name] = train(*MODEL, *RUN, *save, *variants[name], out="saved", watches_memory=True).peak_pss / (1 << 20)
        rows.append({"what": "PSS while saving, MiB, dp=4, ZeRO-3", "of one rank": mib["one rank"], "of all": mib["dp=4, ZeRO-3"],
                     "ratio": mib["dp=4, ZeRO-3"] / mib["one rank"], "at most": 1.6})
        # Mode exact beside mode fast on the same mesh.
        for mesh in ("dp=2", "tp=2", "dp=2,tp=2", "cp=2"):
            took, more = {}, 2 * a.steps
            for _ in range(a.rounds + 2):
                for mode in ("fast", "exact"):
                    for steps in (2, more + 2):
                        run = train(*SMALL, "--steps", steps, "--mesh", mesh, "--mode", mode)
                        took[mode, steps] = min(run.seconds, took.get((mode, steps), 1e9))
            ms = {mode: 1e3 * (took[mode, more + 2] - took[mode, 2]) / more for mode in ("fast", "exact")}
            rows.append({"what": f"processor milliseconds of a step, exact beside fast, {mesh}", "of one rank": None,
                         "of fast": ms["fast"], "of all": ms["exact"], "ratio": ms["exact"] / ms["fast"],
                         "at most": None if "cp" in mesh else 1.05})
    for row in rows:
        print(json.dumps(row), file=sys.stderr)
    record.write(a, "ranks_numbers", f"bench/ranks_numbers.py --rounds {a.rounds} --steps {a.steps}", rows,
                 [*record.STEP, "tegula/comm"], a.threads, columns=["what", "of one rank", "of fast", "of all", "ratio", "at most"])


if __name__ == "__main__":
    main()
