"""Planning: FLOPs by phase, layer and op; the vocabulary of the data; where a plan is saved."""

import json
import os
import re
import resource
import stat
import subprocess
import sys
import threading
import time
import unittest
import xml.etree.ElementTree

from case import CliTest, INPUT, TEGULA, USAGE


class Flops(CliTest):
    def plan(self, *arguments):
        done = self.run_tool("plan", "--json", "--threads", 1, *arguments)
        return json.loads(self.expect_ok(done).stdout)

    def test_measured_steps_stand_beside_what_was_planned(self):
        step = "--n-layers 2 --n-heads 2 --d-model 32 --seqlen 16 --batch 4 --vocab-size 65".split()
        for more in ((), ("--dtype", "bf16"), ("--accumulate", 3), ("--dtype", "f16"), ("--model", "moe")):
            for threads in (1, 2):
                flags = (*step, "--threads", threads, *more)
                plan = json.loads(self.expect_ok(self.run_tool("plan", *flags, "--measure", "--json")).stdout)
                measured = plan["measured"]
                self.assertEqual(measured["flops"], plan["flops_per_step"], flags)
                self.assertEqual(measured["peak_bytes"], plan["arena_bytes"] + plan["state_bytes"], flags)
                self.assertGreater(measured["step_s"], 0)
                self.assertGreaterEqual(measured["runs"], 3)
        text = self.expect_ok(self.run_tool("plan", *step, "--measure")).stdout
        self.assertRegex(text, r"measured +[0-9.e-]+ ms a step, the median of \d+; priced [+-][0-9.]+ %")
        self.assertRegex(text, r"FLOPs: planned (\d+), counted \1; peak bytes: planned (\d+), measured \2\n")
        self.assertNotIn("measured", json.loads(self.expect_ok(self.run_tool("plan", *step, "--json")).stdout))

    def test_a_product_takes_2bnh_forward_and_4bnh_backward(self):
        d, layers, batch, seqlen = 64, 3, 2, 32
        sizes = ("--n-layers", layers, "--d-model", d, "--batch", batch, "--seqlen", seqlen,
                 "--vocab-size", 65)
        matrices = {  # weights of one layer's products, by family
            "gpt2": ("--n-heads", 2, 3 * d * d + d * d + 2 * 4 * d * d),
            "llama": ("--n-heads", 4, "--n-kv-heads", 2, "--d-ff", 96, 2 * d * d + d * d + 3 * d * 96),
        }
        for model, (*flags, weights) in matrices.items():
            for accumulate in (1, 3):
                plan = self.plan("--model", model, *sizes, *flags, "--accumulate", accumulate)
                dot = next(op for op in plan["flops_by_op"] if op["name"] == "dot")
                product = accumulate * layers * batch * seqlen * weights
                self.assertEqual(dot["forward"], 2 * product, model)
                # Sums over micro-batches are added, scaled, where the products end.
                sums = 2 * accumulate * layers * weights if accumulate > 1 else 0
                self.assertGreaterEqual(dot["backward"], 4 * product, model)
                self.assertLessEqual(dot["backward"], 4 * product + sums, model)
                self.assertEqual(dot["update"], 0)
        # The head's product: forward its logits, backward their two gradients; the rest is softmax.
        head = next(op for op in plan["flops_by_op"] if op["name"].startswith("linear_cross"))
        product = 3 * batch * seqlen * 65 * d  # of three micro-batches
        for phase, times in (("forward", 2), ("backward", 4)):
            self.assertGreaterEqual(head[phase], times * product)
            self.assertLess(head[phase], times * product + 3 * batch * seqlen * 65 * 10)

    def test_blocks_that_change_nothing_are_told(self):
        size = ("plan", "--vocab-size", 65, "--n-layers", 1, "--d-model", 32, "--seqlen", 64, "--batch", 2)
        self.expect_error(self.run_tool(*size, "--blockwise", 8), USAGE, "--blockwise 8", "at least 16")
        for flags, why in ((("--blockwise", 1000), "a batch has 128 tokens, which one block holds"),
                           (("--blockwise", 64, "--mesh", "dp=2"), "a batch has 64 tokens, which one block holds"),
                           (("--blockwise", "auto"), "no feed-forward layer is so large"),
                           (("--blockwise", 18, "--seqlen", 40), "gpt2 has no feed-forward layer that can be cut"),
                           (("--blockwise", 32, "--model", "lstm"), "lstm has no feed-forward layer that can be cut")):
            done = self.expect_ok(self.run_tool(*size, *flags))
            told = [line for line in (done.stdout + done.stderr).splitlines() if "changes nothing" in line]
            self.assertEqual(len(told), 1, (flags, done))
            self.assertIn(f"--blockwise {flags[1]} changes nothing: {why}", told[0])
        few = (*size[1:], "--threads", 1, "--blockwise", 1000)
        for command in (("train", "--data", self.text, "--steps", 1, *(few[2:])), ("bench", "train", "--repeats", 1, *few),
                        ("tune", "train", *few)):
            done = self.expect_ok(self.run_tool(*command, env={**os.environ, "XDG_CACHE_HOME": str(self.dir)}))
            self.assertEqual(done.stderr.count("note: --blockwise 1000 changes nothing"), 1, done)
        for flags in (("--blockwise", 16), ("--blockwise", 64), ("--blockwise", 32, "--mesh", "dp=2"), ()):
            done = self.expect_ok(self.run_tool(*size, *flags))
            self.assertNotIn("changes nothing", done.stdout + done.stderr, flags)

    def test_parts_sum_to_the_step(self):
        for flags in (("--n-layers", 3), ("--n-layers", 3, "--accumulate", 2), ("--model", "lstm"),
                      ("--model", "moe"), ("--model", "mlp", "--n-layers", 3),
                      ("--n-layers", 9, "--checkpoint", "sqrt"), ("--blockwise", 128),
                      ("--dtype", "bf16")):
            plan = self.plan(*flags, "--vocab-size", 65, "--d-model", 32)
            phases = ("forward", "backward", "update")
            self.assertEqual(plan["flops_per_step"], sum(plan[f"flops_{p}"] for p in phases), flags)
            for table in ("flops_by_layer", "flops_by_op"):
                for phase in phases:
                    self.assertEqual(plan[f"flops_{phase}"], sum(r[phase] for r in plan[table]),
                                     (flags, table))

    def test_equal_layers_take_equal_flops(self):
        for model in ("gpt2", "llama", "moe"):
            plan = self.plan("--model", model, "--n-layers", 4, "--vocab-size", 65)
            rows = {r["name"]: r for r in plan["flops_by_layer"]}
            other = rows.pop("other", {"forward": 0, "backward": 0, "update": 0})
            self.assertEqual(list(rows), ["embedding", "layer 0", "layer 1", "layer 2", "layer 3",
                                          "head"])
            # What stands nowhere is of the gradient's norm.
            self.assertEqual((other["forward"], other["backward"]), (0, 0))
            self.assertLess(other["update"], 0.001 * plan["flops_update"])
            # The first one's gradient goes on into the embedding, the last one's input has a norm
            # behind it.
            for phase in ("forward", "backward", "update"):
                middle = rows["layer 1"][phase]
                # Of the update, a node of the tree that sums the gradient's norm falls to one.
                self.assertAlmostEqual(rows["layer 2"][phase] / middle, 1, msg=(model, phase),
                                       delta=0.001 if phase == "update" else 0)
                for other in ("layer 0", "layer 3"):
                    self.assertAlmostEqual(rows[other][phase] / middle, 1, delta=0.03,
                                           msg=(model, phase, other))

    def test_recomputing_is_backward_work(self):
        flags = ("--n-layers", 9, "--vocab-size", 65, "--d-model", 32)
        kept, again = self.plan(*flags), self.plan(*flags, "--checkpoint", "sqrt")
        # A loss apart from its gradient forms logits twice; all else forward is the same.
        def forward(plan, op):
            return sum(r["forward"] for r in plan["flops_by_op"] if r["name"] == op)
        self.assertEqual(forward(kept, "dot"), forward(again, "dot"))
        self.assertGreater(again["flops_backward"], kept["flops_backward"])

    def test_text_says_them_too(self):
        done = self.expect_ok(self.run_tool("plan", "--n-layers", 2, "--verbose"))
        self.assertRegex(done.stdout, r"FLOPs +[\d.e+]+ forward, [\d.e+]+ backward, [\d.e+]+ update")
        for name in ("embedding", "layer 0", "layer 1", "head", "dot", "attention"):
            self.assertRegex(done.stdout, rf"\n +{name} +[\d.e+]+ forward")


class Vocabulary(CliTest):
    def test_it_is_that_of_the_data(self):
        plan = ("plan", "--json", "--seqlen", 12)
        def size(*arguments):
            return json.loads(self.expect_ok(self.run_tool(*plan, *arguments)).stdout)["vocab_size"]
        text = self.text.read_text()
        self.assertEqual(size(), 50257)
        self.assertEqual(size("--data", self.text), len(set(text)))
        self.assertEqual(size("--data", self.text, "--tokenizer", "bytes"), 256)
        done = self.expect_ok(self.train("--tokenizer", "bpe:300", "--json"))
        done = self.expect_ok(self.run_tool(*plan, "--data", self.text, "--tokenizer", "bpe:300"))
        self.assertIn("1 file", done.stderr)
        self.assertIn(json.loads(done.stdout)["vocab_size"], range(257, 301))

    def test_what_cannot_be_read_is_told(self):
        self.expect_error(self.run_tool("plan", "--data", self.dir / "no"), INPUT, "/no'")
        short = self.write("short", "abc")
        self.expect_error(self.run_tool("plan", "--data", short), INPUT, "too short")
        self.expect_error(self.run_tool("plan", "--tokenizer", "bytes"), USAGE, "needs --data")
        config = self.write("run.toml", 'tokenizer = "bytes"\ndata = "nowhere"')
        self.expect_error(self.run_tool("plan", "--config", config), INPUT, "nowhere")
        self.expect_ok(self.run_tool("plan", "--config", config, "--vocab-size", 65))


SMALL_STEP = "--n-layers 2 --n-heads 2 --d-model 64 --seqlen 64 --vocab-size 512 --threads 1".split()
GPT2 = ("--model", "gpt2", "--n-layers", 2, "--n-heads", 2, "--d-model", 64, "--seqlen", 64,
        "--batch", 8, "--dtype", "bf16")


class Targets(CliTest):
    def plan(self, *arguments, **options):
        return json.loads(self.expect_ok(
            self.run_tool("plan", "--json", *GPT2, *arguments, **options)).stdout)

    def test_what_is_cheaper_computed_twice_is_listed(self):
        """Only where more waits than caches hold: 50 MB of an H100's."""
        llama = ("--model", "llama", "--n-layers", 3, "--d-model", 512, "--n-heads", 8, "--d-ff", 1024,
                 "--vocab-size", 512, "--target", "h100", "--device", "cuda")
        large = (*llama, "--seqlen", 512, "--batch", 16)
        plan = self.plan(*large)
        # Normalised rows, whose operand waits instead, and silu(g).
        self.assertEqual([(r["scope"], r["op"]) for r in plan["recomputed"]],
                         [(f"layers.{n}.{part}", op) for n in range(3)
                          for part, op in (("attn", "mul"), ("mlp", "mul"), ("mlp", "silu"))])
        for r in plan["recomputed"]:
            self.assertEqual(r["bytes"], 16 * 512 * (1024 if r["op"] == "silu" else 512) * 4)
            self.assertLess(r["paid_s"], r["saved_s"])
        kept = self.plan(*large, "--passes=-recompute")
        self.assertEqual(kept["recomputed"], [])
        self.assertLess(plan["bytes_per_step"], kept["bytes_per_step"])
        self.assertLess(plan["arena_bytes"], kept["arena_bytes"])
        text = self.expect_ok(self.run_tool("plan", *large, "--dtype", "bf16")).stdout
        self.assertRegex(text, r"recomputed +silu of layers\.\*\.mlp, 3 values of 96\.0 MiB: [\d.e-]+ ms instead of")
        self.assertEqual(self.plan(*llama, "--seqlen", 128, "--batch", 1)["recomputed"], [])

    def test_a_gpu_needs_none(self):
        plan = self.plan("--target", "h200", "--device", "cuda", "--verify")
        self.assertEqual(plan["target"], "h200")
        self.assertEqual(plan["host_steps"], 0)
        text = self.expect_ok(self.run_tool("plan", *GPT2, "--target", "h200", "--verbose")).stdout
        for kernel in ("attention_sm90", "attention_bwd_sm90", "matmul_sm90", "fused_cuda"):
            self.assertIn(kernel, text)
        self.assertNotIn("have no kernel", text)
        self.assertRegex(text, r"\npriced +[0-9.]+ ms a step by what kernels sustain")
        older = self.expect_ok(self.run_tool("plan", *GPT2, "--target", "a100", "--verbose")).stdout
        for kernel in ("matmul_mma", "attention_mma", "attention_bwd_mma"):
            self.assertIn(kernel, older)
        self.assertNotIn("sm90", older)
        self.assertEqual(self.plan("--target", "zen3")["host_steps"], 0)

    def test_ops_say_how_a_device_runs_them(self):
        done = self.expect_ok(self.run_tool("ops", "--json", "--device", "cuda"))
        by = {op["name"]: op for op in json.loads(done.stdout)}
        self.assertIn("matmul_sm90", by["dot"]["kernels"])
        self.assertEqual([by[name]["runs_by"] for name in ("dot", "gelu", "rms_norm", "permute", "scan", "sort")],
                         ["kernel", "tile", "decomposition", "view", "bodies", "kernel"])
        # A device gets weights that were dequantised when they were read.
        self.assertEqual([name for name, op in by.items() if op["runs_by"] == "host"],
                         ["dequantise_blocks", "quantise_blocks"])

    def test_the_same_bytes_wherever_it_is_made(self):
        have = {s["isa"] for s in json.loads(
            self.expect_ok(self.run_tool("doctor", "--json")).stdout.splitlines()[-1])["isa_levels"]
                if s["present"]}
        for target in ("zen3", "zen4", "sapphire-rapids", "h200", "l4"):
            plans = set()
            for isa in have:
                file = self.dir / "plan.json"
                self.plan("--target", target, "--save", file, env={**os.environ, "TEGULA_ISA": isa})
                plans.add(file.read_bytes())
            self.assertEqual(len(plans), 1, target)
            self.expect_ok(self.run_tool("plan", "--load", file))

    def orders(self, target, *arguments):
        """Per op its numeric orders, of steps that have one."""
        file = self.dir / "orders.json"
        self.expect_ok(self.run_tool("plan", "--json", "--target", target, "--verify", "--save", file, *arguments))
        orders = {}

        def collect(plan):
            for step in plan["steps"]:
                if "order" in step:
                    orders.setdefault(step["op"], set()).add((step["order"], step["kernel"]))
                for region in step.get("regions", ()):
                    collect(region)

        collect(json.loads(file.read_text())["plan"])
        return orders

    def test_an_order_is_chosen_by_op_dtype_and_target_never_by_extents(self):
        rows = (("--batch", 1, "--seqlen", 4), ("--batch", 1, "--seqlen", 17), ("--batch", 8, "--seqlen", 64))
        for target, dots, attention in (("zen4", ("fma_chain", "dot_packed"), "kb64"),
                                        ("sapphire-rapids", ("amx_pairs", "dot_amx"), "amx_kb512")):
            for few in rows:
                orders = self.orders(target, *GPT2, "--model", "llama", *few)
                self.assertEqual(orders["dot"], {dots}, (target, few))
                self.assertEqual({order for order, _ in orders["attention"]}, {attention}, (target, few))
        # Of f32 there are no tiles; within an LSTM's loop products have the order of those outside.
        self.assertEqual(self.orders("sapphire-rapids", *GPT2, "--dtype", "f32")["dot"], {("fma_chain", "dot_packed")})
        lstm = ("--model", "lstm", "--n-layers", 2, "--d-model", 64, "--seqlen", 64, "--batch", 2, "--dtype", "bf16")
        self.assertEqual(self.orders("sapphire-rapids", *lstm)["dot"], {("amx_pairs", "dot_amx")})

    def test_names_of_targets_have_no_case(self):
        for name in ("H200", "h200", "Sapphire_Rapids", "zen4"):
            self.assertEqual(self.plan("--target", name)["target"], name.lower().replace("_", "-"))

    def step_on(self, target, *flags):
        done = self.run_tool("plan", "--json", "--target", target, *flags, "--mode", "fast", *SMALL_STEP)
        return json.loads(self.expect_ok(done).stdout)

    def test_a_mesh_of_gpus_is_planned(self):
        """It runs nowhere yet, and is no error of the plan. What ranks send is what they send on a CPU; what they
        compute differs by what the whole step's does, shared out as its tokens are."""
        whole = self.step_on("zen4", "--batch", 4)["flops_per_step"] - self.step_on("h200", "--batch", 4)["flops_per_step"]
        self.assertNotEqual(whole, 0)
        for mesh, n_shares in (("dp=2", 2), ("tp=2", 1), ("dp=2,tp=2", 2)):
            there, here = (self.step_on(t, "--batch", 4, "--mesh", mesh)["ranks"] for t in ("h200", "zen4"))
            self.assertGreater(there[0]["sent_bytes"], 0)
            self.assertEqual([r["sent_bytes"] for r in there], [r["sent_bytes"] for r in here])
            for of_gpu, of_cpu in zip(there, here, strict=True):
                self.assertEqual(n_shares * (of_cpu["flops"] - of_gpu["flops"]), whole, mesh)
        for mesh, batch in (("dp=2", 2), ("dp=128", 128)):
            there = self.step_on("h200", "--batch", batch, "--mesh", mesh)
            self.assertGreater(there["ranks"][0]["sent_bytes"], 0)
            self.assertIn("h200 has no kernel for", there["notes"][-1])

    def test_operations_differ_where_a_target_has_no_kernel(self):
        """CUDA has no f32 kernel of layer norms and of the head with its loss. They are lowered there, to a head of
        three dots, fused elementwise work and sums. All other ops take the same operations on both targets."""
        gpu, cpu = ({row["name"]: (row["forward"], row["backward"], row["update"]) for row in
                     self.step_on(target, "--batch", 4)["flops_by_op"]} for target in ("h200", "zen4"))
        lowered = {"layer_norm", "layer_norm_bwd", "linear_cross_entropy_grads"}
        self.assertEqual(cpu.keys() - gpu.keys(), lowered)
        into = {"dot", "fused", "reduce_sum"}
        self.assertEqual({op for op in gpu if gpu[op] != cpu[op]}, into)
        head = 2 * (4 * 64) * 64 * 512  # tokens, width, vocabulary
        self.assertEqual([g - c for g, c in zip(gpu["dot"], cpu["dot"], strict=True)], [head, 2 * head, 0])
        # The kernel of each of 5 norms:
        n, rows = 4 * 64 * 64, 4 * 64
        self.assertEqual(cpu["layer_norm"][0], 5 * (7 * n + 5 * rows))

    def test_what_is_not_there_is_told(self):
        self.expect_error(self.run_tool("plan", *GPT2, "--target", "zx81"), INPUT, "rtx4090, zen3")
        self.expect_error(self.run_tool("plan", *GPT2, "--target", "zen3", "--device", "cuda"), INPUT,
                          "--target zen3 is a CPU")

    def test_time_grows_with_the_layers(self):
        """In the time of the processor, the least of three: four times the layers take about four times as long."""
        def seconds(n_layers):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.expect_ok(self.run_tool("plan", "--n-layers", n_layers, *SMALL_STEP[2:]))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime - before.ru_utime
        few, many = seconds(384), seconds(1536)
        for _ in range(2):
            if many < 8 * few:
                break
            few, many = min(few, seconds(384)), min(many, seconds(1536))
        self.assertLess(many, 8 * few, "linear is 4 times, quadratic 16")

    def test_parameters_are_counted_exactly(self):
        text = self.expect_ok(self.run_tool(
            "plan", "--model", "llama", "--n-layers", 126, "--n-heads", 128, "--n-kv-heads", 8,
            "--d-model", 16384, "--d-ff", 53248, "--vocab-size", 128256, "--batch", 1, "--seqlen", 64,
            "--target", "h200", "--dtype", "bf16")).stdout
        self.assertIn("405.85 B (405,853,388,800) parameters", text)

    def test_a_run_over_1e13_tokens_is_priced(self):
        plan = json.loads(self.expect_ok(self.run_tool(
            "plan", "--model", "llama", "--n-layers", 126, "--n-heads", 128, "--n-kv-heads", 8,
            "--d-model", 16384, "--d-ff", 53248, "--vocab-size", 128256, "--batch", 1, "--seqlen", 64,
            "--target", "h200", "--dtype", "bf16", "--tokens-total", "1e13", "--json")).stdout)
        run, steps = plan["run"], 10**13 // 64
        self.assertEqual((run["tokens"], run["steps"]), (1e13, steps))
        # Past 64 bits: 6 FLOPs a parameter and token are 2.4e25.
        self.assertEqual(run["flops"], float(steps) * float(plan["flops_per_step"]))
        self.assertEqual(run["bytes"], float(steps) * float(plan["bytes_per_step"]))
        without_update = run["flops"] - float(steps) * plan["flops_update"]
        self.assertAlmostEqual(without_update / (6 * 405853388800 * 1e13), 1, delta=0.02)
        self.assertAlmostEqual(run["seconds"] / (steps * plan["seconds"]), 1)

    def test_a_last_step_counts_whole(self):
        text = self.expect_ok(self.run_tool("plan", *GPT2, "--tokens-total", 513,
                                            "--target", "zen4")).stdout
        self.assertIn("513 tokens in 2 steps: ", text)
        self.assertIn(" by what kernels sustain", text)
        self.expect_error(self.run_tool("plan", *GPT2, "--tokens-total", 0), USAGE, "--tokens-total")


class Save(CliTest):
    PLAN = ("plan", "--n-layers", 1, "--n-heads", 1, "--d-model", 8, "--seqlen", 8, "--vocab-size", 9)

    def saved(self, path):
        return self.run_tool(*self.PLAN, "--save", path)

    def test_devices_and_pipes_are_written_through(self):
        self.expect_ok(self.saved("/dev/null"))
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        done = subprocess.run([TEGULA, *map(str, self.PLAN), "--json", "--save", "/dev/stderr"],
                              capture_output=True, text=True)
        json.loads(done.stderr)
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        self.expect_error(self.saved(pipe), INPUT, "nobody reads")
        read = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
        reader.start()
        done = self.saved(pipe)
        while done.returncode != 0:  # until the reader is there
            done = self.saved(pipe)
        reader.join()
        json.loads(read[0])
        self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))

    def test_links_lead_to_the_file_that_is_written(self):
        target, link = self.write("target.json", "old"), self.dir / "link.json"
        link.symlink_to("target.json")
        self.expect_ok(self.saved(link))
        self.assertTrue(link.is_symlink())
        json.loads(target.read_text())
        self.expect_ok(self.run_tool("plan", "--load", link))


class PlannedStages(CliTest):
    STEP = ("plan", "--n-layers", 8, "--d-model", 64, "--batch", 2, "--seqlen", 64, "--vocab-size", 65,
            "--accumulate", 8, "--target", "zen4", "--json")

    def stages(self, n, *flags):
        return json.loads(self.expect_ok(self.run_tool(*self.STEP, "--stages", n, *flags)).stdout)

    def test_schedules_wait_and_keep_what_they_should(self):
        plans = {s: self.stages(4, "--schedule", s)
                 for s in ("in_turns", "gpipe", "one_f_one_b", "zero_bubble", "zero_bubble_h2", "zero_bubble_v",
                           "interleaved", "chimera", "dual_pipe")}
        whole = json.loads(self.expect_ok(self.run_tool(*self.STEP)).stdout)
        for name, plan in plans.items():
            self.assertEqual([s["from"] for s in plan["stages"]],
                             ["", "layers.2", "layers.4", "layers.6"])  # a small head
            self.assertEqual(plan["flops_per_step"], sum(s[k] for s in plan["stages"] for k in
                                                         ("flops_forward", "flops_backward", "flops_update")))
            # What is not kept between parts is made again, which is little.
            self.assertGreaterEqual(plan["flops_per_step"], whole["flops_per_step"] * .98, name)
            self.assertLess(plan["flops_per_step"], whole["flops_per_step"] * 1.05, name)
            ranks = plan["ranks"]
            self.assertAlmostEqual(plan["bubble"], 1 - sum(s["seconds"] for s in plan["stages"])
                                   / (len(ranks) * plan["seconds"]))
            self.assertAlmostEqual(sum(r["busy_s"] for r in ranks), sum(s["seconds"] for s in plan["stages"]))
        kept = {name: [r["flow_bytes"] for r in plan["ranks"]] for name, plan in plans.items()}
        for r in range(4):
            self.assertLess(kept["in_turns"][r], kept["gpipe"][r])
            self.assertLess(kept["one_f_one_b"][r], kept["gpipe"][r])
        held = {name: [r["stages"] for r in plan["ranks"]] for name, plan in plans.items()}
        self.assertEqual(held["gpipe"], [[0], [1], [2], [3]])
        self.assertEqual(held["interleaved"], [[0, 2], [1, 3]])
        self.assertEqual(held["zero_bubble_v"], [[0, 3], [1, 2]])
        self.assertEqual(held["dual_pipe"], [[0, 3], [1, 2], [1, 2], [0, 3]])
        in_flight = {name: [r["peak_in_flight"] for r in plan["ranks"]] for name, plan in plans.items()}
        self.assertEqual(in_flight["gpipe"], [8] * 4)
        self.assertEqual(in_flight["one_f_one_b"], [4, 3, 2, 1])
        self.assertEqual(in_flight["zero_bubble_h2"], [7] * 4)
        self.assertEqual(in_flight["dual_pipe"], [5] * 4)
        self.assertGreater(plans["in_turns"]["bubble"], .7)
        self.assertLess(plans["one_f_one_b"]["bubble"], .5)
        self.assertLess(plans["zero_bubble"]["seconds"], plans["one_f_one_b"]["seconds"])

    def test_times_that_are_given_give_the_formulas(self):
        def step(name, times, *flags):
            return self.stages(4, "--schedule", name, "--part-ms", times, *flags)
        self.assertAlmostEqual(step("gpipe", "1,1,1")["bubble"], 3 / 11)
        self.assertAlmostEqual(step("interleaved", "1,1,1")["seconds"], (8 * 6 + 3) * 1e-3)
        self.assertAlmostEqual(step("forward_only", "5,0,0")["bubble"], 3 / 11)
        self.assertAlmostEqual(step("chimera", "1,1,0")["bubble"], 2 / 18)
        sliced = step("tera_pipe", "1,1,1", "--slices", 4)
        self.assertAlmostEqual(sliced["bubble"], 3 / 35)
        self.assertEqual(sliced["slice_tokens"], [16] * 4)
        # The first stage's backward part sends nothing: all of it is weight gradients.
        self.assertAlmostEqual(step("zero_bubble_h2", "1,1,1")["ranks"][3]["waits_s"], 0)
        # The second stage is three times as slow as each other one, which wait for it.
        slow = step("one_f_one_b", "1,1,1,3,3,3,1,1,1,1,1,1")
        self.assertAlmostEqual(max(r["busy_s"] for r in slow["ranks"]), 8 * 9e-3)
        self.assertGreater(slow["bubble"], .5)
        # Three messages up and three down for each micro-batch, and then the total to the updates.
        fast, late = (step("in_turns", "1,1,1", *flags) for flags in ((), ("--latency-us", 100)))
        self.assertAlmostEqual(late["seconds"] - fast["seconds"], (8 * 6 + 1) * 100e-6)

    def test_memory_grows_with_micro_batches_only_where_all_go_forward_first(self):
        def kept(schedule, n):
            plan = self.stages(4, "--schedule", schedule, "--accumulate", n)
            return [r["flow_bytes"] for r in plan["ranks"]], [r["state_bytes"] for r in plan["ranks"]]
        (few, state), (more, same), (most, _) = (kept("gpipe", n) for n in (4, 8, 12))
        for a, b, c in zip(few, more, most):  # P + A N
            self.assertEqual(c - b, b - a)
            self.assertGreater(b - a, 0)
        self.assertEqual(state, same)
        self.assertEqual(kept("one_f_one_b", 8), kept("one_f_one_b", 12))  # of D micro-batches

    def test_inference_keeps_nothing_and_updates_nothing(self):
        plan, step = self.stages(4, "--schedule", "forward_only"), self.stages(4)
        for stage, trained in zip(plan["stages"], step["stages"]):
            self.assertEqual((stage["flops_backward"], stage["flops_update"]), (0, 0))
            self.assertLess(stage["state_bytes"], trained["state_bytes"] / 3)  # no moments, no sums
            self.assertAlmostEqual(stage["flops_forward"] / trained["flops_forward"], 1, delta=.01)
        self.assertEqual({p["part"] for p in plan["parts"]}, {"forward"})
        self.assertLess(plan["one_rank_peak_bytes"], step["one_rank_peak_bytes"] / 2)

    def test_sends_that_block_and_parts_that_go_together(self):
        def step(name, *flags):
            return self.stages(4, "--schedule", name, "--part-ms", "1,1,1", *flags)["seconds"]
        # 32,768 bytes of activations go in 100 us.
        link = ("--link-gb-per-s", 32768 / 100e-6 / 1e9)
        late, blocked = step("forward_only", *link), step("forward_only", *link, "--blocking-sends")
        self.assertAlmostEqual(late, 11e-3 + 3 * 100e-6)
        self.assertAlmostEqual(blocked, late + 7 * 100e-6)  # the first rank sends seven times before its last part
        # Each rank has three pairs of 3 ms, which take 2.
        pairs = self.stages(4, "--schedule", "dual_pipe", "--part-ms", "1,1,1", "--together", 2 / 3)
        for rank in pairs["ranks"]:
            self.assertAlmostEqual(rank["busy_s"], 21e-3)
        self.assertLess(pairs["seconds"], step("dual_pipe"))
        self.expect_error(self.run_tool(*self.STEP, "--stages", 4, "--together", 1.5), USAGE, "--together")

    def test_thousands_of_micro_batches(self):
        start = time.monotonic()
        plan = self.stages(4, "--accumulate", 2000)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual([r["peak_in_flight"] for r in plan["ranks"]], [4, 3, 2, 1])
        few = self.stages(4, "--accumulate", 8)
        self.assertLess(plan["one_rank_peak_bytes"], few["one_rank_peak_bytes"] * 1.1)

    def test_the_page_of_schedules_is_what_they_are(self):
        done = subprocess.run([sys.executable, "bench/schedules.py", "--check", "--bin", TEGULA], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_slices_cost_what_attention_costs(self):
        long = [4096 if a == 64 else a for a in self.STEP]
        long[long.index("--d-model") + 1] = 64
        def plan(*flags):
            return json.loads(self.expect_ok(self.run_tool(
                *long, "--accumulate", 1, "--target", "h100", "--device", "cuda", "--stages", 4, "--schedule",
                "tera_pipe", *flags)).stdout)
        whole, four, best = plan(), plan("--slices", 4), plan("--slices", 0)
        tokens = four["slice_tokens"]
        self.assertEqual((len(tokens), sum(tokens)), (4, 4096))
        self.assertEqual(tokens, sorted(tokens, reverse=True))  # later ones attend to more
        self.assertGreater(tokens[0], tokens[-1])
        self.assertLess(four["seconds"], .8 * whole["seconds"])
        self.assertLessEqual(best["seconds"], four["seconds"] * 1.02)
        self.assertEqual(sum(best["slice_tokens"]), 4096)
        self.assertNotIn("slice_tokens", whole)

    def test_a_picture(self):
        picture = self.dir / "schedule.svg"
        for name in ("one_f_one_b", "dual_pipe"):
            plan = self.stages(4, "--schedule", name, "--gantt", picture, "--link-gb-per-s", .05)
            root = xml.etree.ElementTree.fromstring(picture.read_text())
            titles = [t.text for t in root.iter() if t.tag.endswith("title")]
            parts = [t for t in titles if re.match("rank [0-3], stage", t)]
            n = {"one_f_one_b": 2 * 4 * 8, "dual_pipe": 3 * 4 * 8 - 8}[name]  # no B of stage 0
            self.assertEqual(sum("micro-batch" in t for t in parts), n)
            self.assertTrue(any("bytes from rank 0 to rank 1" in t for t in titles))
            text = "".join(root.itertext())
            self.assertIn(f"{100 * plan['bubble']:.1f} %", text)
        self.expect_error(self.run_tool(*self.STEP, "--stages", 2, "--gantt", self.dir / "no" / "x.svg"), INPUT,
                          "cannot create")

    def test_what_cannot_be_cut_is_refused(self):
        self.expect_error(self.run_tool(*self.STEP, "--stages", 9), INPUT, "8 layers")
        self.expect_error(self.run_tool(*self.STEP, "--schedule", "gpipe"), USAGE, "--stages")
        self.expect_error(self.run_tool(*self.STEP, "--stages", 2, "--schedule", "pipe"), USAGE, "pipe")
        self.expect_error(self.run_tool(*self.STEP, "--stages", 2, "--checkpoint", "sqrt"), INPUT,
                          "micro-batches")
        self.expect_error(self.run_tool(*self.STEP, "--stages", 2, "--tokens-total", 1e9), USAGE)
        for flags, words in ((("--schedule", "gpipe", "--ranks", 3), "4 stages do not go on 3 ranks"),
                             (("--schedule", "zero_bubble_v", "--ranks", 4), "2 stages on each rank"),
                             (("--schedule", "dual_pipe", "--accumulate", 4), "4 ranks and 4 micro-batches"),
                             (("--slices", 2), "tera_pipe does"),
                             (("--part-ms", "1,2"), "three for each of 4")):
            self.expect_error(self.run_tool(*self.STEP, "--stages", 4, *flags), INPUT, words)
        for flag in ("--ranks", "--slices", "--latency-us", "--link-gb-per-s", "--part-ms", "--gantt"):
            self.expect_error(self.run_tool(*self.STEP, flag, 1), USAGE, "--stages")
        self.expect_error(self.run_tool(*self.STEP, "--stages", 2, "--part-ms", "1,-1,1"), USAGE, "--part-ms")

    def test_a_large_head_gets_fewer_layers(self):
        step = [50257 if a == 65 else a for a in self.STEP]
        plan = json.loads(self.expect_ok(self.run_tool(*step, "--stages", 2)).stdout)
        work = [s["flops_forward"] + s["flops_backward"] for s in plan["stages"]]
        self.assertEqual(plan["stages"][1]["from"], "layers.7")  # the head is more than all layers
        self.assertLess(work[0], work[1])

    def test_a_table_for_people(self):
        text = self.expect_ok(self.run_tool(*self.STEP[:-1], "--stages", 2)).stdout
        for word in ("one_f_one_b", "layers.4", "waiting", "MiB at most"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
