#!/usr/bin/env python3
"""Writes the tables of docs/benchmarks.md and docs/lab/*.md from the raw results in bench/results/*.json.

  tools/bench_tables.py           rewrites what stands between the markers
  tools/bench_tables.py --check   fails if that would change anything
  tools/bench_tables.py --old     lists the tables that are older than their code, and by how many commits

A result is {"name", "machine", "threads", "versions": {program: version}, "commit", "measures": [path, ...],
"command", "date", "rows": [{column: value, ...}, ...]}. Its table stands in exactly one of the pages, between

  <!-- bench: NAME -->
  <!-- end -->

with its "columns", or, where it does not name any, all, in the order in which the rows first mention them.

"measures" says which code the figures are of, as git's pathspecs. Where it differs today, comments aside, from
what it was at one of the result's commits (those of its rows are in a column "commit"), the table is marked as
older than its code: nothing else is known to be wrong with it, and to measure again takes the mark away. A commit of
code makes tables older without touching them, so --check lets the marks of its pages be: whoever writes the pages
next sets them. A checkout without the history keeps the marks.
"""

import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys

FIELDS = ("name", "machine", "threads", "versions", "commit", "measures", "command", "date", "rows")
# A record that tools/ground_floor.py compares with; tables with signed errors that bench/planner_*.py write
# themselves; rows for --microbenchmarks.
NO_TABLES = ("ground_floor.json", "planner_cpu.json", "planner_cpu_2.json", "planner_cpu_bf16.json",
             "planner_cpu_bf16_2.json", "planner_serve.json",
             "microbenchmarks_h200.json")
BLOCK = re.compile(r"(<!-- bench: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")
REMARK = re.compile(r"\s*(//.*)?$")
MARK = "**Older than the code it measures**"


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


def changes_code(diff):
    """Whether a diff without context changes more than comments and empty lines."""
    is_hunk = False
    for line in diff.splitlines():
        if line.startswith(("diff ", "@@")):
            is_hunk = line.startswith("@@")
        elif is_hunk and line[:1] in ("+", "-") and not REMARK.match(line[1:]):
            return True
    return False


class History:
    """What git knows of the tree."""

    def __init__(self, tree):
        self.tree = tree
        self.is_known = self.git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
        self.same = {}

    def git(self, *arguments):
        return subprocess.run(["git", "-C", self.tree, *arguments], capture_output=True, text=True, check=False)

    def is_same(self, commit, paths):
        """Whether the code at these paths says today what it said then."""
        key = (commit, *paths)
        if key not in self.same:
            is_there = self.git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
            diff = self.git("diff", "-w", "-U0", commit, "--", *paths)
            self.same[key] = is_there and diff.returncode == 0 and not changes_code(diff.stdout)
        return self.same[key]

    def commits_since(self, commit, paths):
        log = self.git("log", "--format=%h", f"{commit}..HEAD", "--", *paths)
        return len(log.stdout.split()) if log.returncode == 0 else None


def commits_of(result):
    told = [result["commit"], *(str(row.get("commit", "")) for row in result["rows"])]
    return list(dict.fromkeys(COMMIT.findall(" ".join(told))))


def outdated(result, history):
    """The commits of a result at which its code was another."""
    return [c for c in commits_of(result) if not history.is_same(c, result["measures"])]


def setting(result):
    threads, versions = result["threads"], result["versions"]
    if isinstance(threads, int):
        threads = f"{threads} thread" + ("s" if threads != 1 else "")
    told = ", ".join(f"{program} {version}" for program, version in versions.items())
    return f"{threads or 'threads not recorded'}; {told or 'versions not recorded'}"


def render(result, is_marked):
    columns = result.get("columns") or list(dict.fromkeys(key for row in result["rows"] for key in row))
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
        f"*{machine}; {setting(result)}; commit {result['commit']}; {result['date']}.* `{result['command']}`",
    ]
    if is_marked:
        lines += ["", f"{MARK} ({', '.join(f'`{path}`' for path in result['measures'])})."]
    return "\n".join(lines) + "\n"


def load(folder):
    """Results by name, and what is wrong with those that cannot be used."""
    results, problems = {}, []
    for file in sorted(folder.glob("*.json")):
        if file.name in NO_TABLES:
            continue
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
        elif not result["measures"] or not commits_of(result):
            problems.append(f"{file.name}: does not say which code it measures, and at which commit")
        elif result["name"] in results:
            problems.append(f"{file.name}: a second result named {result['name']}")
        else:
            results[result["name"]] = result
    return results, problems


def pages_in(docs):
    """The pages that hold tables: one for users, the others with the details."""
    return [docs / "benchmarks.md", *sorted((docs / "lab").glob("*.md"))]


def rewrite(page, results, history, shown, keeps_marks):
    """The page with every block rendered, what is wrong, and the names of what is older than its code.

    shown: the page that each table was seen in so far; this page's are added.
    """
    problems, marked = [], []

    def block(match):
        name = match[2]
        if name not in results:
            problems.append(f"{page.name} shows {name}, which bench/results/ does not have")
            return match[0]
        if name in shown:
            problems.append(f"{page.name} shows {name}, which {shown[name]} shows already")
        shown.setdefault(name, page.name)
        has_mark = MARK in match[3]
        is_old = bool(outdated(results[name], history)) if history.is_known else has_mark
        if is_old:
            marked.append(name)
        is_marked = has_mark if keeps_marks else is_old
        return match[1] + render(results[name], is_marked) + match[4]

    return BLOCK.sub(block, page.read_text(encoding="utf-8")), problems, marked


def list_old(marked, results, history):
    for name in marked:
        since = [(c, history.commits_since(c, results[name]["measures"])) for c in outdated(results[name], history)]
        print(f"{name}: " + ", ".join(f"{n} commits after {c}" if n is not None else f"{c}, which is in no history here"
                                      for c, n in since))


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    parser.add_argument("--old", action="store_true", help="list what is older than its code, and write nothing")
    parser.add_argument("--results", type=pathlib.Path, default=root / "bench" / "results")
    parser.add_argument("--docs", type=pathlib.Path, default=root / "docs", help="folder with benchmarks.md and lab/")
    parser.add_argument("--tree", type=pathlib.Path, default=root, help="the checkout whose code was measured")
    arguments = parser.parse_args()

    results, problems = load(arguments.results)
    history, shown, marked = History(arguments.tree), {}, []
    for page in pages_in(arguments.docs):
        old = page.read_text(encoding="utf-8")
        new, wrong, more = rewrite(page, results, history, shown, arguments.check)
        problems += wrong
        marked += more
        if arguments.check and new != old:
            print("\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), "docs", "results", "", "", 1, "")))
            problems.append(f"{page.name} is stale: run tools/bench_tables.py")
        elif new != old and not arguments.old:
            page.write_text(new, encoding="utf-8")
    problems += [f"no block '<!-- bench: {name} -->' in any page shows {name}" for name in results if name not in shown]
    if arguments.old:
        list_old(marked, results, history)
    if arguments.check and marked:
        print(f"{len(marked)} of {len(results)} tables are older than the code they measure: --old lists them")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
