#!/usr/bin/env python3
"""tegula … --superopt: blocks rewritten by proven rules, where that is faster; and said."""

import json
import pathlib
import subprocess
import sys
import unittest

from case import INPUT, USAGE, CliTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ("--n-layers", 2, "--d-model", 32, "--n-heads", 2, "--batch", 2, "--seqlen", 16, "--threads", 1)


class Superopt(CliTest):
    def of(self, *arguments):
        return json.loads(self.expect_ok(self.run_tool(*arguments)).stdout.splitlines()[-1])

    def graph(self, *arguments):
        text = subprocess.run([sys.executable, ROOT / "bench/graphs.py", *map(str, arguments)], check=True,
                              capture_output=True, text=True).stdout
        path = self.dir / f"{arguments[0]}.tg"
        path.write_text(text)
        return path

    def bench(self, *arguments):
        return self.of("bench", "graph", *arguments, "--json", "--threads", 1, "--repeats", 3,
                         "--tune-cache", self.dir / "cache")

    def test_rules_are_named_and_kept_for_the_next_time(self):
        path = self.graph("nasrnn", "steps=4", "batch=8", "width=256")
        first = self.bench(path, "--superopt", 4)
        self.assertIn("products_with_one_weight", [r["name"] for r in first["rules"]])
        for rule in first["rules"]:
            self.assertIn(rule["order"], ("kept", "changed"))
            self.assertGreater(rule["times"], 0)
        self.assertLess(first["priced_ms"][1], first["priced_ms"][0])
        self.assertLess(first["timed_ms"][1], first["timed_ms"][0])
        again = self.bench(path, "--superopt", 4)
        self.assertEqual(again["candidates"], 0)
        self.assertEqual(again["rules"], first["rules"])

    def test_nothing_to_win_and_a_budget_that_is_spent_are_said(self):
        self.assertEqual(self.bench(self.graph("attention"), "--superopt", 1)["rules"], [])
        spent = self.bench(self.graph("resnext", "size=4", "channels=16", "width=4"), "--superopt", 0.001)
        self.assertTrue(spent["is_budget_spent"])

    def test_a_step_is_trained_with_the_same_bits_in_mode_exact(self):
        weights = []
        for flags in ((), ("--superopt", 2, "--tune-cache", self.dir / "cache")):
            out = self.dir / f"run{len(weights)}"
            done = self.expect_ok(self.train("--mode", "exact", "--model", "llama", "--out", out, *flags))
            if flags:  # what is timed faster is taken; there is what to take
                self.assertRegex(done.stdout + done.stderr, r"superopt: .* [1-9]\d* candidates")
            weights.append(self.weights(out)["model.safetensors"])
        self.assertEqual(weights[0], weights[1])

    def test_ranks_that_are_alike_take_the_same_and_keep_the_bits_of_mode_exact(self):
        search = ("--passes=-merge_products,-merge_sums", "--superopt", 2, "--tune-cache", self.dir / "cache")
        weights = []
        for flags in ((), ("--ranks", 2, *search)):
            out = self.dir / f"ranks{len(weights)}"
            done = self.expect_ok(self.train("--mode", "exact", "--model", "llama", "--out", out, *flags))
            if flags:
                self.assertRegex(done.stdout + done.stderr, r"superopt: .* [1-9]\d* candidates")
            weights.append(self.weights(out)["model.safetensors"])
        self.assertEqual(weights[0], weights[1])
        h100 = ("--model", "llama", *SMALL[:-2], "--mode", "fast", "--target", "h100", "--dtype", "bf16", "--mesh", "dp=2")
        ranks = self.of("plan", *h100, *search, "--json")["ranks"]
        self.assertIn("products_of_one_value", [r["name"] for r in ranks[0]["rules"]])
        self.assertEqual(ranks[0]["rules"], ranks[1]["rules"])

    def test_plans_say_what_was_taken(self):
        plan = self.of("plan", *SMALL, "--superopt", 1, "--json")
        self.assertIsInstance(plan["rules"], list)
        self.assertIn("superopt: ", self.run_tool("plan", *SMALL, "--superopt", 1).stdout)

    def test_bench_searches_steps_whatever_passes_are_left_out(self):
        done = self.expect_ok(self.run_tool("bench", "train", *SMALL[:6], "--threads", 1, "--superopt", 1, "--tune-cache",
                                            self.dir / "cache", "--passes=-merge_products,-merge_sums,-norm_residual"))
        self.assertRegex(done.stderr, r"note: superopt: [1-9]\d* blocks")

    def test_exact_takes_nothing_whose_bits_were_not_compared(self):
        llama = ("--model", "llama", *SMALL[:-2], "--target", "h100", "--dtype", "bf16", "--superopt", 1, "--json")
        self.assertEqual(self.of("plan", *llama, "--mode", "exact")["rules"], [])
        self.assertIn("needs the target here", self.run_tool("plan", *llama[:-1], "--mode", "exact").stdout)

    def test_other_passes_are_other_results(self):
        path = self.graph("nasrnn", "steps=2", "batch=8", "width=64")
        self.bench(path, "--superopt", 2)
        self.assertGreater(self.bench(path, "--superopt", 2, "--passes=-merge_products")["candidates"], 0)

    def test_rules_of_a_file(self):
        """Sums of products of one value are none of the tool's own rules."""
        rules = self.dir / "rules.txt"
        self.expect_ok(self.run_tool("rules", "generate", "--out", rules))
        shape, weight = "f32[256,512]", "f32[512,512]"
        path = self.dir / "sum.tg"
        path.write_text(f"""func 0 "sum" {{
  param %0 input "x" {shape}
  param %1 weight "a" {weight}
  param %2 weight "b" {weight}
  %3 = dot(%0, %1) {{dims = "m k, k n -> m n"}} : {shape}
  %4 = dot(%0, %2) {{dims = "m k, k n -> m n"}} : {shape}
  %5 = add(%3, %4) : {shape}
  result "y" %5
}}
""")
        with_rules = ("--superopt", 4, "--rules", rules)
        self.assertNotIn("add", str(self.bench(path, "--superopt", 4)["rules"]))
        first = self.bench(path, *with_rules)
        self.assertIn("add", first["rules"][0]["name"])
        self.assertGreater(first["times_faster"], 1.1)
        self.assertEqual(self.bench(path, *with_rules)["candidates"], 0)  # kept for these rules
        self.assertEqual(self.bench(path, "--superopt", 4, "--mode", "exact", "--rules", rules)["rules"], [])
        self.assertIsInstance(self.of("plan", *SMALL, "--superopt", 1, "--rules", rules, "--json")["rules"], list)
        lie = self.write("lie.txt", rules.read_text().replace("class fast", "class exact", 1))
        self.expect_error(self.run_tool("bench", "graph", path, "--superopt", 1, "--rules", lie), INPUT, "lie.txt", "not exact")
        self.expect_ok(self.run_tool("bench", "generate", *SMALL[:6], "--superopt", 1, "--rules", rules, "--repeats", 1))

    def test_rules_that_are_not_proven_are_refused(self):
        qkv = ("rule qkv\nclass {}\nsizes m k n1 n2\ninputs x[m,k] a[k,n1] b[k,n2]\n"
               "left concat(dot(x, a), dot(x, b), dim=1)\nright dot(x, concat(a, b, dim=1))\n")
        path, graph = self.dir / "wrong.txt", self.graph("attention")
        for text, word in ((qkv.format("exact"), "has no proof"), ("# nothing\n", "has no rule"),
                           (qkv.format("exact") + "proof\nmerge 0 3\nend\n", "step 1, 'merge 0 3'"),
                           (qkv.format("exact").replace("a, b, dim", "b, a, dim") + "proof\nend\n", "rule qkv")):
            path.write_text(text)
            for command in (("bench", "graph", graph), ("plan", *SMALL), ("train", "--data", self.text, *SMALL)):
                self.expect_error(self.run_tool(*command, "--superopt", 1, "--rules", path), INPUT, "wrong.txt", word)
        self.expect_error(self.run_tool("bench", "graph", graph, "--rules", path), USAGE, "--superopt")

    def test_a_function_of_several_is_named(self):
        text = self.graph("attention").read_text()
        path = self.dir / "two.tg"
        path.write_text(text + text.replace('func 0 "attention"', 'func 1 "other"').replace("256,256", "128,256")
                        .replace("256,64] {", "128,64] {").replace(": f32[256,64]", ": f32[128,64]"))
        self.assertIn("attention of ", self.run_tool("bench", "graph", path).stdout)
        self.assertIn("other of ", self.run_tool("bench", "graph", path, "--function", "other").stdout)
        self.expect_error(self.run_tool("bench", "graph", path, "--function", "third"), INPUT, "third")

    def test_bad_input(self):
        self.expect_error(self.run_tool("plan", *SMALL, "--superopt", 1, "--passes=-superopt"), INPUT, "leaves it out")
        self.expect_error(self.run_tool("bench", "graph", self.dir / "none.tg"), INPUT, "none.tg")
        path = self.dir / "bad.tg"
        path.write_text('func 0 "f" {\n  %0 = nothing() : f32[1]\n}\n')
        self.expect_error(self.run_tool("bench", "graph", path), INPUT, "bad.tg", "2:")
        self.expect_error(self.run_tool("plan", *SMALL, "--mesh", "pp=2", "--superopt", 1), USAGE, "--superopt", "pp")
        self.expect_error(self.train("--out", self.dir / "p", "--ranks", 2, "--processes", 2, "--superopt", 1), USAGE, "--processes")
        self.expect_error(self.run_tool("plan", *SMALL, "--superopt", "soon"), USAGE, "--superopt")


if __name__ == "__main__":
    unittest.main()
