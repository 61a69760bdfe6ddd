"""`tegula train --model bert`: an encoder learns to find masked tokens."""

import json
import unittest

from case import CliTest, INPUT, USAGE
from edit import read_safetensors, write_safetensors


class Masked(CliTest):
    def bert(self, *arguments, out=None, seqlen=16, **options):
        return self.train("--model", "bert", "--seqlen", seqlen, "--out", out or self.out, *arguments, **options)

    def losses(self, out=None):
        rows = map(json.loads, ((out or self.out) / "metrics.jsonl").read_text().splitlines())
        return [row["loss"] for row in rows if "loss" in row]

    def test_it_learns(self):
        done = self.expect_ok(self.bert("--steps", 1500, "--batch", 8, "--d-model", 32, "--lr", 3e-3, "--warmup", 20, "--json"))
        summary = json.loads(done.stdout)
        losses = self.losses()
        self.assertLess(summary["val_loss"], 0.5 * losses[0])  # how often each letter stands would be .85
        self.assertIsNone(summary["bits_per_byte"])
        self.assertNotIn("bits a byte", done.stderr)
        self.assertNotIn("note:", done.stderr)
        self.assertEqual(summary["flops_per_step_planned"], summary["flops_per_step_counted"])
        self.assertEqual(summary["peak_bytes_planned"], summary["peak_bytes_measured"])
        self.assertIn("masked tokens", (self.out / "report.html").read_text())
        config = json.loads((self.out / "config.json").read_text())
        self.assertEqual(config["architectures"], ["BertForMaskedLM"])
        named = json.loads((self.out / "tokenizer_config.json").read_text())
        self.assertEqual(named["mask_token"], "[MASK]")
        header, _ = read_safetensors(self.out / "latest/model.safetensors")
        self.assertEqual(header["cls.predictions.bias"]["shape"], [config["vocab_size"]])
        self.assertEqual({k for k in header if k.startswith("cls.")}, {
            "cls.predictions.bias", *(f"cls.predictions.transform.{n}.{p}" for n in ("dense", "LayerNorm")
                                      for p in ("weight", "bias"))})
        told = json.loads(self.expect_ok(self.run_tool("embed", "--model", self.out, "--text", "line 1")).stdout)
        self.assertEqual(len(told["embeddings"][0]), 32)
        self.expect_error(self.run_tool("generate", "--model", self.out, "--prompt", "a"), INPUT, "bert", "tegula train")
        self.expect_error(self.run_tool("eval", "--model", self.out, "--data", self.text), INPUT, "bert")

    def same(self, *runs, steps=6):
        """The bits of the runs, each of flags."""
        made = []
        for i, flags in enumerate(runs):
            out = self.dir / f"run{i}"
            self.expect_ok(self.bert("--batch", 4, "--steps", steps, "--dropout", 0.1, *flags, out=out))
            made.append((self.losses(out), self.weights(out)["model.safetensors"]))
        return made

    def test_threads_give_the_same_bits(self):
        one, three = self.same(["--threads", 1], ["--threads", 3])
        self.assertEqual(one, three)

    def test_any_ranks_give_the_same_bits(self):
        runs = self.same(*(["--mode", "exact", "--dropout", 0, *flags] for flags in (
            [], ["--mesh", "dp=2"], ["--mesh", "tp=2"], ["--mesh", "dp=2,tp=2"], ["--mesh", "cp=2"],
            ["--mesh", "dp=4"])))
        for i, run in enumerate(runs[1:], 1):
            self.assertEqual(run[1], runs[0][1], i)

    def test_micro_batches_and_fast_ranks_see_the_same_rows(self):
        one, *others = self.same([], ["--mesh", "dp=2"], ["--mesh", "tp=2"], ["--mesh", "cp=2"],
                                 *(["--batch", 4 // n, "--accumulate", n, "--dropout", 0] for n in (1, 2, 4)))
        # Dropout's numbers go by the place in a batch.
        for reference, group in ((one, others[:3]), (others[3], others[4:])):
            for losses, _ in group:
                for a, b in zip(losses, reference[0], strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-5)

    def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(self):
        flags = ["--batch", 4, "--dropout", 0.1, "--lr-decay-steps", 9]
        self.expect_ok(self.bert("--steps", 9, *flags, out=self.dir / "whole"))
        self.expect_ok(self.bert("--steps", 4, *flags))
        self.expect_ok(self.bert("--steps", 9, *flags, "--resume"))
        self.assertEqual(self.weights(), self.weights(self.dir / "whole"))
        self.assertEqual(self.losses(), self.losses(self.dir / "whole"))
        seeds = ["--steps", 9, *flags, "--seed", 5]
        self.expect_ok(self.bert(*seeds, out=self.dir / "other"))
        self.assertNotEqual(self.losses(self.dir / "other"), self.losses())

    def test_a_model_without_the_head(self):
        """Its head begins anew, which is said."""
        self.expect_ok(self.bert("--tokenizer", "bytes"))
        header, data = read_safetensors(self.out / "latest/model.safetensors")
        model = self.dir / "vectors"
        model.mkdir()
        kept, at, body = {}, 0, b""
        for name, tensor in header.items():
            if name.startswith("cls.") or name == "__metadata__":
                continue
            begin, end = tensor["data_offsets"]
            kept[name] = {**tensor, "data_offsets": [at, at + end - begin]}
            at, body = at + end - begin, body + data[begin:end]
        write_safetensors(model / "model.safetensors", kept, body)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (model / name).write_bytes((self.out / "latest" / name).read_bytes())
        config = json.loads((self.out / "latest/config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
        self.expect_ok(self.run_tool("embed", "--model", model, "--text", "a"))
        done = self.expect_ok(self.train("--init-from", model, "--out", self.dir / "on"))
        self.assertIn("has no head to find masked tokens", done.stderr)
        self.assertIn("cls.predictions.transform.dense.weight", done.stderr)
        made = json.loads((self.dir / "on/latest/config.json").read_text())
        self.assertEqual(made["architectures"], ["BertForMaskedLM"])
        done = self.expect_ok(self.train("--init-from", self.out, "--out", self.dir / "more"))
        self.assertNotIn("no head", done.stderr)
        # Half a head is a damaged file.
        kept["cls.predictions.transform.dense.bias"] = {"dtype": "F32", "shape": [16], "data_offsets": [at, at + 64]}
        write_safetensors(model / "model.safetensors", kept, body + bytes(64))
        self.expect_error(self.run_tool("embed", "--model", model, "--text", "a"), INPUT, "cls.predictions.", "is missing")

    def test_targets_of_grad(self):
        self.expect_ok(self.bert("--tokenizer", "bytes"))
        ids, targets = self.write("ids.json", "[[1,2,256]]"), self.write("t.json", "[[-100,-100,3]]")
        grad = ["grad", "--model", self.out, "--tokens", ids, "--out", self.dir / "g.st"]
        self.assertIn("loss ", self.expect_ok(self.run_tool(*grad, "--targets", targets)).stdout)
        self.expect_error(self.run_tool(*grad), INPUT, "--targets", "bert")
        for wrong, *words in (("[[1,2]]", "row 1", "2 targets"), ("[[1,2,257]]", "257", "-100"), ("[[1,2,-3]]", "-3")):
            self.write("t.json", wrong)
            self.expect_error(self.run_tool(*grad, "--targets", targets), INPUT, *words)

    def test_a_tokenizer_without_a_mask(self):
        self.expect_ok(self.bert("--tokenizer", "bytes"))
        model = self.dir / "model"
        model.mkdir()
        for name in ("model.safetensors", "config.json"):
            (model / name).write_bytes((self.out / "latest" / name).read_bytes())
        file = json.loads((self.out / "latest/tokenizer.json").read_text())
        for name in ("[NONE]", "<mask>"):
            file["added_tokens"][0]["content"] = name
            (model / "tokenizer.json").write_text(json.dumps(file))
            done = self.train("--init-from", model, "--out", self.dir / "on")
            self.expect_error(done, INPUT, "no special token [MASK]", "mask_token")
        (model / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "<mask>"}}))
        self.expect_ok(self.train("--init-from", model, "--out", self.dir / "on"))

    def test_flags_that_it_has_not(self):
        for flag, value in (("--n-kv-heads", 1), ("--window", 4), ("--n-experts", 2)):
            self.expect_error(self.bert(flag, value), USAGE, flag, "bert")


if __name__ == "__main__":
    unittest.main()
