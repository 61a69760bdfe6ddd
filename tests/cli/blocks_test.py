"""GGUF models whose weights lie in blocks: one text alone, in a batch, in chunks, on threads and instruction sets."""

import json
import os
import random
import struct
import unittest

from case import CliTest, INVALID

# format: (number of its type, bytes of a block of 32, where halves lie)
FORMATS = {"Q4_0": (2, 18, (0,)), "Q4_1": (3, 20, (0, 2)), "Q5_0": (6, 22, (0,)), "Q5_1": (7, 24, (0, 2)),
           "Q8_0": (8, 34, (0,)), "IQ4_NL": (20, 18, (0,))}
WIDTH, LAYERS, HEADS, VOCAB = 64, 2, 4, 259


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name, kind, value):
    """A key of GGUF: u32 is 4, f32 6, a text 8, an array of texts or numbers 9."""
    if isinstance(value, list):
        body = b"".join(text(v) if kind == 8 else struct.pack("<i", v) for v in value)
        return text(name) + struct.pack("<IIQ", 9, kind, len(value)) + body
    return text(name) + struct.pack("<I", kind) + (text(value) if kind == 8 else struct.pack("<I" if kind == 4 else "<f", value))


def byte_names():
    """Bytes as GPT-2's vocabulary spells them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


class Blocks(CliTest):
    def blocks(self, name, *shape):
        rows, columns = shape[0] * (shape[1] if len(shape) == 3 else 1), shape[-1]
        _, size, halves = FORMATS[name]
        out = bytearray(self.random.randbytes(rows * columns // 32 * size))
        for at in range(0, len(out), size):
            for half in halves:
                scale = self.random.uniform(.002, .02) * (.1 if name == "Q8_0" else 1)
                out[at + half:at + half + 2] = struct.pack("<e", -8 * scale if half else scale)
        return bytes(out)

    def gguf(self, layers=("Q4_1", "Q5_0", "IQ4_NL", "Q5_1"), spoil=None, experts=()):
        self.random = random.Random(3)
        tensors = [("token_embd.weight", "Q8_0", (VOCAB, WIDTH)), ("output_norm.weight", None, (WIDTH,))]
        for i in range(LAYERS):
            a, b, c, d = layers
            tensors += [(f"blk.{i}.attn_norm.weight", None, (WIDTH,)), (f"blk.{i}.ffn_norm.weight", None, (WIDTH,)),
                        (f"blk.{i}.attn_q.weight", a, (WIDTH, WIDTH)), (f"blk.{i}.attn_k.weight", b, (32, WIDTH)),
                        (f"blk.{i}.attn_v.weight", "Q8_0", (32, WIDTH)), (f"blk.{i}.attn_output.weight", c, (WIDTH, WIDTH)),
                        *[(f"blk.{i}.ffn_{name}{'_exps' if experts else ''}.weight", kind, (*experts, *shape)) for name, kind, shape in
                          (("gate", d, (96, WIDTH)), ("up", "Q4_0", (96, WIDTH)), ("down", a, (WIDTH, 96)))],
                        *[(f"blk.{i}.ffn_gate_inp.weight", None, (e, WIDTH)) for e in experts]]
        keys = [key("general.architecture", 8, "llama"), key("llama.context_length", 4, 128),
                key("llama.embedding_length", 4, WIDTH), key("llama.block_count", 4, LAYERS),
                key("llama.feed_forward_length", 4, 96), key("llama.attention.head_count", 4, HEADS),
                key("llama.attention.head_count_kv", 4, 2), key("llama.attention.layer_norm_rms_epsilon", 6, 1e-5),
                key("llama.rope.freq_base", 6, 10000.0), key("llama.vocab_size", 4, VOCAB),
                key("tokenizer.ggml.model", 8, "gpt2"), key("tokenizer.ggml.pre", 8, "gpt-2"),
                key("tokenizer.ggml.tokens", 8, [*byte_names(), "<a>", "<b>", "<end>"]),
                key("tokenizer.ggml.token_type", 5, [1] * 256 + [3] * 3), key("tokenizer.ggml.merges", 8, []),
                key("tokenizer.ggml.eos_token_id", 4, 258)]
        keys += [key(f"llama.expert_{what}", 4, n) for e in experts for what, n in (("count", e), ("used_count", 2))]
        head, data = b"", b""
        for name, kind, shape in tensors:
            data += bytes(-len(data) % 32)
            number = FORMATS[kind][0] if kind else 0
            head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
            head += struct.pack("<IQ", number, len(data))
            if kind:
                body = self.blocks(kind, *shape)
            elif len(shape) == 1:
                body = struct.pack(f"<{shape[0]}f", *[1.0] * shape[0])
            else:
                body = struct.pack(f"<{shape[0] * shape[1]}f", *(self.random.gauss(0, .3) for _ in range(shape[0] * shape[1])))
            if name == spoil:
                size = FORMATS[kind][1] * shape[1] // 32  # of a row; its second block has no number
                at = 5 * size + FORMATS[kind][1]
                body = body[:at] + b"\x00\x7e" + body[at + 2:]
            data += body
        start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + head
        file = self.dir / f"{spoil or 'm'}{len(experts)}.gguf"
        file.write_bytes(start + bytes(-len(start) % 32) + data)
        return file

    def scores(self, model, *flags, isa=None, prompts=None):
        """The text and its log-probabilities, of one prompt, or of each of some."""
        env = {**os.environ, **({"TEGULA_ISA": isa} if isa else {})}
        asked = ("--prompts", prompts) if prompts else ("--prompt", "The roof tiles, one by one, are laid")
        done = self.expect_ok(self.run_tool("generate", "--model", model, *asked, "--max-tokens", 24, "--temperature", 0,
                                            "--ignore-eos", "--logprobs", 2, "--json", *flags, env=env))
        return json.loads(done.stdout)

    def logprobs(self, *arguments, **more):
        return self.scores(*arguments, **more)["log_probabilities"]

    def test_bits_do_not_depend_on_company(self):
        for experts in ((), (5,)):
            with self.subTest(experts=experts):
                self.check_company(self.gguf(experts=experts))

    def check_company(self, model):
        alone = self.logprobs(model, "--threads", 1)
        self.assertGreater(len(alone), 20)
        for flags in (("--threads", 3), ("--threads", 16), ("--prefill-chunk", 7), ("--prefill-chunk", 1), ("--threads", 2, "--mode", "fast")):
            self.assertEqual(self.logprobs(model, *flags), alone, flags)
        for isa in ("portable", "avx2"):
            self.assertEqual(self.logprobs(model, isa=isa), alone, isa)
        prompts = self.write("p.txt", "Else\nThe roof tiles, one by one, are laid\n" + "longer " * 9 + "\nx\n")
        together = self.scores(model, "--batch", 4, prompts=prompts)["each"]
        self.assertEqual(together[1]["log_probabilities"], alone)

    def test_f32_has_the_bits_of_the_dequantised_model(self):
        for experts in ((), (5,)):
            with self.subTest(experts=experts):
                model, plain = self.gguf(experts=experts), self.dir / f"plain{len(experts)}"
                self.expect_ok(self.run_tool("convert", "--from", model, "--out", plain))
                exact = self.logprobs(plain)
                self.assertEqual(self.logprobs(model, "--activations", "f32"), exact)
                self.assertNotEqual(self.logprobs(model, "--activations", "int8"), exact)

    def test_experts_stay_in_blocks(self):
        """A run holds less than the experts' weights would take as numbers."""
        done = self.scores(self.gguf(experts=(48,)))
        self.assertLess(done["peak_bytes"], 4 * LAYERS * 48 * 3 * 96 * WIDTH)

    def test_activations_are_of_blocks(self):
        plain = self.dir / "plain"
        self.expect_ok(self.run_tool("convert", "--from", self.gguf(), "--out", plain))
        said = self.run_tool("generate", "--model", plain, "--prompt", "a", "--max-tokens", 4, "--activations", "f32")
        self.expect_error(said, INVALID, "--activations is for weights in blocks")
        said = self.run_tool("generate", "--model", self.gguf(), "--prompt", "a", "--max-tokens", 4,
                             "--activations", "f32", "--dtype", "bf16")
        self.expect_error(said, INVALID, "not in bf16")

    def test_a_scale_that_is_no_number_is_found(self):
        for name in ("blk.1.ffn_up.weight", "blk.0.attn_q.weight", "token_embd.weight"):
            said = self.run_tool("generate", "--model", self.gguf(spoil=name), "--prompt", "a", "--max-tokens", 1)
            self.expect_error(said, INVALID, "a scale that is no number, in block 1 of row")


if __name__ == "__main__":
    unittest.main()
