#!/usr/bin/env python3
"""Checks docs/map.md, the table with one row per technique.

Every row has the columns technique, paper, file, command, test, figure, state. A row whose state is
"works" names files, tests and figures that exist, and a command. With --run, each distinct command
of those rows is run once in a quick form: `tegula train` for two steps, `tegula generate` for four
tokens, and whatever they would write below demo-out/ goes to a temporary folder. Commands of ctest
and script/ are left out there, since the test suite runs them anyway.
"""

import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

COLUMNS = ["technique", "paper", "file", "command", "test", "figure", "state"]
NONE = "–"
QUICK = {"train": {"--steps": "2"}, "generate": {"--max-tokens": "4"}}
# What `generate` and its like read below demo-out/; made by a quick `train` before they run.
DEMO_MODEL = "demo-out/model"
DEMO_TRAIN = ("tegula train --data tegula/base --out demo-out/model --model gpt2 --tokenizer bytes "
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


def check_rows(rows, root):
    seen = {}
    for number, row in rows:
        where = f"line {number}: {row['technique']}"
        if row["technique"] in seen:
            yield f"{where}: stands in line {seen[row['technique']]} too"
        seen[row["technique"]] = number
        if row["state"] not in ("works", "planned"):
            yield f"{where}: the state is '{row['state']}', neither works nor planned"
        if row["state"] != "works":
            continue
        for column in ("file", "command", "test"):
            if row[column] in ("", NONE):
                yield f"{where}: works, but names no {column}"
        for column in ("file", "test", "figure"):
            for path in paths_in(row[column]):
                if not (root / path).exists():
                    yield f"{where}: {column} {path} does not exist"


def quick_form(command, binary, out):
    """The words of a command made short, or None if the test suite runs it anyway."""
    words = shlex.split(command)
    if words[0].startswith("script/") or words[0] == "ctest":
        return None
    if words[0] in ("tegula", "build/release/tegula"):
        for flag, value in QUICK.get(words[1], {}).items():
            if flag in words:
                words[words.index(flag) + 1] = value
            else:
                words += [flag, value]
        words[0] = binary
    return [re.sub(r"^demo-out\b", out, word) for word in words]


def run_commands(rows, root, binary):
    commands = dict.fromkeys(
        c for _, row in rows if row["state"] == "works" for c in re.findall(r"`([^`]+)`",
                                                                            row["command"]))
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
    works = sum(row["state"] == "works" for _, row in rows)
    print(f"{len(rows)} techniques: {works} work, {len(rows) - works} are planned")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
