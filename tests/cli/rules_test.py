#!/usr/bin/env python3
"""tegula rules: found, proven, checked, and refused where they are wrong."""

import unittest

from case import INPUT, USAGE, CliTest

QKV = """rule qkv
sizes m k n1 n2
inputs x[m,k] a[k,n1] b[k,n2]
left concat(dot(x, a), dot(x, b), dim=1)
right dot(x, concat(a, b, dim=1))
"""


class Rules(CliTest):
    def test_the_published_ones_are_proven(self):
        done = self.expect_ok(self.run_tool("rules", "check", "--prove", "tests/data/rules_xla.txt"))
        self.assertIn("91 rules, every proof holds", done.stdout)

    def test_without_a_proof_it_is_refused(self):
        rules = self.write("rules.txt", QKV)
        self.expect_error(self.run_tool("rules", "check", rules), INPUT, "rule qkv", "has no proof")
        self.expect_ok(self.run_tool("rules", "check", "--prove", rules))

    def test_a_false_one_is_refused_and_named(self):
        rules = self.write("rules.txt", QKV + QKV.replace("qkv", "wrong").replace(
            "concat(a, b", "concat(b, a"))
        self.expect_error(self.run_tool("rules", "check", "--prove", rules), INPUT, "rule wrong",
                          "not proven")

    def test_a_missing_condition_is_named(self):
        rules = self.write("rules.txt", "rule r\nsizes n\nintegers a b\ninputs x[n]\n"
                           "left pad(pad(x, dim=0, hi=a), dim=0, hi=b)\nright pad(x, dim=0, hi=a+b)\n")
        self.expect_error(self.run_tool("rules", "check", "--prove", rules), INPUT, "rule r")
        rules = self.write("rules.txt", rules.read_text().replace("inputs", "where a >= 0\ninputs"))
        self.expect_ok(self.run_tool("rules", "check", "--prove", rules))

    def test_the_first_wrong_step_is_named(self):
        rules = self.write("rules.txt", QKV + "proof\nmerge 0 3\nend\n")
        self.expect_error(self.run_tool("rules", "check", rules), INPUT, "rule qkv",
                          "step 1, 'merge 0 3'")

    def test_a_class_that_does_not_hold(self):
        rules = self.write("rules.txt", "rule r\nclass exact\nsizes m k1 k2 n\n"
                           "inputs x[m,k1] y[m,k2] a[k1,n] b[k2,n]\nleft add(dot(x,a), dot(y,b))\n"
                           "right dot(concat(x,y,dim=1), concat(a,b,dim=0))\n")
        self.expect_error(self.run_tool("rules", "check", "--prove", rules), INPUT, "rule r", "class")

    def test_bad_files(self):
        for text, words in (("left x\n", "expected 'rule NAME'"),
                            ("rule r\nleft y\nright y\n", "no input is named y"),
                            ("rule r\nsizes n\ninputs x[n]\nleft f(x)\nright x\n", "'f' is neither"),
                            ("rule r\nsizes n n\n", "'n'"),
                            ("rule r\nsizes n\ninputs x[n]\nleft x\n", "lacks left or right"),
                            ("rule r\nsizes n\ninputs x[n]\nleft x\nright x\nproof\n", "no line 'end'"),
                            ("rule r\nwhat 3\n", "no statement is named 'what'")):
            rules = self.write("rules.txt", text)
            self.expect_error(self.run_tool("rules", "check", "--prove", rules), INPUT, words)
        self.expect_error(self.run_tool("rules", "check", self.dir / "none"), (INPUT, USAGE))
        self.expect_error(self.run_tool("rules"), USAGE)

    def test_generated_rules_pass_the_check(self):
        done = self.expect_ok(self.run_tool("rules", "generate", "--out", self.dir / "rules.txt"))
        self.assertRegex(done.stdout, r"\d+ graphs in [\d.]+ s, \d+ candidates, \d+ survivors, \d+ proven")
        done = self.expect_ok(self.run_tool("rules", "check", self.dir / "rules.txt"))
        self.assertRegex(done.stdout, r"\d+ rules, every proof holds")
        # One digit of one rule's side is enough.
        text = (self.dir / "rules.txt").read_text()
        self.assertIn("dim=1))\n", text)
        wrong = self.write("wrong.txt", text.replace("dim=1))\n", "dim=0))\n", 1))
        self.expect_error(self.run_tool("rules", "check", wrong), INPUT, "rule ")


if __name__ == "__main__":
    unittest.main()
