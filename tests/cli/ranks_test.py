"""Training over the ranks of a mesh: in mode exact the files of one rank, byte for byte, and what a rank does, holds and
sends as `tegula plan --mesh` says."""

import itertools
import json
import re
import unittest

from case import CliTest

RUN = ("--steps 3 --batch 8 --seqlen 32 --n-layers 2 --n-heads 4 --d-model 64 --warmup 1 --eval-every 0 --lr 0.01 "
       "--threads 1 --json").split()
MOE = "--model moe --n-experts 4 --capacity-factor 1 --balance-loss 0.05".split()
FILES = ("model.safetensors", "optimizer.safetensors", "config.json", "trainer_state.json")


class Ranks(CliTest):
    def train(self, out, *flags):
        done = self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / out, *RUN, *flags))
        return json.loads(done.stdout.splitlines()[-1])

    def files(self, out):
        return {name: (self.dir / out / "latest" / name).read_bytes() for name in FILES}

    def check_as_planned(self, run):
        for rank in run["ranks"]:
            for what in ("flops", "sent_bytes", "peak_bytes"):
                self.assertEqual(rank[what], rank[what + "_planned"])

    def check(self, *flags, meshes):
        one = self.train("one", "--mode", "exact", *flags)
        self.assertEqual(len(one["ranks"]), 1)
        self.assertEqual(one["ranks"][0]["sent_bytes"], 0)
        self.assertEqual(one["ranks"][0]["flops"], one["flops_per_step_counted"])
        for mesh in meshes:
            with self.subTest(mesh=mesh, flags=flags):
                many = self.train(mesh, "--mode", "exact", "--mesh", mesh, *flags)
                self.assertEqual(self.files("one"), self.files(mesh))
                self.assertEqual(many["train_loss"], one["train_loss"])
                self.assertEqual(many["val_loss"], one["val_loss"])
                self.check_as_planned(many)
                for rank in many["ranks"]:
                    self.assertGreater(rank["sent_bytes"], 0)
                # What all ranks do alike is little: products are shared out.
                self.assertLess(many["flops_per_step_counted"], 1.25 * one["flops_per_step_counted"])

    def test_queries_and_fewer_keys_in_one_weight(self):
        """A sharding cuts all parts alike: the weight stays whole, which is said, and the rest is cut."""
        phi3 = ("--model phi3 --n-layers 2 --n-heads 4 --d-model 16 --batch 2 --seqlen 8 --steps 3 --eval-every 0 "
                "--threads 1 --mode exact").split()
        said = "tp: 4 n_heads of queries and 2 n_kv_heads of keys and of values lie in one weight"
        for grouped in ([], ["--n-kv-heads", 2]):
            weights = set()
            for i, mesh in enumerate(([], ["--mesh", "tp=2"], ["--mesh", "dp=2,tp=2"])):
                out = self.dir / f"phi{i}{len(grouped)}"
                done = self.expect_ok(self.run_tool("train", "--data", self.text, *phi3, *grouped, *mesh, "--out", out))
                weights.add((out / "latest/model.safetensors").read_bytes())
                self.assertEqual(said in done.stderr, bool(grouped and mesh), done.stderr)
                self.assertEqual("qkv_proj.weight" in done.stderr, bool(grouped and mesh), done.stderr)
            self.assertEqual(len(weights), 1)

    def test_gpt2_has_the_files_of_one_rank(self):
        self.check("--model", "gpt2", "--bias", "--dropout", "0.1", meshes=("dp=2,tp=2", "dp=4", "tp=4"))

    def test_llama_in_bf16_has_the_files_of_one_rank(self):
        self.check("--model", "llama", "--n-kv-heads", "2", "--dtype", "bf16", meshes=("dp=2", "dp=2,tp=2"))

    def test_accumulated_gradients_too(self):
        self.check("--model", "gpt2", "--accumulate", "2", meshes=("dp=2,tp=2",))

    def test_accumulated_gradients_over_long_rows_too(self):
        self.check("--model", "llama", "--accumulate", "3", "--seqlen", "256", "--batch", "2", meshes=("dp=2", "cp=2"))

    def test_ranks_take_whole_micro_batches(self):
        """In mode exact, where dp divides the groups: the files of one rank and one exchange a step. Where it does not, or
        where sums are split, the batch is cut: the same bits, and an exchange for each micro-batch."""
        flags = ("--model", "gpt2", "--dropout", "0.1", "--mode", "exact", "--accumulate", "8")
        one = self.train("one", *flags)
        peaks = {}
        for mesh, zero, is_whole in (("dp=2", 0, True), ("dp=4", 1, True), ("dp=8", 0, True), ("dp=2,tp=2", 0, True), ("dp=4", 2, False)):
            with self.subTest(mesh=mesh, zero=zero):
                many = self.train("many" + mesh + str(zero), *flags, "--mesh", mesh, "--zero", zero, "--processes", 2)
                self.assertEqual(self.files("one"), self.files("many" + mesh + str(zero)))
                self.assertEqual((many["train_loss"], many["val_loss"]), (one["train_loss"], one["val_loss"]))
                self.check_as_planned(many)
                peaks[mesh, zero] = many["ranks"][0]["peak_bytes"]
                if "tp" in mesh:
                    continue
                n = int(mesh[-1])
                reduced = 2 * (n - 1) / n * 4 * one["params"]  # bytes of an all-reduce of all gradients, by each rank
                sent = many["ranks"][0]["sent_bytes"] / reduced
                self.assertTrue(.9 < sent < 1.1 if is_whole else sent > 2, sent)
        # Four slots of sums on one rank, one where each rank has one group.
        self.assertGreaterEqual(one["ranks"][0]["peak_bytes"] - peaks["dp=8", 0], 3 * 4 * one["params"])

    def test_micro_batches_are_one_batch(self):
        """In mode exact and f32, where the shards of a batch's sums are those of its parts: a table that is embedding and head,
        whose two uses are summed apart, too."""
        places = [i * 37 % 4000 for i in range(8 * 3)]

        def batches(name, batch):
            rows = [places[i:i + batch] for i in range(0, len(places), batch)]
            return self.write(name, "".join(" ".join(map(str, row)) + "\n" for row in rows))
        for family in ("gpt2", "gemma2", "bert", "llama"):
            for seqlen in (32, 256):
                flags = ("--model", family, "--tie-embeddings", "true", "--seqlen", seqlen, "--mode", "exact", "--overwrite")
                self.train("one", *flags, "--batch", 8, "--batches", batches("8", 8))
                for batch, mesh in ((4, "dp=1"), (2, "dp=2"), (1, "dp=4")):
                    with self.subTest(family=family, seqlen=seqlen, batch=batch):
                        self.train("many", *flags, "--batch", batch, "--accumulate", 8 // batch, "--batches", batches(str(batch), batch),
                                   "--mesh", mesh)
                        for name in FILES[:2]:
                            self.assertEqual(self.files("one")[name], self.files("many")[name])

    def test_one_sequence_a_micro_batch(self):
        """An evaluation's batch that dp does not divide is done by all alike."""
        self.check("--model", "llama", "--batch", "1", "--accumulate", "12", "--dtype", "f16", "--loss-scale", "256", meshes=("dp=4", "dp=2"))

    def test_masked_tokens_in_whole_micro_batches(self):
        self.check("--model", "bert", "--accumulate", "4", "--seqlen", "256", "--batch", "2", meshes=("dp=2,cp=2",))

    def test_experts_in_whole_micro_batches(self):
        self.check(*MOE, "--accumulate", "4", meshes=("dp=2,ep=2",))

    def test_a_run_with_pending_sums_goes_on_on_another_mesh(self):
        flags = ("--mode", "exact", "--model", "gpt2", "--lr-decay-steps", "6", "--accumulate", "4")
        self.train("one", *flags, "--steps", "6")
        self.train("many", *flags, "--mesh", "dp=4")
        self.train("many", "--lr-decay-steps", "6", "--steps", "6", "--accumulate", "4", "--resume", "--mesh", "dp=2,tp=2", "--zero", "2")
        self.assertEqual(self.files("one"), self.files("many"))
        self.assertNotIn(b"grad.", self.files("one")["optimizer.safetensors"])

    def test_accumulated_sums_are_exchanged_once_a_step(self):
        """In mode fast: what four micro-batches send is what one sends, but for their losses."""
        for flags, meshes in ((("--model", "llama", "--n-kv-heads", "2"), ("dp=4", "cp=2,dp=2", "dp=2,tp=2")), (MOE, ("ep=2,dp=2",))):
            one = self.train("one" + flags[1], *flags, "--accumulate", "4")
            for mesh in meshes:
                for zero in ("0", "1") if "dp" in mesh else ("0",):
                    with self.subTest(mesh=mesh, zero=zero, flags=flags):
                        many = self.train(flags[1] + mesh + zero, *flags, "--mesh", mesh, "--zero", zero, "--accumulate", "4")
                        self.assertAlmostEqual(many["train_loss"], one["train_loss"], delta=1e-4 * one["train_loss"])
                        for rank in many["ranks"]:
                            for what in ("flops", "peak_bytes"):
                                self.assertEqual(rank[what], rank[what + "_planned"])
                            self.assertLessEqual(rank["sent_bytes"], rank["sent_bytes_planned"])
                        if mesh == "dp=4":
                            single = self.train("single" + zero, *flags, "--mesh", mesh, "--zero", zero)
                            for rank, alike in zip(many["ranks"], single["ranks"], strict=True):
                                self.assertLess(rank["sent_bytes"], 1.01 * alike["sent_bytes"])

    def test_moe_has_the_files_of_one_rank(self):
        self.check(*MOE, meshes=("dp=4", "ep=4", "ep=2,dp=2"))

    def test_moe_in_bf16_has_the_files_of_one_rank(self):
        self.check(*MOE, "--dtype", "bf16", meshes=("dp=4", "ep=4", "ep=2,dp=2"))

    def test_plan_says_what_training_measures(self):
        flags = ("--model", "gpt2", "--mesh", "dp=2,tp=2")
        measured = self.train("out", *flags)
        vocab = json.loads((self.dir / "out/latest/config.json").read_text())["vocab_size"]
        plan = self.expect_ok(self.run_tool(
            "plan", *flags, "--vocab-size", vocab,
            *"--batch 8 --seqlen 32 --n-layers 2 --n-heads 4 --d-model 64 --threads 1 --json".split()))
        planned = json.loads(plan.stdout)
        self.assertEqual(planned["mesh"], "dp=2,tp=2")
        for ours, theirs in zip(planned["ranks"], measured["ranks"], strict=True):
            for what in ("flops", "sent_bytes", "peak_bytes"):
                self.assertEqual(ours[what], theirs[what], what)

    def test_products_are_shared_out(self):
        """Over all ranks they cost what they cost one, but for what is listed as not cut."""
        size = ("--batch 8 --seqlen 64 --n-layers 2 --n-heads 8 --d-model 256 --vocab-size 512 --threads 1 --json").split()
        for model, mesh in (("gpt2", "dp=2,tp=2"), ("llama", "cp=4"), ("moe", "ep=2,dp=2"), ("gpt2", "dp=4"), ("gpt2", "tp=4")):
            for mode in ("fast", "exact"):
                with self.subTest(mesh=mesh, mode=mode):
                    plan = self.expect_ok(self.run_tool("plan", "--model", model, "--mesh", mesh, "--mode", mode, *size))
                    planned = json.loads(plan.stdout)
                    products = planned["products"]
                    self.assertLessEqual(products["without_uncut"], 1.05)
                    self.assertLessEqual(products["of_one_rank"], 1.25)
                    self.assertGreaterEqual(products["of_one_rank"], products["without_uncut"])
                    self.assertGreater(products["without_uncut"], .9)
                    self.assertEqual(bool(planned["uncut"]), products["of_one_rank"] > products["without_uncut"])

    def test_sequences_go_round_a_ring(self):
        flags = ("--model", "llama", "--n-kv-heads", "2")
        one = self.train("one", *flags)
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype=dtype):
                many = self.train(dtype, *flags, "--mesh", "cp=4", "--dtype", dtype)
                self.assertAlmostEqual(many["train_loss"], one["train_loss"], delta=1e-5 if dtype == "f32" else 2e-2)
                for rank in many["ranks"]:
                    for what in ("flops", "sent_bytes", "peak_bytes"):
                        self.assertEqual(rank[what], rank[what + "_planned"])
                    self.assertGreater(rank["sent_bytes"], 0)

    def test_tokens_are_dealt_out_so_that_ranks_do_as_much(self):
        flags = ("--model", "llama", "--n-kv-heads", "2", "--seqlen", "128")
        alone = {dtype: self.train("one" + dtype, *flags, "--dtype", dtype) for dtype in ("f32", "bf16")}
        for ring in ("zigzag", "striped", "contiguous"):
            for dtype, one in alone.items():
                with self.subTest(ring=ring, dtype=dtype):
                    many = self.train(ring + dtype, *flags, "--mesh", "cp=4", "--ring", ring, "--dtype", dtype)
                    close = 1e-5 if dtype == "f32" else 2e-2
                    self.assertAlmostEqual(many["train_loss"], one["train_loss"], delta=close)
                    self.assertAlmostEqual(many["val_loss"], one["val_loss"], delta=close)
                    flops = [rank["flops"] for rank in many["ranks"]]
                    if ring != "contiguous":
                        self.assertLess(max(flops), 1.1 * min(flops))
                    for rank in many["ranks"]:
                        for what in ("flops", "sent_bytes", "peak_bytes"):
                            self.assertEqual(rank[what], rank[what + "_planned"])

    def test_what_keeps_tokens_in_order_is_said(self):
        done = self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / "cp", *RUN, "--model", "llama",
                                            "--n-kv-heads", "2", "--dropout", "0.1", "--mesh", "cp=4"))
        self.assertIn("dropout goes by a token's place", done.stdout + done.stderr)
        done = self.run_tool("train", "--data", self.text, *RUN, "--ring", "striped")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("give --mesh an axis cp", done.stderr)

    def test_weights_in_shares_have_the_files_of_one_rank(self):
        flags = ("--model", "llama", "--n-kv-heads", "2", "--mode", "exact")
        self.train("one", *flags)
        peaks = []
        for zero in ("0", "3"):
            many = self.train(zero, *flags, "--mesh", "dp=4", "--zero", zero)
            self.assertEqual(self.files("one"), self.files(zero))
            for rank in many["ranks"]:
                for what in ("flops", "sent_bytes", "peak_bytes"):
                    self.assertEqual(rank[what], rank[what + "_planned"])
            peaks.append(many["ranks"][0]["peak_bytes"])
        self.assertLess(peaks[1], peaks[0])

    def test_exact_over_cp_says_that_it_gathers(self):
        done = self.expect_ok(self.run_tool("train", "--data", self.text, "--out", self.dir / "cp", *RUN, "--model", "llama",
                                            "--n-kv-heads", "2", "--mode", "exact", "--mesh", "cp=4"))
        self.assertIn("attention gathers keys and values", done.stdout + done.stderr)

    def test_a_run_goes_on_on_another_mesh(self):
        flags = ("--mode", "exact", "--model", "gpt2", "--lr-decay-steps", "6")
        self.train("one", *flags, "--steps", "6")
        self.train("many", *flags, "--mesh", "dp=4")
        self.train("many", "--lr-decay-steps", "6", "--steps", "6", "--resume", "--mesh", "tp=2")
        self.assertEqual(self.files("one"), self.files("many"))

    def test_a_timeline_draws_all_ranks(self):
        """By one clock, in processes, too: who exchanges something is there when the others are."""
        page = self.dir / "timeline.html"
        for processes, accumulate, title in ((1, 1, "A training step on dp=4: gpt2, f32"),
                                             (2, 2, "The last micro-batch of a step, and its update, on dp=4: gpt2, f32")):
            with self.subTest(processes=processes):
                self.train("out", "--overwrite", "--model", "gpt2", "--steps", 4, "--mesh", "dp=4", "--processes", processes,
                           "--accumulate", accumulate, "--zero", processes - 1, "--timeline", page)
                text = page.read_text()
                self.assertIn(f"<h1>{title}", text)
                self.assertEqual(re.findall(r">rank (\d+)</text>", text), ["0", "1", "2", "3"])
                bars = [[] for _ in range(8)]  # of each row: op, begin, end
                for y, what, ms, begin in re.findall(r'y="(\d+)" width=[^>]+><title>([^:]+): ([\d.]+) ms from ([\d.]+)<', text):
                    bars[int(y) // 34].append((what, float(begin), float(begin) + float(ms)))
                for rank in range(4):
                    self.assertEqual([what for what, _, _ in bars[2 * rank + 1]], [what for what, _, _ in bars[1]])
                    both = sorted(bars[2 * rank] + bars[2 * rank + 1], key=lambda bar: bar[1])
                    self.assertTrue(all(a[2] <= b[1] + .001 for a, b in itertools.pairwise(both)))  # one op after another
                together = [k for k, (what, _, _) in enumerate(bars[1]) if re.match(r"all_reduce of (train_step|update)", what)]
                self.assertGreater(len(together), 0)
                for k in together:
                    self.assertLessEqual(max(bars[row][k][1] for row in (1, 3, 5, 7)), min(bars[row][k][2] for row in (1, 3, 5, 7)))

    def test_what_cannot_be_is_refused_with_its_numbers(self):
        def refused(*flags):
            return self.run_tool("train", "--data", self.text, *RUN, *flags)
        for flags, why in ((("--mesh", "dp=3"), "--batch 8 cannot be shared evenly by the 3 ranks of --mesh dp=3 that cut it: the nearest that can is dp=2"),
                           (("--mesh", "dp=7"), "the nearest that can is dp=8"),
                           (("--model", "moe", "--mesh", "dp=3,ep=2"), "by the 6 ranks of --mesh dp=3,ep=2 that cut it: the nearest that can is dp=2"),
                           (("--mesh", "cp=5"), "the nearest that can is cp=4"),
                           (("--mesh", "sp=2"), "there is no axis sp"),
                           (("--mesh", "dp=2", "--ranks", "4"), "has 2 ranks, --ranks is 4"),
                           (("--mesh", "dp"), "must be an axis and its ranks"),
                           (("--mesh", "dp=2", "--mode", "exact", "--blockwise", "32"), "--blockwise")):
            with self.subTest(flags=flags):
                done = refused(*flags)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(why, done.stderr)
        done = self.run_tool("train", "--data", self.text, *"--model lstm --n-layers 1 --d-model 16 --batch 2 --seqlen 8 "
                             "--steps 1 --mesh dp=2 --mode exact".split())
        self.assertIn("carries sums from round to round", done.stderr)


if __name__ == "__main__":
    unittest.main()
