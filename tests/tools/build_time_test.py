"""tools/build_time.py: what a small project's build reads and takes."""

import importlib.util
import json
import re
import subprocess
import sys
import unittest

from case import ROOT, ToolTest

TOOL = ROOT / "tools" / "build_time.py"
spec = importlib.util.spec_from_file_location("build_time", TOOL)
build_time = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build_time)


class Record(ToolTest):
    """A compiler launcher notes the processor time, and changes nothing else."""

    def launch(self, *command):
        log = self.tree / "log.jsonl"
        done = subprocess.run([sys.executable, TOOL, "--record", log, "--", *command], capture_output=True, text=True)
        return done, [json.loads(line) for line in log.read_text().splitlines()]

    def test_processor_seconds_of_an_output(self):
        done, rows = self.launch(sys.executable, "-c", "import time\nwhile time.process_time() < .2: pass", "-o", "a.o")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(rows[0]["output"], "a.o")
        self.assertGreater(rows[0]["seconds"], 0.2)
        done, rows = self.launch(sys.executable, "-c", "import time\ntime.sleep(.4)", "-o", "b.o")
        self.assertLess(rows[1]["seconds"], 0.2)

    def test_failures_pass_through(self):
        done, rows = self.launch("sh", "-c", "echo bad >&2; exit 3", "-o", "a.o")
        self.assertEqual((done.returncode, done.stderr, len(rows)), (3, "bad\n", 1))


class Measure(ToolTest):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(t CXX)\n"
                   "set(CMAKE_EXPORT_COMPILE_COMMANDS ON)\nadd_library(l STATIC tegula/io/a.cpp tegula/io/b.cpp)\n"
                   "add_library(m STATIC tests/io/t.cpp)\n"
                   "add_executable(tegula cli/main.cpp)\ntarget_link_libraries(tegula l)\n")
        self.write("tegula/io/big.h", "#pragma once\n" + "// padding\n" * 100)
        self.write("tegula/io/small.h", "#pragma once\n")
        self.write("tegula/io/a.cpp", '#include "big.h"\n#include "small.h"\n')
        self.write("tegula/io/b.cpp", '#include "small.h"\n#include "big.h"\n#include "big.h"\n')
        self.write("cli/main.cpp", '#include "../tegula/io/small.h"\nint main() {}\n')
        self.write("tests/io/t.cpp", '#include "../../tegula/io/big.h"\n')

    def test_header_bytes_and_processor_seconds(self):
        build = self.tree / "build"
        code, out = self.run_tool("build_time.py", "--measure", build, "--source", self.tree, "-j", 1)
        self.assertEqual(code, 0, out)
        rows = {row[-1]: row for row in re.findall(r"^ *([\d.]+) +(\d+) +([\d.]+)  (.+)$", out, re.M)}
        self.assertEqual({name: row[1] for name, row in rows.items()},
                         {"tegula/io": "2", "cli": "1", "all of tegula": "3"})
        self.assertRegex(out, r"processor seconds in all")
        self.assertIn("1 objects of tests are not built", out)
        # Every header once an object, whoever includes it how often; the system's are the same in all.
        objects = build_time.Build(build).objects
        ours = {output.rsplit("/", 1)[-1]: size for output, (_, size) in objects.items()}
        big, small = ((self.tree / "tegula/io" / name).stat().st_size for name in ("big.h", "small.h"))
        self.assertEqual(ours["a.cpp.o"], ours["b.cpp.o"])
        self.assertEqual(ours["a.cpp.o"] - ours["main.cpp.o"], big)
        self.assertGreaterEqual(ours["main.cpp.o"], small)
        # A group that is not built whole has no sum to compare.
        self.assertEqual(set(build_time.Build(build).header_bytes()), {"tegula"})
        self.assertIn("exists: name a new folder", subprocess.run(
            [sys.executable, TOOL, "--measure", build], capture_output=True, text=True).stderr)


class Compare(unittest.TestCase):
    TOOLS = {"compiler": "12.2.0", "libc": "2.36"}
    LIMITS = {"made_with": TOOLS, "header_bytes": {"tegula": 100_000_000, "tests": 5_000_000}}

    def test_more_than_the_limit_fails(self):
        lines, over = build_time.compare({"tegula": 100_000_000, "tests": 5_000_001}, self.TOOLS, self.LIMITS)
        self.assertEqual(over, ["tests"])
        self.assertIn("tegula: 100.0 of at most 100.0 MB", lines[0])

    def test_what_is_not_built_is_said(self):
        lines, over = build_time.compare({"tegula": 1}, self.TOOLS, self.LIMITS)
        self.assertEqual(over, [])
        self.assertIn("tests: not all of it is built", lines[1])

    def test_another_compiler_reads_other_headers(self):
        lines, over = build_time.compare({"tegula": 10**9}, {"compiler": "13", "libc": "2.36"}, self.LIMITS)
        self.assertEqual(over, [])
        self.assertIn("not compared", lines[0])

    def test_folders(self):
        self.assertEqual(build_time.folder_of("tegula/ops/view/slice.cpp", "x.o"), "tegula/ops")
        self.assertEqual(build_time.folder_of("tegula/kernels/cpu/isa/dot.cpp", "a/tegula_isa_avx2.dir/dot.o"),
                         "tegula/kernels/cpu avx2")
        self.assertEqual(build_time.folder_of("tegula/kernels/order.cpp", "x.o"), "tegula/kernels")
        self.assertEqual(build_time.folder_of("cli/main.cpp", "x.o"), "cli")
        self.assertEqual(build_time.folder_of("tests/io/a_test.cpp", "x.o"), "tests/io")
        self.assertEqual(build_time.folder_of("generated/tegula/ops/table.cpp", "x.o"), "generated")


if __name__ == "__main__":
    unittest.main()
