"""The scripts that a session with a GPU starts: what they do without one, and the arithmetic of their rows."""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEGULA = os.path.abspath(os.environ.get("TEGULA_BIN", "build/release/tegula"))


def module(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


sys.path.insert(0, str(ROOT / "bench"))
compare, limits = module("bench/compare_cuda.py"), module("bench/limits.py")
# What plays the peers: as fast as its batch is large; decoding hangs, and one kind of training fails.
PEER = """import json, sys, time
call = json.loads(sys.argv[-1])
if sys.argv[1] == "peer":
    places = [line.split() for line in open(call["batches"])]
    assert len(places) == call["setting"]["steps"] and len(places[0]) == call["setting"]["batch"]
    print("step 1  validation loss 200", "step 2  validation loss 2.5", sep="\\n", flush=True)
    time.sleep(60)
if call["work"] == "machine":
    print(json.dumps({"machine": "a card", "versions": {"torch": "2"}}))
    sys.exit()
if call["work"] == "generate":
    time.sleep(60)
if call.get("name", "").startswith("naive"):
    sys.exit("out of memory")
assert call["work"] == "texts" or call["shape"]["seqlen"] == 64, call
print("a warning")
print(json.dumps({"tokens_per_s": call["batch"] * (3 if call.get("name") == "eager" else 5), "peak_bytes": 7}))
"""


def script(path, *arguments):
    return subprocess.run([sys.executable, ROOT / path, *map(str, arguments)], capture_output=True, text=True, check=False)


class BenchCuda(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.text = self.dir / "text.txt"
        self.text.write_text("".join(f"line {i} of {i * 7919 % 1000}\n" for i in range(900)), encoding="utf-8")

    def test_they_say_how(self):
        for path in ("bench/compare_cuda.py", "bench/nanogpt.py", "bench/curves_cuda.py", "bench/cuda/sanitize_models.py"):
            done = script(path, "--help")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("usage", done.stdout)

    def test_parts_have_the_cases(self):
        parts = {part: script("bench/compare_cuda.py", "--list", "--part", part).stdout.split()[1::4]
                 for part in ("train", "more", "decode")}
        self.assertEqual(sorted(sum(parts.values(), [])), sorted(compare.CASES))
        for name in ("gpt2-b8 gpt2-b32 gpt2-b64 gpt2-medium-b8 llama-1b-b8 gpt2-b32-vs-hf gpt2-medium-b8-vs-hf "
                     "gpt2-b32-vs-naive decode-135m decode-1b decode-7b generate-gpt2-b10").split():
            self.assertIn(name, compare.CASES)
        self.assertIn("no case nonsense", script("bench/compare_cuda.py", "--list", "--only", "nonsense").stderr)

    def test_parameters_are_the_plans(self):
        """But for norms and positions, which multiply nothing."""
        for model, shape in (("gpt2", compare.GPT2), ("llama", compare.SMOL)):
            flags = {"n-layers": shape["layers"], "n-heads": shape["heads"], "d-model": shape["width"], "seqlen": 64,
                     "batch": 1, "vocab-size": shape.get("vocabulary", 50257)}
            if model == "llama":
                flags |= {"n-kv-heads": shape["kv"], "d-ff": shape["ff"], "tie-embeddings": "true"}
            done = subprocess.run([TEGULA, "plan", "--json", "--model", model,
                                   *(str(x) for k, v in flags.items() for x in (f"--{k}", v))], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            positions = 64 * shape["width"] if model == "gpt2" else 0
            norms = (2 * shape["layers"] + 1) * shape["width"]
            self.assertEqual(compare.parameters(shape) + positions + norms, json.loads(done.stdout)["params"])

    def test_mfu(self):
        flops = 6 * 123532032 + 12 * 12 * 768 * 1024
        self.assertAlmostEqual(compare.mfu(compare.GPT2, 989.4e12 / flops, "train"), 1, delta=1e-5)

    def test_rows_of_other_parts_stay(self):
        path = str(self.dir / "models_h200.json")
        compare.write(path, "a card", [{"case": "decode-1b", "commit": "abc"}, {"case": "gpt2-b8", "commit": "abc"}], {})
        compare.write(path, "a card", [{"case": "decode-1b", "commit": "abd"}], {})
        got = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.assertEqual(got["name"], "models_h200")
        self.assertEqual(got["rows"], [{"case": "gpt2-b8", "commit": "abc"}, {"case": "decode-1b", "commit": "abd"}])

    def test_seconds_end_at_the_loss(self):
        says = "import time\nfor x in (1.7, 1.4):\n print('step  validation loss', x, 'more', flush=True)\ntime.sleep(60)"
        seconds, loss = limits.Limit(50).seconds_to([sys.executable, "-c", says], 1.5)
        self.assertLess(seconds, 30)
        self.assertEqual(loss, 1.4)
        with self.assertRaisesRegex(limits.Failed, "never at 1.5, last 1.7"):
            limits.Limit(50).seconds_to([sys.executable, "-c", "print('validation loss 1.7')"], 1.5)

    def test_what_hangs_is_ended_with_its_children(self):
        """The child would keep the pipe open."""
        begin = time.monotonic()
        with self.assertRaisesRegex(limits.Failed, "not done after 2 s"):
            limits.Limit(2).run_json(["sh", "-c", "sleep 60 & sleep 60"])
        self.assertLess(time.monotonic() - begin, 20)
        with self.assertRaisesRegex(limits.Failed, "^why$"):
            limits.Limit(20).run_json(["sh", "-c", "echo why >&2; exit 3"])

    def make_peers(self):
        for name in ("models_torch.py", "nanogpt.py"):
            (self.dir / name).write_text(PEER, encoding="utf-8")

    def rows(self, *arguments):
        """Of small models on the CPU, beside a peer that is made up."""
        self.make_peers()
        path = self.dir / "rows.json"
        done = script("bench/compare_cuda.py", "--small", "--device", "cpu", "--tegula", TEGULA, "--json", path, "--commit",
                      "abc", "--peers", self.dir, "--text", self.text, *arguments)
        return {row["case"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}, done.stderr

    def test_every_training_row(self):
        names = [name for name, (part, *_) in compare.CASES.items() if part != "decode"]
        rows, errors = self.rows("--only", ",".join(names))
        self.assertEqual((sorted(rows), errors), (sorted(names), ""))
        for name, row in rows.items():
            self.assertEqual(row["commit"], "abc")
            if row["work"] == "other":
                continue
            self.assertGreater(row["tokens_per_s"], 0, name)
            if name == "gpt2-b32-vs-naive":
                self.assertEqual((row["peer"], row["ratio"]), (None, None))
                self.assertIn("out of memory", row["no_peer"])
                continue
            self.assertEqual(row["peer"], 10)
            self.assertAlmostEqual(row["ratio"], row["tokens_per_s"] / 10, delta=0.1)
            self.assertEqual(row["peer_name"], "transformers" if name.endswith("hf") else "torch.compile")
            self.assertEqual(row.get("eager"), 6 if name in ("gpt2-b8", "gpt2-b32") else None)
            shape = compare.LLAMA_1B if "llama" in name else compare.GPT2
            self.assertAlmostEqual(row["mfu"], compare.mfu(compare.scaled(argparse.Namespace(small=True), shape),
                                                           row["tokens_per_s"], "train"), delta=1e-5)

    def test_rows_of_decoding(self):
        rows, errors = self.rows("--part", "decode", "--only", "generate-gpt2-b10,nanogpt")
        self.assertEqual(errors, "")
        row = rows["generate-gpt2-b10"]
        self.assertEqual((row["work"], row["peer_name"], row["peer"]), ("generate", "transformers", 50))
        self.assertAlmostEqual(row["tokens_per_s"] * row["seconds"], 400, delta=20)
        self.assertEqual(row["peer_seconds_without_cache"], 8)
        self.assertGreater(row["cache_gains"], 0)
        self.assertGreater(row["peak_bytes"], 0)
        row = rows["nanogpt"]
        self.assertEqual((row["n_seeds"], len(row["all_seconds"]), len(row["peer_all_seconds"])), (3, 3, 3))
        self.assertGreater(row["cached_seconds"], 0)

    def test_nanogpt_to_a_loss(self):
        self.make_peers()
        command = ("bench/nanogpt.py", "gpu", "--small", "--device", "cpu", "--data", self.text, "--tegula", TEGULA,
                   "--results", self.dir, "--peers", self.dir, "--seeds", "1,2")
        done = script(*command, "--target", 99)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.dir / "nanogpt_gpu.json").read_text(encoding="utf-8"))
        self.assertEqual((result["machine"], result["versions"]["torch"]), ("a card", "2"))
        row, = result["rows"]
        self.assertEqual((row["n_seeds"], row["to_loss"]), (2, 99))
        self.assertAlmostEqual(row["ratio"], row["peer_seconds"] / row["seconds"], delta=0.05 * row["ratio"])
        self.assertIn("peer_cached_seconds", row)
        done = script(*command, "--target", 0.01)
        self.assertEqual(done.returncode, 1)
        self.assertIn("never at 0.01, last ", done.stderr.splitlines()[-1])

    def test_a_peer_that_hangs_costs_its_row_alone(self):
        rows, errors = self.rows("--only", "decode-135m,gpt2-b64-memory", "--seconds", 14)
        self.assertGreater(rows["gpt2-b64-memory"]["tokens_per_s"], 0)
        self.assertIn("left out: decode-135m (the rest of it: Failed: no time left)", errors)
        row = rows["decode-135m"]
        self.assertGreater(row["tokens_per_s"], 0)
        self.assertIsNone(row["peer"])
        self.assertRegex(row["no_peer"], "torch.compile: not done after")

    def test_curves_of_the_same_batches(self):
        drawn = self.dir / "curves.svg"
        done = script("bench/curves_cuda.py", "--data", self.text, "--tegula", TEGULA, "--device", "cpu", "--dtype", "f32",
                      "--n-layers", 1, "--d-model", 32, "--n-heads", 2, "--seqlen", 16, "--batch", 2, "--steps", 25,
                      "--ours-only", "--svg", drawn)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual((said["steps"], said["largest_gap"]), (25, 0))
        self.assertLess(said["last"][0], said["first"][0])
        self.assertIn("<polyline", drawn.read_text(encoding="utf-8"))

    def test_commands_under_a_sanitizer(self):
        done = script("bench/cuda/sanitize_models.py", "--dry-run", "--device", "cpu", "--tegula", TEGULA, "--families", "gpt2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([(row["work"], row["exit"]) for row in rows], [("train", 0), ("generate", 0)])


if __name__ == "__main__":
    unittest.main()
