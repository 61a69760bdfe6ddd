"""Models of other origin: what is not as it must be is refused, by name."""

import json
import shutil
import struct
import unittest

from case import CliTest, FAILED, INVALID
from edit import read_safetensors, write_safetensors


class Weights(CliTest):
    """A model without a manifest: what is not this model's is refused, by name."""

    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--out", self.out, "--model", "llama", "--tokenizer", "bytes"))
        self.model = self.dir / "model"
        shutil.copytree(self.out / "latest", self.model)
        for name in ("manifest.json", "optimizer.safetensors", "trainer_state.json"):
            (self.model / name).unlink()

    def generate(self):
        return self.run_tool("generate", "--model", self.model, "--prompt", "l", "--max-tokens", 2)

    def edit(self, change):
        """change(header, data) -> data on a copy of the weights."""
        path = self.model / "model.safetensors"
        header, data = read_safetensors(self.out / "model.safetensors")
        data = bytearray(data)
        write_safetensors(path, header, change(header, data) or bytes(data))

    def test_what_is_well_formed_serves(self):
        self.expect_ok(self.generate())

    def test_an_extra_tensor(self):
        def change(header, data):
            header["model.layers.7.mlp.up_proj.weight"] = {
                "dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
            return bytes(data) + bytes(8)
        self.edit(change)
        self.expect_error(self.generate(), INVALID, "model.layers.7.mlp.up_proj.weight",
                          "no place for")

    def test_a_head_of_its_own_in_a_tied_model(self):
        config = json.loads((self.model / "config.json").read_text())
        self.assertFalse(config["tie_word_embeddings"])  # as Llama's files have it
        (self.model / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
        def change(last):
            def edit(header, data):
                begin, end = header["model.embed_tokens.weight"]["data_offsets"]
                at, _ = header["lm_head.weight"]["data_offsets"]
                data[at:at + end - begin] = data[begin:end - 1] + (last or data[end - 1:end])
            return edit
        self.edit(change(b""))
        self.expect_ok(self.generate())  # the same once more, as some exporters write it
        self.edit(change(b"\x3f"))
        self.expect_error(self.generate(), INVALID, "lm_head.weight", "tie_word_embeddings")

    def test_values_that_are_no_numbers(self):
        name = "model.layers.0.mlp.up_proj.weight"
        for bits, text in ((0x7FC00000, "nan"), (0xFF800000, "-inf")):
            def change(header, data):
                begin = header[name]["data_offsets"][0]
                data[begin + 20:begin + 24] = struct.pack("<I", bits)
            self.edit(change)
            self.expect_error(self.generate(), INVALID, name, text, "element 5 of")

    def test_a_weight_stored_as_integers(self):
        def change(header, _):
            header["model.norm.weight"]["dtype"] = "I32"
        self.edit(change)
        self.expect_error(self.generate(), INVALID, "model.norm.weight", "i32",
                          "not of floating point")

    def test_config(self):
        config = json.loads((self.model / "config.json").read_text())
        for key, value, words in (
                ("rms_norm_eps", -1e-5, ("rms_norm_eps is -1e-05", "positive")),
                ("rms_norm_eps", 0, ("rms_norm_eps is 0", "positive")),
                ("rope_theta", 0, ("rope_theta is 0",)),
                ("attention_dropout", 1, ("attention_dropout is 1", "below 1")),
                ("num_hidden_layers", 10**12, ("num_hidden_layers", "1000000000000", "a size")),
                ("num_hidden_layers", 10**6, ("num_hidden_layers", "1000000", "from 1 to 4096")),
                ("num_attention_heads", 2**62, ("num_attention_heads", "a size")),
                ("head_dim", 2**62, ("head_dim", "a size")),
                ("hidden_size", 2**24, ("vocab_size 256 × d_model 16777216",)),
                ("max_position_embeddings", 2**28, ("n_layers 1 × max_seqlen 268435456 × ",))):
            changed = {**config, key: value}
            if key == "hidden_size":
                changed["vocab_size"] = 2**20
                words = ("vocab_size 1048576 × d_model 16777216", "elements")
            if key == "max_position_embeddings":
                changed.update(num_attention_heads=2**16, num_key_value_heads=2**16)
            (self.model / "config.json").write_text(json.dumps(changed))
            self.expect_error(self.generate(), INVALID, "config.json", *words)

    def test_a_tokenizer_of_another_size(self):
        path = self.model / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["model"]["vocab"]["ab"] = 256
        path.write_text(json.dumps(tokenizer))
        self.expect_error(self.generate(), INVALID, "the tokenizer of", "has 257 tokens",
                          "vocabulary of 256", "'ab'")

    def test_pickles_say_what_to_do(self):
        (self.model / "model.safetensors").rename(self.model / "pytorch_model.bin")
        self.expect_error(self.generate(), INVALID, "pytorch_model.bin", "save_pretrained")

    def test_shards(self):
        """The weights in two files with an index: the same model."""
        header, data = read_safetensors(self.model / "model.safetensors")
        header.pop("__metadata__")
        whole = self.expect_ok(self.generate()).stdout
        (self.model / "model.safetensors").unlink()
        shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        weight_map = {}
        for i, shard in enumerate(shards):
            part, bytes_of = {}, b""
            for name in sorted(header)[i::2]:
                begin, end = header[name]["data_offsets"]
                part[name] = {**header[name], "data_offsets": [len(bytes_of),
                                                              len(bytes_of) + end - begin]}
                bytes_of += data[begin:end]
                weight_map[name] = shard
            write_safetensors(self.model / shard, part, bytes_of)
        index = self.model / "model.safetensors.index.json"
        def expect(weight_map, code, *words):
            index.write_text(json.dumps({"metadata": {"total_size": len(data)},
                                         "weight_map": weight_map}))
            self.expect_error(self.generate(), code, *words)
        index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        self.assertEqual(whole, self.expect_ok(self.generate()).stdout)
        some = next(iter(weight_map))
        expect({**weight_map, some: "../x.safetensors"}, INVALID, some, "no file of this directory")
        expect({**weight_map, some: shards[1]}, INVALID, some, "does not have it")
        expect({}, INVALID, "weight_map")
        (self.model / shards[1]).unlink()
        expect(weight_map, FAILED, shards[1], "index.json")


if __name__ == "__main__":
    unittest.main()
