"""Outputs: nothing that Tegula did not write is lost, and nothing that it reads."""

import json
import os
import shutil
import unittest

from case import CliTest, INPUT, USAGE


class Out(CliTest):
    def test_what_is_not_tegulas_is_not_overwritten(self):
        for name, content in (("report.html", "mine"), ("metrics.jsonl", "mine"),
                              ("model.safetensors", "mine"), ("config.json", "{}"),
                              ("tokenizer.json", "{}"), ("latest", "mine"), ("best", "mine"),
                              ("checkpoints/step-000001/model.bin", "mine")):
            out = self.dir / name.replace("/", "-")
            precious = self.write(out / name, content)
            done = self.train("--out", out)
            self.expect_error(done, INPUT, name.split("/")[0], "did not write", "--overwrite",
                              "choose another")
            self.assertEqual(precious.read_text(), content)
            self.assertEqual([p for p in out.rglob("*") if p.is_file()], [precious])
            self.expect_ok(self.train("--out", out, "--overwrite"))
            self.assertTrue(not precious.is_file() or precious.read_bytes() != content.encode())
            self.expect_ok(self.train("--out", out, "--resume", "--steps", 6))

    def test_other_files_may_stand_beside(self):
        notes = self.write(self.out / "notes.txt", "mine")
        self.write(self.out / "checkpoints-of-mine/step-000001/x", "mine")
        self.expect_ok(self.train("--out", self.out))
        self.expect_ok(self.train("--out", self.out, "--overwrite", "--steps", 2))
        self.assertEqual(notes.read_text(), "mine")
        self.assertTrue((self.out / "checkpoints-of-mine/step-000001/x").exists())
        self.assertEqual(os.listdir(self.out / "checkpoints").count("step-000002"), 1)
        self.assertEqual(json.loads(self.weights()["trainer_state.json"])["step"], 2)

    def test_a_run_stays_until_there_is_something_in_its_place(self):
        self.expect_ok(self.train("--out", self.out))
        before = self.weights(), (self.out / "metrics.jsonl").read_bytes()
        for bad in (("--out", self.out),), (("--data", self.dir / "no"),):
            done = self.train("--out", self.out, "--overwrite", data=self.dir / "no") \
                if "--data" in bad[0] else self.train("--out", self.out)
            self.assertEqual(done.returncode, INPUT)
            self.assertEqual(before, (self.weights(), (self.out / "metrics.jsonl").read_bytes()))
        done = self.train("--out", self.out)
        self.expect_error(done, INPUT, "holds a run, saved at step 4", "--resume", "--overwrite")

    def test_runs_of_older_versions_resume(self):
        self.expect_ok(self.train("--out", self.out))
        (self.out / ".tegula-run").unlink()
        self.expect_ok(self.train("--out", self.out, "--resume", "--steps", 6))
        self.assertTrue((self.out / ".tegula-run").exists())

    def test_nothing_is_written_through_links(self):
        for name in ("metrics.jsonl", "report.html", "checkpoints"):
            out, away = self.dir / f"out-{name}", self.dir / f"away-{name}"
            self.expect_ok(self.train("--out", out))
            (out / name).rename(away)
            (out / name).symlink_to(away)
            before = away.read_bytes() if away.is_file() else sorted(os.listdir(away))
            done = self.train("--out", out, "--resume", "--steps", 6)
            self.expect_error(done, INPUT, name, "is a link", "move it away")
            self.assertEqual(before, away.read_bytes() if away.is_file() else
                             sorted(os.listdir(away)))
        # The directory itself may be named by one.
        (self.dir / "real").mkdir()
        self.out.symlink_to("real")
        self.expect_ok(self.train("--out", self.out))
        self.assertTrue((self.dir / "real" / "report.html").exists())

    def test_temporary_names_of_others_stay(self):
        self.expect_ok(self.train("--out", self.out))
        checkpoints = self.out / "checkpoints"
        mine = [self.write(checkpoints / name, "mine")
                for name in (".tmp-mine", ".tmp-step-000001-77", ".tmp-backup/x", ".tmp-step-x-1/x",
                             ".tmp-step-000001-1/folder/x")]
        stale = [self.write(checkpoints / name, "half")
                 for name in (".tmp-step-000009-4711/model.safetensors",
                              ".tmp-step-000009.2-4711/x", ".tmp-old-step-000001/config.json")]
        (checkpoints / ".tmp-link").symlink_to(self.text)
        self.expect_ok(self.train("--out", self.out, "--resume", "--steps", 6))
        self.assertTrue(all(p.read_text() == "mine" for p in mine))
        self.assertTrue((checkpoints / ".tmp-link").is_symlink() and self.text.exists())
        self.assertEqual([p for p in stale if p.parent.exists()], [])


class Copies(CliTest):
    """A run that was copied goes on, whatever the copy made of its links."""
    def copy(self, how):
        copy = self.dir / how
        if how == "without dotfiles":
            shutil.copytree(self.out, copy, ignore=shutil.ignore_patterns(".*"))
        elif how != "links as text":  # cp -rL, scp -r, zip
            shutil.copytree(self.out, copy)
        else:  # what some archives and file systems make of a link
            shutil.copytree(self.out, copy, symlinks=True)
            for file in copy.iterdir():
                if file.is_symlink():
                    target = os.readlink(file)
                    file.unlink()
                    file.write_text(target)
        if how == "links left out":
            for name in os.listdir(self.out):
                if (self.out / name).is_symlink():
                    shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
        else:
            self.assertFalse(any(file.is_symlink() for file in copy.iterdir()))
        return copy

    def test_a_copy_goes_on(self):
        flags = ("--eval-every", 2, "--lr-decay-steps", 6)
        self.expect_ok(self.train("--out", self.out, *flags))
        copies = [self.copy(how) for how in ("followed", "without dotfiles", "links as text", "links left out")]
        self.expect_ok(self.train("--out", self.out, *flags, "--resume", "--steps", 6))
        links = {name: os.readlink(self.out / name) for name in os.listdir(self.out) if (self.out / name).is_symlink()}
        for copy in copies:
            with self.subTest(copy.name):
                self.expect_error(self.train("--out", copy), INPUT, "holds a run, saved at step 4", "--resume")
                self.expect_ok(self.run_tool("generate", "--model", copy, "--prompt", "line", "--threads", 1))
                self.expect_ok(self.train("--out", copy, *flags, "--resume", "--steps", 6))
                self.assertEqual(self.weights(copy), self.weights())
                self.assertEqual(links, {name: os.readlink(copy / name) for name in os.listdir(copy)
                                         if (copy / name).is_symlink()})
                self.assertEqual(sorted(os.listdir(copy / "checkpoints")), sorted(os.listdir(self.out / "checkpoints")))
                self.expect_ok(self.train("--out", copy, "--overwrite", "--steps", 1))

    def test_what_no_copy_makes_stays(self):
        self.expect_ok(self.train("--out", self.out))
        (self.out / "latest").unlink()
        mine = self.write("out/latest/notes", "mine")
        self.expect_error(self.train("--out", self.out, "--resume", "--steps", 6), INPUT, "/latest'", "move it away")
        self.assertEqual(mine.read_text(), "mine")


class Inputs(CliTest):
    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--out", self.out))
        self.tokens = self.write("tokens.json", "[[1, 2, 3, 4]]")

    def grad(self, out, tokens=None):
        return self.run_tool("grad", "--model", self.out, "--tokens", tokens or self.tokens, "--out",
                             out)

    def test_an_output_is_no_input(self):
        link, hard = self.dir / "link", self.dir / "hard"
        link.symlink_to(self.tokens)
        os.link(self.tokens, hard)
        for out in (self.tokens, link, hard):
            self.expect_error(self.grad(out), INPUT, "--out", "is --tokens", "choose another --out")
        self.expect_error(self.grad(self.tokens, tokens=link), INPUT, "is --tokens")
        self.assertEqual(self.tokens.read_text(), "[[1, 2, 3, 4]]")
        before = self.weights()
        for out in (self.out / "model.safetensors", self.out / "latest" / "optimizer.safetensors"):
            self.expect_error(self.grad(out), INPUT, "is a file of --model")
        blob = self.dir / "blob"  # as in a cache of models, whose files are links
        shutil.copy(self.out / "model.safetensors", blob)
        cached = self.dir / "cached"
        cached.mkdir()
        (cached / "model.safetensors").symlink_to(blob)
        done = self.run_tool("grad", "--model", cached, "--tokens", self.tokens, "--out", blob)
        self.expect_error(done, INPUT, "is a file of --model")
        self.assertEqual(before, self.weights())
        self.expect_ok(self.grad(self.dir / "new.safetensors"))
        self.expect_ok(self.grad(self.dir / "new.safetensors"))

    def test_plan(self):
        config = self.write("run.toml", "n-layers = 1")
        for flags in (("--data", self.text), ("--config", config)):
            done = self.run_tool("plan", *flags, "--save", flags[1])
            self.expect_error(done, INPUT, f"is {flags[0]}", "choose another --save")
        self.assertEqual(config.read_text(), "n-layers = 1")

    def test_train(self):
        rows = (self.out / "metrics.jsonl").read_bytes()
        done = self.train("--out", self.out, "--resume", data=self.out / "metrics.jsonl")
        self.expect_error(done, USAGE, "--data", "would overwrite")
        linked = self.dir / "rows"
        linked.symlink_to(self.out / "metrics.jsonl")
        self.expect_error(self.train("--out", self.out, "--resume", data=linked), USAGE, "overwrite")
        self.assertEqual(rows, (self.out / "metrics.jsonl").read_bytes())
        folder = self.dir / "folder"
        self.write(folder / "a.txt", self.text.read_text())
        self.expect_error(self.train("--out", folder, data=folder), USAGE, "--out and --data are both")
        self.expect_error(self.train("--out", self.out, "--overwrite", "--init-from", self.out), USAGE,
                          "--out and --init-from are both", "--resume")


class InitFrom(CliTest):
    def test_weights_and_tokenizer_come_from_another_run(self):
        first = self.dir / "first"
        self.expect_ok(self.train("--out", first, "--steps", 30, "--lr", "1e-2"))
        other = self.write("other.txt", "text of the line 7;\n" * 200)
        start = ("--init-from", first, "--steps", 0)
        flags = ("--batch", 2, "--warmup", 0, "--threads", 1, "--eval-every", 0)
        self.expect_ok(self.run_tool("train", "--data", other, "--out", self.out, *flags, *start))
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            self.assertEqual((self.out / name).read_bytes(), (first / name).read_bytes(), name)
        # A new schedule and state, which goes on as any other run.
        self.expect_ok(self.run_tool("train", "--data", other, "--out", self.out, *flags, "--resume",
                                     "--steps", 3))
        whole = self.dir / "whole"
        self.expect_ok(self.run_tool("train", "--data", other, "--out", whole, *flags, "--init-from",
                                     first, "--steps", 3))
        self.assertEqual(self.weights()["model.safetensors"], self.weights(whole)["model.safetensors"])
        rows = [json.loads(r) for r in (whole / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(rows[0]["step"], 1)

    def test_what_contradicts_the_model_is_refused(self):
        first = self.dir / "first"
        self.expect_ok(self.train("--out", first, "--model", "llama"))
        def begin(*flags):
            return self.run_tool("train", "--data", self.text, "--init-from", first, "--batch", 2,
                                 "--steps", 1, "--threads", 1, *flags)
        self.expect_error(begin("--n-heads", 4), INPUT, "--init-from", "has n-heads 2, not 4")
        self.expect_error(begin("--model", "gpt2"), INPUT, '"llama", not "gpt2"')
        self.expect_error(begin("--tokenizer", "bytes"), USAGE, "--tokenizer", "--init-from")
        self.expect_error(begin("--resume", "--out", self.out), USAGE, "--init-from", "--resume")
        self.expect_ok(begin("--seqlen", 6))  # rotary positions have no table
        gpt2 = self.dir / "gpt2"
        self.expect_ok(self.train("--out", gpt2))
        first = gpt2
        self.expect_ok(begin("--seqlen", 6))  # of the table's 12 positions
        self.expect_error(begin("--seqlen", 13), INPUT, "12 positions", "--seqlen 13")
        self.expect_error(self.run_tool("train", "--data", self.text, "--init-from", self.dir / "no"),
                          INPUT, "/no'")


if __name__ == "__main__":
    unittest.main()
