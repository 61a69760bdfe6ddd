"""tools/ground_floor.py sees a hash that moved, a promise that is broken and a run that fails."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEGULA = os.environ.get("TEGULA_BIN", "build/release/tegula")
SPEC = importlib.util.spec_from_file_location("ground_floor", ROOT / "tools" / "ground_floor.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


class GroundFloor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.record = json.loads(tool.RECORD.read_text(encoding="utf-8"))
        self.hashes = self.record["hashes"]

    def check(self, name, record, tegula=TEGULA):
        file = self.dir / "record.json"
        file.write_text(json.dumps(record), encoding="utf-8")
        done = subprocess.run([sys.executable, tool.__file__, "--check", "--only", name, "--record", file, "--tegula",
                               tegula], capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def found(self, name):
        """A record with what this program makes of a run, whatever the true record says."""
        run = tool.Golden(os.path.abspath(TEGULA), self.dir / "found", tool.instructions.made_up_text(20_000)).run(name)
        return {**self.record, "hashes": {**self.hashes, name: run}}

    def test_the_record_is_of_these_runs(self):
        self.assertEqual(list(self.hashes), list(tool.RUNS))
        for name, (same_as, *_) in tool.RUNS.items():
            self.assertEqual(self.hashes[name], self.hashes[same_as or name], name)

    def test_the_true_record_passes(self):
        if self.record["made_with"] != tool.instructions.toolchain(TEGULA):
            self.skipTest("the record is of another compiler or C library")
        self.assertEqual(self.check("gpt2-odd", self.record), (0, ["gpt2-odd                same"]))

    def test_a_moved_hash_is_told_with_its_commands(self):
        record = self.found("gpt2-odd")
        self.assertEqual(self.check("gpt2-odd", record)[0], 0)
        record["hashes"]["gpt2-odd"]["weights"] = "0" * 64
        code, lines = self.check("gpt2-odd", record)
        self.assertEqual((code, lines[0]), (1, "gpt2-odd                differs: weights"))
        self.assertIn("--check --only gpt2-odd --keep", lines[1])
        self.assertIn("train --data text.txt", lines[3])
        del record["hashes"]["gpt2-odd"]
        code, lines = self.check("gpt2-odd", record)
        self.assertEqual((code, lines[0]), (1, "gpt2-odd                not in the record: --write adds it"))

    def test_bits_that_must_be_shared_are_compared(self):
        a, b = {"weights": "1", "optimizer": "2"}, {"weights": "1", "optimizer": "3"}
        known = {"gpt2": a, "gpt2-threads": b}
        lines, bad = tool.compare({"gpt2": a, "gpt2-threads": b}, known, "tegula")
        self.assertEqual(bad, ["gpt2-threads"])
        self.assertIn("gpt2-threads            differs from gpt2: optimizer", lines)
        self.assertEqual(tool.compare({"gpt2-threads": b}, known, "tegula")[1], ["gpt2-threads"])
        self.assertEqual(tool.compare({"gpt2-threads": a}, {**known, "gpt2-threads": a}, "tegula")[1], [])

    def test_a_run_that_fails(self):
        tegula = self.dir / "tegula"
        tegula.write_text("#!/bin/sh\necho 'tegula: error: no luck' >&2\nexit 3\n")
        tegula.chmod(0o755)
        code, lines = self.check("moe", self.record, tegula)
        self.assertEqual((code, lines[0]), (1, "moe                     fails: exit code 3: tegula: error: no luck"))

    def test_metadata_are_not_hashed_and_names_are(self):
        def written(name, header):
            text = json.dumps(header).encode()
            file = self.dir / name
            file.write_bytes(len(text).to_bytes(8, "little") + text + b"\0\1\2\3")
            return tool.hash_of_tensors(file)

        a = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        plain = written("plain", {"a": a})
        self.assertEqual(written("more", {"__metadata__": {"time": "now"}, "a": a}), plain)
        self.assertNotEqual(written("other", {"b": a}), plain)


if __name__ == "__main__":
    unittest.main()
