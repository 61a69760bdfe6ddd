"""Loss, logits and gradients of every family against PyTorch's autograd."""

import json

import numpy as np
import pytest
import torch
from conftest import FAMILIES
from peers import PEERS
from safetensors.torch import load_file


def peer(directory, rows, dtype):
    """The same quantities by PyTorch in that precision, by the same names."""
    config = json.loads((directory / "config.json").read_text())
    weights = {name: t.to(dtype).requires_grad_()
               for name, t in load_file(directory / "model.safetensors").items()}
    ids = torch.tensor(rows)
    logits = PEERS[config["model_type"]](weights, config, ids[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    out = {"loss": loss, "logits": logits, **{name: w.grad for name, w in weights.items()}}
    return {name: t.detach().double().numpy() for name, t in out.items()}


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def scale(exact, key):
    """A bias of keys that are not turned shifts all scores of a query alike: its gradient is 0, and
    what rounding leaves of it is measured by that of its weight."""
    of = key.replace("k_proj.bias", "k_proj.weight")
    return max(rms(exact[key]), rms(exact[of]))


@pytest.mark.parametrize("name", FAMILIES)
def test_f64_is_the_same_mathematics(name, trained, gradients):
    rows, ours = gradients(name, "f64")
    exact = peer(trained(name), rows, torch.float64)
    assert len(ours) > 5 and ours.keys() <= exact.keys()
    for key, value in ours.items():
        assert rms(value - exact[key]) <= 1e-12 * scale(exact, key), key


@pytest.mark.parametrize("name", FAMILIES)
def test_f32_errs_at_most_twice_as_much_as_pytorch(name, trained, gradients):
    rows, ours = gradients(name, "f32")
    exact = peer(trained(name), rows, torch.float64)
    theirs = peer(trained(name), rows, torch.float32)
    epsilon = float(np.finfo(np.float32).eps)
    naive = {key: rms(theirs[key] - exact[key]) for key in ours}
    # One number may be right by luck. A loss changes by at most twice what its logits do.
    naive["loss"] = max(naive["loss"], 2 * naive["logits"])
    for key, value in ours.items():
        allowed = 2 * naive[key] + epsilon * scale(exact, key)
        assert rms(value - exact[key]) <= allowed, key
