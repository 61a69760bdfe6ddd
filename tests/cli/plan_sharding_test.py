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
        deep = ("--n-layers", 8, "--n-heads", 4, "--d-model", 64, "--seqlen", 32, "--batch", 8, "--vocab-size", 64)
        done = self.expect_ok(self.run_tool("plan", *deep, "--mesh", "x=4", "--search-sharding", "--json"))
        self.assertTrue(json.loads(done.stdout)["is_exact"])
        text = self.expect_ok(self.run_tool("plan", *STEP, *flags, "--search-sharding")).stdout
        self.assertIn("search", text)
        self.assertIn("a step", text)

    def test_splits_of_a_convolution(self):
        shape = "batch=32,in=64,out=128,height=56,width=56,kernel=3,pad=1"
        asked = ("plan", "--conv", shape, "--mesh", "rows=2,cols=4", "--shard-on", "a100", "--dtype", "bf16")
        splits = json.loads(self.expect_ok(self.run_tool(*asked, "--json")).stdout)["splits"]
        self.assertEqual(len(splits), 25)
        self.assertEqual(sorted(s["seconds"] for s in splits), [s["seconds"] for s in splits])
        by = {(s["axes"]["rows"], s["axes"]["cols"]): s for s in splits}
        # B·C·H·W·2 over the ranks that split it; two rows of 32 · 64 channels' 56 columns, of one side of two parts one.
        self.assertEqual(by["batch", "out"]["y_bytes"], 2 * 32 * 128 * 56 * 56 / 8)
        self.assertEqual(by["in", "height"]["halo_bytes"], 2 * 32 * 32 * 56 * 2)
        self.assertEqual(by["height", "in"]["halo_bytes"], 2 * 32 * 16 * 56 * 1)
        self.assertEqual(by["in", "batch"]["y_sum_bytes"], 2 * 8 * 128 * 56 * 56)
        self.assertEqual(by["batch", "batch"]["filter_sum_bytes"], 2 * 64 * 128 * 9)
        self.assertEqual(by["batch", "batch"]["halo_bytes"], 0)
        half = json.loads(self.expect_ok(self.run_tool(*asked[:-1], "f16", "--json")).stdout)["splits"]
        self.assertEqual([s["y_bytes"] for s in half], [s["y_bytes"] for s in splits])
        fixed = json.loads(self.expect_ok(self.run_tool(*asked, "--computation-layout", "height=cols",
                                                        "--json")).stdout)["splits"]
        self.assertEqual({s["axes"]["cols"] for s in fixed}, {"height"})
        text = self.expect_ok(self.run_tool(*asked)).stdout
        for words in ("convolution y [32 128 56 56]", "25 divide", "height=cols", "halo"):
            self.assertIn(words, text)
        # A product [B·M, N]·[N, P] is one of single elements: (i, j) sums nothing forward, (i, k) what it makes.
        product = json.loads(self.expect_ok(self.run_tool("plan", "--conv", "batch=1024,in=512,out=256", "--mesh",
                                                          "i=2,j=4", "--json")).stdout)["splits"]
        by = {(s["axes"]["i"], s["axes"]["j"]): s for s in product}
        self.assertEqual(by["batch", "out"]["y_sum_bytes"], 0)
        self.assertEqual(by["batch", "in"]["y_sum_bytes"], 4 * 512 * 256)
        for flags, words in ((("--conv", "batch=4,hight=8", "--mesh", "x=2"), ("hight", "height")),
                             (("--conv", "batch=4,height=8,kernel=9", "--mesh", "x=2"), ("kernel of 9",)),
                             (("--conv", "batch=3", "--mesh", "x=2", "--computation-layout", "batch=x"), ("batch, 3", "2")),
                             (("--conv", "batch=4", "--mesh", "x=2", "--computation-layout", "depth=x"), ("depth",)),
                             (("--conv", "batch=4", "--mesh", "x=2", "--shard-on", "h1000"), ("h100",))):
            self.expect_error(self.run_tool("plan", *flags), INVALID, *words)
        self.expect_error(self.run_tool("plan", "--conv", "batch=4"), USAGE, "--mesh")

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
