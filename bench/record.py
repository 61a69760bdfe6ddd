"""What the scripts in bench/ share: running `tegula --json`, and writing a raw result.

A result is {"name", "machine", "commit", "command", "date", ..., "rows"}; tools/bench_tables.py
makes the tables of docs/benchmarks.md from them.
"""

import datetime
import json
import platform
import subprocess


def add_flags(parser, threads=2):
    parser.add_argument("--tegula", default="build/release/tegula")
    parser.add_argument("--threads", type=type(threads), default=threads)
    parser.add_argument("--machine", default="", help="its description; else the processor's name")
    parser.add_argument("--commit", default="", help="where the tree is no git checkout")
    parser.add_argument("--results", default="bench/results", help="folder")


def last_json(*command):
    """The object on the last line that the command prints."""
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        names = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(args, name, command, rows, **more):
    commit = args.commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], text=True,
                                           capture_output=True, check=False).stdout.strip()
    result = {"name": name, "machine": args.machine or processor(), "commit": commit,
              "command": command, "date": datetime.date.today().isoformat(), **more, "rows": rows}
    with open(f"{args.results}/{name}.json", "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
