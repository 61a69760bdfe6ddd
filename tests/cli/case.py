"""What the tests of the command line share: tiny runs, and what an error must look like."""

import os
import pathlib
import subprocess
import tempfile
import unittest

TEGULA = os.environ.get("TEGULA_BIN", "build/release/tegula")
SMALL = ("--n-layers 1 --n-heads 2 --d-model 16 --seqlen 12 --batch 2 --steps 4 --warmup 1 "
         "--eval-every 0 --threads 1").split()
# Sanitized builds are slow to start and to step.
SECONDS = 120
# The exit codes of docs/cli.md.
INPUT, USAGE, ENVIRONMENT = 1, 2, 3
# What is refused, whether flags or what they name; what failed, here or in what was named.
INVALID, FAILED = (INPUT, USAGE), (INPUT, ENVIRONMENT)


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.text = self.write("text.txt", "".join(f"line {i * i % 97} of the text;\n"
                                                   for i in range(300)))
        self.out = self.dir / "out"

    def write(self, name, content):
        file = self.dir / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def run_tool(self, *arguments, **options):
        return subprocess.run([TEGULA, *map(str, arguments)], capture_output=True, text=True,
                              errors="replace", timeout=SECONDS, **options)

    def train(self, *arguments, data=None, **options):
        return self.run_tool("train", "--data", data or self.text, *SMALL, *arguments, **options)

    def expect_ok(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def expect_error(self, done, code, *words, lines_before=False):
        """Exactly one line that begins with "tegula: error:" and holds the words, the last one."""
        lines = done.stderr.splitlines()
        errors = [line for line in lines if line.startswith("tegula: error:")]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertEqual(lines[-1], errors[0])
        if not lines_before:
            self.assertEqual(lines, errors)
        for word in words:
            self.assertIn(word, errors[0])
        self.assertIn(done.returncode, code if isinstance(code, tuple) else (code,), done.stderr)

    def start(self, *arguments):
        process = subprocess.Popen([TEGULA, "train", "--data", self.text, *SMALL,
                                    *map(str, arguments)], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def weights(self, out=None):
        """The bytes of everything that a run's end leaves behind."""
        latest = (out or self.out) / "latest"
        return {name: (latest / name).read_bytes()
                for name in ("model.safetensors", "optimizer.safetensors", "trainer_state.json")}
