"""A run that was stored by this release, in tests/cli/stored_run: every later build reads its checkpoint.

It holds all that a checkpoint can: f16 with a scaled loss, Adam's moments, --accumulate. What it was made by:
  tegula train --data text.txt --out run --model gpt2 --n-layers 1 --n-heads 2 --d-model 4 --d-ff 8 --seqlen 8 --batch 2 \\
    --accumulate 2 --steps 2 --lr 0.01 --lr-decay-steps 4 --warmup 1 --eval-every 0 --threads 1 --dtype f16 --loss-scale 256 --seed 3
on the text of case.py. A release that changes the format stores its own beside it.
"""

import json
import pathlib
import shutil
import unittest

from case import INPUT, CliTest

STORED = pathlib.Path(__file__).resolve().parent / "stored_run"
FLAGS = ("--batch 2 --accumulate 2 --lr 0.01 --lr-decay-steps 4 --warmup 1 --eval-every 0 --threads 1 --dtype f16 --loss-scale 256 "
         "--seed 3 --json").split()
LOSS_BEFORE, LOSS_AFTER = 3.06579327583313, 3.0436436579777646  # of the validation split after steps 2 and 4


class StoredRun(CliTest):
    def setUp(self):
        super().setUp()
        self.copy("run")

    def copy(self, name):
        run = self.dir / name
        shutil.copytree(STORED, run)
        (run / "latest").symlink_to("checkpoints/step-000002")
        return run

    def resume(self, name, *flags):
        return self.run_tool("train", "--data", self.text, "--out", self.dir / name, "--resume", *FLAGS, *flags)

    def test_it_is_a_model(self):
        done = self.expect_ok(self.run_tool("generate", "--model", self.dir / "run", "--prompt", "line ", "--max-tokens", 2))
        self.assertTrue(done.stdout.startswith("line "))
        self.expect_ok(self.run_tool("info", self.dir / "run"))

    def test_it_goes_on(self):
        after = json.loads(self.expect_ok(self.resume("run", "--steps", 4)).stdout.splitlines()[-1])
        self.assertEqual(after["steps"], 4)
        self.assertAlmostEqual(after["val_loss"], LOSS_AFTER, delta=2e-5)
        # It began with the stored weights and moments: from others it would end elsewhere.
        self.assertLess(after["val_loss"], LOSS_BEFORE - .01)
        self.assertEqual(json.loads((self.dir / "run/checkpoints/best.json").read_text())["step"], 4)

    def test_it_goes_on_over_ranks(self):
        self.copy("many")
        for name, flags in (("run", ()), ("many", ("--mesh", "dp=2", "--zero", 1, "--processes", 2))):
            after = json.loads(self.expect_ok(self.resume(name, "--steps", 4, *flags)).stdout.splitlines()[-1])
            self.assertAlmostEqual(after["val_loss"], LOSS_AFTER, delta=2e-5)

    def test_a_newer_format_is_refused(self):
        manifest = self.dir / "run/checkpoints/step-000002/manifest.json"
        text = manifest.read_text()
        self.assertIn('"tegula-checkpoint-1"', text)
        manifest.write_text(text.replace("tegula-checkpoint-1", "tegula-checkpoint-2"))
        why = "has the format 'tegula-checkpoint-2', and this version reads tegula-checkpoint-1: it was written by a newer version"
        self.expect_error(self.resume("run", "--steps", 4), INPUT, why, lines_before=True)
        self.expect_error(self.run_tool("generate", "--model", self.dir / "run", "--prompt", "l"), INPUT, why, lines_before=True)


if __name__ == "__main__":
    unittest.main()
