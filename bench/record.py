"""What the scripts in bench/ share: running `tegula --json`, and writing a raw result.

A result is {"name", "machine", "threads", "versions", "commit", "measures", "command", "date", ..., "rows"};
tools/bench_tables.py makes the tables of docs/benchmarks.md and docs/lab from them, and marks those whose code has
changed; bench/plots.py draws some of them.
"""

import datetime
import json
import pathlib
import platform
import re
import subprocess

# What a figure measures, as git's pathspecs: when it changes, the figure is old.
ATTENTION = ["tegula/kernels/cpu/*attention*"]
PRODUCTS = ["tegula/kernels/cpu/*dot*", "tegula/kernels/cpu/*pack*", "tegula/kernels/cpu/*pairs*"]
KERNELS = ["tegula/kernels/cpu", "tegula/base/thread_pool.cpp"]
COMPILE = ["tegula/ir", "tegula/ops", "tegula/passes", "tegula/plan", "tegula/models"]
STEP = ["tegula/kernels/cpu", "tegula/tile", "tegula/ops", "tegula/passes", "tegula/plan", "tegula/runtime",
        "tegula/models", "tegula/train"]
TUNER = ["tegula/runtime/search.cpp", "tegula/runtime/cost_model.cpp", "tegula/runtime/tuner.cpp", *PRODUCTS]


def add_flags(parser, threads=2):
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--threads", type=type(threads), default=threads)
    parser.add_argument("--machine", default="", help="its description; else the processor's name")
    parser.add_argument("--commit", default="", help="where the tree is no git checkout")
    parser.add_argument("--results", default="bench/results", help="folder")


def add_table_flags(parser):
    parser.add_argument("--table", metavar="RESULT", help="the table of a result; nothing is measured")
    parser.add_argument("--check", metavar="PAGE", help="print no table, but whether it is that of the page")


def show(table, page):
    """Prints the table, or where a page is given what it should be there; the exit code."""
    if not page:
        print(table)
    elif table not in pathlib.Path(page).read_text(encoding="utf-8"):
        print(f"{page} has another table; it should be\n{table}")
        return 1
    return 0


def last_json(*command):
    """The object on the last line that the command prints."""
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cpu_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((set(line.split(":")[1].split()) for line in f if line.startswith("flags")), set())


def compiler(binary):
    """The compiler that made a binary, by the note that it leaves there: {} if there is none."""
    with open(binary, "rb") as f:
        found = re.search(rb"GCC: \([^)]*\) ([\d.]+)", f.read())
    return {"g++": found[1].decode()} if found else {}


def commit_of_tree():
    """A tree with changes has no name: that its commit is not the whole truth must be said."""
    return subprocess.run(["git", "describe", "--always", "--exclude=*", "--dirty=, with changes"], text=True,
                          capture_output=True, check=False).stdout.strip()


def write(args, name, command, rows, measures, threads, versions=None, **more):
    result = {"name": name, "machine": args.machine or processor(), "threads": threads,
              "versions": {**compiler(args.tegula), **(versions or {})}, "commit": args.commit or commit_of_tree(),
              "measures": measures, "command": command, "date": datetime.date.today().isoformat(), **more, "rows": rows}
    with open(f"{args.results}/{name}.json", "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
