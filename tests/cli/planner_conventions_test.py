"""tegula plan MODEL: whose conventions a step follows: dtypes, stages, what is computed again, what hides."""

import json
import unittest

from case import CliTest, USAGE


class Conventions(CliTest):
    def plan(self, *arguments):
        return json.loads(self.expect_ok(self.run_tool("plan", *arguments, "--json")).stdout)

    def best(self, *arguments):
        return self.plan(*arguments)["layouts"][0]

    def test_frameworks_have_their_own_conventions(self):
        def plan(*more):
            return json.loads(self.expect_ok(self.run_tool(
                "plan", "llama3-8b", "--gpus", "8xH200", "--seqlen", 4096, "--batch-tokens", 8 * 4096, "--fix",
                "dp=8,tp=1,cp=1,pp=1,zero=3,microbatch=1,remat=full", "--json", *more)).stdout)["layouts"][0]
        ours, titan, eager = (plan("--framework", f) for f in ("tegula", "torchtitan", "fsdp"))
        self.assertLess(ours["step_s"], titan["step_s"])
        self.assertLess(titan["step_s"], eager["step_s"])
        self.assertEqual(ours["memory"]["copies"], 0)
        self.assertGreater(eager["memory"]["copies"], 2 * 2 * 128256 * 4096)  # the table and the head, gathered
        whole = plan("--framework", "fsdp", "--fix", "loss=chunked")  # adds to what is fixed
        self.assertLess(whole["memory"]["temporaries"], eager["memory"]["temporaries"])
        self.expect_error(self.run_tool("plan", "llama3-8b", "--framework", "fsdp"), USAGE, "--framework", "--gpus")
        self.expect_error(self.run_tool("plan", "llama3-8b", "--gpus", "8xH200", "--framework", "jax"), USAGE, "jax",
                          "torchtitan")
        self.expect_error(self.run_tool("plan", "llama3-8b", "--gpus", "8xH200", "--framework", "fsdp", "--keeps",
                                        "built"), USAGE, "--keeps built", "fsdp")

    def test_stages_are_as_frameworks_deal_them(self):
        asked = ("gpt2", "--gpus", "2xH100", "--batch-tokens", 32 * 1024, "--fix", "schedule=1f1b,microbatch=4,pp=2")
        even = self.best(*asked, "--framework", "megatron")
        self.assertEqual(even["stage_layers"], [6, 6])
        self.assertEqual([s["layers"] for s in even["stages"]], [6, 6])
        text = self.expect_ok(self.run_tool("plan", *asked)).stdout
        self.assertRegex(text, r"stages +6 \+ 6 layers, even")
        self.assertEqual(text.count("layers: weights"), 2)
        # The fullest stage is the memory that is said.
        for layout in (even, self.best(*asked, "--stages-at", "0,2")):
            self.assertAlmostEqual(max(sum(s["memory"].values()) for s in layout["stages"]) / layout["peak_bytes"], 1)
        more = self.best(*asked, "--fix", "stages=7+5")
        self.assertEqual(more, self.best(*asked, "--stages-at", "0,7"))
        self.assertEqual(more["stage_layers"], [7, 5])
        self.assertGreater(more["stages"][0]["memory"]["weights"], even["stages"][0]["memory"]["weights"] * 1.01)
        self.assertLess(self.best(*asked, "--fix", "stages=1+11")["step_s"] / even["step_s"], 2)
        self.assertGreater(self.best(*asked, "--fix", "stages=1+11")["step_s"], even["step_s"])
        # 126 layers over 16 stages: the table and the head count as one each, which Llama 3's report says of its 405B.
        large = self.best("llama3-405b", "--gpus", "1024xH100", "--fix", "pp=16,schedule=1f1b", "--batch-tokens", 1 << 23)
        self.assertEqual(large["stage_layers"], [7] + 14 * [8] + [7])
        titan = self.best("llama3-8b", "--gpus", "32xH100", "--fix", "pp=4,schedule=1f1b", "--framework", "torchtitan")
        self.assertEqual(titan["stage_layers"], [8, 9, 8, 7])
        for more, words in ((("--fix", "stages=6+5"), ("6+5", "11", "12")), (("--fix", "stages=6+3+3"), ("pp 2", "3")),
                            (("--fix", "stages=6+"), ("stages",)), (("--stages-at", "0,12"), ("12", "ascending")),
                            (("--stages-at", "1,6"), ("first 0",)),
                            (("--stages-at", "0,6", "--fix", "stages=6+6"), ("leave one out",))):
            self.expect_error(self.run_tool("plan", *asked, *more), USAGE, *words)
        self.expect_error(self.run_tool("plan", "gpt2", "--gpus", "2xH100", "--serve", "--fix", "stages=6+6"), USAGE, "only dtype")
        self.expect_error(self.run_tool("plan", "gpt2", "--stages-at", "0,6"), USAGE, "--stages-at", "--gpus")


if __name__ == "__main__":
    unittest.main()
