#!/usr/bin/env python3
"""Runs what README.md shows, and compares what comes out.

    tools/check_readme.py [--bin build/release/tegula] [--write]
    tools/check_readme.py --library FOLDER

Of each ```console block every command after "$ " is run, in a folder with links to what lies in the repository's
root, so that what it writes goes elsewhere; `tegula` is --bin. The lines below a command must be what it prints, on
both outputs, but for numbers in units of time and speed, which differ from run to run. A line "…" stands for any
lines, "…" in a line for any text. --write brings the shown numbers up to date.

A ```sh block has scripts of this repository alone, which CI runs as they are: here they must only exist.

--library writes the C++ program and its CMake file into FOLDER, and what it must print into expected.txt: a test
builds it against an installed Tegula (tests/install).
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 300
# What no two runs have alike.
VARIES = re.compile(r"\d[\d.,]*(?= (?:tokens/s|m?s\b|min\b))|(?<=[MH]FU )\d[\d.]*(?=%)")


class Block:
    def __init__(self, language, line, lines):
        self.language, self.line, self.lines = language, line, lines


def blocks_of(page):
    """The fenced blocks of a page, each with the number of its first line."""
    blocks, current = [], None
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            if current is None:
                current = Block(line[3:].strip(), number + 1, [])
            else:
                blocks.append(current)
                current = None
        elif current is not None:
            current.lines.append(line)
    return blocks


def commands_of(block):
    """(line, command, shown lines) of a console block; a command that ends in a backslash goes on."""
    commands = []
    for i, line in enumerate(block.lines):
        if line.startswith("$ "):
            commands.append([block.line + i, line[2:], []])
        elif commands and commands[-1][1].endswith("\\"):
            commands[-1][1] = commands[-1][1][:-1] + line
        elif commands:
            commands[-1][2].append(line)
        else:
            commands.append([block.line + i, "", [line]])
    return commands


def same_for_all(line):
    return VARIES.sub("#", line.rstrip())


def pattern_of(shown):
    text = ""
    for line in shown:
        text += "(?:.*\n)*?" if line.strip() == "…" else re.escape(same_for_all(line)).replace("…", ".*") + "\n"
    return text


def printed(text):
    """What a terminal would hold, line by line, without trailing blanks."""
    lines = [same_for_all(line) for line in text.splitlines()]
    return "".join(line + "\n" for line in lines)


def is_as_shown(shown, text):
    while shown and not shown[-1].strip():
        shown = shown[:-1]
    return re.fullmatch(pattern_of(shown), printed(text)) is not None


def brought_up_to_date(shown, text):
    """The shown lines with the numbers of lines that are like them, or all that was printed."""
    lines, at = [], 0
    actual = [line.rstrip() for line in text.splitlines()]
    for line in shown:
        like = re.compile(re.sub(r"(?:\\-)?\d(?:[\d,]|\\\.\d)*", r"-?\\d[\\d.,]*", re.escape(line)).replace("…", ".*"))
        found = next((i for i in range(at, len(actual)) if like.fullmatch(actual[i])), None)
        if line.strip() == "…" or not line.strip():
            lines.append(line)
        elif found is None:
            return actual
        else:
            lines.append(line if same_for_all(line) == same_for_all(actual[found]) or "…" in line else actual[found])
            at = found + 1
    return lines


def run_in(folder, command, path):
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None, f"took more than {SECONDS} s"
    return done.returncode, done.stdout.decode(errors="replace")


def check_console(page, binary):
    """(problems, the page with the numbers of this run)."""
    problems, lines = [], page.splitlines()
    edits = []  # (first line, last line, new lines)
    with tempfile.TemporaryDirectory() as name:
        folder, path = pathlib.Path(name) / "tree", pathlib.Path(name) / "bin"
        folder.mkdir(), path.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in ("demo-out", ".git"):
                (folder / entry.name).symlink_to(entry)
        (path / "tegula").symlink_to(binary)
        for block in blocks_of(page):
            if block.language != "console":
                continue
            for line, command, shown in commands_of(block):
                if not command:
                    problems.append(f"line {line}: a line before the first command")
                    continue
                code, text = run_in(folder, command, path)
                if code != 0:
                    problems.append(f"line {line}: `{command}`: exit {code}: {text.strip()[-300:]}")
                elif not is_as_shown(shown, text):
                    problems.append(f"line {line}: `{command}` prints something else (--write brings numbers up to "
                                    f"date):\n{text}")
                    start = line + command.count("\\\n")
                    while lines[start - 1].endswith("\\"):
                        start += 1
                    edits.append((start, start + len(shown), brought_up_to_date(shown, text)))
    for start, end, new in reversed(edits):
        lines[start:end] = new
    return problems, "\n".join(lines) + "\n"


def check_scripts(page):
    for block in blocks_of(page):
        if block.language == "sh":
            for i, line in enumerate(block.lines):
                script = ROOT / line.split()[0] if line.strip() else None
                if script and not (line.startswith("script/") and os.access(script, os.X_OK)):
                    yield f"line {block.line + i}: {line.split()[0]} is no script here: use a console block, which is run"
        elif block.language not in ("console", "cmake", "cpp", "text"):
            yield f"line {block.line}: a block of '{block.language}' is neither run nor built: say what it is"


def write_library(page, folder):
    parts = {language: [b for b in blocks_of(page) if b.language == language] for language in ("cmake", "cpp", "text")}
    for language, found in parts.items():
        if len(found) != 1:
            sys.exit(f"check_readme: {len(found)} blocks of {language}, not one: program, CMake file, what it prints")
    folder.mkdir(parents=True, exist_ok=True)
    for language, name in (("cmake", "CMakeLists.txt"), ("cpp", "app.cpp"), ("text", "expected.txt")):
        (folder / name).write_text("\n".join(parts[language][0].lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "tegula")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--library", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    page = arguments.page.read_text(encoding="utf-8")
    if arguments.library:
        write_library(page, arguments.library)
        return 0
    problems = list(check_scripts(page))
    ran, new = check_console(page, arguments.bin.resolve())
    if arguments.write:
        arguments.page.write_text(new, encoding="utf-8")
    for problem in problems + ran:
        print(f"{arguments.page.name}: {problem}")
    return 1 if problems or ran else 0


if __name__ == "__main__":
    sys.exit(main())
