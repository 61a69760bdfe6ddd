#!/usr/bin/env python3
"""Plants faults one at a time and says which of the tests see them.

    tools/mutate.py [--only NAME]... [--page FILE] [--jobs N]   build, plant each fault, print caught or NOT CAUGHT
    tools/mutate.py --list                           NAME file test, a line a fault
    tools/mutate.py --check                          only that every fault still fits its source

The faults are data, tools/mutants.toml: a file, a piece of its text that stands there once (or
where `nth` says), what is put in its place, and the test that must fail. All of them go into one
scratch copy of the tree, build/mutants/tree, each behind a test of the number in
$TEGULA_MUTANT, so that one build serves all: a piece that ends in ';' or '}' becomes
`if (chosen) {new} else {old}`, any other `(chosen ? (new) : (old))`; where that does not fit, the new
text says by itself where it is CHOSEN. A fault is caught when its test
fails with it and passes without. --page writes the result as a page of Markdown.
"""

import argparse
import concurrent.futures
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "mutants.toml"
SCRATCH = ROOT / "build" / "mutants" / "tree"
SECONDS = 120

HEADER = """// Which planted fault is chosen: a number from $TEGULA_MUTANT, 0 for none.
#pragma once
#include <optional>
// A planted fault may leave something unused.
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wempty-body"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
extern "C" int tegula_mutant;
"""
SOURCE = """#include "tegula/base/mutant.h"

#include <cstdlib>

int tegula_mutant = 0;
// Before what other files initialise.
__attribute__((constructor(101))) static void choose() {
  if (const char* text = std::getenv("TEGULA_MUTANT")) tegula_mutant = std::atoi(text);
}
"""


def read_list():
    with LIST.open("rb") as file:
        mutants = tomllib.load(file)["mutant"]
    for number, mutant in enumerate(mutants, 1):
        mutant["number"] = number
    return mutants


def problems_of(mutants, root=ROOT):
    """Faults whose text is not where they say, and tests that nobody would find."""
    names, places = set(), {}
    for m in mutants:
        if m["name"] in names:
            yield f"{m['name']}: the name stands twice"
        names.add(m["name"])
        source = root / m["file"]
        count = source.read_text().count(m["find"]) if source.is_file() else -1
        if count < 0:
            yield f"{m['name']}: no file {m['file']}"
        elif count == 0 or (count > 1 and "nth" not in m) or count < m.get("nth", 1):
            yield f"{m['name']}: {count} times in {m['file']}: {m['find']!r}"
        else:
            text = source.read_text()
            begin, end = place_of(m, text)
            before = re.sub(r"//[^\n]*", "", text[:begin]).rstrip()
            if is_statement(m) and before[-1:] not in (";", "{", "}", ")", ":"):
                yield f"{m['name']}: its text ends a statement that begins before it in {m['file']}"
            if "CHOSEN" not in m["replace"] and not stands_alone(m["find"].strip()):
                yield f"{m['name']}: its text is no expression and no statement: say CHOSEN ({m['find']!r})"
            for other, (b, e) in places.get(m["file"], {}).items():
                if begin < e and b < end and (begin, end) != (b, e):
                    yield f"{m['name']}: overlaps {other} in {m['file']}"
            places.setdefault(m["file"], {})[m["name"]] = (begin, end)
        test = m["test"].split()
        if m["test"].startswith("tests/"):
            if not (root / test[0]).is_file():
                yield f"{m['name']}: no test {test[0]}"
        elif not (root / "tests" / test[0].removeprefix("tests_").removesuffix("_slow")).is_dir():
            yield f"{m['name']}: no test binary {test[0]}"


def is_statement(mutant):
    return "CHOSEN" not in mutant["replace"] and mutant["find"].rstrip().endswith((";", "}"))


def stands_alone(piece):
    """Whether an expression, or a statement that declares nothing the lines after it may name."""
    depth = 0
    for character in piece:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    declares = re.match(r"(const|constexpr|static|auto|bool|char|double|float|int|u?int\d+_t|size_t)\b[^()]*=", piece)
    is_head = re.match(r"(if|for|while|switch)\b", piece) and not piece.endswith((";", "}"))
    return depth == 0 and not declares and not is_head


def place_of(mutant, text):
    begin = -1
    for _ in range(mutant.get("nth", 1)):
        begin = text.index(mutant["find"], begin + 1)
    return begin, begin + len(mutant["find"])


def planted(text, mutants):
    """The source with all of its faults, each behind its number."""
    by_place = {}
    for m in mutants:
        by_place.setdefault(place_of(m, text), []).append(m)
    for (begin, end), here in sorted(by_place.items(), reverse=True):
        piece = text[begin:end]
        for m in here:
            chosen = f"tegula_mutant == {m['number']}"
            if "CHOSEN" in m["replace"]:
                piece = m["replace"].replace("CHOSEN", f"({chosen})")
            elif is_statement(m):
                piece = f"if ({chosen}) {{ {m['replace']} }} else {{ {piece} }}"
            else:
                piece = f"({chosen} ? ({m['replace']}) : ({piece}))"
        text = text[:begin] + piece + text[end:]
    return '#include "tegula/base/mutant.h"\n#line 1\n' + text


def put(path, text):
    """Writes what differs, so that a second build does nothing."""
    data = text if isinstance(text, bytes) else text.encode()
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def make_tree(mutants):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                            capture_output=True, check=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and (ROOT / name).is_file()}
    if SCRATCH.is_dir():
        for path in SCRATCH.rglob("*"):
            name = str(path.relative_to(SCRATCH))
            if path.is_file() and not name.startswith(("build/", "tegula/base/mutant")):
                if name not in wanted:
                    path.unlink()
    for name in wanted:
        here = [m for m in mutants if m["file"] == name]
        source = ROOT / name
        put(SCRATCH / name, planted(source.read_text(), here) if here else source.read_bytes())
        shutil.copymode(source, SCRATCH / name)
    put(SCRATCH / "tegula/base/mutant.h", HEADER)
    put(SCRATCH / "tegula/base/mutant.cpp", SOURCE)


def build(targets):
    # The flags of other builds, so that the compiler's cache knows what has no fault in it.
    subprocess.run(["cmake", "--preset", "release", "-DTEGULA_TESTS=ON"],
                   cwd=SCRATCH, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "tegula", *targets],
                   cwd=SCRATCH, check=True)


def command_of(test):
    first, *rest = test.split()
    if first.startswith("tests/"):
        return [sys.executable, first, *rest]
    return [f"build/release/tests/{first}", "--gtest_brief=1", *[f"--gtest_filter={r}" for r in rest]]


def run(test, number):
    """passed, failed or hung; a crash is a failure. And the seconds it took."""
    # Tests name their files after themselves: those that run at once are kept apart.
    temporary = SCRATCH / "build/tmp" / f"{number}-{abs(hash(test))}"
    temporary.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, TEGULA_MUTANT=str(number), TEST_TMPDIR=f"{temporary}/",
                       TEGULA_BIN=f"{SCRATCH}/build/release/tegula")
    begin = time.monotonic()
    try:
        done = subprocess.run(command_of(test), cwd=SCRATCH, env=environment, timeout=SECONDS,
                              capture_output=True, text=True, errors="replace")
        passed = done.returncode == 0
        # A filter that matches nothing passes; it must not pass for a test.
        if passed and re.search(r"\b0 tests\b", done.stdout + done.stderr):
            passed = False
        return ("passed" if passed else "failed"), time.monotonic() - begin
    except subprocess.TimeoutExpired:
        return "hung", time.monotonic() - begin


def page_of(rows, commit):
    commit = commit or subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout.strip()
    caught = sum(row["is_caught"] for row in rows)
    quick = sum(row["is_caught"] and not row["mutant"]["test"].split()[0].endswith("_slow") for row in rows)
    lines = ["# Planted faults", "",
             f"`tools/mutate.py` plants each of the faults of `tools/mutants.toml` and runs the test "
             f"that must see it. {caught} of {len(rows)} are caught, {quick} by tests without the label slow. "
             f"Commit {commit}, "
             f"{platform.machine()}, {os.cpu_count()} cores; written by `tools/mutate.py --page`.", "",
             "| fault | file | test | | s |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        m = row["mutant"]
        lines.append(f"| {m['what']} | `{m['file']}` | `{m['test']}` | "
                     f"{'caught' if row['is_caught'] else '**not caught**'}"
                     f"{' (' + row['how'] + ')' if row['how'] != 'failed' else ''} | "
                     f"{row['seconds']:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument("--commit", help="for the page, where this is no checkout")
    options = parser.parse_args()
    mutants = read_list()
    if options.list:
        for m in mutants:
            print(m["name"], m["file"], m["test"])
        return 0
    problems = list(problems_of(mutants))
    for problem in problems:
        print(f"tools/mutants.toml: {problem}")
    if problems or options.check:
        return 1 if problems else 0
    chosen = [m for m in mutants if options.only is None or m["name"] in options.only]
    missing = set(options.only or []) - {m["name"] for m in chosen}
    if missing:
        print(f"no fault {', '.join(sorted(missing))}: --list names them", file=sys.stderr)
        return 2
    make_tree(chosen)
    tests = list(dict.fromkeys(m["test"] for m in chosen))
    build(sorted({t.split()[0] for t in tests if not t.startswith("tests/")}))
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        without = dict(zip(tests, pool.map(lambda test: run(test, 0)[0], tests)))
        for test, how in without.items():
            if how != "passed":
                print(f"{test}: {how} without any fault")
        done = pool.map(lambda m: run(m["test"], m["number"]), chosen)
        for m, (how, seconds) in zip(chosen, done):
            is_caught = how != "passed" and without[m["test"]] == "passed"
            rows.append({"mutant": m, "is_caught": is_caught, "how": how, "seconds": seconds})
            print(f"{'caught    ' if is_caught else 'NOT CAUGHT'} {m['name']}: {m['what']} "
                  f"[{m['test']}, {how}, {seconds:.1f} s]", flush=True)
    if options.page:
        options.page.write_text(page_of(rows, options.commit))
    n_caught = sum(row["is_caught"] for row in rows)
    print(f"{n_caught} of {len(rows)} caught")
    return 0 if n_caught == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
