"""The families of tegula/models/ once more, in PyTorch, from the papers: what ours are held against.

Each takes the checkpoint's tensors by their names and ids [batch, seqlen]; gives logits.
"""

import torch
import torch.nn.functional as F


def attend(q, k, v):
    """Causal softmax attention; q [b, s, h, d], k and v [b, s, hk, d]."""
    groups = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(t.repeat_interleave(groups, 2).transpose(1, 2) for t in (k, v))
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
    o = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    return o.transpose(1, 2).flatten(2)


def gpt2(w, m, ids):
    def linear(x, name):
        y = x @ w[name + ".weight"]
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w.get(name + ".bias"),
                            m["layer_norm_epsilon"])

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]]
    for i in range(m["n_layer"]):
        at = f"transformer.h.{i}."
        q, k, v = (t.unflatten(2, (m["n_head"], -1))
                   for t in linear(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, -1))
        x = x + linear(attend(q, k, v), at + "attn.c_proj")
        h = F.gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh")
        x = x + linear(h, at + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def rope(x, theta):
    """Pairs (i, i + d/2) turned by position · theta^(-2i/d)."""
    half = x.shape[3] // 2
    rate = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def llama(w, m, ids, ffn=None):
    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def norm(x, name):
        return F.rms_norm(x, x.shape[-1:], w[name + ".weight"], m["rms_norm_eps"])

    def swiglu(x, at):
        h = F.silu(linear(x, at + "mlp.gate_proj")) * linear(x, at + "mlp.up_proj")
        return linear(h, at + "mlp.down_proj")

    x = w["model.embed_tokens.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        a = norm(x, at + "input_layernorm")
        q, k, v = (linear(a, f"{at}self_attn.{n}_proj").unflatten(2, (-1, m["head_dim"]))
                   for n in "qkv")
        o = attend(rope(q, m["rope_theta"]), rope(k, m["rope_theta"]), v)
        x = x + linear(o, at + "self_attn.o_proj")
        x = x + (ffn or swiglu)(norm(x, at + "post_attention_layernorm"), at)
    return norm(x, "model.norm") @ w["model.embed_tokens.weight"].T


def moe(w, m, ids):
    def ffn(x, layer):
        at = layer + "block_sparse_moe."
        p = F.linear(x, w[at + "gate.weight"]).softmax(-1)
        top, chosen = p.topk(m["num_experts_per_tok"])
        y = torch.zeros_like(x)
        for e in range(m["num_local_experts"]):
            w1, w2, w3 = (w[f"{at}experts.{e}.w{i}.weight"] for i in (1, 2, 3))
            share = (top * (chosen == e)).sum(-1) / top.sum(-1)
            y = y + share[..., None] * F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)
        return y

    return llama(w, m, ids, ffn)


def lstm(w, m, ids):
    x = w["embed.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        w_x, w_h, bias = (w[f"layers.{i}.{n}"] for n in ("w_x", "w_h", "bias"))
        h = c = torch.zeros_like(x[:, 0])
        ys = []
        for t in range(ids.shape[1]):
            i_, f, g, o = (x[:, t] @ w_x + h @ w_h + bias).chunk(4, -1)
            c = f.sigmoid() * c + i_.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            ys.append(h)
        x = torch.stack(ys, 1)
    return x @ w["embed.weight"].T


def mlp(w, m, ids):
    e = w["embed.weight"][ids]
    past = F.pad(e, (0, 0, 7, 0))
    x = sum(past[:, 7 - b : 7 - b + ids.shape[1]] @ w[f"window.{b}.weight"] for b in range(8))
    x = F.gelu(x + w["window.bias"], approximate="tanh")
    for i in range(1, m["num_hidden_layers"]):
        x = F.gelu(x @ w[f"layers.{i}.weight"] + w[f"layers.{i}.bias"], approximate="tanh") + x
    return x @ w["out.weight"] @ w["embed.weight"].T


PEERS = {"gpt2": gpt2, "llama": llama, "mixtral": moe, "tegula-lstm": lstm, "tegula-mlp": mlp}
