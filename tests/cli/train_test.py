"""Training as its users meet it: what is planned, what a resume may change, what is evaluated."""

import fcntl
import json
import math
import re
import shutil
import signal
import time
import unittest

from case import CliTest, INVALID, SECONDS
from edit import drop_last_tensor, sign


class Accumulate(CliTest):
    """What is called planned is the whole step: all micro-batches and the update."""

    def planned(self, *arguments):
        done = self.run_tool("plan", "--json", "--vocab-size", 40, "--n-layers", 1, "--n-heads", 2,
                             "--d-model", 16, "--seqlen", 12, "--batch", 2, *arguments)
        return json.loads(self.expect_ok(done).stdout)

    def test_plan_is_of_the_whole_step(self):
        one, four = self.planned(), self.planned("--accumulate", 4)
        # Weights, two moments and the sums of gradients.
        self.assertEqual(one["state_bytes"], 3 * 4 * one["params"])
        self.assertEqual(four["state_bytes"], 4 * 4 * one["params"])
        self.assertGreater(four["flops_per_step"], 3.5 * one["flops_per_step"])
        self.assertGreater(four["bytes_per_step"], 3 * one["bytes_per_step"])

    def test_plan_header_progress_and_summary_say_the_same(self):
        for accumulate in (1, 4):
            flags = ("--accumulate", accumulate, "--tokenizer", "bytes")
            out = self.dir / f"out{accumulate}"
            done = self.expect_ok(self.train("--json", "--out", out, *flags))
            summary = json.loads(done.stdout)
            self.assertEqual(summary["flops_per_step_planned"], summary["flops_per_step_counted"])
            self.assertEqual(summary["peak_bytes_planned"], summary["peak_bytes_measured"])
            plan = self.planned("--vocab-size", 256, "--accumulate", accumulate, "--threads", 1)
            self.assertEqual(plan["flops_per_step"], summary["flops_per_step_planned"])
            self.assertEqual(plan["bytes_per_step"], summary["bytes_per_step_planned"])
            self.assertEqual(plan["state_bytes"] + plan["arena_bytes"],
                             summary["peak_bytes_planned"])
            peak = f"{summary['peak_bytes_planned'] / 2**20:.1f} MiB"
            header = re.search(r"([\d.e+]+) FLOPs and ([\d.]+ MiB) a step", done.stderr)
            self.assertEqual(header[2], peak)
            self.assertAlmostEqual(float(header[1]) / plan["flops_per_step"], 1, delta=0.01)
            self.assertIn(peak, re.search(r"step 4/4 .*", done.stderr)[0])
            state = f"{plan['state_bytes'] / 2**20:.2f} MiB of weights, optimizer state"
            self.assertTrue(state in (out / "report.html").read_text(), state)


class Resume(CliTest):
    """The model comes from the checkpoint; what contradicts it is refused."""

    SHAPES = {
        "gpt2": ("--n-layers", 2, "--n-heads", 4, "--d-model", 16, "--seqlen", 12, "--bias"),
        "llama": ("--n-layers", 2, "--n-heads", 4, "--n-kv-heads", 2, "--d-model", 16, "--d-ff", 24,
                  "--seqlen", 12, "--head-dim", 6),
        "moe": ("--n-layers", 1, "--n-heads", 2, "--d-model", 16, "--seqlen", 12, "--n-experts", 4,
                "--experts-per-token", 3, "--capacity-factor", 2, "--balance-loss", "0.02"),
        "gemma2": ("--n-layers", 2, "--n-heads", 2, "--d-model", 16, "--seqlen", 12, "--window", 5,
                   "--logit-softcap", 0),
        "smollm3": ("--n-layers", 2, "--n-heads", 2, "--d-model", 16, "--seqlen", 12, "--window", 5,
                    "--no-rope-interval", 2),
        "gpt_neox": ("--n-layers", 1, "--n-heads", 2, "--d-model", 16, "--seqlen", 12, "--rotary-share",
                     0.5, "--parallel-residual", "false"),
        "decoder": ("--n-layers", 1, "--n-heads", 2, "--d-model", 16, "--seqlen", 12, "--norm",
                    "post", "--positions", "sinusoid", "--tie-embeddings", "false"),
        "lstm": ("--n-layers", 2, "--d-model", 16, "--seqlen", 12),
        "mlp": ("--n-layers", 2, "--d-model", 16, "--d-ff", 24, "--seqlen", 12),
    }
    COMMON = ("--batch", 2, "--warmup", 1, "--eval-every", 0, "--threads", 1, "--lr-decay-steps", 9)

    def go(self, out, *arguments):
        return self.run_tool("train", "--data", self.text, "--out", out, *self.COMMON, *arguments)

    def trained(self, family):
        """A run of four steps, and what six in one go are."""
        out, whole = self.dir / family, self.dir / f"{family}-whole"
        shape = ("--model", family, *self.SHAPES[family])
        self.expect_ok(self.go(out, "--steps", 4, *shape))
        self.expect_ok(self.go(whole, "--steps", 6, *shape))
        return out, whole

    def test_no_flag_of_the_model_need_be_said_again(self):
        for family in self.SHAPES:
            out, whole = self.trained(family)
            before = (out / "config.json").read_bytes()
            done = self.expect_ok(self.go(out, "--resume", "--steps", 6))
            self.assertNotIn("note:", done.stderr)
            self.assertEqual(before, (out / "config.json").read_bytes(), family)
            self.assertEqual(self.weights(whole), self.weights(out), family)

    def test_all_flags_may_be_said_again(self):
        out, whole = self.trained("llama")
        self.expect_ok(self.go(out, "--resume", "--steps", 6, "--model", "llama",
                               *self.SHAPES["llama"]))
        self.assertEqual(self.weights(whole), self.weights(out))

    def test_what_contradicts_the_checkpoint_is_refused(self):
        wrong = {"gpt2": (("--n-heads", 2), ("--n-layers", 1), ("--n-layers", 4), ("--d-ff", 32),
                          ("--seqlen", 64), ("--d-model", 128), ("--model", "llama")),
                 "llama": (("--n-kv-heads", 4), ("--n-kv-heads", 0), ("--n-heads", 2),
                           ("--head-dim", 4), ("--head-dim", 0), ("--model", "gpt2"), ("--bias",)),
                 "moe": (("--experts-per-token", 2), ("--n-experts", 8), ("--capacity-factor", 1.25),
                         ("--balance-loss", 0.01)),
                 "gemma2": (("--window", 6), ("--logit-softcap", 30), ("--attention-softcap", 7)),
                 "smollm3": (("--no-rope-interval", 4), ("--window", 6)),
                 "gpt_neox": (("--rotary-share", 0.25),),
                 "decoder": (("--norm", "pre"), ("--positions", "rope"), ("--activation", "relu")),
                 "lstm": (("--n-layers", 1), ("--model", "mlp"))}
        for family, flags in wrong.items():
            out, _ = self.trained(family)
            before = self.weights(out), (out / "config.json").read_bytes()
            for flag in flags:
                words = [f"has {flag[0][2:]} ", "comes from the checkpoint", "another --out"]
                if len(flag) == 2 and flag[1] != "--bias":
                    words.append(f"not {json.dumps(flag[1])}")
                self.expect_error(self.go(out, "--resume", "--steps", 6, *flag), INVALID, *words)
            self.assertEqual(before, (self.weights(out), (out / "config.json").read_bytes()))
        # 0 is what follows from the other sizes; of a flag that the family has not, no value is taken.
        self.expect_ok(self.go(self.dir / "gpt2", "--resume", "--steps", 6, "--d-ff", 0))
        self.expect_ok(self.go(self.dir / "moe", "--resume", "--steps", 6, "--n-kv-heads", 0, "--head-dim", 0, "--d-ff", 0))
        self.expect_error(self.go(self.dir / "gpt2", "--resume", "--steps", 7, "--n-kv-heads", 0), INVALID,
                          "--n-kv-heads", "gpt2")

    def test_depth_is_a_shape_too(self):
        out = self.dir / "dial"
        flags = ("--seqlen", 12, "--tokenizer", "bytes")
        self.expect_ok(self.go(out, "--depth", 2, "--steps", 1, *flags))
        resume = ("--resume", "--steps", 2, "--tokenizer", "bytes", "--lr", 1e-3)
        self.expect_error(self.go(out, *resume, "--depth", 1), INVALID, "has n-layers 2", "not 1")
        self.expect_ok(self.go(out, *resume, "--depth", 2))

    def test_what_may_change_is_told(self):
        self.expect_ok(self.train("--out", self.out, "--steps", 4, "--dropout", 0.1))
        resume = ("--out", self.out, "--resume", "--steps")
        done = self.expect_ok(self.train(*resume, 6, "--tokenizer", "bytes"))
        notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
        for words in (("had lr_decay_steps 4, now it is 6", "learning rate jumps"),
                      ("had dropout 0.1, now it is 0",),
                      ("--tokenizer bytes is not used", "goes on with its own, chars")):
            self.assertEqual(1, sum(all(w in n for w in words) for n in notes), (words, notes))
        self.assertEqual(len(notes), 3, notes)
        # What the last run said is what the next one is compared with.
        done = self.expect_ok(self.train(*resume, 6))
        self.assertNotIn("note:", done.stderr)
        state = json.loads((self.out / "latest" / "trainer_state.json").read_text())
        self.assertEqual(state["tokenizer"], "chars")

    def test_state_that_is_not_whole_is_refused(self):
        self.expect_ok(self.train("--out", self.out))
        for name, words in (("optimizer.safetensors", "of the run is missing"),
                            ("model.safetensors", "is missing")):
            broken = self.dir / f"without-{name}"
            shutil.copytree(self.out, broken, symlinks=True)
            checkpoint = broken / "checkpoints" / "step-000004"
            drop_last_tensor(checkpoint / name)
            sign(checkpoint)
            done = self.train("--out", broken, "--resume", "--steps", 6)
            self.expect_error(done, INVALID, name, words)


class Evaluations(CliTest):
    # A learning rate so large that the loss falls, then rises.
    FLAGS = ("--eval-every", 1, "--lr", 0.3, "--min-lr", 0.3, "--grad-clip", 0, "--warmup", 0)

    def evals(self):
        rows = [json.loads(row) for row in (self.out / "metrics.jsonl").read_text().splitlines()]
        return [row for row in rows if "val_loss" in row]

    def test_the_best_checkpoint_is_kept(self):
        for save_every in (1, 4):
            self.out = self.dir / f"every{save_every}"
            flags = ("--out", self.out, *self.FLAGS, "--save-every", save_every)
            done = self.expect_ok(self.train(*flags, "--steps", 12, "--json"))
            evals = self.evals()
            self.assertEqual([e["step"] for e in evals], list(range(1, 13)))
            best = min(evals, key=lambda e: e["val_loss"])
            summary = json.loads(done.stdout)
            self.assertEqual((best["val_loss"], best["step"]),
                             (summary["best_val_loss"], summary["best_step"]))
            kept = json.loads((self.out / "checkpoints" / "best.json").read_text())
            self.assertEqual((kept["step"], kept["val_loss"]), (best["step"], best["val_loss"]))
            self.assertLess(best["step"], 8, "the run was meant to get worse again")
            state = json.loads((self.out / "best" / "trainer_state.json").read_text())
            self.assertEqual(state["step"], best["step"])
            self.expect_ok(self.run_tool("generate", "--model", self.out / "best", "--prompt", "l",
                                         "--max-tokens", 2))
            # A resumed run knows it still.
            done = self.expect_ok(self.train(*flags, "--steps", 14, "--resume", "--json"))
            best = min(self.evals(), key=lambda e: e["val_loss"])
            self.assertEqual(json.loads(done.stdout)["best_step"], best["step"])
            self.assertTrue((self.out / "best" / "manifest.json").exists())

    def test_save_at_the_end_only_saves_at_the_end_only(self):
        self.expect_ok(self.train("--out", self.out, *self.FLAGS, "--save-every", 0))
        self.assertEqual([n.name for n in (self.out / "checkpoints").glob("step-*")],
                         ["step-000004"])

    def test_what_an_evaluation_tells(self):
        done = self.expect_ok(self.train("--out", self.out, "--eval-every", 2, "--json",
                                         "--tokenizer", "bytes"))
        summary = json.loads(done.stdout)
        for e in self.evals():
            # Bytes are the tokens.
            self.assertAlmostEqual(e["bits_per_byte"], e["val_loss"] / math.log(2), places=9)
            self.assertLess(abs(e["train_split_loss"] - e["val_loss"]), 0.2)
            self.assertIn(f"step {e['step']}  validation loss {e['val_loss']:.4f}  training split "
                          f"{e['train_split_loss']:.4f}  {e['bits_per_byte']:.3f} bits a byte",
                          done.stderr)
        self.assertEqual(summary["bits_per_byte"], self.evals()[-1]["bits_per_byte"])
        self.assertIn("training split", (self.out / "report.html").read_text())

    def test_a_run_within_its_warmup_is_told(self):
        done = self.expect_ok(self.train("--steps", 4, "--warmup", 100, "--lr", 1e-3))
        self.assertIn("note: --steps 4 ends within --warmup 100", done.stderr)
        self.assertIn("of --lr 0.001", done.stderr)
        done = self.expect_ok(self.train("--steps", 4, "--warmup", 3))
        self.assertNotIn("note:", done.stderr)


class Samples(CliTest):
    def test_several_samples_are_those_of_seeds_one_after_the_other(self):
        self.expect_ok(self.train("--out", self.out))
        common = ("generate", "--model", self.out, "--prompt", "line", "--max-tokens", 9)
        def text(*flags):
            return self.expect_ok(self.run_tool(*common, *flags)).stdout
        alone = [json.loads(text("--json", "--seed", seed))["text"] for seed in (5, 6, 7)]
        self.assertEqual(len(set(alone)), 3)
        several = json.loads(text("--json", "--seed", 5, "--samples", 3))["samples"]
        self.assertEqual([s["text"] for s in several], alone)
        self.assertEqual(text("--seed", 5, "--samples", 3),
                         f"\n{'-' * 15}\n".join("line" + t for t in alone) + "\n")
        done = self.run_tool(*common, "--samples", 2, "--temperature", 0)
        self.expect_error(done, INVALID, "--temperature 0", "the same text")

    def test_what_chance_alone_uses_is_refused_without_it(self):
        self.expect_ok(self.train("--out", self.out))
        common = ("generate", "--model", self.out, "--prompt", "line", "--max-tokens", 9)
        for flag in (("--seed", 5), ("--top-k", 3), ("--top-p", .5)):
            self.expect_error(self.run_tool(*common, *flag, "--temperature", 0), INVALID, flag[0], "--temperature 0",
                              "leave out")
            self.expect_ok(self.run_tool(*common, *flag))
        self.expect_ok(self.run_tool(*common, "--temperature", 0))


class Metrics(CliTest):
    def test_broken_rows_cost_no_run(self):
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", whole, "--steps", 6, "--lr-decay-steps", 6))
        self.expect_ok(self.train("--out", self.out, "--lr-decay-steps", 6))
        path = self.out / "metrics.jsonl"
        rows = path.read_bytes().splitlines()
        rows[1:2] = [b'{"step": 2, "lo', b"\0" * 20, b'{"loss": 1}', b'{"step": -1, "loss": 1.0}',
                     b'{"step": 1e300, "loss": 1}', b'{"step": 1.5, "val_loss": 1}',
                     b'{"step": 2, "loss": null}', b'{"step": 2, "val_loss": "low"}']
        path.write_bytes(b"\n".join(rows) + b"\n")
        done = self.expect_ok(self.train("--out", self.out, "--lr-decay-steps", 6, "--resume",
                                         "--steps", 6))
        self.assertIn(f"note: dropped 2 rows of '{path}'", done.stderr)
        self.assertIn("without a step from 0 to 4 and a loss: left out of the report", done.stderr)
        self.assertEqual(self.weights(), self.weights(whole))
        steps = [json.loads(row)["step"] for row in path.read_text().splitlines()
                 if "grad_norm" in row]
        self.assertEqual(steps, [1, 3, 4, 5, 6])


class Stops(CliTest):
    def test_what_there_was_none_of_is_not_printed(self):
        done = self.expect_ok(self.train("--steps", 0, data=self.text))
        self.assertNotIn("nan", done.stderr.lower())
        self.assertIn("0 steps, validation loss ", done.stderr)
        process = self.start("--out", self.out, "--steps", 10**9)
        while not process.stderr.readline().startswith("step "):
            pass
        process.send_signal(signal.SIGINT)
        tail = process.stderr.read()
        self.assertEqual(process.wait(SECONDS), 130)
        self.assertIn("once more to stop at once", tail)
        self.assertIn(" steps, train loss ", tail)
        self.assertNotIn("nan", tail.lower())

    def test_a_second_signal_ends_it_at_once(self):
        flags = ("--accumulate", 10**6)  # a step of minutes
        for second, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            out = self.dir / str(code)
            self.expect_ok(self.train("--out", out, *flags, "--steps", 0))
            before = self.weights(out)
            process = self.start("--out", out, *flags, "--resume")
            line = ""
            while "resumed" not in line and "FLOPs" not in line:
                line = process.stderr.readline()
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            self.assertIsNone(process.poll(), "it finishes its step first")
            start = time.monotonic()
            process.send_signal(second)
            self.assertEqual(process.wait(SECONDS), code)
            self.assertLess(time.monotonic() - start, 5)
            self.assertEqual(before, self.weights(out))
            self.expect_ok(self.run_tool("generate", "--model", out, "--prompt", "l",
                                         "--max-tokens", 2))


class NestedConfig(CliTest):
    def test_depth_is_refused_before_it_is_parsed(self):
        n = 10**5
        for text in (".".join(["a"] * n) + " = 1", "[" + ".".join(["a"] * n) + "]",
                     "steps = " + "[" * n, "\n" + "steps = " + "{a=" * n,
                     '"x".' * n + "y = 1"):
            done = self.train("--config", self.write("deep.toml", text))
            self.expect_error(done, INVALID, "deep.toml:", "is nested more than 100 levels deep")
        # Of quotes and dots only those count that are no part of a text, also of one that is empty.
        text = ("# " + "." * 1000 + f"\nout = \"{'.' * 30}/../{self.out}\"\n" + "passes = %s\n"
                "tokenizer = 'bytes' # '\n")
        self.expect_ok(self.train("--config", self.write("flat.toml", text % '"-fuse"'), "--out", self.out))
        for empty in ('""', "''", '""""""', "''''''"):
            done = self.train("--config", self.write("flat.toml", text % empty + f"# {'.' * 1000}\n"), "--out", self.out)
            self.expect_error(done, INVALID, "--passes", "is empty")


class TwoRuns(CliTest):
    """One run at a time writes into a directory, from its first moment to its last."""

    def test_a_second_run_is_refused_before_it_opens_anything(self):
        self.expect_ok(self.train("--out", self.out, "--save-every", 0))
        files = {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()}
        with open(self.out / "checkpoints" / ".lock") as lock:  # as a running one holds it
            fcntl.flock(lock, fcntl.LOCK_EX)
            for flags in (("--resume", "--steps", 6), ()):
                self.expect_error(self.train("--out", self.out, *flags, data=self.dir / "none"),
                                  INVALID, "another process is writing here", "another directory")
        self.assertEqual(files, {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()})

    def test_a_run_holds_the_lock_between_its_saves(self):
        process = self.start("--out", self.out, "--steps", 10**9, "--save-every", 0)
        while not process.stderr.readline().startswith("step "):
            pass
        self.expect_error(self.train("--out", self.out), INVALID, "another process")
        process.kill()
        process.communicate()
        self.expect_ok(self.train("--out", self.out))


class Memory(CliTest):
    """What was planned, claimed, written, and what the process says, stand beside each other."""

    def test_all_are_printed_and_checking_changes_no_bit(self):
        done = self.expect_ok(self.train("--json", "--out", self.out))
        plain = json.loads(done.stdout)
        self.assertEqual(plain["peak_bytes_planned"], plain["peak_bytes_measured"])
        self.assertLessEqual(plain["peak_bytes_written"], plain["peak_bytes_measured"])
        self.assertGreaterEqual(plain["process_touched_bytes"], plain["peak_bytes_written"])
        self.assertGreater(plain["process_touched_before_bytes"], 0)
        self.assertGreaterEqual(plain["process_allocated_bytes"], plain["peak_bytes_measured"])
        self.assertIn(f"measured {plain['peak_bytes_measured']}, written "
                      f"{plain['peak_bytes_written']}", done.stderr)
        said = "before (program and libraries)"
        self.assertIn(said, done.stderr)
        self.assertTrue(said in (self.out / "report.html").read_text())
        weights = self.weights()
        again = self.dir / "checked"
        checked = json.loads(self.expect_ok(self.train("--json", "--check", "--out", again)).stdout)
        self.assertEqual(checked["peak_bytes_measured"], plain["peak_bytes_measured"])
        self.assertEqual(self.weights(again)["model.safetensors"], weights["model.safetensors"])


if __name__ == "__main__":
    unittest.main()
