"""Training as its users meet it: what is planned, what a resume may change, what is evaluated."""

import json
import re
import unittest

from case import CliTest


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


if __name__ == "__main__":
    unittest.main()
