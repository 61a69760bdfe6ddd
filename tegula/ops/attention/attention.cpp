// o = softmax(mask(scale Q K^T)) V and lse, with grouped heads, windows, softcap, bias, ALiBi,
// packed sequences, pages and dropout: see attention.h for the exact meaning.
#include "tegula/ops/attention.h"

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
          S lse = S(-HUGE_VAL);
          if (r.lo < r.hi) {
            S top = S(-HUGE_VAL), sum = S(0.0);
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
              if (drops) w = w * S(call.keep(seed, b, h, i, j));
              const KeyPlace at = key_place(a, call, r.sequence, j);
              for (size_t e = 0; e < o.size(); ++e)
                o[e] = scalar::fma(w, a.load(2, at.entry, at.row, h / call.g, e), o[e]);
            }
            lse = top + scalar::log(sum);
            S share = S(1.0) / (sum == S(0.0) ? S(1.0) : sum);
            if (call.operands.descale >= 0) share = share * scorer.descale(2);
            for (S& x : o) x = x * share;
          }
          for (size_t e = 0; e < o.size(); ++e) a.store(0, o[e], b, i, h, e);
          a.store(1, lse, b, h, i);
        }
      }
  }
};

int64_t flops(const OpCall& c) {
  const AttentionCall call(c, false);
  const AttentionWork work = attention_work(call);
  const int64_t per_pair = score_flops(call) + 4 + (call.operands.seed >= 0 ? 1 : 0) + 2 * call.dv;
  const bool descales = call.operands.descale >= 0;
  const int64_t per_row = 3 + call.dv + (descales ? 1 : 0);
  const Count per_head =
      Count(work.pairs) * per_pair + Count(work.rows) * per_row + (descales ? 2 : 0);
  return (Count(call.b) * call.hq * per_head).n;
}

Bytes bytes(const OpCall& c) {
  const AttentionCall call(c, false);
  return {attention_bytes_read(c, call, attention_work(call)), c.out[0].bytes() + c.out[1].bytes()};
}

Grads vjp(Builder& b, const VjpCall& c) {
  // By decompose.
  if (c.in[0].dtype() == DType::kF8E4M3 || c.attrs().flag("paged")) return {};
  std::vector<Var> in = {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], c.grad[0]};
  Attrs attrs = c.attrs();
  in.insert(in.end(), c.in.begin() + 3, c.in.end());
  if (!is_zero(c.grad[1])) in.push_back(c.grad[1]), attrs.set("dlse", true);
  auto g = b.emit_n(attention_bwd_op, std::move(attrs), in);
  g.resize(c.attrs().flag("bias") ? 4 : 3);
  return g;  // the other operands are constants
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

std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  const AttentionCall call(c, false);
  const bool is_paged = call.operands.table >= 0;
  if (is_paged && call.has_split_blocks()) return with_whole_pages(b, call, c, in);
  const Dim batch = in[0].dim(0), sq = in[0].dim(1);
  const AttentionGraph t = attention_graph(b, call, *c.attrs, in);
  const Var lse = logsumexp(t.scores);
  const Var w = t.dropped(t.weights(lse), call.dropout);
  const Var o =
      reshape(dot("b k g i j, b j k e -> b i k g e", w, t.v), {batch, sq, call.hq, call.dv});
  const bool is_packed = is_paged && call.operands.cu_q >= 0;  // lse: [sq, hk, g, 1]
  const Var heads_first = is_packed ? permute(reshape(lse, {sq, call.hq}), {1, 0}) : lse;
  return {cast(o, call.is_e4m3 ? DType::kBF16 : in[0].dtype()),
          reshape(heads_first, {batch, call.hq, sq})};
}

// One row of samples: sizes, then attributes, then the operands they announce.
struct Sizes {
  int64_t b = 1, sq = 3, sk = 4, hq = 2, hk = 1, d = 3, dv = 2;
};
Sample sample(std::string name, const Sizes& s, Attrs attrs, std::vector<SampleInput> more = {},
              DType t = DType::kF32) {
  Sample out{std::move(name),
             {{{t, {s.b, s.sq, s.hq, s.d}}, -2, 2},
              {{t, {s.b, s.sk, s.hk, s.d}}, -2, 2},
              {{t, {s.b, s.sk, s.hk, s.dv}}}},
             std::move(attrs)};
  if (!out.attrs.has("scale")) out.attrs.set("scale", 0.7);
  for (SampleInput& in : more) out.in.push_back(std::move(in));
  if (out.attrs.flag("varlen")) out.cost_bound = kPackingDecides;
  if (out.attrs.flag("paged")) out.cost_bound = kPagingDecides;
  return out;
}
// s.b is what q has, and keys lie in n_pages pages of s.sk.
Sample paged(std::string name, const Sizes& s, int64_t n_pages, std::vector<double> lengths,
             std::vector<double> table, Attrs attrs = {}, std::vector<SampleInput> more = {},
             DType t = DType::kF32) {
  attrs.set("paged", true);
  const auto n = static_cast<int64_t>(lengths.size()), cells = static_cast<int64_t>(table.size());
  more.push_back({{DType::kI32, {n}}, 0, 0, std::move(lengths)});
  more.push_back({{DType::kI32, {n, cells / n}}, 0, 0, std::move(table)});
  Sample out = sample(std::move(name), s, std::move(attrs), std::move(more), t);
  out.in[1].type.shape[0] = out.in[2].type.shape[0] = n_pages;
  return out;
}
SampleInput offsets(std::vector<double> v) {
  const auto n = static_cast<int64_t>(v.size());
  return {{DType::kI32, {n}}, 0, 0, std::move(v)};
}

// Of a row of 8: its first and last quarters (zigzag), every other one (stripes).
std::vector<Sample> samples_in_runs() {
  using Ints = std::vector<int64_t>;
  const Ints zigzag = {0, 1, 2, 6, 1, 2}, odd = {1, 2, 4}, even = {0, 2, 4};
  const auto runs = [](const Ints& q, const Ints& k, Attrs more = {}) {
    more.set("is_causal", true), more.set("q_runs", q), more.set("k_runs", k);
    return more;
  };
  const Sizes four{1, 4, 4, 2, 1, 2, 2};
  const SampleInput slopes = {{DType::kF32, {2}}, 0.1, 0.5, {}, false};
  std::vector<Sample> s = {
      sample("zigzag", four, runs(zigzag, zigzag)),
      sample("stripes, a window", four, runs(odd, even, {{"window_left", int64_t{3}}})),
      sample("queries in a stripe, rows that see nothing", four, runs(even, {1})),
      sample("keys in a stripe", four, runs({3}, odd)),
      sample("queries in runs, ALiBi", four, runs(zigzag, {2}, {{"alibi", true}}), {slopes}),
      sample("keys in runs, ALiBi", four, runs(odd, zigzag, {{"alibi", true}}), {slopes}),
      sample("runs misfit", four, runs(odd, {0, 1, 3})),
      sample("keys that go back", four, runs(odd, {4, 1, 2, 0, 1, 2})),
      sample("half a run", four, runs({0, 1}, even))};
  s[2].smooth = false;  // lse is -inf there
  s[6].expect_error = "k_runs has 3 positions for 4";
  s[7].expect_error = "positions of keys must ascend";
  s[8].expect_error = "q_runs has 2 numbers";
  return s;
}

std::vector<Sample> samples_in_pages() {
  const Attrs causal{{"is_causal", true}};
  const Attrs packed{{"is_causal", true}, {"varlen", true}};
  const Sizes two{2, 2, 2, 4, 2, 3, 2}, row{1, 5, 2, 2, 1, 2, 2};
  const SampleInput slopes = {{DType::kF32, {4}}, 0.1, 0.5, {}, false};
  const SampleInput bias = {{DType::kF32, {1, 1, 2, 4}}, -2, 2};
  std::vector<Sample> s = {
      paged("pages of a batch", two, 6, {5, 3}, {4, 0, 2, 1, 5, 1}, causal),
      paged("pages of one query each", {3, 1, 2, 4, 1, 3, 3}, 5, {1, 4, 2}, {3, 0, 1, 2, 4, 4},
            causal),
      paged("a padded batch with lengths", {2, 3, 5, 2, 1, 2, 2}, 2, {3, 5}, {0, 1}, causal),
      paged("packed queries, a page that both read", row, 4, {4, 5}, {1, 3, 0, 1, 2, 3}, packed,
            {offsets({0, 2, 5})}),
      paged("packed queries, an empty sequence, rows left over", row, 4, {4, 2, 0, 1},
            {0, 1, 2, 0, 3, 0, 3, 0}, packed, {offsets({0, 2, 2, 3, 4})}),
      paged("pages of a block", {2, 3, 64, 2, 1, 2, 2}, 4, {70, 3}, {2, 0, 1, 3}, causal),
      paged("pages, a window, a cap, ALiBi", {1, 4, 3, 4, 2, 2, 2}, 3, {5, 4}, {2, 0, 1, 2},
            {{"window_left", int64_t{1}},
             {"window_right", int64_t{1}},
             {"softcap", 3.0},
             {"alibi", true},
             {"varlen", true}},
            {slopes, offsets({0, 1, 4})}),
      paged("lengths and pages out of range", two, 3, {9, -1}, {-1, 1, 0, 7}),
      paged("pages of bf16", two, 6, {5, 3}, {4, 0, 2, 1, 5, 1}, causal, {}, DType::kBF16),
      paged("pages and a bias", two, 2, {3, 4}, {0, 1, 1, 0}, {{"bias", true}}, {bias}),
      paged("pages, offsets misfit", row, 4, {4, 5}, {1, 3, 0, 1}, packed, {offsets({0, 5})})};
  // lse is -inf in some rows.
  for (Sample& x : s)
    x.smooth = !x.name.ends_with("rows left over") && !x.name.ends_with("out of range");
  s[s.size() - 2].expect_error = "no bias, dropout or descale";
  s.back().expect_error = "2 offsets for 2 sequences";
  return s;
}

std::vector<Sample> samples() {
  const DType f32 = DType::kF32;
  const Attrs causal{{"is_causal", true}};
  auto bias = [&](Shape s) { return SampleInput{{f32, s}, -2, 2}; };
  const SampleInput seed = {{DType::kI64, {}}, 0, 1000};
  auto factors = [&](int64_t b, int64_t hk) {
    return SampleInput{{f32, {b, hk}}, 0.5, 2, {}, false};
  };
  const SampleInput slopes = {{f32, {4}}, 0.1, 0.5, {}, false};
  Attrs all{{"is_causal", true}, {"window_left", int64_t{3}},
            {"softcap", 4.0},    {"scale", 0.5},
            {"bias", true},      {"alibi", true},
            {"dropout", 0.25},   {"stream", int64_t{7}}};
  const Sizes grouped{2, 3, 4, 4, 2, 3, 2};
  std::vector<Sample> s = {
      sample("grouped heads", grouped, {}),
      sample("one key head", {1, 2, 3, 3, 1, 4, 4}, {{"scale", 0.25}}),
      sample("causal", {1, 4, 4, 2, 2, 2, 2}, causal),
      sample("causal after a cache", {1, 2, 5, 2, 1, 2, 2}, causal),
      sample("causal, rows that see nothing", {1, 5, 3, 2, 1, 2, 2}, causal),
      sample("one query", {2, 1, 6, 4, 1, 3, 3}, causal),
      sample("window", {1, 6, 6, 2, 1, 2, 2},
             {{"window_left", int64_t{1}}, {"window_right", int64_t{2}}}),
      sample("causal window", {1, 5, 7, 2, 1, 2, 2},
             {{"is_causal", true}, {"window_left", int64_t{2}}}),
      sample("keys that nobody sees", {1, 2, 7, 2, 1, 2, 2},
             {{"is_causal", true}, {"window_left", int64_t{1}}}),
      sample("softcap", grouped, {{"softcap", 1.5}}),
      sample("bias", grouped, {{"bias", true}}, {bias({2, 4, 3, 4})}),
      sample("bias for all heads", grouped, {{"bias", true}}, {bias({2, 1, 3, 4})}),
      sample("bias for all queries", grouped, {{"bias", true}, {"is_causal", true}},
             {bias({1, 4, 1, 4})}),
      sample("bias that masks", {1, 2, 2, 1, 1, 2, 2}, {{"bias", true}},
             {{{f32, {1, 1, 2, 2}}, 0, 0, {0, -HUGE_VAL, -HUGE_VAL, -HUGE_VAL}, false}}),
      sample("ALiBi", {1, 3, 5, 4, 2, 2, 2}, {{"alibi", true}}, {slopes}),
      sample("packed", {1, 6, 6, 2, 1, 2, 2}, {{"varlen", true}, {"is_causal", true}},
             {offsets({0, 2, 6}), offsets({0, 2, 6})}),
      sample("packed, empty sequences, rows left over", {1, 7, 8, 2, 2, 2, 2},
             {{"varlen", true}, {"is_causal", true}},
             {offsets({0, 2, 2, 5, 6}), offsets({0, 3, 5, 5, 8})}),
      sample("packed, window, ALiBi", {1, 5, 7, 4, 2, 2, 2},
             {{"varlen", true},
              {"window_left", int64_t{1}},
              {"window_right", int64_t{1}},
              {"alibi", true}},
             {slopes, offsets({0, 3, 5}), offsets({0, 3, 7})}),
      sample("dropout", {2, 3, 4, 4, 2, 3, 2}, {{"dropout", 0.4}}, {seed}),
      sample("all at once", {2, 4, 6, 4, 2, 3, 2}, all, {bias({1, 4, 4, 6}), slopes, seed}),
      sample("no keys", {1, 3, 0, 2, 1, 2, 2}, {}),
      sample("no queries", {1, 0, 3, 2, 1, 2, 2}, causal),
      sample("bf16", grouped, causal, {}, DType::kBF16),
      sample("e4m3", grouped, causal, {}, DType::kF8E4M3),
      sample("e4m3 with factors", {2, 5, 6, 4, 2, 3, 3}, {{"descale", true}, {"scale", 0.5}},
             {factors(2, 2), factors(1, 2), factors(1, 1)}, DType::kF8E4M3),
      sample("factors of f32", grouped, {{"descale", true}},
             {factors(2, 2), factors(2, 2), factors(2, 2)}),
      sample("head sizes differ", {}, {}),
      sample("heads do not divide", {1, 3, 4, 3, 2, 3, 2}, {}),
      sample("bias missing", {}, {{"bias", true}}),
      sample("bias misfits", {}, {{"bias", true}}, {bias({1, 2, 3, 5})}),
      sample("dropout of 1", {}, {{"dropout", 1.0}}, {seed}),
      sample("packed batch", grouped, {{"varlen", true}}, {offsets({0, 3}), offsets({0, 4})})};
  auto find = [&](std::string_view name) -> Sample& {
    return *std::find_if(s.begin(), s.end(), [&](const Sample& x) { return x.name == name; });
  };
  // lse is -inf there.
  for (const char* name : {"causal, rows that see nothing", "bias that masks", "no keys",
                           "packed, empty sequences, rows left over"})
    find(name).smooth = false;
  find("head sizes differ").in[1].type.shape[3] = 5;
  find("head sizes differ").expect_error = "k has d=5, q has d=3";
  find("heads do not divide").expect_error = "q has a dim of 3 that is not a multiple of 2";
  find("bias missing").expect_error = "takes 4 operands";
  find("bias misfits").expect_error = "bias has sk=5, k has sk=4";
  find("dropout of 1").expect_error = "dropout 1 must lie in [0, 1)";
  find("factors of f32").expect_error = "descale is for f8e4m3, q is f32";
  find("packed batch").expect_error = "stand in one batch entry, q has 2";
  for (Sample& x : samples_in_runs()) s.push_back(std::move(x));
  for (Sample& x : samples_in_pages()) s.push_back(std::move(x));
  return s;
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
  if (o.window_left >= 0) a.set("window_left", o.window_left);
  if (o.window_right >= 0) a.set("window_right", o.window_right);
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
  if (o.dropout > 0) a.set("dropout", o.dropout), a.set("stream", o.stream), in.push_back(o.seed);
  if (o.descale_q.valid()) {
    a.set("descale", true);
    in.insert(in.end(), {o.descale_q, o.descale_k, o.descale_v});
  }
  const auto out = q.builder().emit_n(attention_op, std::move(a), in, {}, loc);
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
    .samples = samples,
    .localize = localize_attention,
    .precision = Precision::kLow,
};

}  // namespace tegula
