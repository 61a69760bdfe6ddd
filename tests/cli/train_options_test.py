"""Options of a training run: f16 with a scaled loss, and the order of batches from a file."""

import json
import re
import unittest
from xml.etree import ElementTree

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


class DeviceMemory(CliTest):
    MODEL = ("--n-layers", 6, "--d-model", 32, "--seqlen", 64, "--batch", 8, "--tokenizer", "bytes")

    def plan(self, *flags):
        done = self.run_tool("plan", "--json", *self.MODEL, "--n-heads", 2, "--threads", 1,
                             "--data", self.text, *flags)
        return done

    def test_recomputes_until_all_fits(self):
        whole = json.loads(self.expect_ok(self.plan()).stdout)
        total = whole["state_bytes"] + whole["arena_bytes"]
        self.assertEqual(json.loads(self.expect_ok(
            self.plan("--device-memory", total)).stdout)["arena_bytes"], whole["arena_bytes"])
        budget = whole["state_bytes"] + whole["arena_bytes"] * 3 // 4
        less = json.loads(self.expect_ok(self.plan("--device-memory", budget)).stdout)
        self.assertEqual(less["state_bytes"], whole["state_bytes"])
        self.assertLess(less["arena_bytes"], whole["arena_bytes"])
        self.assertLessEqual(less["device_bytes"], budget)
        self.assertEqual(less["device_bytes"], less["state_bytes"] + less["arena_bytes"])
        outs = []
        for name, flags in (("a", ()), ("b", ("--device-memory", budget))):
            out = self.dir / name
            done = self.expect_ok(self.train("--json", *self.MODEL, "--out", out, *flags))
            outs.append((out / "latest/model.safetensors").read_bytes())
        summary = json.loads(done.stdout)
        self.assertLessEqual(summary["peak_bytes_measured"], budget)
        self.assertIn("recomputed to fit", done.stderr)
        self.assertEqual(outs[0], outs[1])

    def test_too_small_names_what_would_do(self):
        whole = json.loads(self.expect_ok(self.plan()).stdout)
        done = self.train(*self.MODEL, "--device-memory", whole["state_bytes"] // 2)
        self.expect_error(done, (1, 3), "--device-memory", "MiB would do")
        would = [word for word in done.stderr.split() if word.endswith("MiB")][-1]
        self.expect_ok(self.train(*self.MODEL, "--device-memory", would))

    def test_refusals(self):
        for other in (("--memory", "1GiB"), ("--checkpoint", "sqrt")):
            self.expect_error(self.train("--device-memory", "1GiB", *other), INVALID, other[0])
        self.expect_error(self.train("--device-memory", "1GiB", "--mesh", "dp=2"), INVALID, "--mesh")


class Timeline(CliTest):
    def test_bars_and_table_make_the_step(self):
        page = self.dir / "timeline.html"
        done = self.expect_ok(self.train("--json", "--steps", 8, "--timeline", page))
        text = page.read_text()
        self.assertNotIn("<script", text)
        step_ms = json.loads(done.stdout)["step_ms"]
        self.assertIn(f"a step of {step_ms:.4f} ms", text)
        busy = float(re.search(r"ops take ([\d.]+) ms", text)[1])
        rows = re.findall(r"<td class=n>(\d+)</td><td class=n>([\d.]+)</td>", text)
        self.assertAlmostEqual(sum(float(ms) for _, ms in rows), busy, delta=1e-4 * len(rows))
        n_ops = int(re.search(r"(\d+) ops take", text)[1])
        self.assertEqual(sum(int(calls) for calls, _ in rows), n_ops)
        svg = ElementTree.fromstring(text[text.index("<svg"):text.index("</svg>") + 6])
        rects = [r for r in svg.iter() if r.tag.endswith("rect")]
        self.assertIn(len(rects), (n_ops, n_ops + 1))
        places = [(float(r.get("x")), float(r.get("width"))) for r in rects]
        self.assertEqual(places, sorted(places))
        for color in ("#3b78c3", "#c3553b", "#3f9150"):  # forward, backward, update
            self.assertTrue(any(r.get("fill") == color for r in rects), color)

    def test_refusals(self):
        page = self.dir / "timeline.html"
        done = self.train("--steps", 2, "--timeline", page)
        self.expect_error(done, INVALID, "--timeline", "2 steps", lines_before=True)
        self.expect_error(self.train("--timeline", self.text), INVALID, "--timeline", "--data")


if __name__ == "__main__":
    unittest.main()
