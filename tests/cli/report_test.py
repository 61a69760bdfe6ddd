"""What a run shows: the progress line, the report, the picture of the README."""

import fcntl
import html
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unittest
import xml.etree.ElementTree

from case import CliTest, SECONDS, SMALL, TEGULA


class Terminal(CliTest):
    def test_the_progress_line_is_rewritten_and_never_wraps(self):
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        process = subprocess.Popen([TEGULA, "train", "--data", self.text, *SMALL, "--steps", "3000",
                                    "--out", self.out], stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(main, 4096)
            except OSError:  # the other end is closed
                break
        os.close(main)
        self.assertEqual(process.communicate(timeout=SECONDS)[0], b"")
        self.assertEqual(process.returncode, 0)
        steps = [piece for line in shown.decode().split("\n") for piece in line.split("\r\033[K")
                 if piece.startswith("step ") and "validation" not in piece]
        self.assertGreaterEqual(len(steps), 2)
        for piece in steps:
            self.assertLess(len(piece.rstrip("\r")), 60)


class Report(CliTest):
    def test_the_report_is_one_page_that_needs_nothing_else(self):
        flags = ("--out", self.out, "--eval-every", 2)
        self.expect_ok(self.train(*flags))
        self.expect_ok(self.train(*flags, "--resume", "--steps", 8))
        page = (self.out / "report.html").read_text()
        self.assertNotIn("<script", page)
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"https?:|src=|href=")
        self.assertIn("prefers-color-scheme:dark", page)
        self.assertRegex(page, r"MFU [0-9.]+ %, HFU [0-9.]+ %")
        for title in ("Loss", "Learning rate, gradient norm, throughput", "Samples",
                      "Predicted beside measured", "Time per part of the model", "Time per op", "Roofline", "Memory of the plan",
                      "Configuration"):
            self.assertIn(f"<h2>{title}</h2>", page)
        self.assertEqual(page.count(">equal<"), 2)
        charts = [xml.etree.ElementTree.fromstring(c)
                  for c in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
        self.assertEqual(len(charts), 6)
        # The whole run is drawn, also what went before the resume: evaluations at 2, 4, 6 and 8.
        titles = ["".join(t.itertext()) for t in charts[0].iter() if t.tag.endswith("title")]
        self.assertEqual([t.split(":")[0] for t in titles], [f"step {n}" for n in (2, 4, 6, 8)])
        # The parts of the model and the ops each take all of a step.
        total = re.findall(r"<tr><td>all</td>.*?</tr>", page)
        parts, ops = (re.findall(r"<td>([^<]*)</td>", row) for row in total)
        self.assertEqual((parts[3], parts[7]), (ops[3], ops[4]))
        names = re.findall(r"<tr><td>([\w.*]+)</td>", page[page.index('id="places"'):page.index("Time per op<")])
        self.assertEqual(set(names), {"embedding", "layers.*", "layers.*.attn", "layers.*.mlp", "head", "other", "all"})
        # Every op of the table stands in the roofline.
        ops = set(re.findall(r"<tr><td>(\w+)<small>", page))
        drawn = {"".join(t.itertext()).split(" (")[0] for t in charts[4].iter()}
        self.assertGreater(len(ops), 5)
        self.assertLessEqual(ops, drawn)

    def page(self, *flags):
        self.expect_ok(self.train("--out", self.out, *flags))
        return (self.out / "report.html").read_text()

    def test_curves_of_every_step(self):
        page = self.page("--steps", 40, "--warmup", 20, "--lr", 0.25)
        charts = [xml.etree.ElementTree.fromstring(c)
                  for c in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        steps = [row for row in rows if "lr" in row]
        self.assertEqual(len(steps), 40)
        for chart, values in zip(charts[1:], ([row["lr"] for row in steps],
                                              [row["grad_norm"] for row in steps],
                                              [1 / row["step_ms"] for row in steps])):
            line = next(p for p in chart.iter() if p.get("class", "").startswith("line"))
            drawn = [tuple(map(float, point.split())) for point in
                     re.split("[ML]", line.get("d"))[1:]]
            self.assertEqual(len(drawn), 40)
            # Higher values stand higher, that is, at smaller y: in proportion.
            low, high = min(values), max(values)
            bottom, top = max(y for _, y in drawn), min(y for _, y in drawn)
            for value, (_, y) in zip(values, drawn):
                self.assertAlmostEqual((value - low) / (high - low), (bottom - y) / (bottom - top),
                                       delta=0.002)

    def test_numbers_on_axes_are_people_s(self):
        page = self.page("--steps", 40, "--n-layers", 2)
        labels = [html.unescape(t) for t in re.findall(r"<text[^>]*>(.*?)</text>", page)]
        self.assertFalse([t for t in labels if re.fullmatch(r"[0-9.]+ [mµnp]", t)])
        self.assertIn("0.1", labels)  # of the memory, in MiB
        self.assertIn("10", labels)   # of the steps

    def test_samples_are_what_the_model_writes(self):
        page = self.page()
        samples = re.findall(r'<pre class="sample"><span class="prompt">(.*?)</span>(.*?)</pre>',
                             page, re.DOTALL)
        self.assertEqual(len(samples), 2)
        for seed, (prompt, text) in enumerate(samples, 1):
            self.assertIn(html.unescape(prompt), self.text.read_text())
            again = self.expect_ok(self.run_tool(
                "generate", "--model", self.out, "--prompt", html.unescape(prompt), "--max-tokens",
                160, "--seed", seed, "--threads", 1, "--json"))
            self.assertEqual(json.loads(again.stdout)["text"], html.unescape(text))

    def test_the_configuration_trains_the_same_again(self):
        """For every family: each flag of the command stands there, and gives the same bits."""
        # How a run is started is no setting; nor is what is at its default, which is to do nothing.
        no_setting = {"help", "config", "depth", "json", "resume", "overwrite", "init-from",
                      "memory", "lr-decay-steps", "tune-cache", "passes", "check", "mesh", "ranks", "zero", "ring",
                      "timeline", "batches", "processes", "restart", "transport", "address", "schedule", "interleave",
                      "stages-at", "device-memory", "loss-scale", "loss-scale-every", "superopt", "rules"}
        usage = self.expect_ok(self.run_tool("train", "--help")).stdout
        options = re.findall(r"^  (?:-\w,\s*)?--([\w-]+)(.*(?:\n {10}.*)?)", usage, re.MULTILINE)
        flags = {name for name, _ in options} - no_setting
        self.assertGreater(len(flags), 30)
        families = re.search(r"--model ([\w|]+)", usage)[1].split("|")
        self.assertLessEqual({"gpt2", "llama", "moe", "lstm", "mlp"}, set(families))
        # "Experts (moe)": whose it is, where not all have it.
        own = {name: set() for name in families}
        for flag, text in options:
            whose = re.search(r"\(([\w, ]+)\)\s*$", text)
            for family in whose[1].split(", ") if whose else ():
                if family in own:
                    own[family].add(flag)
        shared = set().union(*own.values())
        self.assertEqual(own["lstm"], {"tie-embeddings"})
        self.assertLessEqual({"n-experts", "capacity-factor"}, own["moe"] - own["llama"])
        for family in families:
            with self.subTest(family):
                out = self.dir / family
                self.expect_ok(self.run_tool(
                    "train", "--data", self.text, "--out", out, "--model", family, "--n-layers", 1,
                    "--d-model", 16, "--seqlen", 12, "--batch", 2, "--steps", 3, "--warmup", 1,
                    "--eval-every", 0, "--threads", 1, "--tokenizer", "bytes", "--beta2", 0.97,
                    "--dropout", 0.25, "--weight-decay", 0.3, "--seed", 7,
                    *(["--bias"] if "bias" in own[family] else []),
                    *(["--tie-embeddings", "false"] if "tie-embeddings" in own[family] else []),
                    *(["--positions", "sinusoid"] if "positions" in own[family] else []),
                    *(["--window", 5] if "window" in own[family] else [])))
                page = (out / "report.html").read_text()
                text = html.unescape(re.search(r'<pre id="config">(.*?)</pre>', page,
                                               re.DOTALL)[1])
                wanted = flags - shared | own[family]
                self.assertEqual(set(re.findall(r"^([\w-]+) = ", text, re.MULTILINE)), wanted)
                file = self.write("run.toml", text)
                again = self.dir / f"{family}-again"
                self.expect_ok(self.run_tool("train", "--config", file, "--out", again))
                self.assertEqual(self.weights(out)["model.safetensors"],
                                 self.weights(again)["model.safetensors"])

    def test_the_picture_of_the_readme(self):
        self.expect_ok(self.train("--out", self.out))
        picture = self.dir / "run.svg"
        subprocess.run([sys.executable, "tools/run_picture.py", self.out / "report.html", picture],
                       check=True)
        text = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
        self.assertRegex(text, r"parameters · FLOPs a step: planned ([^,]+), measured \1 · peak")


class Utilisation(CliTest):
    """MFU is of the model alone; what is computed again raises HFU and not MFU."""

    DEEP = ("--n-layers", 6, "--d-model", 16, "--seqlen", 48, "--batch", 4, "--steps", 3, "--eval-every", 0,
            "--threads", 1, "--json")

    def numbers(self, *flags):
        heads = () if {"lstm", "mlp"} & set(flags) else ("--n-heads", 2)
        done = self.expect_ok(self.run_tool("train", "--data", self.text, *self.DEEP, *heads, *flags))
        out = json.loads(done.stdout.splitlines()[-1])
        possible = out["peak_flops_per_s"] * out["step_ms"] / 1e3
        self.assertGreater(possible, 0)
        self.assertAlmostEqual(out["mfu"] * possible / out["model_flops_per_step"], 1, places=9)
        executed = out["model_flops_per_step"] + out["flops_per_step_recomputed"]
        self.assertAlmostEqual(out["hfu"] * possible / executed, 1, places=9)
        self.assertRegex(done.stderr, r"MFU [0-9]+%  HFU [0-9]+%")
        return out

    def test_what_is_computed_again_is_hfus_alone(self):
        for model in ("gpt2", "llama"):
            plain = self.numbers("--model", model)
            self.assertEqual(plain["flops_per_step_recomputed"], 0)
            self.assertEqual(plain["mfu"], plain["hfu"])
            for flags in (("--checkpoint", "sqrt"), ("--blockwise", 16),
                          ("--accumulate", 2, "--checkpoint", "sqrt"),
                          ("--mesh", "dp=2", "--checkpoint", "sqrt")):
                with self.subTest(model=model, flags=flags):
                    whole = [f for f in flags if f not in ("--checkpoint", "sqrt", "--blockwise", 16)]
                    kept = self.numbers("--model", model, *whole)
                    again = self.numbers("--model", model, *flags)
                    self.assertEqual(again["model_flops_per_step"], kept["model_flops_per_step"])
                    self.assertEqual(again["flops_per_step_recomputed"],
                                     again["flops_per_step_planned"] - kept["flops_per_step_planned"])
                    self.assertGreater(again["flops_per_step_recomputed"], 0)
                    self.assertGreater(again["hfu"], again["mfu"])

    def test_a_budget_of_memory(self):
        plain = self.numbers()
        refused = self.run_tool("train", "--data", self.text, *self.DEEP, "--n-heads", 2, "--memory", "1KiB")
        least = int(re.search(r"works is (\d+) bytes", refused.stderr)[1])
        again = self.numbers("--memory", least)
        self.assertEqual(again["model_flops_per_step"], plain["model_flops_per_step"])
        self.assertGreater(again["hfu"], again["mfu"])

    def test_model_flops_are_the_planners(self):
        for model in ("gpt2", "llama", "moe", "lstm", "mlp"):
            with self.subTest(model=model):
                out = self.dir / model
                flops = self.numbers("--model", model, "--out", out)["model_flops_per_step"]
                plan = self.expect_ok(self.run_tool("plan", out / "latest" / "config.json", "--json",
                                                    "--seqlen", 48))
                token = json.loads(plan.stdout)["flops_per_token_train"]
                self.assertEqual(flops, token * 4 * 48)


if __name__ == "__main__":
    unittest.main()
