// Gradients of attention, from its output and log-sum-exp: the weights are computed again, row by
// row.   [FlashAttention-2, section 3.1.2]
//   p = exp(score − lse), delta = Σ_e do·o, dp = do·v
//   ds = p (dp − delta + dlse), dq = scale ds k, dk = scale dsᵀ q, dv = pᵀ do, dbias = ds
#include "tegula/ops/attention_call.h"

namespace tegula {

namespace {

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const AttentionOperands at(a.attrs(), 6);
    const AttentionMask mask(a, at);
    const AttentionScore<S> score(a, at);
    const int64_t batch = a.dim(0, 0), n_q = a.dim(0, 1), heads = a.dim(0, 2), n_k = a.dim(1, 1);
    const int64_t d = a.dim(0, 3), dv = a.dim(2, 3), n_hk = a.dim(1, 2);
    std::vector<S> dk(static_cast<size_t>(batch * n_k * n_hk * d), S(0.0));
    std::vector<S> dvs(static_cast<size_t>(batch * n_k * n_hk * dv), S(0.0));
    std::vector<S> dbias;
    if (at.bias >= 0) dbias.assign(static_cast<size_t>(a.out[3].numel()), S(0.0));
    std::vector<S> dq(static_cast<size_t>(d));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < n_q; ++i) {
          std::fill(dq.begin(), dq.end(), S(0.0));
          bool live = false;
          S delta = S(0.0);
          for (int64_t j = 0, distance; j < n_k; ++j) {
            if (!mask.visible(i, j, distance)) continue;
            if (!live) {
              for (int64_t e = 0; e < dv; ++e)
                delta = scalar::fma(a.load(5, b, i, h, e), a.load(3, b, i, h, e), delta);
              if (at.dlse >= 0) delta -= a.load(static_cast<size_t>(at.dlse), b, h, i);
              live = true;
            }
            const int64_t hk = h / score.g;
            S slope = S(1.0);
            const S p = scalar::exp(score(b, h, i, j, distance, &slope) - a.load(4, b, h, i));
            S dp = S(0.0);
            for (int64_t e = 0; e < dv; ++e)
              dp = scalar::fma(a.load(5, b, i, h, e), a.load(2, b, j, hk, e), dp);
            S kept = p;
            if (at.seed >= 0) {
              const S keep = score.keep(b, h, i, j);
              dp *= keep, kept *= keep;
            }
            for (int64_t e = 0; e < dv; ++e) {
              S& out = dvs[static_cast<size_t>(((b * n_k + j) * n_hk + hk) * dv + e)];
              out = scalar::fma(kept, a.load(5, b, i, h, e), out);
            }
            S ds = p * (dp - delta);
            if (at.bias >= 0) dbias[static_cast<size_t>(bias_index(a, b, h, i, j))] += ds;
            if (score.has_cap) ds *= slope;
            ds *= score.scale;
            for (int64_t e = 0; e < d; ++e) {
              auto& q = dq[static_cast<size_t>(e)];
              q = scalar::fma(ds, a.load(1, b, j, hk, e), q);
              S& out = dk[static_cast<size_t>(((b * n_k + j) * n_hk + hk) * d + e)];
              out = scalar::fma(ds, a.load(0, b, i, h, e), out);
            }
          }
          for (int64_t e = 0; e < d; ++e) a.store(0, dq[static_cast<size_t>(e)], b, i, h, e);
        }
    size_t n = 0;
    for_each_index(shape_of(a.out[1]), [&](const Index& i) { a.store_at(1, dk[n++], i); });
    n = 0;
    for_each_index(shape_of(a.out[2]), [&](const Index& i) { a.store_at(2, dvs[n++], i); });
    n = 0;
    if (at.bias >= 0)
      for_each_index(shape_of(a.out[3]), [&](const Index& i) { a.store_at(3, dbias[n++], i); });
  }
  template <class S>
  static int64_t bias_index(const RefArgs<S>& a, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t* s = a.out[3].shape;
    return (((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + (s[2] == 1 ? 0 : i)) *
               s[3] +
           j;
  }
};

int64_t flops(const OpCall& c) {
  const Attrs& a = *c.attrs;
  const int64_t rows = c.shape(0)[0].bound() * c.shape(0)[2].bound();
  const int64_t d = c.shape(0)[3].bound(), dv = c.shape(2)[3].bound();
  const bool cap = a.get_or<double>("softcap", 0) > 0;
  const int64_t pair = 2 * d + attention_score_flops(a) + (cap ? 2 + 1 : 0) + 2 +
                       (a.get_or<double>("dropout", 0) > 0 ? 2 : 0) + 4 * dv + 2 +
                       (a.flag("bias") ? 1 : 0) + 1 + 4 * d;
  return rows * (attention_visible_pairs(c) * pair +
                 attention_live_rows(c) * (2 * dv + (a.flag("dlse") ? 1 : 0)));
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const AttentionOperands at(*c.attrs, 6);
  const AttentionGraph g = attention_graph(b, c, in, 6);
  const DType wide = g.score.dtype();
  const Shape five{g.q.dim(0), g.q.dim(1), g.q.dim(2), g.q.dim(3), in[2].dim(3)};
  const Var o = cast(reshape(in[3], five), wide), dout = cast(reshape(in[5], five), wide);
  const Var lse = attention_rows(in[4], g);
  // A row without keys has lse = −inf: exp(score + inf) must not be formed.
  const Var safe_lse = select(gt(lse, -HUGE_VAL), lse, zeros_like(lse));
  const Var p = select(g.visible, exp(g.score - safe_lse), zeros_like(g.score));
  Var delta = permute(reduce_sum(o * dout, {-1}, true), {0, 2, 3, 1, 4});
  if (at.dlse >= 0) delta = delta - attention_rows(in[static_cast<size_t>(at.dlse)], g);
  Var dp = dot("b s h g e, b t h e -> b h g s t", dout, cast(g.v, wide));
  Var kept = p;
  if (g.keep.valid()) dp = dp * g.keep, kept = p * g.keep;
  const Var dv = dot("b h g s t, b s h g e -> b t h e", kept, dout);
  Var ds = p * (dp - delta);
  std::vector<Var> out(3);
  if (at.bias >= 0) {
    const Var bias = in[static_cast<size_t>(at.bias)];
    const Var full = reshape(ds, Shape{in[0].dim(0), in[0].dim(2), in[0].dim(1), in[1].dim(1)});
    out.push_back(cast(reduce_to(full, bias.shape()), bias.dtype()));
  }
  if (g.softcap > 0) ds = ds * (1.0 - g.capped * g.capped);
  ds = ds * g.scale;
  const Var dq = dot("b h g s t, b t h d -> b s h g d", ds, cast(g.k, wide));
  const Var dk = dot("b h g s t, b s h g d -> b t h d", ds, cast(g.q, wide));
  out[0] = cast(reshape(dq, in[0].shape()), in[0].dtype());
  out[1] = cast(dk, in[1].dtype());
  out[2] = cast(dv, in[2].dtype());
  return out;
}

}  // namespace

constinit const OpDef attention_bwd_op = {
    .name = "attention_bwd",
    .formula = "dq, dk, dv (, dbias) from q, k, v, o, lse, do",
    .source = "Dao 2023 (FlashAttention-2), section 3.1.2",
    .group = "attention",
    .dims_fn = [](const OpCall& c) { return attention_dims(c, true); },
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      auto st = attention_check(c, 6);
      if (!st.ok()) return std::move(st).error();
      std::vector<DType> t(3, c.in[0].dtype);
      if (c.attrs->flag("bias")) t.push_back(c.in[6].dtype);
      return t;
    },
    .attrs = kAttentionAttrs,
    .split = {{"d", Combine::kNever}, {"dv", Combine::kNever}},
    .flops = flops,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = [] { return attention_samples(true); },
    .localize = attention_localize,
    .precision = Precision::kLow,
};

}  // namespace tegula
