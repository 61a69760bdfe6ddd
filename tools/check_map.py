#!/usr/bin/env python3
"""Checks docs/map.md, the table with one row per technique.

Every row has the columns technique, paper, file, command, test, figure, state. The states:

  works    a user's command runs it: `tegula …`, a script, a benchmark, an example, a tool. Not ctest or script/test,
           which run a test, and not what only prints (--help, --version, --list).
  tested   it is there and tests compare its values, but no command reaches it; a C++ program may.
  planned  neither.

What works or is tested names files that exist and a test that compares values: of a file in kernels/cuda one that runs
kernels, on a GPU or the emulated one. A figure that names a result under bench/results stands there, each number of
it; one in a unit of speed or time names a result, or a page of docs/ that has it.

With --run, each distinct command `tegula …` of what works is run once in a quick form: `train` for three steps on
LICENSE, `generate` for four tokens, and whatever they would write below demo-out/ goes to a temporary folder. What needs a GPU
is left out where there is none, as are commands with a FILE of the user's.
"""

import argparse
import functools
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

COLUMNS = ["technique", "paper", "file", "command", "test", "figure", "state"]
NONE = "–"
STATES = ("works", "tested", "planned")
QUICK = {"train": {"--steps": "3"}, "generate": {"--max-tokens": "4"}}
# What `generate` and its like read below demo-out/; made by a quick `train` before they run.
DEMO_MODEL = "demo-out/model"
DEMO_TRAIN = ("tegula train --data LICENSE --out demo-out/model --model gpt2 --tokenizer bytes "
              "--n-layers 1 --n-heads 2 --d-model 16 --seqlen 16 --batch 2 --steps 2")
SECONDS = 120


def split_row(line):
    """The cells of a line of a Markdown table; \\| and | inside backticks do not separate."""
    cells = re.findall(r"(?:\\.|`[^`]*`|[^|\\`])*", line.strip().strip("|"))
    return [cell.strip() for cell in cells if cell]


def paths_in(cell):
    return [word.split("::")[0] for word in re.findall(r"`([^`]+)`", cell)]


def read_rows(page):
    lines = [(n, line) for n, line in enumerate(page.splitlines(), 1) if line.startswith("|")]
    problems = []
    if not lines or split_row(lines[0][1]) != COLUMNS:
        return [], [f"the table must begin with the columns {' | '.join(COLUMNS)}"]
    rows = []
    for number, line in lines[2:]:
        cells = split_row(line)
        if len(cells) != len(COLUMNS):
            problems.append(f"line {number}: {len(cells)} cells, not {len(COLUMNS)}")
        else:
            rows.append((number, dict(zip(COLUMNS, cells))))
    return rows, problems


def commands_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def is_users(command):
    """Whether a user types this to have something done."""
    words = command.split()
    if {"--help", "-h", "--version", "--list"} & set(words) or words[0] in ("script/test", "script/check"):
        return False
    return words[0] == "tegula" or words[0].startswith(("script/", "bench/", "examples/", "tools/"))


# A comparison of what was computed with what it should be.
COMPARES = re.compile(r"\b(EXPECT|ASSERT)_(EQ|NE|LT|LE|GT|GE|NEAR|DOUBLE_EQ|FLOAT_EQ|STREQ|STRNE|THAT)\b|ADD_FAILURE|"
                      r"\bFAIL\(|\bassert(?!_layout)\w*\(|^\s*assert |\breturn fail\(|Verdict::kFail|"
                      r"\bexpect_\w+\(|\b__builtin_trap\(", re.M)
# What runs a kernel of the plug-in, rather than only compiling it.
RUNS_KERNELS = re.compile(r"open_device|check_kernel_on_device|cuda_emulat|fake_driver|device_run|TEGULA_FAKE_DRIVER")


@functools.cache
def test_text(path):
    """A test with the headers of tests/ that it includes, and what these declare."""
    texts = [path.read_text(encoding="utf-8")]
    root = next((p.parent for p in path.parents if p.name == "tests"), None)
    for include in re.findall(r'#include "(tests/[^"]+)\.h"', texts[0]) if root else ():
        texts += [f.read_text(encoding="utf-8") for f in root.glob(include + ".*")]
    return "\n".join(texts)


def problems_of_tests(row, root):
    paths = [p for p in paths_in(row["test"]) if (root / p).is_file()]
    for path in paths:
        if not path.startswith("tests/"):
            yield f"test {path} lies outside of tests/: nothing runs it"
    tests = [test_text(root / p) for p in paths if p.startswith("tests/")]
    if tests and not any(COMPARES.search(t) for t in tests):
        yield "no test that it names compares values"
    is_cuda = any(re.match(r"tegula/kernels/cuda/.*\.(cu|cuh)$", p) for p in paths_in(row["file"]))
    if tests and is_cuda and not any(COMPARES.search(t) and RUNS_KERNELS.search(t) for t in tests):
        yield "no test that it names runs a kernel and compares values: they only compile it"


# A number by itself: not of a name (d128, AVX-512) or a bound that every kernel has (2 × naive).
NUMBER = r"(?<![\w.,/=-])((?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?<=\d)k?)(?![\w-]|[.,]\d)"
MEASURED = re.compile(NUMBER + r"\)? ?(?:(?:[TGM]?FLOP|[TGM]?B|tokens)/s|m?s\b|× (?:cu|Py|the)|(?:times|of) (?:as|the|Py)|% of)")


def numbers_in(text):
    text = re.sub(r"`[^`]*`|\b2 (?:×|x) naive", " ", text)
    return [n.replace(",", "") for n in re.findall(NUMBER, text)]


def values_in(data):
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        yield float(len(data))  # so many rows
        for item in data:
            yield from values_in(item)
    elif isinstance(data, bool) or data is None:
        return
    elif isinstance(data, (int, float)):
        yield float(data)
    else:
        yield from (float(n) for n in re.findall(r"\d+(?:\.\d+)?", str(data)))


def is_shown(number, values):
    """Whether a value, in any usual unit, as a share in percent, or turned round, is written so."""
    digits = number.rstrip("k")
    unit = 1000 if number != digits else 1
    decimals = len(digits.split(".")[1]) if "." in digits else 0
    want, half = unit * float(digits), 0.5000001 * unit * 10**-decimals
    scales = [10**k for k in (-12, -9, -6, -3, 0, 2, 3, 6)] + [2**-10, 2**-20, 2**-30]
    return any(abs(v * scale - want) <= half or abs(100 * abs(1 - v) - want) <= half or v and abs(1 / v - want) <= half
               for v in values for scale in scales)


def problems_of_figure(row, root):
    figure = row["figure"]
    named = [p for p in paths_in(figure) if (root / p).is_file()]
    results = [p for p in named if p.startswith("bench/results/")]
    if results:
        values = [v for p in results for v in values_in(json.loads((root / p).read_text(encoding="utf-8")))]
        for number in numbers_in(figure):
            if not is_shown(number, values):
                yield f"its figure {number} is not in {', '.join(results)}"
        return
    measured = [number.replace(",", "") for number in MEASURED.findall(re.sub(r"`[^`]*`", " ", figure))]
    if not measured:
        return
    pages = [p for p in named if p.startswith("docs/") and p.endswith(".md")]
    if not pages:
        yield "its figure is measured, and names neither a result under bench/results nor a page of docs/ that has it"
        return
    shown = {n for p in pages for n in numbers_in((root / p).read_text(encoding="utf-8"))}
    shown |= {n.lstrip("0") for n in shown}
    for number in measured:
        if number not in shown and number.lstrip("0") not in shown:
            yield f"its figure {number} is not in {', '.join(pages)}"


def problems_of_row(row, root):
    """What is wrong with a row that works or is tested."""
    needed = ("file", "command", "test") if row["state"] == "works" else ("file", "test")
    for column in needed:
        if row[column] in ("", NONE):
            yield f"{row['state']}, but names no {column}"
    for column in ("file", "test", "figure"):
        for path in paths_in(row[column]):
            if not (root / path).exists():
                yield f"{column} {path} does not exist"
    commands = commands_in(row["command"])
    if row["state"] == "works" and commands and not any(is_users(c) for c in commands):
        yield "works, but by none of its commands a user has it done: name one, or say tested"
    yield from problems_of_tests(row, root)
    yield from problems_of_figure(row, root)


def check_rows(rows, root):
    seen = {}
    for number, row in rows:
        where = f"line {number}: {row['technique']}"
        if row["technique"] in seen:
            yield f"{where}: stands in line {seen[row['technique']]} too"
        seen[row["technique"]] = number
        if row["state"] not in STATES:
            yield f"{where}: the state is '{row['state']}', none of {', '.join(STATES)}"
        elif row["state"] != "planned":
            yield from (f"{where}: {problem}" for problem in problems_of_row(row, root))


def quick_form(command, binary, out):
    """The words of a command made short, or None if it is not run here."""
    words = shlex.split(command)
    if words[0] != "tegula" or "FILE" in words:
        return None
    if "--device" in words and words[words.index("--device") + 1] == "cuda" and "--target" not in words:
        if not has_gpu(binary):
            return None
    for flag, value in QUICK.get(words[1], {}).items():
        if flag in words:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    words[0] = binary
    words = ["LICENSE" if word == "tegula/base" else word for word in words]  # little to read and to evaluate
    return [re.sub(r"^demo-out\b", out, word) for word in words]


@functools.cache
def has_gpu(binary):
    return subprocess.run([binary, "bench", "gemm", "--shape", "64,64,64", "--device", "cuda"], capture_output=True,
                          check=False).returncode == 0


def run_commands(rows, root, binary):
    commands = dict.fromkeys(
        c for _, row in rows if row["state"] == "works" for c in commands_in(row["command"]))
    if any(DEMO_MODEL in c and not c.startswith("tegula train") for c in commands):
        commands = {DEMO_TRAIN: None} | commands
    with tempfile.TemporaryDirectory() as out:
        for command in commands:
            words = quick_form(command, binary, out)
            if words is None:
                continue
            try:
                done = subprocess.run(words, cwd=root, stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, errors="replace",
                                      timeout=SECONDS)
            except subprocess.TimeoutExpired:
                yield f"`{command}`: its quick form took more than {SECONDS} s"
                continue
            except OSError as error:
                yield f"`{command}`: {error}"
                continue
            if done.returncode != 0:
                tail = (done.stdout + done.stderr).strip().splitlines()[-5:]
                yield f"`{command}`: exit {done.returncode}: " + "\n    ".join(tail)
            else:
                print(f"ran: {command}")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", action="store_true", help="run a quick form of each command too")
    parser.add_argument("--bin", default=str(root / "build" / "release" / "tegula"),
                        help="the tegula to run")
    parser.add_argument("--map", type=pathlib.Path, default=root / "docs" / "map.md")
    arguments = parser.parse_args()

    rows, problems = read_rows(arguments.map.read_text(encoding="utf-8"))
    problems += check_rows(rows, root)
    if arguments.run:
        problems += run_commands(rows, root, arguments.bin)
    for problem in problems:
        print(f"{arguments.map.name}: {problem}")
    n = {state: sum(row["state"] == state for _, row in rows) for state in STATES}
    print(f"{len(rows)} techniques: {n['works']} work, {n['tested']} are tested, {n['planned']} are planned")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
