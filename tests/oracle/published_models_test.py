"""The parameters of published models that `tegula plan` counts are those of transformers' classes."""

import pathlib
import sys

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

sys.path.append(str(pathlib.Path(__file__).parent.parent / "cli"))
import published_models  # noqa: E402


@pytest.mark.parametrize("model_type, said, params", published_models.CASES)
def test_parameters(model_type, said, params):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[model_type](**said))
    assert sum(p.numel() for p in model.parameters()) == params
