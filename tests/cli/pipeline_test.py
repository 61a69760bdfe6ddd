"""Pipelines on ranks: in mode exact the files of one rank that accumulates, byte for byte, whatever the schedule; what a rank does, holds and
sends as planned; a run goes on on another mesh; what cannot be is refused with its numbers."""

import html
import itertools
import json
import math
import os
import re
import signal
import subprocess
import time
import unittest

from case import CliTest, INPUT, TEGULA, USAGE

RUN = ("--batch 4 --seqlen 32 --n-layers 4 --n-heads 4 --d-model 64 --warmup 1 --eval-every 0 --lr 0.01 --threads 1 --json "
       "--mode exact").split()
PLAN = "--n-layers 4 --n-heads 4 --d-model 64 --threads 1 --mode exact".split()
FILES = ("model.safetensors", "optimizer.safetensors", "config.json", "trainer_state.json")
LLAMA, GPT2 = ("--model", "llama", "--n-kv-heads", "2"), ("--model", "gpt2")
SCHEDULES = [("gpipe", 2, 4, 2), ("1f1b", 4, 4, 1), ("interleaved", 2, 4, 1), ("zb-h1", 4, 4, 2), ("zb-h2", 2, 4, 1), ("zb-v", 2, 4, 2),
             ("chimera", 4, 8, 1), ("dualpipe", 2, 4, 2), ("in_turns", 2, 4, 1)]  # pp, micro-batches, processes


class Pipelines(CliTest):
    def train(self, out, *flags, steps=3):
        done = self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / out, "--steps", steps, *RUN, *flags))
        return json.loads(done.stdout.splitlines()[-1])

    def files(self, out):
        return {name: (self.dir / out / "latest" / name).read_bytes() for name in FILES}

    def one(self, *flags):
        name = "one " + " ".join(map(str, flags)).replace("/", "_")
        if not (self.dir / name).exists():
            self.train(name, *flags)
        return name

    def check(self, flags, *pipeline):
        one, out = self.one(*flags), "pipeline"
        summary = self.train(out, "--overwrite", *flags, *pipeline)
        for rank in summary["ranks"]:
            for what in ("flops", "sent_bytes", "peak_bytes"):
                self.assertEqual(rank[what], rank[what + "_planned"], what)
            self.assertGreater(rank["sent_bytes"], 0)
        self.assertEqual(self.files(one), self.files(out))
        return summary


class Bits(Pipelines):
    def test_every_schedule_has_the_files_of_one_rank(self):
        for (name, pp, m, processes), (model, dtype) in zip(SCHEDULES, itertools.cycle(((LLAMA, "f32"), (GPT2, "bf16"), (GPT2, "f32")))):
            with self.subTest(schedule=name, pp=pp, dtype=dtype, model=model):
                self.check((*model, "--dtype", dtype, "--accumulate", m), "--mesh", f"pp={pp}", "--schedule", name, "--processes", processes)

    def test_other_axes_beside(self):
        for mesh, more in (("pp=2,dp=2", ""), ("pp=2,dp=2", "--zero 1 --processes 2"), ("pp=2,tp=2", "--schedule zb-h1"),
                           ("cp=2,pp=2", "--processes 4"), ("pp=2,dp=2", "--schedule zb-v --processes 4 --transport tcp"), ("pp=2,dp=4", "--schedule gpipe")):
            with self.subTest(mesh=mesh, more=more):
                self.check((*LLAMA, "--accumulate", 4), "--mesh", mesh, *more.split())

    def test_experts_dropout_and_a_scaled_loss(self):
        moe = "--model moe --n-experts 4 --capacity-factor 1 --balance-loss 0.05 --accumulate 2".split()
        self.check(tuple(moe), "--mesh", "pp=2,ep=2")
        self.check((*GPT2, "--dropout", "0.1", "--dtype", "f16", "--accumulate", 4), "--mesh", "pp=2", "--schedule", "zb-h1")
        self.check((*LLAMA, "--accumulate", 1), "--mesh", "pp=4")

    def test_stages_where_they_are_said(self):
        self.check((*GPT2, "--accumulate", 4), "--mesh", "pp=2", "--stages-at", "0,3")
        self.check((*GPT2, "--accumulate", 4), "--mesh", "pp=2", "--schedule", "interleaved", "--interleave", 2, "--stages-at", "0,1,2,3")

    def test_a_run_goes_on_on_other_ranks(self):
        flags = (*GPT2, "--accumulate", 4, "--lr-decay-steps", 6)
        one = self.one(*flags)
        self.train(one, *flags, "--resume", steps=6)
        self.train("many", *flags, "--mesh", "pp=2", "--processes", 2, steps=2)
        self.train("many", *flags, "--resume", "--mesh", "dp=2,pp=2", "--schedule", "gpipe", steps=4)
        self.train("many", *flags, "--resume", steps=5)
        self.train("many", *flags, "--resume", "--mesh", "pp=4", "--schedule", "chimera", "--processes", 4, steps=6)
        self.assertEqual(self.files(one), self.files("many"))

    def test_losses_are_those_of_one_rank(self):
        flags = (*LLAMA, "--accumulate", 4, "--dtype", "bf16")
        one, many = self.train("one", *flags), self.train("many", *flags, "--mesh", "pp=2")
        for what in ("train_loss", "val_loss", "train_split_loss"):
            self.assertEqual(one[what], many[what])


class Faults(Pipelines):
    def test_a_loss_that_is_not_finite_names_the_op(self):
        flags = ("train", "--data", self.text, "--out", self.out, "--steps", 3, *RUN, *GPT2, "--accumulate", 2, "--lr", "1e30", "--min-lr", "1e30",
                 "--grad-clip", 0)
        one = self.run_tool(*flags)
        many = self.run_tool(*flags, "--overwrite", "--mesh", "pp=2")
        self.expect_error(one, INPUT, "NaN", "layer_norm_bwd", "in head", lines_before=True)
        self.expect_error(many, INPUT, "NaN", "layer_norm_bwd", "in head", lines_before=True)

    def test_a_killed_rank_is_started_anew(self):
        flags = (*GPT2, "--accumulate", 4, "--save-every", 2)
        one = self.one(*flags, "--lr-decay-steps", 40)
        self.train(one, *flags, "--lr-decay-steps", 40, "--resume", steps=40)
        tool = subprocess.Popen([TEGULA, "train", "--data", self.text, "--out", self.out, "--steps", "40", *map(str, RUN), *map(str, flags),
                                 "--lr-decay-steps", "40", "--mesh", "pp=2", "--processes", "2", "--restart", "2"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not (self.out / "latest").exists() and tool.poll() is None:
            time.sleep(.05)
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(tool.pid)], capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(children[-1]), signal.SIGKILL)
        _, told = tool.communicate(timeout=120)
        self.assertEqual(tool.returncode, 0, told)
        self.assertIn("was killed by signal 9", told)
        self.assertEqual(self.files(one)["model.safetensors"], (self.out / "latest" / "model.safetensors").read_bytes())


class Timelines(Pipelines):
    def test_each_rank_runs_its_list_beside_the_simulated_one(self):
        for schedule, mesh, m, processes, more in (("1f1b", {"pp": 2}, 4, 1, ()), ("zb-h1", {"pp": 2, "dp": 2}, 8, 4, ("--zero", 1)),
                                                   ("chimera", {"pp": 2, "tp": 2}, 4, 2, ()), ("interleaved", {"pp": 2}, 4, 2, ())):
            with self.subTest(schedule=schedule, mesh=mesh, processes=processes):
                self.check_page(schedule, mesh, m, processes, more)

    def check_page(self, schedule, mesh, m, processes, more):
        page = self.dir / "timeline.html"
        text = ",".join(f"{axis}={n}" for axis, n in mesh.items())
        self.train("out", "--overwrite", *GPT2, "--accumulate", m, "--mesh", text, "--schedule", schedule, "--processes", processes, *more,
                   "--timeline", page, steps=4)
        measured, simulated = page.read_text().split("<h2>The schedule, simulated</h2>")
        self.assertIn(f"<h1>A training step on {text}, {schedule}: gpt2, f32", measured)
        ranks = math.prod(mesh.values())
        self.assertEqual(re.findall(r">rank (\d+)</text>", measured), list(map(str, range(ranks))))
        bars = [[] for _ in range(2 * ranks)]  # of each row: what, begin, end
        for y, what, ms, begin in re.findall(r'y="(\d+)" width=[^>]+><title>([^:]+): ([\d.]+) ms from ([\d.]+)<', measured):
            bars[int(y) // 34].append((html.unescape(what), float(begin), float(begin) + float(ms)))
        lists = {}  # of each place along pp: what is simulated, in its order
        for place, what in re.findall(r"<title>rank (\d+), ([^:]+): ", simulated):
            lists.setdefault(int(place), []).append(html.unescape(what))
        self.assertEqual(len(lists), mesh["pp"])
        by_list, own = {}, m // mesh.get("dp", 1)
        for rank in range(ranks):
            parts = [bar for bar in bars[2 * rank] if not bar[0].startswith("sums joined")]
            self.assertTrue(all(a[2] <= b[1] + .001 for a, b in itertools.pairwise(parts)))  # one after another
            names = [what for what, _, _ in parts]
            self.assertIn(names, list(lists.values()))
            by_list.setdefault(tuple(names), []).append(rank)
            self.assertEqual(len(set(names)), len(names))
            backward = ["weight_gradient"] if schedule == "zb-h1" else ["backward"]  # nothing else waits for the first stage's
            for what in ["forward", *backward]:
                runs = [name for name in names if re.search(rf"'s {what} of micro-batch \d+$", name)]
                self.assertEqual(len(runs), own * (2 if schedule == "interleaved" else 1), names)
            self.assertTrue(any(re.match(r"wait for .* of micro-batch \d+, pp [01] to [01]$", what) for what, _, _ in bars[2 * rank + 1]))
            if "tp" in mesh:  # exchanges within parts
                self.assertTrue(any(re.match(r"all_gather of .* in stage \d's forward of micro-batch", what) for what, _, _ in bars[2 * rank + 1]))
        self.assertEqual([len(of) for of in by_list.values()], [ranks // mesh["pp"]] * mesh["pp"])


class Plans(Pipelines):
    def test_a_plan_has_what_a_run_measures(self):
        flags = (*GPT2, "--accumulate", 4, "--mesh", "pp=2,dp=2", "--schedule", "zb-h1")
        run = self.train("run", *flags, "--tokenizer", "bytes")
        plan = json.loads(self.expect_ok(self.run_tool("plan", *"--batch 4 --seqlen 32 --n-layers 4 --n-heads 4 --d-model 64 --threads 1 --json".split(),
                                                       "--vocab-size", 256, "--mode", "exact", *flags, "--target", "zen4")).stdout.splitlines()[-1])
        self.assertEqual(plan["mesh"], "pp=2,dp=2")
        self.assertEqual(len(plan["cuts"]), 1)
        self.assertEqual(plan["micro_batches"], 2)
        self.assertGreater(plan["seconds"], 0)
        for planned, measured in zip(plan["ranks"], run["ranks"], strict=True):
            self.assertGreater(planned["messages"], 0)
            self.assertLess(planned["flow_bytes"], planned["peak_bytes"])
            self.assertEqual(planned["sent_bytes"], measured["sent_bytes"])

    def test_what_the_other_axes_do_is_said(self):
        """The notes of a mesh without a pipeline, in the plan and in the run."""
        flags = (*PLAN, *LLAMA, "--seqlen", 64, "--batch", 4, "--accumulate", 2, "--mesh", "pp=2,cp=2")
        for command in (("plan", "--vocab-size", 64), ("train", "--data", self.text, "--out", self.out, "--steps", 1)):
            done = self.expect_ok(self.run_tool(*command, *flags))
            for note in ("64 tokens has 1 shard, which 2 ranks cannot share", "attention gathers keys and values"):
                self.assertIn(note, done.stderr, command)

    def test_collectives_without_a_kernel_are_refused(self):
        flags = (*PLAN, *LLAMA, "--seqlen", 32, "--batch", 256, "--accumulate", 2, "--mesh", "pp=2,dp=128", "--vocab-size", 64)
        self.expect_error(self.run_tool("plan", *flags), INPUT, "over the 128 ranks of dp", "at most 64")

    def test_sleeping_parts_take_what_is_simulated(self):
        """As far as a machine with other work can tell; TEGULA_QUIET=1 on one without holds 1.05."""
        quiet = "TEGULA_QUIET" in os.environ
        for name, p, m in (("1f1b", 4, 8), ("zb-h1", 4, 8), ("chimera", 4, 8), ("zb-v", 2, 6), ("dualpipe", 4, 8), ("gpipe", 8, 8)):
            with self.subTest(schedule=name, processes=p):
                done = self.expect_ok(self.run_tool("bench", "pipeline", "--schedule", name, "--processes", p, "--accumulate", m, "--part-ms", 8,
                                                    "--steps", 10 if quiet else 3, "--json"))
                row = json.loads(done.stdout.splitlines()[-1])
                self.assertGreaterEqual(row["step_ms"], .97 * row["simulated_ms"])
                self.assertLessEqual(row["step_ms"], (1.05 if quiet else 1.8) * row["simulated_ms"])
        self.expect_error(self.run_tool("bench", "pipeline", "--schedule", "chimera", "--processes", 3), USAGE, "3 ranks cannot be paired")
        self.expect_error(self.run_tool("bench", "pipeline", "--part-ms", "1,2"), USAGE, "--part-ms has 2")


class Refused(Pipelines):
    def test_what_cannot_be(self):
        for flags, why in ((("--mesh", "pp=8"), ("pp=8", "4 layers", "take pp=4")),
                           (("--mesh", "pp=4", "--schedule", "interleaved"), ("4 layers", "8 stages", "take pp=2")),
                           (("--mesh", "pp=2", "--schedule", "dualpipe", "--accumulate", 2), ("dual_pipe", "2 ranks and 2 micro-batches")),
                           (("--mesh", "pp=2", "--schedule", "chimera", "--accumulate", 3), ("3 micro-batches", "even --accumulate")),
                           (("--mesh", "pp=3", "--schedule", "chimera", "--accumulate", 4), ("3 ranks cannot be paired",)),
                           (("--mesh", "pp=2", "--schedule", "forward"), ("trains nothing",)),
                           (("--mesh", "pp=2,dp=2", "--zero", 2), ("--zero 2", "--zero 1")),
                           (("--mesh", "pp=2,dp=2", "--zero", 3), ("--zero 3", "--zero 1")),
                           (("--schedule", "gpipe"), ("--schedule", "axis pp")),
                           (("--interleave", 2, "--mesh", "dp=2"), ("--interleave", "axis pp")),
                           (("--mesh", "pp=2", "--interleave", 2), ("one_f_one_b", "4 stages")),
                           (("--mesh", "pp=2", "--stages-at", "0,5"), ("--stages-at 0,5", "4 layers")),
                           (("--mesh", "pp=2", "--stages-at", "1,2"), ("--stages-at 1,2", "first 0")),
                           (("--mesh", "pp=4", "--stages-at", "0,2,1,3"), ("a stage at layer 1 behind one at 2",)),
                           (("--mesh", "pp=4", "--stages-at", "0,2"), ("2 stages", "has 4")),
                           (("--mesh", "pp=2", "--memory", "1MiB"), ("--memory",))):
            with self.subTest(flags=flags):
                run = ("train", "--data", self.text, "--out", self.out, "--steps", 2, *RUN, *GPT2)
                self.expect_error(self.run_tool(*run, *flags), USAGE, *why)


if __name__ == "__main__":
    unittest.main()
