#!/usr/bin/env python3
"""Prints lines per folder against the budget of the core, and fails on a file that is too long.

A file of more than 400 lines is warned about, one of more than 700 (900 in kernels/) fails; so
does a folder of tegula/ whose README.md is missing or longer than 30 lines, and a core (tegula/,
cli/, python/) of more than 60,000 lines of code. kernels/ is listed but not counted: its ladders are
kept rung by rung to be read, and a kernel more makes nothing else harder to understand. Blank lines and lines of comment alone count for a
file's length but not for the budget: what a header must say should not be saved at.
"""

import collections
import pathlib
import subprocess
import sys

SOFT_LINES = 400
HARD_LINES = 700
KERNEL_HARD_LINES = 900
README_LINES = 30
CORE_BUDGET_LINES = 60_000
CORE = ("tegula", "cli", "python")
KERNELS = ("tegula/kernels/cpu", "tegula/kernels/cuda")  # listed on their own
OTHERS = ("tests", "bench", "examples", "tools", "cmake", "script")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc", ".py", ".cmake", ".sh", ""}


def is_code(line):
    line = line.strip()
    return bool(line) and not line.startswith(("//", "# "))


def source_files(root):
    """Tracked files and new ones that git does not ignore; every file where there is no git."""
    try:
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.split("\0")
        names = [name for name in listing if name]
    except (OSError, subprocess.CalledProcessError):
        names = [f.relative_to(root).as_posix() for f in root.rglob("*") if f.is_file()]
    for name in sorted(names):
        path = root / name
        top = name.split("/")[0]
        is_source = path.suffix in SUFFIXES or path.name == "CMakeLists.txt"
        if top in CORE + OTHERS and is_source and path.is_file() and not path.is_symlink():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            yield name, len(lines), sum(1 for line in lines if is_code(line))


def folder_of(name):
    parts = name.split("/")
    for folder in KERNELS:
        if name.startswith(folder + "/"):
            return folder
    return "/".join(parts[:2]) if parts[0] == "tegula" and len(parts) > 2 else parts[0]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    lines = collections.Counter()
    code = collections.Counter()
    count = collections.Counter()
    failures = []
    for name, n, n_code in source_files(root):
        folder = folder_of(name)
        lines[folder] += n
        code[folder] += n_code
        count[folder] += 1
        hard = KERNEL_HARD_LINES if name.startswith("tegula/kernels/") else HARD_LINES
        if n > hard:
            failures.append(f"{name} has {n} lines, more than {hard}: split it")
        elif n > SOFT_LINES:
            print(f"warning: {name} has {n} lines, more than {SOFT_LINES}")
    for folder in sorted(f for f in lines if f.startswith("tegula/")):
        readme = root / folder / "README.md"
        if not readme.is_file():
            failures.append(f"{folder}/README.md is missing: say what comes in, what goes out, "
                            "how to add one")
        elif len(readme.read_text(encoding="utf-8").splitlines()) > README_LINES:
            failures.append(f"{folder}/README.md is longer than {README_LINES} lines")

    core = sum(n for folder, n in code.items()
               if folder.split("/")[0] in CORE and folder not in KERNELS)
    for folder in sorted(lines):
        print(f"{lines[folder]:7,} lines {code[folder]:7,} of code {count[folder]:4} files  {folder}")
    print(f"{core:7,} lines of code in the core without kernels, of {CORE_BUDGET_LINES:,}")
    if core > CORE_BUDGET_LINES:
        failures.append(f"the core has {core:,} lines of code, more than {CORE_BUDGET_LINES:,}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
