"""Perplexities and distances equal those that PyTorch computes of transformers' logits."""

import json
import math

import pytest
import torch
from conftest import tegula
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

NAMES = ["gpt2", "llama", "gemma2", "qwen2"]


def logits_of(directory, row, context, stride):
    """Of each token but the first, by the windows of docs/cli.md."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    parts, done, begin = [], 1, 0
    while done < len(row):
        end = min(begin + context + 1, len(row))
        with torch.no_grad():
            parts.append(model(torch.tensor([row[begin:end - 1]])).logits[0, done - begin - 1:])
        done, begin = end, begin + stride
    return torch.cat(parts).double()


@pytest.mark.parametrize("context,stride", [(24, 24), (16, 5)])
@pytest.mark.parametrize("name", NAMES)
def test_perplexity_and_distance(name, context, stride, trained, text, tmp_path):
    directory, other = trained(name), trained("mistral")
    (tmp_path / "some.txt").write_text(text.read_text()[:400])
    flags = ["--data", tmp_path / "some.txt", "--context", context, "--stride", stride]
    told = json.loads(tegula("eval", "--model", directory, *flags, "--json"))
    (row,) = json.loads(tegula("encode", "--model", directory, "--text", tmp_path / "some.txt"))
    logits = logits_of(directory, row, context, stride)
    targets = torch.tensor(row[1:])
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    assert told["tokens"] == len(row) - 1
    # RoPE's angles there are f32's: some digits of a logit.
    assert abs(told["nll"] - losses.sum().item()) < 1e-5 * len(row)
    assert told["perplexity"] == pytest.approx(math.exp(losses.mean().item()), rel=1e-5)
    assert told["bits_per_byte"] == pytest.approx(losses.sum().item() / math.log(2) / 400, rel=1e-5)
    told = json.loads(tegula("eval", "--model", directory, *flags, "--against", other, "--logits",
                             tmp_path / "logits.safetensors", "--json"))
    p = torch.log_softmax(logits_of(other, row, context, stride), -1)
    q = torch.log_softmax(logits, -1)
    kl = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    assert told["kl"]["mean"] == pytest.approx(kl.mean().item(), rel=1e-4, abs=1e-6)
    assert told["kl"]["max"] == pytest.approx(kl.max().item(), rel=1e-4, abs=1e-6)
    stored = load_file(tmp_path / "logits.safetensors")
    assert torch.equal(stored["tokens"], targets.int())
    assert (stored["logits"] - logits).abs().max() < 1e-4
