// Case: one sample of one op, with its values drawn; what every check of the runner takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/ir/interpret.h"
#include "tegula/ir/reference.h"

namespace tegula::testing {

// The finding of a check. A skip says why the check does not apply.
struct Verdict {
  enum Kind : uint8_t { kPass, kSkip, kFail };
  Kind kind = kPass;
  std::string why;
};
inline Verdict pass() { return {}; }
inline Verdict skip(std::string why) { return {Verdict::kSkip, std::move(why)}; }
inline Verdict fail(std::string why) { return {Verdict::kFail, std::move(why)}; }

// How far two f64 evaluations of one value may lie apart, relative to the largest term: no sample
// sums more than 2^12 terms, and a sum of n terms is off by at most n·2^-53 of Σ|terms|, twice.
inline constexpr double kF64Slack = 0x1p-40;

struct Case {
  const OpDef* op = nullptr;
  Sample sample;
  uint64_t seed = 0;
  Module module;  // holds the sample's regions
  std::vector<FuncId> regions;
  std::vector<Type> in, out;  // symbolic dims at their bounds; out empty where infer() fails
  std::vector<HostTensor> values;

  OpCall call() const { return {op, &sample.attrs, in, out, &module, regions}; }
  // "op dot, sample \"matrix\", seed 1"
  std::string name() const;
  std::vector<TensorRef> refs() const;
};

// Draws the values by (seed, operand, element) and infers the result types.
Case make_case(const OpDef& op, const Sample& sample, uint64_t seed);

// Whether OpDef::types lets operand k share operand 0's dtype.
bool is_alike(const OpDef& op, size_t k);
// The case with its f32 operands in another float dtype: all of them, or, where the op does not
// take that, those alike. None: it takes neither.
std::optional<Case> in_dtype(const Case& c, DType narrow);

// Uniform in [-1, 1), by (seed, stream, element): directions and cotangents.
HostTensor random_f64(const Shape& shape, uint64_t seed, uint64_t stream);

// The op's results on given operands. Zero-filled f64 (oracle) or plain (naive) tensors.
Result<std::vector<HostTensor>> evaluate(const OpCall& call, std::span<const TensorRef> in,
                                         Arithmetic arithmetic);

double dot_of(const HostTensor& a, const HostTensor& b);      // Σ a·b over a ≠ 0
double abs_dot_of(const HostTensor& a, const HostTensor& b);  // Σ |a·b|
double max_abs(const HostTensor& a);                          // finite elements only

// The largest difference of two elements: 0 where both are NaN, infinite where one is.
double largest_error(const HostTensor& got, const HostTensor& want);

// Equal elements, or closer than `slack` × the largest element; NaN and inf must coincide.
// Empty: they agree; else which element does not.
std::string difference(const HostTensor& got, const HostTensor& want, double slack);

}  // namespace tegula::testing
