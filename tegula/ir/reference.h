// RefArgs: what an op's reference sees, for the f64 oracle, the naive f32 kernel and the counter.
//
// A reference is a functor with `template <class S> void operator()(RefArgs<S>&) const` made of
// plain loops; reference_of<Functor> instantiates it for the scalars of floats, reference_with_ints
// for exact integers too. Loads convert to S, stores round (an Integer: wraps) to the tensor's
// dtype. Only arithmetic on S counts as FLOPs; index arithmetic does not.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tegula/base/element.h"
#include "tegula/base/half.h"
#include "tegula/base/integer.h"
#include "tegula/ir/opdef.h"

namespace tegula {

// A double that counts every operation done on it (thread-local total). add, sub, mul, div, max,
// min, neg and each transcendental function count 1, fma and abs (the larger of x and -x) 2;
// comparisons, selections and copies count 0.
struct Counted {
  double v = 0;
  Counted() = default;
  Counted(double x) : v(x) {}
  static int64_t& flops() {
    thread_local int64_t n = 0;
    return n;
  }
  static Counted did(double x, int64_t n = 1) {
    flops() += n;
    return Counted(x);
  }
  explicit operator double() const { return v; }
  friend Counted operator+(Counted a, Counted b) { return did(a.v + b.v); }
  friend Counted operator-(Counted a, Counted b) { return did(a.v - b.v); }
  friend Counted operator*(Counted a, Counted b) { return did(a.v * b.v); }
  friend Counted operator/(Counted a, Counted b) { return did(a.v / b.v); }
  friend Counted operator-(Counted a) { return did(-a.v); }
  Counted& operator+=(Counted b) { return *this = *this + b; }
  Counted& operator-=(Counted b) { return *this = *this - b; }
  Counted& operator*=(Counted b) { return *this = *this * b; }
  friend bool operator<(Counted a, Counted b) { return a.v < b.v; }
  friend bool operator>(Counted a, Counted b) { return a.v > b.v; }
  friend bool operator<=(Counted a, Counted b) { return a.v <= b.v; }
  friend bool operator>=(Counted a, Counted b) { return a.v >= b.v; }
  friend bool operator==(Counted a, Counted b) { return a.v == b.v; }
};

// Scalar functions for references: the same names for double, float and Counted.
inline constexpr double kInfinity = __builtin_huge_val(), kNaN = __builtin_nan("");

namespace scalar {
// (Builtins, for <cmath> takes longer to parse than most ops take to compile.)
#define TEGULA_SCALAR_UNARY(name)                               \
  inline double name(double x) { return __builtin_##name(x); }  \
  inline float name(float x) { return __builtin_##name##f(x); } \
  inline Counted name(Counted x) { return Counted::did(__builtin_##name(x.v)); }
TEGULA_SCALAR_UNARY(exp)
TEGULA_SCALAR_UNARY(log)
TEGULA_SCALAR_UNARY(sqrt)
TEGULA_SCALAR_UNARY(tanh)
TEGULA_SCALAR_UNARY(erf)
TEGULA_SCALAR_UNARY(sin)
TEGULA_SCALAR_UNARY(cos)
TEGULA_SCALAR_UNARY(floor)
#undef TEGULA_SCALAR_UNARY
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline Counted fma(Counted a, Counted b, Counted c) {
  return Counted::did(__builtin_fma(a.v, b.v, c.v), 2);
}
// NaN wins, as in the kernels.
inline double max(double a, double b) { return a > b || a != a ? a : b; }
inline float max(float a, float b) { return a > b || a != a ? a : b; }
inline Counted max(Counted a, Counted b) { return Counted::did(max(a.v, b.v)); }
inline double min(double a, double b) { return a < b || a != a ? a : b; }
inline float min(float a, float b) { return a < b || a != a ? a : b; }
inline Counted min(Counted a, Counted b) { return Counted::did(min(a.v, b.v)); }
inline double pow(double a, double b) { return __builtin_pow(a, b); }
inline float pow(float a, float b) { return __builtin_powf(a, b); }
inline Counted pow(Counted a, Counted b) { return Counted::did(__builtin_pow(a.v, b.v)); }
inline bool is_nan(double a) { return a != a; }
inline bool is_nan(float a) { return a != a; }
inline bool is_nan(Counted a) { return a.v != a.v; }
inline double abs(double a) { return __builtin_fabs(a); }
inline float abs(float a) { return __builtin_fabsf(a); }
inline Counted abs(Counted a) { return Counted::did(__builtin_fabs(a.v), 2); }
inline Integer max(Integer a, Integer b) { return a > b ? a : b; }
inline Integer min(Integer a, Integer b) { return a < b ? a : b; }
inline Integer abs(Integer a) { return a.v < 0 ? -a : a; }
inline Integer fma(Integer a, Integer b, Integer c) { return a * b + c; }
inline bool is_nan(Integer) { return false; }

// The activations, whether ops of their own or a contraction's epilogue. relu keeps -0 and NaN;
// silu and gelu (the tanh form) are -0, their limit, at -inf.
template <class S>
S relu(S x) {
  return max(S(0.0), x);
}
template <class S>
S silu(S x) {
  const S y = x / (S(1.0) + exp(-x));
  return x == S(-kInfinity) ? S(-0.0) : y;
}
template <class S>
S gelu(S x) {
  constexpr double kC = 0.7978845608028654;  // sqrt(2/pi)
  const S inner = x * ((x * x) * S(kC * 0.044715) + S(kC));
  const S y = x * S(0.5) * (S(1.0) + tanh(inner));
  return x == S(-kInfinity) ? S(-0.0) : y;
}
}  // namespace scalar

using Index = std::array<int64_t, kMaxRank>;

// The part that references see whatever their scalar: the call, its tensors' elements by index, and
// a note of which of them they touched.
class RefTensors {
 public:
  OpCall call;
  std::span<const TensorRef> in;
  std::span<const TensorRef> out;
  // One byte per element of each operand and result, set to 1 when touched; empty: not tracked.
  std::vector<std::vector<uint8_t>>* touched_in = nullptr;
  std::vector<std::vector<uint8_t>>* touched_out = nullptr;
  bool on_tensor_cores = false;  // Arithmetic::kTensorCores

  const Attrs& attrs() const { return *call.attrs; }
  int64_t dim(size_t k, int d) const { return in[k].shape[d]; }
  int64_t out_dim(size_t k, int d) const { return out[k].shape[d]; }

  template <class... I>
  int64_t load_i(size_t k, I... index) const {
    return load_i_at(k, Index{static_cast<int64_t>(index)...});
  }
  int64_t load_i_at(size_t k, const Index& index) const;
  void store_i_at(size_t k, int64_t value, const Index& index) const;
  double load_float_at(size_t k, const Index& index) const;
  void store_float_at(size_t k, double value, const Index& index) const;

  static int64_t offset_at(const TensorRef& t, const Index& index);
  static int64_t row_major_at(const TensorRef& t, const Index& index);
};

template <class S>
class RefArgs : public RefTensors {
 public:
  // Runs region r (an op's body) on tensors, with the same scalar; set by whoever runs references.
  void (*run_region)(RefArgs&, size_t region, std::span<const TensorRef> in,
                     std::span<const TensorRef> out) = nullptr;

  template <class... I>
  S load(size_t k, I... index) const {
    return load_at(k, Index{static_cast<int64_t>(index)...});
  }
  S load_at(size_t k, const Index& index) const {
    if constexpr (std::is_same_v<S, Integer>) {
      return Integer::of(load_i_at(k, index));
    } else {
      return S(load_float_at(k, index));
    }
  }
  template <class... I>
  void store(size_t k, S value, I... index) const {
    store_at(k, value, Index{static_cast<int64_t>(index)...});
  }
  void store_at(size_t k, S value, const Index& index) const {
    if constexpr (std::is_same_v<S, Integer>) {
      store_i_at(k, value.v, index);
    } else {
      store_float_at(k, static_cast<double>(value), index);
    }
  }
};

template <class F>
constexpr Reference reference_of = {[](RefArgs<Counted>& a) { F{}(a); },
                                    [](RefArgs<float>& a) { F{}(a); }};
template <class F>
constexpr Reference reference_with_ints = {reference_of<F>.f64, reference_of<F>.f32,
                                           [](RefArgs<Integer>& a) { F{}(a); }};

// Whether tensors run in exact integers: the op has them, and no operand or result is a float.
bool runs_in_ints(const Reference& r, std::span<const TensorRef> in,
                  std::span<const TensorRef> out);
// Whether every result is a float of at most 32 bits.
bool runs_in_f32(std::span<const TensorRef> out);
// Calls run(instantiation) with the one for tensors of their own precision: exact integers, or
// float where every result is a float of at most 32 bits, else double.
template <class Run>
auto at_own_precision(const Reference& r, std::span<const TensorRef> in,
                      std::span<const TensorRef> out, Run&& run) {
  if (runs_in_ints(r, in, out)) return run(r.ints);
  return runs_in_f32(out) ? run(r.f32) : run(r.f64);
}

// The results of an empty max and an empty min: the least (greatest) value of the type; floats:
// -inf (inf).
template <class S>
S least(DType t) {
  if constexpr (std::is_same_v<S, Integer>) {
    return Integer::of(least_int(t));
  } else {
    return S(is_float(t) ? -kInfinity : static_cast<double>(least_int(t)));
  }
}
template <class S>
S greatest(DType t) {
  if constexpr (std::is_same_v<S, Integer>) {
    return Integer::of(greatest_int(t));
  } else {
    return S(is_float(t) ? kInfinity : static_cast<double>(greatest_int(t)));
  }
}

// Calls fn(index) for every index of the shape, last dim fastest.
void for_each_index(std::span<const int64_t> shape, void (*fn)(void* object, const Index& index),
                    void* object);
template <class F>
void for_each_index(std::span<const int64_t> shape, F&& fn) {
  using Fn = std::remove_reference_t<F>;
  for_each_index(
      shape, [](void* object, const Index& index) { (*static_cast<Fn*>(object))(index); },
      const_cast<void*>(static_cast<const void*>(&fn)));
}
inline std::span<const int64_t> shape_of(const TensorRef& t) {
  return {t.shape, static_cast<size_t>(t.rank)};
}

// The values that a test feeds an operand: values drawn by (seed, index), or given outright.
struct SampleInput {
  SampleInput();
  SampleInput(const Type& type, double low = -1, double high = 1, std::vector<double> values = {},
              bool is_differentiable = true);
  SampleInput(const SampleInput& other);
  SampleInput(SampleInput&& other) noexcept;
  SampleInput& operator=(const SampleInput& other);
  SampleInput& operator=(SampleInput&& other) noexcept;
  ~SampleInput();
  Type type;
  double low = -1, high = 1;      // uniform; integers draw from [low, high]
  std::vector<double> values;     // if not empty: the values, row-major
  bool is_differentiable = true;  // floats only
};

// One case of an op: exercises it, its edges, or (expect_error) its bad inputs.
struct Sample {
  using Regions = std::vector<FuncId> (*)(Module&);
  Sample() = default;
  Sample(std::string_view name, std::initializer_list<SampleInput> in, Attrs attrs = {},
         std::string_view expect_error = {}, bool smooth = true, Regions regions = nullptr,
         std::string_view cost_bound = {});
  Sample(std::string_view name, std::vector<SampleInput> in, Attrs attrs = {},
         std::string_view expect_error = {}, bool smooth = true, Regions regions = nullptr,
         std::string_view cost_bound = {});
  Sample(const Sample& other);
  Sample(Sample&& other) noexcept;
  Sample& operator=(const Sample& other);
  Sample& operator=(Sample&& other) noexcept;
  ~Sample();
  std::string name;
  std::vector<SampleInput> in;
  Attrs attrs;
  std::string expect_error;  // a part of the message infer() must give; empty: valid
  bool smooth = true;        // finite differences apply at (almost) every drawn point
  // Adds the functions that the op takes as regions to the module; null: none.
  Regions regions = nullptr;
  // Not empty: this case's cost depends on its values, and flops and bytes price a bound of it, for
  // this reason. What is counted may then be less, never more.
  std::string cost_bound;
};

}  // namespace tegula
