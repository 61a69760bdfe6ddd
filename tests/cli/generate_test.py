"""Generation: what ends it, what does not fit, and what is read and printed."""

import json
import os
import subprocess
import unittest

from case import CliTest, INPUT, SECONDS, TEGULA, USAGE


class Generate(CliTest):
    """A model that has learnt "abcabc…" by heart, with a context of 12 tokens."""

    def setUp(self):
        super().setUp()
        self.data = self.write("abc.txt", "abc" * 300)
        self.expect_ok(self.train("--out", self.out, "--steps", 60, "--lr", "1e-2", "--warmup", 4,
                                  "--tokenizer", "bytes", data=self.data))

    def generate(self, *arguments, prompt="ab", **options):
        return self.run_tool("generate", "--model", self.out, "--prompt", prompt, "--temperature", 0,
                             "--threads", 1, *arguments, **options)

    def result(self, *arguments, **options):
        done = self.expect_ok(self.generate("--json", *arguments, **options))
        return json.loads(done.stdout), done.stderr

    def test_the_text_is_what_was_learnt(self):
        done = self.expect_ok(self.generate("--max-tokens", 6))
        self.assertEqual((done.stdout, done.stderr), ("abcabcab\n", ""))
        self.assertEqual(self.expect_ok(self.generate("--max-tokens", 0)).stdout, "ab\n")

    def test_more_than_the_context_is_told_before_any_work(self):
        result, notes = self.result("--max-tokens", 11)
        self.assertEqual((notes, result["ended"]), ("", "max_tokens"))
        result, notes = self.result("--max-tokens", 12)
        self.assertEqual(len(notes.splitlines()), 1)
        for words in ("has 2 tokens and 12 new", "context is 12", "older half", "--overflow stop"):
            self.assertIn(words, notes)
        self.assertEqual(result["text"], "cabcabcabcab")
        result, notes = self.result("--max-tokens", 20, prompt="abc" * 7)
        self.assertIn("the beginning of the prompt is left out", notes)

    def test_overflow_stop_ends_where_the_context_is_full(self):
        for prompt in ("ab", "abcabcabcabc"):
            result, notes = self.result("--max-tokens", 20, "--overflow", "stop", prompt=prompt)
            new = 12 - len(prompt) + 1
            self.assertIn(f"at most {new} of the 20", notes)
            self.assertEqual((result["ended"], result["new_tokens"]), ("context", new))
            self.assertEqual(result["text"], ("abc" * 9)[len(prompt):][:new])
        done = self.generate("--overflow", "stop", prompt="abc" * 5)
        self.expect_error(done, INPUT, "has 15 tokens", "context is 12", "--overflow slide")
        self.assertEqual(done.stdout, "")

    def test_stop_texts_end_it_and_are_left_out(self):
        for stops, text in ((("bc",), "ca"), (("xyz",), "cabcabca"), (("bcab", "xbc"), "ca"),
                            (("c",), ""), (("cabcabcx", "abcab"), "c"), (("abcabcabx",), "cabcabca")):
            flags = [word for stop in stops for word in ("--stop", stop)]
            result, _ = self.result("--max-tokens", 8, *flags)
            self.assertEqual(result["text"], text, stops)
            found = text != "cabcabca"
            self.assertEqual(result["ended"], "stop" if found else "max_tokens", stops)
        self.assertEqual(self.generate("--stop", "bc").stdout, "abca\n")
        self.expect_error(self.generate("--stop", ""), USAGE, "--stop")

    def test_end_of_text_is_the_token_that_the_model_files_name(self):
        model = self.dir / "copy"  # without a manifest: taken as it is
        model.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            (model / name).write_bytes((self.out / name).read_bytes())
        def result(*flags):
            done = self.run_tool("generate", "--model", model, "--prompt", "ab", "--temperature", 0,
                                 "--max-tokens", 8, "--json", *flags)
            return json.loads(self.expect_ok(done).stdout)
        config = json.loads((model / "config.json").read_text())
        for ids, text in ((ord("b"), "ca"), ([ord("z"), ord("b")], "ca"), (None, "cabcabca")):
            (model / "config.json").write_text(json.dumps({**config, "eos_token_id": ids}))
            self.assertEqual(result()["text"], text)
            self.assertEqual(result()["ended"], "max_tokens" if ids is None else "end_of_text")
            self.assertEqual(result("--ignore-eos")["text"], "cabcabca")
        (model / "generation_config.json").write_text('{"eos_token_id": [97]}')
        self.assertEqual(result()["text"], "c")
        (model / "generation_config.json").write_text('{"eos_token_id": ["b"]}')
        done = self.run_tool("generate", "--model", model, "--prompt", "ab")
        self.expect_error(done, INPUT, "generation_config.json", "eos_token_id")

    def test_a_config_that_was_edited_says_what_to_do(self):
        config = self.out / "latest" / "config.json"
        text = config.read_text()
        for edited in (text.replace("[", " [", 1), text.replace('"n_layer": 1', '"n_layer": 2')):
            self.assertNotEqual(edited, text)
            config.write_text(edited)
            done = self.generate()
            self.expect_error(done, INPUT, "config.json' was altered", "If you edited it",
                              "without manifest.json")
            self.assertNotIn("truncated", done.stderr)
        config.write_text(text[:len(text) // 2])
        self.expect_error(self.generate(), INPUT, "config.json' is truncated")
        config.write_text(text)
        self.expect_ok(self.generate())

    def test_the_prompt_may_come_from_standard_input(self):
        self.assertEqual(self.result("--max-tokens", 3, prompt="-", input="abca")[0]["text"], "bca")
        self.expect_error(self.generate(prompt="-", stdin=subprocess.DEVNULL), INPUT,
                          "the prompt is empty")

    def batch(self, prompts, *arguments, file="prompts.txt"):
        return self.run_tool("generate", "--model", self.out, "--prompts", self.write(file, prompts),
                             "--threads", 1, *arguments)

    def test_prompts_of_a_file_are_continued_together(self):
        prompts = ["ab", "c", "abcabc", "bca", "cab"]
        flags = ("--max-tokens", 30, "--temperature", 3, "--seed", 5, "--json")
        alone = []
        for prompt in prompts:
            done = self.run_tool("generate", "--model", self.out, "--prompt", prompt, *flags)
            alone.append(json.loads(self.expect_ok(done).stdout))
        for extra in ((), ("--prefill-chunk", 2), ("--dtype", "bf16"), ("--mode", "fast")):
            if extra[:1] in (("--dtype",), ("--mode",)):
                alone = [json.loads(self.expect_ok(self.run_tool(
                    "generate", "--model", self.out, "--prompt", p, *flags, *extra)).stdout)
                    for p in prompts]
            for batch in (1, 2, 8):
                done = self.expect_ok(self.batch("\n".join(prompts), "--batch", batch, *flags, *extra))
                got = json.loads(done.stdout)
                self.assertEqual(got["texts"], [one["text"] for one in alone], (batch, extra))
                self.assertEqual([e["new_tokens"] for e in got["each"]], [30] * 5)
                rounds = -(-len(prompts) // batch)  # a context of 12 is read again as it slides
                self.assertLessEqual(got["decode_steps"], 29 * rounds)
                if batch == 8:
                    self.assertGreater(got["decode_steps"], 20)

    def test_without_a_cache_the_text_is_the_same(self):
        # A context of 12 slides; the first token is the prompt's, the others are decoded.
        flags = ("--max-tokens", 30, "--temperature", 3, "--seed", 5, "--json")
        for extra in ((), ("--overflow", "stop"), ("--stop", "ab"), ("--prefill-chunk", 5)):
            got, cached = (json.loads(self.expect_ok(self.generate(*flags, *extra, *more)).stdout)
                           for more in (("--no-cache",), ()))
            for key in ("text", "new_tokens", "ended"):
                self.assertEqual(got[key], cached[key], extra)
            self.assertGreater(got["tokens_per_s"], 0)
        got, cached = (json.loads(self.expect_ok(self.batch("ab\nc\nabcabc\nbca", "--batch", 3, *flags, *more)).stdout)
                       for more in (("--no-cache",), ()))
        self.assertEqual((got["texts"], got["each"]), (cached["texts"], cached["each"]))

    def test_batches_have_the_bits_of_single_texts_on_every_instruction_set(self):
        # Of one that the machine lacks its own is taken.
        for isa in ("portable", "avx2", "avx512"):
            env = {**os.environ, "TEGULA_ISA": isa}
            for dtype in ("f32", "bf16"):
                def texts(prompts, batch):
                    done = self.run_tool(
                        "generate", "--model", self.out, "--prompts", self.write("p.txt", prompts), "--batch",
                        batch, "--max-tokens", 20, "--temperature", 3, "--dtype", dtype, "--json", env=env)
                    return json.loads(self.expect_ok(done).stdout)["texts"]
                lines = ["ab", "cabcab", "b"]
                alone = [texts(line, 1)[0] for line in lines]
                self.assertEqual(texts("\n".join(lines), 3), alone, (isa, dtype))

    def test_texts_of_a_batch_end_apart(self):
        flags = ("--max-tokens", 9, "--temperature", 0, "--stop", "bc", "--json")
        done = self.expect_ok(self.batch("ab\nb\n", "--batch", 2, *flags))
        got = json.loads(done.stdout)
        self.assertEqual(got["texts"], ["ca", "ca"])
        self.assertEqual([e["ended"] for e in got["each"]], ["stop", "stop"])
        done = self.expect_ok(self.batch("ab\nc\n", "--batch", 2, "--max-tokens", 3,
                                         "--temperature", 0))
        self.assertEqual(done.stdout, "abcab\n---------------\ncabc\n")

    def test_prompts_that_cannot_be_used_are_named_by_their_lines(self):
        self.expect_error(self.batch(""), INPUT, "is empty", "a prompt a line")
        self.expect_error(self.batch("ab\n\nc\n"), INPUT, "line 2 of", "the prompt is empty")
        done = self.batch("ab\n" + "abc" * 5 + "\n", "--overflow", "stop")
        self.expect_error(done, INPUT, "line 2 of", "has 15 tokens", "context is 12")
        self.expect_error(self.batch("ab", "--prompt", "c"), USAGE, "--prompt")
        self.expect_error(self.batch("ab", "--samples", 2), USAGE, "--samples")
        self.expect_error(self.batch("ab", "--batch", 0), USAGE, "--batch")
        self.expect_error(self.run_tool("generate", "--model", self.out), USAGE, "--prompts")

    def test_errors_stand_alone(self):
        self.expect_error(self.run_tool("generate", "--prompt", "a"), USAGE, "--model is required")
        done = self.run_tool("generate", "--model", self.dir / "no", "--prompt", "a")
        self.expect_error(done, INPUT, "/no'", "Check the path")
        self.expect_error(self.run_tool("generate", "--model", self.dir, "--prompt", "a"), INPUT,
                          "no model")
        self.expect_ok(self.train("--out", self.dir / "chars", data=self.data))
        done = self.run_tool("generate", "--model", self.dir / "chars", "--prompt", "xyz")
        self.expect_error(done, INPUT, "does not know")
        self.assertEqual(done.stdout, "")

    def test_a_reader_that_leaves_ends_it(self):
        process = subprocess.Popen([TEGULA, "generate", "--model", self.out, "--prompt", "ab",
                                    "--max-tokens", "10000000"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(SECONDS), 141)


if __name__ == "__main__":
    unittest.main()
