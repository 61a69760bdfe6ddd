"""The families of tegula/models/ once more, in PyTorch, from the papers: what ours are held against.

Each takes the checkpoint's tensors by their names and ids [batch, seqlen]; gives logits.
"""

import torch
import torch.nn.functional as F


def attend(q, k, v, scale=None, window=None, cap=None):
    """Causal softmax attention; q [b, s, h, d], k and v [b, s, hk, d]. A query sees `window` keys."""
    groups = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(t.repeat_interleave(groups, 2).transpose(1, 2) for t in (k, v))
    scores = q @ k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
    if window:
        hidden |= torch.ones_like(hidden).tril(-window)
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


def linear(w, x, name):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def gated(w, x, at, activation):
    h = activation(linear(w, x, at + "mlp.gate_proj")) * linear(w, x, at + "mlp.up_proj")
    return linear(w, h, at + "mlp.down_proj")


def heads(w, x, at, m):
    """q, k and v [b, s, h, d]; what has a bias is seen by its weights."""
    return (linear(w, x, f"{at}self_attn.{n}_proj").unflatten(2, (-1, m["head_dim"]))
            for n in "qkv")


def head(w):
    return w.get("lm_head.weight", w["model.embed_tokens.weight"])


def llama(w, m, ids, ffn=None, window=lambda layer: None):
    def norm(x, name):
        return F.rms_norm(x, x.shape[-1:], w[name + ".weight"], m["rms_norm_eps"])

    x = w["model.embed_tokens.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k, v = heads(w, norm(x, at + "input_layernorm"), at, m)
        o = attend(rope(q, m["rope_theta"]), rope(k, m["rope_theta"]), v, window=window(i))
        x = x + linear(w, o, at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        x = x + (ffn(h, at) if ffn else gated(w, h, at, F.silu))
    return norm(x, "model.norm") @ head(w).T


def mistral(w, m, ids):
    return llama(w, m, ids, window=lambda layer: m["sliding_window"])


def qwen2(w, m, ids):
    return llama(w, m, ids, window=lambda layer: m["sliding_window"]
                 if m["layer_types"][layer] == "sliding_attention" else None)


def gemma2(w, m, ids):
    def norm(x, name):
        return F.rms_norm(x, x.shape[-1:], 1 + w[name + ".weight"], m["rms_norm_eps"])

    x = w["model.embed_tokens.weight"][ids] * m["hidden_size"] ** 0.5
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k, v = heads(w, norm(x, at + "input_layernorm"), at, m)
        o = attend(rope(q, m["rope_theta"]), rope(k, m["rope_theta"]), v,
                   scale=m["query_pre_attn_scalar"] ** -0.5, cap=m["attn_logit_softcapping"],
                   window=m["sliding_window"] if m["layer_types"][i] == "sliding_attention" else None)
        x = x + norm(linear(w, o, at + "self_attn.o_proj"), at + "post_attention_layernorm")
        h = gated(w, norm(x, at + "pre_feedforward_layernorm"), at,
                  lambda t: F.gelu(t, approximate="tanh"))
        x = x + norm(h, at + "post_feedforward_layernorm")
    logits = norm(x, "model.norm") @ head(w).T
    return m["final_logit_softcapping"] * torch.tanh(logits / m["final_logit_softcapping"])


def layer_norm(w, x, name, eps):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)


def rms_norm(w, x, name, eps, offset=0):
    return F.rms_norm(x, x.shape[-1:], offset + w[name + ".weight"], eps)


def window_of(m, layer):
    if "layer_types" not in m:
        return m["sliding_window"]
    return m["sliding_window"] if m["layer_types"][layer] == "sliding_attention" else None


def qwen3(w, m, ids, ffn=None):
    eps, theta = m["rms_norm_eps"], m["rope_theta"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k, v = heads(w, rms_norm(w, x, at + "input_layernorm", eps), at, m)
        q, k = rms_norm(w, q, at + "self_attn.q_norm", eps), rms_norm(w, k, at + "self_attn.k_norm", eps)
        o = attend(rope(q, theta), rope(k, theta), v, window=window_of(m, i))
        x = x + linear(w, o, at + "self_attn.o_proj")
        h = rms_norm(w, x, at + "post_attention_layernorm", eps)
        x = x + (ffn(h, at) if ffn else gated(w, h, at, F.silu))
    return rms_norm(w, x, "model.norm", eps) @ head(w).T


def qwen_experts(w, m, x, at):
    """Of a layer's experts the likeliest, and one for every token, behind a gate of its own."""
    top, chosen = F.linear(x, w[at + "gate.weight"]).softmax(-1).topk(m["num_experts_per_tok"])
    y = torch.zeros_like(x)
    for e in range(m["num_experts"]):
        gate, up, down = (w[f"{at}experts.{e}.{n}_proj.weight"] for n in ("gate", "up", "down"))
        share = (top * (chosen == e)).sum(-1) / (top.sum(-1) if m["norm_topk_prob"] else 1)
        y = y + share[..., None] * F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    if at + "shared_expert_gate.weight" in w:
        h = F.silu(linear(w, x, at + "shared_expert.gate_proj")) * linear(w, x, at + "shared_expert.up_proj")
        y = y + linear(w, x, at + "shared_expert_gate").sigmoid() * linear(w, h, at + "shared_expert.down_proj")
    return y


def qwen3_moe(w, m, ids):
    return qwen3(w, m, ids, lambda h, at: qwen_experts(w, m, h, at + "mlp."))


def qwen2_moe(w, m, ids):
    return llama(w, m, ids, lambda h, at: qwen_experts(w, m, h, at + "mlp."),
                 lambda layer: window_of(m, layer))


def gemma3(w, m, ids):
    def norm(x, name):
        return rms_norm(w, x, name, m["rms_norm_eps"], 1)

    x = w["model.embed_tokens.weight"][ids] * m["hidden_size"] ** 0.5
    for i in range(m["num_hidden_layers"]):
        at, window = f"model.layers.{i}.", window_of(m, i)
        q, k, v = heads(w, norm(x, at + "input_layernorm"), at, m)
        theta = m["rope_local_base_freq"] if window else m["rope_theta"]
        q, k = (rope(norm(t, f"{at}self_attn.{n}_norm"), theta) for t, n in ((q, "q"), (k, "k")))
        o = attend(q, k, v, scale=m["query_pre_attn_scalar"] ** -0.5, window=window)
        x = x + norm(linear(w, o, at + "self_attn.o_proj"), at + "post_attention_layernorm")
        h = gated(w, norm(x, at + "pre_feedforward_layernorm"), at,
                  lambda t: F.gelu(t, approximate="tanh"))
        x = x + norm(h, at + "post_feedforward_layernorm")
    logits = norm(x, "model.norm") @ head(w).T
    return m["final_logit_softcapping"] * torch.tanh(logits / m["final_logit_softcapping"])


def smollm3(w, m, ids):
    eps = m["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k, v = heads(w, rms_norm(w, x, at + "input_layernorm", eps), at, m)
        if (i + 1) % m["no_rope_layer_interval"]:
            q, k = rope(q, m["rope_theta"]), rope(k, m["rope_theta"])
        x = x + linear(w, attend(q, k, v, window=window_of(m, i)), at + "self_attn.o_proj")
        x = x + gated(w, rms_norm(w, x, at + "post_attention_layernorm", eps), at, F.silu)
    return rms_norm(w, x, "model.norm", eps) @ head(w).T


def partly(x, share, theta):
    n = int(x.shape[3] * share)
    return torch.cat([rope(x[..., :n], theta), x[..., n:]], -1)


def phi3(w, m, ids):
    eps, share, theta = m["rms_norm_eps"], m["partial_rotary_factor"], m["rope_theta"]
    x = w["model.embed_tokens.weight"][ids]
    a, b, d = m["num_attention_heads"], m["num_key_value_heads"], m["head_dim"]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        qkv = linear(w, rms_norm(w, x, at + "input_layernorm", eps), at + "self_attn.qkv_proj")
        q, k, v = qkv.unflatten(2, (-1, d)).split((a, b, b), 2)
        o = attend(partly(q, share, theta), partly(k, share, theta), v, window=m["sliding_window"])
        x = x + linear(w, o, at + "self_attn.o_proj")
        h = linear(w, rms_norm(w, x, at + "post_attention_layernorm", eps), at + "mlp.gate_up_proj")
        gate, up = h.chunk(2, -1)
        x = x + linear(w, F.silu(gate) * up, at + "mlp.down_proj")
    return rms_norm(w, x, "model.norm", eps) @ head(w).T


def olmo2(w, m, ids):
    def norm(x, name):
        return rms_norm(w, x, name, m["rms_norm_eps"])

    x = w["model.embed_tokens.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k = (norm(linear(w, x, f"{at}self_attn.{n}_proj"), f"{at}self_attn.{n}_norm") for n in "qk")
        v = linear(w, x, at + "self_attn.v_proj")
        q, k, v = (t.unflatten(2, (-1, m["head_dim"])) for t in (q, k, v))
        o = attend(rope(q, m["rope_theta"]), rope(k, m["rope_theta"]), v)
        x = x + norm(linear(w, o, at + "self_attn.o_proj"), at + "post_attention_layernorm")
        x = x + norm(gated(w, x, at, F.silu), at + "post_feedforward_layernorm")
    return norm(x, "model.norm") @ head(w).T


def starcoder2(w, m, ids):
    eps, theta = m["norm_epsilon"], m["rope_theta"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k, v = heads(w, layer_norm(w, x, at + "input_layernorm", eps), at, m)
        o = attend(rope(q, theta), rope(k, theta), v, window=m["sliding_window"])
        x = x + linear(w, o, at + "self_attn.o_proj")
        h = linear(w, layer_norm(w, x, at + "post_attention_layernorm", eps), at + "mlp.c_fc")
        x = x + linear(w, F.gelu(h, approximate="tanh"), at + "mlp.c_proj")
    return layer_norm(w, x, "model.norm", eps) @ head(w).T


def gpt_neox(w, m, ids):
    eps, share, theta = m["layer_norm_eps"], m["rotary_pct"], m["rotary_emb_base"]
    x = w["gpt_neox.embed_in.weight"][ids]
    for i in range(m["num_hidden_layers"]):
        at = f"gpt_neox.layers.{i}."
        qkv = linear(w, layer_norm(w, x, at + "input_layernorm", eps), at + "attention.query_key_value")
        q, k, v = qkv.unflatten(2, (m["num_attention_heads"], -1)).chunk(3, -1)
        o = linear(w, attend(partly(q, share, theta), partly(k, share, theta), v), at + "attention.dense")
        between = x if m["use_parallel_residual"] else x + o
        h = linear(w, layer_norm(w, between, at + "post_attention_layernorm", eps),
                   at + "mlp.dense_h_to_4h")
        x = x + o + linear(w, F.gelu(h), at + "mlp.dense_4h_to_h")
    table = w.get("embed_out.weight", w["gpt_neox.embed_in.weight"])
    return layer_norm(w, x, "gpt_neox.final_layer_norm", eps) @ table.T


def sinusoid(s, d, like):
    """[Vaswani et al. 2017, section 3.5]"""
    at = torch.arange(s, dtype=torch.float64)[:, None]
    angle = at / 10000 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1).to(like.dtype)


def decoder(w, m, ids):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w.get(name + ".bias"),
                            m["norm_eps"])

    def attention(x, at):
        q, k, v = heads(w, x, at, m)
        if m["positions"] == "rope":
            q, k = rope(q, m["rope_theta"]), rope(k, m["rope_theta"])
        return linear(w, attend(q, k, v), at + "self_attn.o_proj")

    def ffn(x, at):
        if m["hidden_act"] == "swiglu":
            return gated(w, x, at, F.silu)
        h = linear(w, x, at + "mlp.up_proj")
        h = F.relu(h) if m["hidden_act"] == "relu" else F.gelu(h, approximate="tanh")
        return linear(w, h, at + "mlp.down_proj")

    x = w["model.embed_tokens.weight"][ids]
    s, d = ids.shape[1], m["hidden_size"]
    if m["positions"] == "learned":
        x = x + w["model.embed_positions.weight"][:s]
    if m["positions"] == "sinusoid":
        x = x * d ** 0.5 + sinusoid(s, d, x)
    for i in range(m["num_hidden_layers"]):
        at = f"model.layers.{i}."
        if m["norm"] == "post":
            x = norm(x + attention(x, at), at + "post_attention_layernorm")
            x = norm(x + ffn(x, at), at + "post_feedforward_layernorm")
        else:
            x = x + attention(norm(x, at + "input_layernorm"), at)
            x = x + ffn(norm(x, at + "post_attention_layernorm"), at)
    if m["norm"] == "pre":
        x = norm(x, "model.norm")
    return x @ head(w).T


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


PEERS = {"gpt2": gpt2, "llama": llama, "mixtral": moe, "qwen2": qwen2, "mistral": mistral,
         "gemma2": gemma2, "qwen3": qwen3, "qwen3_moe": qwen3_moe, "qwen2_moe": qwen2_moe, "gemma3_text": gemma3, "smollm3": smollm3, "phi3": phi3,
         "olmo2": olmo2, "starcoder2": starcoder2, "gpt_neox": gpt_neox, "tegula-decoder": decoder, "tegula-lstm": lstm, "tegula-mlp": mlp}
