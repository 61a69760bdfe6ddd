"""Text that flows through: all its bytes, whoever wrote its file; outputs that nobody can write to;
values that are empty; words that are no commands."""

import json
import re
import subprocess
import unittest

from case import CliTest, INPUT, SECONDS, TEGULA, USAGE

BOM = b"\xef\xbb\xbf"


def run_bytes(*arguments, **options):
    return subprocess.run([TEGULA, *map(str, arguments)], capture_output=True, timeout=SECONDS,
                          **options)


class Text(CliTest):
    """A model of bytes, untrained: at a high temperature it draws each of the 256."""

    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--out", self.out, "--tokenizer", "bytes", "--seqlen", 400,
                                  "--steps", 1))

    def generate(self, *arguments, **options):
        done = run_bytes("generate", "--model", self.out, "--threads", 1, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def encode(self, text):
        done = run_bytes("encode", "--model", self.out, "--text", "-", input=text)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)[0]

    def test_all_characters_come_out(self):
        flags = ("--max-tokens", 390, "--temperature", 80, "--seed", 5)
        alone = self.generate("--prompt", "K", *flags)
        drawn = json.loads(self.generate("--prompt", "K", *flags, "--logprobs", 0, "--json"))["log_probabilities"]
        # Bytes that make no character are U+FFFD, as the decoder of Python has them.
        written = b"K" + bytes(each["id"] for each in drawn) + b"\n"
        self.assertEqual(alone.decode(), written.decode(errors="replace"))
        self.assertIn(0, alone)
        self.assertIn("\ufffd", alone.decode())
        self.assertEqual(self.generate("--prompts", "-", *flags, input=b"K\n"), alone)
        two = self.generate("--prompts", "-", *flags, "--batch", 2, input=b"K\nK")
        self.assertEqual(two, alone + b"---------------\n" + alone)
        twice = self.generate("--prompt", "K", *flags, "--samples", 2)
        again = self.generate("--prompt", "K", *flags[:-1], 6)
        self.assertEqual(twice, alone + b"---------------\n" + again)

    def test_prompts_have_all_their_bytes(self):
        every = bytes(b for b in range(256) if b not in b"\r\n")
        for prompt in (b"A\0B", every):
            self.assertEqual(self.generate("--prompt", "-", "--max-tokens", 0, input=prompt),
                             prompt + b"\n")
            self.assertEqual(self.generate("--prompts", "-", "--max-tokens", 0,
                                           input=prompt + b"\nC\n"),
                             prompt + b"\n---------------\nC\n")
        told = json.loads(self.generate("--prompt", "-", "--max-tokens", 2, "--json", input=b"\0\0\0"))
        self.assertEqual(told["prompt_tokens"], 3)

    def test_what_windows_adds_to_a_file_is_no_text(self):
        for text, plain in ((BOM + b"ab", b"ab"), (b"ab\r\ncd\r\n", b"ab\ncd\n"),
                            (BOM + b"a\r\n\r\nb", b"a\n\nb"), (b"a\rb\r", b"a\rb\r"),
                            (b"a" + BOM, b"a" + BOM)):
            self.assertEqual(self.generate("--prompt", "-", "--max-tokens", 0, input=text),
                             plain + b"\n")
            self.assertEqual(self.encode(text), self.encode(plain))
        lines = self.write("lines.txt", BOM + b"ab\r\ncd\r\n")
        self.assertEqual(self.generate("--prompts", lines, "--max-tokens", 0),
                         b"ab\n---------------\ncd\n")
        done = run_bytes("generate", "--model", self.out, "--prompt", "-",
                         input="ab".encode("utf-16"))
        self.assertEqual(done.returncode, INPUT)
        self.assertIn(b"UTF-16", done.stderr)

    def test_training_reads_the_same_text_from_both_systems(self):
        text = self.text.read_bytes()
        windows = self.write("windows.txt", BOM + text.replace(b"\n", b"\r\n"))
        for name, data in (("a", self.text), ("b", windows)):
            self.expect_ok(self.train("--out", self.dir / name, data=data))
        self.assertEqual(self.weights(self.dir / "a"), self.weights(self.dir / "b"))
        self.write("tree/x.txt", BOM + b"one\r\ntwo")
        self.write("tree/y.txt", windows.read_bytes())
        self.write("plain/x.txt", b"one\ntwo")
        self.write("plain/y.txt", text)
        for name in ("tree", "plain"):
            self.expect_ok(self.train("--out", self.dir / f"out-{name}", data=self.dir / name))
        self.assertEqual(self.weights(self.dir / "out-tree"), self.weights(self.dir / "out-plain"))

    def test_messages_show_control_bytes(self):
        name = "no\n\x1b[31m\x07\ttext"
        done = self.train(data=self.dir / name)
        self.expect_error(done, INPUT, "no\\n\\x1b[31m\\x07\\ttext")
        config = self.write("bad.toml", 'batch = "a\\u0000b"')
        self.expect_error(self.train("--config", config), USAGE, "a\\x00b")


class Outputs(CliTest):
    def commands(self):
        """One of every kind of output, small."""
        self.expect_ok(self.train("--out", self.out))
        tokens = self.write("tokens.json", "[[1, 2, 3, 4]]")
        plan = self.dir / "plan.json"
        self.expect_ok(self.run_tool("plan", *("--n-layers 1 --n-heads 2 --d-model 16 --seqlen 12 "
                                               "--vocab-size 99 --threads 1").split(), "--save", plan))
        model = ("--model", self.out, "--threads", 1)
        step = ("--n-layers 1 --n-heads 2 --d-model 16 --seqlen 12 --vocab-size 99 "
                "--threads 1").split()
        prompts = self.write("prompts", "l\nt\n")
        small = ("--data", self.text, *("--n-layers 1 --n-heads 2 --d-model 16 --seqlen 12 --batch 2 "
                                        "--steps 1 --threads 1").split())
        return [("--help",), ("--version",), ("train", "--help"), ("bench", "--help"),
                ("bench", "gemm", "--help"), ("plan", "gpt2", "--help"),
                ("train", *small, "--json"),
                ("generate", *model, "--prompt", "l", "--max-tokens", 3),
                ("generate", *model, "--prompt", "l", "--max-tokens", 3, "--json"),
                ("generate", *model, "--prompts", prompts, "--max-tokens", 3),
                ("generate", *model, "--prompts", prompts, "--max-tokens", 3, "--json"),
                ("encode", "--model", self.out, "--text", self.text),
                ("decode", "--model", self.out, "--ids", tokens),
                ("embed", *model, "--text", "l"), ("eval", *model, "--tokens", tokens), ("eval", *model, "--tokens", tokens, "--json"),
                ("grad", *model, "--tokens", tokens, "--out", self.dir / "g.safetensors"),
                ("plan", *step), ("plan", *step, "--json"), ("plan", *step, "--verbose"),
                ("plan", *step, "--graph", "step"), ("plan", *step, "--mesh", "dp=2", "--batch", 2),
                ("plan", "--load", plan), ("plan", "gpt2"),
                ("plan", "gpt2", "--json"), ("plan", "gpt2", "--gpus", "8xH100", "--explain", "step"),
                ("plan", "--occupancy", "threads=256,registers=64,smem=16384", "--target", "h200"),
                ("plan", "--conv", "batch=32,in=64,out=128", "--mesh", "a=2"),
                ("ops",), ("ops", "--json"), ("ops", "--markdown"),
                ("doctor",), ("doctor", "--json"),
                ("completion", "bash"), ("completion", "zsh"), ("completion", "fish"),
                ("bench", "gemm", "--shape", "64,64,64", "--threads", 1),
                ("bench", "gemm", "--shape", "64,64,64", "--threads", 1, "--json")]

    def test_lost_output_is_noticed(self):
        for command in self.commands():
            words = [TEGULA, *map(str, command)]
            with open("/dev/full", "wb") as full:
                done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=SECONDS)
            lines = done.stderr.decode().splitlines()
            self.assertNotEqual(done.returncode, 0, command)
            self.assertTrue(lines[-1].startswith("tegula: error: cannot write all of the output"),
                            (command, lines))
            done = subprocess.run(["bash", "-c", '"$@" >&-', "-", *words], stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, timeout=SECONDS)
            lines = done.stderr.decode().splitlines()
            self.assertEqual(done.returncode, INPUT, (command, lines))
            self.assertIn("standard output is closed", lines[-1], command)

    def test_who_writes_nothing_needs_no_output(self):
        done = subprocess.run(["bash", "-c", '"$@" >&-', "-", TEGULA, "train", "--data",
                               str(self.text), *"--n-layers 1 --n-heads 2 --d-model 16 --seqlen 12 "
                               "--batch 2 --steps 1 --threads 1 --out".split(), str(self.out)],
                              stderr=subprocess.PIPE, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.out / "model.safetensors").exists())

    def test_generation_ends_with_its_output(self):
        """A text that nobody can get is not made to its end."""
        self.expect_ok(self.train("--out", self.out))
        words = [TEGULA, "generate", "--model", str(self.out), "--prompt", "l", "--threads", "1",
                 "--max-tokens", str(10**9)]
        with open("/dev/full", "wb") as full:
            done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=SECONDS)
        self.assertNotEqual(done.returncode, 0)
        prompts = self.write("prompts", "l\nt\n")
        words[4:6] = ["--prompts", str(prompts)]
        done = subprocess.run(["bash", "-c", '"$@" >&-', "-", *words], stderr=subprocess.PIPE,
                              timeout=SECONDS)
        self.assertEqual(done.returncode, INPUT, done.stderr)


class Words(CliTest):
    def test_an_empty_value_is_refused(self):
        """Of every flag of every command: it is a variable that is not set."""
        n_flags = 0
        listed = self.run_tool("--help").stdout.split("Subcommands:")[1]
        commands = [[line.split()[0]] for line in listed.splitlines() if line.startswith("  ")
                    and line[2] != " "]
        for command in commands:
            page = self.run_tool(*command, "--help").stdout
            if "Subcommands:" in page:
                commands.extend([*command, line.split()[0]]
                                for line in page.split("Subcommands:")[1].splitlines()
                                if line.startswith("  ") and line[2] != " ")
                continue
            for line in page.splitlines():
                words = line.split()
                if not words or not words[0].startswith("--") or len(words) < 2:
                    continue
                flag = words[0].rstrip(",")
                takes_value = re.fullmatch(r"[NX]|[A-Z]([^a-z]\S*|x[A-Z]\S*)|\S+\|\S+", words[1])
                if not takes_value or words[1].endswith(":") or flag in ("--prompt", "--stop", "--help"):
                    continue
                for spelling in ((flag, ""), (flag + "=",)):
                    done = self.run_tool(*command, *spelling)
                    self.assertEqual(done.returncode, USAGE, (command, spelling, done.stderr))
                    self.assertIn(flag, done.stderr)
                    self.assertIn("empty", done.stderr, (command, spelling))
                n_flags += 1
        self.assertGreater(n_flags, 100)

    def test_empty_paths_do_nothing(self):
        done = self.train("--out", "")
        self.expect_error(done, USAGE, "--out", "is empty", "variable")
        self.expect_error(self.train("--out="), USAGE, "--out", "is empty")
        self.expect_error(self.train("--config", ""), USAGE, "--config", "is empty")
        self.expect_error(self.train("--config="), USAGE, "--config", "is empty")
        config = self.write("c.toml", 'out = ""')
        self.expect_error(self.train("--config", config), USAGE, "--out", "is empty")
        self.expect_error(self.run_tool("plan", ""), USAGE, "empty")

    def test_words_that_are_no_commands(self):
        for words in (("nosuch",), ("nosuch", "--help"), ("--help", "nosuch"), ("nosuch", "--version"),
                      ("bench", "nosuch", "--help"), ("bench", "--help", "nosuch"),
                      ("tune", "nosuch", "--help"), ("completion", "nosuch", "--help"),
                      ("Train", "--help"), ("", "--help"), ("bench", "", "--help"),
                      ("nosuch", "train", "--help")):
            done = self.run_tool(*words)
            self.assertEqual(done.stdout, "", words)
            self.expect_error(done, USAGE, "unexpected" if "train" in words else "choose one of")
        self.expect_ok(self.run_tool("bench", "gemm", "--help"))
        self.expect_ok(self.run_tool("--help"))


if __name__ == "__main__":
    unittest.main()
