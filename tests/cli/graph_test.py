"""tegula plan --graph: the text of a step, and on a mesh where every value lies."""

import re
import unittest

from case import CliTest, USAGE

STEP = ("plan --vocab-size 64 --n-layers 2 --n-heads 4 --d-model 32 --seqlen 16 --batch 8 "
        "--target zen4").split()
VALUE = re.compile(r"(?:f32|bf16|i32|i64|bool)\[[\d,]*\]( \[[^\]]*\])?")


class GraphTest(CliTest):
    def graph(self, *arguments):
        return self.expect_ok(self.run_tool(*STEP, *arguments)).stdout

    def test_without_a_mesh_nothing_is_said_of_one(self):
        text = self.graph("--graph", "step")
        self.assertTrue(text.startswith('func 0 "'), text[:200])
        self.assertIn("linear_cross_entropy(", text)
        self.assertIn('in "layers.1.attn"', text)
        self.assertEqual([v for v in VALUE.findall(text) if v], [])
        self.assertIn("fused(", self.graph("--graph", "rank"))

    def test_on_a_mesh_every_value_says_where_it_lies(self):
        text = self.graph("--graph", "step", "--mesh", "dp=2,tp=2")
        lines = text.splitlines()
        self.assertEqual(lines[0], "mesh dp=2,tp=2")
        said = VALUE.findall("\n".join(line for line in lines if re.match(r"  (param )?%", line)))
        self.assertGreater(len(said), 200)
        self.assertNotIn("", said)
        self.assertRegex(text, r'param %\d+ input "tokens" i32\[8,16\] \[dp:0\]')
        self.assertRegex(text, r'attn\.c_attn\.weight" f32\[32,96\] \[tp:1/3\]')
        self.assertRegex(text, r"dot\(.*\[dp:0, tp:\+\]")  # a product of what tp splits pends
        self.assertNotIn("all_reduce", text)

    def test_a_rank_has_shares_and_collectives(self):
        text = self.graph("--graph", "rank", "--mesh", "dp=2,tp=2")
        self.assertRegex(text, r'input "tokens" i32\[4,16\]')
        self.assertRegex(text, r'attn\.c_attn\.weight" f32\[32,48\]')
        for axis in ("dp", "tp"):
            self.assertRegex(text, rf'(all_reduce|reduce_scatter)\(.*axis = "{axis}"')

    def test_what_stays_whole_is_named(self):
        heads = ["--n-heads", 3, "--d-model", 48, "--mesh", "tp=2"]
        said = "tp: the 3 n_heads cannot be shared evenly by its 2 ranks"
        for plan in (self.graph(*heads), self.graph(*heads, "--graph", "step")):
            self.assertIn(said, plan)
            self.assertIn("attn.c_attn.weight", plan)
        self.assertRegex(self.graph(*heads),
                         r"not cut +attention of layers\.0\.attn over tp: .*do not divide: .*\b3\b")
        self.assertNotIn("cannot be shared", self.graph("--mesh", "tp=2"))

    def test_what_it_does_not_go_with(self):
        for other in ("--json", "--search-sharding"):
            done = self.run_tool(*STEP, "--mesh", "dp=2,tp=2", "--graph", "step", other)
            self.expect_error(done, USAGE, "--graph")
        self.expect_error(self.run_tool(*STEP, "--graph", "all"), USAGE, "--graph")


if __name__ == "__main__":
    unittest.main()
