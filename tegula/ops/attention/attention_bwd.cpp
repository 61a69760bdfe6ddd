// Gradients of attention from its results. With P = exp(S - lse) and D = rowsum(dO O) - dlse:
//   dV = P^T dO, dP = dO V^T, dS = P (dP - D), dQ = scale dS K, dK = scale dS^T Q, dbias = dS
// (dropout acts on P in dV and on dP; softcap multiplies dS by 1 - tanh^2 after dbias).
#include "tegula/base/saturating.h"
#include "tegula/ops/common/attention_call.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {
constexpr size_t kO = 3, kLse = 4, kDo = 5;

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const AttentionCall call(a.call, true);
    const AttentionMask mask = mask_of(a, call);
    const AttentionOperands& ops = call.operands;
    const int64_t seed = ops.seed >= 0 ? a.load_i(static_cast<size_t>(ops.seed)) : 0;
    auto zeros = [](int64_t n) { return std::vector<S>(static_cast<size_t>(n), S(0.0)); };
    std::vector<S> dbias = zeros(ops.bias >= 0 ? a.out[3].numel() : 0);
    for (int64_t b = 0; b < call.b; ++b)
      for (int64_t hk = 0; hk < call.hk; ++hk) {
        std::vector<S> dk = zeros(call.sk * call.d), dv = zeros(call.sk * call.dv);
        for (int64_t h = hk * call.g; h < (hk + 1) * call.g; ++h) {
          const Scorer<S> scorer(a, call, b, h);
          for (int64_t i = 0; i < call.sq; ++i) {
            const KeyRange r = mask.keys(b, i);
            std::vector<S> dq = zeros(call.d);
            if (r.lo < r.hi) row(a, call, scorer, r, seed, b, h, i, dq, dk, dv, dbias);
            for (int64_t e = 0; e < call.d; ++e) a.store(0, dq[e], b, i, h, e);
          }
        }
        for (int64_t j = 0; j < call.sk; ++j) {
          for (int64_t e = 0; e < call.d; ++e) a.store(1, dk[j * call.d + e], b, j, hk, e);
          for (int64_t e = 0; e < call.dv; ++e) a.store(2, dv[j * call.dv + e], b, j, hk, e);
        }
      }
    if (ops.bias < 0) return;
    size_t at = 0;
    for_each_index(shape_of(a.out[3]), [&](const Index& i) { a.store_at(3, dbias[at++], i); });
  }

  // One query: adds to the gradients of every key it sees.
  template <class S>
  static void row(RefArgs<S>& a, const AttentionCall& call, const Scorer<S>& scorer,
                  const KeyRange& r, int64_t seed, int64_t b, int64_t h, int64_t i,
                  std::vector<S>& dq, std::vector<S>& dk, std::vector<S>& dv,
                  std::vector<S>& dbias) {
    const AttentionOperands& ops = call.operands;
    const int64_t hk = h / call.g;
    S level = S(0.0);
    for (int64_t e = 0; e < call.dv; ++e)
      level = scalar::fma(a.load(kDo, b, i, h, e), a.load(kO, b, i, h, e), level);
    if (ops.dlse >= 0) level = level - a.load(static_cast<size_t>(ops.dlse), b, h, i);
    const S lse = finite(a.load(kLse, b, h, i));
    for (int64_t j = r.lo; j < r.hi; ++j) {
      S capped = S(0.0);
      const S p = scalar::exp(scorer(i, j, r, &capped) - lse);
      S dp = S(0.0), kept = p;
      const int64_t key = call.key_row(j);
      for (int64_t e = 0; e < call.dv; ++e)
        dp = scalar::fma(a.load(kDo, b, i, h, e), a.load(2, b, key, hk, e), dp);
      if (ops.seed >= 0) {
        const S factor = S(call.keep(seed, b, h, i, call.key_row(j)));
        dp = dp * factor, kept = p * factor;
      }
      S ds = p * (dp - level);
      if (ops.bias >= 0)
        dbias[static_cast<size_t>(a.row_major_at(a.out[3], scorer.bias_index(i, j)))] += ds;
      if (call.softcap > 0) ds = ds * (S(1.0) - capped * capped);
      ds = ds * S(call.scale);
      for (int64_t e = 0; e < call.d; ++e) {
        S& to_q = dq[e];
        S& to_k = dk[key * call.d + e];
        to_q = scalar::fma(ds, a.load(1, b, key, hk, e), to_q);
        to_k = scalar::fma(ds, a.load(0, b, i, h, e), to_k);
      }
      for (int64_t e = 0; e < call.dv; ++e) {
        S& to_v = dv[key * call.dv + e];
        to_v = scalar::fma(kept, a.load(kDo, b, i, h, e), to_v);
      }
    }
  }
};

int64_t flops(const OpCall& c) {
  const AttentionCall call(c, true);
  const AttentionOperands& ops = call.operands;
  const AttentionWork work = attention_work(call);
  const int64_t per_pair = score_flops(call) + 5 + 4 * call.d + 4 * call.dv +
                           (ops.seed >= 0 ? 2 : 0) + (ops.bias >= 0 ? 1 : 0) +
                           (call.softcap > 0 ? 3 : 0);
  const int64_t per_row = 2 * call.dv + (ops.dlse >= 0 ? 1 : 0);
  const Count per_head = Count(work.pairs) * per_pair + Count(work.rows) * per_row;
  return (Count(call.b) * call.hq * per_head).n;
}

Bytes bytes(const OpCall& c) {
  const AttentionCall call(c, true);
  const AttentionWork work = attention_work(call);
  Bytes b{attention_bytes_read(c, call, work), 0};
  const int64_t rows = call.b * call.hq * work.rows, sums = size_bytes(c.in[kLse].dtype);
  b.read +=
      rows * (2 * call.dv * size_bytes(c.in[kO].dtype) + (call.operands.dlse >= 0 ? 2 : 1) * sums);
  for (const Type& t : c.out) b.written += t.bytes();
  return b;
}

// Gradients of keys go back to where these lie.
std::vector<Var> with_sorted_keys(Builder& b, const AttentionCall& call, const OpCall& c,
                                  std::span<const Var> in) {
  auto out = b.emit_n(attention_bwd_op, sorted(call, *c.attrs), sorted(b, call, in));
  std::vector<int64_t> place(call.key_rows().size());
  for (size_t j = 0; j < place.size(); ++j) place[call.key_rows()[j]] = static_cast<int64_t>(j);
  for (const size_t k : {1, 2}) out[k] = gather(out[k], constant_ints(b, place, DType::kI32), 1);
  return out;
}

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const AttentionCall call(c, true);
  if (can_sort_keys(call)) return with_sorted_keys(b, call, c, in);
  const Dim batch = in[0].dim(0), sq = in[0].dim(1);
  const AttentionGraph t = attention_graph(b, call, *c.attrs, in);
  auto by_head = [&](Var lse) { return reshape(lse, {batch, call.hk, call.g, sq}); };
  auto grouped = [&](Var o) {
    return cast(reshape(o, {batch, sq, call.hk, call.g, call.dv}), t.q.dtype());
  };
  const Var d_o = grouped(in[kDo]);
  Var level = permute(reduce_sum(d_o * grouped(in[kO]), {-1}), {0, 2, 3, 1});
  if (call.operands.dlse >= 0) level = level - by_head(in[call.operands.dlse]);
  const Var p = t.weights(by_head(in[kLse]));
  const Var dp = t.dropped(dot("b i k g e, b j k e -> b k g i j", d_o, t.v), call.dropout);
  Var ds = p * (dp - unsqueeze(level, -1));
  Var dbias;
  if (call.operands.bias >= 0) {
    const Type bias = in[call.operands.bias].type();
    dbias = cast(reshape(reduce_to(ds, t.bias), bias.shape), bias.dtype);
  }
  if (t.capped.valid()) ds = ds * (1.0 - t.capped * t.capped);
  ds = ds * call.scale;
  const DType type = c.out[0].dtype;
  const Var dq = dot("b k g i j, b j k d -> b i k g d", ds, t.k);
  std::vector<Var> out = {
      cast(reshape(dq, {batch, sq, call.hq, call.d}), type),
      cast(dot("b k g i j, b i k g d -> b j k d", ds, t.q), type),
      cast(dot("b k g i j, b i k g e -> b j k e", t.dropped(p, call.dropout), d_o), type)};
  if (dbias.valid()) out.push_back(dbias);
  return out;
}

// attention's own samples with results and cotangents put in: S stays within lse's range.
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (Sample& s : attention_op.samples()) {
    if (!s.expect_error.empty() || s.in[0].type.dtype == DType::kF8E4M3) continue;
    if (s.attrs.flag("paged")) continue;  // differentiated through its decomposition
    if (AttentionOperands(s.attrs, false).before >= 0) s.in.resize(s.in.size() - 2);
    const Shape q = s.in[0].type.shape, v = s.in[2].type.shape;
    const DType t = s.in[0].type.dtype;
    const SampleInput o = {{t, {q[0], q[1], q[2], v[3]}}};
    const SampleInput lse = {{accumulator(t), {q[0], q[2], q[1]}}, 1, 3};
    std::vector<SampleInput> between = {o, lse, o};
    s.in.insert(s.in.begin() + 3, between.begin(), between.end());
    if (all.size() % 2 == 1) {  // every other one
      s.attrs.set("dlse", true);
      s.in.push_back({lse.type});
    }
    s.smooth = true;  // lse is an operand here, and finite
    all.push_back(std::move(s));
  }
  Sample wrong = all[0];
  wrong.name = "lse in bf16";
  wrong.in[kLse].type.dtype = DType::kBF16;
  wrong.expect_error = "operand 4 is bf16, expected f32";
  all.push_back(std::move(wrong));
  return all;
}
}  // namespace

constinit const OpDef attention_bwd_op = {
    .name = "attention_bwd",
    .formula = "dS = P (dO V^T - D), dQ = scale dS K, dK = scale dS^T Q, dV = P^T dO, dbias = dS",
    .source = "Dao 2023, section 3.1",
    .group = "attention",
    .dims_fn = [](const OpCall& c) { return attention_dims(c, true); },
    .types = "F, F, F, F, f32, F",
    .types_fn = [](const OpCall& c) { return attention_types(c, true); },
    .attrs = attention_attrs(true),
    .split = {{"d", Combine::kNever}, {"dv", Combine::kNever}, {"n", Combine::kNever}},
    .check = [](const OpCall& c) { return check_attention(c, true); },
    .flops = flops,
    .bytes = bytes,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
    .localize = localize_attention,
    .precision = Precision::kLow,
};

}  // namespace tegula
