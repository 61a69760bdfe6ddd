"""A checkpoint directory is loaded by `transformers` as it is, and means the same there."""

import copy
import json
import os
import subprocess

import numpy as np
import pytest
import torch
from conftest import FAMILIES, are_likeliest, greedy, tegula
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoModelForCausalLM, AutoTokenizer, Gemma2Config, Gemma3Config,
                          Gemma3ForConditionalGeneration, Gemma3TextConfig,
                          GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig, MixtralConfig,
                          Olmo2Config, Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config,
                          Qwen3MoeConfig, SmolLM3Config, Starcoder2Config)

CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "moe": "MixtralForCausalLM",
           "qwen2": "Qwen2ForCausalLM", "mistral": "MistralForCausalLM",
           "gemma2": "Gemma2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
           "gemma3": "Gemma3ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "phi3": "Phi3ForCausalLM",
           "olmo2": "Olmo2ForCausalLM", "starcoder2": "Starcoder2ForCausalLM",
           "gpt_neox": "GPTNeoXForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
           "qwen3_moe": "Qwen3MoeForCausalLM"}
KNOWN = [name for name in FAMILIES if name.split("-")[0] in CLASSES]


def load(directory):
    """The model, every tensor of which must be in the file and the other way round."""
    model, info = AutoModelForCausalLM.from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    return model.eval()


@pytest.mark.parametrize("name", KNOWN)
def test_logits_and_loss_are_equal(name, trained, gradients):
    model = load(trained(name))
    assert type(model).__name__ == CLASSES[name.split("-")[0]]
    rows, ours = gradients(name, "f32")
    ids = torch.tensor(rows)
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    # transformers computes the angles of RoPE in f32, which costs some of its digits.
    np.testing.assert_allclose(ours["logits"], logits.numpy(), rtol=0, atol=1e-5)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert abs(float(ours["loss"]) - float(loss)) < 1e-5


@pytest.mark.parametrize("name", KNOWN)
def test_greedy_continuations_are_equal(name, trained):
    """Ours comes from a KV cache; so does theirs."""
    tokenizer = AutoTokenizer.from_pretrained(trained(name))
    model = load(trained(name))
    prompt = "the quick "
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    theirs = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1]:]
    ours = json.loads(tegula("generate", "--model", trained(name), "--prompt", prompt,
                             "--max-tokens", 12, "--temperature", 0, "--json"))
    assert ours["text"] == tokenizer.decode(theirs)


@pytest.mark.parametrize("name", KNOWN)
def test_what_transformers_saves_we_load(name, trained, gradients, tmp_path):
    """A round trip through the other library keeps every bit."""
    load(trained(name)).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(trained(name)).save_pretrained(tmp_path / "model")
    rows, ours = gradients(name, "f32")
    (tmp_path / "ids.json").write_text(json.dumps(rows.tolist()))
    printed = tegula("grad", "--model", tmp_path / "model", "--tokens", tmp_path / "ids.json", "--out",
                     tmp_path / "grad.safetensors")
    assert printed.startswith(f"loss {float(ours['loss']):.9g};")


SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
             initializer_range=0.2)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 500.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.5, 2.0], "factor": 4.0, "rope_theta": 500.0,
        "long_factor": [1.0, 2.5, 4.0, 9.5], "original_max_position_embeddings": 8}
ONE_WIDTH = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
FOREIGN = {
    "gpt2": GPT2Config(vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4, n_inner=40,
                       initializer_range=0.2),
    "llama, nothing tied": LlamaConfig(**SMALL, head_dim=12, rope_theta=5e5, rms_norm_eps=1e-3),
    "llama, scaled by wavelength": LlamaConfig(
        **SMALL, head_dim=16, rope_parameters={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 24, "rope_theta": 500.0}),
    "qwen2, scaled": Qwen2Config(**SMALL, rope_parameters={"rope_type": "linear", "factor": 4.0,
                                                           "rope_theta": 1e4}),
    "llama, tied, biased": LlamaConfig(**SMALL, tie_word_embeddings=True, attention_bias=True,
                                       mlp_bias=True),
    "llama, only attention biased": LlamaConfig(**SMALL, attention_bias=True),
    "llama, only feed-forward layers biased": LlamaConfig(**SMALL, mlp_bias=True),
    "mixtral": MixtralConfig(**SMALL, num_local_experts=6, num_experts_per_tok=3),
    "mixtral, five experts": MixtralConfig(**SMALL, num_local_experts=5),
    "qwen2": Qwen2Config(**SMALL),
    "qwen2, tied, a window from a layer on": Qwen2Config(
        **SMALL, tie_word_embeddings=True, use_sliding_window=True, sliding_window=6,
        max_window_layers=1),
    "mistral": MistralConfig(**SMALL, sliding_window=5, rope_theta=1e6, head_dim=10),
    "mistral, no window": MistralConfig(**SMALL, sliding_window=None),
    "gemma2": Gemma2Config(**SMALL, head_dim=12, query_pre_attn_scalar=20, sliding_window=6,
                           attn_logit_softcapping=5.0, final_logit_softcapping=3.0),
    "gemma2, layers by type, no caps": Gemma2Config(
        **SMALL, head_dim=12, sliding_window=4, attn_logit_softcapping=None,
        final_logit_softcapping=None, layer_types=["full_attention", "sliding_attention"]),
    "llama, yarn": LlamaConfig(**SMALL, head_dim=16, rope_parameters=YARN),
    "qwen2, yarn of two scales, not rounded": Qwen2Config(**SMALL, rope_parameters={
        **YARN, "mscale": 0.7, "mscale_all_dim": 1.3, "truncate": False, "beta_fast": 2.0,
        "beta_slow": 0.5}),
    "mistral, yarn with a scale": MistralConfig(**SMALL, sliding_window=None, rope_parameters={
        **YARN, "attention_factor": 1.25}),
    "llama, dynamic": LlamaConfig(**SMALL, rope_parameters={"rope_type": "dynamic", "factor": 2.0,
                                                            "rope_theta": 1e4}),
    "llama, texts longer than those trained": LlamaConfig(**SMALL, rope_parameters=LONG),
    "llama, texts no longer than those trained": LlamaConfig(**SMALL, rope_parameters={
        **LONG, "original_max_position_embeddings": 20}),
    "qwen3": Qwen3Config(**SMALL, head_dim=12),
    "qwen3, biased, tied, a window from a layer on": Qwen3Config(
        **SMALL, head_dim=8, attention_bias=True, tie_word_embeddings=True, use_sliding_window=True,
        sliding_window=6, max_window_layers=1),
    "qwen3_moe": Qwen3MoeConfig(**SMALL, head_dim=12, num_experts=6, num_experts_per_tok=3,
                                moe_intermediate_size=24, norm_topk_prob=True),
    "qwen3_moe, layers without experts, biased, a window": Qwen3MoeConfig(
        **{**SMALL, "num_hidden_layers": 4}, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=24, decoder_sparse_step=2, mlp_only_layers=[1], attention_bias=True,
        use_sliding_window=True, sliding_window=6),
    "qwen2_moe": Qwen2MoeConfig(**SMALL, num_experts=5, num_experts_per_tok=2,
                                moe_intermediate_size=24, shared_expert_intermediate_size=20),
    "qwen2_moe, windows, no biases": Qwen2MoeConfig(
        **SMALL, num_experts=4, moe_intermediate_size=24, shared_expert_intermediate_size=20,
        qkv_bias=False, norm_topk_prob=True, use_sliding_window=True, sliding_window=6),
    "gemma3": Gemma3TextConfig(**{**SMALL, "num_hidden_layers": 7}, head_dim=12,
                               query_pre_attn_scalar=20, sliding_window=6),
    "gemma3, scaled, capped, biased": Gemma3TextConfig(
        **SMALL, head_dim=12, sliding_window=4, final_logit_softcapping=3.0, attention_bias=True,
        layer_types=["full_attention", "sliding_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e4},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}),
    "smollm3": SmolLM3Config(**{**SMALL, "num_hidden_layers": 5}, pad_token_id=0),
    "smollm3, biased, windows, layers by name": SmolLM3Config(
        **SMALL, pad_token_id=0, attention_bias=True, mlp_bias=True, no_rope_layers=[0, 1],
        sliding_window=6, use_sliding_window=True, tie_word_embeddings=False),
    "phi3": Phi3Config(**SMALL, pad_token_id=0),
    "phi3, a window, three quarters turned": Phi3Config(
        **SMALL, pad_token_id=0, sliding_window=6, rope_parameters={
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}),
    "phi3, texts longer than those trained": Phi3Config(
        **SMALL, pad_token_id=0, original_max_position_embeddings=8, rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1, 1.5, 2.0],
            "long_factor": [1.0, 2.5, 4.0, 9.5]}),
    "olmo2": Olmo2Config(**SMALL),
    "olmo2, biased, tied": Olmo2Config(**SMALL, attention_bias=True, tie_word_embeddings=True),
    "starcoder2": Starcoder2Config(**SMALL),
    "starcoder2, no biases, a window, a head": Starcoder2Config(
        **SMALL, use_bias=False, sliding_window=6, tie_word_embeddings=False),
    "gpt_neox": GPTNeoXConfig(**ONE_WIDTH),
    "gpt_neox, one behind the other, a half turned": GPTNeoXConfig(
        **ONE_WIDTH, use_parallel_residual=False, attention_bias=False, rope_parameters={
            "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}),
}


def as_transformers_4_wrote_it(config):
    """RoPE's base at the top, torch_dtype, and no types of layers."""
    rope = config.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    if rope and "partial_rotary_factor" in rope:
        share = rope.pop("partial_rotary_factor")
        is_neox = config["model_type"] == "gpt_neox"
        config["rotary_pct" if is_neox else "partial_rotary_factor"] = share
        if is_neox:
            config["rotary_emb_base"] = rope["rope_theta"]
    if rope and config["model_type"] == "gpt_neox":
        rope.pop("rope_theta")
    elif rope:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    return config


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FOREIGN)
def test_models_made_there_mean_the_same_here(name, dtype, tmp_path):
    torch.manual_seed(1)
    made = AutoModelForCausalLM.from_config(FOREIGN[name])
    with torch.no_grad():  # norms of 1 and biases of 0 would hide a mistake
        for p in made.parameters():
            p += 0.1 * torch.randn_like(p)
    made.to(dtype).save_pretrained(tmp_path / "model")
    rows = torch.randint(99, (2, 21))
    (tmp_path / "ids.json").write_text(json.dumps(rows.tolist()))
    with torch.no_grad():  # bf16 is how the file keeps the weights, not how they are computed with
        theirs = load(tmp_path / "model")(rows[:, :-1]).logits.numpy()
    assert np.abs(theirs).max() > 1
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    forms = [config, as_transformers_4_wrote_it(copy.deepcopy(config))]
    assert "dtype" in forms[0] and ("rope_parameters" in forms[0] or name == "gpt2")
    for form in forms:
        (tmp_path / "model" / "config.json").write_text(json.dumps(form))
        tegula("grad", "--model", tmp_path / "model", "--tokens", tmp_path / "ids.json", "--out",
               tmp_path / "grad.safetensors", "--dtype", "f32")
        ours = load_file(tmp_path / "grad.safetensors")["logits"]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
        assert np.square(ours - theirs).sum() <= 1e-9 * np.square(theirs).sum()


ALPHABET = "".join(chr(c) for c in range(33, 33 + 99))


def write_alphabet(directory):
    """A tokenizer of 99 characters."""
    made = Tokenizer(models.WordLevel({c: i for i, c in enumerate(ALPHABET)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    made.save(str(directory / "tokenizer.json"))


@pytest.mark.parametrize("name", FOREIGN)
def test_256_greedy_tokens_are_equal(name, tmp_path):
    """From a cache here; there each is the likeliest behind those before it, of a forward pass."""
    config = copy.deepcopy(FOREIGN[name])
    config.max_position_embeddings = 288  # of GPT-2 n_positions, by its map of names
    config.eos_token_id = config.bos_token_id = None
    torch.manual_seed(2)
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in made.parameters():
            p += 0.1 * torch.randn_like(p)
        if name.startswith(("gpt2", "gemma")):  # else a token's own vector speaks louder than its layers
            made.get_input_embeddings().weight *= 0.1
    made.save_pretrained(tmp_path / "model")
    write_alphabet(tmp_path / "model")
    prompt = "".join(ALPHABET[i * i % 99] for i in range(11))
    new, done = greedy(tmp_path / "model", prompt)
    assert len(new) == 256 and done["prompt_tokens"] == 11 and len(set(new)) > 3
    ids = torch.tensor([[*map(ALPHABET.index, prompt), *new]])
    with torch.no_grad():
        logits = load(tmp_path / "model")(ids[:, :-1]).logits[0, 10:].numpy()
    are_likeliest(new, logits)


def in_transformers_4(name):
    """As the file of a Gemma 3 of images names a tensor that transformers 5 names so."""
    for new, old in (("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."),
                     ("model.", "")):
        if name.startswith(new):
            return old + name[len(new):]
    return name


def test_the_text_of_a_model_of_images(tmp_path):
    """Gemma 3: its language model is read, and what is left out is named."""
    torch.manual_seed(1)
    text = {**SMALL, "head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 20}
    made = Gemma3ForConditionalGeneration(Gemma3Config(
        text_config=text, mm_tokens_per_image=4, image_token_index=98, boi_token_index=97, eoi_token_index=96,
        vision_config={"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                       "image_size": 8, "patch_size": 4})).eval()
    made.save_pretrained(tmp_path / "model")
    rows = torch.randint(90, (2, 21))
    (tmp_path / "ids.json").write_text(json.dumps(rows.tolist()))
    with torch.no_grad():
        theirs = made(input_ids=rows[:, :-1]).logits.numpy()
    tensors = load_file(tmp_path / "model/model.safetensors")
    assert any("vision_tower" in name for name in tensors)
    for names in (lambda name: name, in_transformers_4):
        save_file({names(k): v for k, v in tensors.items()}, tmp_path / "model/model.safetensors", {"format": "pt"})
        done = subprocess.run([os.environ["TEGULA_BIN"], "grad", "--model", tmp_path / "model", "--tokens",
                               tmp_path / "ids.json", "--out", tmp_path / "grad.safetensors"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for word in ("text_config", "vision_config", "vision_tower", "multi_modal_projector"):
            assert word in done.stderr
        ours = load_file(tmp_path / "grad.safetensors")["logits"]
        assert np.square(ours - theirs).sum() <= 1e-9 * np.square(theirs).sum()


def test_what_we_do_not_compute_is_refused(tmp_path):
    for wrong in (GPT2Config(activation_function="relu"), LlamaConfig(**SMALL, hidden_act="gelu"),
                  LlamaConfig(**SMALL, rope_parameters={"rope_type": "proportional", "factor": 2.0,
                                                        "rope_theta": 1e4})):
        wrong.save_pretrained(tmp_path)
        (tmp_path / "model.safetensors").touch()
        done = subprocess.run([os.environ["TEGULA_BIN"], "generate", "--model", tmp_path,
                               "--prompt", "a"], capture_output=True, text=True)
        assert done.returncode == 1 and "config.json" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["lstm", "mlp", "decoder"])
def test_families_of_our_own_say_so(name, trained):
    config = json.loads((trained(name) / "config.json").read_text())
    assert config["model_type"] == f"tegula-{name}" and "architectures" not in config
    with pytest.raises(ValueError, match=f"tegula-{name}"):
        AutoModelForCausalLM.from_pretrained(trained(name))
