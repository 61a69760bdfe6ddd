"""Options of a training run: f16 with a scaled loss, and the order of batches from a file."""

import json
import unittest

from case import INVALID, CliTest


class LossScale(CliTest):
    HIGH = ("--dtype", "f16", "--loss-scale", 2**32, "--loss-scale-every", 2, "--steps", 30)

    def test_json_and_metrics_tell_scale_and_skips(self):
        done = self.expect_ok(self.train("--json", "--out", self.out, *self.HIGH))
        summary = json.loads(done.stdout)
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        rows = [row for row in rows if "loss" in row]
        self.assertEqual(len(rows), 30)
        self.assertEqual(rows[0]["loss_scale"], 2**32)
        halved = sum(a["loss_scale"] / 2 == b["loss_scale"] for a, b in zip(rows, rows[1:]))
        halved += rows[-1]["loss_scale"] / 2 == summary["loss_scale"]
        self.assertEqual(summary["skipped_steps"], halved)
        self.assertGreater(halved, 0)
        self.assertTrue((self.out / "report.html").exists())

    def test_resume_goes_on_with_the_scale(self):
        whole, parts = self.dir / "whole", self.dir / "parts"
        flags = self.HIGH + ("--lr-decay-steps", 30)
        self.expect_ok(self.train("--out", whole, *flags))
        self.expect_ok(self.train("--out", parts, *flags, "--steps", 7))
        self.expect_ok(self.train("--out", parts, *flags, "--resume"))
        self.assertEqual(self.weights(whole), self.weights(parts))

    def test_f32_scales_nothing(self):
        summary = json.loads(self.expect_ok(self.train("--json")).stdout)
        self.assertEqual((summary["loss_scale"], summary["skipped_steps"]), (1, 0))

    def test_refusals(self):
        self.expect_error(self.train("--loss-scale", 1024), INVALID, "--dtype f16")
        self.expect_error(self.train("--dtype", "f16", "--loss-scale", 1000), INVALID,
                          "no power of two", "512")


class Batches(CliTest):
    def lines(self, *rows):
        return self.write("order.txt", "".join(f"{a} {b}\n" for a, b in rows))

    def test_order_is_the_files(self):
        order = self.lines((0, 40), (9, 300), (12, 77), (500, 1))
        same = self.lines((0, 40), (9, 300), (12, 77), (500, 1))
        outs = []
        for name, file in (("a", order), ("b", same)):
            out = self.dir / name
            self.expect_ok(self.train("--out", out, "--batches", file))
            outs.append((out / "latest/model.safetensors").read_bytes())
        self.assertEqual(outs[0], outs[1])
        turned = self.lines((500, 1), (12, 77), (9, 300), (0, 40))
        self.expect_ok(self.train("--out", self.dir / "c", "--batches", turned))
        self.assertNotEqual(outs[0], (self.dir / "c/latest/model.safetensors").read_bytes())

    def test_resume_notes_another_order(self):
        order = self.lines((0, 40), (9, 300), (12, 77), (500, 1))
        self.expect_ok(self.train("--out", self.out, "--batches", order, "--steps", 2))
        done = self.expect_ok(self.train("--out", self.out, "--resume", "--steps", 4))
        self.assertIn("batches_sha256", done.stderr)

    def test_refusals(self):
        def refuse(text, *words):
            done = self.train("--batches", self.write("order.txt", text))
            self.expect_error(done, INVALID, *words)
        refuse("0 1\n2 3 4\n", "order.txt:2", "3 places", "a batch has 2")
        refuse("0 1\n2 999999\n", "order.txt:2", "999999", "training split")
        refuse("0 1\n2 3\n", "2 batches", "--steps 4")
        refuse("0 one\n", "order.txt:1", "no whole number")
        done = self.train("--batches", self.dir / "none.txt")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("none.txt", done.stderr)


if __name__ == "__main__":
    unittest.main()
