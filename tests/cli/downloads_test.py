"""The commonest damages of a downloaded model: each message says what the file is and what to do."""

import gzip
import io
import json
import os
import unittest
import zipfile

from case import CliTest, INPUT
from edit import read_safetensors, write_safetensors

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4988025760\n"


def zip_of(name):
    at = io.BytesIO()
    with zipfile.ZipFile(at, "w") as z:
        z.writestr(name, "x")
    return at.getvalue()


# What a file may be instead, and words of the message.
ALWAYS = [
    (LFS, ("Git LFS pointer to 4988025760 bytes", "git lfs pull")),
    (b"<!DOCTYPE html><html>Not found</html>", ("web page (HTML)", "download it again")),
    (b"\n<html lang=en><body>Sign in", ("web page (HTML)",)),
    (b"", ("0 bytes", "download it again")),
    (gzip.compress(b"{}" * 100), ("gzip", "gunzip")),
    (zip_of("model/data.pkl"), ("PyTorch checkpoint", "save_pretrained")),
    (zip_of("model.safetensors"), ("zip archive", "unpack")),
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", ("pickle", "save_pretrained")),
    (b"GGUF\x03\x00\x00\x00" + bytes(40), ("GGUF",)),
    (b"\x28\xb5\x2f\xfd" + bytes(30), ("zstd",)),
    (bytes(4096), ("zero bytes", "download it again")),
    (b"Entry not found", ("Entry not found", "server")),
    (b"Access to model x/y is restricted. You must be logged in.", ("restricted", "server"))]


class Downloads(CliTest):
    def setUp(self):
        super().setUp()
        self.expect_ok(self.train("--model", "llama", "--tie-embeddings", "false", "--steps", 1,
                                  "--out", self.out))
        self.model = self.dir / "model"
        self.model.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (self.model / name).write_bytes((self.out / "latest" / name).read_bytes())
        self.weights = self.model / "model.safetensors"

    def generate(self):
        return self.run_tool("generate", "--model", self.model, "--prompt", "line", "--max-tokens", 1,
                             "--threads", 1)

    def rename(self, change):
        header, data = read_safetensors(self.weights)
        write_safetensors(self.weights, {change(k) if k != "__metadata__" else k: v
                                         for k, v in header.items()}, data)

    def drop(self, *names):
        header, data = read_safetensors(self.weights)
        kept, out = {"__metadata__": header.get("__metadata__", {})}, b""
        for name in sorted((n for n in header if n != "__metadata__"),
                           key=lambda n: header[n]["data_offsets"]):
            begin, end = header[name]["data_offsets"]
            if name not in names:
                kept[name] = {**header[name], "data_offsets": [len(out), len(out) + end - begin]}
                out += data[begin:end]
        write_safetensors(self.weights, kept, out)

    def set_config(self, **values):
        path = self.model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def test_a_file_of_another_kind(self):
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            whole = (self.model / name).read_bytes()
            for content, words in ALWAYS:
                with self.subTest(name=name, content=content[:20]):
                    (self.model / name).write_bytes(content)
                    self.expect_error(self.generate(), INPUT, name, *words)
            (self.model / name).write_bytes(whole)
        for name in ("config.json", "tokenizer.json"):
            whole = (self.model / name).read_bytes()
            (self.model / name).write_bytes(whole[:len(whole) // 2])
            self.expect_error(self.generate(), INPUT, name, "truncated")
            (self.model / name).write_bytes(whole.decode().encode("utf-16"))
            self.expect_error(self.generate(), INPUT, name, "UTF-16")
            (self.model / name).write_bytes(whole)
        self.expect_ok(self.generate())

    def test_a_truncated_file(self):
        whole = self.weights.read_bytes()
        for n in (4, 100, len(whole) - 1):
            self.weights.write_bytes(whole[:n])
            self.expect_error(self.generate(), INPUT, "model.safetensors", "Copy or save it again")

    def test_config_that_is_a_servers_answer(self):
        self.write("model/config.json", '{"error": "Repository not found"}')
        self.expect_error(self.generate(), INPUT, "config.json", "model_type", "error")

    def test_names_with_a_prefix(self):
        header, _ = read_safetensors(self.weights)
        for prefix, words in (("module.", "DistributedDataParallel"), ("_orig_mod.", "torch.compile"),
                              ("module._orig_mod.", "DistributedDataParallel"),
                              ("base_model.model.", "merge_and_unload"),
                              ("transformer.", "save the model itself")):
            self.rename(lambda name: prefix + name)
            self.expect_error(self.generate(), INPUT, f"all names begin with {prefix}", words)
            self.rename(lambda name: name.removeprefix(prefix))
        self.drop("lm_head.weight")
        self.rename(lambda name: name.removeprefix("model."))
        self.expect_error(self.generate(), INPUT, "the names lack model.", "ForCausalLM")

    def test_heads(self):
        whole = self.weights.read_bytes()
        self.drop("lm_head.weight")
        self.expect_error(self.generate(), INPUT, "lm_head.weight is missing",
                          '"tie_word_embeddings" to true')
        self.set_config(tie_word_embeddings=True)
        self.expect_ok(self.generate())
        self.weights.write_bytes(whole)
        self.drop("model.embed_tokens.weight")
        self.expect_error(self.generate(), INPUT, "model.embed_tokens.weight is missing",
                          "lm_head.weight is there", "rename")
        self.weights.write_bytes(whole)
        self.expect_error(self.generate(), INPUT, "lm_head.weight", "tie_word_embeddings to false")

    def test_layers_and_biases(self):
        self.set_config(num_hidden_layers=2)
        self.expect_error(self.generate(), INPUT, "layers end at 0", "num_hidden_layers 2")
        self.set_config(num_hidden_layers=1, attention_bias=True, mlp_bias=True)
        self.expect_error(self.generate(), INPUT, "bias is missing", "attention_bias")

    def test_quantised_weights(self):
        self.rename(lambda name: name.replace("q_proj.weight", "q_proj.qweight"))
        self.expect_error(self.generate(), INPUT, "q_proj.weight is missing", "q_proj.qweight",
                          "quantised")
        self.set_config(quantization_config={"quant_method": "gptq"})
        self.expect_error(self.generate(), INPUT, "quantization_config", "gptq")

    def test_what_a_directory_has_instead(self):
        for name, words in (("pytorch_model.bin", "save_pretrained"),
                            ("pytorch_model-00001-of-00002.bin", "save_pretrained"),
                            ("adapter_model.safetensors", "LoRA"),
                            ("consolidated.00.pth", "save_pretrained"), ("x-q4.gguf", "gguf"),
                            ("tf_model.h5", "TensorFlow"),
                            ("model-00001-of-00002.safetensors", "index.json"),
                            ("weights.safetensors", "rename it")):
            other = self.weights.rename(self.model / name)
            self.expect_error(self.generate(), INPUT, name, words)
            other.rename(self.weights)
        self.weights.rename(self.dir / "kept")
        self.expect_error(self.generate(), INPUT, "no model.safetensors", "complete")
        os.symlink("../blobs/abc", self.weights)
        self.expect_error(self.generate(), INPUT, "../blobs/abc", "not there")

    def test_missing_shards(self):
        self.weights.rename(self.model / "a.safetensors")
        names = {"x": "a.safetensors", "y": "b.safetensors", "z": "c.safetensors"}
        self.write("model/model.safetensors.index.json", json.dumps({"weight_map": names}))
        self.expect_error(self.generate(), INPUT, "names 3 shards, of which 2 are not there",
                          "b.safetensors, c.safetensors", "download the rest")
        self.write("model/model.safetensors.index.json", LFS)
        self.expect_error(self.generate(), INPUT, "index.json", "git lfs pull")


if __name__ == "__main__":
    unittest.main()
