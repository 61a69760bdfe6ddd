"""Flags, data and configs, good and bad, as a user meets them."""

import json
import os
import subprocess
import unittest

from case import CliTest, FAILED, INVALID, SECONDS, SMALL, TEGULA


class Flags(CliTest):
    def test_what_is_no_command(self):
        self.expect_error(self.run_tool(), INVALID, "a command is missing", "tegula --help")
        self.expect_error(self.run_tool("trian"), INVALID, "'trian'", "choose one of train")

    def test_unknown_flags_name_the_nearest(self):
        self.expect_error(self.train("--lerning-rate", 3), INVALID, "unknown flag '--lerning-rate'",
                          "tegula train --help")
        self.expect_error(self.train("--n_layers", 3), INVALID, "'--n_layers'", "mean --n-layers?")
        self.expect_error(self.train("--n-layer=3"), INVALID, "'--n-layer'", "mean --n-layers?")
        self.expect_error(self.train("oops"), INVALID, "unexpected 'oops'")

    def test_values_out_of_range_say_the_range(self):
        for flag, value, words in (
                ("--steps", "abc", "at least 0, not 'abc'"), ("--steps", "1e3", "not '1e3'"),
                ("--batch", "0", "from 1 to"), ("--lr", "nan", "not 'nan'"),
                ("--lr", "-1", "at least 0, not '-1'"), ("--dropout", "1.5", "from 0 to 0.99"),
                ("--n-layers", "99999999999999999999", "from 1 to"), ("--seed", "-1", "from 0"),
                ("--model", "gpt9", "gpt2|llama"), ("--dtype", "f8", "f32|bf16"),
                ("--optimizer", "lion", "adamw|momentum|sgd")):
            self.expect_error(self.train(flag, value), INVALID, flag + ":", words)
        self.expect_error(self.train("--tokenizer", "words"), INVALID, "'words'", "bpe:N")
        self.expect_error(self.train("--tokenizer", "bpe:9"), INVALID, "'bpe:9'", "from 256")
        self.expect_error(self.train("--memory", "lots"), INVALID, '"lots"', "512MiB")
        self.expect_error(self.train("--passes", "fuse"), INVALID, '"fuse"')
        self.expect_error(self.run_tool("train", "--data"), INVALID, "--data needs a value")
        self.expect_error(self.run_tool("train"), INVALID, "--data is required")
        self.expect_error(self.train("--resume"), INVALID, "--resume needs --out")
        self.expect_error(self.train("--lr", "1e-4", "--min-lr", "1e-3"), INVALID, "--min-lr 0.001")

    def test_impossible_shapes(self):
        self.expect_error(self.train("--d-model", 15), INVALID, "d_model 15", "n_heads 2")
        self.expect_error(self.train("--model", "llama", "--n-heads", 4, "--n-kv-heads", 3), INVALID,
                          "n_heads 4", "n_kv_heads 3")
        self.expect_error(self.train("--d-model", 16000000), INVALID, "FLOPs", "smaller")
        self.expect_error(self.train("--d-model", 65536), FAILED,
                          "cannot allocate", "smaller batch")

    def test_a_memory_budget_too_small_says_the_least_that_works(self):
        done = self.train("--memory", "1KiB")
        self.expect_error(done, FAILED, "1024 bytes", "too small", "the least that works")
        least = int(done.stderr.split("the least that works is ")[1].split()[0])
        self.expect_ok(self.train("--memory", least))

    def test_lost_output_is_told(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([TEGULA, "ops"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.expect_error(done, FAILED, "cannot write")

    def test_generate(self):
        self.expect_error(self.run_tool("generate", "--prompt", "a"), INVALID, "--model is required")
        self.expect_error(self.run_tool("generate", "--model", self.dir / "no", "--prompt", "a"),
                          FAILED, "/no'", "Check the path")
        self.expect_error(self.run_tool("generate", "--model", self.dir, "--prompt", "a"), INVALID,
                          "no model")


class Data(CliTest):
    def test_data_that_cannot_be(self):
        self.expect_error(self.train(data=self.dir / "no.txt"), FAILED, "no.txt'", "No such file")
        self.expect_error(self.train(data=self.write("empty.txt", "")), INVALID, "is empty")
        self.expect_error(self.train(data=self.write("binary", b"ab\0c" * 500)), INVALID, "binary",
                          "NUL byte at 2")
        self.expect_error(self.train(data=self.write("utf16.txt", "abc".encode("utf-16"))), INVALID,
                          "UTF-16", "iconv")
        (self.dir / "folder").mkdir()
        self.expect_error(self.train(data=self.dir / "folder"), INVALID, "holds no text")
        self.expect_error(self.train(data=self.write("short.txt", "hello\n")), INVALID, "too short",
                          "at least 130 tokens")
        self.expect_error(self.train(data="/dev/null"), INVALID, "/dev/null", "neither")

    def test_unreadable_data(self):
        self.text.chmod(0)
        if os.access(self.text, os.R_OK):  # root: read it as somebody else
            nobody = 65534
            self.dir.chmod(0o755)
            try:
                done = self.train(user=nobody)
            except PermissionError:
                self.skipTest("the tool lies where only its owner may run it")
        else:
            done = self.train()
        self.expect_error(done, FAILED, "cannot open", "Permission denied", "permissions")

    def test_a_folder_of_sources_in_any_language(self):
        self.write("tree/a.py", "def f(x):\n    return x\n" * 40)
        self.write("tree/b/Ελληνικά.txt", "Η γλώσσα μου είναι ελληνική. 日本語も。\n" * 40)
        self.write("tree/b/latin1.txt", "Grüße\n".encode("latin-1") * 40)
        self.write("tree/.git/x", "hidden")
        self.write("tree/c.bin", b"\0\1\2")
        for tokenizer in ("bytes", "chars", "bpe:300"):
            done = self.expect_ok(self.train("--tokenizer", tokenizer, "--out",
                                             self.dir / tokenizer, data=self.dir / "tree"))
            self.assertIn("3 files", done.stderr)
            self.assertIn("skipped 2", done.stderr)
            done = self.run_tool("generate", "--model", self.dir / tokenizer, "--prompt", "Η γλ",
                                 "--max-tokens", 5, "--json")
            self.expect_ok(done)
            self.assertEqual(json.loads(done.stdout)["new_tokens"], 5)


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
                            ("steps = -1", ("--steps:", "at least 0"))):
            self.expect_error(self.train("--config", self.write("bad.toml", text)), INVALID, *words)
        self.expect_error(self.train("--config", self.dir / "no.toml"), FAILED, "no.toml")

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
                       ("--model", "moe"), ("--model", "mlp"), ("--model", "lstm")):
            self.assertNotEqual(base, outcome(*llama, *change), change)
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
