"""Faults lose no data: damaged checkpoints, full disks, NaN, signals, and kill -9.

$TEGULA_KILLS says how many times Kill9 kills.
"""

import errno
import json
import os
import random
import resource
import signal
import subprocess
import time
import unittest

from case import CliTest, FAILED, INVALID, SECONDS

KILLS = int(os.environ.get("TEGULA_KILLS", "6"))


class Checkpoints(CliTest):
    def damage(self, file, how):
        content = bytearray(file.read_bytes())
        if how == "truncated":
            del content[len(content) // 2:]
        else:
            content[-1] ^= 1
        file.write_bytes(content)

    def test_a_damaged_file_is_named(self):
        for how in ("truncated", "altered"):
            for name in ("model.safetensors", "optimizer.safetensors", "trainer_state.json"):
                out = self.dir / how / name
                self.expect_ok(self.train("--out", out))
                self.damage(out / "latest" / name, how)
                done = self.train("--out", out, "--resume", "--steps", 6)
                self.expect_error(done, FAILED, name, "none of the checkpoints")
                if name == "model.safetensors":
                    done = self.run_tool("generate", "--model", out, "--prompt", " ")
                    # What lies in the file is looked at with the first tokens, after the notes.
                    self.expect_error(done, FAILED, name, lines_before=how == "altered")

    def test_an_older_good_checkpoint_serves_and_the_damage_is_told(self):
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", whole, "--steps", 6))
        self.expect_ok(self.train("--out", self.out, "--steps", 6, "--save-every", 3))
        self.damage(self.out / "latest" / "model.safetensors", "altered")
        done = self.expect_ok(self.train("--out", self.out, "--steps", 6, "--resume"))
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: damaged")]
        self.assertEqual(len(notes), 1)
        self.assertIn("model.safetensors", notes[0])
        self.assertIn("going on from step 3", notes[0])
        self.assertEqual(self.weights(), self.weights(whole))

    def test_resume_without_a_run(self):
        self.expect_error(self.train("--out", self.dir / "no", "--resume"), INVALID,
                          "holds no checkpoint")

    def test_resume_of_another_run(self):
        self.expect_ok(self.train("--out", self.out))
        resume = ("--out", self.out, "--resume", "--steps", 6)
        self.expect_error(self.train(*resume, "--batch", 3), INVALID, "batch 2", "now it is 3")
        self.expect_error(self.train(*resume, "--d-model", 32), INVALID)
        done = self.expect_ok(self.train(*resume, "--lr", "1e-4"))
        self.assertIn("had lr 0.001, now it is 1e-04", done.stderr)

    def test_resume_of_a_finished_run_changes_nothing(self):
        self.expect_ok(self.train("--out", self.out))
        before = {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()}
        done = self.expect_ok(self.train("--out", self.out, "--resume"))
        self.assertIn("nothing is left to do", done.stderr)
        self.assertEqual(before, {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()})

    def test_no_steps_save_the_model_as_it_begins(self):
        self.expect_ok(self.train("--out", self.out, "--steps", 0))
        done = self.run_tool("generate", "--model", self.out, "--prompt", "l", "--max-tokens", 2)
        self.expect_ok(done)

    def test_another_run_is_not_overwritten(self):
        self.expect_ok(self.train("--out", self.out))
        before = self.weights(), (self.out / "metrics.jsonl").read_bytes()
        self.expect_error(self.train("--out", self.out, "--steps", 2), INVALID,
                          "holds a run, saved at step 4", "--resume goes on")
        self.assertEqual(before, (self.weights(), (self.out / "metrics.jsonl").read_bytes()))

    def test_out_that_cannot_be(self):
        self.expect_error(self.train("--out", self.write("file", "")), FAILED, "Not a directory")
        self.write("other/model.safetensors", "precious")
        self.expect_error(self.train("--out", self.dir / "other"), INVALID, "model.safetensors",
                          "another")
        self.assertEqual((self.dir / "other/model.safetensors").read_text(), "precious")

    def test_nan_keeps_the_last_good_checkpoint(self):
        self.expect_ok(self.train("--out", self.out))
        before = self.weights()
        for accumulate in (1, 2):
            out = self.dir / f"nan{accumulate}"
            flags = ("--accumulate", accumulate, "--warmup", 0, "--grad-clip", 0, "--save-every", 1)
            self.expect_ok(self.train(*flags, "--out", out))
            before = self.weights(out)
            done = self.train(*flags, "--out", out, "--resume", "--steps", 50, "--lr", "1e30",
                              "--min-lr", "1e30", "--save-every", 0)
            self.expect_error(done, INVALID, "step 6:", "NaN", "came from op ", "is kept",
                              "Lower --lr", lines_before=True)
            self.assertEqual(before, self.weights(out))

    def test_full_disk_keeps_the_last_checkpoint(self):
        self.expect_ok(self.train("--out", self.out))
        before = self.weights()
        def limit():  # as a full disk, for a process that may not write beyond this size
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        done = self.train("--out", self.out, "--resume", "--steps", 6, preexec_fn=limit)
        self.expect_error(done, FAILED, "cannot write", "checkpoints/step-000006/", "EFBIG",
                          lines_before=True)
        self.assertEqual(before, self.weights())
        self.assertEqual([], [n for n in os.listdir(self.out / "checkpoints") if "tmp" in n])
        self.expect_ok(self.train("--out", self.out, "--resume", "--steps", 6))

    def test_metrics_that_cannot_be_written_cost_no_training(self):
        """A limit on files that holds a checkpoint but not the rows of a long run."""
        most = 120000
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        done = self.train("--out", self.out, "--steps", 1500, "--json", preexec_fn=limit)
        self.expect_error(done, FAILED, "metrics.jsonl", "EFBIG", lines_before=True)
        self.assertEqual(json.loads(self.weights()["trainer_state.json"])["step"], 1500)
        rows = (self.out / "metrics.jsonl").read_text().splitlines()
        self.assertGreater(len(rows), 100)
        self.assertEqual(json.loads(rows[-1])["step"], len(rows))

    def test_full_file_system(self):
        small = self.dir / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("needs root, to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", "-l", small])
        out = small / "out"
        self.expect_ok(self.train("--out", out, "--save-every", 0))
        before = self.weights(out)
        done = self.train("--out", out, "--resume", "--steps", 5000, "--save-every", 100)
        self.expect_error(done, FAILED, "cannot write", "The disk is full", lines_before=True)
        with self.assertRaises(OSError) as full:  # it is indeed
            (small / "x").write_bytes(b"x" * (1 << 20))
        self.assertEqual(full.exception.errno, errno.ENOSPC)
        (small / "x").unlink()
        self.assertGreaterEqual(set(self.weights(out)), set(before))
        self.expect_ok(self.run_tool("generate", "--model", out, "--prompt", "l",
                                     "--max-tokens", 3))


class Signals(CliTest):
    LONG = ("--steps", 3000, "--dropout", 0.1, "--lr", "1e-3", "--save-every", 0)

    def test_signals_save_and_resume_gives_the_same_bits(self):
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", whole, *self.LONG))
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            out = self.dir / f"parts{code}"
            process = self.start("--out", out, *self.LONG)
            line = ""
            while not line.startswith("step "):
                line = process.stderr.readline()
            process.send_signal(number)
            tail = process.stderr.read().splitlines()
            self.assertEqual(process.wait(SECONDS), code)
            self.assertIn("stopped by a signal after step", tail[-1])
            self.assertIn("--resume goes on", tail[-1])
            self.assertTrue((out / "report.html").exists())
            done = self.expect_ok(self.train("--out", out, "--resume", *self.LONG))
            self.assertIn("resumed after step", done.stderr)
            self.assertEqual(self.weights(whole), self.weights(out))
            rows = (out / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(r)["step"] for r in rows if "val_loss" not in r]
            self.assertEqual(steps, list(range(1, 3001)))

    def test_a_signal_without_out_says_that_nothing_is_saved(self):
        process = self.start("--steps", 10**9)
        while not process.stderr.readline().startswith("step "):
            pass
        process.send_signal(signal.SIGINT)
        self.assertIn("nothing is saved", process.stderr.read())
        self.assertEqual(process.wait(SECONDS), 130)


class Kill9(CliTest):
    def test_kill_9_at_any_moment_resumes(self):
        """A run that saves at every step, killed again and again, ends with the bits of one that
        never was."""
        seed = int(os.environ.get("TEGULA_SEED", time.time_ns() % 10**6))
        draw = random.Random(seed)
        # A constant learning rate, so that a run of any length has the same beginning.
        flags = ("--dropout", 0.1, "--warmup", 0, "--lr", "1e-3", "--min-lr", "1e-3")
        endless = ("--out", self.out, "--save-every", 1, "--steps", 10**6, *flags)
        start = time.monotonic()
        process = self.start(*endless)
        while not (self.out / "latest").exists():
            time.sleep(0.001)
        first_save = time.monotonic() - start
        step = in_save = 0
        for kill in range(KILLS):
            time.sleep(draw.uniform(0, 3 * first_save))  # a third of them while it starts
            self.assertIsNone(process.poll(), f"seed {seed}, kill {kill}: it ended by itself")
            process.kill()
            process.communicate()
            in_save += any("tmp" in n for n in os.listdir(self.out / "checkpoints"))
            state = json.loads((self.out / "latest" / "trainer_state.json").read_text())
            self.assertGreaterEqual(state["step"], step, f"seed {seed}, kill {kill}: went back")
            step = state["step"]
            process = self.start(*endless, "--resume")
        process.kill()
        process.communicate()
        end = json.loads((self.out / "latest" / "trainer_state.json").read_text())["step"] + 3
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", self.out, "--resume", *flags, "--steps", end))
        self.expect_ok(self.train("--out", whole, *flags, "--steps", end))
        self.assertEqual(self.weights(), self.weights(whole), f"seed {seed}")
        print(f"killed {KILLS} times, {in_save} of them in the middle of a save; {end} steps; "
              f"seed {seed}")


if __name__ == "__main__":
    unittest.main(defaultTest=os.environ.get("TEGULA_ONLY"))
