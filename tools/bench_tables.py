#!/usr/bin/env python3
"""Writes the tables of docs/benchmarks.md from the raw results in bench/results/*.json.

  tools/bench_tables.py           rewrites what stands between the markers
  tools/bench_tables.py --check   fails if that would change anything

A result is {"name", "machine", "commit", "command", "date", "rows": [{column: value, ...}, ...]}.
Its table stands in the page between

  <!-- bench: NAME -->
  <!-- end -->

with the columns in the order in which the rows first mention them.
"""

import argparse
import difflib
import json
import pathlib
import re
import sys

FIELDS = ("name", "machine", "commit", "command", "date", "rows")
BLOCK = re.compile(r"(<!-- bench: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def cell(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:.4g}"
        return f"{value:,.0f}" if "e" in text and abs(value) >= 1e4 else text
    if isinstance(value, int):
        return f"{value:,}"
    if value is None:
        return "–"
    return str(value).replace("|", "\\|")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def render(result):
    columns = list(dict.fromkeys(key for row in result["rows"] for key in row))
    numeric = [all(is_number(row[c]) for row in result["rows"] if row.get(c) is not None)
               for c in columns]
    machine = result["machine"]
    if isinstance(machine, dict):
        machine = ", ".join(f"{key} {cell(value)}" for key, value in machine.items())
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join(" ---: " if n else " --- " for n in numeric) + "|",
        *("| " + " | ".join(cell(row.get(c)) for c in columns) + " |" for row in result["rows"]),
        "",
        f"*{machine}; commit {result['commit']}; {result['date']}.* `{result['command']}`",
    ]
    return "\n".join(lines) + "\n"


def load(folder):
    """Results by name, and what is wrong with those that cannot be used."""
    results, problems = {}, []
    for file in sorted(folder.glob("*.json")):
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            problems.append(f"{file.name}: not JSON: {error}")
            continue
        missing = [f for f in FIELDS if f not in result]
        if missing:
            problems.append(f"{file.name}: lacks {', '.join(missing)}")
        elif not result["rows"]:
            problems.append(f"{file.name}: has no rows")
        elif result["name"] in results:
            problems.append(f"{file.name}: a second result named {result['name']}")
        else:
            results[result["name"]] = result
    return results, problems


def rewrite(page, results):
    """The page with every block rendered, and what is wrong."""
    problems, shown = [], set()

    def block(match):
        name = match[2]
        shown.add(name)
        if name not in results:
            problems.append(f"the page shows {name}, which bench/results/ does not have")
            return match[0]
        return match[1] + render(results[name]) + match[3]

    page = BLOCK.sub(block, page)
    problems += [f"no block '<!-- bench: {name} -->' in the page shows {name}"
                 for name in results if name not in shown]
    return page, problems


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    parser.add_argument("--results", type=pathlib.Path, default=root / "bench" / "results")
    parser.add_argument("--page", type=pathlib.Path, default=root / "docs" / "benchmarks.md")
    arguments = parser.parse_args()

    old = arguments.page.read_text(encoding="utf-8")
    results, problems = load(arguments.results)
    new, more = rewrite(old, results)
    problems += more
    if arguments.check and new != old:
        diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "docs", "results", "", "",
                                    1, "")
        print("\n".join(diff))
        problems.append(f"{arguments.page.name} is stale: run tools/bench_tables.py")
    elif new != old:
        arguments.page.write_text(new, encoding="utf-8")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
