#!/usr/bin/env python3
"""Prints lines of code per folder against the folder's budget, and fails on what is over it.

The core (tegula/, cli/, python/) has 88,000 lines of code for all its storeys, and each folder has its
share: BUDGET below. The shares add up to the whole, so that one grows only when another shrinks. A
folder that has no share fails. Kernels are printed but not counted: their ladders are kept rung by
rung to be read, and a kernel more makes nothing else harder to understand. Blank lines and lines of
comment alone count for a file's length but not for the budget: what a header must say should not be
saved at.

A file of more than 400 lines is warned about, one of more than 700 (900 in kernels/) fails; so does a
folder of tegula/ whose README.md is missing or longer than 30 lines.
"""

import collections
import pathlib
import subprocess
import sys

SOFT_LINES = 400
HARD_LINES = 700
KERNEL_HARD_LINES = 900
README_LINES = 30
CORE_BUDGET_LINES = 88_000
BUDGET = {  # lines of code; a file counts for the longest folder that holds it
    "tegula/base": 2_385,  # with what lies in tegula/ itself
    "tegula/ir": 3_690,
    "tegula/ops": 12_580,
    "tegula/tile": 1_390,
    "tegula/kernels": 530,  # their own headers, without KERNELS
    "tegula/cost": 800,
    "tegula/passes": 8_725,
    "tegula/passes/superopt": 2_855,
    "tegula/plan": 5_980,
    "tegula/planner": 8_785,
    "tegula/models": 6_005,
    "tegula/io": 3_615,
    "tegula/text": 8_560,
    "tegula/runtime": 4_640,
    "tegula/comm": 2_650,  # transports with and without shared memory, launch, watch
    "tegula/train": 4_730,
    "tegula/serve": 2_215,
    "tegula/report": 0,
    "cli": 7_865,
    "python": 0,
}
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
    """The longest folder with a share that holds the file, or the folder that should have one."""
    holders = [f for f in (*BUDGET, *KERNELS) if name.startswith(f + "/")]
    if holders:
        return max(holders, key=len)
    parts = name.split("/")
    if parts[0] != "tegula":
        return parts[0]
    return "/".join(parts[:2]) if len(parts) > 2 else "tegula/base"


def check_budgets(code):
    """Prints the core's folders, used of budget, and yields each that is over its own."""
    if sum(BUDGET.values()) != CORE_BUDGET_LINES:
        yield (f"the folders' budgets add up to {sum(BUDGET.values()):,} lines, not to "
               f"{CORE_BUDGET_LINES:,}: one grows only when another shrinks")
    for folder in sorted(f for f in {*BUDGET, *code} if f.split("/")[0] in CORE):
        if folder in KERNELS:
            continue
        used, budget = code[folder], BUDGET.get(folder)
        if budget is None:
            yield f"{folder} has no budget: give it a share of another's in tools/check_sizes.py"
        elif used > budget:
            yield (f"{folder} has {used:,} lines of code, more than its {budget:,}: delete, or take "
                   "from another's budget in tools/check_sizes.py")
        print(f"{used / 1000:6.1f} / {(budget or 0) / 1000:4.1f}  {folder}")
    core = sum(n for f, n in code.items() if f.split("/")[0] in CORE and f not in KERNELS)
    print(f"{core / 1000:6.1f} / {CORE_BUDGET_LINES / 1000:4.1f}  thousand lines of code, the core "
          "without kernels")
    if core > CORE_BUDGET_LINES:
        yield f"the core has {core:,} lines of code, more than {CORE_BUDGET_LINES:,}"


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

    for folder in sorted(lines):
        print(f"{lines[folder]:7,} lines {code[folder]:7,} of code {count[folder]:4} files  {folder}")
    failures += check_budgets(code)
    for folder in KERNELS:
        print(f"{code[folder] / 1000:6.1f}         {folder}, not counted")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
