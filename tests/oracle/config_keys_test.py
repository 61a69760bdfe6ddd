"""Every key of every family's config.json, changed: our logits are transformers', or we refuse."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

sys.path.append(str(pathlib.Path(__file__).parent.parent / "cli"))
import config_changes  # noqa: E402

ROWS = torch.tensor([[(i * i + 7 * r) % 40 for i in range(13)] for r in range(2)])


def class_of(model_type):
    return AutoModelForMaskedLM if model_type == "bert" else AutoModelForCausalLM


def grad(directory, out):
    targets = directory / "targets.json"
    return subprocess.run(
        [os.environ["TEGULA_BIN"], "grad", "--model", directory, "--tokens", directory / "ids.json",
         *(["--targets", targets] if targets.exists() else []), "--out", out, "--threads", "1"],
        capture_output=True, text=True)


def theirs(directory, model_type):
    """Logits, or None where transformers refuses the file or its weights."""
    try:
        model, info = class_of(model_type).from_pretrained(
            directory, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
        if info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]:
            return None
        with torch.no_grad():
            return model.eval()(ROWS[:, :-1]).logits.numpy()
    except Exception:  # whatever it says of a file that it cannot use
        return None


@pytest.mark.parametrize("model_type", config_changes.FAMILIES.values())
def test_every_key(model_type, tmp_path_factory):
    tmp_path, out = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("out") / "grad.st"
    base = config_changes.base(model_type)
    (tmp_path / "config.json").write_text(json.dumps(base))
    is_masked = class_of(model_type) is AutoModelForMaskedLM
    (tmp_path / "ids.json").write_text(json.dumps((ROWS[:, :-1] if is_masked else ROWS).tolist()))
    if is_masked:
        (tmp_path / "targets.json").write_text(json.dumps(ROWS[:, 1:].tolist()))
    torch.manual_seed(1)
    made = class_of(model_type).from_config(AutoConfig.from_pretrained(tmp_path))
    with torch.no_grad():  # norms of 1 and biases of 0 would hide a mistake
        for p in made.parameters():
            p += 0.2 * torch.randn_like(p)
    made.save_pretrained(tmp_path)
    wrong, computed = [], 0
    for key, changed in [("", base), *config_changes.changes(model_type)]:
        (tmp_path / "config.json").write_text(json.dumps(changed))
        done = grad(tmp_path, out)
        assert done.returncode in (0, 1), done.stderr
        if done.returncode == 1:
            assert key, done.stderr
            continue
        logits = theirs(tmp_path, model_type)
        if logits is None:  # they are stricter
            continue
        ours = load_file(out)["logits"]
        off = np.abs(ours - logits).max() / np.abs(logits).max()
        computed += 1
        if not off < 1e-4:
            wrong.append((key, changed.get(key.split(".")[0]), float(off)))
    # BERT has fewer keys.
    assert not wrong and computed > (25 if model_type == "bert" else 30), (wrong, computed)
