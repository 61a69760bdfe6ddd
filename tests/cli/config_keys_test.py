"""No key of a foreign config.json passes unread: logits move, or the tool refuses it by name, or
`tegula models` lists it among those that say nothing of logits. tests/oracle/config_keys_test.py
holds what moves to transformers."""

import json
import unittest

import config_changes
from case import CliTest, INPUT
from edit import read_safetensors

# What says the same in other words: 32 / 4 is head_dim 8, a longer context, the types that follow
# from max_window_layers.
EQUAL = {*((model_type, "head_dim") for model_type in config_changes.BASES),
         ("qwen2", "layer_types"), ("qwen3", "layer_types"), ("smollm3", "layer_types"),
         # No layer is without experts, and of two layers the second has no window.
         ("qwen2_moe", "intermediate_size"), ("qwen3_moe", "intermediate_size"),
         ("qwen2_moe", "max_window_layers")}
BOUNDS = ("max_position_embeddings", "n_positions")
ROWS = [[(i * i + 7 * r) % 20 for i in range(12)] for r in range(2)]


class ConfigKeys(CliTest):
    def model(self, family):
        """A model of the sizes of its base, with the keys of transformers' default file."""
        model_type = config_changes.FAMILIES[family]
        sizes = config_changes.BASES[model_type]
        flags = ["--n-layers", 2, "--n-heads", 4, "--d-model", 32, "--d-ff", 48, "--seqlen", 32]
        if family in ("gpt2", "gpt_neox", "starcoder2", "qwen2_moe"):
            flags += ["--bias"]
        if family not in ("gpt2", "gpt_neox", "bert"):
            flags += ["--n-kv-heads", 2, "--head-dim", 8]
        if family == "smollm3":
            flags += ["--no-rope-interval", 2]
        if family in ("moe", "qwen2_moe", "qwen3_moe"):
            flags += ["--n-experts", 4]
        self.expect_ok(self.run_tool("train", "--data", self.text, "--model", family, *flags,
                                     "--tokenizer", "chars", "--batch", 2, "--steps", 3, "--lr", 0.02,
                                     "--warmup", 0, "--threads", 1, "--out", self.out))
        made = json.loads((self.out / "config.json").read_text())
        config = config_changes.base(model_type)
        config["vocab_size"] = made["vocab_size"]
        said = [k for k in sizes if k in made and k.startswith(("n", "hidden")) and config[k] is not None]
        self.assertEqual({k: made[k] for k in said}, {k: config[k] for k in said})
        model = self.dir / "model"
        model.mkdir()
        (model / "model.safetensors").write_bytes(
            (self.out / "latest" / "model.safetensors").read_bytes())
        self.write("ids.json", json.dumps(ROWS))
        self.write("targets.json", json.dumps(ROWS))
        return model, config

    def grad(self, model, config):
        (model / "config.json").write_text(json.dumps(config))
        targets = ["--targets", self.dir / "targets.json"] if config["model_type"] == "bert" else []
        return self.run_tool("grad", "--model", model, "--tokens", self.dir / "ids.json", *targets, "--out",
                             self.dir / "grad.st", "--threads", 1)

    def logits(self):
        header, data = read_safetensors(self.dir / "grad.st")
        begin, end = header["logits"]["data_offsets"]
        return data[begin:end]

    def uses(self, family):
        done = self.expect_ok(self.run_tool("models", family, "--json"))
        return {k["key"]: k["use"] for k in json.loads(done.stdout)[0]["keys"]}

    def every_key(self, family):
        model, config = self.model(family)
        model_type = config_changes.FAMILIES[family]
        uses = self.uses(family)
        self.expect_ok(self.grad(model, config))
        before = self.logits()
        for key, changed in config_changes.changes(model_type):
            changed = {**changed, "vocab_size": config["vocab_size"]} if key != "vocab_size" else changed
            with self.subTest(family=family, key=key, changed=changed.get(key)):
                done = self.grad(model, changed)
                if done.returncode != 0:
                    self.expect_error(done, INPUT)
                    names = key.split(".") + {"model_type": ["model type"],
                                             "num_local_experts": ["num_experts"]}.get(key, [])
                    names += ["the model's context"] * (key in BOUNDS)
                    self.assertTrue(any(n in done.stderr for n in names), done.stderr)
                    continue
                is_noted = done.stderr.startswith("note: ") and (key in done.stderr or "LongRoPE" in done.stderr)
                self.assertEqual("longrope" in json.dumps(changed), "LongRoPE" in done.stderr)
                self.assertTrue(is_noted or done.stderr == "", done.stderr)
                # Up to the context dynamic scaling is none.
                rope = changed.get("rope_parameters")
                is_equal = (model_type, key) in EQUAL or rope and rope.get("rope_type") == "dynamic"
                if self.logits() == before and not is_equal:
                    self.assertTrue(is_noted or key in BOUNDS or
                                    uses.get(key) in ("ignored", "training"), key)

    def test_gpt2(self):
        self.every_key("gpt2")

    def test_llama(self):
        self.every_key("llama")

    def test_qwen2(self):
        self.every_key("qwen2")

    def test_mistral(self):
        self.every_key("mistral")

    def test_gemma2(self):
        self.every_key("gemma2")

    def test_mixtral(self):
        self.every_key("moe")

    def test_qwen3(self):
        self.every_key("qwen3")

    def test_gemma3(self):
        self.every_key("gemma3")

    def test_smollm3(self):
        self.every_key("smollm3")

    def test_phi3(self):
        self.every_key("phi3")

    def test_olmo2(self):
        self.every_key("olmo2")

    def test_starcoder2(self):
        self.every_key("starcoder2")

    def test_gpt_neox(self):
        self.every_key("gpt_neox")

    def test_qwen2_moe(self):
        self.every_key("qwen2_moe")

    def test_qwen3_moe(self):
        self.every_key("qwen3_moe")

    def test_bert(self):
        self.every_key("bert")

    def test_spellings_that_contradict(self):
        model, config = self.model("llama")
        config["rope_theta"] = 10000.0  # twice the same is once
        self.expect_ok(self.grad(model, config))
        for key, value in (("rope_theta", 5e5), ("rope_scaling", {"rope_theta": 5e5})):
            done = self.grad(model, {**config, key: value})
            self.expect_error(done, INPUT, "rope_theta", "10000", "remove the one")

    def test_keys_that_nobody_knows_are_noted(self):
        model, config = self.model("llama")
        done = self.expect_ok(self.grad(model, {**config, "my_note": "x", "another": 1}))
        self.assertIn("note: ", done.stderr)
        self.assertIn("reads: my_note, another", done.stderr)

    def test_the_list(self):
        text = self.expect_ok(self.run_tool("models")).stdout
        for family, model_type in config_changes.FAMILIES.items():
            self.assertRegex(text, rf"(?m)^{family} +{model_type} ")
            self.assertEqual(self.run_tool("models", family).stdout,
                             self.run_tool("models", model_type).stdout)
        page = self.expect_ok(self.run_tool("models", "gpt2")).stdout
        self.assertRegex(page, r"(?m)^ignored: ")
        self.assertRegex(page, r"(?m)^  reorder_and_upcast_attn ")
        self.expect_error(self.run_tool("models", "t5"), 2, "t5", "gpt2, gpt_neox, llama")


if __name__ == "__main__":
    unittest.main()
