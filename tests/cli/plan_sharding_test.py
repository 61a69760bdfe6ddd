"""tegula plan --computation-layout, --shard, --search-sharding: what is said, what follows, what is refused."""

import json
import unittest

from case import CliTest, USAGE, INVALID

STEP = ("--n-layers 2 --n-heads 4 --d-model 64 --seqlen 32 --batch 8 --vocab-size 65").split()


class PlanSharding(CliTest):
    def plan(self, *arguments):
        done = self.expect_ok(self.run_tool("plan", *STEP, *arguments, "--json"))
        return json.loads(done.stdout)

    def test_names_and_tensors_say_the_same(self):
        named = self.plan("--mesh", "rows=2,cols=2", "--computation-layout", "batch=rows,heads=cols,ff=cols")
        said = self.plan("--mesh", "rows=2,cols=2", "--computation-layout", "batch=rows,heads=cols",
                         "--shard", ".c_fc.weight:1=cols,.mlp.c_proj.weight:0=cols")
        for key in ("flops", "param_bytes", "exchanges", "params"):
            self.assertEqual(named[key], said[key], key)
        # Megatron's sums: two forward and two backward a layer, of 4 · 32 · 64 floats on each rank.
        sent = {e["what"]: e["sent_bytes"] for e in named["exchanges"]}["all_reduce over cols"]
        self.assertEqual(sent // (8 * 4 * 4 * 32 * 64), 1)

    def test_the_lecture_s_layout(self):
        plan = self.plan("--mesh", "rows=2,cols=2", "--computation-layout", "batch=rows,hidden=cols")
        places = {p["name"]: p["sharding"] for p in plan["params"]}
        self.assertEqual(places["tokens"], "[rows:0]")
        self.assertEqual(places["transformer.wte.weight"], "[cols:1]")
        self.assertEqual(places["adam.m.transformer.wte.weight"], "[cols:1]")

    def test_search_finds_no_worse(self):
        flags = ("--mesh", "x=4", "--computation-layout", "batch=x")
        said, searched = self.plan(*flags), self.plan(*flags, "--search-sharding")
        self.assertLessEqual(searched["seconds"], said["seconds"] * 1.01)
        self.assertIn(searched["is_exact"], (True, False))
        text = self.expect_ok(self.run_tool("plan", *STEP, *flags, "--search-sharding")).stdout
        self.assertIn("search", text)
        self.assertIn("a step", text)

    def test_what_is_refused(self):
        for flags, word in ((("--mesh", "x=2", "--computation-layout", "width=x"), "no dim is called width"),
                            (("--mesh", "x=2", "--computation-layout", "batch=y"), "no axis y"),
                            (("--mesh", "x=2", "--shard", "nothing:0=x"), "nothing"),
                            (("--mesh", "x=3", "--computation-layout", "batch=x"), "3"),
                            (("--mesh", "x=2", "--search-sharding", "--shard-on", "h1000"), "h100")):
            self.expect_error(self.run_tool("plan", *STEP, *flags), INVALID, word)
        self.expect_error(self.run_tool("plan", *STEP, "--computation-layout", "batch=x"), USAGE, "--mesh")


if __name__ == "__main__":
    unittest.main()
