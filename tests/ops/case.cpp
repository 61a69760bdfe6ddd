#include "tests/ops/case.h"

#include <cmath>

#include "tegula/base/philox.h"

namespace tegula::testing {

namespace {
HostTensor draw(const SampleInput& in, uint64_t seed, uint64_t stream) {
  Type type = in.type;
  for (int d = 0; d < type.shape.rank(); ++d) type.shape[d] = type.shape[d].bound();
  if (!in.values.empty()) return HostTensor(type, in.values);
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double u = philox_uniform(seed, stream, static_cast<uint64_t>(i));
    t.put(i, is_float(type.dtype) ? in.low + u * (in.high - in.low)
                                  : std::floor(in.low + u * (in.high - in.low + 1)));
  }
  return t;
}
}  // namespace

std::string Case::name() const {
  return cat("op ", op->name, ", sample \"", sample.name, "\", seed ", seed);
}

std::vector<TensorRef> Case::refs() const {
  std::vector<TensorRef> r;
  for (const HostTensor& t : values) r.push_back(t.ref());
  return r;
}

Case make_case(const OpDef& op, const Sample& sample, uint64_t seed) {
  Case c;
  c.op = &op, c.sample = sample, c.seed = seed;
  if (sample.regions) c.regions = sample.regions(c.module);
  for (const SampleInput& in : sample.in) {
    c.values.push_back(draw(in, seed, c.values.size()));
    c.in.push_back(c.values.back().type);
  }
  auto out = infer(c.call());
  if (out.ok()) c.out = std::move(*out);
  return c;
}

bool is_alike(const OpDef& op, size_t k) {
  std::string_view rest = op.types.substr(0, op.types.find("->"));
  for (; k > 0; --k) {
    const size_t comma = rest.find(',');
    if (comma == rest.npos) return false;
    rest.remove_prefix(comma + 1);
  }
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return !rest.empty() && (rest[0] == 'F' || rest[0] == 'T');
}

std::optional<Case> in_dtype(const Case& c, DType narrow) {
  for (const bool alone : {false, true}) {
    Case n = c;
    bool is_narrow = false;
    for (size_t k = 0; k < c.in.size(); ++k) {
      if (c.in[k].dtype != DType::kF32 || (alone && !is_alike(*c.op, k))) continue;
      is_narrow = true;
      n.values[k] = c.values[k].as(narrow), n.in[k] = n.values[k].type;
    }
    if (!is_narrow) return {};
    n.out.clear();
    auto out = infer(n.call());
    if (!out.ok()) continue;
    n.out = std::move(*out);
    return n;
  }
  return {};
}

HostTensor random_f64(const Shape& shape, uint64_t seed, uint64_t stream) {
  HostTensor t({DType::kF64, shape});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, 2.0 * philox_uniform(seed, stream, static_cast<uint64_t>(i)) - 1);
  return t;
}

Result<std::vector<HostTensor>> evaluate(const OpCall& call, std::span<const TensorRef> in,
                                         Arithmetic arithmetic) {
  // As the interpreter does for a function: the oracle's floats are f64.
  const bool promote = arithmetic != Arithmetic::kNaive && arithmetic != Arithmetic::kTensorCores;
  std::vector<HostTensor> wide, out;
  std::vector<TensorRef> in_refs, out_refs;
  for (const TensorRef& t : in) {
    wide.push_back(copy_of(t));
    if (promote && is_float(t.dtype)) wide.back() = wide.back().as(DType::kF64);
  }
  for (const HostTensor& t : wide) in_refs.push_back(t.ref());
  for (const Type& t : call.out)
    out.emplace_back(Type{promote && is_float(t.dtype) ? DType::kF64 : t.dtype, t.shape});
  for (const HostTensor& t : out) out_refs.push_back(t.ref());
  auto status = interpret_call(call, in_refs, out_refs, arithmetic);
  if (!status.ok()) return std::move(status).error();
  return out;
}

double dot_of(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    if (a.at(i) != 0) sum += a.at(i) * b.at(i);
  return sum;
}
double abs_dot_of(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    if (a.at(i) != 0) sum += std::fabs(a.at(i) * b.at(i));
  return sum;
}
double max_abs(const HostTensor& a) {
  double m = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    if (std::isfinite(a.at(i))) m = std::max(m, std::fabs(a.at(i)));
  return m;
}

double largest_error(const HostTensor& got, const HostTensor& want) {
  double worst = 0;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double g = got.at(i), w = want.at(i);
    if (g == w || (g != g && w != w)) continue;
    const double e = std::fabs(g - w);
    worst = std::max(worst, e == e ? e : HUGE_VAL);
  }
  return worst;
}

std::string difference(const HostTensor& got, const HostTensor& want, double slack) {
  if (!(got.type.shape == want.type.shape))
    return cat("shape ", got.type.shape, ", expected ", want.type.shape);
  const double allowed = slack * std::max(max_abs(want), max_abs(got));
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double g = got.at(i), w = want.at(i);
    if (g == w || (g != g && w != w) || std::fabs(g - w) <= allowed) continue;
    char text[128];
    std::snprintf(text, sizeof text, "%.17g, expected %.17g (%.3g apart, allowed %.3g)", g, w,
                  std::fabs(g - w), allowed);
    return cat("element ", i, " of ", want.type, " is ", text);
  }
  return "";
}

}  // namespace tegula::testing
