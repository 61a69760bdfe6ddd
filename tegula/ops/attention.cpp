// O = softmax(scale·Q Kᵀ + mask) V, and the row log-sum-exp.   [FlashAttention-2, section 3.1]
#include "tegula/ops/attention.h"

#include "tegula/ops/attention_call.h"

namespace tegula {

namespace {

// Per row: the scores of its visible keys, their softmax, the weighted sum of values.
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const AttentionOperands at(a.attrs(), 3);
    const AttentionMask mask(a, at);
    const AttentionScore<S> score(a, at);
    const int64_t batch = a.dim(0, 0), n_q = a.dim(0, 1), heads = a.dim(0, 2), n_k = a.dim(1, 1);
    const int64_t dv = a.dim(2, 3);
    std::vector<S> weight;
    std::vector<int64_t> key;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < n_q; ++i) {
          weight.clear(), key.clear();
          S top = S(-HUGE_VAL);
          for (int64_t j = 0, distance; j < n_k; ++j) {
            if (!mask.visible(i, j, distance)) continue;
            weight.push_back(score(b, h, i, j, distance, nullptr));
            key.push_back(j);
            top = scalar::max(top, weight.back());
          }
          if (key.empty()) {
            a.store(1, S(-HUGE_VAL), b, h, i);
            for (int64_t d = 0; d < dv; ++d) a.store(0, S(0.0), b, i, h, d);
            continue;
          }
          S sum = S(0.0);
          for (S& w : weight) sum += w = scalar::exp(w - top);
          a.store(1, scalar::log(sum) + top, b, h, i);
          const S inverse = S(1.0) / sum;
          if (at.seed >= 0)
            for (size_t n = 0; n < key.size(); ++n) weight[n] *= score.keep(b, h, i, key[n]);
          for (int64_t d = 0; d < dv; ++d) {
            S acc = S(0.0);
            for (size_t n = 0; n < key.size(); ++n)
              acc = scalar::fma(weight[n], a.load(2, b, key[n], h / score.g, d), acc);
            a.store(0, acc * inverse, b, i, h, d);
          }
        }
  }
};

int64_t flops(const OpCall& c) {
  const int64_t rows = c.shape(0)[0].bound() * c.shape(0)[2].bound();
  const int64_t d = c.shape(0)[3].bound(), dv = c.shape(2)[3].bound();
  const int64_t dropout = c.attrs->get_or<double>("dropout", 0) > 0 ? 1 : 0;
  const int64_t pair = 2 * d + attention_score_flops(*c.attrs) + 1 + 3 + dropout + 2 * dv;
  return rows * (attention_visible_pairs(c) * pair + attention_live_rows(c) * (3 + dv));
}

bool is_zeros(Var g) {
  const Builder& b = g.builder();
  const Node* n = const_cast<Builder&>(b).function().producer(g.id());
  if (n && n->op == &broadcast_op) n = const_cast<Builder&>(b).function().producer(n->inputs[0]);
  return n && n->op == &constant_op && n->attrs.has("value") && n->attrs.f("value") == 0;
}

Grads vjp(Builder& b, const VjpCall& c) {
  Attrs attrs = c.attrs();
  std::vector<Var> in = {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], c.grad[0]};
  for (size_t i = 3; i < c.in.size(); ++i) in.push_back(c.in[i]);
  if (!is_zeros(c.grad[1])) {
    attrs.set("dlse", true);
    in.push_back(c.grad[1]);
  }
  const auto g = b.emit_n(attention_bwd_op, attrs, in);
  Grads out(c.in.size());
  for (size_t i = 0; i < 3; ++i) out[i] = g[i];
  if (attrs.flag("bias")) out[3] = g[3];
  return out;
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const AttentionGraph g = attention_graph(b, c, in, 3);
  const DType wide = g.score.dtype();
  const Var hidden = fill(b, -HUGE_VAL, {wide, g.shape});
  const Var masked = select(g.visible, g.score, hidden);
  const Var top = reduce_max(masked, {-1}, true);
  const Var safe_top = select(gt(top, -HUGE_VAL), top, zeros_like(top));
  const Var e = select(g.visible, exp(g.score - safe_top), zeros_like(g.score));
  const Var sum = reduce_sum(e, {-1}, true);
  const Var any = gt(sum, 0.0);
  const Var safe_sum = select(any, sum, fill(b, 1, sum.type()));
  Var p = e / safe_sum;
  if (g.keep.valid()) p = p * g.keep;
  const Var o = dot("b h g s t, b t h e -> b s h g e", p, cast(g.v, wide));
  const Var lse = select(any, log(safe_sum) + safe_top, fill(b, -HUGE_VAL, sum.type()));
  return {cast(reshape(o, c.out[0].shape), in[0].dtype()), reshape(lse, c.out[1].shape)};
}

}  // namespace

Attention attention(Var q, Var k, Var v, const AttentionOptions& o, Loc loc) {
  Builder& b = q.builder();
  if (q.rank() != 4)
    return b.failed()
               ? Attention{b.fail(b.error()), b.fail(b.error())}
               : Attention{b.fail(invalid_argument(
                               cat("attention: q is ", q.type(), ", must be [b, sq, hq, d]"), loc)),
                           b.fail(internal_error("poison"))};
  const double scale = o.scale > 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.dim(3).bound()));
  Attrs attrs{{"scale", scale}};
  std::vector<Var> in = {q, k, v};
  if (o.is_causal) attrs.set("is_causal", true);
  if (o.window_left >= 0) attrs.set("window_left", o.window_left);
  if (o.window_right >= 0) attrs.set("window_right", o.window_right);
  if (o.softcap > 0) attrs.set("softcap", o.softcap);
  if (o.bias.valid()) attrs.set("bias", true), in.push_back(o.bias);
  if (o.alibi.valid()) attrs.set("alibi", true), in.push_back(o.alibi);
  if (o.cu_seqlens_q.valid()) {
    attrs.set("varlen", true);
    in.push_back(o.cu_seqlens_q);
    in.push_back(o.cu_seqlens_k.valid() ? o.cu_seqlens_k : o.cu_seqlens_q);
  }
  if (o.dropout > 0) {
    attrs.set("dropout", o.dropout), attrs.set("stream", o.stream);
    in.push_back(o.seed);
  }
  const auto out = b.emit_n(attention_op, std::move(attrs), in, {}, loc);
  return {out[0], out[1]};
}

constinit const OpDef attention_op = {
    .name = "attention",
    .formula = "o = softmax(scale q k^T + mask) v, lse = log sum exp of the scores",
    .source = "Dao 2023 (FlashAttention-2), section 3.1",
    .group = "attention",
    .dims_fn = [](const OpCall& c) { return attention_dims(c, false); },
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      auto st = attention_check(c, 3);
      if (!st.ok()) return std::move(st).error();
      return std::vector{c.in[0].dtype, accumulator(c.in[0].dtype)};
    },
    .attrs = kAttentionAttrs,
    .split = {{"sk", Combine::kLseWeighted, 0},
              {"sk", Combine::kLogSumExp, 1},
              {"dv", Combine::kEqual, 1},
              {"d", Combine::kNever}},
    .flops = flops,
    .vjp = vjp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = [] { return attention_samples(false); },
    .localize = attention_localize,
    .precision = Precision::kLow,
};

}  // namespace tegula
