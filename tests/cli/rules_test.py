#!/usr/bin/env python3
"""tegula rules: found, proven, checked, and refused where they are wrong."""

import pathlib
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
        self.expect_error(self.run_tool("rules", "check", "--prove", rules), INPUT, "rule wrong", "differ")

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


    def test_false_rules_with_names_that_meet_are_refused(self):
        """A variable that an unwrapped max brings along must not meet one of the same name beside it."""
        sides = [f"mul(max(reduce_sum(x,dims=[0]),reduce_sum(x,dims=[0])), reduce_max({y},dims=[0]))"
                 for y in ("y", "slice(y,dim=0,start=0,size=n)")]
        rule = f"rule p\nsizes n m\ninputs x[n] y[m]\nwhere m - n - 1 >= 0\nleft {sides[0]}\nright {sides[1]}\n"
        path = self.dir / "p.rules"
        path.write_text(rule)
        self.expect_error(self.run_tool("rules", "check", "--prove", path), INPUT, "rule p")
        for name in ("rr", "r0x"):  # a size in the place of a variable
            path.write_text(f"""rule bad
sizes n {name}
inputs x[n]
where n - 2 >= 0
left reduce_sum(x, dims=[0])
right reduce_sum(slice(x,dim=0,start=1,size=n-1), dims=[0])
proof
  valid 0 by 1: 1
  valid 3 by 1: 0
  subst 1 r0 z5 z5 - 1
  drop 1 1 by 1: h5
  subst 1 z5 {name} {name}
  drop 1 0 by 1: h1
  subst 1 {name} z1 z1
  subst 0 r0 z1 z1
  merge 0 1
end
""")
            self.expect_error(self.run_tool("rules", "check", path), INPUT, "rule bad")

    def test_convolutions_in_groups(self):
        text, out = pathlib.Path("tests/data/rules_groups.txt").read_text(), self.dir / "proven.txt"
        done = self.expect_ok(self.run_tool("rules", "check", "--prove", "tests/data/rules_groups.txt", "--out", out))
        self.assertIn("8 rules, every proof holds", done.stdout)
        self.assertIn("8 rules, every proof holds", self.expect_ok(self.run_tool("rules", "check", out)).stdout)
        as_concat = text[text.index("rule groups_as_concat"):text.index("rule convolutions_as_groups")]
        proven = out.read_text()
        proven = proven[:proven.index("rule convolutions_as_groups")]
        for old, new, words in (("start=c", "start=0", "differ"),  # the first group's channels twice
                                ("start=m", "start=0", "differ"),
                                ("groups=2", "groups=1", "conv: x is"), ("groups=2", "groups=0", "conv: x is"),
                                ("a[2*m", "a[m", "2 groups of m"), ("groups=2", "groups=c", "conv: x is")):
            path = self.write("wrong.txt", as_concat.replace(old, new))
            self.expect_error(self.run_tool("rules", "check", "--prove", path), INPUT, "groups_as_concat", words)
            path = self.write("wrong.txt", proven.replace(old, new))
            self.assertNotEqual(path.read_text(), proven)
            self.expect_error(self.run_tool("rules", "check", path), INPUT, "groups_as_concat")
        self.expect_error(self.run_tool("rules", "check", out, "--out", out), USAGE, "--prove")

    def test_updates_of_several_dims(self):
        head = ("rule box\nsizes m n k l\nintegers s t\ninputs x[m,n] y[k,l]\nleft dynamic_update_slice(x, y, dim=[0,1], start=[s,t])\n"
                "right dynamic_update_slice(x, dynamic_update_slice(slice(x, dim=0, start=s, size=k), y, dim=1, start={}), dim=0, start=s)\n")
        for start in "ts":
            path = self.write("box.rules", head.format(start))
            done = self.run_tool("rules", "check", "--prove", path)
            self.assertEqual(done.returncode == 0, start == "t", done.stderr)
        for wrong in ("dim=[1,0]", "dim=[0,0]", "dim=[0,2]", "dim=[0]"):
            path = self.write("box.rules", head.format("t").replace("dim=[0,1]", wrong))
            self.expect_error(self.run_tool("rules", "check", "--prove", path), INPUT, "box")

    def test_files_that_broke_the_checker(self):
        head = "rule b\nsizes n a b c d e\nfunctions f\ninputs x[n]\n"
        for text in (head + "left f()\nright x\nproof\nend\n",
                     head + "left x\nright x\nproof\n  shape 3 by 1: 0\nend\n",
                     head + "left reduce_sum(x,dims=[0])\nright reduce_sum(x,dims=[0])\nproof\n  split 0 " + "*".join(["r0"] * 24)
                     + "\n  subst 0 r0 r1 r1+a+b+c+d+e\nend\n"):
            path = self.dir / "b.rules"
            path.write_text(text)
            self.expect_error(self.run_tool("rules", "check", path), INPUT, "b.rules")

    def test_a_wider_sum_is_not_of_class_exact(self):
        path = self.dir / "w.rules"
        path.write_text("rule w\nclass exact\nsizes n m\ninputs x[n,m]\nleft reduce_sum(pad(x,dim=1,lo=1,hi=1),dims=[1])\n"
                        "right reduce_sum(pad(x,dim=1,lo=1,hi=2),dims=[1])\n")
        self.expect_error(self.run_tool("rules", "check", "--prove", path), INPUT, "not exact")


if __name__ == "__main__":
    unittest.main()
