"""Attention as tegula/ops/attention.h has it, in float64 or as a naive kernel of low precision computes it.

Differentiable (float64), so that gradients can be held against autograd's. Cases are drawn from a seed.
"""

import random
import re

import torch

FUNCTIONS = {name: getattr(torch, name) for name in ("exp", "log", "sqrt", "tanh", "sin", "cos", "abs")}


def philox_uniform(seed, stream, index):
    """tegula/base/philox.h for a tensor of int64 indices."""
    low = 0xFFFFFFFF
    def split(product_of, factor):  # high and low word of a product of 32-bit words
        p = product_of * factor  # wraps, but its bits are right
        return (p >> 32) & low, p & low
    block = index >> 2
    c = [block & low, (block >> 32) & low, torch.full_like(index, stream & low),
         torch.full_like(index, (stream >> 32) & low)]
    k = [seed & low, (seed >> 32) & low]
    for _ in range(10):
        h0, l0 = split(c[0], 0xD2511F53)
        h1, l1 = split(c[2], 0xCD9E8D57)
        c = [h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    words = torch.stack(c, -1)
    bits = torch.gather(words, -1, (index & 3)[..., None])[..., 0]
    return (bits >> 8).double() * 2.0 ** -24


def expression(text, **names):
    """The value of an expression of the kernels: C, as far as C and Python agree."""
    return eval(re.sub(r"(\d)f\b", r"\1", text), {"__builtins__": {}}, {**FUNCTIONS, **names})


def power_of(x):
    """The exponent of the power of two at or below |x|; -60, less than any that counts, for 0; 0 for NaN."""
    return ((x.nan_to_num(1.0).abs().view(torch.int32) >> 23) - 127).clamp(min=-60)


def power_of_two(n):
    return ((n + 127) << 23).view(torch.float32)


MOST_TERMS = 1 << 27  # that are held at once


def sum_as_tensor_cores(q, k, kept_bits, sum_bits):
    """q[n, sq, d] kᵀ[n, sk, d] of e4m3's values, see Case.e4m3_products."""
    assert kept_bits <= 16
    power_q, power_k = (power_of(x).to(torch.int8) for x in (q, k))
    total = torch.zeros(q.shape[0], q.shape[1], k.shape[1], device=q.device)
    for first in range(0, q.shape[2], 32):
        part = slice(first, first + 32)
        top = (power_q[:, :, None, part] + power_k[:, None, :, part]).amax(-1)
        unit = power_of_two(torch.maximum(top.int(), power_of(total)) - kept_bits)
        terms = q[:, :, None, part] * k[:, None, :, part]
        terms = terms.div_(unit[..., None]).trunc_()
        # A term is below 2^(2 + kept_bits), the sum so far below 2^(1 + kept_bits): whole numbers that add up to
        # less than 2^24 in any order, so f32 adds them exactly.
        total = ((total / unit).trunc_() + terms.sum(-1)) * unit
        unit = power_of_two(power_of(total) - sum_bits)
        total = (total / unit).trunc_() * unit
    return total


class Case:
    """Shape, features and tensors of one call. Features: see FIELDS; tensors are [b, s, h, d]."""

    far, far_used = None, 0

    def __init__(self, b, sq, sk, hq, hk, d, causal=0, kind=0, spread=1.0, seed=0, layout="bshd",
                 device="cuda", poison=False, **features):
        self.b, self.sq, self.sk, self.hq, self.hk, self.d = b, sq, sk, hq, hk, d
        self.causal, self.kind, self.layout, self.device = causal, kind, layout, device
        self.dtype = (torch.bfloat16, torch.float16, torch.float32)[kind]
        self.half_ulp = 2.0 ** (-9, -12, -25)[kind]
        self.scale = d ** -0.5
        self.window = features.pop("window", None)        # (left, right)
        self.packed = features.pop("packed", None)        # (offsets of q, offsets of k)
        self.documents = features.pop("documents", None)  # how many numbers
        self.softcap = features.pop("softcap", 0.0)
        self.dropout = features.pop("dropout", 0.0)
        self.score_fn = features.pop("score_fn", "")
        self.mask_fn = features.pop("mask_fn", "")
        alibi, sinks = features.pop("alibi", False), features.pop("sinks", False)
        f8 = features.pop("f8", None)  # whether q, k and v have one factor each, for all heads
        bias = features.pop("bias", None)  # (dtype 1 or 2, which of b, h, sq are broadcast)
        assert not features, features
        g = torch.Generator().manual_seed(seed)
        rng = random.Random(seed)
        def draw(*shape):
            return torch.randn(*shape, generator=g).to(device)
        self.q, self.k, self.v, self.do = (self.lay_out(draw(b, s, h, d) * spread)
                                           for s, h in ((sq, hq), (sk, hk), (sk, hk), (sq, hq)))
        if poison and sk > 0:  # a key that some queries, at best, see
            j = rng.choice([0, sk - 1, rng.randrange(sk)])
            if rng.random() < 0.5:
                self.k[:, j] = float("nan")
            self.v[:, j] = float("nan")
        self.factors = (None, None, None)  # of q, k, v in e4m3
        if f8 is not None:
            tensors, self.factors = zip(*[self.quantised(x, bool(one)) for x, one in
                                          zip((self.q, self.k, self.v), f8)])
            self.q, self.k, self.v = tensors
        self.slopes = draw(hq).abs().float() * 0.3 if alibi else None
        self.sinks = draw(hq).float() if sinks else None
        self.bias_type, self.bias = 0, None
        if bias:
            self.bias_type, (one_b, one_h, one_q) = bias
            self.bias = draw(1 if one_b else b, 1 if one_h else hq, 1 if one_q else sq, sk)
            self.bias = self.bias.to(self.dtype if self.bias_type == 2 else torch.float32)
        self.seed, self.stream = rng.randrange(1 << 62), rng.randrange(1 << 40)
        if self.documents:
            def numbers(n):
                return torch.randint(0, self.documents, (b, n), generator=g).sort(1)[0].int().to(device)
            self.documents_q = numbers(sq)
            self.documents_k = self.documents_q if sq == sk else numbers(sk)

    def quantised(self, x, is_one):
        """x as e4m3, and its factors [b or 1, hk or 1], which take the largest value to 448."""
        parts = x.float().reshape(self.b, x.shape[1], self.hk, -1)
        top = torch.nan_to_num(parts, 0.0).abs().amax((0, 1, 2, 3) if is_one else (1, 3), keepdim=True)
        factor = torch.where(top > 0, top / 448, torch.ones_like(top))
        return self.lay_out((parts / factor).reshape(x.shape), torch.float8_e4m3fn), factor[:, 0, :, 0].contiguous()

    def values(self, t, which):
        """What q, k or v stands for; [b, h, s, d]."""
        t, factor = t.transpose(1, 2), self.factors[which]
        if factor is None:
            return t
        factor = factor.to(t.dtype).expand(self.b, self.hk).repeat_interleave(t.shape[1] // self.hk, 1)
        return t * factor[:, :, None, None]

    # Of e4m3, below a power of two: of products beside the largest of them, and of a sum. attention_grid.py
    # measures both.
    kept_bits, sum_bits = 13, 13

    def e4m3_products(self):
        """q kᵀ as the tensor cores sum products of e4m3: 32 and the sum so far at a time, each cut to kept_bits
        below the largest power of two among them, and what comes out to sum_bits below its own."""
        group = self.hq // self.hk
        q, k = (t.float().transpose(1, 2) for t in (self.q, self.k))
        q, k = q.flatten(0, 1), k.repeat_interleave(group, 1).flatten(0, 1)
        at_once = max(1, MOST_TERMS // max(1, 32 * self.sq * self.sk))  # heads
        total = torch.cat([sum_as_tensor_cores(*of, self.kept_bits, self.sum_bits)
                           for of in zip(q.split(at_once), k.split(at_once))]).unflatten(0, (self.b, self.hq))
        for f in self.factors[:2]:
            f = f.expand(self.b, self.hk).repeat_interleave(group, 1)
            total = total * f[:, :, None, None]
        return total

    def lay_out(self, x, dtype=None):
        """The same values with other strides, which the copy engine still takes."""
        b, s, h, d = x.shape
        dtype = dtype or self.dtype
        step = 16 // dtype.itemsize
        wide = -(-d // step) * step
        if self.layout == "bhsd":
            y = torch.zeros(b, h, s, wide, dtype=dtype, device=x.device).transpose(1, 2)
        elif self.layout == "wide":  # rows and heads with room between them
            y = torch.zeros(b, s, 2 * h, wide + step, dtype=dtype, device=x.device)[:, :, :h]
        elif self.layout == "far":  # batch entries more than 2^30 elements apart
            apart = (1 << 30) + 1024
            if Case.far is None or Case.far.dtype != self.dtype:
                Case.far = torch.zeros(2 * apart + (1 << 24), dtype=self.dtype, device=x.device)
            y = Case.far.as_strided((b, s, h, wide), (apart, h * wide, wide, 1), self.far_used)
            self.far_used += s * h * wide
        else:
            y = torch.zeros(b, s, h, wide, dtype=dtype, device=x.device)
        self.behind = y[..., d:]  # what a kernel must not write
        y = y[..., :d]
        y.copy_(x)
        return y

    def positions(self):
        """For each query: the key it stands at; its place and that of each key in their sequence; sizes;
        and who sees whom but for the user's mask: [b or 1, sq, sk]."""
        i = torch.arange(self.sq, device=self.device)[:, None]
        j = torch.arange(self.sk, device=self.device)[None, :]
        at, sizes = i + self.sk - self.sq, (self.sq, self.sk)
        sees = torch.ones(self.sq, self.sk, dtype=torch.bool, device=self.device)
        if self.packed:
            cu_q, cu_k = (torch.tensor(c, device=self.device) for c in self.packed)
            n = len(cu_q) - 1
            part_q = torch.searchsorted(cu_q, i[:, 0].contiguous(), right=True) - 1
            part_k = torch.searchsorted(cu_k, j[0].contiguous(), right=True) - 1
            inside_q, inside_k = (part_q >= 0) & (part_q < n), (part_k >= 0) & (part_k < n)
            pq, pk = part_q.clamp(0, max(n - 1, 0)), part_k.clamp(0, max(n - 1, 0))
            if n == 0:
                sees &= False
            else:
                sees &= (part_q[:, None] == part_k[None, :]) & inside_q[:, None] & inside_k[None, :]
                at = (cu_k[pq + 1] - cu_q[pq + 1])[:, None] + i
                sizes = ((cu_q[pq + 1] - cu_q[pq])[:, None], (cu_k[pk + 1] - cu_k[pk])[None, :])
                i_in, j_in = i - cu_q[pq][:, None], j - cu_k[pk][None, :]
        if not self.packed or n == 0:
            i_in, j_in = i, j
        if self.causal:
            sees &= j <= at
        if self.window:
            left, right = self.window
            if left >= 0:
                sees &= j >= at - left
            if right >= 0 and not self.causal:
                sees &= j <= at + right
        sees = sees[None]
        if self.documents:
            sees = sees & (self.documents_q[:, :, None] == self.documents_k[:, None, :])
        return at, j, i_in, j_in, sizes, sees

    def scores(self, raw, bias=None):
        """Scores of scale · q·k (differentiable by it), -inf where not seen, and what is seen."""
        compute = raw.dtype
        at, j, i_in, j_in, (n_q, n_k), sees = self.positions()
        sees = sees[:, None].expand(self.b, self.hq, self.sq, self.sk)
        names = {"b": torch.arange(self.b, device=self.device)[:, None, None, None],
                 "h": torch.arange(self.hq, device=self.device)[None, :, None, None],
                 "i": i_in, "j": j_in, "sq": n_q, "sk": n_k}
        if self.mask_fn:
            sees = sees & expression(self.mask_fn, **names)
        s = raw
        if self.softcap:
            s = torch.tanh(s / self.softcap) * self.softcap
        if self.score_fn:
            s = expression(self.score_fn, score=s, **names)
        bias = self.bias if bias is None else bias
        if bias is not None:
            s = s + bias.to(compute)
        if self.slopes is not None:
            s = s - self.slopes.to(compute)[None, :, None, None] * (at - j).abs().to(compute)
        s = torch.where(sees, s, torch.full_like(s, float("-inf")))
        return s, sees

    def dropped(self, w):
        """Weights after dropout."""
        if not self.dropout:
            return w
        heads = torch.arange(self.b * self.hq, device=self.device).view(self.b, self.hq, 1, 1)
        index = ((heads * self.sq + torch.arange(self.sq, device=self.device)[:, None]) * self.sk
                 + torch.arange(self.sk, device=self.device))
        u = philox_uniform(self.seed, self.stream, index)
        bound = torch.tensor(self.dropout, dtype=torch.float32).item()
        return w * (u >= bound).to(w.dtype) / (1 - self.dropout)

    def reference(self, dtype, q=None, k=None, v=None, bias=None, sinks=None):
        """o [b, sq, hq, d] and lse [b, hq, sq]; torch.float64, or this case's dtype for f32 scores and
        weights rounded to that. What a query does not see does not reach it."""
        low = dtype != torch.float64
        compute = torch.float32 if low else torch.float64
        q, k, v = (self.values(t.to(compute), n) for n, t in enumerate(
            (self.q if q is None else q, self.k if k is None else k, self.v if v is None else v)))
        k, v = (t.repeat_interleave(self.hq // self.hk, 1) for t in (k, v))
        raw = q @ k.transpose(2, 3)
        if low and self.factors[0] is not None:
            raw = self.e4m3_products()
        raw = raw * torch.tensor(self.scale, dtype=torch.float32).to(compute).item()
        s, sees = self.scores(raw, bias)
        sums = s
        sinks = self.sinks if sinks is None else sinks
        if sinks is not None:
            more = sinks.to(compute)[None, :, None, None].expand(self.b, self.hq, self.sq, 1)
            sums = torch.cat([s, more], -1)
        if sums.shape[-1] == 0:
            lse = torch.full(sums.shape[:-1], float("-inf"), dtype=compute, device=self.device)
        else:
            lse = torch.logsumexp(sums, -1)
        from_lse = torch.where(lse == float("-inf"), torch.zeros_like(lse), lse)[..., None]
        w = torch.exp(s - from_lse)
        if low and self.factors[0] is not None and self.sk > 0:  # to e4m3, the largest of a row to 256
            top = s.nan_to_num(float("-inf")).amax(-1, keepdim=True).clamp(min=-1e30)
            w = (torch.exp(s - top) * 256).to(torch.float8_e4m3fn).float() / 256 * torch.exp(top - from_lse)
        w = self.dropped(w)
        if low and self.factors[0] is None:
            w = w.to(self.dtype).float()
        bad = ~torch.isfinite(v)
        o = w @ torch.where(bad, torch.zeros_like(v), v)
        if bad.any():
            o = o + torch.where(sees[..., None] & bad[:, :, None], v[:, :, None],
                                torch.zeros_like(v[:, :, None])).sum(3)
        return o.transpose(1, 2), lse


LENGTHS = (1, 2, 3, 15, 17, 64, 65, 100, 113, 127, 128, 129, 192, 203, 239, 256, 333)



def offsets(rng, size, n):
    """n + 1 rising offsets up to `size`, with empty sequences and rows left over."""
    cut = sorted(rng.randrange(size + 1) for _ in range(n + 1))
    if rng.random() < 0.6:
        cut[0] = 0
    if rng.random() < 0.6:
        cut[-1] = size
    if n > 2 and rng.random() < 0.5:
        cut[2] = cut[1]
    return cut


def draw_features(rng, names, b, sq, sk):
    f = {}
    for name in names:
        if name == "window":
            f[name] = rng.choice([(0, 0), (-1, 0), (3, -1), (17, 5), (64, 64), (rng.randrange(sk + 5),
                                  rng.randrange(-1, sk + 5)), (10 * sk, 10 * sk)])
        elif name == "packed":
            n = rng.choice([0, 1, 1, 2, 3, 5, 9])
            cu_q = offsets(rng, sq, n)
            f[name] = (cu_q, cu_q if sq == sk and rng.random() < 0.5 else offsets(rng, sk, n))
        elif name == "f8":
            f[name] = [rng.random() < 0.3 for _ in range(3)]
        elif name == "documents":
            f[name] = rng.choice([1, 2, 3, 7])
        elif name == "softcap":
            f[name] = rng.choice([0.5, 2.0, 15.0, 50.0])
        elif name == "dropout":
            f[name] = rng.choice([0.1, 0.25, 0.5, 0.9])
        elif name in ("alibi", "sinks"):
            f[name] = True
        elif name in ("bias32", "bias16"):
            f["bias"] = (1 if name == "bias32" else 2, [rng.random() < 0.5 for _ in range(3)])
    return f


def draw_case(seed, causal, kind, padded, names, score_fn="", mask_fn="", device="cuda", operands=None):
    """A random case of a variant; the same for the same arguments. operands: a seed of their own."""
    rng = random.Random(seed)
    hk, group = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3, 4, 7, 8, 16])
    # Head sizes that are no multiple of 8 have kernels of their own: there it is the size itself.
    lowest = {64: 8, 96: 72, 128: 104, 192: 136, 256: 200}.get(padded, padded)
    step = 8
    if "f8" in names:
        lowest, step = {64: 16, 128: 80, 192: 144, 256: 208}[padded], 16
    d = padded if rng.random() < 0.5 else rng.randrange(lowest, padded + 1, step)
    b = 1 if "packed" in names else rng.choice([1, 1, 2, 3])
    sq = rng.choice(LENGTHS)
    sk = sq if rng.random() < 0.4 else rng.choice(LENGTHS)
    f = draw_features(rng, names, b, sq, sk)
    can_hide = causal or mask_fn or {"window", "packed", "documents"} & set(names)
    # A score function of what no query may see is its own affair.
    return Case(b, sq, sk, hk * group, hk, d, causal, kind, rng.choice([1.0, 1.0, 1.0, 6.0]),
                seed if operands is None else operands,
                rng.choice(["bshd", "bhsd", "wide"]), device,
                poison=bool(can_hide) and rng.random() < 0.3, score_fn=score_fn, mask_fn=mask_fn, **f)
