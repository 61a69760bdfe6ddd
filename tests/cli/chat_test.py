"""Chats: templates, turns, what is read and printed; sampling's flags; prompts in JSONL."""

import json
import math
import signal
import subprocess
import unittest

from case import CliTest, INPUT, SECONDS, TEGULA, USAGE

TEMPLATE = "{{ system }}{% for m in messages %}{{ m.content }}{% endfor %}{{ tail }}"


class Chat(CliTest):
    """A model that has learnt "abcabc…" by heart, with a context of 40 tokens."""

    def setUp(self):
        super().setUp()
        data = self.write("abc.txt", "abc" * 300)
        self.expect_ok(self.train("--out", self.out, "--steps", 60, "--lr", "1e-2", "--warmup", 4, "--context", 40,
                                  "--tokenizer", "bytes", data=data))
        self.template = self.write("t.jinja", TEMPLATE)
        self.model = self.dir / "copy"  # without a manifest: it may be edited
        self.model.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            (self.model / name).write_bytes((self.out / name).read_bytes())

    def chat(self, said, *arguments, model=None, template=True):
        return self.run_tool("chat", "--model", model or self.out, "--temperature", 0, "--threads", 1,
                             *(("--chat-template", self.template) if template else ()), *arguments, input=said)

    def generate(self, *arguments):
        return self.run_tool("generate", "--model", self.out, "--threads", 1, "--temperature", 0, *arguments)

    def result(self, *arguments):
        return json.loads(self.expect_ok(self.generate("--json", *arguments)).stdout)

    def test_answers_go_to_standard_output_a_line_each(self):
        done = self.expect_ok(self.chat("ab\n\nab\n/exit\nab\n", "--max-tokens", 4))
        self.assertEqual(done.stdout, "cabc\ncabc\n")
        notes = done.stderr.splitlines()
        self.assertEqual(len(notes), 3, notes)
        self.assertIn("the cache takes 8192 bytes: 1 x 40 tokens in f32", notes[0])
        self.assertIn("2 tokens, 0 of them in the cache", notes[1])
        self.assertIn("8 tokens, 5 of them in the cache", notes[2])  # the last one drawn was not read
        self.assertIn("4 new at", notes[2])

    def test_the_end_of_input_ends_it(self):
        self.assertEqual(self.expect_ok(self.chat("", "--max-tokens", 4)).stdout, "")
        self.assertEqual(self.expect_ok(self.chat("ab", "--max-tokens", 4)).stdout, "cabc\n")

    def test_messages_of_several_lines(self):
        self.write("t.jinja", "{{ (messages | last).content | tojson | length }}ab")
        shown = self.expect_ok(self.chat('a\\\nb\\\nc\n"""a\n\nb"""\n"""x"""\n"""a\nb', "--max-tokens", 1)).stderr
        lengths = [len(json.dumps(text)) for text in ("a\nb\nc", "a\n\nb", "x", "a\nb")]
        read = [int(line.split()[1]) for line in shown.splitlines()[1:]]
        self.assertEqual(read, [len(f"{n}ab") for n in lengths])

    def start_chat(self, model, *arguments):
        process = subprocess.Popen([TEGULA, "chat", "--model", model, "--chat-template", self.template, "--temperature", "0",
                                    "--threads", "1", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        for stream in (process.stdin, process.stdout, process.stderr):
            self.addCleanup(stream.close)
        self.addCleanup(process.kill)
        process.stdin.write(b"ab\n")
        process.stdin.flush()
        return process

    def test_an_interrupt_ends_an_answer(self):
        data = self.write("abc.txt", "abc" * 300)
        self.expect_ok(self.train("--out", self.dir / "long", "--context", 60000, "--tokenizer", "bytes", data=data))
        process = self.start_chat(self.dir / "long")
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(b"/exit\n", timeout=SECONDS)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(b"the answer was stopped", err)
        self.assertLess(len(out), 50000)

    def test_an_interrupt_between_answers_ends_the_conversation(self):
        process = self.start_chat(self.out)
        while b" new at " not in process.stderr.readline():
            pass
        while process.poll() is None:  # once is enough, unless it comes before the wait for a message has begun
            process.send_signal(signal.SIGINT)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        self.assertEqual(process.returncode, 128 + signal.SIGINT)

    def test_what_windows_adds_is_no_text(self):
        done = self.expect_ok(self.chat("\ufeffab\r\n/reset\r\nab\r\n", "--max-tokens", 4))
        self.assertEqual(done.stdout, "cabc\ncabc\n")
        self.assertIn("note: 2 tokens, 0 of them", done.stderr)

    def test_commands(self):
        done = self.expect_ok(self.chat("/help\nab\n/reset\nab\n", "--max-tokens", 4))
        self.assertEqual(done.stdout, "cabc\ncabc\n")
        for words in ("/reset begins a new conversation", "note: a new conversation", "2 tokens, 1 of them"):
            self.assertIn(words, done.stderr)

    def test_the_template_sees_system_and_variables(self):
        self.write("t.jinja", "{% for m in messages %}{{ m.content if m.role == 'system' or on }}{% endfor %}{{ tail }}")
        for flags, text in ((("--system", "ab"), "ca"), (("--system", "a", "--template-arg", "tail=b"), "ca"),
                            (("--template-arg", "on=true"), "ab"), (("--template-arg", "on=false", "--system", "b"), "ca"),
                            (("--template-arg", 'tail="ca"'), "bc")):
            flags = (*flags, "--max-tokens", 2)
            self.assertEqual(self.expect_ok(self.chat("c\n", *flags)).stdout, text + "\n", flags)
            self.assertEqual(self.expect_ok(self.generate("--chat", "--chat-template", self.template, "--prompt", "c",
                                                          *flags)).stdout, text + "\n", flags)

    def test_turns_end_at_the_ends_that_the_files_name(self):
        def answers(*flags):
            return self.expect_ok(self.chat("ab\n", "--max-tokens", 6, *flags, model=self.model)).stdout
        self.assertEqual(answers(), "cabcab\n")
        (self.model / "generation_config.json").write_text('{"eos_token_id": [98]}')
        self.assertEqual(answers(), "ca\n")
        self.assertEqual(answers("--ignore-eos"), "cabcab\n")
        config = json.loads((self.model / "tokenizer_config.json").read_text())
        (self.model / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": {"content": "a"}}))
        self.assertEqual(answers(), "c\n")
        self.assertEqual(answers("--stop", "c"), "\n")

    def test_the_template_is_the_models(self):
        self.expect_error(self.chat("ab\n", template=False), INPUT, "has no chat template", "--chat-template FILE")
        (self.model / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
        config = json.loads((self.model / "tokenizer_config.json").read_text())
        (self.model / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": "ab"}))
        done = self.expect_ok(self.chat("c\n", "--max-tokens", 2, model=self.model, template=False))
        self.assertEqual(done.stdout, "ab\n")
        for template, words in (("{% if %}", ("line 1", "expected an expression")), ("\n{{ x | nosuch }}", ("line 2", "filter nosuch")),
                                ("{{ raise_exception('never') }}", ("never",))):
            self.write("t.jinja", template)
            done = self.chat("ab\n")
            self.expect_error(done, INPUT, str(self.template), *words, lines_before=True)
            self.assertEqual(done.stdout, "")
        self.expect_error(self.chat("ab\n", "--chat-template", self.dir / "no", template=False), INPUT, "/no'")
        self.expect_error(self.chat("ab\n", "--template-arg", "x"), USAGE, "NAME=VALUE")

    def test_a_conversation_longer_than_the_context_is_told(self):
        done = self.chat("abc\n" + "abc" * 20 + "\n", "--max-tokens", 3)
        self.expect_error(done, INPUT, "66 tokens", "context is 40", "/reset", lines_before=True)
        self.assertEqual(done.stdout, "abc\n")
        done = self.expect_ok(self.chat("abc\n", "--context", 10))
        self.assertEqual(len(done.stdout), 10 - 3 + 1 + 1)
        self.assertIn("1 x 10 tokens in f32", done.stderr)
        self.assertIn("the context is full", done.stderr)
        self.expect_error(self.chat("abc\n", "--context", 41), INPUT, "--context 41", "is 40")
        done = self.expect_ok(self.chat("abc\n"))  # up to the end of the context
        self.assertEqual(len(done.stdout), 40 - 3 + 1 + 1)
        self.assertIn("the context is full", done.stderr)

    def test_messages_of_a_file(self):
        chat = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "a"}]
        flags = ("--chat-template", self.template, "--max-tokens", 3, "--messages")
        self.assertEqual(self.result(*flags, self.write("c.json", json.dumps(chat)))["text"], "bca")
        whole = self.write("c.json", json.dumps({"messages": chat, "tail": "b"}))
        self.assertEqual(self.result(*flags, whole)["text"], "cab")
        # A message's reasoning is found by the names that templates have for it.
        self.write("t.jinja", "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}")
        for name in ("reasoning_content", "thinking", "reasoning"):
            chat = self.write("r.json", json.dumps([{"role": "assistant", name: "ab", "content": "x"}]))
            self.assertEqual(self.result(*flags, chat)["text"], "cab")
        for bad, words in (("[", "not valid JSON"), ("[]", "list of messages"), ("{}", "list of messages"), ("[5]", "message 1")):
            self.expect_error(self.generate(*flags, self.write("c.json", bad)), INPUT, words)
        self.expect_error(self.generate(*flags, whole, "--chat"), USAGE, "--chat")
        self.expect_error(self.generate(*flags, whole, "--system", "x"), USAGE, "--system")
        self.expect_error(self.generate("--prompt", "a", "--system", "x"), USAGE, "--system", "--chat")

    def test_prompts_in_jsonl_have_their_own_settings(self):
        lines = [{"prompt": "ab", "max_tokens": 3}, {"prompt": "c", "stop": "b"}, {"prompt": "b", "stop": ["c"], "max_tokens": 9},
                 {"messages": [{"role": "user", "content": "bc"}], "max_tokens": 2},
                 {"prompt": "ab", "logit_bias": {"97": 50}, "max_tokens": 2}, {"prompt": "a", "temperature": 5, "seed": 3, "top_k": 1, "max_tokens": 2}]
        def run(*rows):
            return self.generate("--prompts", self.write("p.jsonl", "".join(json.dumps(r) + "\n" for r in rows)), "--batch", 3,
                                 "--chat-template", self.template, "--json")
        got = json.loads(self.expect_ok(run(*lines)).stdout)
        self.assertEqual(got["texts"], ["cab", "a", "", "ab", "aa", "bc"])
        for bad, words in (({"prompt": "a", "max_token": 3}, 'unknown key "max_token"'), ({}, "either"), ({"prompt": 5}, "either"),
                           ({"prompt": "a", "messages": []}, "either"), ({"prompt": "a", "top_p": 2}, "from 0 to 1"),
                           ({"prompt": "a", "seed": -1}, "whole number"), ({"prompt": "a", "stop": ""}, "not empty"),
                           ({"prompt": "a", "logit_bias": {"x": 1}}, "ids and numbers"), ({"prompt": "a", "logit_bias": {"999": 1}}, "token 999"),
                           ({"messages": []}, "list of messages"), ([1], "no JSON object")):
            self.expect_error(run({"prompt": "a"}, bad), INPUT, "line 2 of", words)

    def test_lines_may_be_messages_and_draw_by_themselves(self):
        flags = ("--chat", "--chat-template", self.template, "--max-tokens", 3, "--json")
        alone = [self.result("--prompt", text, *flags)["text"] for text in ("ab", "c", "bca")]
        done = self.expect_ok(self.generate("--prompts", self.write("p.txt", "ab\nc\nbca"), "--batch", 2, *flags))
        self.assertEqual(json.loads(done.stdout)["texts"], alone)
        self.assertEqual(alone, ["cab", "abc", "bca"])
        # What is of no use at --temperature 0 may be of use to a line.
        lines = self.write("p.jsonl", '{"prompt": "ab"}\n{"prompt": "ab", "temperature": 50}\n')
        texts = [json.loads(self.expect_ok(self.generate("--prompts", lines, "--seed", seed, "--max-tokens", 9, "--json")).stdout)
                 ["texts"] for seed in (1, 2)]
        self.assertEqual(texts[0][0], texts[1][0])
        self.assertNotEqual(texts[0][1], texts[1][1])

    def test_sampling_flags(self):
        self.assertEqual(self.result("--prompt", "ab", "--max-tokens", 3, "--logit-bias", "97=50")["text"], "aaa")
        self.assertEqual(self.result("--prompt", "ab", "--max-tokens", 3, "--logit-bias", "99=-50", "--logit-bias", "98=30")["text"], "bbb")
        # Nothing comes twice where it costs much.
        for flag in ("--presence-penalty", "--frequency-penalty"):
            got = self.result("--prompt", "ab", "--max-tokens", 9, flag, 50, "--logprobs", 0)["log_probabilities"]
            self.assertEqual(len({s["id"] for s in got}), 9)
        flags = ("--prompt", "ab", "--max-tokens", 3, "--logit-bias", "100=30")
        self.assertEqual(self.result(*flags)["text"], "ddd")
        again = self.result(*flags, "--repetition-penalty", 100)["text"]
        self.assertTrue(again[0] == "d" != again[1], again)
        for flag in ("--min-p", "--typical-p", "--top-p", "--top-k", "--seed"):
            self.expect_error(self.generate("--prompt", "a", flag, 1), USAGE, flag, "--temperature 0")
        self.expect_error(self.generate("--prompt", "a", "--logit-bias", "5"), USAGE, "ID=VALUE")
        self.expect_error(self.generate("--prompt", "a", "--logit-bias", "500=1"), INPUT, "token 500", "256 tokens")
        self.expect_error(self.generate("--prompt", "a", "--min-p", 2), USAGE, "--min-p", "from 0 to 1")
        for flags in (("--min-p", ".9"), ("--typical-p", ".01"), ("--top-k", 1)):
            done = self.run_tool("generate", "--model", self.out, "--prompt", "ab", "--temperature", ".1", "--max-tokens", 5, *flags)
            self.assertEqual(self.expect_ok(done).stdout, "abcabca\n", flags)

    def test_log_probabilities(self):
        got = self.result("--prompt", "ab", "--max-tokens", 5, "--logprobs", 256)["log_probabilities"]
        self.assertEqual([s["id"] for s in got], [ord(c) for c in "cabca"])
        for s in got:
            best = [b["log_probability"] for b in s["best"]]
            self.assertEqual(s["best"][0]["id"], s["id"])
            self.assertEqual(best, sorted(best, reverse=True))
            self.assertAlmostEqual(sum(map(math.exp, best)), 1, places=4)
            self.assertEqual(s["log_probability"], best[0])
        again = self.result("--prompt", "ab", "--max-tokens", 5, "--logprobs", 0, "--no-cache")["log_probabilities"]
        self.assertEqual([s["log_probability"] for s in again], [s["log_probability"] for s in got])
        self.assertEqual(again[0]["best"], [])
        self.expect_error(self.generate("--prompt", "a", "--logprobs", 1), USAGE, "--logprobs", "--json")

    def test_the_cache_may_have_a_dtype_of_its_own(self):
        whole = self.result("--prompt", "ab", "--max-tokens", 30)
        for dtype in ("bf16", "f16"):
            done = self.expect_ok(self.generate("--prompt", "ab", "--max-tokens", 30, "--cache-dtype", dtype, "--json"))
            half = json.loads(done.stdout)
            self.assertEqual((half["text"], half["cache_bytes"]), (whole["text"], whole["cache_bytes"] // 2))
            self.assertIn(f"the cache takes {half['cache_bytes']} bytes: 1 x 32 tokens in {dtype}", done.stderr)
            self.assertLess(half["peak_bytes"], whole["peak_bytes"])

    def test_text_is_utf8_whatever_tokens_are(self):
        # A byte that begins a character waits for the rest, and is U+FFFD where none comes.
        got = self.result("--prompt", "ab", "--max-tokens", 2, "--logit-bias", f"{0xc3}=90")
        self.assertEqual(got["text"], "\ufffd\ufffd")
        done = self.expect_ok(self.generate("--prompt", "ab", "--max-tokens", 1, "--logit-bias", f"{0xc3}=90"))
        self.assertEqual(done.stdout, "ab\ufffd\n")


if __name__ == "__main__":
    unittest.main()
