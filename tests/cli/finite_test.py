"""Numbers that stop being finite are an error wherever they come out, with the place in the model."""

import json
import struct
import unittest

from case import CliTest, INPUT


class Finite(CliTest):
    def setUp(self):
        super().setUp()
        self.flags = ("--model", "llama", "--n-layers", 3, "--tokenizer", "bytes")
        self.expect_ok(self.train("--out", self.out, *self.flags))

    def model(self, name, change, *weights, out=None):
        """A copy without a manifest, with change(index, number) for each number of these weights."""
        model, out = self.dir / name, out or self.out
        model.mkdir()
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (model / file).write_bytes((out / file).read_bytes())
        data = bytearray((out / "model.safetensors").read_bytes())
        n = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + n])
        for weight in weights:
            begin, end = header[weight]["data_offsets"]
            for i, at in enumerate(range(8 + n + begin, 8 + n + end, 4)):
                struct.pack_into("<f", data, at, change(i, struct.unpack_from("<f", data, at)[0]))
        (model / "model.safetensors").write_bytes(data)
        return model

    def attention_overflows(self, layer):
        return self.model("huge", lambda _, x: x * 1e25, f"model.layers.{layer}.self_attn.q_proj.weight",
                          f"model.layers.{layer}.self_attn.k_proj.weight")

    def generate(self, model, *arguments, **options):
        return self.run_tool("generate", "--model", model, "--threads", 1, "--max-tokens", 6,
                             *arguments, **options)

    def test_generate_names_the_layer_and_the_dtypes(self):
        large = self.model("large", lambda _, x: x * 3e5, "model.layers.1.mlp.gate_proj.weight",
                           "model.layers.1.mlp.up_proj.weight")
        prompts = self.write("prompts", "abc\ndefgh\nij\n")
        for extra in (("--prompt", "abc"), ("--prompt", "abc", "--temperature", 0),
                      ("--prompt", "abc", "--samples", 2), ("--prompt", "abc", "--no-cache"),
                      ("--prompt", "abc", "--json"), ("--prompt", "abcdef", "--prefill-chunk", 2),
                      ("--prompts", prompts), ("--prompts", prompts, "--batch", 3),
                      ("--prompts", prompts, "--batch", 2, "--no-cache", "--json")):
            done = self.generate(large, "--dtype", "f16", *extra)
            self.expect_error(done, INPUT, "not finite", "layers.1", "infinite", "--dtype bf16",
                              "--dtype f32")
            self.assertNotIn("layers.0", done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertEqual("text 1 of 3" in done.stderr, "--prompts" in extra)
            for dtype in ("bf16", "f32"):
                self.expect_ok(self.generate(large, "--dtype", dtype, *extra))

    def test_generate_in_f32(self):
        huge = self.attention_overflows(2)
        for dtype in ("f32", "bf16"):
            done = self.generate(huge, "--prompt", "abc", "--dtype", dtype)
            self.expect_error(done, INPUT, "not finite", "layers.2", "no --dtype reaches further")

    def test_one_text_of_a_batch(self):
        """The text at fault is named: that whose norm overflows, for a token that only it has."""
        out = self.dir / "gpt2"
        self.expect_ok(self.train("--out", out, "--tokenizer", "bytes", "--tie-embeddings", "false"))
        width = 16
        model = self.model("one", lambda i, x: 3e38 if i // width == ord("z") else x,
                           "transformer.wte.weight", out=out)
        prompts = self.write("prompts", "abc\ndz\nij\n")
        done = self.run_tool("generate", "--model", model, "--threads", 1, "--max-tokens", 1,
                             "--prompts", prompts, "--batch", 3)
        self.expect_error(done, INPUT, "text 2 of 3", "not finite")

    def test_grad(self):
        huge = self.attention_overflows(1)
        tokens = self.write("tokens.json", "[[1, 2, 3, 4]]")
        out = self.dir / "g.safetensors"
        done = self.run_tool("grad", "--model", huge, "--tokens", tokens, "--out", out)
        self.expect_error(done, INPUT, "the loss is nan in f32", "layers.1", "--dtype f64")
        self.assertFalse(out.exists())
        self.expect_ok(self.run_tool("grad", "--model", self.out, "--tokens", tokens, "--out", out))

    def test_validation(self):
        """A run whose steps are finite and whose validation is not: no checkpoint is the best for it."""
        out = self.dir / "bad"
        done = self.train("--out", out, "--steps", 3, "--warmup", 0, "--lr", "1e12", "--min-lr",
                          "1e12", "--eval-every", 1, "--save-every", 1, "--tokenizer", "bytes",
                          "--model", "gpt2")
        self.expect_error(done, INPUT, "not finite" if "not finite" in done.stderr else "loss",
                          "op ", lines_before=True)
        self.assertNotIn("nan  lowest", done.stderr.lower())
        best = out / "checkpoints" / "best.json"
        if best.exists():
            self.assertTrue(json.loads(best.read_text())["val_loss"] < 1e30)
        for line in (out / "metrics.jsonl").read_text().splitlines():
            self.assertNotIn("null", line)


if __name__ == "__main__":
    unittest.main()
