// o = softmax(mask(scale Q K^T)) V and lse, with grouped heads, windows, softcap, bias, ALiBi,
// packed sequences, pages and dropout: see attention.h for the exact meaning.
#include "tegula/ops/attention.h"

#include <cmath>

#include "tegula/base/half.h"
#include "tegula/base/saturating.h"
#include "tegula/ops/common/attention_call.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {

// Row by row: all scores of a query, their maximum, then weights and the weighted sum of values,
// divided by the sum of weights at the end.
struct Ref {
  // A naive kernel of e4m3 rounds weights to it, the largest possible to 256.
  template <class S>
  static S rounded(S w) {
    if constexpr (std::is_same_v<S, float>) return static_cast<float>(f8e4m3(w * 256)) / 256;
    return w;
  }
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const AttentionCall call(a.call, false);
    const AttentionMask mask = mask_of(a, call);
    const bool drops = call.operands.seed >= 0;
    const int64_t seed = drops ? a.load_i(static_cast<size_t>(call.operands.seed)) : 0;
    std::vector<S> score(static_cast<size_t>(call.sk)), o(static_cast<size_t>(call.dv));
    for (int64_t b = 0; b < call.b; ++b)
      for (int64_t h = 0; h < call.hq; ++h) {
        const Scorer<S> scorer(a, call, b, h);
        for (int64_t i = 0; i < call.sq; ++i) {
          const KeyRange r = mask.keys(b, i);
          std::fill(o.begin(), o.end(), S(0.0));
          S lse = S(-kInfinity);
          if (r.lo < r.hi) {
            S top = S(-kInfinity), sum = S(0.0);
            for (int64_t j = r.lo; j < r.hi; ++j) {
              S& s = score[static_cast<size_t>(j)];
              s = scorer(i, j, r);
              top = scalar::max(top, s);
            }
            top = finite(top);
            for (int64_t j = r.lo; j < r.hi; ++j) {
              S w = scalar::exp(score[static_cast<size_t>(j)] - top);
              sum += w;
              if (call.is_e4m3) w = rounded(w);
              if (drops) w = w * S(call.keep(seed, b, h, i, call.key_row(j)));
              const KeyPlace at = key_place(a, call, r.sequence, j);
              for (size_t e = 0; e < o.size(); ++e)
                o[e] = scalar::fma(w, a.load(2, at.entry, at.row, h / call.g, e), o[e]);
            }
            lse = top + scalar::log(sum);
            S share = S(1.0) / (sum == S(0.0) ? S(1.0) : sum);
            if (call.operands.descale >= 0) share = share * scorer.descale(2);
            for (S& x : o) x = x * share;
          }
          if (call.operands.before >= 0) join(a, call, {b, i, h}, r.lo < r.hi, o, lse);
          for (size_t e = 0; e < o.size(); ++e) a.store(0, o[e], b, i, h, e);
          a.store(1, lse, b, h, i);
        }
      }
  }

  // With what there was before: of keys that are seen, o and lse.
  template <class S>
  static void join(RefArgs<S>& a, const AttentionCall& call, const std::array<int64_t, 3>& at,
                   bool sees, std::vector<S>& o, S& lse) {
    const auto k = static_cast<size_t>(call.operands.before);
    const auto [b, i, h] = at;
    const S lse_before = a.load(k + 1, b, h, i);
    // A row that has seen nothing is not read.
    const auto before = [&](size_t e) {
      return lse_before == S(-kInfinity) ? S(0.0) : a.load(k, b, i, h, e);
    };
    if (!sees) {
      lse = lse_before;
      for (size_t e = 0; e < o.size(); ++e) o[e] = before(e);
      return;
    }
    const S top = finite(scalar::max(lse_before, lse));
    S old = scalar::exp(lse_before - top), now = scalar::exp(lse - top);
    const S sum = old + now;
    lse = top + scalar::log(sum);
    const S share = S(1.0) / (sum == S(0.0) ? S(1.0) : sum);
    old = old * share, now = now * share;
    for (size_t e = 0; e < o.size(); ++e) o[e] = scalar::fma(o[e], now, before(e) * old);
  }
};

int64_t flops(const OpCall& c) {
  const AttentionCall call(c, false);
  const AttentionWork work = attention_work(call);
  const int64_t per_pair = score_flops(call) + 4 + (call.operands.seed >= 0 ? 1 : 0) + 2 * call.dv;
  const bool descales = call.operands.descale >= 0;
  const int64_t joins = call.operands.before >= 0 ? 11 + 3 * call.dv : 0;
  const int64_t per_row = 3 + call.dv + (descales ? 1 : 0) + joins;
  const Count per_head =
      Count(work.pairs) * per_pair + Count(work.rows) * per_row + (descales ? 2 : 0);
  return (Count(call.b) * call.hq * per_head).n;
}

Bytes bytes(const OpCall& c) {
  const AttentionCall call(c, false);
  return {attention_bytes_read(c, call, attention_work(call)), c.out[0].bytes() + c.out[1].bytes()};
}

Attrs without_part(const Attrs& attrs) {
  Attrs a = attrs;
  a.erase("part");
  return a;
}

// A number for each [b, h, s], beside o [b, s, h, d].
Var beside_o(Var x, Var o) { return broadcast(unsqueeze(permute(x, {0, 2, 1}), 3), o.shape()); }

// o = w o_before + ..., w = e^(lse_before - lse): of what was before,
//   do_before = w do,  dlse_before = w (rowsum(do o_before) - rowsum(do o) + dlse)
std::pair<Var, Var> grads_of_before(const VjpCall& c, size_t before) {
  const Var o_before = c.in[before], lse_before = c.in[before + 1], lse = c.out[1];
  const DType wide = o_before.dtype();
  const Var d_o = cast(c.grad[0], wide);
  const Var w = exp_less_lse(unsqueeze(lse_before, -1), lse);  // [b, h, s, 1]
  const Var weight = reshape(w, lse.shape());
  const Var level = reduce_sum(d_o * (o_before - cast(c.out[0], wide)), {-1});  // [b, s, h]
  Var d_lse = permute(level, {0, 2, 1});
  if (!is_zero(c.grad[1])) d_lse = d_lse + c.grad[1];
  return {d_o * beside_o(weight, d_o), d_lse * weight};
}

Grads vjp(Builder& b, const VjpCall& c) {
  const DType t = c.in[0].dtype();
  // By decompose.
  if (t == DType::kF8E4M3 || c.attrs().flag("paged") || c.in[1].dtype() != t) return {};
  const Var o = cast(c.out[0], t), d_o = cast(c.grad[0], t);
  std::vector<Var> in = {c.in[0], c.in[1], c.in[2], o, c.out[1], d_o};
  const AttentionOperands operands(c.attrs(), false);
  const auto n = static_cast<std::ptrdiff_t>(operands.before >= 0 ? operands.before : c.in.size());
  Attrs attrs = without_part(c.attrs());
  in.insert(in.end(), c.in.begin() + 3, c.in.begin() + n);
  if (!is_zero(c.grad[1])) in.push_back(c.grad[1]), attrs.set("dlse", true);
  // With the whole's o and lse these are what the whole gives to this part's operands.
  auto g = b.emit_n(attention_bwd_op, std::move(attrs), in);
  g.resize(c.attrs().flag("bias") ? 4 : 3);
  if (operands.before < 0) return g;  // the other operands are constants
  g.resize(c.in.size());
  const auto [d_before, d_lse] = grads_of_before(c, static_cast<size_t>(operands.before));
  g[g.size() - 2] = d_before, g[g.size() - 1] = d_lse;
  return g;
}

// Pages that share a block of keys with others, copied together: a page a sequence.
std::vector<Var> with_whole_pages(Builder& b, const AttentionCall& call, const OpCall& c,
                                  std::span<const Var> in) {
  const auto t = static_cast<size_t>(call.operands.table);
  std::vector<Var> whole(in.begin(), in.end());
  const Var last = extent(in[1], 0, in[t].dtype()) - 1.0;
  const Var table = max(min(in[t], last), 0.0);
  const Dim n = table.dim(0);
  for (size_t k : {1, 2})
    whole[k] = reshape(gather(in[k], table, 0), {n, call.sk, call.hk, in[k].dim(3)});
  whole[t] = iota(b, {n, 1}, 0, in[t].dtype());
  return b.emit_n(attention_op, *c.attrs, whole);
}

// o and lse joined with those of the keys before.
std::vector<Var> joined(Var o, Var lse, Var o_before, Var lse_before) {
  const Var top = max(max(lse_before, lse), -3e38);  // finite: of rows that see nothing, too
  const Var old = exp(lse_before - top), now = exp(lse - top);
  const Var sum = old + now;  // at least 1, or 0 where nothing is seen
  const Var share = reciprocal(max(sum, 1.0));
  // A row that has seen nothing is not read.
  const Var is_there = gt(beside_o(lse_before, o), -kInfinity);
  const Var before = select(is_there, o_before, zeros_like(o_before));
  return {o * beside_o(now * share, o) + before * beside_o(old * share, o), top + log(sum)};
}

// The part by itself, then joined.
std::vector<Var> join_after(Builder& b, const AttentionCall& call, const OpCall& c,
                            std::span<const Var> in) {
  const auto k = static_cast<size_t>(call.operands.before);
  Attrs attrs = *c.attrs;
  attrs.set("part", "first");
  const auto own = b.emit_n(attention_op, std::move(attrs), {in.begin(), in.begin() + k});
  auto out = joined(own[0], own[1], in[k], in[k + 1]);
  out[0] = cast(out[0], c.out[0].dtype);
  return out;
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const AttentionCall call(c, false);
  if (call.operands.before >= 0) return join_after(b, call, c, in);
  const bool is_paged = call.operands.table >= 0;
  if (is_paged && call.has_split_blocks()) return with_whole_pages(b, call, c, in);
  if (can_sort_keys(call))
    return b.emit_n(attention_op, sorted(call, *c.attrs), sorted(b, call, in));
  const Dim batch = in[0].dim(0), sq = in[0].dim(1);
  const AttentionGraph t = attention_graph(b, call, *c.attrs, in);
  const Var lse = logsumexp(t.scores);
  const Var w = t.dropped(t.weights(lse), call.dropout);
  const Var o =
      reshape(dot("b k g i j, b j k e -> b i k g e", w, t.v), {batch, sq, call.hq, call.dv});
  const bool is_packed = is_paged && call.operands.cu_q >= 0;  // lse: [sq, hk, g, 1]
  const Var heads_first = is_packed ? permute(reshape(lse, {sq, call.hq}), {1, 0}) : lse;
  return {cast(o, c.out[0].dtype), reshape(heads_first, {batch, call.hq, sq})};
}
}  // namespace

namespace {
// In terms of the bottom-right alignment: keys that no query sees are left out, which makes both
// alignments one; where there are less keys than queries, a window to the right moves the mask.
Attention top_left(Var q, Var k, Var v, AttentionOptions o, Loc loc) {
  Builder& b = q.builder();
  const auto reject = [&](std::string why) -> Attention {
    const Var failed =
        b.fail(invalid_argument(cat("attention, aligned at the top left: ", why), loc));
    return {failed, failed};
  };
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4)
    return reject(
        cat("q, k and v are ", q.type(), ", ", k.type(), " and ", v.type(), ", not of 4 dims"));
  const Dim sq = q.dim(1), sk = k.dim(1);
  if (o.window_left >= 0 || o.window_right >= 0 || o.cu_seqlens_q.valid())
    return reject("no windows and no packed sequences");
  if (!(sq == sk) && !(sq.is_const() && sk.is_const()))
    return reject(cat("the sizes ", sq, " and ", sk, " must be equal or constant"));
  o.is_causal_top_left = false;
  const int64_t more = sk.bound() - sq.bound();
  if (more < 0) {
    if (o.alibi.valid()) return reject("no alibi with less keys than queries");
    o.is_causal = false, o.window_right = -more;
    return attention(q, k, v, o, loc);
  }
  o.is_causal = true;
  if (more > 0) {
    k = slice(k, 1, 0, sq, 1, loc), v = slice(v, 1, 0, sq, 1, loc);
    if (o.bias.valid()) o.bias = slice(o.bias, -1, 0, sq, 1, loc);
  }
  return attention(q, k, v, o, loc);
}
}  // namespace

Attention attention(Var q, Var k, Var v, const AttentionOptions& o, Loc loc) {
  if (o.is_causal_top_left) return top_left(q, k, v, o, loc);
  std::vector<Var> in = {q, k, v};
  Attrs a;
  const double d = q.rank() == 4 ? static_cast<double>(q.dim(3).bound()) : 1;  // else an error
  a.set("scale", o.scale != 0 ? o.scale : 1 / std::sqrt(d));
  if (o.is_causal) a.set("is_causal", true);
  if (o.window_left != -1) a.set("window_left", o.window_left);
  if (o.window_right != -1) a.set("window_right", o.window_right);
  if (o.softcap != 0) a.set("softcap", o.softcap);
  if (o.bias.valid()) a.set("bias", true), in.push_back(o.bias);
  if (o.alibi.valid()) a.set("alibi", true), in.push_back(o.alibi);
  if (o.cu_seqlens_q.valid()) {
    a.set("varlen", true);
    in.push_back(o.cu_seqlens_q);
    if (!o.block_table.valid())
      in.push_back(o.cu_seqlens_k.valid() ? o.cu_seqlens_k : o.cu_seqlens_q);
  }
  if (o.block_table.valid()) {
    a.set("paged", true);
    in.insert(in.end(), {o.seqlens_k, o.block_table});
  }
  if (!o.q_runs.empty()) a.set("q_runs", o.q_runs);
  if (!o.k_runs.empty()) a.set("k_runs", o.k_runs);
  const bool goes_on = o.o_before.valid();
  if (goes_on || o.is_part)
    a.set("part", std::string(!goes_on ? "first" : o.is_part ? "middle" : "last"));
  if (o.dropout != 0) {
    a.set("dropout", o.dropout), a.set("stream", o.stream);
    if (o.dropout > 0) in.push_back(o.seed);
  }
  if (o.descale_q.valid()) {
    a.set("descale", true);
    in.insert(in.end(), {o.descale_q, o.descale_k, o.descale_v});
  }
  if (goes_on) in.insert(in.end(), {o.o_before, o.lse_before});
  const auto out = builder_of({&q, &k, &v}).emit_n(attention_op, std::move(a), in, {}, loc);
  return {out[0], out[1]};
}

constinit const OpDef attention_op = {
    .name = "attention",
    .formula = "o = softmax(mask(scale Q K^T)) V, lse = log of the sum of exp(mask(scale Q K^T))",
    .source = "Vaswani et al. 2017, section 3.2; Dao 2023, section 3.1",
    .group = "attention",
    .dims_fn = [](const OpCall& c) { return attention_dims(c, false); },
    .types = "F, F, F",
    .types_fn = [](const OpCall& c) { return attention_types(c, false); },
    .attrs = attention_attrs(false),
    .split = {{"sk", Combine::kLseWeighted, 0},
              {"sk", Combine::kLogSumExp, 1},
              {"dv", Combine::kEqual, 1},
              {"d", Combine::kNever},
              {"n", Combine::kNever}},
    .check = [](const OpCall& c) { return check_attention(c, false); },
    .flops = flops,
    .bytes = bytes,
    .vjp = vjp,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = attention_samples,
    .localize = localize_attention,
    .precision = Precision::kLow,
};

}  // namespace tegula
