#!/usr/bin/env python3
"""Says what a build costs: bytes of headers read, which are the same in every run, and processor seconds.

    tools/build_time.py [BUILD]            a table by folder of the build in BUILD (build/release)
    tools/build_time.py --check [BUILD]    fails where more bytes of headers are read than tools/build_time.json allows
    tools/build_time.py --write [BUILD]    writes that file: what is read now, and 3 % more
    tools/build_time.py --measure FOLDER [--source TREE] [--target tegula] [-j N]
                                           builds TREE anew in FOLDER, without ccache, and prints the table with
                                           the processor seconds of each folder

Bytes of headers are summed over objects: a header of 10 kB that 30 files include counts 300 kB. They come from
`ninja -t deps`, so from the compiler. Processor seconds are those of the compiler's processes (user and system),
however many run at once. Where nothing was measured, a table has ninja's wall seconds of each file instead, which grow
with what else the machine does. Another compiler than the limits were written with reads other headers: then nothing
is compared.
"""

import argparse
import collections
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = pathlib.Path(__file__).with_suffix(".json")
MARGIN = 1.03
RECORDS = "processor_seconds.jsonl"  # in the folder of a measured build
TEST_FOLDERS = ("tests", "bench")  # what the tool does not need is a group of its own


def record(log, command):
    """A compiler launcher: runs the command, and notes what processor time it took for which output."""
    code = subprocess.call(command)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command[:-1] else ""
    line = json.dumps({"output": output, "seconds": used.ru_utime + used.ru_stime}) + "\n"
    with open(log, "ab", buffering=0) as file:  # one write: lines of several compilers do not mix
        file.write(line.encode())
    return code


def folder_of(source, output):
    """tegula/ops, cli, tests/io …: kernels one folder deeper, an instruction set's apart."""
    parts = source.split("/")
    if parts[0] != "tegula" and parts[0] not in TEST_FOLDERS:
        return parts[0] if len(parts) > 1 else "generated"
    depth = 3 if parts[:2] == ["tegula", "kernels"] and len(parts) > 3 else 2
    folder = "/".join(parts[:depth]) if len(parts) > depth else "/".join(parts[:-1])
    isa = [p for p in output.split("/") if p.startswith("tegula_isa_")]
    return folder + (" " + isa[0].removeprefix("tegula_isa_").removesuffix(".dir") if isa else "")


def read_deps(text):
    """Output -> files that it was made of, the source first, from the text of `ninja -t deps`."""
    deps, files = {}, None
    for line in text.splitlines():
        if line.startswith("    "):
            files.append(line.strip())
        elif ": #deps " in line:
            files = deps.setdefault(line.split(": #deps ")[0], [])
    return deps


class Sizes(dict):
    def __missing__(self, path):
        try:
            self[path] = os.stat(path).st_size
        except OSError:  # a header that is gone since
            self[path] = 0
        return self[path]


def read_log(text):
    """Output -> wall seconds of its last build, from .ninja_log."""
    seconds = {}
    for line in text.splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1e3
    return seconds


class Build:
    """What is known of the objects in a build folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        try:
            commands = json.loads((self.folder / "compile_commands.json").read_text(encoding="utf-8"))
        except OSError as error:
            sys.exit(f"build_time: {error.filename}: {error.strerror}: configure and build first")
        cache = (self.folder / "CMakeCache.txt").read_text(encoding="utf-8")
        self.source = next(line.split("=", 1)[1] for line in cache.splitlines()
                           if line.startswith("CMAKE_HOME_DIRECTORY:"))
        deps = read_deps(subprocess.run(["ninja", "-C", self.folder, "-t", "deps"], check=True, capture_output=True,
                                        text=True).stdout)
        log = self.folder / ".ninja_log"
        self.wall = read_log(log.read_text(encoding="utf-8")) if log.exists() else {}
        self.seconds = collections.Counter()
        records = self.folder / RECORDS
        if records.exists():
            for line in records.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.seconds[row["output"]] = row["seconds"]
        sizes = Sizes()
        self.objects = {}  # output -> (folder, bytes of headers)
        self.unbuilt = collections.Counter()
        for command in commands:
            words, source = command["command"].split(), command["file"]
            output = words[words.index("-o") + 1]
            if source.startswith(str(self.folder.resolve())) or "/generated/" in source:
                source = "generated/" + source.rsplit("/generated/", 1)[-1]
            else:
                source = os.path.relpath(source, self.source)
            folder = folder_of(source, output)
            if output not in deps:
                self.unbuilt[group_of(folder)] += 1
                continue
            headers = [os.path.join(self.folder, f) for f in deps[output][1:]]
            self.objects[output] = (folder, sum(sizes[h] for h in headers))

    def header_bytes(self):
        """Group -> bytes, of the groups of which everything is built."""
        total = collections.Counter()
        for folder, size in self.objects.values():
            total[group_of(folder)] += size
        return {group: n for group, n in sorted(total.items()) if not self.unbuilt[group]}


def group_of(folder):
    return folder.split("/")[0] if folder.split("/")[0] in TEST_FOLDERS else "tegula"


def table(build):
    rows = collections.defaultdict(lambda: [0, 0, 0.0, 0.0])
    for output, (folder, size) in build.objects.items():
        for name in (folder, f"all of {group_of(folder)}"):
            row = rows[name]
            row[0] += 1
            row[1] += size
            row[2] += build.seconds[output]
            row[3] += build.wall.get(output, 0)
    measured = bool(build.seconds)
    print(f"{'MB of headers':>13} {'objects':>8} {'processor s' if measured else 'wall s':>12}  folder")
    for name in sorted(rows, key=lambda n: (n.startswith("all of"), n)):
        objects, size, seconds, wall = rows[name]
        print(f"{size / 1e6:13.1f} {objects:8} {seconds if measured else wall:12.1f}  {name}")
    rest = sum(s for output, s in build.seconds.items() if output not in build.objects)
    if rest:
        print(f"{'':13} {'':8} {rest:12.1f}  linking")
    for group, n in sorted(build.unbuilt.items()):
        print(f"{n} objects of {group} are not built")


def made_with():
    version = subprocess.run([os.environ.get("CXX", "g++"), "-dumpfullversion"], capture_output=True, text=True,
                             check=False).stdout.strip()
    return {"compiler": version or "unknown", "libc": platform.libc_ver()[1]}


def compare(bytes_read, tools, limits):
    """Lines to print, and the groups that read more than is allowed."""
    if tools != limits["made_with"]:
        return [f"header bytes are not compared: the limits are of {limits['made_with']}, this is {tools}"], []
    lines, over = [], []
    for group, limit in limits["header_bytes"].items():
        if group not in bytes_read:
            lines.append(f"{group}: not all of it is built: nothing to compare")
            continue
        lines.append(f"{group}: {bytes_read[group] / 1e6:,.1f} of at most {limit / 1e6:,.1f} MB of headers")
        if bytes_read[group] > limit:
            over.append(group)
            lines[-1] += (": include less in headers (tools/build_time.py says where), or raise the limit with "
                          "--write and say why in the commit")
    return lines, over


def measure(folder, source, target, jobs):
    folder = folder.resolve()
    if folder.exists():
        sys.exit(f"build_time: {folder} exists: name a new folder")
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    log = folder / RECORDS
    launcher = f"{sys.executable};{pathlib.Path(__file__).resolve()};--record;{log};--"
    done = subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                           f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}",
                           "-DTEGULA_TESTS=" + ("ON" if target != "tegula" else "OFF")],
                          check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["cmake", "--build", folder, "--target", target, f"-j{jobs}"], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    table(Build(folder))
    print(f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:,.1f} processor seconds in all")


def main():
    if sys.argv[1:2] == ["--record"]:  # by the build: what follows "--" is the compiler's
        return record(sys.argv[2], sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--source", type=pathlib.Path, default=ROOT)
    parser.add_argument("--target", default="tegula")
    parser.add_argument("-j", type=int, default=os.cpu_count(), dest="jobs")
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.measure, arguments.source, arguments.target, arguments.jobs)
    build = Build(arguments.build)
    if arguments.write:
        limits = {group: int(MARGIN * n) for group, n in build.header_bytes().items()}
        LIMITS.write_text(json.dumps({"made_with": made_with(), "header_bytes": limits}, indent=1) + "\n",
                          encoding="utf-8")
        return 0
    if not arguments.check:
        return table(build)
    lines, over = compare(build.header_bytes(), made_with(), json.loads(LIMITS.read_text(encoding="utf-8")))
    print("\n".join(lines))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
