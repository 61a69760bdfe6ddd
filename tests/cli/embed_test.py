"""Vectors of texts: what is printed and written, and what an encoder cannot do."""

import array
import json
import math
import random
import struct
import unittest

from case import CliTest, INPUT, USAGE


class Embed(CliTest):
    """A BERT of random weights, whose tokens are bytes."""

    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--out", self.dir / "run", "--tokenizer", "bytes"))
        self.bert = self.dir / "bert"
        self.bert.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (self.bert / name).write_bytes((self.dir / "run/latest" / name).read_bytes())
        self.put("config.json", {"model_type": "bert", "vocab_size": 256, "hidden_size": 8, "intermediate_size": 12,
                                 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 30})
        shapes = {"embeddings.word_embeddings.weight": [256, 8], "embeddings.position_embeddings.weight": [30, 8],
                  "embeddings.token_type_embeddings.weight": [2, 8], "embeddings.position_ids": [1, 30]}
        for at, n_out, n_in in (("attention.self.query", 8, 8), ("attention.self.key", 8, 8),
                                ("attention.self.value", 8, 8), ("attention.output.dense", 8, 8),
                                ("intermediate.dense", 12, 8), ("output.dense", 8, 12)):
            shapes[f"encoder.layer.0.{at}.weight"], shapes[f"encoder.layer.0.{at}.bias"] = [n_out, n_in], [n_out]
        for at in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
            shapes[f"{at}.LayerNorm.weight"], shapes[f"{at}.LayerNorm.bias"] = [8], [8]
        draw, header, data = random.Random(1), {}, b""
        for name, shape in shapes.items():
            n = math.prod(shape)
            is_ids = name.endswith("position_ids")  # which other programs keep beside the weights
            values = array.array("q" if is_ids else "f", range(n) if is_ids else (draw.gauss(0, .5) for _ in range(n)))
            header[name] = {"dtype": "I64" if is_ids else "F32", "shape": shape,
                            "data_offsets": [len(data), len(data) + len(values.tobytes())]}
            data += values.tobytes()
        head = json.dumps(header).encode()
        (self.bert / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)

    def put(self, name, value):
        file = self.bert / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(value))

    def embed(self, *arguments):
        return self.run_tool("embed", "--model", self.bert, "--threads", 1, *arguments)

    def result(self, *arguments):
        done = self.expect_ok(self.embed(*arguments))
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def test_what_is_printed_and_written(self):
        lines = self.write("lines.txt", "one\nand two\n\u00e9\n")
        all_ = self.result("--texts", lines)
        self.assertEqual([len(v) for v in all_["embeddings"]], [8, 8, 8])
        self.assertEqual(all_["tokens"], [3, 7, 2])
        for i, text in enumerate(("one", "and two", "\u00e9")):
            self.assertEqual(self.result("--text", text)["embeddings"][0], all_["embeddings"][i])
        out = self.dir / "e.safetensors"
        self.assertEqual(self.expect_ok(self.embed("--texts", lines, "--out", out)).stdout, "")
        raw = out.read_bytes()
        (n,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8:8 + n])["embeddings"]
        self.assertEqual((header["dtype"], header["shape"]), ("F32", [3, 8]))
        self.assertEqual(list(array.array("f", raw[8 + n:])), sum(all_["embeddings"], []))
        self.assertNotEqual(self.result("--text", "one", "--pooling", "cls"), self.result("--text", "one"))
        unit = self.result("--text", "one", "--normalise", "true")["embeddings"][0]
        self.assertAlmostEqual(sum(x * x for x in unit), 1, places=6)

    def test_the_directory_says_how(self):
        mean, cls = (self.result("--text", "abc", "--pooling", p) for p in ("mean", "cls"))
        self.put("modules.json", [{"type": "sentence_transformers.models.Transformer", "path": ""},
                                  {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])
        self.put("1_Pooling/config.json", {"word_embedding_dimension": 8, "pooling_mode_cls_token": True})
        self.assertEqual(self.result("--text", "abc"), cls)
        self.assertEqual(self.result("--text", "abc", "--pooling", "mean"), mean)
        self.put("sentence_bert_config.json", {"max_seq_length": 4})
        done = self.expect_ok(self.embed("--text", "abcdef"))
        self.assertIn("text 1 has 6 tokens, and the model sees 4", done.stderr)
        self.put("modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])
        self.expect_error(self.embed("--text", "a"), INPUT, "modules.json", "Dense")

    def test_what_cannot_be(self):
        self.expect_error(self.embed(), USAGE, "--text or --texts")
        self.expect_error(self.embed("--texts", self.write("none", "")), INPUT, "is empty")
        ids = self.write("ids.json", "[[1, 2, 3]]")
        for command in (("generate", "--prompt", "a"), ("eval", "--tokens", ids)):
            done = self.run_tool(command[0], "--model", self.bert, *command[1:])
            self.expect_error(done, INPUT, command[0], "sees what follows", "tegula embed")
        done = self.run_tool("train", "--data", self.text, "--init-from", self.bert, "--steps", 1)
        self.expect_error(done, INPUT, "no special token [MASK]", lines_before=True)
        self.put("config.json", {**json.loads((self.bert / "config.json").read_text()), "hidden_act": "relu"})
        self.expect_error(self.embed("--text", "a"), INPUT, "hidden_act")


if __name__ == "__main__":
    unittest.main()
