"""A model that is trained from another one keeps what was there; context and row length are two settings."""

import json
import os
import pathlib
import shutil
import unittest

from case import CliTest, INPUT, USAGE

# What stands beside a model: the bytes are the owner's.
BESIDE = {"generation_config.json": '{"eos_token_id": [7, 9], "temperature": 0.5}',
          "chat_template.jinja": "{{ messages[0].content }}\n",
          "special_tokens_map.json": '{"eos_token": "e"}\n\n',
          "tokenizer_config.json": '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "e", "mine": 1}',
          "merges.txt": "#version: 0.2\n", "added_tokens.json": "{}"}
UNKNOWN = {"eos_token_id": 7, "bos_token_id": [1, 2], "pad_token_id": None, "_name_or_path": "me/mine",
           "initializer_range": 0.02, "task_specific_params": {"a": {"b": [1, 2.5, None]}}, "transformers_version": "4.1"}


class FromAnother(CliTest):
    def model(self, *flags, name="model", **keys):
        """A directory of a model as a hub has it, without anything of a run."""
        made = self.dir / f"made-{name}"
        self.expect_ok(self.train("--out", made, *flags))
        at = self.dir / name
        at.mkdir()
        for file in ("model.safetensors", "tokenizer.json"):
            shutil.copy(made / file, at / file)
        for file, text in BESIDE.items():
            (at / file).write_text(text)
        config = json.loads((made / "config.json").read_text())
        config.update(UNKNOWN, **keys)
        (at / "config.json").write_text(json.dumps(config))
        return at

    def begin(self, model, *flags, out=None):
        return self.run_tool("train", "--data", self.text, "--init-from", model, "--out", out or self.out,
                             "--batch", 2, "--steps", 2, "--warmup", 0, "--eval-every", 0, "--threads", 1, *flags)

    def config(self, at=None):
        return json.loads(((at or self.out) / "config.json").read_text())


class Kept(FromAnother):
    def expect_kept(self, at, model, **changed):
        self.assertEqual(self.config(at), {**self.config(model), **changed})
        for file, text in BESIDE.items():
            self.assertEqual((at / file).read_text(), text, file)
        self.assertEqual((at / "tokenizer.json").read_bytes(), (model / "tokenizer.json").read_bytes())

    def test_all_that_was_there_is_there(self):
        model = self.model(n_ctx=12, resid_pdrop=0.25, attn_pdrop=0.125)
        before = (model / "config.json").read_bytes()
        self.expect_ok(self.begin(model))
        self.expect_kept(self.out, model)
        self.assertEqual((self.out / "config.json").read_bytes(), before)
        # Only what training changed is changed; the run goes on without its origin.
        copy = self.dir / "copy"
        shutil.copytree(model, copy)
        shutil.rmtree(model)
        self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.out, "--batch", 2, "--steps", 7,
                                     "--save-every", 1, "--warmup", 0, "--threads", 1, "--resume"))
        self.expect_kept(self.out, copy)
        # A model of a model.
        again = self.dir / "again"
        self.expect_ok(self.begin(self.out, "--dropout", 0.5, out=again))
        self.expect_kept(again, copy, resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5)
        self.assertEqual(json.loads(self.run_tool("generate", "--model", again, "--prompt", "line", "--json",
                                                  "--threads", 1).stdout)["new_tokens"] > 0, True)

    def test_the_dtype_is_that_of_the_weights(self):
        for key in ("dtype", "torch_dtype"):
            model = self.model(name=key)
            config = self.config(model)
            config.pop("torch_dtype")
            config[key] = "bfloat16"
            (model / "config.json").write_text(json.dumps(config))
            self.expect_ok(self.begin(model, out=self.dir / f"out-{key}"))
            self.expect_kept(self.dir / f"out-{key}", model, **{key: "float32"})

    def test_what_is_anothers_is_not_overwritten(self):
        model = self.model()
        mine = self.write("out/generation_config.json", "mine")
        self.expect_error(self.begin(model), INPUT, "generation_config.json", "move it away")
        self.assertEqual(mine.read_text(), "mine")
        self.expect_ok(self.begin(model, "--overwrite"))
        self.assertEqual(mine.read_text(), BESIDE["generation_config.json"])
        # A run of no origin has no such files, and leaves none of the former one's.
        self.expect_ok(self.train("--out", self.out, "--overwrite"))
        names = sorted(os.listdir(self.out))
        self.assertEqual([name for name in names if not (self.out / name).exists()], [])
        self.assertEqual([name for name in names if name in BESIDE], ["tokenizer_config.json"])


FAMILIES = {"gpt2": (), "llama": ("--model", "llama"), "mistral": ("--model", "mistral", "--window", 5),
            "qwen2": ("--model", "qwen2", "--window", 5), "gemma2": ("--model", "gemma2", "--window", 5),
            "moe": ("--model", "moe"), "lstm": ("--model", "lstm"), "mlp": ("--model", "mlp"),
            "decoder": ("--model", "decoder"), "rope": ("--model", "decoder", "--positions", "rope"),
            "sinusoid": ("--model", "decoder", "--positions", "sinusoid")}
HAS_TABLE = ("gpt2", "decoder")


def context_of(config):
    return config.get("n_positions", config.get("max_position_embeddings"))


class ContextAndRows(FromAnother):
    # SMALL without heads, which two of the families have not.
    SMALL = ("--n-layers 1 --d-model 16 --batch 2 --warmup 0 --eval-every 0 --threads 1 --lr 0.01").split()

    def new(self, family, out, *flags):
        heads = () if family in ("lstm", "mlp") else ("--n-heads", 2)
        return self.run_tool("train", "--data", self.text, "--out", out, *self.SMALL, *heads, *FAMILIES[family], *flags)

    def test_a_new_models_context_is_longer_than_its_rows(self):
        for family in FAMILIES:
            with self.subTest(family):
                out, rows = self.dir / family, ("--seqlen", 12)
                self.expect_ok(self.new(family, out, *rows, "--context", 40, "--steps", 2))
                self.assertEqual(context_of(self.config(out)), 40)
                self.assertEqual(json.loads(self.weights(out)["trainer_state.json"])["seqlen"], 12)
                # Resumed without a word, or with all of them, it is the run that never stopped.
                whole = self.dir / f"{family}-whole"
                self.expect_ok(self.new(family, whole, *rows, "--context", 40, "--steps", 4, "--lr-decay-steps", 4))
                stop = ("--steps", 4, "--lr-decay-steps", 4)
                again = ("--data", self.text, "--out", out, "--batch", 2, "--warmup", 0, "--eval-every", 0,
                         "--threads", 1, "--lr", 0.01, "--resume")
                self.expect_ok(self.run_tool("train", *again, *stop))
                self.assertEqual(context_of(self.config(out)), 40)
                self.expect_ok(self.run_tool("train", *again, *rows, "--context", 40, "--steps", 5))
                self.expect_error(self.run_tool("train", *again, "--seqlen", 11), INPUT, "has seqlen 12, not 11")
                self.expect_error(self.run_tool("train", *again, "--context", 41), INPUT, "has context 40, not 41")
                # What it sees when it writes is its context, and so for a forward pass.
                prompt = ("generate", "--model", out, "--prompt", "line 1 of the text;\nline 2", "--temperature", 0,
                          "--threads", 1)
                done = self.expect_ok(self.run_tool(*prompt, "--max-tokens", 15, "--overflow", "stop"))
                self.assertEqual(done.stderr, "")
                self.assertIn("context is 40", self.run_tool(*prompt, "--max-tokens", 16).stderr)
                ids = self.write("ids.json", json.dumps([[1] * 41]))
                long = self.write("long.json", json.dumps([[1] * 42]))
                grad = ("grad", "--model", out, "--out", self.dir / "g", "--tokens")
                self.expect_ok(self.run_tool(*grad, ids))
                self.expect_error(self.run_tool(*grad, long), INPUT, "rows of 42 tokens", "at most 41")

    def test_rows_of_any_length_from_a_model(self):
        for family in FAMILIES:
            with self.subTest(family):
                made = self.dir / family
                self.expect_ok(self.new(family, made, "--seqlen", 16, "--steps", 1))
                begin = lambda *flags: self.begin(made, "--overwrite", *flags)
                for rows in (5, 16):
                    self.expect_ok(begin("--seqlen", rows))
                    self.assertEqual(context_of(self.config()), 16)
                    self.assertEqual(json.loads(self.weights()["trainer_state.json"])["seqlen"], rows)
                self.expect_ok(begin())  # rows as long as the context
                self.assertEqual(json.loads(self.weights()["trainer_state.json"])["seqlen"], 16)
                if family in HAS_TABLE:
                    self.expect_error(begin("--seqlen", 17), INPUT, "16 positions", "--seqlen 17", "at most 16")
                    self.expect_error(begin("--context", 20), INPUT, "16 positions", "--context 20")
                    self.expect_error(begin("--context", 8), INPUT, "16 positions", "--context 8")
                    continue
                done = self.expect_ok(begin("--seqlen", 17))
                self.assertIn("context", done.stderr)
                self.assertEqual(context_of(self.config()), 17)
                self.expect_ok(begin("--seqlen", 5, "--context", 40))
                self.assertEqual(context_of(self.config()), 40)
                self.expect_error(begin("--seqlen", 9, "--context", 8), INPUT, "--seqlen 9", "--context 8")

    def test_shorter_rows_compute_what_a_shorter_context_does(self):
        """The table's first rows are used and learn; the others stay as they were."""
        made, short = self.dir / "made", self.dir / "short"
        self.expect_ok(self.new("gpt2", made, "--seqlen", 16, "--steps", 3))
        self.expect_ok(self.begin(made, "--seqlen", 6, "--weight-decay", 0, out=short))
        grads = []
        for model in (made, short):
            ids = self.write("ids.json", json.dumps([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]]))
            self.expect_ok(self.run_tool("grad", "--model", model, "--tokens", ids, "--out", self.dir / "g"))
            grads.append(tensor(model / "model.safetensors", "transformer.wpe.weight"))
        row = len(grads[0]) // 16
        self.assertNotEqual(grads[0][:6 * row], grads[1][:6 * row])
        self.assertEqual(grads[0][6 * row:], grads[1][6 * row:])

    def test_what_cannot_be_is_told_at_once(self):
        self.expect_error(self.new("gpt2", self.out, "--seqlen", 12, "--context", 8), USAGE, "--seqlen 12",
                          "--context 8")
        self.assertFalse(self.out.exists())
        plan = ("plan", "--n-layers", 1, "--n-heads", 1, "--d-model", 8, "--vocab-size", 9, "--batch", 1, "--json")
        params = [json.loads(self.expect_ok(self.run_tool(*plan, *flags)).stdout)["params"]
                  for flags in (("--seqlen", 12), ("--seqlen", 12, "--context", 12), ("--seqlen", 12, "--context", 20),
                                ("--context", 20))]
        self.assertEqual(params[0], params[1])
        self.assertEqual([params[2] - params[0], params[3] - params[0]], [8 * 8] * 2)
        self.expect_error(self.run_tool(*plan, "--seqlen", 12, "--context", 11), USAGE, "--context 11")


def tensor(path, name):
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:8 + n])[name]["data_offsets"]
    return data[8 + n + begin:8 + n + end]


if __name__ == "__main__":
    unittest.main()
