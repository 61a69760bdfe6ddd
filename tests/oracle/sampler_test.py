"""What sampling draws from is what transformers' processors of logits leave, in their order."""

import json
import os
import random
import subprocess

import numpy as np
import torch
from transformers.generation import logits_process as lp

N = 400


def request(draw):
    """Random logits, all different, and some of the settings."""
    size = draw.choice([5, 40, 300])
    logits = np.array([draw.gauss(0, draw.choice([1, 4])) for _ in range(size)], np.float32)
    r = {"logits": [float(x) for x in logits], "ids": [draw.randrange(size) for _ in range(draw.randrange(1, 9))]}
    r["n_prompt"] = len(r["ids"]) // 2
    for key, value in (("temperature", draw.uniform(.3, 2)), ("top_k", draw.randrange(1, size + 3)), ("top_p", draw.uniform(.05, 1)),
                       ("min_p", draw.uniform(0, .5)), ("typical_p", draw.uniform(.05, .99)), ("repetition_penalty", draw.uniform(.5, 2)),
                       ("logit_bias", {str(i): draw.uniform(-3, 3) for i in draw.sample(range(size), 3)})):
        if draw.random() < .5:
            r[key] = value
    return r


def theirs(r):
    """Probabilities by id, by the order of GenerationMixin._get_logits_processor."""
    steps = []
    if "logit_bias" in r:
        steps.append(lp.SequenceBiasLogitsProcessor({(int(i),): b for i, b in r["logit_bias"].items()}))
    for key, make in (("repetition_penalty", lp.RepetitionPenaltyLogitsProcessor), ("temperature", lp.TemperatureLogitsWarper),
                      ("top_k", lp.TopKLogitsWarper), ("top_p", lp.TopPLogitsWarper), ("min_p", lp.MinPLogitsWarper),
                      ("typical_p", lp.TypicalLogitsWarper)):
        if key in r:
            steps.append(make(r[key]))
    logits = torch.tensor([r["logits"]], dtype=torch.float32)
    for step in steps:
        logits = step(torch.tensor([r["ids"]]), logits)
    return logits.double().softmax(-1)[0].numpy()


def test_distributions_are_equal():
    draw = random.Random(5)
    requests = [request(draw) for _ in range(N)]
    given = "".join(json.dumps(r) + "\n" for r in requests)
    done = subprocess.run([os.environ["TEGULA_RUN_SAMPLER"]], input=given, capture_output=True, text=True, check=True)
    n_cut = 0
    for r, line in zip(requests, done.stdout.splitlines(), strict=True):
        ours = np.zeros(len(r["logits"]))
        for token, p in json.loads(line):
            ours[token] = p
        expected = theirs(r)
        n_cut += (expected == 0).any()
        # A token at the very edge of a filter may fall on either side of it: their sums are f32.
        edge = (ours > 0) != (expected > 0)
        assert edge.sum() <= 1 and (np.maximum(ours, expected)[edge] < .5).all(), r
        if not edge.any():
            np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=1e-9)
        else:
            assert any(key in r for key in ("top_p", "min_p", "typical_p")), r
    assert n_cut > N / 3
