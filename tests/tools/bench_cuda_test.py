"""The scripts that a session with a GPU starts: what they do without one, and the arithmetic of their rows."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEGULA = os.path.abspath(os.environ.get("TEGULA_BIN", "build/release/tegula"))


def module(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


compare = module("bench/compare_cuda.py")


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
        for path in ("bench/compare_cuda.py", "bench/curves_cuda.py", "bench/cuda/sanitize_models.py"):
            done = script(path, "--help")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("usage", done.stdout)

    def test_parts_have_the_cases(self):
        parts = {part: script("bench/compare_cuda.py", "--list", "--part", part).stdout.split()[1::2]
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
        path = self.dir / "models_h200.json"
        compare.write(path, "a card", [{"case": "decode-1b", "ratio": 1}, {"case": "gpt2-b8", "ratio": 2}], "abc", {})
        compare.write(path, "a card", [{"case": "decode-1b", "ratio": 3}], "abd", {})
        got = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(got["name"], "models_h200")
        self.assertEqual(got["rows"], [{"case": "gpt2-b8", "ratio": 2}, {"case": "decode-1b", "ratio": 3}])

    def test_sums_between_points(self):
        self.assertAlmostEqual(compare.trapezoids([(1, 1.0), (5, 5.0), (9, 9.0)], 1, 10), sum(range(1, 10)))
        self.assertAlmostEqual(compare.trapezoids([(2, 4.0), (4, 16.0)], 2, 5), 4 + 10 + 16)

    def test_seconds_end_at_the_loss(self):
        says = "import time\nfor x in (1.7, 1.4):\n print('step  validation loss', x, 'more', flush=True)\ntime.sleep(60)"
        self.assertLess(compare.seconds_to([sys.executable, "-c", says]), 30)
        with self.assertRaisesRegex(RuntimeError, "never at 1.5, last 1.7"):
            compare.seconds_to([sys.executable, "-c", "print('validation loss 1.7')"])

    def test_both_ways_to_generate(self):
        shape = {"layers": 1, "heads": 2, "width": 32}
        _, cached, whole = compare.generate_both(TEGULA, self.dir, shape, 300, 40, 24, "cpu", "f32", 3)
        self.assertGreater(min(cached, whole), 0)

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
