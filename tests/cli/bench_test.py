"""`tegula bench`: its JSON has what tables are made of, and bad flags get one clear line."""

import json
import os
import re
import subprocess
import tempfile
import unittest

TEGULA = os.environ.get("TEGULA_BIN", "build/release/tegula")
PLUGIN = os.path.join(os.path.dirname(TEGULA), "libtegula_cuda.so")
KEYS = {"ms_median", "ms_min", "gflops", "gbytes_per_s", "share_of_peak", "kernel"}

OPS = ["layer_norm", "layer_norm_bwd", "rms_norm", "rms_norm_bwd", "softmax", "softmax_bwd", "logsumexp", "log_softmax",
       "cross_entropy", "cross_entropy_grads", "rope", "embedding", "embedding_bwd", "gelu", "gelu_bwd", "silu",
       "silu_bwd", "adamw", "quantise", "dequantise"]


WITHOUT_ISA = {name: value for name, value in os.environ.items() if name != "TEGULA_ISA"}


def bench(*arguments, env=None):
    return subprocess.run([TEGULA, "bench", *arguments], capture_output=True, text=True, timeout=120, env=env)


class BenchTest(unittest.TestCase):
    def measure(self, *arguments):
        done = bench(*arguments, "--repeats", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout.strip().splitlines()[-1])
        self.assertLessEqual(KEYS, row.keys())
        self.assertGreater(row["ms_median"], 0)
        return row

    def test_gemm_counts_two_operations_a_product(self):
        row = self.measure("gemm", "--shape", "32,48,64")
        self.assertEqual(row["flops"], 2 * 32 * 48 * 64)
        self.assertEqual(row["flops_counted"], row["flops"])
        self.assertEqual(row["kernel"], "dot_packed")

    def test_gemm_with_an_epilogue_is_one_kernel(self):
        for dtype in ("f32", "bf16"):
            row = self.measure("gemm", "--shape", "32,48,64", "--dtype", dtype, "--epilogue", "scale,bias,gelu")
            self.assertIn(row["kernel"], ("dot_packed", "dot_amx"))
            self.assertEqual(row["flops"], 2 * 32 * 48 * 64)
            self.assertEqual(row["flops_counted"], row["flops"] + 32 * 48 * (1 + 1 + 8))

    def test_int8_rows_by_weights_of_each_kind(self):
        for weights, groups in (("as the operands", 1), ("int8", 2), ("int4", 2)):
            row = self.measure("gemm", "--shape", "3,48,256", "--dtype", "int8", "--weights", weights)
            self.assertEqual(row["kernel"], "dot_i8_rows")
            self.assertEqual(row["flops"], 2 * 3 * 48 * 256)
            self.assertEqual(row["flops_counted"], 3 * 48 * (2 * 256 + 2 * groups + 1))

    def test_attention_in_every_pass(self):
        one = 4 * 2 * 4 * 40 * 40 * 16 / 2
        for name, factor in (("fwd", 1), ("bwd", 2.5), ("fwdbwd", 3.5)):
            row = self.measure("attention", "--shape", "2,4,40,16", "--causal", "--kv-heads", "2",
                               "--pass", name)
            self.assertEqual(row["flops"], one * factor, name)
            self.assertEqual("attention_bwd_flash" in row["kernel"], name != "fwd")

    def test_attention_counts_the_pairs_that_masks_leave(self):
        def visible(n, keys, is_causal, window):
            def sees(i, j):
                at = i + keys - n  # aligned at the end
                return (not is_causal or j <= at) and (window is None or j >= at - window)
            return sum(sees(i, j) for i in range(n) for j in range(keys))

        d = 128
        for n, keys, is_causal, window, is_packed in (
                (48, 48, True, 7, False), (48, 48, False, 7, False), (48, 48, True, 100, False),
                (16, 60, True, None, False), (60, 16, True, None, False), (16, 60, True, 9, False),
                (40, 56, False, None, False), (48, 48, True, None, True), (40, 70, True, None, True),
                (41, 41, False, None, True), (48, 48, True, 5, True)):
            case = ["--shape", f"1,4,{n},{d}", "--kv-heads", "2"]
            case += ["--seqlen-k", str(keys)] if keys != n else []
            case += ["--causal"] if is_causal else []
            case += [] if window is None else ["--window", str(window)]
            case += ["--with", "varlen"] if is_packed else []
            halves = [(n // 2, keys // 2), (n - n // 2, keys - keys // 2)] if is_packed else [(n, keys)]
            pairs = 4 * sum(visible(rows, of, is_causal, window) for rows, of in halves)
            for name, factor in (("fwd", 1), ("bwd", 2.5)):
                row = self.measure("attention", *case, "--pass", name)
                self.assertEqual(row["flops"], 4 * d * pairs * factor, case)
                # What kernels count is the products and little else, d of it being large.
                self.assertAlmostEqual(row["flops_counted"] / row["flops"], 1, delta=0.06, msg=case)
            for word in (["kv-heads 2"] + ([f"seqlen-k {keys}"] if keys != n else []) +
                         ([] if window is None else [f"window {window}"])):
                self.assertIn(word, row["what"])

    def test_attention_of_e4m3(self):
        row = self.measure("attention", "--shape", "1,2,24,16", "--dtype", "f8e4m3")
        self.assertEqual(row["flops"], 4 * 2 * 24 * 24 * 16)

    def test_decode_and_train(self):
        self.assertIn("attention", self.measure("decode", "--shape", "1,4,64,16", "--dtype",
                                                "bf16", "--kv-heads", "2")["kernel"])
        row = self.measure("train", "--n-layers", "1", "--n-heads", "2", "--d-model", "16",
                           "--seqlen", "12", "--batch", "2")
        self.assertGreater(row["tokens_per_s"], 0)

    def test_a_token_cold_and_what_each_kernel_takes(self):
        row = self.measure("generate", "--n-layers", "1", "--n-heads", "2", "--d-model", "16",
                           "--seqlen", "12", "--vocab-size", "50", "--dtype", "bf16", "--cold",
                           "--by-op")
        self.assertGreater(row["tokens_per_s"], 0)
        self.assertGreater(row["share_of_reads"], 0)
        self.assertGreater(row["read_gbytes_per_s"], 0)
        self.assertIn("attention", [op["op"] for op in row["ops"]])
        self.assertEqual(row["ops"], sorted(row["ops"], key=lambda op: -op["ms"]))
        self.assertEqual({op["phase"] for op in row["ops"]}, {"forward"})

    def test_tokens_of_several_texts(self):
        flags = ("generate", "--n-layers", "1", "--n-heads", "2", "--d-model", "16", "--seqlen", "12",
                 "--vocab-size", "50")
        row = self.measure(*flags, "--texts", "3")
        self.assertIn("of 3 texts", row["what"])
        self.assertGreater(row["flops"], 2 * self.measure(*flags)["flops"])

    # Weights that are not finite have slower ways of their own: then AdamW's update was fed nonsense.
    def test_training_steps_stay_finite(self):
        row = self.measure("train", "--n-layers", "1", "--n-heads", "2", "--d-model", "16",
                           "--seqlen", "12", "--batch", "2", "--vocab-size", "50", "--by-op")
        self.assertEqual({op["phase"] for op in row["ops"]}, {"forward", "backward", "update"})
        self.assertGreater(row["loss"], 0)
        self.assertLess(row["loss"], 5)

    def test_what_each_part_of_the_model_takes(self):
        flags = ("train", "--n-layers", "3", "--n-heads", "2", "--d-model", "16", "--seqlen", "12", "--batch", "2",
                 "--vocab-size", "50", "--by-op")
        parts = {"embedding", "layers.*", "layers.*.attn", "layers.*.mlp", "head", "other"}
        rows = self.measure(*flags)["ops"]
        self.assertEqual({row["scope"] for row in rows}, parts)
        attention = [row for row in rows if row["op"] == "attention"]
        self.assertEqual([(row["scope"], row["launches"]) for row in attention], [("layers.*.attn", 3)])
        table = bench(*flags, "--repeats", "1").stdout
        table = table[table.index("kernel and shapes"):].splitlines()[1:]
        sums, shares, found = [], [], {}
        for line in table:
            if part := re.fullmatch(r" *([\d.]+) ([\w.*]+): ([\d.]+) %", line):
                name = part[2]
                found[name] = [float(part[1]), 0]
                sums.append(float(part[1]))
                shares.append(float(part[3]))
            else:
                found[name][1] += float(line.split()[0])
        self.assertEqual(set(found), parts)
        self.assertEqual(sums, sorted(sums, reverse=True))
        self.assertAlmostEqual(sum(shares), 100, delta=1)
        for name, (total, of_rows) in found.items():
            self.assertAlmostEqual(total, of_rows, delta=0.001 * len(table), msg=name)

    def test_ops_each_by_a_kernel_of_its_own_or_fused(self):
        table = subprocess.run([TEGULA, "ops"], capture_output=True, text=True, timeout=60).stdout
        references = {line.split()[0] for line in table.splitlines()} - {"fused"}  # called by their op's name
        small = ("ops", "--shape", "24,64", "--vocab-size", "50")
        for dtype in ("f32", "bf16"):
            row = self.measure(*small, "--dtype", dtype)
            self.assertEqual([op["op"] for op in row["ops"]], OPS)
            self.assertEqual(row["what"], f"ops 24,64 {dtype}")
            for op in row["ops"]:
                self.assertLessEqual(KEYS, op.keys())
                self.assertGreater(op["ms_median"], 0, op)
                self.assertGreater(op["gbytes_per_s"], 0, op)
                self.assertEqual(op["gflops"] > 0, op["op"] != "embedding", op)
                self.assertFalse(references & set(op["kernel"].split(",")), op)
                f32_only = op["op"] in ("adamw", "quantise", "dequantise")
                self.assertTrue(op["what"].endswith(" f32" if f32_only else f" {dtype}"), op)
                self.assertLessEqual(set(op["kernel"].split(",")), set(row["kernel"].split(",")))
            for key in ("ms_median", "ms_min", "flops", "flops_counted"):
                self.assertAlmostEqual(row[key], sum(op[key] for op in row["ops"]), places=6)

    def test_one_op_its_least_bytes_and_flops(self):
        f32 = 4 * 24 * 64  # a matrix
        for name, least, flops in (
                ("softmax_bwd", 3 * f32, 4 * 24 * 64), ("layer_norm", 2 * f32 + 2 * 4 * 64, None),
                ("logsumexp", f32 + 4 * 24, (4 * 64 + 2) * 24), ("embedding", 2 * f32 + 4 * 24, 0),
                ("embedding_bwd", f32 + 4 * 24 + 4 * 50 * 64, 24 * 64),
                ("cross_entropy", f32 + 4 * 50 * 64 + 4 * 24 + 4, None),
                ("adamw", 7 * f32 + 4 * 4, None), ("quantise", f32 + 24 * 64 + 4 * 24, None)):
            row = self.measure("ops", "--shape", "24,64", "--vocab-size", "50", "--only", name, "--cold")
            self.assertEqual([op["op"] for op in row["ops"]], [name])
            op = row["ops"][0]
            self.assertAlmostEqual(op["gbytes_per_s"] * op["ms_median"] * 1e6 / least, 1, places=6, msg=name)
            self.assertGreater(op["share_of_reads"], 0)
            if flops is not None:
                self.assertEqual(op["flops"], flops, name)

    def test_ops_in_text(self):
        done = bench("ops", "--shape", "8,16", "--vocab-size", "9", "--repeats", "1", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        head, *lines = done.stdout.splitlines()
        self.assertIn("ops 8,16 f32, 1 threads", head)
        self.assertEqual([line.split()[0] for line in lines], OPS)

    def doctor(self, *flags, **more):
        done = subprocess.run([TEGULA, "doctor", "--threads", "1", *flags], capture_output=True, text=True,
                              timeout=60, env=dict(WITHOUT_ISA, **more))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def sets(self):
        """Every instruction set's name, and whether this processor has it."""
        levels = json.loads(self.doctor("--json").stdout)["isa_levels"]
        return {level["isa"]: level["present"] for level in levels}

    def test_doctor_says_what_kernels_use(self):
        row = json.loads(self.doctor("--json").stdout)
        self.assertIn(row["isa"], [x["isa"] for x in row["isa_levels"] if x["present"]])
        self.assertIs(row["isa_is_forced"], False)
        for key in ("fma_gflops", "read_gbytes_per_s", "cores", "memory_nodes"):
            self.assertGreater(row[key], 0, key)
        forced = json.loads(self.doctor("--json", TEGULA_ISA="portable").stdout)
        self.assertEqual((forced["isa"], forced["isa_is_forced"]), ("portable", True))
        self.assertIn("portable, forced\n", self.doctor(TEGULA_ISA="portable").stdout)
        done = self.doctor(TEGULA_ISA="Portable")  # names have no case
        self.assertEqual(done.stderr, "")
        self.assertIn("portable, forced\n", done.stdout)

    def test_doctor_says_forced_only_of_what_was_asked_for(self):
        sets = self.sets()
        absent = [isa for isa, present in sets.items() if not present]
        for isa in ["sse9", "", "avx", *absent]:
            with self.subTest(isa=isa):
                done = self.doctor("--json", TEGULA_ISA=isa)
                self.assertIn(f"TEGULA_ISA={isa} is not an instruction set of this machine", done.stderr)
                row = json.loads(done.stdout)
                self.assertIs(row["isa_is_forced"], False)
                self.assertTrue(sets[row["isa"]])
        self.assertNotIn("forced", self.doctor(TEGULA_ISA="sse9").stdout)

    def test_the_instruction_set_asked_for_is_used(self):
        for isa, is_present in self.sets().items():
            with self.subTest(isa=isa):
                if not is_present:
                    reason = f"TEGULA_ISA={isa} is not tried: this processor lacks it"
                    print(reason)
                    self.skipTest(reason)
                done = bench("gemm", "--shape", "8,24,16", "--repeats", "1", "--json",
                             env=dict(WITHOUT_ISA, TEGULA_ISA=isa))
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(json.loads(done.stdout.strip().splitlines()[-1])["isa"], isa)

    def test_rungs_of_the_ladder_by_name_and_their_reads(self):
        for rung in ("dot_naive", "dot_cache_tiled", "dot_register_tiled"):
            row = self.measure("gemm", "--shape", "8,24,16", "--kernel", rung)
            self.assertEqual(row["kernel"], rung)
            self.assertEqual(row["flops_counted"], row["flops"])
        done = bench("gemm", "--shape", "96,96,96", "--reads", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for rung in json.loads(done.stdout)["rungs"]:
            self.assertTrue(rung["is_equal"])
            self.assertEqual(rung["l1_counted"], rung["l1_reads"], rung["kernel"])
            self.assertEqual(rung["memory_counted"], rung["memory_reads"], rung["kernel"])

    def test_tune_keeps_what_it_found_and_survives_damage(self):
        with tempfile.TemporaryDirectory() as folder:
            def tune():
                done = subprocess.run([TEGULA, "tune", "gemm", "--shape", "64,96,128", "--tune", "quick",
                                       "--tune-cache", folder, "--threads", "1", "--json"],
                                      capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                return json.loads(done.stdout), done.stderr

            first, said = tune()
            self.assertEqual((first["timed"], said), (1, ""))
            self.assertEqual(tune()[0]["timed"], 0)
            row = self.measure("gemm", "--shape", "64,96,128", "--threads", "1", "--tune", "quick",
                               "--tune-cache", folder)
            self.assertEqual(row["kernel"], "dot_packed")
            with open(first["table"], "w", encoding="utf-8") as file:
                file.write("{")
            again, said = tune()
            self.assertEqual(again["timed"], 1)
            self.assertEqual(len(said.splitlines()), 1)
            self.assertEqual(tune(), (tune()[0], ""))

    def test_bad_flags(self):
        for arguments, words in ((("gemm", "--shape", "3,4"), "has 2 numbers, must be M,N,K"),
                                 (("gemm", "--shape", "3,x,4"), "whole numbers from 1"),
                                 (("gemm", "--shape", "3,3,4", "--dtype", "i8"), "one of f32"),
                                 (("attention", "--shape", "1,3,4,5", "--kv-heads", "2"), "multiple of 2"),
                                 (("attention", "--shape", "1,2,24,16", "--dtype", "f8e4m3", "--pass", "bwd"),
                                  "forward only"),
                                 (("gemm", "--shape", "3,3,3", "--kernel", "dot"), "not a kernel"),
                                 (("gemm", "--shape", "2,64,64", "--weights", "int8", "--kernel", "dot_packed"), "dot_quantised_rows"),
                                 (("gemm", "--shape", "3,3,3", "--epilogue", "bias,silu"), "not scale, bias or gelu"),
                                 (("gemm", "--shape", "3,3,64", "--weights", "int8", "--epilogue", "bias"), "floats"),
                                 (("gemm", "--shape", "3,3,64", "--dtype", "int8", "--epilogue", "bias"), "floats"),
                                 (("gemm", "--shape", "90,90,90", "--reads"), "multiple of 96"),
                                 (("gemm", "--shape", "3,3,3", "--tune", "yes"), "off|quick|full"),
                                 (("ops", "--shape", "3"), "has 1 numbers, must be ROWS,COLUMNS"),
                                 (("ops", "--shape", "3,7"), "head dim 7 must be even"),
                                 (("ops", "--only", "relu"), "|".join(OPS)),
                                 (("ops", "--dtype", "f16"), "one of f32|bf16"),
                                 (("gemm", "--shape", "3,3,3", "--device", "cuda"), "cuda")):
            done = bench(*arguments)
            # With the plug-in at hand it is the driver that is missing, which is no bad flag.
            self.assertEqual(done.returncode, 3 if "cuda" in arguments and os.path.exists(PLUGIN) else 2, arguments)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)

    def test_ops_refuse_the_gpu_before_they_look_for_one(self):
        done = bench("ops", "--device", "cuda")
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))
        self.assertIn("the GPU has no kernels of these ops", done.stderr)


if __name__ == "__main__":
    unittest.main()
