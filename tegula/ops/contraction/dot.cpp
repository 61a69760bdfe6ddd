// A general contraction in einsum notation: dims "b m k, b k n -> b m n".
//
// Order (a contract): every output is one ascending chain acc = fma(a_k, b_k, acc) over the
// flattened k index (k factors in the first operand's order), starting from 0. With k_shards = S
// there are S such chains over equal consecutive shards, summed in a binary tree: then 1, 2, 4 or 8
// ranks that each hold shards give the same bits. Optional: · scale, then + bias over the n
// factors, then an activation, each rounded as the separate ops would be. With `accumulate` every
// chain starts from the element of a third operand instead of 0, so that a sum may go on from call
// to call: a chain in pieces has the bits of the whole one.
#include "tegula/base/algorithm.h"
#include "tegula/base/dot_dims.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
// As check() has seen it.
DotDims names_of(const Attrs& attrs) { return *DotDims::parse(attrs.str("dims")); }

bool is_fused(const Attrs& a) {
  return a.flag("bias") || a.flag("accumulate") || a.has("scale") ||
         a.get_or<std::string>("activation", "none") != "none";
}

Result<DimMap> dims(const OpCall& c) {
  const std::string& spec = c.attrs->str("dims");
  const DotDims names = TEGULA_TRY(DotDims::parse(spec));
  const bool accumulates = c.attrs->flag("accumulate"), has_bias = c.attrs->flag("bias");
  if (c.in.size() != (accumulates || has_bias ? 3u : 2u))
    return invalid_argument(cat("dot: got ", c.in.size(), " operands"));
  std::string full = spec;
  if (c.in.size() == 3) {  // a start has the result's dims, a bias those n factors that b alone has
    const DimNames third = accumulates ? names.out : names.out.in(names.b).not_in(names.a);
    full.insert(full.find("->"), cat(", ", third.text(), " "));
  }
  DimMap m = TEGULA_TRY(solve_dims("dot", full, c.in));
  for (const Factor& f : m.factors)
    if (names.a.has(f.name) + names.b.has(f.name) + names.out.has(f.name) < 2)
      return invalid_argument(cat("dot: factor ", f.name, " of \"", spec,
                                  "\" stands in one place only: reduce or broadcast it apart"));
  // A scale, bias or activation acts on the finished sum, a start is added once: k may not be cut.
  if (is_fused(*c.attrs))
    for (Factor& f : m.factors) f.whole = f.whole || !names.out.has(f.name);
  m.finish();
  return m;
}

// The product of a's dims that the result has not; symbolic if one of them is.
Dim contracted(const DotDims& names, const Shape& shape) {
  Dim k = 1;
  for (int d = 0; d < std::min(names.a.size(), shape.rank()); ++d)
    if (!names.out.has(names.a[d]))
      k = k.is_const() && shape[d].is_const() ? Dim(k.bound() * shape[d].bound())
                                              : Dim::of(0, k.bound() * shape[d].bound());
  return k;
}

struct Sizes {
  int64_t out = 1, k = 1;
};
Sizes sizes_of(const OpCall& c) {
  return {c.out[0].shape.numel(), contracted(names_of(*c.attrs), c.in[0].shape).bound()};
}

int64_t activation_flops(const Attrs& a) {
  const auto act = a.get_or<std::string>("activation", "none");
  return act == "gelu" ? 8 : act == "silu" ? 4 : act == "relu" ? 1 : 0;
}

int64_t flops(const OpCall& c) {
  const Sizes s = sizes_of(c);
  const int64_t shards = c.attrs->get_or<int64_t>("k_shards", 1);
  return s.out * (2 * s.k + (shards - 1) + (c.attrs->has("scale") ? 1 : 0) +
                  (c.attrs->flag("bias") ? 1 : 0) + activation_flops(*c.attrs));
}

Status check(const OpCall& c) {
  const int64_t shards = c.attrs->get_or<int64_t>("k_shards", 1);
  if (shards != 1 && shards != 2 && shards != 4 && shards != 8)
    return invalid_argument(cat("dot: k_shards is ", shards, ", must be 1, 2, 4 or 8"));
  const int64_t k = sizes_of(c).k;
  if (shards > 1 && !contracted(names_of(*c.attrs), c.in[0].shape).is_const())
    return unsupported(cat("dot: k_shards ", shards, " of a symbolic k: leave them out"));
  if (k % shards != 0)
    return invalid_argument(cat("dot: k_shards ", shards, " does not divide k=", k));
  const auto act = c.attrs->get_or<std::string>("activation", "none");
  if (act != "none" && act != "relu" && act != "gelu" && act != "silu")
    return invalid_argument(cat("dot: activation ", act, " is not none, relu, gelu or silu"));
  const bool has_scale = c.attrs->has("scale");
  if (has_scale && !is_float(c.out[0].dtype))
    return invalid_argument(cat("dot: scale is for floats, the result is ", c.out[0].dtype));
  if (c.attrs->flag("accumulate") &&
      (shards != 1 || c.attrs->flag("bias") || has_scale || act != "none"))
    return invalid_argument("dot: accumulate goes with one chain, no scale, bias or activation");
  return {};
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const DotDims names = names_of(a.attrs());
    const DimNames* const sides[3] = {&names.a, &names.b, &names.out};
    // Factor of each dim of a, b and the result; the k factors in a's order come last.
    std::vector<std::string_view> factor;
    std::vector<int64_t> size;
    std::vector<int> at[3];
    size_t n_out = 0;
    for (size_t which : {2u, 0u, 1u}) {
      for (int d = 0; d < sides[which]->size(); ++d) {
        const std::string_view name = (*sides[which])[d];
        size_t f = 0;
        while (f < factor.size() && factor[f] != name) ++f;
        if (f == factor.size()) {
          factor.push_back(name);
          size.push_back(which == 2 ? a.out_dim(0, d) : a.dim(which, d));
        }
        at[which].push_back(static_cast<int>(f));
      }
      if (which == 2) n_out = factor.size();
    }
    auto pick = [&](const Index& o, const Index& k, const std::vector<int>& dims) {
      Index i{};
      for (size_t d = 0; d < dims.size(); ++d) {
        const auto f = static_cast<size_t>(dims[d]);
        i[d] = f < n_out ? o[f] : k[f - n_out];
      }
      return i;
    };
    const std::span<const int64_t> out_size(size.data(), n_out);
    const std::span<const int64_t> k_size(size.data() + n_out, size.size() - n_out);
    int64_t k_total = 1;
    for (int64_t k : k_size) k_total *= k;
    const int64_t shards = a.attrs().template get_or<int64_t>("k_shards", 1);
    const auto act = a.attrs().template get_or<std::string>("activation", "none");
    for_each_index(out_size, [&](const Index& o) {
      std::array<S, 8> acc{};
      if (a.attrs().flag("accumulate")) acc[0] = a.load_at(2, o);
      int64_t k = 0;
      for_each_index(k_size, [&](const Index& ki) {
        S& s = acc[k * shards / k_total];
        s = scalar::fma(a.load_at(0, pick(o, ki, at[0])), a.load_at(1, pick(o, ki, at[1])), s);
        ++k;
      });
      for (int64_t n = shards; n > 1; n /= 2)
        for (int64_t i = 0; i < n / 2; ++i) acc[i] = acc[2 * i] + acc[2 * i + 1];
      S y = round_to(a.out[0].dtype, acc[0]);
      if (a.attrs().has("scale")) {
        const S scale = round_to(a.out[0].dtype, S(a.attrs().f("scale")));
        y = round_to(a.out[0].dtype, y * scale);
      }
      if (a.attrs().flag("bias")) {
        Index i{};
        size_t n = 0;
        for (size_t d = 0; d < at[2].size(); ++d) {
          const bool in_a = std::find(at[0].begin(), at[0].end(), at[2][d]) != at[0].end();
          if (!in_a) i[n++] = o[d];
        }
        y = round_to(a.out[0].dtype, y + a.load_at(2, i));
      }
      if (act == "relu") y = scalar::relu(y);
      if constexpr (!std::is_same_v<S, Integer>) {
        if (act == "gelu") y = scalar::gelu(y);
        if (act == "silu") y = scalar::silu(y);
      }
      a.store_at(0, y, o);
    });
  }
  template <class S>
  static S round_to(DType t, S v) {
    if (t == DType::kBF16 || t == DType::kF16) return S(rounded_to(t, static_cast<double>(v)));
    return v;
  }
};

// y = act(dot + bias) in separate ops.
std::vector<Var> decompose(Builder& b, const OpCall& c, std::span<const Var> in) {
  Attrs plain = *c.attrs;
  for (const char* fused : {"scale", "bias", "activation", "accumulate"}) plain.erase(fused);
  Var y = b.emit(dot_op, plain, {in[0], in[1]});
  if (c.attrs->flag("accumulate")) return {in[2] + y};
  if (c.attrs->has("scale")) y = y * c.attrs->f("scale");
  if (c.attrs->flag("bias")) {
    const DotDims names = names_of(*c.attrs);
    Shape s;
    for (int d = 0; d < names.out.size(); ++d)
      s.push_back(names.a.has(names.out[d]) ? Dim(1) : y.dim(d));
    y = y + reshape(in[2], s);
  }
  const auto act = c.attrs->get_or<std::string>("activation", "none");
  return {act == "gelu" ? gelu(y) : act == "silu" ? silu(y) : act == "relu" ? relu(y) : y};
}

// With C = A·B: dA has A's dims, from dC and B; dB has B's, from A and dC.
Grads vjp(Builder&, const VjpCall& c) {
  if (is_fused(c.attrs())) return {};  // through the decomposition
  const DotDims names = names_of(c.attrs());
  return {dot(DotDims{names.out, names.b, names.a}.text(), c.grad[0], c.in[1]),
          dot(DotDims{names.a, names.out, names.b}.text(), c.in[0], c.grad[0])};
}

// dC = dA·B + A·dB, in the order of C's own shards.
Grads jvp(Builder& b, const JvpCall& c) {
  if (is_fused(c.attrs())) return {};
  Var sum;
  for (size_t k = 0; k < 2; ++k) {
    if (!c.tangent[k].valid()) continue;
    const Var other = c.in[1 - k];
    const Var t = k == 0 ? b.emit(dot_op, c.attrs(), {c.tangent[0], other})
                         : b.emit(dot_op, c.attrs(), {other, c.tangent[1]});
    sum = sum.valid() ? sum + t : t;
  }
  return {sum};
}

// A part of k keeps its share of the shards, if it holds whole ones.
Attrs localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  const int64_t shards = a.get_or<int64_t>("k_shards", 1);
  const Factor& f = m.factors[factor];
  if (shards == 1 || names_of(a).out.has(f.name)) return a;
  const int64_t share = shards * (hi - lo) / f.size.bound();
  const bool whole = share * f.size.bound() == shards * (hi - lo) && (share & (share - 1)) == 0;
  a.set("k_shards", whole && share > 0 ? share : int64_t{1});
  return a;
}

std::vector<Sample> samples() {
  auto f32 = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
  auto spec = [](const char* dims) { return Attrs{{"dims", std::string(dims)}}; };
  Attrs sharded = spec("m k, k n -> m n");
  sharded.set("k_shards", 4);
  Attrs fused = spec("b m k, k n -> b m n");
  fused.set("bias", true), fused.set("activation", "gelu");
  Attrs scaled = fused, count = spec("m k, k n -> m n");
  scaled.set("scale", 0.375), count.set("scale", 2.0);
  Attrs going_on = spec("b k m, b k n -> m n"), from_start = spec("k m, k n -> n m");
  Attrs both = spec("m k, k n -> m n");
  Attrs scaled_start = both;
  scaled_start.set("scale", 2.0);
  for (Attrs* a : {&going_on, &from_start, &both, &scaled_start}) a->set("accumulate", true);
  both.set("k_shards", 2);
  return {
      {"matrix", {f32({4, 6}), f32({6, 5})}, spec("m k, k n -> m n")},
      {"batched", {f32({2, 4, 6}), f32({2, 6, 5})}, spec("b m k, b k n -> b m n")},
      {"transposed", {f32({6, 4}), f32({5, 6})}, spec("k m, n k -> n m")},
      {"heads", {f32({2, 3, 2, 4}), f32({2, 5, 2, 4})}, spec("b s h d, b t h d -> b h s t")},
      {"two contracted", {f32({2, 3, 4}), f32({2, 3, 5})}, spec("b s m, b s n -> m n")},
      {"vector", {f32({6}), f32({6, 5})}, spec("k, k n -> n")},
      {"outer", {f32({4}), f32({5})}, spec("m, n -> m n")},
      {"inner", {f32({7}), f32({7})}, spec("k, k -> ")},
      {"sharded", {f32({3, 16}), f32({16, 5})}, sharded},
      {"bias and gelu", {f32({2, 3, 4}), f32({4, 5}), f32({5})}, fused},
      {"scale, bias and gelu", {f32({2, 3, 4}), f32({4, 5}), f32({5})}, scaled},
      {"scaled integers",
       {{{DType::kI32, {4, 6}}}, {{DType::kI32, {6, 5}}}},
       count,
       "scale is for floats"},
      {"goes on, scaled", {f32({4, 6}), f32({6, 5}), f32({4, 5})}, scaled_start, "no scale"},
      {"goes on", {f32({3, 5, 4}), f32({3, 5, 6}), f32({4, 6})}, going_on},
      {"goes on over nothing", {f32({0, 4}), f32({0, 3}), f32({3, 4})}, from_start},
      {"goes on in shards", {f32({4, 6}), f32({6, 5}), f32({4, 5})}, both, "one chain"},
      {"nothing to sum", {f32({3, 0}), f32({0, 5})}, spec("m k, k n -> m n")},
      {"k differs", {f32({4, 6}), f32({7, 5})}, spec("m k, k n -> m n"), "has k=7"},
      {"one place only", {f32({4, 6}), f32({7, 5})}, spec("m k, j n -> m n"), "one place only"}};
}
}  // namespace

Var dot(std::string_view dims, Var a, Var b, Loc loc) { return dot(dims, a, b, a.dtype(), loc); }

Var dot(std::string_view dims, Var a, Var b, DType out, Loc loc) {
  Attrs attrs{{"dims", std::string(dims)}};
  if (out != a.dtype()) attrs.set("out", out);
  Builder& builder = a.builder();
  // Exact mode's shards: a function of the shape alone, so that every rank count sums alike.
  if (const auto names = DotDims::parse(dims); names.ok()) {
    const Dim k = contracted(*names, a.shape());
    if (k.is_const() && k.bound() >= kLeastSummed && k.bound() % kMostShards == 0)
      attrs.set("k_shards", kMostShards);
  }
  return builder.emit(dot_op, std::move(attrs), {a, b}, loc);
}

constinit const OpDef dot_op = {
    .name = "dot",
    .formula = "c = act(scale * sum over k of a b + bias)",
    .group = "contraction",
    .dims_fn = dims,
    .types_fn = [](const OpCall& c) -> Result<std::vector<DType>> {
      if (c.in.size() < 2) return invalid_argument(cat("dot: got ", c.in.size(), " operands"));
      const size_t n_alike = c.attrs->flag("accumulate") ? 2 : c.in.size();
      for (size_t k = 1; k < std::min(n_alike, c.in.size()); ++k)
        if (c.in[k].dtype != c.in[0].dtype)
          return invalid_argument(cat("dot: operand ", k, " is ", c.in[k].dtype, ", operand 0 is ",
                                      c.in[0].dtype, ": cast one of them"));
      const DType out = c.attrs->get_or<DType>("out", c.in[0].dtype);
      if (n_alike == 2 && c.in.size() > 2 && (c.in[2].dtype != out || out != accumulator(out)))
        return invalid_argument(cat("dot: goes on from ", c.in[2].dtype, ", its result is ", out,
                                    ": both must be ", accumulator(out)));
      return std::vector{out};
    },
    .attrs = {{"dims", AttrKind::kString, true, "factors of a, b and the result"},
              {"k_shards", AttrKind::kInt, false, "chains per output, 1, 2, 4 or 8"},
              {"scale", AttrKind::kFloat, false, "a factor of the sum, 1 if absent"},
              {"bias", AttrKind::kBool, false, "a third operand over the n factors is added"},
              {"activation", AttrKind::kString, false, "none, relu, gelu or silu"},
              {"accumulate", AttrKind::kBool, false, "a third operand that the sums start from"},
              {"out", AttrKind::kDType, false, "result type, if not the operands'"}},
    .check = check,
    .flops = flops,
    .vjp = vjp,
    .jvp = jvp,
    .decompose = decompose,
    .reference = reference_with_ints<Ref>,
    .samples = samples,
    .localize = localize,
    .is_multilinear = true,
    .aliases = {{2, 0}},
    .precision = Precision::kLow,
};

}  // namespace tegula
