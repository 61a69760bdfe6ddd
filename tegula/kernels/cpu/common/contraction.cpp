#include "tegula/kernels/cpu/common/contraction.h"

#include "tegula/base/dot_dims.h"
#include "tegula/base/element.h"

namespace tegula::kernel {

namespace {
constexpr int kMaxFactors = 4 * kMaxRank;

// Every distinct name, with the dim it has in each operand.
struct Named {
  std::string_view name;
  int64_t extent = -1;
  int dim[kOperands] = {-1, -1, -1, -1};
  bool in(Operand o) const { return dim[o] >= 0; }
};

struct Names {
  Named list[kMaxFactors];
  int n = 0;
  Named& of(std::string_view name) {
    for (int i = 0; i < n; ++i)
      if (list[i].name == name) return list[i];
    list[n].name = name;
    return list[n++];
  }
};

Status name_operand(Names& names, const DimNames& dims, Operand operand, const TensorRef& t) {
  if (dims.size() != t.rank)
    return invalid_argument(cat("dot: operand ", static_cast<int>(operand), " has rank ", t.rank,
                                ", but dims names ", dims.size(), " factors for it"));
  for (int dim = 0; dim < t.rank; ++dim) {
    Named& f = names.of(dims[dim]);
    if (f.in(operand))
      return invalid_argument(
          cat("dot: factor ", f.name, " appears twice in operand ", static_cast<int>(operand)));
    if (f.extent >= 0 && f.extent != t.shape[dim])
      return invalid_argument(cat("dot: factor ", f.name, " has extent ", f.extent,
                                  " in one operand, ", t.shape[dim], " in operand ",
                                  static_cast<int>(operand)));
    f.extent = t.shape[dim];
    f.dim[operand] = dim;
  }
  return {};
}

Result<Activation> parse_activation(const Attrs& attrs) {
  const AttrValue* v = attrs.find("activation");
  const std::string_view s = v == nullptr ? "none" : std::string_view(v->get<std::string>());
  if (s == "none") return Activation::kNone;
  if (s == "relu") return Activation::kRelu;
  if (s == "gelu") return Activation::kGelu;
  if (s == "silu") return Activation::kSilu;
  return invalid_argument(cat("dot: activation ", s, " is not none, relu, gelu or silu"));
}

Status name_all(Names& names, std::string_view text, const Contraction& c,
                std::span<const TensorRef> in, const TensorRef& out) {
  const DotDims dims = TEGULA_TRY(DotDims::parse(text));
  TEGULA_TRY(name_operand(names, dims.a, kA, in[0]));
  TEGULA_TRY(name_operand(names, dims.b, kB, in[1]));
  TEGULA_TRY(name_operand(names, dims.out, kOut, out));
  if (c.accumulates) return name_operand(names, dims.out, kBias, in[2]);
  if (!c.has_bias) return {};
  int dim = 0;
  for (int d = 0; d < out.rank; ++d)
    for (int i = 0; i < names.n; ++i)
      if (names.list[i].dim[kOut] == d && !names.list[i].in(kA)) names.list[i].dim[kBias] = dim++;
  if (dim != in[2].rank)
    return invalid_argument(
        cat("dot: the bias has rank ", in[2].rank, ", but there are ", dim, " n factors"));
  for (int i = 0; i < names.n; ++i) {
    const Named& f = names.list[i];
    if (f.in(kBias) && in[2].shape[f.dim[kBias]] != f.extent)
      return invalid_argument(cat("dot: the bias has extent ", in[2].shape[f.dim[kBias]],
                                  " for factor ", f.name, " of ", f.extent));
  }
  return {};
}

Status sort_factor(const Named& f, const Factor& factor, Contraction& c) {
  const bool a = f.in(kA), b = f.in(kB), out = f.in(kOut);
  if (f.in(kBias) && !out)
    return invalid_argument(cat("dot: bias factor ", f.name, " is not in the output"));
  Loops* loops = out ? (a && b ? &c.batch : a ? &c.m : b ? &c.n : nullptr) : &c.k;
  if (loops == nullptr || (!out && !(a && b)))
    return invalid_argument(
        cat("dot: factor ", f.name, " must be in both inputs, or in one and the output"));
  loops->add(factor);
  return {};
}
}  // namespace

void Loops::add(const Factor& f) {
  count *= f.extent;
  if (f.extent == 1) return;
  if (rank > 0) {
    Factor& outer = factors[rank - 1];
    bool mergeable = f.extent > 0 && outer.extent > 0;
    for (int o = 0; o < kOperands; ++o)
      mergeable = mergeable && outer.stride[o] == f.stride[o] * f.extent;
    if (mergeable) {
      const int64_t extent = outer.extent * f.extent;
      outer = f;
      outer.extent = extent;
      return;
    }
  }
  factors[rank++] = f;
}

void Loops::offsets(int64_t first, int64_t n, Operand operand, int64_t* out) const {
  int64_t stride;
  if (is_linear(operand, &stride)) {
    for (int64_t j = 0; j < n; ++j) out[j] = (first + j) * stride;
    return;
  }
  const Factor& inner = factors[rank - 1];
  for (int64_t j = 0; j < n;) {
    int64_t off = offset(first + j, operand);
    const int64_t run = inner.extent - (first + j) % inner.extent;
    for (const int64_t end = j + run < n ? j + run : n; j < end; ++j, off += inner.stride[operand])
      out[j] = off;
  }
}

int64_t Contraction::epilogue_flops() const {
  const int64_t f = activation == Activation::kGelu   ? 8
                    : activation == Activation::kSilu ? 4
                    : activation == Activation::kRelu ? 1
                                                      : 0;
  return k_shards - 1 + (has_scale ? 1 : 0) + (has_bias ? 1 : 0) + f;
}

Contraction Contraction::swapped() const {
  Contraction c = *this;
  std::swap(c.m, c.n);
  for (Loops* l : {&c.batch, &c.m, &c.n, &c.k})
    for (int d = 0; d < l->rank; ++d) std::swap(l->factors[d].stride[kA], l->factors[d].stride[kB]);
  c.last_is_m = false;
  return c;
}

bool Loops::is_linear(Operand operand, int64_t* stride) const {
  if (rank > 1) {
    for (int d = 0; d + 1 < rank; ++d)
      if (factors[d].stride[operand] != factors[d + 1].stride[operand] * factors[d + 1].extent)
        return false;
  }
  *stride = rank == 0 ? 0 : factors[rank - 1].stride[operand];
  return true;
}

Result<Contraction> parse_contraction(const Attrs& attrs, std::span<const TensorRef> in,
                                      std::span<const TensorRef> out) {
  Contraction c;
  c.has_scale = attrs.has("scale");
  c.has_bias = attrs.flag("bias");
  c.accumulates = attrs.flag("accumulate");
  const bool has_third = c.has_bias || c.accumulates;
  c.activation = TEGULA_TRY(parse_activation(attrs));
  c.k_shards = attrs.get_or<int64_t>("k_shards", 1);
  if (in.size() != (has_third ? 3u : 2u) || out.size() != 1)
    return invalid_argument(cat("dot: takes 2 inputs (3 with bias) and 1 output, got ", in.size(),
                                " and ", out.size()));
  c.in_dtype = in[0].dtype, c.out_dtype = out[0].dtype;
  if (c.has_scale)  // as a separate node's constant would be
    c.scale = rounded_to(c.out_dtype, attrs.f("scale"));
  Names names;
  TEGULA_TRY(name_all(names, attrs.str("dims"), c, in, out[0]));

  const TensorRef* refs[kOperands] = {&in[0], &in[1], has_third ? &in[2] : nullptr, &out[0]};
  // k follows the first input's order; batch, m and n follow the output's.
  for (const Operand lead : {kOut, kA}) {
    for (int d = 0; d < refs[lead]->rank; ++d) {
      for (int i = 0; i < names.n; ++i) {
        const Named& f = names.list[i];
        if (f.dim[lead] != d || (lead == kA && f.in(kOut))) continue;
        Factor factor;
        factor.extent = f.extent;
        for (int o = 0; o < kOperands; ++o)
          if (f.dim[o] >= 0) factor.stride[o] = refs[o]->stride[f.dim[o]];
        TEGULA_TRY(sort_factor(f, factor, c));
        if (lead == kOut) c.last_is_m = f.in(kA) && !f.in(kB);
      }
    }
  }
  for (int i = 0; i < names.n; ++i)
    if (!names.list[i].in(kA) && !names.list[i].in(kOut))
      return invalid_argument(
          cat("dot: factor ", names.list[i].name, " is in one input only, and not in the output"));
  const int64_t s = c.k_shards;
  if (c.accumulates && s != 1)
    return invalid_argument(cat("dot: accumulate is for one chain, k_shards is ", s));
  if (s < 1 || s > 8 || (s & (s - 1)) != 0 || c.k.count % s != 0)
    return invalid_argument(
        cat("dot: k_shards = ", s, " must be 1, 2, 4 or 8 and divide K = ", c.k.count));
  return c;
}

}  // namespace tegula::kernel
