"""tools/check_readme.py: pages whose snippets do, and do not, what they show."""

import unittest

from case import ToolTest

PAGE = """# A page

```sh
script/demo     # builds
```

```console
$ tegula count
three 3 of 7
took 12.5 ms, 1,200 tokens/s  MFU 12%
$ echo a; \\
  echo b >&2
a
b
```
"""

LIBRARY = """```cmake
project(app)
```
```cpp
int main() {}
```
```text
6
```
"""


class CheckReadme(ToolTest):
    def setUp(self):
        super().setUp()
        self.tool = self.write("tegula", "#!/bin/sh\ncase $1 in count) echo 'three 3 of 7'; echo "
                               "'took 9 ms, 31,000 tokens/s  MFU 7%' ;; many) seq 1 20 ;; write) mkdir demo-out && "
                               "echo x > demo-out/x ;; *) echo no >&2; exit 2 ;; esac\n")
        self.tool.chmod(0o755)

    def check(self, page, *arguments):
        self.page = self.write("README.md", page)
        return self.run_tool("check_readme.py", "--page", self.page, "--bin", self.tool, *arguments)

    def test_what_is_printed_is_compared_but_for_time_and_speed(self):
        self.assertEqual(self.check(PAGE), (0, ""))
        for shown, other in (("3 of 7", "3 of 8"), ("took 12.5 ms", "needed 12.5 ms"), ("a\nb\n", "b\na\n"),
                             ("a\nb\n", "a\n"), ("a\nb\n", "a\nb\nc\n")):
            code, out = self.check(PAGE.replace(shown, other))
            self.assertEqual(code, 1, other)
            self.assertIn("prints something else", out)

    def test_an_ellipsis_leaves_out(self):
        block = "```console\n$ tegula many\n{}\n```\n"
        for shown in ("1\n2\n…", "…\n20", "1\n…\n7\n…\n20", "…", "1\n2\n…\n3\n…", "…\n1…\n20"):
            self.assertEqual(self.check(block.format(shown))[0], 0, shown)
        for shown in ("1\n2", "…\n19", "2\n…", "…\n7\n…\n6\n…", "…\n21\n…", ""):
            self.assertEqual(self.check(block.format(shown))[0], 1, shown)

    def test_a_command_that_fails(self):
        code, out = self.check("```console\n$ tegula explode\nno\n```\n")
        self.assertEqual(code, 1)
        self.assertIn("README.md: line 2: `tegula explode`: exit 2: no", out)

    def test_commands_of_a_page_share_a_folder_that_is_thrown_away(self):
        self.assertEqual(self.check("```console\n$ tegula write\n$ cat demo-out/x; ls LICENSE\nx\nLICENSE\n```\n")[0], 0)

    def test_scripts_exist(self):
        self.assertIn("script/nothing is no script", self.check(PAGE.replace("script/demo", "script/nothing"))[1])
        self.assertIn("line 4: rm is no script", self.check(PAGE.replace("script/demo", "rm -rf /"))[1])
        self.assertIn("neither run nor built", self.check(PAGE.replace("```sh", "```bash"))[1])
        self.assertIn("neither run nor built", self.check(PAGE.replace("```sh", "```"))[1])

    def test_numbers_are_brought_up_to_date(self):
        page = PAGE.replace("three 3 of 7", "three 3 of 1,234")
        self.assertEqual(self.check(page, "--write")[0], 1)
        self.assertEqual(self.page.read_text(), PAGE)
        page = "```console\n$ tegula many\n…\n17\n…\n$ tegula count\nfour\n```\n"
        self.assertEqual(self.check(page, "--write")[0], 1)
        self.assertEqual(self.page.read_text(), "```console\n$ tegula many\n…\n17\n…\n$ tegula count\nthree 3 of 7\n"
                         "took 9 ms, 31,000 tokens/s  MFU 7%\n```\n")

    def test_the_program_is_written_out(self):
        self.assertEqual(self.check(LIBRARY, "--library", self.tree / "app"), (0, ""))
        self.assertEqual((self.tree / "app/app.cpp").read_text(), "int main() {}\n")
        self.assertEqual((self.tree / "app/CMakeLists.txt").read_text(), "project(app)\n")
        self.assertEqual((self.tree / "app/expected.txt").read_text(), "6\n")


if __name__ == "__main__":
    unittest.main()
