"""BERT with its head of masked tokens: logits, loss and gradients are those of transformers'
BertForMaskedLM, and what `tegula train` makes is loaded there as it is."""

import json

import numpy as np
import pytest
import torch
from conftest import tegula
from safetensors.numpy import load_file, save_file
from transformers import (AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining,
                          BertModel, pipeline)

SMALL = dict(vocab_size=101, hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=50,
             max_position_embeddings=41, initializer_range=.3, pad_token_id=None)
FORMS = {"tied": {}, "a head of its own": {"tie_word_embeddings": False}, "one type, eps": {
    "type_vocab_size": 1, "layer_norm_eps": 1e-3}}


def nmse(ours, theirs):
    return float(((ours - theirs) ** 2).sum() / (theirs ** 2).sum())


def shaken(model):
    """Norms of 1 and biases of 0 would hide a mistake."""
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model.eval()


def batch(n=3, length=23, vocab=101, share=.15, seed=5):
    """Rows of ids, and targets of some of them."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(vocab, (n, length), generator=draw)
    targets = torch.where(torch.rand(n, length, generator=draw) < share, torch.randint(
        vocab, (n, length), generator=draw), -100)
    assert (targets >= 0).sum() > 3
    return ids, targets


def ours(directory, ids, targets, tmp_path, dtype="f32"):
    (tmp_path / "ids.json").write_text(json.dumps(ids.tolist()))
    (tmp_path / "targets.json").write_text(json.dumps(targets.tolist()))
    tegula("grad", "--model", directory, "--tokens", tmp_path / "ids.json", "--targets", tmp_path / "targets.json",
           "--out", tmp_path / "grad.st", "--dtype", dtype)
    return load_file(tmp_path / "grad.st")


def theirs(directory, ids, targets):
    """By the same names, in f64."""
    model, info = AutoModelForMaskedLM.from_pretrained(directory, output_loading_info=True, dtype=torch.float64,
                                                       attn_implementation="eager")
    assert not info["missing_keys"] and not info["mismatched_keys"]
    out = model.eval()(ids, labels=targets)
    out.loss.backward()
    grads = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": out.loss.detach().numpy(), "logits": out.logits.detach().numpy(), **grads}


def same(mine, reference, most, bits=1e-9):
    for key, value in mine.items():
        want = reference[key] if key in reference else None
        assert want is not None, key
        # A bias of keys shifts all scores of a query alike: its gradient is 0 but for rounding.
        if key.endswith("key.bias"):
            assert np.abs(value).max() < 1e-5 * np.abs(mine[key.replace("bias", "weight")]).max()
            continue
        assert nmse(value, want) <= bits, key
    assert len(mine) >= most


@pytest.mark.parametrize("form", FORMS)
def test_logits_loss_and_gradients(form, tmp_path):
    torch.manual_seed(3)
    shaken(BertForMaskedLM(BertConfig(**{**SMALL, **FORMS[form]}))).save_pretrained(tmp_path / "model")
    ids, targets = batch()
    reference = theirs(tmp_path / "model", ids, targets)
    same(ours(tmp_path / "model", ids, targets, tmp_path), reference, 50)
    same(ours(tmp_path / "model", ids, targets, tmp_path, "f64"), reference, 50, 1e-24)


def test_files_of_older_programs(tmp_path):
    """gamma and beta; the bias under its twin's name; a pooler and another head beside it."""
    torch.manual_seed(4)
    made = shaken(BertForPreTraining(BertConfig(**SMALL)))
    made.save_pretrained(tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    ids, targets = batch(seed=6)
    reference = theirs(tmp_path / "model", ids, targets)
    tensors = load_file(file)
    assert any("seq_relationship" in k for k in tensors) and any("pooler" in k for k in tensors)
    same(ours(tmp_path / "model", ids, targets, tmp_path), reference, 50)
    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
           for k, v in tensors.items()}
    old["cls.predictions.decoder.bias"] = old.pop("cls.predictions.bias")
    save_file(old, file, {"format": "pt"})
    same(ours(tmp_path / "model", ids, targets, tmp_path), reference, 50)
    old["cls.predictions.bias"] = old["cls.predictions.decoder.bias"]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].copy()
    save_file(old, file, {"format": "pt"})
    same(ours(tmp_path / "model", ids, targets, tmp_path), reference, 50)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    at = tmp_path_factory.mktemp("bert")
    (at / "text.txt").write_text("abcdefghij" * 400)
    tegula("train", "--model", "bert", "--data", at / "text.txt", "--out", at / "out", "--n-layers", 1, "--d-model", 32,
           "--n-heads", 2, "--seqlen", 20, "--batch", 8, "--steps", 600, "--lr", 3e-3, "--warmup", 20, "--eval-every", 0,
           "--tokenizer", "chars")
    return at / "out"


def test_what_is_trained_here_is_loaded_there(trained, tmp_path):
    model, info = AutoModelForMaskedLM.from_pretrained(trained, output_loading_info=True,
                                                       dtype=torch.float32, attn_implementation="eager")
    assert type(model) is BertForMaskedLM
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    tokenizer = AutoTokenizer.from_pretrained(trained)
    assert tokenizer.mask_token == "[MASK]" and tokenizer.mask_token_id == len(tokenizer) - 1
    vocab = model.config.vocab_size
    assert len(tokenizer) == vocab
    ids, targets = batch(vocab=vocab, length=20)
    same(ours(trained, ids, targets, tmp_path), theirs(trained, ids, targets), 24)
    told = pipeline("fill-mask", model=model, tokenizer=tokenizer)("cdefghij[MASK]bcdefghijab")
    assert told[0]["token_str"] == "a" and told[0]["score"] > .5
    model.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    assert (ours(tmp_path / "again", ids, targets, tmp_path)["logits"] == ours(trained, ids, targets, tmp_path)["logits"]).all()


def test_its_vectors(trained, tmp_path):
    """`tegula embed` of what was trained, and transformers' BertModel of the same files."""
    text = "fghijabc"
    mine = json.loads(tegula("embed", "--model", trained, "--text", text, "--pooling", "mean"))["embeddings"][0]
    model = BertModel.from_pretrained(trained, dtype=torch.float64, attn_implementation="eager").eval()
    ids = AutoTokenizer.from_pretrained(trained)(text, return_tensors="pt").input_ids
    with torch.no_grad():
        want = model(ids).last_hidden_state.mean(1)[0].numpy()
    assert nmse(np.array(mine), want) < 1e-9
