"""Text to train on: what is read, what is left out, and what cannot be."""

import json
import os
import subprocess
import unittest

from case import CliTest, INPUT, SECONDS, SMALL, TEGULA


class Data(CliTest):
    def test_data_that_cannot_be(self):
        self.expect_error(self.train(data=self.dir / "no.txt"), INPUT, "no.txt'", "No such file")
        self.expect_error(self.train(data=self.write("empty.txt", "")), INPUT, "is empty")
        self.expect_error(self.train(data=self.write("binary", b"ab\0c" * 500)), INPUT, "binary",
                          "NUL byte at 2")
        self.expect_error(self.train(data=self.write("utf16.txt", "abc".encode("utf-16"))), INPUT,
                          "UTF-16", "iconv")
        (self.dir / "folder").mkdir()
        self.expect_error(self.train(data=self.dir / "folder"), INPUT, "holds no text")
        self.expect_error(self.train(data=self.write("short.txt", "hello\n")), INPUT, "too short",
                          "at least 130 tokens")
        self.expect_error(self.train(data="/dev/null"), INPUT, "/dev/null", "neither")

    def test_what_never_ends_is_not_opened(self):
        os.mkfifo(self.dir / "pipe")
        self.expect_error(self.train(data=self.dir / "pipe"), INPUT, "named pipe", "--data -")
        self.expect_error(self.train(data="/dev/zero"), INPUT, "/dev/zero", "neither")
        self.expect_error(self.train(data="/proc"), INPUT, "'/proc' holds no text", "no stored files")
        (self.dir / "tree").mkdir()
        os.mkfifo(self.dir / "tree" / "pipe")
        self.write("tree/a.txt", self.text.read_text())
        done = self.expect_ok(self.train(data=self.dir / "tree"))
        self.assertIn("not a file: 1", done.stderr)

    def test_a_directory_has_limits_that_are_told(self):
        with open(self.dir / "huge.txt", "wb") as sparse:
            sparse.truncate(17 << 30)
        self.expect_error(self.train(data=self.dir), INPUT, "16 GiB", "huge.txt", "smaller directory")

    def test_standard_input(self):
        self.expect_ok(self.train("--out", self.dir / "file"))
        with open(self.text) as text:
            self.expect_ok(self.train("--out", self.out, data="-", stdin=text))
        self.assertEqual(self.weights()["model.safetensors"],
                         self.weights(self.dir / "file")["model.safetensors"])
        piped = self.dir / "piped"
        command = ["bash", "-c", 'exec "$0" "${@:2}" --data <(cat "$1")', TEGULA, str(self.text),
                   "train", *SMALL, "--out", str(piped)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        self.expect_ok(done)
        self.assertEqual(self.weights()["model.safetensors"],
                         self.weights(piped)["model.safetensors"])
        self.expect_error(self.train(data="-", stdin=subprocess.DEVNULL), INPUT, "is empty")

    def test_runs_are_no_text(self):
        """A run in the directory of its own text: what it writes is not read by the next."""
        self.write("tree/a.txt", self.text.read_text())
        out = self.dir / "tree" / "out"
        flags = ("--save-every", 1, "--eval-every", 2)
        self.expect_ok(self.train("--out", out, *flags, data=self.dir / "tree"))
        for more in (("--out", out, "--resume", "--steps", 6), ("--out", self.dir / "tree" / "two")):
            done = self.expect_ok(self.train(*flags, *more, data=self.dir / "tree"))
            self.assertIn("1 file,", done.stderr)
            self.assertRegex(done.stderr, r"output of tegula: [12]\)")
            self.assertNotIn("data_sha256", done.stderr)
        # The first time, too, where it holds text already.
        self.write("tree/three/b.txt", "b" * 1000)
        done = self.expect_ok(self.train("--out", self.dir / "tree" / "three", data=self.dir / "tree"))
        self.assertIn("output of tegula: 3", done.stderr)
        self.expect_error(self.train(data=out), INPUT, "output of a training run")

    def test_unreadable_data(self):
        self.text.chmod(0)
        if os.access(self.text, os.R_OK):  # root: read it as somebody else
            nobody = 65534
            self.dir.chmod(0o755)
            try:
                done = self.train(user=nobody)
            except PermissionError:
                self.skipTest("the tool lies where only its owner may run it")
        else:
            done = self.train()
        self.expect_error(done, INPUT, "cannot open", "Permission denied", "permissions")

    def test_a_folder_of_sources_in_any_language(self):
        self.write("tree/a.py", "def f(x):\n    return x\n" * 40)
        self.write("tree/b/Ελληνικά.txt", "Η γλώσσα μου είναι ελληνική. 日本語も。\n" * 40)
        self.write("tree/b/latin1.txt", "Grüße\n".encode("latin-1") * 40)
        self.write("tree/.git/x", "hidden")
        self.write("tree/c.bin", b"\0\1\2")
        for tokenizer in ("bytes", "chars", "bpe:300"):
            done = self.expect_ok(self.train("--tokenizer", tokenizer, "--out",
                                             self.dir / tokenizer, data=self.dir / "tree"))
            self.assertIn("3 files", done.stderr)
            self.assertIn("skipped 2", done.stderr)
            done = self.run_tool("generate", "--model", self.dir / tokenizer, "--prompt", "Η γλ",
                                 "--max-tokens", 5, "--json")
            self.expect_ok(done)
            self.assertEqual(json.loads(done.stdout)["new_tokens"], 5)


if __name__ == "__main__":
    unittest.main()
