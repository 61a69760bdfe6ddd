"""Trained models of every family, and the tool, for tests that compare with PyTorch and its kin."""

import json
import os
import random
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

HEADS, WIDE = ["--n-heads", "4"], ["--d-ff", "48"]
FAMILIES = {
    "gpt2": ["--model", "gpt2", "--bias", *HEADS, *WIDE],
    "gpt2-plain": ["--model", "gpt2", *HEADS, *WIDE],
    "llama": ["--model", "llama", "--n-kv-heads", "2", "--head-dim", "8", *HEADS, *WIDE],
    "llama-bias": ["--model", "llama", "--bias", *HEADS, *WIDE],
    "moe": ["--model", "moe", "--n-kv-heads", "2", "--n-experts", "4", *HEADS, *WIDE],
    "qwen2": ["--model", "qwen2", "--n-kv-heads", "2", "--window", "7", *HEADS, *WIDE],
    "mistral": ["--model", "mistral", "--n-kv-heads", "2", "--window", "7", *HEADS, *WIDE],
    "gemma2": ["--model", "gemma2", "--n-kv-heads", "2", "--head-dim", "12", "--window", "7",
               "--attention-softcap", "2", "--logit-softcap", "3", *HEADS, *WIDE],
    "qwen3": ["--model", "qwen3", "--n-kv-heads", "2", "--head-dim", "10", "--window", "7", *HEADS, *WIDE],
    "qwen3-bias": ["--model", "qwen3", "--bias", *HEADS, *WIDE],
    "qwen3_moe": ["--model", "qwen3_moe", "--n-kv-heads", "2", "--n-experts", "4", "--window", "7",
                  *HEADS, *WIDE],
    "qwen2_moe": ["--model", "qwen2_moe", "--n-kv-heads", "2", "--n-experts", "4", "--bias",
                  "--shared-ff", "20", "--window", "7", *HEADS, *WIDE],
    "gemma3": ["--model", "gemma3", "--n-kv-heads", "2", "--head-dim", "12", "--window", "7",
               "--logit-softcap", "3", "--n-layers", "7", *HEADS, *WIDE],
    "smollm3": ["--model", "smollm3", "--n-kv-heads", "2", "--no-rope-interval", "2", "--window", "7",
                *HEADS, *WIDE],
    "phi3": ["--model", "phi3", "--n-kv-heads", "2", "--rotary-share", "0.75", "--window", "7", *HEADS,
             *WIDE],
    "olmo2": ["--model", "olmo2", "--n-kv-heads", "2", *HEADS, *WIDE],
    "olmo2-bias": ["--model", "olmo2", "--bias", *HEADS, *WIDE],
    "starcoder2": ["--model", "starcoder2", "--n-kv-heads", "2", "--bias", "--window", "7", *HEADS, *WIDE],
    "starcoder2-plain": ["--model", "starcoder2", *HEADS, *WIDE],
    "gpt_neox": ["--model", "gpt_neox", "--bias", "--rotary-share", "0.5", *HEADS, *WIDE],
    "gpt_neox-in-turn": ["--model", "gpt_neox", "--parallel-residual", "false", *HEADS, *WIDE],
    "decoder": ["--model", "decoder", "--n-kv-heads", "2", *HEADS, *WIDE],
    "decoder-lectures": ["--model", "decoder", "--norm", "post", "--activation", "relu",
                         "--positions", "sinusoid", "--bias", *HEADS, *WIDE],
    "decoder-rope": ["--model", "decoder", "--activation", "swiglu", "--positions", "rope",
                     "--tie-embeddings", "false", *HEADS, *WIDE],
    "lstm": ["--model", "lstm"],
    "mlp": ["--model", "mlp", *WIDE],
}
SEQLEN = 24


def tegula(*args):
    """Runs the tool and returns what it prints."""
    done = subprocess.run([os.environ["TEGULA_BIN"], *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def greedy(directory, prompt, *flags, n=256):
    """The ids of n likeliest next tokens, or as many as come before the end of the text."""
    done = json.loads(tegula("generate", "--model", directory, "--prompt", prompt, "--max-tokens", n, "--temperature", 0,
                             "--logprobs", 1, "--json", *flags))
    ids = [each["id"] for each in done["log_probabilities"]]
    return ids[:done["new_tokens"]], done  # without the end of the text


def are_likeliest(ids, logits):
    """Each id is that of the largest logit of its row [n, v], or its logit is closer than 1e-4 to that."""
    rows = np.arange(len(ids))
    gaps = logits.max(1) - logits[rows, ids]
    ties = np.flatnonzero(logits.argmax(1) != ids)
    assert (gaps < 1e-4).all(), (int(gaps.argmax()), float(gaps.max()))
    return len(ties)


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text.txt"
    words = "the quick brown fox jumps over a lazy dog while seven wizards box".split()
    rng = random.Random(1)
    path.write_text("\n".join(" ".join(rng.choices(words, k=9)) for _ in range(200)))
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory, text):
    """name -> --out of a small model of that family, trained a little."""
    made = {}

    def train(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "model"
            layers = [] if "--n-layers" in FAMILIES[name] else ["--n-layers", 2]
            tegula("train", "--data", text, "--out", made[name], *layers, "--d-model", 32, "--seqlen", SEQLEN, "--batch", 4, "--steps", 20,
                   "--lr", 1e-2, "--warmup", 2, "--eval-every", 0, *FAMILIES[name])
        return made[name]

    return train


@pytest.fixture(scope="session")
def gradients(trained, tmp_path_factory):
    """(name, dtype) -> rows of ids, and what `tegula grad` says of them."""
    made = {}

    def run(name, dtype):
        if (name, dtype) not in made:
            directory = trained(name)
            vocab = json.loads((directory / "config.json").read_text())["vocab_size"]
            rng = random.Random(7)
            rows = [[rng.randrange(vocab) for _ in range(SEQLEN + 1)] for _ in range(3)]
            at = tmp_path_factory.mktemp("grad")
            (at / "ids.json").write_text(json.dumps(rows))
            tegula("grad", "--model", directory, "--tokens", at / "ids.json", "--dtype", dtype,
                   "--out", at / "grad.safetensors")
            made[name, dtype] = np.array(rows), load_file(at / "grad.safetensors")
        return made[name, dtype]

    return run
