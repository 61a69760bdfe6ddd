"""The CUDA plug-in without a GPU: what is missing is said and named, the CPU goes on, and with a driver made for
tests (tests/kernels/cuda/emulator) calls are planned, compiled and launched to their end."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

import blocks_test

TEGULA = os.environ.get("TEGULA_BIN", "build/cuda/tegula")
FAKE = os.environ.get("TEGULA_FAKE_DRIVER", "build/cuda/libfake_cuda_driver.so")
EMULATED = os.environ.get("TEGULA_EMULATED_NVRTC", "build/cuda/libemulated_nvrtc.so")
NO_DRIVER = "/nowhere/libcuda.so.1"
GEMM = ("gemm", "--shape", "256,256,256", "--dtype", "bf16", "--repeats", "1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
USAGE, MACHINE = 2, 3  # exit codes of docs/cli.md
EMULATED_GPU = {"FAKE_CUDA_CAPABILITY": "80", "FAKE_CUDA_MULTIPROCESSORS": "4", "TEGULA_NVRTC": EMULATED,
                "TEGULA_KERNEL_CACHE": str(pathlib.Path(tempfile.gettempdir()) / "tegula_emulated_kernels")}


class CudaTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def tool(self, *arguments, **environment):
        env = {"TEGULA_CUDA_DRIVER": FAKE, "TEGULA_KERNEL_CACHE": str(self.dir / "cache"), **environment}
        return subprocess.run([TEGULA, *arguments], capture_output=True, text=True, timeout=300,
                              env={**os.environ, **env})

    def bench(self, *arguments, **environment):
        return self.tool("bench", *arguments, "--device", "cuda", **environment)

    def measure(self, *arguments, **environment):
        done = self.bench(*arguments, "--json", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.strip().splitlines()[-1])

    def refused(self, done, *words, code=USAGE):
        self.assertEqual(done.returncode, code, done.stdout)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def facts(self, **environment):
        done = self.tool("doctor", "--json", "--threads", "1", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {fact["what"]: fact for fact in json.loads(done.stdout)["cuda"]}

    def has_compiler(self):
        return self.facts()["compiler"]["is_well"]

    def test_models_need_a_gpu(self):
        text = self.dir / "text.txt"
        text.write_text("one two three four five\n" * 100, encoding="utf-8")
        small = ("train", "--data", text, "--steps", "1", "--n-layers", "1", "--d-model", "16", "--n-heads", "2", "--seqlen", "8")
        self.refused(self.tool(*small, "--device", "cuda", TEGULA_CUDA_DRIVER=NO_DRIVER), "driver", code=MACHINE)
        for flag in (("--mesh", "dp=2"), ("--check",)):
            self.refused(self.tool(*small, *flag, "--device", "cuda"), flag[0], "--device cuda", code=USAGE)

    def test_json_is_the_cpus(self):
        cpu = self.tool("bench", *GEMM, "--device", "cpu", "--json")
        row = json.loads(cpu.stdout.strip().splitlines()[-1])
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        ours = self.measure(*GEMM)
        for key in ("ms_median", "ms_min", "gflops", "gbytes_per_s", "share_of_peak", "kernel", "flops", "what"):
            self.assertIn(key, row)
            self.assertIn(key, ours)
        self.assertEqual(ours["kernel"], "matmul_sm90")
        self.assertEqual(ours["flops"], row["flops"])
        self.assertEqual(ours["device"], "Fake GPU")

    def test_kernels_by_call_and_by_name(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        attention = ("attention", "--shape", "1,4,256,64", "--dtype", "bf16", "--repeats", "1")
        self.assertEqual(self.measure(*attention, "--causal")["kernel"], "attention_sm90")
        self.assertEqual(self.measure(*attention, "--pass", "fwdbwd")["kernel"], "attention_sm90,attention_bwd_sm90")
        backward = (*attention, "--pass", "bwd")
        self.assertEqual(self.measure(*backward, "--deterministic")["kernel"], "attention_bwd_ordered_sm90")
        for kernel in ("attention_bwd_mma", "attention_bwd_ordered_mma"):
            self.assertEqual(self.measure(*backward, "--kernel", kernel)["kernel"], kernel)
        f32 = ("attention", "--shape", "1,4,256,64", "--dtype", "f32", "--repeats", "1", "--pass", "bwd")
        self.assertEqual(self.measure(*f32)["kernel"], "attention_f32_bwd_sm90")
        self.assertEqual(self.measure(*f32, "--deterministic")["kernel"], "attention_f32_bwd_ordered_sm90")
        self.refused(self.bench(*backward, "--deterministic", "--kernel", "attention_bwd_sm90"),
                     "attention_bwd_sm90 does not repeat its bits", "leave out one")
        self.assertEqual(self.measure(*attention, "--kernel", "attention_tiled")["kernel"], "attention_tiled")
        self.assertEqual(self.measure("decode", "--shape", "2,8,256,128", "--kv-heads", "2", "--dtype", "bf16",
                                      "--cold", "--repeats", "1")["kernel"], "attention_decode")
        self.assertEqual(self.measure("gemm", "--shape", "64,64,64", "--repeats", "1", "--kernel", "matmul_v1")
                         ["kernel"], "matmul_v1")
        self.refused(self.bench(*attention, "--kernel", "matmul_v1"), "not a kernel of this call", "attention_sm90")
        # A name that another kernel's begins with; a kernel of the CPU.
        for name in ("matmul_v3", "dot_packed"):
            self.refused(self.bench(*GEMM, "--kernel", name), "not a kernel of this call", "matmul_sm90")
        f32 = ("gemm", "--shape", "64,64,64", "--repeats", "1")
        self.refused(self.bench(*f32, "--kernel", "matmul_v3_double"), "not a kernel of this call")

    def nasrnn(self):
        graph = self.dir / "nasrnn.tg"
        graph.write_text(subprocess.run([sys.executable, ROOT / "bench/graphs.py", "nasrnn", "steps=2", "batch=4", "width=32"],
                                        check=True, capture_output=True, text=True).stdout, encoding="utf-8")
        return graph

    def test_a_search_ends_with_its_budget_and_the_next_one_goes_on(self):
        graph, env = self.nasrnn(), {**EMULATED_GPU, "TEGULA_KERNEL_CACHE": str(self.dir / "kernels")}
        found = [self.measure("graph", graph, "--superopt", seconds, "--mode", "fast", "--repeats", "2", "--tune-cache",
                              self.dir / "found", **env) for seconds in ("0.5", "60")]
        self.assertEqual((found[0]["rules"], found[0]["is_budget_spent"]), ([], True))  # ten kernels take longer
        self.assertNotEqual(found[1]["rules"], [])

    def test_rewritings_are_timed_where_they_run(self):
        search = ("graph", self.nasrnn(), "--superopt", "20", "--repeats", "2", "--tune-cache", self.dir / "found")
        for mode in ("exact", "fast"):
            found = self.measure(*search, "--mode", mode, **EMULATED_GPU)
            self.assertEqual(found["device"], "Fake GPU")
            self.assertEqual([r["name"] for r in found["rules"]], ["products_with_one_weight"])
            self.assertLess(found["timed_ms"][1], found["timed_ms"][0])  # by its launches: emulator/README.md
            self.assertLess(found["ms"], found["ms_without"])
            self.assertGreater(found["ready_s"], 0)
        again = self.measure(*search, "--mode", "fast", **EMULATED_GPU)
        self.assertEqual((again["candidates"], again["rules"]), (0, found["rules"]))
        self.refused(self.bench(*search, "--threads", "1", **EMULATED_GPU), "--threads", "--device cuda")

    def test_flags_of_the_cpu(self):
        for flag in (("--reads",), ("--tune", "quick")):
            self.refused(self.bench("gemm", "--shape", "96,96,96", *flag), "leave them out with --device cuda")

    def test_what_has_no_kernel_is_named(self):
        self.refused(self.bench("gemm", "--shape", "32,128,128", "--weights", "int8"), "op dot_quantised", "--device cpu")

    def test_no_driver(self):
        self.refused(self.bench(*GEMM, TEGULA_CUDA_DRIVER=NO_DRIVER), "no CUDA driver", "run on the CPU", code=MACHINE)
        fact = self.facts(TEGULA_CUDA_DRIVER=NO_DRIVER)["driver"]
        self.assertFalse(fact["is_well"])
        self.assertIn("no CUDA driver", fact["text"])
        self.assertEqual(self.tool("bench", *GEMM, TEGULA_CUDA_DRIVER=NO_DRIVER).returncode, 0)

    def test_what_is_no_driver(self):
        libc = "libc.so.6"
        self.refused(self.bench(*GEMM, TEGULA_CUDA_DRIVER=libc), "no CUDA driver", "cuDriverGetVersion", code=MACHINE)

    def test_driver_too_old(self):
        self.refused(self.bench(*GEMM, FAKE_CUDA_VERSION="11080"), "too old", "11.8", "12.0", "525", code=MACHINE)
        self.assertIn("too old", self.facts(FAKE_CUDA_VERSION="11080")["driver"]["text"])

    def test_driver_older_than_the_compiler(self):
        facts = self.facts(FAKE_CUDA_VERSION="12000")
        if "NVRTC 13" not in facts["compiler"]["text"]:
            self.skipTest("NVRTC is not newer than the driver")
        self.assertFalse(facts["compiler"]["is_well"])
        self.assertIn("newer than the driver", facts["compiler"]["text"])
        self.refused(self.bench(*GEMM, FAKE_CUDA_VERSION="12000", FAKE_CUDA_LOAD="200"),
                     "loading a kernel failed", "12.0", "update the driver", code=MACHINE)

    def test_no_device(self):
        self.refused(self.bench(*GEMM, FAKE_CUDA_DEVICES="0"), "finds no device", "nvidia-smi", code=MACHINE)
        self.assertIn("finds no device", self.facts(FAKE_CUDA_DEVICES="0")["driver"]["text"])

    def test_device_too_old(self):
        self.refused(self.bench(*GEMM, FAKE_CUDA_CAPABILITY="75"), "too old", "7.5", "8.0", code=MACHINE)
        self.assertIn("too old", self.facts(FAKE_CUDA_CAPABILITY="75")["device"]["text"])

    def test_an_older_device_gets_what_it_can_run(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        self.assertEqual(self.measure(*GEMM, FAKE_CUDA_CAPABILITY="80")["kernel"], "matmul_mma")
        self.refused(self.bench("attention", "--shape", "1,4,256,64", "--dtype", "bf16", "--kernel", "attention_sm90",
                                FAKE_CUDA_CAPABILITY="80"), "not a kernel of this call")

    def test_what_copies_cannot_reach_is_padded(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        for call, kernel in ((("attention", "--shape", "1,4,256,100"), "attention_sm90"),
                             (("attention", "--shape", "1,4,256,100", "--pass", "bwd"), "attention_bwd_sm90"),
                             (("decode", "--shape", "1,8,512,100", "--kv-heads", "2"), "attention_sm90")):
            row = self.measure(*call, "--dtype", "bf16", "--repeats", "1")
            self.assertEqual(row["kernel"], kernel)

    def test_decoding_is_for_few_queries(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        for call, kernel in ((("decode", "--shape", "1,128,256,64", "--kv-heads", "1"), "attention_decode"),
                             (("attention", "--shape", "1,4,16,64"), "attention_decode"),
                             (("attention", "--shape", "1,4,17,64"), "attention_sm90"),
                             (("attention", "--shape", "1,4,128,64"), "attention_sm90"),
                             (("attention", "--shape", "1,8,8,64", "--kv-heads", "4"), "attention_decode"),
                             (("attention", "--shape", "1,8,9,64", "--kv-heads", "4"), "attention_sm90")):
            with self.subTest(call=call):
                self.assertEqual(self.measure(*call, "--dtype", "bf16", "--repeats", "1")["kernel"], kernel)
        self.refused(self.bench("attention", "--shape", "1,8,9,320", "--kv-heads", "4", "--dtype", "f32"),
                     "attention_decode: 9 queries of 2 heads a KV head: the nearest is 8 queries")

    def test_what_is_refused_has_a_reason_of_each_kernel(self):
        wide = self.bench("attention", "--shape", "1,4,256,320", "--dtype", "f32", "--pass", "bwd")
        self.refused(wide, "no CUDA kernel", "attention_f32_bwd_sm90: attention: head_dim 320", "the nearest is 256",
                     "attention_bwd_sm90: it is not for f32")

    def test_products_that_tensor_cores_do_not_take(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        for dtype in ("bf16", "f16"):  # rows of 200 bytes are no whole pieces of 16
            for n, kernel in (("100", "dot_any"), ("64", "matvec"), ("256", "matmul_sm90")):
                call = ("--shape", f"{n},{n},{n}", "--dtype", dtype, "--repeats", "1")
                self.assertEqual(self.measure("gemm", *call)["kernel"], kernel)

    def test_a_device_with_less_shared_memory_gets_smaller_tiles(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        for d in (128, 256):  # the fake driver loads and launches no block that its device could not start
            attention = ("attention", "--shape", f"1,4,256,{d}", "--dtype", "bf16", "--repeats", "1")
            both = self.measure(*attention, "--pass", "fwdbwd", FAKE_CUDA_CAPABILITY="86")
            self.assertEqual(both["kernel"], "attention_mma,attention_bwd_mma")
        self.assertEqual(self.measure(*attention, "--pass", "bwd", "--deterministic", FAKE_CUDA_CAPABILITY="86")
                         ["kernel"], "attention_bwd_ordered_mma")
        self.assertEqual(self.measure(*GEMM, FAKE_CUDA_CAPABILITY="86")["kernel"], "matmul_mma")

    def test_no_compiler(self):
        facts = self.facts(TEGULA_NVRTC="/nowhere/libnvrtc.so")
        self.assertIn("script/bootstrap --cuda", facts["compiler"]["text"])
        f32 = ("gemm", "--shape", "64,64,64", "--repeats", "1")
        self.refused(self.bench(*f32, TEGULA_NVRTC="/nowhere/libnvrtc.so"), "no run-time compiler",
                     "script/bootstrap --cuda")
        if facts["built-in kernels"]["is_well"]:  # common cases need none
            self.measure(*GEMM, TEGULA_NVRTC="/nowhere/libnvrtc.so")

    def test_no_plugin(self):
        nowhere = str(self.dir / "nothing.so")
        self.refused(self.bench(*GEMM, TEGULA_CUDA_PLUGIN=nowhere), "does not load", "script/build --cuda")
        self.refused(self.bench(*GEMM, TEGULA_CUDA_PLUGIN=FAKE), "no CUDA plug-in of Tegula")
        fact = self.facts(TEGULA_CUDA_PLUGIN=nowhere)["plug-in"]
        self.assertFalse(fact["is_well"])

    def test_a_cache_that_cannot_be_used(self):
        if not self.has_compiler():
            self.skipTest("no NVRTC")
        f32 = ("gemm", "--shape", "64,64,64", "--repeats", "1", "--kernel", "matmul_v1")
        for folder in ("/proc/nowhere", "/dev/full"):
            done = self.bench(*f32, TEGULA_KERNEL_CACHE=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("note: ", done.stderr)
            self.assertIn("TEGULA_KERNEL_CACHE", done.stderr)
            self.assertFalse(self.facts(TEGULA_KERNEL_CACHE=folder)["kernel cache"]["is_well"])

    def test_too_large_for_the_device(self):
        self.refused(self.bench("gemm", "--shape", "32768,32768,64", "--dtype", "bf16"), "no 2147483648 bytes", code=MACHINE)

    def train_emulated(self, *flags, **environment):
        """A small run on the GPU that the driver made for tests plays to its results."""
        text = self.dir / "text.txt"
        text.write_text("".join(f"line {i * i % 97} of the text;\n" for i in range(300)), encoding="utf-8")
        small = ("--n-layers", "1", "--n-heads", "2", "--d-model", "16", "--seqlen", "12", "--batch", "2", "--steps", "6",
                 "--warmup", "1", "--eval-every", "0", "--threads", "1", "--out", str(self.dir / "out"))
        return self.tool("train", "--data", str(text), *small, *flags, **{**EMULATED_GPU, **environment})

    def train_error(self, done, *words):
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        self.assertEqual(done.returncode, MACHINE, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertEqual(lines[0], done.stderr.splitlines()[-1])
        for word in words:
            self.assertIn(word, lines[0])

    def weights(self):
        return (self.dir / "out/latest/model.safetensors").read_bytes()

    def test_a_gpu_lost_in_a_step(self):
        whole = self.train_emulated("--device", "cuda", "--save-every", "2")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        expected = self.weights()
        n_lost = 0
        # In the middle of the first step's kernels, and in the steps that are one graph.
        for launch in (1, 7, 90, 130, 131, 132, 133, 134, 135, 136):
            shutil.rmtree(self.dir / "out")
            done = self.train_emulated("--device", "cuda", "--save-every", "2", FAKE_CUDA_LOST=str(launch))
            if done.returncode == 0:
                self.assertEqual(self.weights(), expected)
                continue
            n_lost += 1
            self.train_error(done, "unknown error (999)", "the GPU is lost", "nvidia-smi", "run on the CPU")
            if "is saved in" in done.stderr:
                again = self.train_emulated("--device", "cuda", "--save-every", "2", "--resume")
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertNotIn("damaged", again.stderr)
                self.assertEqual(self.weights(), expected)
        self.assertGreater(n_lost, 2)

    def test_no_memory_is_found_before_the_run(self):
        shape = ("--d-model", "128", "--n-layers", "6", "--n-heads", "2", "--seqlen", "128", "--batch", "16")
        planned = self.tool("plan", "--json", "--device", "cuda", *shape, "--vocab-size", "40", "--threads", "1",
                            "--device-memory", "100GiB", FAKE_CUDA_CAPABILITY="80", FAKE_CUDA_MULTIPROCESSORS="4")
        self.assertEqual(planned.returncode, 0, planned.stderr)
        plan = json.loads(planned.stdout)
        room = (plan["device_bytes"] - plan["arena_bytes"] // 4) >> 20
        done = self.train_emulated("--device", "cuda", *shape, FAKE_CUDA_MEMORY_MIB=str(room))
        self.train_error(done, "Fake GPU", "free", "--device-memory", "recomputes")
        self.assertFalse((self.dir / "out/latest").exists())
        done = self.train_emulated("--device", "cuda", *shape, FAKE_CUDA_MEMORY_MIB="66")
        self.train_error(done, "not even recomputing")

    def timeline(self, **environment):
        page = self.dir / "timeline.html"
        done = self.train_emulated("--device", "cuda", "--timeline", str(page), "--overwrite", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return page.read_text(encoding="utf-8")

    def test_a_timeline_says_why_nothing_is_placed(self):
        text = self.timeline(TEGULA_CUPTI="/nowhere/libcupti.so")
        self.assertIn("end to end; when the device ran them is unknown: no CUPTI: /nowhere/libcupti.so", text)
        self.assertIn("TEGULA_CUPTI", text)
        self.assertIn("ops take", text)
        text = self.timeline(TEGULA_CUPTI=FAKE, FAKE_CUPTI_REFUSES="1")
        self.assertIn("INSUFFICIENT_PRIVILEGES (35): the driver lets only administrators profile", text)

    def test_a_timeline_stands_where_the_device_ran(self):
        text = self.timeline(TEGULA_CUPTI=FAKE)
        n = int(re.search(r"<p>(\d+) kernels and copies of one replayed step", text)[1])
        gaps = re.search(r"gaps between kernels: ([\d.]+) % of a traced step \((\d+) kernels and copies, ([\d.]+) ms of "
                         r"([\d.]+)\)", text)
        share, n_traced, busy, whole = (float(x) for x in gaps.groups())
        self.assertEqual(n_traced, n)
        self.assertAlmostEqual(share, 100 * (whole - busy) / whole, delta=0.1)
        svg = ElementTree.fromstring(text[text.index("<svg"):text.index("</svg>") + 6])
        bars = [r for r in svg.iter() if r.tag.endswith("rect")]
        works, rest = ([r for r in bars if (r.get("fill") == "#999") == is_gap] for is_gap in (False, True))
        self.assertEqual(len(works), n)
        places = [float(r.get("x")) for r in works]
        self.assertEqual(places, sorted(places))
        # What is in no bar is a gap: the emulated GPU runs one kernel after the other.
        ms = [float(re.search(r": ([\d.]+) ms", r[0].text)[1]) for r in works]
        self.assertAlmostEqual(sum(ms), busy, delta=1e-4 * (n + 1))
        lost = [float(re.search(r": ([\d.]+) ms", r[0].text)[1]) for r in rest]
        self.assertAlmostEqual(sum(lost), whole - busy, delta=1e-4 * (len(lost) + 2))
        # Every kernel has its op, in the plan's order, and the step's phases.
        names = [r[0].text.split(" ")[0] for r in works]
        self.assertNotIn("kernel", names)
        self.assertIn("copy", names)  # the batch
        ops = {"tile_program": "fused", "tile_programs": "fused", "dot_any": "dot", "matvec": "dot", "matmul_v3": "dot",
               "gather": "embedding", "scatter": "embedding_bwd", "reduce_chunks": "reduce_sum"}
        kernels = [re.search(r"\((\w+)\)", r[0].text) for r in works]
        seen = {(kernel[1], name) for kernel, name in zip(kernels, names) if kernel and kernel[1] in ops}
        self.assertEqual(seen & {("tile_program", "fused"), ("dot_any", "dot")}, {("tile_program", "fused"), ("dot_any", "dot")})
        for kernel, name in seen:
            self.assertEqual(name, ops[kernel], kernel)
        for color in ("#3b78c3", "#c3553b", "#3f9150"):
            self.assertTrue(any(r.get("fill") == color for r in works), color)

    def test_gaps_of_a_profile(self):
        step = ("train", "--n-layers", "1", "--n-heads", "2", "--d-model", "16", "--seqlen", "12", "--batch", "2", "--vocab-size",
                "40", "--repeats", "1", "--by-op")
        seen = self.measure(*step, TEGULA_CUPTI=FAKE, **EMULATED_GPU)
        self.assertGreater(seen["kernels_ms"], 0)
        self.assertGreaterEqual(seen["traced_ms"], seen["kernels_ms"])
        self.assertIn("no CUPTI", self.measure(*step, TEGULA_CUPTI="/nowhere/cupti", **EMULATED_GPU)["gaps_unknown"])
        said = self.bench(*step, TEGULA_CUPTI=FAKE, **EMULATED_GPU)
        self.assertRegex(said.stdout, r"gaps between kernels: [\d.]+ % of a traced step")

    def test_training_says_what_is_missing_in_a_line(self):
        for words, env in ((("no CUDA driver", "525", "run on the CPU"), {"TEGULA_CUDA_DRIVER": NO_DRIVER}),
                           (("too old", "11.8", "12.0"), {"FAKE_CUDA_VERSION": "11080"}),
                           (("finds no device", "nvidia-smi"), {"FAKE_CUDA_DEVICES": "0"}),
                           (("too old", "7.5", "8.0"), {"FAKE_CUDA_CAPABILITY": "75"})):
            self.train_error(self.train_emulated("--device", "cuda", **env), *words)
            self.assertFalse((self.dir / "out/latest").exists())

    def test_a_gpu_lost_while_it_writes(self):
        self.assertEqual(self.train_emulated().returncode, 0)
        command = ("generate", "--model", str(self.dir / "out"), "--prompt", "line", "--max-tokens", "4", "--device", "cuda")
        self.assertEqual(self.tool(*command, **EMULATED_GPU).returncode, 0)
        for launch in ("1", "9", "40"):
            self.train_error(self.tool(*command, FAKE_CUDA_LOST=launch, **EMULATED_GPU), "the GPU is lost", "nvidia-smi")

    def test_without_a_cache_the_text_is_the_same(self):
        # Pages of 64 tokens: two texts cross from one to the next, and a context of 70 ends within one.
        prompts = self.dir / "prompts.txt"
        prompts.write_text("line\n" + "line 12 of the tex" * 3 + "\nof\n", encoding="utf-8")
        for family in (("gpt2",), ("llama", "--n-kv-heads", "1"), ("moe",)):
            out = self.dir / family[0]
            done = self.train_emulated("--out", str(out), "--model", *family, "--seqlen", "70")
            self.assertEqual(done.returncode, 0, done.stderr)
            command = ("generate", "--model", str(out), "--prompts", str(prompts), "--batch", "3", "--max-tokens", "14",
                       "--temperature", "1.5", "--json", "--device")
            made = [self.tool(*command, *more, **EMULATED_GPU)
                    for more in (("cuda",), ("cuda", "--no-cache"), ("cpu", "--mode", "fast"))]
            for each in made:
                self.assertEqual(each.returncode, 0, each.stderr)
            texts = [json.loads(each.stdout)["texts"] for each in made]
            self.assertEqual(texts[0], texts[1], family)
            self.assertEqual(texts[0], texts[2], family)

    def test_weights_in_blocks_are_dequantised(self):
        maker = blocks_test.Blocks()
        maker.dir = self.dir
        command = ("generate", "--model", str(maker.gguf()), "--prompt", "The roof tiles", "--max-tokens", "6", "--temperature", "0",
                   "--ignore-eos", "--json", "--device")
        note = "15 weights in blocks (IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0) are dequantised to "
        texts = {}
        for flags in (("cuda",), ("cuda", "--dtype", "bf16"), ("cuda", "--dtype", "f32"), ("cpu", "--dtype", "bf16"),
                      ("cpu", "--activations", "f32", "--mode", "fast")):
            done = self.tool(*command, *flags, **EMULATED_GPU)
            self.assertEqual(done.returncode, 0, done.stderr)
            dtype = "f32" if "f32" in flags else "bf16"
            self.assertEqual(note + dtype in done.stderr, "--activations" not in flags, done.stderr)
            texts[flags] = json.loads(done.stdout)["text"]
        self.assertEqual(texts["cuda",], texts["cuda", "--dtype", "bf16"])
        self.assertEqual(texts["cuda", "--dtype", "f32"], texts["cpu", "--activations", "f32", "--mode", "fast"])
        done = self.tool(*command, "cuda", "--activations", "int8", **EMULATED_GPU)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("not in bf16 on cuda", done.stderr)
        self.refused(self.tool(*command, "cuda", TEGULA_CUDA_DRIVER=NO_DRIVER), "no CUDA driver", code=MACHINE)

    def test_kernels_of_another_architecture(self):
        self.train_error(self.train_emulated("--device", "cuda", FAKE_CUDA_LOAD="209"), "another architecture",
                         "TEGULA_COMPILE_KERNELS")


if __name__ == "__main__":
    sys.exit(unittest.main())
