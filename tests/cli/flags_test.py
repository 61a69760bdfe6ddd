"""Flags: what is unknown, out of range, of no use to a command or a model, or contradictory."""

import unittest

from case import CliTest, ENVIRONMENT, USAGE


class Flags(CliTest):
    def test_what_is_no_command(self):
        self.expect_error(self.run_tool(), USAGE, "a command is missing", "tegula --help")
        self.expect_error(self.run_tool("trian"), USAGE, "'trian'", "choose one of train")

    def test_unknown_flags_name_the_nearest(self):
        # Also where something else is missing: it may be that, misspelt.
        self.expect_error(self.run_tool("train", "--dta", self.text), USAGE, "unknown flag '--dta'",
                          "mean --data?")
        self.expect_error(self.train("--lerning-rate", 3), USAGE, "unknown flag '--lerning-rate'",
                          "tegula train --help")
        self.expect_error(self.train("--n_layers", 3), USAGE, "'--n_layers'", "mean --n-layers?")
        self.expect_error(self.train("--n-layer=3"), USAGE, "'--n-layer'", "mean --n-layers?")
        self.expect_error(self.train("oops"), USAGE, "unexpected 'oops'")

    def test_values_out_of_range_say_the_range(self):
        for flag, value, words in (
                ("--steps", "abc", "at least 0, not 'abc'"), ("--steps", "1e3", "not '1e3'"),
                ("--batch", "0", "from 1 to"), ("--lr", "nan", "not 'nan'"),
                ("--lr", "-1", "at least 0, not '-1'"), ("--dropout", "1.5", "from 0 to 0.99"),
                ("--n-layers", "99999999999999999999", "from 1 to"), ("--seed", "-1", "from 0"),
                ("--model", "gpt9", "gpt2|gpt_neox|llama"), ("--dtype", "f8", "f32|bf16"),
                ("--optimizer", "lion", "adamw|momentum|sgd")):
            self.expect_error(self.train(flag, value), USAGE, flag + ":", words)
        self.expect_error(self.train("--tokenizer", "words"), USAGE, "'words'", "bpe:N")
        self.expect_error(self.train("--tokenizer", "bpe:9"), USAGE, "'bpe:9'", "from 256")
        self.expect_error(self.train("--memory", "lots"), USAGE, '"lots"', "512MiB")
        self.expect_error(self.train("--passes", "fuse"), USAGE, '"fuse"')
        self.expect_error(self.run_tool("train", "--data"), USAGE, "--data needs a value")
        self.expect_error(self.run_tool("train"), USAGE, "--data is required")
        self.expect_error(self.train("--resume"), USAGE, "--resume needs --out")
        self.expect_error(self.train("--lr", "1e-4", "--min-lr", "1e-3"), USAGE, "--min-lr 0.001")

    def test_impossible_shapes(self):
        self.expect_error(self.train("--d-model", 15), USAGE, "d_model 15", "n_heads 2")
        self.expect_error(self.train("--model", "llama", "--n-heads", 4, "--n-kv-heads", 3), USAGE,
                          "n_heads 4", "n_kv_heads 3")
        self.expect_error(self.train("--d-model", 16000000), USAGE, "FLOPs", "smaller")
        self.expect_error(self.train("--d-model", 65536), ENVIRONMENT,
                          "cannot allocate", "smaller batch", lines_before=True)

    def test_a_memory_budget_too_small_says_the_least_that_works(self):
        done = self.train("--memory", "1KiB")
        self.expect_error(done, ENVIRONMENT, "1024 bytes", "too small", "the least that works")
        least = int(done.stderr.split("the least that works is ")[1].split()[0])
        self.expect_ok(self.train("--memory", least))


class OfNoUse(CliTest):
    """A flag that changes nothing is refused, so that nobody believes it did."""

    def test_what_a_command_does_not_use(self):
        for command, flags in (
                (("plan",), ("--lr", "--min-lr", "--warmup", "--steps", "--seed", "--out",
                             "--eval-every", "--save-every", "--lr-decay-steps")),
                (("bench", "train"), ("--lr", "--steps", "--seed", "--out", "--data", "--tokenizer")),
                (("tune", "train"), ("--lr", "--steps", "--data")),
                (("bench", "generate"), ("--batch", "--dropout", "--memory", "--optimizer",
                                         "--accumulate", "--passes", "--tune"))):
            for flag in flags:
                self.expect_error(self.run_tool(*command, flag, "1"), USAGE,
                                  f"tegula {' '.join(command)} has no use for {flag}",
                                  "leave it out")
        self.expect_error(self.run_tool("plan", "--resume"), USAGE, "--resume", "for tegula train")

    def test_a_shared_file_may_hold_them(self):
        config = self.write("run.toml", f"""
            data = "{self.text}"
            n-layers = 1
            d-model = 16
            n-heads = 2
            seqlen = 12
            lr = 1e-3
            steps = 3
            n-experts = 4
            beta2 = 0.9
            json = true
        """)
        self.expect_ok(self.run_tool("train", "--config", config, "--batch", 2, "--threads", 1,
                                     "--warmup", 0))
        for command in (("plan",), ("bench", "train", "--repeats", 1),
                        ("bench", "generate", "--repeats", 1)):
            self.expect_ok(self.run_tool(*command, "--config", config, "--threads", 1))
        self.expect_ok(self.run_tool("plan", "--config", config, "--optimizer", "sgd"))
        small = self.run_tool("bench", "train", "--config", config, "--repeats", 1)
        self.assertIn("a step of gpt2", small.stdout)
        self.assertNotIn("124", small.stdout.split("parameters")[0])
        config.write_text("n-layer = 1")
        self.expect_error(self.run_tool("bench", "train", "--config", config), USAGE,
                          "run.toml:1: n-layer", "tegula bench train", "mean n-layers?")

    def test_what_a_model_has_not(self):
        for model, flag, owners in (
                ("gpt2", "--n-experts", "moe"), ("gpt2", "--capacity-factor", "moe"),
                ("gpt2", "--n-kv-heads", "llama"),
                ("gpt2", "--head-dim", "llama"),
                ("llama", "--window", "mistral"), ("llama", "--norm", "decoder"),
                ("qwen2", "--logit-softcap", "gemma2"), ("mlp", "--tie-embeddings", "lstm"),
                ("llama", "--experts-per-token", "moe"), ("llama", "--balance-loss", "moe"),
                ("lstm", "--n-heads", "llama"), ("lstm", "--d-ff", "mlp"),
                ("mlp", "--n-heads", "llama")):
            value = {"--norm": "pre", "--tie-embeddings": "true"}.get(flag, 1)
            done = self.run_tool("plan", "--model", model, flag, value)
            self.expect_error(done, USAGE, f"{flag} is for --model", owners, f"{model} has",
                              "--n-layers")
        for model in ("moe", "mlp", "lstm"):
            self.expect_error(self.run_tool("plan", "--model", model, "--bias"), USAGE,
                              "--bias is for --model decoder,", ", gpt2,", f"; {model} has")
        self.expect_error(self.train("--model", "lstm"), USAGE, "--n-heads is for")

    def test_what_the_model_of_a_checkpoint_has_not(self):
        """The family of --init-from and --resume counts, as that of --model does."""
        self.expect_ok(self.train("--out", self.out))
        lstm = self.dir / "lstm"
        self.expect_ok(self.run_tool("train", "--data", self.text, "--model", "lstm", "--n-layers", 1,
                                     "--d-model", 16, "--seqlen", 12, "--batch", 2, "--steps", 1,
                                     "--out", lstm))
        for model, family, flags in (
                (self.out, "gpt2", ("--norm post", "--positions rope", "--n-experts 4",
                                    "--n-kv-heads 1", "--window 5", "--activation relu",
                                    "--head-dim 4", "--capacity-factor 2", "--logit-softcap 3")),
                (lstm, "lstm", ("--n-heads 2", "--d-ff 32", "--bias"))):
            for flag in flags:
                for origin in (("--init-from", model), ("--out", model, "--resume")):
                    done = self.run_tool("train", "--data", self.text, *origin, *flag.split(),
                                         "--steps", 1, "--batch", 2)
                    self.expect_error(done, USAGE, f"{flag.split()[0]} is for --model",
                                      f"{model} is a {family}, which has --n-layers")

    def test_a_shared_file_says_what_it_leaves_out(self):
        config = self.write("run.toml", "n-experts = 4\nwindow = 3\nsteps = 1")
        done = self.expect_ok(self.train("--config", config))
        self.assertIn("run.toml: n-experts, window: a gpt2 has none of these", done.stderr)

    def test_what_a_kind_of_plan_has_not(self):
        step = ("plan", "--vocab-size", 65, "--n-layers", 1, "--d-model", 32, "--n-heads", 2)
        conv = ("plan", "--conv", "batch=8,in=4,out=8", "--mesh", "rows=2")
        for flags, words in (
                ((*conv, "--n-layers", 3), "--conv plans no step and has no use for --n-layers"),
                ((*conv, "--verbose"), "--verbose"),
                (("plan", "--occupancy", "threads=256,registers=64,smem=0", "--target", "h100",
                  "--batch", 3), "--occupancy plans no step and has no use for --batch"),
                ((*step, "--mesh", "dp=2", "--verbose"), "--verbose"),
                ((*step, "--graph", "step", "--timings"), "--timings"),
                ((*step, "--stages", 2, "--verify"), "--verify"),
                (("plan", "gpt2", "--fix", "tp=3"), "--fix is of a plan for devices: give --gpus"),
                (("plan", "gpt2", "--optimizer", "sgd"), "--optimizer is of a plan for devices"),
                (("plan", "gpt2", "--threads", 2), "--threads is of --gpus this-cpu"),
                (("generate", "--model", "x", "--prompt", "a", "--batch", 2), "--batch requires --prompts"),
                (("generate", "--model", "x", "--prompt", "a", "--tune-cache", "d"), "--tune-cache")):
            self.expect_error(self.run_tool(*flags), USAGE, words)

    def test_what_contradicts(self):
        plan = ("plan", "--vocab-size", 65, "--n-layers", 1)
        for flags, words in (
                (("--optimizer", "sgd", "--beta1", 0.5), "--beta1 is not for --optimizer sgd"),
                (("--optimizer", "momentum", "--beta2", 0.5), "--beta2 is not for"),
                (("--memory", "1GiB", "--checkpoint", "sqrt"), "--checkpoint sqrt"),
                (("--memory", "1GiB", "--checkpoint", "none"), "give one of them"),
                (("--tune-cache", self.dir), "--tune-cache is of no use without --tune quick"),
                (("--data", self.text), "--vocab-size and --data both"),
                (("--load", self.dir / "x"), "--load"),
                (("--model", "moe", "--n-experts", 2, "--experts-per-token", 3),
                 "n_experts_per_token 3 of n_experts 2")):
            self.expect_error(self.run_tool(*plan, *flags), USAGE, words)
        self.expect_error(self.train("--out", self.out, "--resume", "--overwrite"), USAGE,
                          "--overwrite", "--resume")
        self.expect_error(self.run_tool("train", "--config", "a", "--config", "b"), USAGE, "twice")
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
