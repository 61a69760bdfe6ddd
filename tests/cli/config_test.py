"""Configuration files, and that every flag acts."""

import json
import os
import subprocess
import unittest

from case import CliTest, INPUT, SECONDS, SMALL, TEGULA, USAGE


class Config(CliTest):
    def test_config_and_flags_are_the_same_run(self):
        config = self.write("run.toml", f'''
            data = "{self.text}"   # the names of the flags
            n-layers = 1
            n-heads = 2
            d-model = 16
            seqlen = 12
            batch = 2
            steps = 4
            warmup = 1
            eval-every = 0
            threads = 1
            lr = 2e-3
            dropout = 0.1
            optimizer = "momentum"
            bias = true
            json = false
            seed = 9
        ''')
        flags = ("--lr", "2e-3", "--dropout", 0.1, "--optimizer", "momentum", "--bias", "--seed", 9)
        other = self.dir / "other"
        self.expect_ok(self.train("--out", self.out, *flags))
        self.expect_ok(self.run_tool("train", "--config", config, "--out", other))
        self.assertEqual(self.weights(), self.weights(other))
        done = self.run_tool("train", "--config", config, "--steps", 2, "--json")
        self.assertEqual(json.loads(self.expect_ok(done).stdout)["steps"], 2)

    def test_the_example(self):
        done = self.run_tool("plan", "--config", "examples/nanogpt.toml", "--vocab-size", 65, "--json")
        self.assertEqual(json.loads(self.expect_ok(done).stdout)["params"], 804096)

    def test_bad_configs_name_file_and_line(self):
        for text, words in (("n_layers = 3", ("bad.toml:1:", "mean n-layers?")),
                            ("\nsteps = [1]", ("bad.toml:2:", "must be a number")),
                            ("steps = = 1", ("bad.toml:1:",)),
                            ("# é\nsteps = 1é", ("bad.toml:2:",)),
                            ("steps = i\n", ("bad.toml:1:", "\\n")),
                            ("[\0d =\n", ("bad.toml:",)),
                            ("steps = -1", ("--steps:", "at least 0"))):
            self.expect_error(self.train("--config", self.write("bad.toml", text)), USAGE, *words)
        self.expect_error(self.train("--config", self.dir / "no.toml"), INPUT, "no.toml")

    def test_depth_is_one_dial_that_explicit_flags_win_over(self):
        def params(*arguments):
            done = self.run_tool("plan", "--json", *arguments)
            return json.loads(self.expect_ok(done).stdout)["params"]
        dial = params("--depth", 2)
        self.assertEqual(dial, params("--n-layers", 2, "--d-model", 128, "--n-heads", 2))
        self.assertLess(dial, params("--depth", 3))
        self.assertLess(params("--depth", 2, "--n-layers", 1), dial)

    def test_every_flag_acts(self):
        def result(*arguments):
            done = self.train("--json", *arguments)
            return json.loads(self.expect_ok(done).stdout.splitlines()[-1])
        keys = ("params", "train_loss", "val_loss", "steps", "peak_bytes_planned")
        def outcome(*arguments):
            r = result(*arguments)
            return tuple(r[k] for k in keys)
        llama = ("--model", "llama", "--lr", "0.01", "--n-heads", 4, "--d-model", 32)
        base = outcome(*llama)
        self.assertEqual(base, outcome(*llama))
        for change in (("--n-layers", 2), ("--n-heads", 2), ("--n-kv-heads", 2), ("--head-dim", 4),
                       ("--d-model", 16), ("--d-ff", 24), ("--seqlen", 8), ("--batch", 3),
                       ("--accumulate", 2), ("--steps", 3), ("--optimizer", "sgd"),
                       ("--optimizer", "momentum"), ("--lr", "0.02"), ("--min-lr", "0.005"),
                       ("--warmup", 3), ("--weight-decay", 5), ("--beta1", 0.5), ("--beta2", 0.5),
                       ("--grad-clip", "0.01"), ("--dropout", 0.2), ("--seed", 2),
                       ("--dtype", "bf16"), ("--tokenizer", "bytes"), ("--model", "gpt2"),
                       ("--model", "moe")):
            self.assertNotEqual(base, outcome(*llama, *change), change)
        self.assertNotEqual(outcome("--model", "gpt2"), outcome("--model", "gpt2", "--bias"))
        moe = ("--model", "moe", "--n-experts", 4)
        base = outcome(*moe)
        for change in (("--n-experts", 3), ("--experts-per-token", 1), ("--capacity-factor", 0.5),
                       ("--balance-loss", 1)):
            self.assertNotEqual(base, outcome(*moe, *change), change)
        deep = ("--n-layers", 9, "--seqlen", 48, "--d-model", 8)
        kept, recomputed = result(*deep), result(*deep, "--checkpoint", "sqrt")
        self.assertEqual(kept["train_loss"], recomputed["train_loss"])
        self.assertLess(recomputed["peak_bytes_planned"], kept["peak_bytes_planned"])

    def test_json_has_every_key(self):
        done = self.expect_ok(self.train("--json"))
        self.assertEqual(len(done.stdout.splitlines()), 1)
        result = json.loads(done.stdout)
        for key in ("steps", "train_loss", "val_loss", "tokens_per_s", "step_ms", "params",
                    "flops_per_step_planned", "flops_per_step_counted", "peak_bytes_planned",
                    "peak_bytes_measured", "compile_ms"):
            self.assertGreater(result[key], 0, key)
        self.assertEqual(result["flops_per_step_planned"], result["flops_per_step_counted"])
        self.assertEqual(result["peak_bytes_planned"], result["peak_bytes_measured"])

    def test_without_out_nothing_is_written(self):
        empty = self.dir / "empty"
        empty.mkdir()
        done = subprocess.run([os.path.abspath(TEGULA), "train", "--data", self.text, *SMALL,
                               "--save-every", "1"], cwd=empty, capture_output=True, text=True,
                              timeout=SECONDS)
        self.expect_ok(done)
        self.assertEqual(list(empty.iterdir()), [])

    def test_eval_every_and_save_every(self):
        self.expect_ok(self.train("--out", self.out, "--eval-every", 2, "--save-every", 3))
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([r["step"] for r in rows if "val_loss" in r], [2, 4])
        self.assertEqual([r["step"] for r in rows if "loss" in r], [1, 2, 3, 4])
        self.assertEqual(sorted(os.listdir(self.out / "checkpoints"))[-2:],
                         ["step-000003", "step-000004"])


if __name__ == "__main__":
    unittest.main()
