"""tools/check_map.py, against tables with a planted mistake."""

import unittest

from case import ToolTest


class CheckMap(ToolTest):
    HEAD = ("| technique | paper | file | command | test | figure | state |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n")

    def check(self, rows, *arguments):
        page = self.write("map.md", self.HEAD + rows)
        return self.run_tool("check_map.py", "--map", page, *arguments)

    def test_planned_rows_need_nothing(self):
        self.assertEqual(self.check("| A | – | – | – | – | – | planned |\n"),
                         (0, "1 techniques: 0 work, 1 are planned\n"))

    def test_working_rows_name_what_exists(self):
        good = "| A | P | `LICENSE` | `true` | `tests/tools/tools_test.py` | – | works |\n"
        self.assertEqual(self.check(good)[0], 0)
        code, out = self.check(good.replace("`LICENSE`", "`tegula/no.cpp`"))
        self.assertEqual(code, 1)
        self.assertIn("file tegula/no.cpp does not exist", out)
        self.assertIn("names no test", self.check(good.replace("`tests/tools/tools_test.py`", "–"))[1])
        self.assertIn("names no command", self.check(good.replace("`true`", "–"))[1])

    def test_form(self):
        self.assertIn("neither works nor planned", self.check("| A | – | – | – | – | – | soon |\n")[1])
        self.assertIn("3 cells, not 7", self.check("| A | – | planned |\n")[1])
        row = "| A | – | – | – | – | – | planned |\n"
        self.assertIn("stands in line 3 too", self.check(row + row)[1])

    def test_run_runs_a_quick_form(self):
        tool = self.write("tegula", f'#!/bin/sh\necho "$@" >> "{self.tree}/log"\n'
                          'case "$*" in *explode*) echo boom; exit 3;; esac\n')
        tool.chmod(0o755)
        row = "| {} | – | `LICENSE` | {} | `LICENSE` | – | works |\n"
        rows = (row.format("A", "`tegula train --steps 900 --out demo-out/a`") +
                row.format("B", "`tegula generate --model demo-out/model`, `ctest -R x`"))
        code, out = self.check(rows, "--run", "--bin", tool)
        self.assertEqual(code, 0, out)
        log = (self.tree / "log").read_text().splitlines()
        self.assertEqual(len(log), 3)
        self.assertIn("--out", log[0])
        self.assertRegex(log[1], r"^train --steps 2 --out /\S+/a$")
        self.assertRegex(log[2], r"^generate --model /\S+/model --max-tokens 4$")
        code, out = self.check(row.format("C", "`tegula explode`"), "--run", "--bin", tool)
        self.assertEqual(code, 1)
        self.assertIn("`tegula explode`: exit 3: boom", out)


if __name__ == "__main__":
    unittest.main()
