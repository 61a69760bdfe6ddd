"""The repository's checkers, each against a tree with a planted mistake."""

import importlib.util
import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import unittest
from xml.etree import ElementTree

from case import ROOT, ToolTest


class CheckLayers(ToolTest):
    def check(self, path, line):
        self.write(path, f"#pragma once\n{line}\n")
        return self.run_tool("check_layers.py", self.tree)

    def test_downward_includes_pass(self):
        self.write("tegula/ops/a.cpp", '#include <vector>\n#include "tegula/base/shape.h"\n'
                   '#include "tegula/kernels/kernel.h"\n#include "tegula/tile/program.h"\n')
        self.write("tegula/kernels/cuda/k.cu", "#include <cuda_runtime.h>\n")
        self.assertEqual(self.run_tool("check_layers.py", self.tree), (0, ""))

    def test_upward_include_fails_with_its_place(self):
        code, out = self.check("tegula/base/a.h", '#include "tegula/ir/graph.h"')
        self.assertEqual(code, 1)
        self.assertIn("tegula/base/a.h:2: includes tegula/ir/graph.h", out)

    def test_train_and_serve_never_meet(self):
        self.assertEqual(self.check("tegula/train/a.h", '#include "tegula/serve/b.h"')[0], 1)
        self.assertEqual(self.check("tegula/serve/a.h", '#  include <tegula/train/b.h>')[0], 1)

    def test_only_kernel_descriptors_are_seen_above_kernels(self):
        code, out = self.check("tegula/ops/a.cpp", '#include "tegula/kernels/cpu/gemm.h"')
        self.assertEqual(code, 1)
        self.assertIn("ops may include only tegula/kernels/kernel.h", out)

    def test_cuda_headers_stay_in_their_folders(self):
        self.assertEqual(self.check("tegula/plan/a.cpp", "#include <cuda.h>")[0], 1)

    def test_shells_are_above(self):
        self.assertEqual(self.check("tegula/train/a.cpp", '#include "cli/main.h"')[0], 1)

    def test_unknown_folder_fails(self):
        self.assertEqual(self.check("tegula/utils/a.h", "")[0], 1)

    def test_targets_obey_the_same_rule(self):
        self.write("tegula/CMakeLists.txt", "tegula_layer(base)\ntegula_layer(ir DEPS base ops)\n"
                   "tegula_layer(ops DEPS base ir LIBS fmt::fmt)\n")
        code, out = self.run_tool("check_layers.py", self.tree)
        self.assertEqual((code, out),
                         (1, "tegula/CMakeLists.txt: layer ir may not depend on ops\n"))


def budget(folder):
    """Lines of code that tools/check_sizes.py gives it."""
    spec = importlib.util.spec_from_file_location("check_sizes", ROOT / "tools/check_sizes.py")
    sizes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sizes)
    return sizes.BUDGET[folder]


class CheckSizes(ToolTest):
    def check(self, path, lines):
        self.write(path, "x\n" * lines)
        return self.run_tool("check_sizes.py", self.tree)

    def setUp(self):
        super().setUp()
        self.write("tegula/ops/README.md", "Ops.\n")
        self.write("tegula/kernels/README.md", "Kernels.\n")
        self.write("tegula/kernels/cpu/README.md", "Kernels.\n")

    def test_limits(self):
        self.assertEqual(self.check("tegula/ops/a.cpp", 400)[0], 0)
        self.assertNotIn("warning", self.check("tegula/ops/a.cpp", 400)[1])
        self.assertIn("warning", self.check("tegula/ops/a.cpp", 401)[1])
        self.assertEqual(self.check("tegula/ops/a.cpp", 700)[0], 0)
        self.assertEqual(self.check("tegula/kernels/cpu/a.cpp", 900)[0], 0)
        self.assertEqual(self.check("tegula/ops/a.cpp", 701)[0], 1)

    def test_kernels_have_a_limit_too(self):
        self.assertEqual(self.check("tegula/kernels/cpu/a.cpp", 901)[0], 1)

    def test_each_folder_has_a_budget(self):
        most = budget("tegula/ops")
        n_files = (most - 1) // 697
        for i in range(n_files):
            self.write(f"tegula/ops/a{i}.cpp", "x\n" * 697)
        self.write("tegula/passes/README.md", "Passes.\n")
        self.assertEqual(self.check("tests/ops/a_test.cpp", 690)[0], 0)
        self.assertEqual(self.check("tegula/passes/a.cpp", 690)[0], 0)
        left = most - 697 * n_files
        code, out = self.check("tegula/ops/common/last.cpp", left)
        self.assertEqual(code, 0)
        self.assertIn(f"{most / 1000:.1f} / {most / 1000:4.1f}  tegula/ops\n", out)
        self.assertIn(f"{(most + 690) / 1000:.1f} / 88.0  thousand lines", out)
        code, out = self.check("tegula/ops/common/last.cpp", left + 1)
        self.assertEqual(code, 1)
        self.assertIn(f"tegula/ops has {most + 1:,} lines of code, more than its {most:,}", out)

    def test_a_part_with_its_own_budget_is_not_counted_twice(self):
        self.write("tegula/passes/superopt/README.md", "Superopt.\n")
        out = self.check("tegula/passes/superopt/a.cpp", 600)[1]
        self.assertRegex(out, r"0\.6 /  \d\.\d  tegula/passes/superopt\n")
        self.assertRegex(out, r"0\.0 / +\d+\.\d  tegula/passes\n")

    def test_kernels_are_printed_and_not_counted(self):
        for i in range(20):
            self.write(f"tegula/kernels/cpu/a{i}.cpp", "x\n" * 700)
        code, out = self.check("tegula/kernels/a.cpp", budget("tegula/kernels"))
        self.assertEqual(code, 0)
        self.assertRegex(out, r"14\.0         tegula/kernels/cpu, not counted\n")
        self.assertIn(f"{budget('tegula/kernels') / 1000:.1f} / 88.0  thousand lines", out)
        self.assertEqual(self.check("tegula/kernels/b.cpp", 1)[0], 1)

    def test_generated_tables_are_not_counted(self):
        self.write("tegula/text/README.md", "Text.\n")
        self.write("tegula/text/tables.cpp", "// Generated by tools/a.py; do not edit.\n" + "x\n" * 600)
        self.assertRegex(self.check("tegula/text/a.cpp", 600)[1], r"0\.6 / 88\.0  thousand lines")

    def test_a_folder_without_a_budget_fails(self):
        self.write("tegula/utils/README.md", "Utils.\n")
        code, out = self.check("tegula/utils/a.cpp", 1)
        self.assertEqual(code, 1)
        self.assertIn("tegula/utils has no budget", out)

    def test_one_budget_grows_only_when_another_shrinks(self):
        tool = ROOT / "tools" / "check_sizes.py"
        grown = self.write("tools/grown.py", tool.read_text(encoding="utf-8").replace(
            f'"tegula/ops": {budget("tegula/ops"):_}', f'"tegula/ops": {budget("tegula/ops") + 100:_}'))
        code, out = self.run_tool(grown, self.tree)
        self.assertEqual(code, 1)
        self.assertIn("add up to 88,100 lines, not to 88,000", out)

    def test_folders_have_short_readmes(self):
        self.assertEqual(self.check("tegula/plan/a.cpp", 1)[0], 1)
        self.write("tegula/plan/README.md", "x\n" * 31)
        self.assertEqual(self.check("tegula/plan/a.cpp", 1)[0], 1)
        self.write("tegula/plan/README.md", "x\n" * 30)
        self.assertEqual(self.check("tegula/plan/a.cpp", 1)[0], 0)


class BenchTables(ToolTest):
    RESULT = {"name": "gemm, f32", "machine": "two cores", "threads": 2, "versions": {"torch": "9.1"},
              "commit": "abc1234", "measures": ["gemm"], "command": "bench/gemm", "date": "2026-01-01",
              "rows": [{"shape": "2048³", "ms": 12.3456, "runs": 7}, {"shape": "a|b", "share": 0.5}]}

    def run_tables(self, page, *arguments):
        self.page = self.write("docs/benchmarks.md", page)
        return self.run_tool("bench_tables.py", "--results", self.tree / "results", "--docs",
                             self.page.parent, "--tree", self.tree, *arguments)

    def git(self, *arguments):
        person = ["-c", "user.name=T", "-c", "user.email=t@t"]
        return subprocess.run(["git", "-C", self.tree, *person, *arguments], check=True, capture_output=True,
                              text=True).stdout.strip()

    def commit(self, path, text):
        self.write(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")
        return self.git("rev-parse", "--short", "HEAD")

    def setUp(self):
        super().setUp()
        self.write("results/gemm.json", json.dumps(self.RESULT))

    def test_renders_between_the_markers_and_is_then_fresh(self):
        page = "# B\n\n<!-- bench: gemm, f32 -->\nold\n<!-- end -->\n\nend\n"
        self.assertEqual(self.run_tables(page, "--check")[0], 1)
        self.assertEqual(self.page.read_text(encoding="utf-8"), page)
        self.assertEqual(self.run_tables(page), (0, ""))
        text = self.page.read_text(encoding="utf-8")
        self.assertEqual(text, "# B\n\n<!-- bench: gemm, f32 -->\n"
                         "| shape | ms | runs | share |\n| --- | ---: | ---: | ---: |\n"
                         "| 2048³ | 12.35 | 7 | – |\n| a\\|b | – | – | 0.5 |\n\n"
                         "*two cores; 2 threads; torch 9.1; commit abc1234; 2026-01-01.* `bench/gemm`\n"
                         "<!-- end -->\n\nend\n")
        self.assertEqual(self.run_tables(text, "--check"), (0, ""))

    def test_shows_the_columns_that_a_result_names(self):
        self.write("results/gemm.json", json.dumps(self.RESULT | {"columns": ["ms", "shape"]}))
        page = "<!-- bench: gemm, f32 -->\n<!-- end -->\n"
        self.assertEqual(self.run_tables(page), (0, ""))
        self.assertIn("| ms | shape |\n| ---: | --- |\n| 12.35 | 2048³ |\n", self.page.read_text(encoding="utf-8"))

    def test_every_result_is_shown_and_every_block_has_one(self):
        self.assertIn("no block", self.run_tables("# B\n")[1])
        code, out = self.run_tables("<!-- bench: gemm, f32 -->\n<!-- end -->\n"
                                    "<!-- bench: other -->\n<!-- end -->\n")
        self.assertEqual(code, 1)
        self.assertIn("benchmarks.md shows other, which bench/results/", out)

    def test_a_table_stands_in_one_page_of_them_all(self):
        block = "<!-- bench: gemm, f32 -->\n<!-- end -->\n"
        lab = self.write("docs/lab/products.md", block)
        self.assertEqual(self.run_tables("# B\n"), (0, ""))
        text = lab.read_text(encoding="utf-8")
        self.assertIn("| 2048³ |", text)
        self.assertEqual(self.page.read_text(encoding="utf-8"), "# B\n")
        self.assertEqual(self.run_tables("# B\n", "--check"), (0, ""))
        lab.write_text(text.replace("12.35", "1"), encoding="utf-8")
        code, out = self.run_tables("# B\n", "--check")
        self.assertEqual(code, 1)
        self.assertIn("products.md is stale", out)
        code, out = self.run_tables(block)
        self.assertEqual(code, 1)
        self.assertIn("products.md shows gemm, f32, which benchmarks.md shows already", out)

    def test_incomplete_results_fail(self):
        self.write("results/bad.json", json.dumps({"name": "bad", "rows": []}))
        code, out = self.run_tables("<!-- bench: gemm, f32 -->\n<!-- end -->\n")
        self.assertEqual(code, 1)
        self.assertIn("bad.json: lacks machine, threads, versions, commit, measures, command, date", out)
        self.write("results/bad.json", json.dumps({**self.RESULT, "name": "bad", "commit": "by row"}))
        self.assertIn("bad.json: does not say which code it measures, and at which commit",
                      self.run_tables("<!-- bench: gemm, f32 -->\n<!-- end -->\n")[1])

    def test_a_figure_older_than_its_code_is_marked_and_only_that(self):
        mark = "**Older than the code it measures** (`src/*gemm*`)."
        page = "<!-- bench: gemm, f32 -->\n<!-- end -->\n"
        self.git("init", "-q")
        first = self.commit("src/gemm.cpp", "// fast\nint a;\n")
        result = {**self.RESULT, "commit": first, "measures": ["src/*gemm*"]}
        self.write("results/gemm.json", json.dumps(result))

        def rendered():
            self.assertEqual(self.run_tables(page), (0, ""))
            text = self.page.read_text(encoding="utf-8")
            code, out = self.run_tables(text, "--check")  # marked or not: what is in the page stays good
            self.assertEqual((code, bool(out)), (0, mark in text))
            return text

        self.assertNotIn(mark, rendered())
        self.commit("src/other.cpp", "int b;\n")
        self.commit("src/gemm.cpp", "// faster\n\n  int a;\n")
        self.assertNotIn(mark, rendered())
        fresh = self.page.read_text(encoding="utf-8")
        self.write("src/gemm.cpp", "int c;\n")  # not committed, and still another code
        code, out = self.run_tables(fresh, "--check")  # a commit of code leaves the pages good
        self.assertEqual(code, 0)
        self.assertIn("1 of 1 tables are older", out)
        self.assertIn(mark, rendered())
        last = self.commit("src/gemm.cpp", "int c;\n")
        self.assertIn(mark, rendered())
        self.assertIn(f"gemm, f32: 2 commits after {first}", self.run_tables(page, "--old")[1])
        # Rows of several commits are as old as the oldest.
        rows = [{"ms": 1.5, "commit": last}, {"ms": 2.5, "commit": first}]
        self.write("results/gemm.json", json.dumps({**result, "commit": "by row", "rows": rows}))
        self.assertIn(mark, rendered())
        self.write("results/gemm.json", json.dumps({**result, "commit": "by row", "rows": rows[:1]}))
        self.assertNotIn(mark, rendered())
        self.write("results/gemm.json", json.dumps({**result, "commit": "0123abc"}))
        self.assertIn(mark, rendered())

    def test_without_the_history_marks_stay_as_they_are(self):
        marked = "**Older than the code it measures** (`gemm`).\n"
        page = "<!-- bench: gemm, f32 -->\n<!-- end -->\n"
        self.run_tables(page)
        plain = self.page.read_text(encoding="utf-8")
        self.assertEqual(self.run_tables(plain, "--check"), (0, ""))
        self.assertEqual(self.run_tables(plain.replace("<!-- end", "\n" + marked + "<!-- end"), "--check")[0], 0)


class Roofline(ToolTest):
    """bench/roofline.py draw: every row a dot, under the roofs at its place."""

    def draw(self, rows):
        result = {"name": "roofline_x", "machine": "Two <chips>", "rows": rows,
                  "roofs": [{"roof": "adds", "gflops": 100.0, "gbytes_per_s": 10.0}]}
        source = self.write("r.json", json.dumps(result))
        done = subprocess.run([sys.executable, ROOT / "bench/roofline.py", "draw", source, self.tree / "r.svg"],
                              capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return ElementTree.parse(self.tree / "r.svg").getroot()

    def row(self, label, gflops, flops_per_byte):
        return {"family": "f", "label": label, "kernel": "k", "gflops": gflops, "flops_per_byte": flops_per_byte,
                "gbytes_per_s": gflops / flops_per_byte}

    def test_dots_lie_on_the_roof_they_reach(self):
        svg = self.draw([self.row("at the memory's roof", 20.0, 2.0), self.row("at the peak", 100.0, 1000.0),
                         self.row("below both", 1.0, 1000.0)])
        space = "{http://www.w3.org/2000/svg}"
        dots = [(float(c.get("cx")), float(c.get("cy"))) for c in svg.iter(space + "circle")]
        self.assertEqual(len(dots), 3)
        (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, p.split(","))) for p in
                                        next(svg.iter(space + "polyline")).get("points").split())
        self.assertAlmostEqual((dots[0][1] - y0) / (dots[0][0] - x0), (y1 - y0) / (x1 - x0), places=2)
        self.assertAlmostEqual(dots[1][1], y2, places=1)
        self.assertGreater(dots[2][1], y2)  # y grows downwards

    def test_names_are_escaped(self):
        texts = [t.text for t in self.draw([self.row("a < b", 1.0, 1.0)]).iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("Two <chips>", texts)
        self.assertIn("a < b", texts)


class Plots(ToolTest):
    """bench/plots.py: pictures of how many times as fast, right of 1 where Tegula is faster."""
    spec = importlib.util.spec_from_file_location("plots", ROOT / "bench" / "plots.py")
    plots = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plots)

    RESULTS = {"r": {"commit": "abc1234", "date": "2026-01-01",
                     "rows": [{"work": "a < b", "ratio": 2.0}, {"work": "slow", "ratio": 0.5}, {"work": "x", "ratio": None}]}}

    def test_faster_lies_right_of_one_and_as_far_as_slower_lies_left(self):
        svg = ElementTree.fromstring(self.plots.draw("T", [self.plots.Source("g", self.plots.EAGER, "r")], self.RESULTS))
        space = "{http://www.w3.org/2000/svg}"
        fast, slow = (float(c.get("cx")) for c in svg.iter(space + "circle") if len(c))
        one = next(float(t.get("x")) for t in svg.iter(space + "text") if t.text == "1")
        self.assertGreater(fast, one)
        self.assertAlmostEqual(fast - one, one - slow, places=0)
        self.assertIn("a < b", [t.text for t in svg.iter(space + "text")])
        self.assertIn("r: commit abc1234, 2026-01-01", [t.text for t in svg.iter(space + "text")])

    def test_a_source_without_rows_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "no row of r has a ratio and matches 'nothing'"):
            self.plots.draw("T", [self.plots.Source("g", self.plots.EAGER, "r", "nothing")], self.RESULTS)

    def test_check_tells_a_stale_picture(self):
        tool = [sys.executable, ROOT / "bench" / "plots.py", "--docs", self.tree]
        self.assertEqual(subprocess.run(tool, check=False).returncode, 0)
        self.assertEqual(subprocess.run([*tool, "--check"], check=False).returncode, 0)
        self.write("bench_cpu.svg", "old")
        done = subprocess.run([*tool, "--check"], check=False, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, "bench_cpu.svg is stale: run bench/plots.py\n"))


class Mutate(ToolTest):
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    mutate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutate)

    SOURCE = """int clamp(int x) {
  if (x < 0) return 0;
  // Why.
  x = x * 2 + 1;
  return x;
}
"""

    def fault(self, number, find, replace, **more):
        return {"number": number, "name": f"m{number}", "what": "", "file": "tegula/a.cpp", "find": find,
                "replace": replace, "test": "tests_ops A.*", **more}

    def problems(self, *faults):
        self.write("tegula/a.cpp", self.SOURCE)
        self.write("tests/ops/a_test.cpp", "")
        return list(self.mutate.problems_of(faults, self.tree))

    def result(self, chosen, *faults):
        """What clamp(4) and clamp(-4) give with that fault chosen."""
        self.write("tegula/base/mutant.h", self.mutate.HEADER)
        self.write("tegula/base/mutant.cpp", self.mutate.SOURCE)
        self.write("tegula/a.cpp", self.mutate.planted(self.SOURCE, list(faults)) +
                   "#include <cstdio>\nint main() { std::printf(\"%d %d\", clamp(4), clamp(-4)); }\n")
        program = self.tree / "a"
        subprocess.run(["g++", "-std=c++20", f"-I{self.tree}", "-o", program, self.tree / "tegula/a.cpp",
                        self.tree / "tegula/base/mutant.cpp"], check=True)
        return subprocess.run([program], env={"TEGULA_MUTANT": str(chosen)}, check=True,
                              capture_output=True, text=True).stdout

    def test_each_fault_is_there_when_it_is_chosen_and_only_then(self):
        faults = [self.fault(1, "x < 0", "x > 0"), self.fault(2, "x = x * 2 + 1;", "x = 7;"),
                  self.fault(3, "return x;", "return CHOSEN ? -x : x;"),
                  self.fault(4, "x < 0", "false")]
        self.assertEqual(self.problems(*faults), [])
        self.assertEqual([self.result(n, *faults) for n in range(5)],
                         ["9 0", "0 -7", "7 0", "-9 0", "9 -7"])

    def test_faults_that_do_not_fit_are_named(self):
        for fault, problem in ((self.fault(1, "x > 0", "x"), "0 times"),
                               (self.fault(1, "return", "x"), "2 times"),
                               (self.fault(1, "2 + 1;", "3;"), "ends a statement that begins before"),
                               (self.fault(1, "x < 0", "x", file="tegula/b.cpp"), "no file"),
                               (self.fault(1, "if (x < 0)", "if (x)"), "say CHOSEN"),
                               (self.fault(1, "(x < 0", "(x"), "say CHOSEN"),
                               (self.fault(1, "int clamp(int x) {", "int clamp(long x) {"), "say CHOSEN"),
                               (self.fault(1, "x < 0", "x", test="tests_none A.*"), "no test binary")):
            problems = self.problems(fault)
            self.assertEqual(len(problems), 1)
            self.assertIn(problem, problems[0])
        self.assertEqual(self.problems(self.fault(1, "return", "x", nth=2)), [])
        self.assertIn("overlaps", self.problems(self.fault(1, "x < 0", "x"), self.fault(2, "(x < 0)", "x"))[0])
        self.assertIn("twice", self.problems(self.fault(1, "x < 0", "x"), self.fault(1, "x < 0", "x"))[0])


class Instructions(ToolTest):
    def setUp(self):
        super().setUp()
        spec = importlib.util.spec_from_file_location("instructions", ROOT / "tools" / "instructions.py")
        self.tool = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.tool)

    def test_three_percent_more_fail(self):
        made_with = {"g++": "12", "libc": "2.36"}
        record = {"made_with": made_with, "instructions": {"a": 1000, "b": 1000, "c": 1000}}
        counts = {"a": 1029, "b": 1031, "c": 10, "new": 1}
        self.assertEqual(self.tool.compare(counts, made_with, record)[1], ["b", "new"])
        lines, too_many = self.tool.compare(counts, {"g++": "13", "libc": "2.36"}, record)
        self.assertEqual(too_many, [])
        self.assertIn("not compared", lines[-1])

    def test_calls_are_told_from_own_work(self):
        profile = self.tool.Profile(self.write("callgrind.out", """version: 1
events: Ir
fn=(1) tegula::Session::run(int)
0 7
cfn=(2) tegula::kernel::dot(tegula::KernelCall const&)
calls=2 0
0 500
cfn=(3) clock
calls=1 0
* 11
+3 2

fn=(2)
0 500
fn=(3)
5 11
fn=(4) main
0 1
cfn=(1)
calls=1 0
0 520
totals: 532
"""))
        run, dot = "tegula::Session::run(int)", "tegula::kernel::dot(tegula::KernelCall const&)"
        self.assertEqual(profile.own[run], 9)
        self.assertEqual((profile.calls[run, dot], profile.cost[run, dot]), (2, 500))
        self.assertEqual(profile.within("tegula::Session::run("), 520)
        self.assertEqual(profile.total(), 9 + 500 + 11 + 1)


class EmulatedCpu(ToolTest):
    TOOL = ROOT / "tools" / "emulated_cpu.py"
    spec = importlib.util.spec_from_file_location("emulated_cpu", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    def entries(self, archive):
        """Name, mode and bytes of each file of an archive: fields of 8 hexadecimal digits, names and bytes at multiples of 4."""
        at = 0
        while at < len(archive):
            self.assertEqual(archive[at:at + 6], b"070701")
            field = [int(archive[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
            name = archive[at + 110:at + 110 + field[11] - 1].decode()
            data = at + (110 + field[11] + 3) // 4 * 4
            yield name, field[1], archive[data:data + field[6]]
            at = data + (field[6] + 3) // 4 * 4

    def test_a_program_is_carried_with_its_libraries_and_the_folders_above(self):
        out = io.BytesIO()
        archive = self.tool.Archive(out)
        archive.carry(pathlib.Path(shutil.which("env")))
        archive.carry(self.write("some/text", "abcde"))
        archive.close()
        found = {name: (mode, data) for name, mode, data in self.entries(out.getvalue())}
        text = str(self.tree / "some/text").strip("/")
        self.assertEqual(found[text], (stat.S_IFREG | 0o644, b"abcde"))
        self.assertEqual(found[os.path.dirname(text)], (stat.S_IFDIR | 0o755, b""))
        self.assertTrue([name for name in found if "/libc.so" in name])
        self.assertIn("TRAILER!!!", found)

    def test_what_is_missing_is_named(self):
        for arguments, message in (([], "needs --cpu MODEL and a command"),
                                   (["--cpu", "x", "--env", "A", "true"], "--env A: wants NAME=VALUE"),
                                   (["--cpu", "x", "--system", self.tree, "true"], "bochs bochsbios vgabios")):
            if "--system" in arguments and os.geteuid() != 0:
                message = "--system needs root"
            done = subprocess.run([sys.executable, self.TOOL, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
