"""A checkpoint directory is loaded by `transformers` as it is, and means the same there."""

import json

import numpy as np
import pytest
import torch
from conftest import FAMILIES, tegula
from transformers import AutoModelForCausalLM, AutoTokenizer

CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "moe": "MixtralForCausalLM"}
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
    model, tokenizer = load(trained(name)), AutoTokenizer.from_pretrained(trained(name))
    prompt = "the quick "
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    theirs = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1]:]
    ours = json.loads(tegula("generate", "--model", trained(name), "--prompt", prompt,
                             "--max-tokens", 12, "--temperature", 0, "--json"))
    assert ours["text"] == tokenizer.decode(theirs)


@pytest.mark.parametrize("name", KNOWN)
def test_what_transformers_saves_we_load(name, trained, gradients, tmp_path):
    """A round trip through the other library keeps every bit."""
    load(trained(name)).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(trained(name)).save_pretrained(tmp_path)
    rows, ours = gradients(name, "f32")
    (tmp_path / "ids.json").write_text(json.dumps(rows.tolist()))
    printed = tegula("grad", "--model", tmp_path, "--tokens", tmp_path / "ids.json", "--out",
                     tmp_path / "grad.safetensors")
    assert printed.startswith(f"loss {float(ours['loss']):.9g};")


@pytest.mark.parametrize("name", ["lstm", "mlp"])
def test_families_of_our_own_say_so(name, trained):
    config = json.loads((trained(name) / "config.json").read_text())
    assert config["model_type"] == f"tegula-{name}" and "architectures" not in config
    with pytest.raises(ValueError, match=f"tegula-{name}"):
        AutoModelForCausalLM.from_pretrained(trained(name))
