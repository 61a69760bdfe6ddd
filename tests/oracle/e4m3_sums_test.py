"""The model of the tensor cores' sums of e4m3 that bench/cuda's grids hold kernels against, term by term."""

import math
import pathlib
import sys
from fractions import Fraction

import pytest
import torch

sys.path.append(str(pathlib.Path(__file__).parents[2] / "bench" / "cuda"))
from attention_reference import sum_as_tensor_cores  # noqa: E402


def power(x):
    return math.frexp(x)[1] - 1 if x != 0 else -60


def cut(x, unit):
    return math.trunc(x / unit) * unit


def one_sum(q, k, kept_bits, sum_bits):
    total = Fraction(0)
    for first in range(0, len(q), 32):
        pairs = list(zip(q, k))[first:first + 32]
        top = max([power(float(total)), *(power(a) + power(b) for a, b in pairs)])
        unit = Fraction(2) ** (top - kept_bits)
        total = cut(total, unit) + sum(cut(Fraction(a) * Fraction(b), unit) for a, b in pairs)
        total = cut(total, Fraction(2) ** (power(float(total)) - sum_bits))
    return float(total)


@pytest.mark.parametrize("d, spread, kept_bits", [(16, 1, 13), (48, 100, 13), (256, 30, 13), (256, 400, 9), (64, 1, 16)])
def test_sums(d, spread, kept_bits):
    g = torch.Generator().manual_seed(d + spread)
    q, k = ((torch.randn(2, n, d, generator=g) * spread).clamp(-448, 448).to(torch.float8_e4m3fn).float() for n in (5, 7))
    q[0, 0], k[0, 0, ::2] = 0, 0
    got = sum_as_tensor_cores(q, k, kept_bits, 13)
    for h in range(2):
        for i in range(5):
            for j in range(7):
                assert got[h, i, j].item() == one_sum(q[h, i].tolist(), k[h, j].tolist(), kept_bits, 13)
