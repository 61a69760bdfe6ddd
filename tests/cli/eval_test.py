"""Perplexity by the command: what is printed, windows, distances, what is refused."""

import json
import math
import unittest

from case import CliTest, INPUT, USAGE


class Eval(CliTest):
    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--out", self.out, "--tokenizer", "bytes", "--steps", 60, "--lr", "1e-2", "--seqlen",
                                  24))
        self.data = self.write("held.txt", "line 5 of the text;\nline 81 of the text;\n" * 3)

    def eval(self, *arguments, model=None):
        return self.run_tool("eval", "--model", model or self.out, "--threads", 1, *arguments)

    def result(self, *arguments, **options):
        done = self.expect_ok(self.eval("--json", *arguments, **options))
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def test_what_is_printed(self):
        told = self.result("--data", self.data)
        n = len(self.data.read_bytes())
        self.assertEqual((told["tokens"], told["bytes"]), (n - 1, n))
        self.assertEqual((told["context"], told["stride"], told["windows"]), (24, 24, math.ceil((n - 1) / 24)))
        self.assertAlmostEqual(told["perplexity"], math.exp(told["nll"] / (n - 1)))
        self.assertAlmostEqual(told["bits_per_byte"], told["nll"] / math.log(2) / n)
        self.assertLess(told["perplexity"], 100)  # of 256 ids
        text = self.expect_ok(self.eval("--data", self.data)).stdout
        self.assertIn(f"perplexity {told['perplexity']:.6g}:", text)
        self.assertIn("bits a byte", text)
        often = self.result("--data", self.data, "--stride", 4)
        self.assertEqual((often["tokens"], often["windows"]), (n - 1, 1 + math.ceil((n - 1 - 24) / 4)))
        self.assertNotEqual(often["nll"], told["nll"])

    def test_tokens_are_those_of_the_text(self):
        ids = self.write("ids.json", self.run_tool("encode", "--model", self.out, "--text", self.data).stdout)
        told, of_ids = self.result("--data", self.data), self.result("--tokens", ids)
        self.assertEqual(of_ids["nll"], told["nll"])
        self.assertIsNone(of_ids["bits_per_byte"])
        self.assertNotIn("bits a byte", self.expect_ok(self.eval("--tokens", ids)).stdout)
        for flags in (("--batch", 3), ("--threads", 2)):
            self.assertEqual(self.result("--tokens", ids, *flags)["nll"], told["nll"])

    def test_distances(self):
        other, logits = self.dir / "other", self.dir / "logits.safetensors"
        self.expect_ok(self.train("--out", other, "--tokenizer", "bytes", "--seqlen", 24))
        self.assertEqual(self.result("--data", self.data, "--against", self.out)["kl"]["mean"], 0)
        told = self.result("--data", self.data, "--against", other)
        self.assertGreater(told["kl"]["max"], told["kl"]["mean"])
        self.expect_ok(self.eval("--data", self.data, "--logits", logits, model=other))
        self.assertEqual(self.result("--data", self.data, "--against", logits), told)
        text = self.expect_ok(self.eval("--data", self.data, "--against", other)).stdout
        self.assertIn(f"KL(reference || model) mean {told['kl']['mean']:.6g}", text)

    def test_what_cannot_be(self):
        other = self.dir / "other"
        self.expect_ok(self.train("--out", other, "--tokenizer", "chars"))
        self.expect_error(self.eval("--data", self.data, "--against", other), INPUT, "different ids")
        self.expect_error(self.eval(), USAGE, "--data or --tokens")
        self.expect_error(self.eval("--data", self.write("one", "a")), INPUT, "at least 2")
        self.expect_error(self.eval("--data", self.data, "--context", 25), INPUT, "windows of 25", "context of 24")
        self.expect_error(self.eval("--data", self.data, "--stride", 25), INPUT, "stride of 25")
        self.expect_error(self.eval("--tokens", self.write("ids.json", "[1, 256]")), INPUT, "token 256")
        self.expect_error(self.eval("--data", self.data, "--logits", self.data), INPUT, "--logits", "--data")


if __name__ == "__main__":
    unittest.main()
