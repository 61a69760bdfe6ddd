"""tools/check_map.py, against tables with a planted mistake."""

import importlib.util
import json
import unittest

from case import ROOT, ToolTest

spec = importlib.util.spec_from_file_location("check_map", ROOT / "tools" / "check_map.py")
check_map = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_map)

TEST = "`tests/io/checkpoint_test.cpp`"


class CheckMap(ToolTest):
    HEAD = ("| technique | paper | file | command | test | figure | state |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n")

    def check(self, rows, *arguments):
        page = self.write("map.md", self.HEAD + rows)
        return self.run_tool("check_map.py", "--map", page, *arguments)

    def row(self, file="`LICENSE`", command="`tegula plan`", test=TEST, figure="–", state="works", name="A"):
        return f"| {name} | P | {file} | {command} | {test} | {figure} | {state} |\n"

    def refused(self, *words, **cells):
        code, out = self.check(self.row(**cells))
        self.assertEqual(code, 1, out)
        for word in words:
            self.assertIn(word, out)

    def taken(self, **cells):
        code, out = self.check(self.row(**cells))
        self.assertEqual(code, 0, out)

    def test_planned_rows_need_nothing(self):
        self.assertEqual(self.check("| A | – | – | – | – | – | planned |\n"),
                         (0, "1 techniques: 0 work, 0 are tested, 1 are planned\n"))

    def test_working_rows_name_what_exists(self):
        self.taken()
        self.refused("file tegula/no.cpp does not exist", file="`tegula/no.cpp`")
        self.refused("names no test", test="–")
        self.refused("names no command", command="–")

    def test_what_works_is_reached_by_a_users_command(self):
        for command in ("`ctest -R x`", "`tegula grad --help`", "`bench/compare_cuda.py --list`", "`tegula --version`",
                        "`script/test -R x`"):
            self.refused("by none of its commands", command=command)
            self.taken(command=command, state="tested")
        self.taken(command="`ctest -R x`, `tegula plan`")
        self.taken(command="–", state="tested")
        for command in ("`script/fuzz 60`", "`bench/nanogpt.py`", "`tools/mutate.py`"):
            self.taken(command=command)

    def test_a_test_compares_values(self):
        self.refused("compares values", test="`tests/common/random_graph.h`")
        self.refused("lies outside of tests/", test="`bench/nanogpt.py`")
        self.taken(test="`tests/common/random_graph.h`, " + TEST)
        self.taken(test="`tests/cli/flags_test.py`")

    def test_a_gpu_kernels_test_runs_it(self):
        kernel = "`tegula/kernels/cuda/attention_sm90.cu`"
        for test in ("`tests/kernels/cuda/attention_gpu_test.cpp`", "`tests/kernels/cuda/decode_gpu_test.cpp`"):
            self.refused("they only compile it", file=kernel, test=test)
            self.refused("they only compile it", file=kernel, test=test, state="tested", command="–")
        self.taken(file=kernel, test="`tests/ops/device_gpu_test.cpp`")
        self.taken(file=kernel, test="`tests/kernels/cuda/attention_gpu_test.cpp`, `tests/ops/device_gpu_test.cpp`")

    def test_figures_are_those_of_the_result(self):
        result = "`bench/results/models_h200.json`"
        self.taken(figure=f"GPT-2 586,943 tokens/s, 1.139 times: {result}")
        self.taken(figure=f"GPT-2 587k tokens/s, 14 % faster (B32, AVX-512), error ≤ 2 × naive: {result}")
        self.refused("figure 541k", figure=f"GPT-2 541k tokens/s: {result}")
        self.refused("figure 1.66", figure=f"1.66 times: {result}")
        self.refused("names neither a result", figure="586,943 tokens/s")
        self.refused("names neither a result", figure="a step 7.9 → 5.9 ms")
        self.taken(figure="405B: 1,095,488 layouts in .9 s: `docs/planner.md`")
        self.refused("figure .0001", figure="405B in .0001 s: `docs/planner.md`")
        self.taken(figure="4 all_to_all a layer; PyTorch's gradients to 1e-12")

    def test_numbers_and_units(self):
        result = self.write("bench/results/r.json", json.dumps({"rows": [{"share": 0.834, "bytes": 3 * 2**20, "rate": 2.5e9},
                                                                         {"shape": "2,16,16384,128"}]}))
        values = list(check_map.values_in(json.loads(result.read_text())))
        for shown in ("83", ".83", "0.834", "3", "2.5", "17", "1.2", "16k", "16384", "2"):
            self.assertTrue(check_map.is_shown(shown, values), shown)
        for missing in ("84", ".84", "7", "2.6", "18", "1.3", "17k"):
            self.assertFalse(check_map.is_shown(missing, values), missing)
        self.assertEqual(check_map.numbers_in("1,386 → 1,548 tokens/s (d128, `a 7`, x=2,y=3), 4.3–4.5 at 16k"),
                         ["1386", "1548", "4.3", "4.5", "16k"])

    def test_form(self):
        self.assertIn("none of works, tested, planned", self.check("| A | – | – | – | – | – | soon |\n")[1])
        self.assertIn("3 cells, not 7", self.check("| A | – | planned |\n")[1])
        row = "| A | – | – | – | – | – | planned |\n"
        self.assertIn("stands in line 3 too", self.check(row + row)[1])

    def test_run_runs_a_quick_form(self):
        tool = self.write("tegula", f'#!/bin/sh\necho "$@" >> "{self.tree}/log"\n'
                          'case "$*" in *explode*) echo boom; exit 3;; *cuda*) exit 3;; esac\n')
        tool.chmod(0o755)
        rows = (self.row(name="A", command="`tegula train --steps 900 --out demo-out/a`") +
                self.row(name="B", command="`tegula generate --model demo-out/model`, `ctest -R x`") +
                self.row(name="C", command="`tegula train --data FILE`, `tegula train --device cuda`") +
                self.row(name="D", command="`tegula plan --device cuda --target h100`", state="tested"))
        code, out = self.check(rows, "--run", "--bin", tool)
        self.assertEqual(code, 0, out)
        log = (self.tree / "log").read_text().splitlines()
        self.assertEqual(len(log), 4)
        self.assertIn("--out", log[0])
        self.assertRegex(log[1], r"^train --steps 3 --out /\S+/a$")
        self.assertRegex(log[2], r"^generate --model /\S+/model --max-tokens 4$")
        self.assertRegex(log[3], r"^bench gemm .*--device cuda")  # is there one?
        code, out = self.check(self.row(command="`tegula explode`"), "--run", "--bin", tool)
        self.assertEqual(code, 1)
        self.assertIn("`tegula explode`: exit 3: boom", out)


if __name__ == "__main__":
    unittest.main()
