"""`tegula convert` and `tegula info`: GGUF and Hugging Face's form, there and back."""

import json
import pathlib
import struct
import unittest

from case import CliTest, INPUT, INVALID, USAGE
from edit import read_safetensors


class Convert(CliTest):
    def model(self, *flags, tokenizer="bpe:270"):
        out = self.dir / "run"
        self.expect_ok(self.train("--tokenizer", tokenizer, "--out", out, *flags))
        return out

    def generate(self, model):
        done = self.expect_ok(self.run_tool("generate", "--model", model, "--prompt", "line 4 of", "--max-tokens", 8,
                                            "--temperature", 0, "--threads", 1))
        return done.stdout

    def there_and_back(self, *flags):
        run = self.model(*flags)
        file, back = self.dir / "m.gguf", self.dir / "back"
        there = self.expect_ok(self.run_tool("convert", "--from", run, "--out", file))
        self.expect_ok(self.run_tool("convert", "--from", file, "--out", back))
        self.assertEqual(self.generate(file), self.generate(run))
        header, data = read_safetensors(run / "latest" / "model.safetensors")
        again, data_again = read_safetensors(back / "model.safetensors")
        self.assertLessEqual(header.keys(), again.keys())
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            first, last = again[name]["data_offsets"]
            self.assertEqual(entry["shape"], again[name]["shape"], name)
            self.assertEqual(data[begin:end], data_again[first:last], name)
        return there.stderr

    def test_llama(self):
        self.assertEqual(self.there_and_back("--model", "llama", "--n-heads", 4, "--n-kv-heads", 2), "")

    def test_gpt2(self):
        self.there_and_back("--model", "gpt2", "--bias")

    def test_mixtral(self):
        self.there_and_back("--model", "moe", "--n-experts", 3)

    def test_qwen3(self):
        self.there_and_back("--model", "qwen3")

    def test_gpt_neox(self):
        self.there_and_back("--model", "gpt_neox", "--bias", "--rotary-share", 0.5)

    def test_a_window_that_others_do_not_read_is_named(self):
        self.assertIn("does not read sliding_window", self.there_and_back("--model", "mistral", "--window", 5))

    def test_a_dtype_that_rounds_is_named(self):
        run = self.model("--model", "llama")
        done = self.expect_ok(self.run_tool("convert", "--from", run, "--out", self.dir / "m.gguf", "--dtype", "bf16"))
        self.assertIn("weights are rounded", done.stderr)

    def test_what_is_there_stays(self):
        run = self.model("--model", "llama")
        file = self.write("m.gguf", "mine")
        self.expect_error(self.run_tool("convert", "--from", run, "--out", file), INPUT, "is there already")
        self.assertEqual(file.read_text(), "mine")
        self.expect_error(self.run_tool("convert", "--from", run, "--out", self.dir), INPUT, "is there already")
        self.expect_error(self.run_tool("convert", "--from", run, "--out", self.dir / "no" / "m.gguf"), (INPUT, 3),
                          "m.gguf")
        self.assertEqual(list(self.dir.glob(".tmp*")), [])

    def test_what_gguf_cannot_say_is_refused(self):
        lstm = self.dir / "lstm"
        self.expect_ok(self.run_tool("train", "--data", self.text, "--model", "lstm", "--d-model", 8, "--seqlen", 8,
                                     "--batch", 2, "--steps", 1, "--warmup", 0, "--eval-every", 0, "--out", lstm))
        self.expect_error(self.run_tool("convert", "--from", lstm, "--out", self.dir / "x.gguf"), INPUT,
                          "has no form in GGUF")
        for flags, word in ((["--model", "qwen2", "--window", 5], "sliding_window"),
                            (["--model", "smollm3", "--no-rope-interval", 1], "no_rope_layers")):
            out = self.dir / flags[1]
            self.expect_ok(self.train("--tokenizer", "bpe:270", "--out", out, *flags))
            self.expect_error(self.run_tool("convert", "--from", out, "--out", self.dir / "x.gguf"), INPUT, word)
            self.assertFalse((self.dir / "x.gguf").exists())
        pieces = self.dir / "pieces"
        llama = self.dir / "llama"
        self.expect_ok(self.train("--tokenizer", "bpe:270", "--out", llama, "--model", "llama"))
        for name in ("config.json", "model.safetensors"):
            self.write(f"pieces/{name}", (llama / "latest" / name).read_bytes())
        # Without a tokenizer there is a file, and a note.
        done = self.expect_ok(self.run_tool("convert", "--from", pieces, "--out", self.dir / "none.gguf"))
        self.assertIn("no tokenizer", done.stderr)
        self.expect_error(self.run_tool("generate", "--model", self.dir / "none.gguf", "--prompt", "a"), INPUT,
                          "has no tokenizer")
        chars = self.dir / "chars"
        self.expect_ok(self.train("--tokenizer", "chars", "--model", "llama", "--out", chars))
        self.expect_error(self.run_tool("convert", "--from", chars, "--out", self.dir / "x.gguf"), INPUT, "tokenizer")

    def test_flags(self):
        self.expect_error(self.run_tool("convert", "--from", "a", "--out", "b", "--dtype", "q4"), USAGE, "bf16")
        self.expect_error(self.run_tool("convert", "--from", self.dir / "none", "--out", self.dir / "b"), (INPUT, 3),
                          "none")


class Info(CliTest):
    def info(self, path):
        return json.loads(self.expect_ok(self.run_tool("info", path, "--json")).stdout)

    def test_a_run_and_its_gguf_are_one_model(self):
        run, file = self.dir / "run", self.dir / "m.gguf"
        self.expect_ok(self.train("--tokenizer", "bpe:270", "--out", run, "--model", "llama", "--n-heads", 4,
                                  "--n-kv-heads", 2))
        self.expect_ok(self.run_tool("convert", "--from", run, "--out", file))
        here, there = self.info(run), self.info(file)
        self.assertEqual((here["form"], there["form"]), ("directory", "GGUF 3"))
        for key in ("family", "architecture", "parameters", "layers", "context", "vocab_size", "weight_bytes",
                    "cache_bytes_per_token", "tokens", "formats"):
            self.assertEqual(here[key], there[key], key)
        self.assertEqual(here["family"], "llama")
        self.assertEqual(here["weight_bytes"], 4 * here["parameters"])
        self.assertEqual(here["cache_bytes_per_token"], 2 * 2 * 4 * 4)  # one layer, two heads of four
        self.assertEqual(here["formats"][0]["format"], "f32")
        text = self.expect_ok(self.run_tool("info", file)).stdout
        for word in ("llama", "GGUF 3", f"{here['parameters']} in 1 layers", "bpe:N, 270 of 270", "template     none"):
            self.assertIn(word, text)

    def test_windows_are_said(self):
        out = self.dir / "windows"
        self.expect_ok(self.train("--tokenizer", "bytes", "--out", out, "--model", "mistral", "--window", 5))
        self.assertEqual(self.info(out)["window"], 5)
        self.assertIn(", less behind windows of 5", self.expect_ok(self.run_tool("info", out)).stdout)

    def test_a_model_without_a_cache(self):
        out = self.dir / "lstm"
        self.expect_ok(self.run_tool("train", "--data", self.text, "--model", "lstm", "--d-model", 8, "--seqlen", 8,
                                     "--batch", 2, "--steps", 1, "--warmup", 0, "--eval-every", 0, "--out", out))
        self.assertEqual(self.info(out)["cache_bytes_per_token"], 0)
        text = self.expect_ok(self.run_tool("info", out)).stdout
        self.assertTrue(text.splitlines()[-1].endswith("of weights as stored"), text)

    def test_seeds_and_damages(self):
        seeds = pathlib.Path("tests/fuzz/seeds/gguf")
        info = self.info(seeds / "llama.gguf")
        self.assertEqual({f["format"] for f in info["formats"]}, {"q4_0", "f32"})
        self.assertEqual((info["tokens"], info["end_of_text"]), (260, [259]))
        self.assertGreater(info["template_bytes"], 0)
        self.assertIn("IQ", self.refusal(self.changed(b"output_norm.weight", 1, 12, struct.pack("<I", 16))))
        for name, words in (("version1", "version 1"), ("huge_dim", "attn_q.weight"), ("cut", "cut off"),
                            ("empty", "0 bytes"), ("many_layers", "n_layers")):
            self.expect_error(self.run_tool("info", seeds / f"{name}.gguf"), INPUT, name, words)
        self.assertIn("'smallm'", self.info(seeds / "other_pre.gguf")["tokenizer"])
        self.expect_error(self.run_tool("generate", "--model", seeds / "other_pre.gguf", "--prompt", "a"), INPUT,
                          "tokenizer.ggml.pre", "smallm", "llama-bpe")
        self.write("folder/model.gguf", (seeds / "llama.gguf").read_bytes())
        self.expect_error(self.run_tool("info", self.dir / "folder"), INPUT, "folder/model.gguf", "give")
        self.expect_error(self.run_tool("info", self.write("x.txt", "text")), INPUT, "begins with GGUF")

    def changed(self, name, rank, skip, by):
        """The seed with the type of a tensor changed."""
        data = bytearray(pathlib.Path("tests/fuzz/seeds/gguf/llama.gguf").read_bytes())
        at = data.index(name) + len(name) + skip
        data[at:at + len(by)] = by
        return self.write("changed.gguf", bytes(data))

    def refusal(self, file):
        done = self.run_tool("info", file)
        self.assertEqual(done.returncode, INPUT)
        return done.stderr

    def test_keys_that_nobody_reads_are_refused(self):
        data = pathlib.Path("tests/fuzz/seeds/gguf/llama.gguf").read_bytes()
        n_keys = struct.unpack_from("<Q", data, 16)[0]
        for key, word in ((b"llama.attention.clamp_kqv", "clamp_kqv"), (b"llama.new_thing", "new_thing")):
            entry = struct.pack("<Q", len(key)) + key + struct.pack("<If", 6, 2.5)
            entry += struct.pack("<Q", 8) + b"pad.text" + struct.pack("<IQ", 8, (-len(entry) - 28) % 32)
            entry += b" " * ((-len(entry)) % 32)
            changed = data[:16] + struct.pack("<Q", n_keys + 2) + entry + data[24:]
            self.expect_error(self.run_tool("info", self.write("m.gguf", changed)), INPUT, word, "does not compute")
        self.expect_error(self.run_tool("info", "--json"), INVALID, "PATH")


if __name__ == "__main__":
    unittest.main()
