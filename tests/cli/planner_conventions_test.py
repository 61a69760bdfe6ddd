"""tegula plan MODEL: whose conventions a step follows: dtypes, stages, what is computed again, what hides."""

import json
import unittest

from case import CliTest, INPUT, USAGE


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

    def test_what_is_made_again_is_the_frameworks(self):
        asked = ("llama3-8b", "--gpus", "8xH200", "--seqlen", 2048, "--batch-tokens", 8 * 2048)
        mesh = "dp=8,tp=1,pp=1,cp=1,zero=3,microbatch=1"
        for framework, attention, words in (("megatron", "naive", "scores"), ("fsdp", "flash", "norms"),
                                            ("torch-compile", "naive", "scores"), ("torchtitan", "flash", "every other product")):
            by = {remat: self.best(*asked, "--framework", framework, "--fix", f"{mesh},attention={attention},remat={remat}")
                  for remat in ("none", "selective", "every-other", "full")}
            self.assertIn(words, by["selective"]["made_again"])
            self.assertEqual(by["every-other"]["made_again"], "every other layer")
            # More is computed, less is kept; operations that are done are those of hfu.
            for less, more in (("none", "selective"), ("none", "every-other"), ("every-other", "full")):
                self.assertLess(by[less]["step_s"], by[more]["step_s"])
                self.assertGreater(by[less]["memory"]["activations"], by[more]["memory"]["activations"])
            for layout in by.values():
                self.assertAlmostEqual(layout["tflops_hw"] / 989, layout["hfu"])
            self.assertAlmostEqual(by["none"]["hfu"] / by["none"]["mfu_of_seen_keys" if attention == "flash" else "mfu"], 1)
        text = self.expect_ok(self.run_tool("plan", *asked, "--framework", "torchtitan", "--fix", mesh + ",remat=selective")).stdout
        self.assertIn("all but every other product and attention are computed again", text)

    def test_ops_of_their_own_keep_and_move_what_they_do(self):
        # Executed on an H200 (bench/results/layouts): scores of the math backend are f32, norms of transformers go step by step.
        def config(name, layers, width, heads, kv, hidden, vocabulary):
            path = self.dir / name / "config.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({
                "model_type": "llama", "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": layers,
                "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocabulary,
                "max_position_embeddings": 4096, "tie_word_embeddings": False}))
            return path
        small = config("125m", 12, 768, 12, 12, 3072, 50304)
        large = config("1b", 22, 2048, 32, 4, 5632, 32000)
        for path, seqlen, batch, framework, attention, more, gb, ms in (
                (small, 1024, 16, "torch", "math", (), 31.96, 153.7), (small, 1024, 16, "transformers", "flash2", (), 22.68, 83.4),
                (large, 2048, 4, "transformers", "flash2", ("--optimizer", "adam-pure"), 25.66, 166.3)):
            layout = self.best(path, "--gpus", "1xH200", "--seqlen", seqlen, "--batch-tokens", seqlen * batch, "--framework",
                               framework, "--dtype", "bf16", *more, "--fix",
                               f"microbatch={batch},remat=none,loss=whole,attention={attention}")
            self.assertAlmostEqual(layout["peak_bytes"] / 1e9 / gb, 1, delta=.02)
            self.assertAlmostEqual(layout["step_s"] * 1e3 / ms, 1, delta=.15)

    def test_what_hides_can_be_said(self):
        asked = ("llama3-8b", "--gpus", "64xA100", "--framework", "megatron", "--fix",
                 "dp=64,tp=1,pp=1,cp=1,zero=1,microbatch=1,remat=full")
        by = [self.plan(*asked, "--fix", f"overlap={share}") for share in (0, .4, .8)]
        seconds = [plan["layouts"][0]["seconds"]["dp"] for plan in by]
        self.assertAlmostEqual(seconds[0] - seconds[1], seconds[1] - seconds[2])
        self.assertEqual([plan["job"]["overlap"] for plan in by], [0, .4, .8])
        self.assertEqual(self.plan(*asked)["layouts"][0]["seconds"]["dp"], seconds[0])  # Megatron hides nothing unasked
        self.assertRegex(self.expect_ok(self.run_tool("plan", *asked)).stdout, "overlap +0 of .* as with megatron")
        self.expect_error(self.run_tool("plan", *asked, "--fix", "overlap=1.5"), USAGE, "overlap", "1")

    def test_what_fits_may_not_and_does_not(self):
        # Executed on an H200: 128.6 GB allocated, 138.5 reserved, of 150.8 (bench/results/layouts, the half that is seen).
        ran = self.best("llama3-8b", "--gpus", "1xH200", "--seqlen", 2048, "--batch-tokens", 2048, "--framework", "torch",
                        "--fix", "remat=full,attention=flash2")
        self.assertNotEqual(ran["fit"], "does not fit")
        low, high = ran["reserved_bytes"]
        self.assertTrue(low < 138.46e9 < high)
        self.assertAlmostEqual(ran["peak_bytes"] / 128.59e9, 1, delta=.04)
        # Larger micro-batches: it fits, then may not, then does not.
        fits = []
        for batch in range(1, 12):
            asked = ("plan", "llama3-8b", "--gpus", "8xH100", "--seqlen", 4096, "--batch-tokens", 8 * batch * 4096, "--framework",
                     "fsdp", "--fix", f"dp=8,tp=1,pp=1,cp=1,zero=3,remat=full,microbatch={batch},loss=whole")
            done = self.run_tool(*asked, "--json")
            plan = json.loads(done.stdout)
            if plan["layouts"]:
                layout = plan["layouts"][0]
                low, high = layout["reserved_bytes"]
                visible = plan["cluster"]["visible_bytes"]
                fits.append(layout["fit"])
                self.assertEqual(layout["fit"], "fits" if high <= visible else "may not fit")
                self.assertLessEqual(low, visible)
                text = self.expect_ok(self.run_tool(*asked)).stdout
                self.assertIn(f"of 85.5: {layout['fit']}", text)
                page = self.dir / "fit.html"
                self.expect_ok(self.run_tool(*asked, "--html", page))
                self.assertIn(f"<td>{layout['fit']}<td>", page.read_text())
            else:
                fits.append("does not fit")
                self.expect_error(done, INPUT, "of 85.5: does not fit")
        order = ["fits", "may not fit", "does not fit"]
        self.assertEqual(fits, sorted(fits, key=order.index))
        self.assertEqual(set(fits), set(order))
        # What may not fit never stands before what fits; it is named with what it would win.
        both = self.plan("llama3-8b", "--gpus", "8xH100", "--framework", "fsdp", "--seqlen", 4096, "--batch-tokens", 8 * 4096 * 16)
        self.assertEqual({layout["fit"] for layout in both["layouts"]}, {"fits"})
        self.assertTrue([r for r in both["rejected"] if r["fit"] != "fits" and "faster" in r["why"]])

    def test_inputs_without_effect_are_listed(self):
        asked = ("llama3-8b", "--gpus", "8xH100", "--batch-tokens", 8 * 8192, "--fix", "dp=8,tp=1,pp=1,microbatch=1")
        plan = self.plan(*asked, "--fix", "cp=1,context=ulysses,zero=1,remat=full", "--optimizer", "adam8bit")
        for given in ("--fix context=ulysses", "--fix cp=1", "--fix pp=1"):
            self.assertIn(given, plan["without_effect"])  # nothing is cut, or all devices are taken
        for given in ("--fix remat=full", "--optimizer adam8bit", f"--batch-tokens {8 * 8192}"):
            self.assertNotIn(given, plan["without_effect"])
        # Each of them alone can be left out.
        same = self.best(*asked, "--fix", "cp=1,zero=1,remat=full", "--optimizer", "adam8bit")
        self.assertEqual(same["step_s"], plan["layouts"][0]["step_s"])
        text = self.expect_ok(self.run_tool("plan", *asked, "--fix", "context=ulysses")).stdout
        self.assertIn("no effect   --fix context=ulysses", text)
        self.assertEqual(self.plan("llama3-8b", "--gpus", "8xH100", "--seqlen", 8192, "--fix", "pp=1,cp=1,tp=1")["without_effect"][0],
                         "--seqlen 8192")

    def test_budget_and_kernels(self):
        budget = self.plan("llama3-8b", "--budget", "1e24")["budget"]
        self.assertEqual(budget["flops"], 1e24)
        for by in ("by_20_a_parameter", "by_fitted_loss"):
            self.assertAlmostEqual(6 * budget[by]["params"] * budget[by]["tokens"] / 1e24, 1, delta=.05)
        for device, kernel, words in (("A100", "flash3", "flash1, flash2"), ("A100", "cudnn", "flash2"), ("V100", "flash2", "v100"),
                                      ("L4", "flash2", "not known"), ("TPU-v4", "flash1", "one of flash")):
            self.expect_error(self.run_tool("plan", "llama3-8b", "--gpus", f"64x{device}", "--fix", f"attention={kernel}"), USAGE,
                              f"attention={kernel}", words)
        self.assertNotEqual(self.best("llama3-8b", "--gpus", "8xA100", "--fix", "attention=flash1,pp=1")["step_s"],
                            self.best("llama3-8b", "--gpus", "8xA100", "--fix", "attention=flash2,pp=1")["step_s"])


if __name__ == "__main__":
    unittest.main()
