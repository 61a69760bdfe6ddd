"""Bad input and faults, as a user meets them: one clear line, an exit code, and no data lost.

Runs the tool in $TEGULA_BIN on tiny models. $TEGULA_KILLS says how many times Kill9 kills.
"""

import errno
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import xml.etree.ElementTree

TEGULA = os.environ.get("TEGULA_BIN", "build/release/tegula")
KILLS = int(os.environ.get("TEGULA_KILLS", "6"))
SMALL = ("--n-layers 1 --n-heads 2 --d-model 16 --seqlen 12 --batch 2 --steps 4 --warmup 1 "
         "--eval-every 0 --threads 1").split()
# Sanitized builds are slow to start and to step.
SECONDS = 120
INVALID, FAILED = 2, 1


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
        self.assertEqual(done.returncode, code, done.stderr)

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


class Flags(CliTest):
    def test_what_is_no_command(self):
        self.expect_error(self.run_tool(), INVALID, "a command is missing", "tegula --help")
        self.expect_error(self.run_tool("trian"), INVALID, "'trian'", "choose one of train")

    def test_unknown_flags_name_the_nearest(self):
        self.expect_error(self.train("--lerning-rate", 3), INVALID, "unknown flag '--lerning-rate'",
                          "tegula train --help")
        self.expect_error(self.train("--n_layers", 3), INVALID, "'--n_layers'", "mean --n-layers?")
        self.expect_error(self.train("--n-layer=3"), INVALID, "'--n-layer'", "mean --n-layers?")
        self.expect_error(self.train("oops"), INVALID, "unexpected 'oops'")

    def test_values_out_of_range_say_the_range(self):
        for flag, value, words in (
                ("--steps", "abc", "at least 0, not 'abc'"), ("--steps", "1e3", "not '1e3'"),
                ("--batch", "0", "from 1 to"), ("--lr", "nan", "not 'nan'"),
                ("--lr", "-1", "at least 0, not '-1'"), ("--dropout", "1.5", "from 0 to 0.99"),
                ("--n-layers", "99999999999999999999", "from 1 to"), ("--seed", "-1", "from 0"),
                ("--model", "gpt9", "gpt2|llama"), ("--dtype", "f8", "f32|bf16"),
                ("--optimizer", "lion", "adamw|momentum|sgd")):
            self.expect_error(self.train(flag, value), INVALID, flag + ":", words)
        self.expect_error(self.train("--tokenizer", "words"), INVALID, "'words'", "bpe:N")
        self.expect_error(self.train("--tokenizer", "bpe:9"), INVALID, "'bpe:9'", "from 256")
        self.expect_error(self.train("--memory", "lots"), INVALID, '"lots"', "512MiB")
        self.expect_error(self.train("--passes", "fuse"), INVALID, '"fuse"')
        self.expect_error(self.run_tool("train", "--data"), INVALID, "--data needs a value")
        self.expect_error(self.run_tool("train"), INVALID, "--data is required")
        self.expect_error(self.train("--resume"), INVALID, "--resume needs --out")
        self.expect_error(self.train("--lr", "1e-4", "--min-lr", "1e-3"), INVALID, "--min-lr 0.001")

    def test_impossible_shapes(self):
        self.expect_error(self.train("--d-model", 15), INVALID, "d_model 15", "n_heads 2")
        self.expect_error(self.train("--model", "llama", "--n-heads", 4, "--n-kv-heads", 3), INVALID,
                          "n_heads 4", "n_kv_heads 3")
        self.expect_error(self.train("--d-model", 16000000), INVALID, "FLOPs", "smaller")
        self.expect_error(self.train("--d-model", 65536), FAILED,
                          "cannot allocate", "smaller batch")

    def test_a_memory_budget_too_small_says_the_least_that_works(self):
        done = self.train("--memory", "1KiB")
        self.expect_error(done, FAILED, "1024 bytes", "too small", "the least that works")
        least = int(done.stderr.split("the least that works is ")[1].split()[0])
        self.expect_ok(self.train("--memory", least))

    def test_lost_output_is_told(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([TEGULA, "ops"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.expect_error(done, FAILED, "cannot write")

    def test_generate(self):
        self.expect_error(self.run_tool("generate", "--prompt", "a"), INVALID, "--model is required")
        self.expect_error(self.run_tool("generate", "--model", self.dir / "no", "--prompt", "a"),
                          FAILED, "/no'", "Check the path")
        self.expect_error(self.run_tool("generate", "--model", self.dir, "--prompt", "a"), INVALID,
                          "no model")


class Data(CliTest):
    def test_data_that_cannot_be(self):
        self.expect_error(self.train(data=self.dir / "no.txt"), FAILED, "no.txt'", "No such file")
        self.expect_error(self.train(data=self.write("empty.txt", "")), INVALID, "is empty")
        self.expect_error(self.train(data=self.write("binary", b"ab\0c" * 500)), INVALID, "binary",
                          "NUL byte at 2")
        self.expect_error(self.train(data=self.write("utf16.txt", "abc".encode("utf-16"))), INVALID,
                          "UTF-16", "iconv")
        (self.dir / "folder").mkdir()
        self.expect_error(self.train(data=self.dir / "folder"), INVALID, "holds no text")
        self.expect_error(self.train(data=self.write("short.txt", "hello\n")), INVALID, "too short",
                          "at least 130 tokens")
        self.expect_error(self.train(data="/dev/null"), INVALID, "/dev/null", "neither")

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
        self.expect_error(done, FAILED, "cannot open", "Permission denied", "permissions")

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


class Config(CliTest):
    def test_config_and_flags_are_the_same_run(self):
        config = self.write("run.toml", f'''
            data = "{self.text}"   # the names of the flags
            n-layers = 1
            n-heads = 2
            d-model = 16
            seqlen = 12
            batch = 2
            steps = 4
            warmup = 1
            eval-every = 0
            threads = 1
            lr = 2e-3
            dropout = 0.1
            optimizer = "momentum"
            bias = true
            json = false
            seed = 9
        ''')
        flags = ("--lr", "2e-3", "--dropout", 0.1, "--optimizer", "momentum", "--bias", "--seed", 9)
        other = self.dir / "other"
        self.expect_ok(self.train("--out", self.out, *flags))
        self.expect_ok(self.run_tool("train", "--config", config, "--out", other))
        self.assertEqual(self.weights(), self.weights(other))
        done = self.run_tool("train", "--config", config, "--steps", 2, "--json")
        self.assertEqual(json.loads(self.expect_ok(done).stdout)["steps"], 2)

    def test_bad_configs_name_file_and_line(self):
        for text, words in (("n_layers = 3", ("bad.toml:1:", "mean n-layers?")),
                            ("\nsteps = [1]", ("bad.toml:2:", "must be a number")),
                            ("steps = = 1", ("bad.toml:1:",)),
                            ("steps = -1", ("--steps:", "at least 0"))):
            self.expect_error(self.train("--config", self.write("bad.toml", text)), INVALID, *words)
        self.expect_error(self.train("--config", self.dir / "no.toml"), FAILED, "no.toml")

    def test_depth_is_one_dial_that_explicit_flags_win_over(self):
        def params(*arguments):
            done = self.run_tool("plan", "--json", *arguments)
            return json.loads(self.expect_ok(done).stdout)["params"]
        dial = params("--depth", 2)
        self.assertEqual(dial, params("--n-layers", 2, "--d-model", 128, "--n-heads", 2))
        self.assertLess(dial, params("--depth", 3))
        self.assertLess(params("--depth", 2, "--n-layers", 1), dial)

    def test_every_flag_acts(self):
        def result(*arguments):
            done = self.train("--json", *arguments)
            return json.loads(self.expect_ok(done).stdout.splitlines()[-1])
        keys = ("params", "train_loss", "val_loss", "steps", "peak_bytes_planned")
        def outcome(*arguments):
            r = result(*arguments)
            return tuple(r[k] for k in keys)
        llama = ("--model", "llama", "--lr", "0.01", "--n-heads", 4, "--d-model", 32)
        base = outcome(*llama)
        self.assertEqual(base, outcome(*llama))
        for change in (("--n-layers", 2), ("--n-heads", 2), ("--n-kv-heads", 2), ("--head-dim", 4),
                       ("--d-model", 16), ("--d-ff", 24), ("--seqlen", 8), ("--batch", 3),
                       ("--accumulate", 2), ("--steps", 3), ("--optimizer", "sgd"),
                       ("--optimizer", "momentum"), ("--lr", "0.02"), ("--min-lr", "0.005"),
                       ("--warmup", 3), ("--weight-decay", 5), ("--beta1", 0.5), ("--beta2", 0.5),
                       ("--grad-clip", "0.01"), ("--dropout", 0.2), ("--seed", 2),
                       ("--tokenizer", "bytes"), ("--model", "gpt2"),
                       ("--model", "moe"), ("--model", "mlp"), ("--model", "lstm")):
            self.assertNotEqual(base, outcome(*llama, *change), change)

    def test_json_has_every_key(self):
        done = self.expect_ok(self.train("--json"))
        self.assertEqual(len(done.stdout.splitlines()), 1)
        result = json.loads(done.stdout)
        for key in ("steps", "train_loss", "val_loss", "tokens_per_s", "step_ms", "params",
                    "flops_per_step_planned", "flops_per_step_counted", "peak_bytes_planned",
                    "peak_bytes_measured", "compile_ms"):
            self.assertGreater(result[key], 0, key)
        self.assertEqual(result["flops_per_step_planned"], result["flops_per_step_counted"])
        self.assertEqual(result["peak_bytes_planned"], result["peak_bytes_measured"])

    def test_eval_every_and_save_every(self):
        self.expect_ok(self.train("--out", self.out, "--eval-every", 2, "--save-every", 3))
        rows = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([r["step"] for r in rows if "val_loss" in r], [2, 4])
        self.assertEqual([r["step"] for r in rows if "loss" in r], [1, 2, 3, 4])
        self.assertEqual(sorted(os.listdir(self.out / "checkpoints"))[-2:],
                         ["step-000003", "step-000004"])


class Checkpoints(CliTest):
    def damage(self, file, how):
        content = bytearray(file.read_bytes())
        if how == "truncated":
            del content[len(content) // 2:]
        else:
            content[-1] ^= 1
        file.write_bytes(content)

    def test_a_damaged_file_is_named(self):
        for how in ("truncated", "altered"):
            for name in ("model.safetensors", "optimizer.safetensors", "trainer_state.json"):
                out = self.dir / how / name
                self.expect_ok(self.train("--out", out))
                self.damage(out / "latest" / name, how)
                done = self.train("--out", out, "--resume", "--steps", 6)
                self.expect_error(done, FAILED, name, "none of the checkpoints")
                if name == "model.safetensors":
                    done = self.run_tool("generate", "--model", out, "--prompt", "a")
                    self.expect_error(done, FAILED, name)

    def test_an_older_good_checkpoint_serves_and_the_damage_is_told(self):
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", whole, "--steps", 6))
        self.expect_ok(self.train("--out", self.out, "--steps", 6, "--save-every", 3))
        self.damage(self.out / "latest" / "model.safetensors", "altered")
        done = self.expect_ok(self.train("--out", self.out, "--steps", 6, "--resume"))
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: damaged")]
        self.assertEqual(len(notes), 1)
        self.assertIn("model.safetensors", notes[0])
        self.assertIn("going on from step 3", notes[0])
        self.assertEqual(self.weights(), self.weights(whole))

    def test_resume_without_a_run(self):
        self.expect_error(self.train("--out", self.dir / "no", "--resume"), INVALID,
                          "holds no checkpoint")

    def test_resume_of_another_run(self):
        self.expect_ok(self.train("--out", self.out))
        resume = ("--out", self.out, "--resume", "--steps", 6)
        self.expect_error(self.train(*resume, "--batch", 3), INVALID, "batch 2", "now it is 3")
        self.expect_error(self.train(*resume, "--d-model", 32), INVALID)
        done = self.expect_ok(self.train(*resume, "--lr", "1e-4"))
        self.assertIn("had lr 0.001, now it is 1e-04", done.stderr)

    def test_resume_of_a_finished_run_changes_nothing(self):
        self.expect_ok(self.train("--out", self.out))
        before = {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()}
        done = self.expect_ok(self.train("--out", self.out, "--resume"))
        self.assertIn("nothing is left to do", done.stderr)
        self.assertEqual(before, {p: p.read_bytes() for p in self.out.rglob("*") if p.is_file()})

    def test_no_steps_save_the_model_as_it_begins(self):
        self.expect_ok(self.train("--out", self.out, "--steps", 0))
        done = self.run_tool("generate", "--model", self.out, "--prompt", "l", "--max-tokens", 2)
        self.expect_ok(done)

    def test_out_that_cannot_be(self):
        self.expect_error(self.train("--out", self.text), FAILED, "Not a directory")
        self.write("other/model.safetensors", "precious")
        self.expect_error(self.train("--out", self.dir / "other"), INVALID, "model.safetensors",
                          "another")
        self.assertEqual((self.dir / "other/model.safetensors").read_text(), "precious")

    def test_nan_keeps_the_last_good_checkpoint(self):
        self.expect_ok(self.train("--out", self.out))
        before = self.weights()
        for accumulate in (1, 2):
            out = self.dir / f"nan{accumulate}"
            flags = ("--accumulate", accumulate, "--warmup", 0, "--grad-clip", 0, "--save-every", 1)
            self.expect_ok(self.train(*flags, "--out", out))
            before = self.weights(out)
            done = self.train(*flags, "--out", out, "--resume", "--steps", 50, "--lr", "1e30",
                              "--min-lr", "1e30", "--save-every", 0)
            self.expect_error(done, INVALID, "step 6:", "NaN", "came from op ", "is kept",
                              "Lower --lr", lines_before=True)
            self.assertEqual(before, self.weights(out))

    def test_full_disk_keeps_the_last_checkpoint(self):
        self.expect_ok(self.train("--out", self.out))
        before = self.weights()
        def limit():  # as a full disk, for a process that may not write beyond this size
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        done = self.train("--out", self.out, "--resume", "--steps", 6, preexec_fn=limit)
        self.expect_error(done, FAILED, "cannot write", "checkpoints/step-000006/", "EFBIG",
                          lines_before=True)
        self.assertEqual(before, self.weights())
        self.assertEqual([], [n for n in os.listdir(self.out / "checkpoints") if "tmp" in n])
        self.expect_ok(self.train("--out", self.out, "--resume", "--steps", 6))

    def test_full_file_system(self):
        small = self.dir / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small],
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("needs root, to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", "-l", small])
        out = small / "out"
        self.expect_ok(self.train("--out", out, "--save-every", 0))
        before = self.weights(out)
        done = self.train("--out", out, "--resume", "--steps", 5000, "--save-every", 100)
        self.expect_error(done, FAILED, "cannot write", "The disk is full", lines_before=True)
        with self.assertRaises(OSError) as full:  # it is indeed
            (small / "x").write_bytes(b"x" * (1 << 20))
        self.assertEqual(full.exception.errno, errno.ENOSPC)
        (small / "x").unlink()
        self.assertGreaterEqual(set(self.weights(out)), set(before))
        self.expect_ok(self.run_tool("generate", "--model", out, "--prompt", "l",
                                     "--max-tokens", 3))


class Signals(CliTest):
    LONG = ("--steps", 3000, "--dropout", 0.1, "--lr", "1e-3", "--save-every", 0)

    def test_signals_save_and_resume_gives_the_same_bits(self):
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", whole, *self.LONG))
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            out = self.dir / f"parts{code}"
            process = self.start("--out", out, *self.LONG)
            line = ""
            while not line.startswith("step "):
                line = process.stderr.readline()
            process.send_signal(number)
            tail = process.stderr.read().splitlines()
            self.assertEqual(process.wait(SECONDS), code)
            self.assertIn("stopped by a signal after step", tail[-1])
            self.assertIn("--resume goes on", tail[-1])
            self.assertTrue((out / "report.html").exists())
            done = self.expect_ok(self.train("--out", out, "--resume", *self.LONG))
            self.assertIn("resumed after step", done.stderr)
            self.assertEqual(self.weights(whole), self.weights(out))
            rows = (out / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(r)["step"] for r in rows if "val_loss" not in r]
            self.assertEqual(steps, list(range(1, 3001)))

    def test_a_signal_without_out_says_that_nothing_is_saved(self):
        process = self.start("--steps", 10**9)
        while not process.stderr.readline().startswith("step "):
            pass
        process.send_signal(signal.SIGINT)
        self.assertIn("nothing is saved", process.stderr.read())
        self.assertEqual(process.wait(SECONDS), 130)


class Terminal(CliTest):
    def test_the_progress_line_is_rewritten_and_never_wraps(self):
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        process = subprocess.Popen([TEGULA, "train", "--data", self.text, *SMALL, "--steps", "3000",
                                    "--out", self.out], stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(main, 4096)
            except OSError:  # the other end is closed
                break
        os.close(main)
        self.assertEqual(process.communicate(timeout=SECONDS)[0], b"")
        self.assertEqual(process.returncode, 0)
        steps = [piece for line in shown.decode().split("\n") for piece in line.split("\r\033[K")
                 if piece.startswith("step ") and "validation" not in piece]
        self.assertGreaterEqual(len(steps), 2)
        for piece in steps:
            self.assertLess(len(piece.rstrip("\r")), 60)


class Report(CliTest):
    def test_the_report_is_one_page_that_needs_nothing_else(self):
        flags = ("--out", self.out, "--eval-every", 2)
        self.expect_ok(self.train(*flags))
        self.expect_ok(self.train(*flags, "--resume", "--steps", 8))
        page = (self.out / "report.html").read_text()
        self.assertNotIn("<script", page)
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"https?:|src=|href=")
        self.assertIn("prefers-color-scheme:dark", page)
        self.assertRegex(page, r"MFU [0-9.]+ %")
        for title in ("Loss", "Predicted beside measured", "Time per op", "Roofline",
                      "Memory of the plan"):
            self.assertIn(f"<h2>{title}</h2>", page)
        self.assertEqual(page.count(">equal<"), 2)
        charts = [xml.etree.ElementTree.fromstring(c)
                  for c in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
        self.assertEqual(len(charts), 3)
        # The whole run is drawn, also what went before the resume: evaluations at 2, 4, 6 and 8.
        titles = ["".join(t.itertext()) for t in charts[0].iter() if t.tag.endswith("title")]
        self.assertEqual([t.split(":")[0] for t in titles], [f"step {n}" for n in (2, 4, 6, 8)])
        # Every op of the table stands in the roofline.
        ops = set(re.findall(r"<tr><td>(\w+)<small>", page))
        drawn = {"".join(t.itertext()).split(" (")[0] for t in charts[1].iter()}
        self.assertGreater(len(ops), 5)
        self.assertLessEqual(ops, drawn)

    def test_the_picture_of_the_readme(self):
        self.expect_ok(self.train("--out", self.out))
        picture = self.dir / "run.svg"
        subprocess.run([sys.executable, "tools/run_picture.py", self.out / "report.html", picture],
                       check=True)
        text = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
        self.assertRegex(text, r"parameters · FLOPs a step: planned ([^,]+), measured \1 · peak")


class Kill9(CliTest):
    def test_kill_9_at_any_moment_resumes(self):
        """A run that saves at every step, killed again and again, ends with the bits of one that
        never was."""
        seed = int(os.environ.get("TEGULA_SEED", time.time_ns() % 10**6))
        draw = random.Random(seed)
        # A constant learning rate, so that a run of any length has the same beginning.
        flags = ("--dropout", 0.1, "--warmup", 0, "--lr", "1e-3", "--min-lr", "1e-3")
        endless = ("--out", self.out, "--save-every", 1, "--steps", 10**6, *flags)
        start = time.monotonic()
        process = self.start(*endless)
        while not (self.out / "latest").exists():
            time.sleep(0.001)
        first_save = time.monotonic() - start
        step = in_save = 0
        for kill in range(KILLS):
            time.sleep(draw.uniform(0, 3 * first_save))  # a third of them while it starts
            self.assertIsNone(process.poll(), f"seed {seed}, kill {kill}: it ended by itself")
            process.kill()
            process.communicate()
            in_save += any("tmp" in n for n in os.listdir(self.out / "checkpoints"))
            state = json.loads((self.out / "latest" / "trainer_state.json").read_text())
            self.assertGreaterEqual(state["step"], step, f"seed {seed}, kill {kill}: went back")
            step = state["step"]
            process = self.start(*endless, "--resume")
        process.kill()
        process.communicate()
        end = json.loads((self.out / "latest" / "trainer_state.json").read_text())["step"] + 3
        whole = self.dir / "whole"
        self.expect_ok(self.train("--out", self.out, "--resume", *flags, "--steps", end))
        self.expect_ok(self.train("--out", whole, *flags, "--steps", end))
        self.assertEqual(self.weights(), self.weights(whole), f"seed {seed}")
        print(f"killed {KILLS} times, {in_save} of them in the middle of a save; {end} steps; "
              f"seed {seed}")


if __name__ == "__main__":
    unittest.main(defaultTest=os.environ.get("TEGULA_ONLY"))
