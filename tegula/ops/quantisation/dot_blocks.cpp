// y[m, n] = sum over k of x[m, k] w[n, k], w in blocks: in f32, or of quantised rows in integers.
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/common/blocks.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {
bool is_quantised(const OpCall& c) { return c.in.size() == 3; }

// x [m0, m1, .., k], w [n, row_bytes], of quantised rows d [m0, m1, .., k / 32] -> y [m0, .., n].
// Experts have a w each: [e, n, row_bytes], and m0 is e.
Result<DimMap> dims(const OpCall& c) {
  if (c.in.size() != 2 && c.in.size() != 3)
    return invalid_argument(cat("dot_blocks: got ", c.in.size(), " operands"));
  const BlockRows rows = TEGULA_TRY(BlockRows::of(c, 1));
  const Shape &x = c.shape(0), &w = c.shape(1);
  const bool has_experts = w.rank() == 3;
  if (x.rank() == 0 || (w.rank() != 2 && !has_experts) || !(x[x.rank() - 1] == Dim(rows.k())) ||
      (has_experts && (x.rank() < 2 || !(x[0] == w[0]))))
    return invalid_argument(cat("dot_blocks: x is ", c.in[0], " and w ", c.in[1], ", ", rows.k(),
                                " values in a row: they must be [.., k] and [n, row], or ",
                                "[e, .., k] and [e, n, row]"));
  DimMap m;
  m.operands.resize(c.in.size()), m.results.resize(1);
  Shape out, d;
  for (int i = 0; i + 1 < x.rank(); ++i) {
    const bool is_expert = has_experts && i == 0;
    const auto f = static_cast<uint8_t>(m.add_factor(is_expert ? "e" : cat("m", i), x[i]));
    if (is_expert) m.operands[1].push_back({0, {{f, 1}}});
    m.operands[0].push_back({0, {{f, 1}}});
    if (is_quantised(c)) m.operands[2].push_back({0, {{f, 1}}});
    m.results[0].push_back({0, {{f, 1}}});
    out.push_back(x[i]), d.push_back(x[i]);
  }
  const int64_t runs = rows.layout->n_values / kQuantisedRun;
  const auto add = [&](const char* name, Dim size) {
    return static_cast<uint8_t>(m.add_factor(name, size));
  };
  const Dim n_rows = w[w.rank() - 2];
  const uint8_t n = add("n", n_rows), b = add("b", rows.blocks), r = add("r", runs),
                i = add("i", kQuantisedRun), j = add("j", rows.layout->n_bytes);
  // The order of the chain over blocks is the op's own.
  for (const uint8_t f : {b, r, i, j}) m.factors[f].whole = true;
  m.operands[0].push_back({0, {{b, rows.layout->n_values}, {r, kQuantisedRun}, {i, 1}}});
  m.operands[1].push_back({0, {{n, 1}}});
  m.operands[1].push_back({0, {{b, rows.layout->n_bytes}, {j, 1}}});
  m.results[0].push_back({0, {{n, 1}}});
  out.push_back(n_rows), d.push_back(rows.k() / kQuantisedRun);
  if (is_quantised(c)) {
    if (!(c.shape(2) == d))
      return invalid_argument(cat("dot_blocks: x is ", c.in[0], " and d ", c.in[2],
                                  ", must have a scale for ", kQuantisedRun, " values"));
    m.operands[2].push_back({0, {{b, runs}, {r, 1}}});
  }
  m.result_shapes = {out};
  m.finish();
  return m;
}

Status check(const OpCall& c) {
  const int64_t shards = c.attrs->get_or<int64_t>("k_shards", 1);
  if (shards != 1 && shards != 2 && shards != 4 && shards != 8)
    return invalid_argument(cat("dot_blocks: k_shards is ", shards, ", must be 1, 2, 4 or 8"));
  if (shards > 1 && is_quantised(c))
    return invalid_argument("dot_blocks: sums of quantised rows are one chain, without k_shards");
  const int64_t k = c.shape(0)[c.shape(0).rank() - 1].bound();
  if (k % shards != 0)
    return invalid_argument(cat("dot_blocks: k_shards ", shards, " does not divide k=", k));
  return {};
}

Result<std::vector<DType>> types(const OpCall& c) {
  const bool quantised = is_quantised(c);
  const DType want[3] = {quantised ? DType::kI8 : DType::kF32, DType::kU8, DType::kF32};
  for (size_t k = 0; k < std::min<size_t>(c.in.size(), 3); ++k)
    if (c.in[k].dtype != want[k])
      return invalid_argument(
          cat("dot_blocks: operand ", k, " is ", c.in[k], ", must be ", want[k]));
  return std::vector<DType>{DType::kF32};
}

int64_t flops(const OpCall& c) {
  const BlockRows rows = *BlockRows::of(c, 1);
  const int64_t k = rows.k(), y = c.out[0].shape.numel(), m = c.in[0].shape.numel() / k;
  const bool has_min = rows.layout->has_min;
  if (!is_quantised(c)) {
    const int64_t shards = c.attrs->get_or<int64_t>("k_shards", 1);
    const int64_t w = c.in[1].shape.numel() / (rows.blocks * rows.layout->n_bytes) * k;
    return y * (2 * k + shards - 1) + w * (has_min ? 2 : 1);
  }
  return y * (2 * k + (has_min ? 5 : 3) * rows.groups()) + (has_min ? m * (k + rows.groups()) : 0);
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const BlockRows rows = *BlockRows::of(a.call, 1);
    const bool quantised = a.in.size() == 3;
    std::vector<int64_t> lead(a.out[0].shape, a.out[0].shape + a.out[0].rank);
    const int64_t n = lead.back();
    lead.back() = 1;
    const auto k = static_cast<size_t>(rows.k());
    std::vector<S> scale(static_cast<size_t>(rows.groups())), min = scale;
    std::vector<S> w(k);
    const bool has_experts = a.in[1].rank == 3;
    const int64_t experts = has_experts ? lead[0] : 1;
    if (has_experts) lead[0] = 1;
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t j = 0; j < n; ++j) {
        load_row(a, rows, has_experts ? Index{e, j} : Index{j}, quantised, w, scale, min);
        for_each_index(lead, [&](Index at) {
          if (has_experts) at[0] = e;
          Index to = at;
          to[static_cast<size_t>(a.out[0].rank - 1)] = j;
          a.store_at(0, quantised ? exact(a, rows, at, w, scale, min, j == 0) : chain(a, at, w),
                     to);
        });
      }
  }

  // A row of w: its values in f32, or its whole numbers, scales and mins.
  template <class S>
  static void load_row(RefArgs<S>& a, const BlockRows& rows, const Index& row, bool quantised,
                       std::vector<S>& w, std::vector<S>& scale, std::vector<S>& min) {
    const int per = rows.layout->n_values / rows.layout->n_group;
    for (int64_t b = 0; b < rows.blocks; ++b) {
      const BlockValues v = load_block(a, 1, rows, row, b);
      for (int g = 0; g < per; ++g) {
        const auto to = static_cast<size_t>(b * per + g);
        scale[to] = S(static_cast<double>(v.scale[g])), min[to] = S(static_cast<double>(v.min[g]));
      }
      for (int i = 0; i < rows.layout->n_values; ++i) {
        const auto g = static_cast<size_t>(b * per + i / rows.layout->n_group);
        S q = S(static_cast<double>(v.q[i]));
        if (!quantised) {
          q = scale[g] * q;
          if (rows.layout->has_min) q = q + min[g];
        }
        w[static_cast<size_t>(b * rows.layout->n_values + i)] = q;
      }
    }
  }

  template <class S>
  static S chain(RefArgs<S>& a, Index at, const std::vector<S>& w) {
    const auto last = static_cast<size_t>(a.in[0].rank - 1);
    const auto shards = static_cast<size_t>(a.attrs().template get_or<int64_t>("k_shards", 1));
    std::array<S, 8> acc{};
    for (size_t k = 0; k < w.size(); ++k) {
      at[last] = static_cast<int64_t>(k);
      S& s = acc[k * shards / w.size()];
      s = scalar::fma(a.load_at(0, at), w[k], s);
    }
    for (size_t n = shards; n > 1; n /= 2)
      for (size_t i = 0; i < n / 2; ++i) acc[i] = acc[2 * i] + acc[2 * i + 1];
    return acc[0];
  }

  // `counts`: the sums of x, which all columns share, are counted here.
  template <class S>
  static S exact(RefArgs<S>& a, const BlockRows& rows, Index at, const std::vector<S>& w,
                 const std::vector<S>& scale, const std::vector<S>& min, bool counts) {
    const auto last = static_cast<size_t>(a.in[0].rank - 1);
    const int64_t e = rows.layout->n_group;
    S y = S(0.0);
    for (int64_t g = 0; g < rows.groups(); ++g) {
      S sum = S(0.0), all = S(0.0);
      double plain = 0;
      for (int64_t k = g * e; k < (g + 1) * e; ++k) {
        at[last] = k;
        const S x = a.load_at(0, at);
        sum = scalar::fma(x, w[static_cast<size_t>(k)], sum);
        if (rows.layout->has_min && counts) all = all + x;
        plain += static_cast<double>(x);
      }
      at[last] = g * e / kQuantisedRun;
      const S d = a.load_at(2, at);
      const auto i = static_cast<size_t>(g);
      y = scalar::fma(sum, d * scale[i], y);
      if (!rows.layout->has_min) continue;
      const double offset = static_cast<double>(d) * plain;
      y = scalar::fma(counts ? d * all : S(rounded<S>(offset)), min[i], y);
    }
    return y;
  }
  template <class S>
  static double rounded(double v) {
    return std::is_same_v<S, float> ? static_cast<double>(static_cast<float>(v)) : v;
  }
};

// dot of dequantised weights, and rows.
std::vector<Var> decompose(Builder&, const OpCall& c, std::span<const Var> in) {
  Var x = in[0];
  const Var w = dequantise_blocks(in[1], *format_of(c));
  if (is_quantised(c)) {
    Shape runs = in[2].shape();
    runs.push_back(kQuantisedRun);
    Shape one = in[2].shape();
    one.push_back(1);
    x = cast(reshape(x, runs), DType::kF32) * broadcast(reshape(in[2], one), runs);
    x = reshape(x, in[0].shape());
  }
  const bool has_experts = w.rank() == 3;
  std::string m;
  for (int d = 0; d + 1 < x.rank(); ++d) m += has_experts && d == 0 ? "e " : cat("m", d, " ");
  Attrs attrs{{"dims", cat(m, "k, ", has_experts ? "e " : "", "n k -> ", m, "n")}};
  if (c.attrs->has("k_shards")) attrs.set("k_shards", c.attrs->i("k_shards"));
  return {x.builder().emit(dot_op, std::move(attrs), {x, w})};
}

std::vector<Sample> samples() {
  const DType f32 = DType::kF32, i8 = DType::kI8;
  std::vector<Sample> all;
  for (int f = 0; f < kBlockFormats; ++f) {
    const auto format = static_cast<BlockFormat>(f);
    const BlockLayout& layout = layout_of(format);
    const Attrs attrs{{"format", std::string(layout.name)}};
    const int64_t k = 2 * layout.n_values;
    const SampleInput w = sample_blocks(format, {5}, 2);
    all.push_back({cat(layout.name, " f32"), {{{f32, {3, k}}}, w}, attrs});
    all.push_back({cat(layout.name, " i8"),
                   {{{i8, {3, k}}, -127, 127}, w, {{f32, {3, k / 32}}, 0, 0.01, {}, false}},
                   attrs});
  }
  const Attrs q4{{"format", "Q4_0"}}, sharded{{"format", "Q4_0"}, {"k_shards", int64_t{4}}};
  const SampleInput w = sample_blocks(BlockFormat::kQ4_0, {70}, 2);
  const SampleInput many = {{i8, {2, 11, 64}}, -127, 127},
                    scales = {{f32, {2, 11, 2}}, 0, 0.01, {}, false};
  all.push_back({"many rows", {many, w, scales}, q4});
  const SampleInput experts = sample_blocks(BlockFormat::kQ4_0, {2, 70}, 2);
  all.push_back({"experts", {many, experts, scales}, q4});
  all.push_back({"experts f32", {{{f32, {2, 11, 64}}}, experts}, sharded});
  all.push_back({"experts misfit", {{{f32, {3, 11, 64}}}, experts}, q4, "[e, n, row]"});
  all.push_back({"shards of k", {{{f32, {2, 11, 64}}}, w}, sharded});
  all.push_back({"shards of integers", {many, w, scales}, sharded, "one chain"});
  all.push_back({"misfit", {{{f32, {3, 96}}}, w}, q4, "64 values in a row"});
  all.push_back({"scales misfit", {many, w, {{f32, {2, 11, 4}}}}, q4, "a scale for 32"});
  return all;
}
}  // namespace

Var dot_blocks(Var x, Var w, BlockFormat format, Loc loc) {
  const Attrs a{{"format", std::string(layout_of(format).name)}};
  return x.builder().emit(dot_blocks_op, a, {x, w}, loc);
}
Var dot_blocks(const QuantisedRows& x, Var w, BlockFormat format, Loc loc) {
  const Attrs a{{"format", std::string(layout_of(format).name)}};
  return w.builder().emit(dot_blocks_op, a, {x.q, w, x.d}, loc);
}

constinit const OpDef dot_blocks_op = {
    .name = "dot_blocks",
    .formula = "y[m, n] = sum over k of x[m, k] w[n, k], w in blocks of a format",
    .source = "Jacob et al. 2018, section 2.2; the GGUF project's tensor types",
    .group = "quantisation",
    .dims_fn = dims,
    .types_fn = types,
    .attrs = {kFormatAttr,
              {"k_shards", AttrKind::kInt, false, "chains over parts of k, summed in a tree"}},
    .check = check,
    .flops = flops,
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples = samples,
};

}  // namespace tegula
