"""tegula plan MODEL: what is asked on the command line, its JSON, and what is refused."""

import json
import re
import subprocess
import unittest
import xml.etree.ElementTree

from case import CliTest, INPUT, TEGULA, USAGE

KEYS = ["params", "params_active", "flops_per_token_forward", "flops_per_token_train",
        "kv_bytes_per_token", "layouts", "n_equal", "rejected"]
LAYOUT_KEYS = ["dp", "tp", "pp", "cp", "context", "ep", "zero", "sp", "schedule", "interleave", "slices",
               "microbatch", "remat", "step_s", "interval_s", "tokens_per_s_per_gpu", "tflops_model", "tflops_hw",
               "mfu", "mfu_of_seen_keys", "hfu", "peak_bytes", "reserved_bytes", "fit", "memory", "bubble", "exposed_comm_s", "seconds",
               "stages", "stage_layers", "made_again", "bound_by"]
MEMORY_KEYS = ["weights", "gradients", "optimizer", "activations", "temporaries", "copies", "never_together"]
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 131072, "vocab_size": 128256, "rms_norm_eps": 1e-5,
         "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}}


class Planner(CliTest):
    def plan(self, *arguments):
        done = self.expect_ok(self.run_tool("plan", *arguments, "--json"))
        self.assertEqual(len(done.stdout.splitlines()), 1)
        return json.loads(done.stdout)

    def test_one_object_with_these_keys(self):
        plan = self.plan("llama3-8b", "--gpus", "64xH100")
        self.assertEqual(list(plan), [*KEYS, "cluster", "without_effect", "job", "what_would_help"])
        self.assertEqual(plan["params"], 8030261248)
        self.assertEqual(plan["cluster"]["n_devices"], 64)
        self.assertEqual(plan["job"]["seqlen"], 8192)
        self.assertIn("batch", [h["twice_the"] for h in plan["what_would_help"]])
        self.assertTrue(1 <= len(plan["layouts"]) <= 5)
        steps = []
        for layout in plan["layouts"]:
            self.assertEqual(list(layout), LAYOUT_KEYS)
            self.assertEqual(list(layout["memory"]), MEMORY_KEYS)
            self.assertEqual(layout["dp"] * layout["tp"] * layout["pp"] * layout["cp"], 64)
            self.assertAlmostEqual(sum(layout["memory"].values()) / layout["peak_bytes"], 1)
            self.assertLess(layout["peak_bytes"], 80e9)
            low, high = layout["interval_s"]
            self.assertTrue(low < layout["step_s"] < high)
            self.assertAlmostEqual(layout["tflops_model"] / 989, layout["mfu"])
            self.assertIn(layout["bound_by"], ("compute", "memory", "network", "launch"))
            steps.append(layout["step_s"])
        self.assertEqual(steps, sorted(steps))
        self.assertTrue(plan["rejected"])
        for rejected in plan["rejected"]:
            self.assertTrue(rejected["why"])

    def test_a_model_alone(self):
        plan = self.plan("llama3-405b")
        self.assertEqual(list(plan), KEYS)
        self.assertEqual((plan["layouts"], plan["rejected"]), ([], []))
        self.assertEqual(plan["flops_per_token_train"], 3 * plan["flops_per_token_forward"])
        products = 405853388800 - 128256 * 16384 - (2 * 126 + 1) * 16384
        self.assertEqual(plan["flops_per_token_forward"],
                         2 * products + 4 * 8192 * 16384 * 126)
        self.assertEqual(plan["kv_bytes_per_token"], 2 * 126 * 8 * 128 * 2)

    def test_a_config_is_the_preset(self):
        config = self.write("model/config.json", json.dumps(LLAMA))
        flags = ("--gpus", "8xH100", "--seqlen", 8192, "--batch-tokens", 1 << 20)
        plan = self.plan(config, *flags)
        self.assertEqual(plan, self.plan(config.parent, *flags))
        preset = self.plan("llama3-8b", *flags)
        preset.pop("without_effect"), plan.pop("without_effect")  # a preset's --seqlen is its own
        self.assertEqual(plan, preset)

    def test_what_is_fixed_stays(self):
        plan = self.plan("llama3-8b", "--gpus", "64xH100", "--fix",
                         "tp=2,pp=2,zero=1,sp=true,schedule=1f1b,microbatch=1,remat=full")
        for layout in plan["layouts"]:
            self.assertEqual([layout[k] for k in ("tp", "pp", "zero", "sp", "schedule",
                                                  "microbatch", "remat")],
                             [2, 2, 1, True, "one_f_one_b", 1, "full"])
            self.assertGreater(layout["hfu"], layout["mfu"])
        naive = self.plan("llama3-8b", "--gpus", "64xH100", "--fix", "tp=2,remat=full,attention=naive")
        self.assertAlmostEqual(naive["layouts"][0]["mfu"] / naive["layouts"][0]["hfu"], 0.75, delta=0.02)
        fp8 = self.plan("llama3-8b", "--gpus", "64xH100", "--dtype", "fp8")
        self.assertLess(fp8["layouts"][0]["step_s"],
                        self.plan("llama3-8b", "--gpus", "64xH100")["layouts"][0]["step_s"])

    def test_what_does_not_fit_says_why_and_what_would(self):
        done = self.run_tool("plan", "llama3-405b", "--gpus", "8xH100", "--json")
        self.expect_error(done, INPUT, "does not fit on 8xh100", "weights", "optimizer", "85.5",
                          "would do")
        plan = json.loads(done.stdout)
        self.assertEqual(list(plan), [*KEYS, "cluster", "without_effect"])
        self.assertEqual(plan["layouts"], [])
        self.assertTrue(plan["rejected"])
        enough = done.stderr.split("; ")[-1].split(" would do")[0]
        self.assertTrue(self.plan("llama3-405b", "--gpus", enough, "--batch-tokens",
                                  8192 * int(enough.split("x")[0]))["layouts"])

    def test_text_has_the_numbers(self):
        text = self.expect_ok(self.run_tool("plan", "mixtral-8x7b", "--gpus", "64xH100",
                                            "--tokens-total", "1e12")).stdout
        for words in ("46,702,792,704", "active", "best layouts", "MFU", "why not", "days",
                      "what would help most"):
            self.assertIn(words, text)

    def test_serving(self):
        plan = self.plan("llama3-70b", "--gpus", "8xH100", "--serve", "--prompt", 2048,
                         "--output", 256)
        serve = plan["serve"]
        self.assertEqual(list(plan), [*KEYS, "cluster", "without_effect", "serve"])
        rates = [layout["tokens_per_s"] for layout in serve["layouts"]]
        self.assertEqual(rates, sorted(rates, reverse=True))
        for layout in serve["layouts"]:
            self.assertEqual(layout["n"] * layout["copies"], 8)
            self.assertLess(layout["weight_bytes"] + layout["kv_bytes"], 80e9)
        self.assertEqual(serve["quickest"]["batch"], 1)
        self.assertLess(serve["quickest"]["tpot_s"], serve["layouts"][0]["tpot_s"])
        self.assertEqual(serve["kv_bytes_per_sequence"], 2304 * plan["kv_bytes_per_token"])
        text = self.expect_ok(self.run_tool("plan", "llama3-70b", "--gpus", "8xH100", "--serve")).stdout
        for words in ("first token after", "ms a token", "dollars a million", "compute-bound"):
            self.assertIn(words, text)
        self.expect_error(self.run_tool("plan", "llama3-405b", "--gpus", "4xH100", "--serve"), (1, 2),
                          "does not fit", "811.7 GB")
        self.expect_error(self.run_tool("plan", "llama3-8b", "--serve"), USAGE, "--gpus")

    def test_this_cpu_is_a_device(self):
        # What is compared is of one measurement: two of them differ by more than a larger batch costs.
        serve = self.plan("gpt2", "--gpus", "this-cpu", "--threads", 1, "--serve", "--prompt", 64, "--output", 16,
                          "--dtype", "f32")["serve"]
        one, many = serve["quickest"], serve["layouts"][0]
        self.assertEqual(one["batch"], 1)
        self.assertGreater(many["batch"], 8)
        self.assertGreater(one["tpot_s"], 1e-4)
        self.assertGreater(many["tpot_s"], one["tpot_s"])
        self.assertLess(many["tpot_s"], many["batch"] * one["tpot_s"])
        self.assertGreater(one["ttft_s"], one["tpot_s"])
        for gpus, more, words in (("2xthis-cpu", (), "one of it"), ("this-cpu", ("--dtype", "fp8"), "f32 and bf16")):
            self.expect_error(self.run_tool("plan", "gpt2", "--gpus", gpus, "--serve", *more), USAGE, words)

    def test_other_schedules_and_unequal_stages(self):
        text = self.expect_ok(self.run_tool("plan", "gpt2-xl", "--gpus", "8xA100", "--fix", "pp=4", "--batch-tokens",
                                            65536, "--unequal-stages")).stdout
        best = re.search(r"\n +1 +(dp .*)", text)[1].split()
        for name in {"zero_bubble_v", "chimera", "dual_pipe", "tera_pipe"} - set(best):
            self.assertRegex(text, rf"by {name}: [0-9.e-]+ s, bubble [0-9.]+ %, [0-9.]+ GB")
        layers = [tuple(map(int, m)) for m in re.findall(r"layers (\d+) to (\d+) on (\d+) nodes? of (\d+)", text)]
        self.assertEqual([layers[0][0], layers[-1][1]], [0, 47])
        self.assertEqual(sum(nodes * devices for _, _, nodes, devices in layers), 8)
        self.expect_error(self.run_tool("plan", "gpt2-xl", "--unequal-stages"), USAGE, "--gpus")

    def test_best_layouts_in_full_are_what_a_whole_plan_says(self):
        text = self.expect_ok(self.run_tool("plan", "gpt2", "--gpus", "1xA100", "--fix", "microbatch=2,remat=none",
                                            "--dtype", "f32", "--batch-tokens", 2048, "--plan-in-full")).stdout
        planned = float(re.search(r"([0-9.]+) GB of activations, gradients and workspaces", text)[1])
        whole = json.loads(self.expect_ok(self.run_tool(
            "plan", "--n-layers", 12, "--n-heads", 12, "--d-model", 768, "--seqlen", 1024, "--batch", 2,
            "--vocab-size", 50257, "--threads", 1, "--json")).stdout)
        self.assertEqual(planned, round(whole["arena_bytes"] / 1e9, 2))
        text = self.expect_ok(self.run_tool("plan", "llama3-8b", "--gpus", "16xH100", "--fix", "pp=2",
                                            "--plan-in-full")).stdout
        self.assertIn("not planned", text)
        self.assertIn("not built here", self.run_tool("plan", "palm-540b", "--gpus", "1024xH100", "--plan-in-full").stderr)

    def test_memory_by_plans_of_few_layers_is_that_of_the_whole_plan(self):
        run = ("--dtype", "f32", "--batch-tokens", 4096)
        plan = self.plan("gpt2", "--gpus", "1xA100", "--fix", "microbatch=2,remat=none", "--keeps", "built", *run)
        memory = plan["layouts"][0]["memory"]
        whole = json.loads(self.expect_ok(self.run_tool(
            "plan", "--n-layers", 12, "--n-heads", 12, "--d-model", 768, "--seqlen", 1024, "--batch", 2,
            "--accumulate", 2, "--vocab-size", 50257, "--threads", 1, "--json")).stdout)
        self.assertEqual(memory["activations"] + memory["temporaries"], whole["arena_lower_bound_bytes"])
        book = self.plan("gpt2", "--gpus", "1xA100", "--fix", "microbatch=2,remat=none", "--keeps", "mixed", *run)
        self.assertNotEqual(book["layouts"][0]["memory"], memory)
        for key in ("weights", "gradients", "optimizer"):
            self.assertEqual(book["layouts"][0]["memory"][key], memory[key])
        # What is recomputed is held for one layer, no longer for all.
        full = self.plan("gpt2", "--gpus", "1xA100", "--fix", "microbatch=2,remat=full", "--keeps", "built",
                         *run)["layouts"][0]["memory"]
        self.assertLess(full["activations"], memory["activations"] / 8)
        self.assertGreater(full["temporaries"], memory["temporaries"])

    def test_accelerators_of_another_kind(self):
        for gpus, flags, model in (("16xcerebras-wse3", (), "llama2-70b"),
                                   ("576xgroq-lpu", ("--serve", "--dtype", "int8"), "llama2-70b"),
                                   ("8xsambanova-sn40l", ("--serve",), "llama3-8b"),
                                   ("tenstorrent-wormhole", ("--serve", "--dtype", "fp8"), "mistral-7b"),
                                   ("tenstorrent-grayskull", ("--serve",), "gpt2-xl"),
                                   ("4xgraphcore-gc200", ("--serve",), "gpt2")):
            other = self.plan(model, "--gpus", gpus, *flags)["other_kind"]
            shown = sum(t["seconds"] for t in other["terms"] if not t["is_hidden"])
            self.assertAlmostEqual(other["seconds"] / shown, 1)
            figure = other["published"]
            self.assertAlmostEqual(figure["planned"] / figure["published"] - 1, figure["error"])
            text = self.expect_ok(self.run_tool("plan", model, "--gpus", gpus, *flags)).stdout
            self.assertIn("published", text)
            self.assertIn("assumed", text)
        for kind in ("d-matrix", "furiosa", "lightmatter", "matx", "taalas"):
            self.expect_error(self.run_tool("plan", "gpt2", "--gpus", f"8x{kind}"), (1, USAGE), kind,
                              "No public number was found for")
        self.expect_error(self.run_tool("plan", "llama2-70b", "--gpus", "8xgroq-lpu", "--serve"),
                          (1, USAGE), "take")

    def test_every_schedule_can_be_fixed(self):
        asked = ("llama3-8b", "--gpus", "16xA100", "--batch-tokens", 8192 * 64)
        best = self.plan(*asked, "--fix", "pp=4")["layouts"][0]
        for name in ("gpipe", "one_f_one_b", "interleaved", "zero_bubble", "zero_bubble_h2", "zero_bubble_v",
                     "chimera", "dual_pipe", "tera_pipe"):
            layout = self.plan(*asked, "--fix", f"pp=4,schedule={name}")["layouts"][0]
            self.assertEqual(layout["schedule"], name)
            self.assertGreaterEqual(layout["step_s"], best["step_s"])
            self.assertEqual(layout["slices"] > 1, name == "tera_pipe")
        self.expect_error(self.run_tool("plan", *asked, "--fix", "pp=1,schedule=chimera"), USAGE, "chimera", "pp 1")
        self.expect_error(self.run_tool("plan", *asked, "--fix", "pp=4,schedule=gpipe,slices=4"), USAGE, "slices 4",
                          "tera_pipe")
        self.expect_error(self.run_tool("plan", *asked, "--fix", "schedule=zbv"), USAGE, "zero_bubble_v")

    def test_flags_of_no_use_are_refused(self):
        serve = ("plan", "llama3-8b", "--gpus", "8xH100", "--serve")
        for flags, words in ((("--keeps", "built"), "--keeps"), (("--guide",), "--guide"),
                             (("--fix", "tp=2"), "only dtype"), (("--html", "x"), "--html")):
            self.expect_error(self.run_tool(*serve, *flags), USAGE, words)
        self.expect_error(self.run_tool("plan", "llama3-8b", "--prompt", 3), USAGE, "--serve")
        self.expect_ok(self.run_tool(*serve, "--fix", "dtype=fp8"))

    def test_the_model_may_stand_behind_flags(self):
        self.assertEqual(json.loads(self.expect_ok(self.run_tool(
            "plan", "--json", "llama3-8b")).stdout)["params"], 8030261248)
        # And a family is no model.
        self.assertIn("compiled", self.expect_ok(self.run_tool("plan", "--model", "gpt2")).stdout)

    def test_several_side_by_side(self):
        for flags in ((), ("--serve",)):
            plan = self.plan("llama3-8b", "--gpus", "8xH100", "--compare-gpus", "A100,H200,T4", *flags)
            self.assertEqual([row["gpus"] for row in plan["compare"]], ["8xa100", "8xh200", "8xt4"])
            a100, h200, _ = plan["compare"]
            self.assertLess(a100["tokens_per_s_per_gpu"], h200["tokens_per_s_per_gpu"])
        self.expect_error(self.run_tool("plan", "llama3-8b", "--compare-gpus", "A100,H20O"), USAGE,
                          "H20O", "h200")

    def test_the_way_there(self):
        run = ("plan", "gpt2", "--gpus", "8xA100", "--guide", "--tokens-total", "1e10")
        text = self.expect_ok(self.run_tool(*run, "--deadline", 10)).stdout
        self.assertIn("1. does it fit on one device? yes", text)
        self.assertIn("2. is the job done in time on one? yes", text)
        text = self.expect_ok(self.run_tool(*run, "--deadline", 0.01)).stdout
        self.assertIn("5. what is the best of all combinations? no", text)
        self.expect_error(self.run_tool("plan", "gpt2", "--guide"), USAGE, "--gpus")
        self.expect_error(self.run_tool("plan", "gpt2", "--gpus", "8xA100", "--deadline", 3), USAGE,
                          "--deadline requires")

    def test_where_numbers_come_from(self):
        asked = ("plan", "llama3-8b", "--gpus", "64xH100", "--explain")
        text = self.expect_ok(self.run_tool(*asked, "ff up")).stdout
        for words in ("[8192 4096]·[4096 14336]", "9.62073e+11 FLOPs", "bound by compute"):
            self.assertIn(words, text)
        self.assertIn("9.62073e+11", text)
        step = self.expect_ok(self.run_tool(*asked, "step")).stdout
        best = self.plan("llama3-8b", "--gpus", "64xH100")["layouts"][0]
        self.assertIn(f"{best['step_s']:.6g} s", step)
        self.assertIn(f"= {best['mfu']:.4f}", step)
        memory = self.expect_ok(self.run_tool(*asked, "memory")).stdout
        self.assertIn(f"{best['peak_bytes']:.6g}", memory)
        # 2·(7 − 3) latencies less, at 2·3 − 2·7/8 times a byte's time more (and 3 − 7/8 times its addition).
        table = self.expect_ok(self.run_tool(*asked, "collectives")).stdout
        crossover = 8 * 1e-6 / ((6 - 14 / 8) / 450e9 + (3 - 7 / 8) * 3 / 3350e9)
        self.assertIn(f"the tree below {crossover:.4g} bytes", table)
        self.assertIn("by nodes (flat", table)
        self.expect_error(self.run_tool(*asked, "ff pu"), USAGE, "'ff pu'", "ff up")
        self.expect_error(self.run_tool("plan", "llama3-8b", "--explain", "step"), USAGE, "--gpus")

    def test_predicted_steps_and_tokens_stand_on_their_page(self):
        for script, result in (("planner_cpu", "planner_cpu"), ("planner_cpu", "planner_cpu_bf16"),
                               ("planner_serve", "planner_serve")):
            done = subprocess.run([f"bench/{script}.py", "--table", f"bench/results/{result}.json", "--check",
                                   "docs/lab/predictions.md"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_answers_that_misled(self):
        # Sequences of a million tokens: MFU by all keys passes 1, operations that are done do not.
        long = self.plan("llama3-8b", "--gpus", "64xH100", "--seqlen", 1 << 20, "--batch-tokens", 64 << 20)["layouts"][0]
        self.assertLess(long["hfu"], 1)
        self.assertLess(long["mfu_of_seen_keys"], 1)
        # A number that does not divide leaves devices idle, and says which batch would not.
        plan = self.plan("llama3-8b", "--gpus", "1000xH100", "--batch-tokens", 1024 * 8192)
        self.assertEqual(plan["cluster"]["n_devices"], 512)
        self.assertRegex(" ".join(plan["notes"]), "488 of 1000 devices are left idle.*1000 or 2000 sequences")
        few = self.plan("llama3-8b", "--gpus", "1000xH100", "--batch-tokens", 512 * 8192, "--tokens-total", "1e12")
        self.assertIn("steps of 1000 sequences", " ".join(few["notes"]))
        # They are paid for.
        self.assertAlmostEqual(few["run"]["device_hours"] / few["run"]["days"] / 24, 1000)
        self.expect_error(self.run_tool("plan", "llama3-8b", "--gpus", "8xH100", "--fix", "loss=whole"), USAGE, "loss=whole",
                          "--framework")
        # Three devices serve no slower than two.
        rates = [self.plan("llama3-8b", "--gpus", f"{n}xH100", "--serve")["serve"]["layouts"][0]["tokens_per_s"]
                 for n in (2, 3, 4)]
        self.assertEqual(rates, sorted(rates))
        nothing = self.run_tool("plan", "llama3-405b", "--gpus", "1xH100", "--serve", "--json")
        self.expect_error(nothing, INPUT, "does not fit")
        self.assertIn("does not fit", json.loads(nothing.stdout)["serve"]["why_not"])
        # Little's law: as many requests at once as a rate and its time make.
        one = self.plan("llama3-70b", "--gpus", "8xH100", "--serve")["serve"]["layouts"][0]
        self.assertAlmostEqual(one["request_s"], one["batch"] * one["ttft_s"] + 255 * one["tpot_s"])
        self.assertAlmostEqual(one["request_s"] * one["tokens_per_s"] / 256 / (one["batch"] * one["copies"]), 1)
        # The least number that holds it, not the next power of two.
        may = self.plan("gpt3-175b", "--gpus", "32xH100", "--seqlen", 2048)
        self.assertEqual(may["layouts"][0]["fit"], "may not fit")
        self.assertRegex(" ".join(may["notes"]), "nothing fits for certain; [0-9]+xh100 would do")
        done = self.run_tool("plan", "gpt3-175b", "--gpus", "24xH100", "--seqlen", 2048)
        self.expect_error(done, INPUT, "would do")
        self.assertLess(int(re.search(r"; (\d+)xh100 would do", done.stderr)[1]), 64)
        self.expect_error(self.run_tool("plan", "llama3-8b", "--gpus", "8xH100", "--dtype", "bf16", "--fix", "dtype=fp8"),
                          USAGE, "--dtype bf16", "dtype=fp8")
        for name, device in (("8xH100-SXM", "h100"), ("8xA100-80GB", "a100"), ("8xH800", "h800"), ("8xGB200", "gb200")):
            self.assertEqual(self.plan("llama3-8b", "--gpus", name)["cluster"]["device"], device)
        self.assertIn("which it has not", self.expect_ok(self.run_tool("plan", "gpt2", "--gpus", "8xV100")).stdout)
        beyond = self.plan("llama2-7b", "--gpus", "8xH100", "--seqlen", 32768, "--batch-tokens", 8 * 32768)
        self.assertIn("longer than", " ".join(beyond["notes"]))
        for layout in beyond["layouts"]:
            self.assertLessEqual(layout["interval_s"][0], layout["step_s"])
            self.assertLessEqual(layout["step_s"], layout["interval_s"][1])

    def test_published_runs_stand_on_the_page(self):
        done = subprocess.run(["bench/planner_published.py", "--tegula", TEGULA, "--check",
                               "docs/planner.md", "docs/lab/planner_runs.md"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_pages_complete_in_themselves(self):
        page, picture = self.dir / "plan.html", self.dir / "pipeline.svg"
        asked = ("plan", "llama3-70b", "--gpus", "64xH100", "--fix", "pp=4", "--keeps", "mixed")
        self.expect_ok(self.run_tool(*asked, "--html", page, "--gantt", picture))
        text = page.read_text()
        for words in ("<h2>Layouts", "<h2>A step", "<h2>Memory", "<h2>Roofline", "<h2>Why not",
                      "<h2>The pipeline", "over the step"):
            self.assertIn(words, text)
        for outside in ("http://", "https://", "<script", "src="):
            self.assertNotIn(outside, text.replace("http://www.w3.org/2000/svg", ""))
        for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL) + [picture.read_text()]:
            xml.etree.ElementTree.fromstring(svg)
        self.expect_error(self.run_tool(*asked, "--html", self.dir / "no" / "x.html"), (1, 3),
                          "x.html")

    def test_hardware_of_ones_own(self):
        file = self.write("hw.toml", '[slow]\nlike = "h100"\nbetween-gb-per-s = 1.5\n')
        slow = self.plan("llama3-8b", "--gpus", "64xslow", "--hardware", file)
        fast = self.plan("llama3-8b", "--gpus", "64xH100")
        self.assertGreater(slow["layouts"][0]["step_s"], fast["layouts"][0]["step_s"])
        # Keys and numbers are read as names and numbers are everywhere.
        file.write_text('[slow]\nLike = "H100"\nBetween_GB_per_s = "0.0015k"\n')
        again = self.plan("llama3-8b", "--gpus", "64xSlow", "--hardware", file)
        self.assertEqual(again["layouts"], slow["layouts"])
        for text, words in (('[a]\nlike = "h100"\nmemory-gb = "96GB"', ("hw.toml: [a] memory-gb: must be a number", "96GB")),
                            ('[a]\nlike = "h100"\nmemory-gb = 1\nMEMORY_GB = 2', ("hw.toml", "memory-gb twice")),
                            ("[a]\nlike = 100", ("hw.toml", "like must be the name")),
                            ('[a]\nlike = "h1000"', ("hw.toml", "[a]", "h100")),
                            ('[a]\nlike = "h100"\nmemry-gb = 1', ("hw.toml", "memory-gb")),
                            ("[a]\nmemory-gb = 1", ("like",)), ("x = 3", ("hw.toml:1", "no table")),
                            ('[a]\nlike = ["h100"]', ("hw.toml:2", "like")), ("[a", ("hw.toml:1",))):
            file.write_text(text)
            self.expect_error(self.run_tool("plan", "llama3-8b", "--gpus", "8xa", "--hardware", file),
                              INPUT, *words)
        self.expect_error(self.run_tool("plan", "gpt2", "--hardware", self.dir / "no.toml"), INPUT,
                          "no.toml")

    def test_bad_input(self):
        for arguments, words in (
                (("lama3-8b",), ("nearest", "llama3-8b")),
                (("llama3-8b", "--gpus", "64xH1000"), ("nearest", "h100")),
                (("llama3-8b", "--gpus", "0xH100"), ("from 1 to",)),
                (("llama3-8b", "--gpus", "99999999999999999999xH100"), ("from 1 to",)),
                (("llama3-8b", "--gpus", "64xH100", "--fix", "tp=3"), ("64", "tp 3")),
                (("llama3-8b", "--gpus", "66xH100", "--fix", "tp=3"), ("n_heads 32", "tp 3")),
                (("llama3-8b", "--gpus", "64xH100", "--fix", "tpp=3"), ("'tpp'", "tp")),
                (("llama3-8b", "--gpus", "64xH100", "--fix", "tp=2,tp=4"), ("twice",)),
                (("llama3-8b", "--gpus", "64xH100", "--fix", "remat=some"), ("none|selective|full|every-other",)),
                (("llama3-8b", "--gpus", "64xH100", "--fix", "dp=64,tp=2"), ("128", "64")),
                (("llama3-8b", "--gpus", "64xH100", "--batch-tokens", 8193), ("8193", "8192")),
                (("llama3-8b", "--gpus", "48xH100", "--fix", "dp=48"), ("1024", "dp 48")),
                (("gpt2", "--seqlen", 2048, "--gpus", "8xH100"), ("2048", "1024")),
                (("llama3-8b", "--gpus", "8xV100", "--dtype", "fp8"), ("v100", "fp8"))):
            self.expect_error(self.run_tool("plan", *arguments), USAGE, *words)

    def test_bad_configs_name_the_field(self):
        for change, words in (({"hidden_size": None}, "hidden_size"),
                              ({"num_attention_heads": 31}, "31"),
                              ({"num_hidden_layers": 0}, "num_hidden_layers"),
                              ({"intermediate_size": 10 ** 18}, "intermediate_size"),
                              ({"model_type": "dreams"}, "dreams")):
            config = self.write("config.json", json.dumps(
                {k: v for k, v in (LLAMA | change).items() if v is not None}))
            self.expect_error(self.run_tool("plan", config, "--gpus", "8xH100"), INPUT, words)
        self.expect_error(self.run_tool("plan", self.dir / "none" / "config.json"), INPUT, "none")


if __name__ == "__main__":
    unittest.main()
