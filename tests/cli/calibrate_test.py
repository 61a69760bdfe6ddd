"""tegula plan --calibrate: calls are timed once, kept, and read again."""

import json
import os
import unittest

from case import CliTest, USAGE

STEP = "--n-layers 2 --n-heads 2 --d-model 32 --seqlen 16 --batch 4 --vocab-size 65 --threads 1".split()


class Calibrate(CliTest):
    def plan(self, *arguments, cache="cache"):
        return self.run_tool("plan", *STEP, *arguments,
                             env={**os.environ, "XDG_CACHE_HOME": str(self.dir / cache)})

    def test_calls_are_timed_once_and_kept(self):
        first = self.expect_ok(self.plan("--calibrate", "--json"))
        self.assertIn("Timing", first.stderr)
        plan = json.loads(first.stdout)
        self.assertGreater(plan["predicted_s"], 0)
        self.assertLess(plan["predicted_low_s"], plan["predicted_high_s"])
        self.assertLess(plan["predicted_share_unknown"], 0.1)
        files = list((self.dir / "cache" / "tegula").glob("calibration-*.json"))
        self.assertEqual(len(files), 1)
        again = self.expect_ok(self.plan("--calibrate", "--json"))
        self.assertEqual(again.stderr, "")
        self.assertEqual(json.loads(again.stdout)["predicted_s"], plan["predicted_s"])
        deeper = self.expect_ok(self.plan("--calibrate", "--json", "--n-layers", 4))
        self.assertGreater(json.loads(deeper.stdout)["predicted_s"], 1.3 * plan["predicted_s"])
        # Three micro-batches and an update take less than three whole steps. They have calls of their own, timed
        # later: where others' work came between, both are timed anew.
        ratios = []
        for cache in ("cache", "another", "third"):
            one, three = (json.loads(self.expect_ok(self.plan("--calibrate", "--json", *more, cache=cache)).stdout)
                          for more in ((), ("--accumulate", 3)))
            ratios.append(three["predicted_s"] / one["predicted_s"])
            if 1.5 < ratios[-1] < 3.1:
                break
        self.assertTrue(1.5 < ratios[-1] < 3.1, ratios)
        self.assertIn("predicted", self.expect_ok(self.plan("--calibrate")).stdout)

    def test_what_it_is_not_for(self):
        for flags in (("--target", "h100"), ("--device", "cuda"), ("--mesh", "dp=2")):
            self.expect_error(self.plan("--calibrate", *flags), USAGE, "--calibrate")


if __name__ == "__main__":
    unittest.main()
