// Integers mean one thing in kernels and references: all 64 bits count, and what does not fit
// wraps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/base/integer.h"
#include "tegula/base/philox.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/math.h"
#include "tegula/ops/sorting.h"
#include "tests/common/run_both.h"
#include "tests/ops/case.h"

namespace tegula::testing {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kBig = (int64_t{1} << 53) + 1;  // the least that double rounds
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// The first result, compiled and by reference, is `want`.
template <class Make>
void expect_ints(const std::vector<HostTensor>& in, const Ints& want, Make&& make) {
  const RanBoth ran =
      run_both(in, [&](Builder&, std::span<const Var> x) { return std::vector<Var>{make(x)}; });
  ASSERT_TRUE(ran.ok()) << ran.error.to_string();
  EXPECT_EQ(ints_of(ran.reference[0]), want) << "reference";
  EXPECT_EQ(ints_of(ran.compiled[0]), want) << "compiled";
}
HostTensor i64s(Ints v) {
  const auto n = static_cast<int64_t>(v.size());
  return tensor_of_ints(DType::kI64, {n}, std::move(v));
}

TEST(Integers, AllBitsCount) {
  const HostTensor x = i64s({kBig, kBig + 1, -kBig, 5}), y = i64s({kBig + 1, kBig, -kBig - 1, 5});
  using In = std::span<const Var>;
  expect_ints({x}, {-kBig, 5, kBig, kBig + 1}, [](In v) { return sort(v[0]).values; });
  expect_ints({x}, {kBig + 1, kBig}, [](In v) { return top_k(v[0], 2).values; });
  expect_ints({x}, {1}, [](In v) { return argmax(v[0]); });
  expect_ints({x}, {kBig, 2 * kBig + 1, kBig + 1, kBig + 6}, [](In v) { return cumsum(v[0], 0); });
  expect_ints({x}, {kBig + 6}, [](In v) { return reduce_sum(v[0], {0}); });
  expect_ints({x}, {kBig + 1}, [](In v) { return reduce_max(v[0], {0}); });
  expect_ints({x}, {-kBig}, [](In v) { return reduce_min(v[0], {0}); });
  expect_ints({x, i64s({1, 0, 1, 2})}, {kBig + 1, 0, 5},
              [](In v) { return scatter_add(v[0], v[1], 0, 3); });
  expect_ints({x, i64s({1, 9})}, {kBig + 1, 0}, [](In v) { return gather(v[0], v[1], 0); });
  expect_ints({x}, {kBig, -kBig, kBig + 1, 5}, [](In v) {
    return reshape(permute(reshape(v[0], {2, 2}), {1, 0}), {4});
  });
  expect_ints({x, y}, {kBig, kBig + 1, -kBig, 5, kBig + 1, kBig, -kBig - 1, 5},
              [](In v) { return concat(v, 0); });
  expect_ints({x, y}, {kBig + 1, kBig, -kBig - 1, 5},
              [](In v) { return select(eq(v[0], v[1]), v[0], v[1]); });
  expect_ints({x}, {kBig, kBig + 1, kBig, 5}, [](In v) { return abs(v[0]); });
  expect_ints({x, y}, {kBig + 1, kBig + 1, -kBig, 5}, [](In v) { return max(v[0], v[1]); });
  expect_ints({x, y}, {0, 0, 0, 1}, [](In v) { return eq(v[0], v[1]); });
  expect_ints({x, y}, {1, 0, 0, 0}, [](In v) { return lt(v[0], v[1]); });
  expect_ints({x}, {0, kBig, kBig + 1, -kBig, 5, 0},
              [](In v) { return pad(v[0], 0, 1, 1, 0, 0.0); });
  expect_ints({x}, {5, kBig + 1}, [](In v) { return slice(v[0], 0, 3, 2, -2); });
  expect_ints({x, y}, {5}, [](In v) { return slice(barrier(v, {})[1], 0, 3, 1); });
}

TEST(Integers, WrapInEveryType) {
  using In = std::span<const Var>;
  for (const DType t : {DType::kI64, DType::kI32, DType::kI8, DType::kU8}) {
    SCOPED_TRACE(std::string(dtype_name(t)));
    const int64_t low = least_int(t), high = greatest_int(t);
    const HostTensor x = tensor_of_ints(t, {3}, {high, low, 3}),
                     y = tensor_of_ints(t, {3}, {1, 1, high});
    const auto w = [&](uint64_t v) { return wrapped_int(t, static_cast<int64_t>(v)); };
    const auto u = [](int64_t v) { return static_cast<uint64_t>(v); };
    expect_ints({x, y}, {low, w(u(low) + 1), w(u(high) + 3)}, [](In v) { return v[0] + v[1]; });
    expect_ints({x, y}, {w(u(high) - 1), high, w(3 - u(high))}, [](In v) { return v[0] - v[1]; });
    expect_ints({x, y}, {high, low, w(3 * u(high))}, [](In v) { return v[0] * v[1]; });
    expect_ints({x}, {w(-u(high)), w(-u(low)), w(-u(3))}, [](In v) { return -v[0]; });
    expect_ints({x}, {high, low, 3}, [](In v) { return abs(v[0]); });
    expect_ints({x}, {w(u(high) + u(low) + 3)}, [](In v) { return reduce_sum(v[0], {0}); });
    expect_ints({x}, {high, w(u(high) + u(low)), w(u(high) + u(low) + 3)},
                [](In v) { return cumsum(v[0], 0); });
    expect_ints({x, i64s({0, 0, 0})}, {w(u(high) + u(low) + 3)},
                [](In v) { return scatter_add(v[0], v[1], 0, 1); });
    expect_ints(
        {tensor_of_ints(t, {1, 3}, {high, low, 3}), tensor_of_ints(t, {3, 1}, {high, 1, 2})},
        {t == DType::kI8 || t == DType::kU8 ? 0 : w(u(high) * u(high) + u(low) + 6)}, [t](In v) {
          const Var y = matmul(v[0], v[1]);  // of bytes it has no kernel: the reference
          return size_bits(t) == 8 ? cast(y, DType::kI64) * 0.0 : y;
        });
    // Past the range, and by -1: the least value is its own negative. By 0: the end of the range.
    expect_ints({x, tensor_of_ints(t, {3}, {0, 0, 0})}, {high, low < 0 ? low : 0, high},
                [](In v) { return v[0] / v[1]; });
    if (low < 0)
      expect_ints({x, tensor_of_ints(t, {3}, {-1, -1, -1})}, {w(-u(high)), low, -3},
                  [](In v) { return v[0] / v[1]; });
    expect_ints({i64s({kBig, 300, -129, kMost, kLeast})},
                {w(u(kBig)), w(300), w(u(-129)), w(u(kMost)), w(u(kLeast))},
                [t](In v) { return cast(v[0], t); });
  }
}

TEST(Integers, NothingIsReducedToTheEndOfTheRange) {
  using In = std::span<const Var>;
  for (const DType t : {DType::kI64, DType::kI32, DType::kI8, DType::kU8, DType::kBool}) {
    SCOPED_TRACE(std::string(dtype_name(t)));
    const HostTensor none = tensor_of_ints(t, {2, 0}, {}), rows = tensor_of_ints(t, {0, 2}, {});
    const Ints low = {least_int(t), least_int(t)}, high = {greatest_int(t), greatest_int(t)};
    for (const auto& [x, dim] : {std::pair(none, 1), std::pair(rows, 0)}) {
      expect_ints({x}, low, [d = dim](In v) { return reduce_max(v[0], {d}); });
      expect_ints({x}, high, [d = dim](In v) { return reduce_min(v[0], {d}); });
      expect_ints({x}, {0, 0}, [d = dim](In v) { return reduce_sum(v[0], {d}); });
    }
  }
}

TEST(Integers, FloatsAreHeldAtTheEndsOfTheRange) {
  for (const DType from : {DType::kF64, DType::kF32})
    for (const DType t : {DType::kI64, DType::kI32, DType::kI8, DType::kU8}) {
      SCOPED_TRACE(cat(from, " to ", t));
      const std::vector<double> v = {1e30, -1e30, HUGE_VAL, -HUGE_VAL, NAN, -2.9, 0.999, 7};
      const int64_t low = least_int(t), high = greatest_int(t);
      expect_ints({HostTensor({from, {8}}, v)},
                  {high, low, high, low, 0, std::max<int64_t>(low, -2), 0, 7},
                  [t](std::span<const Var> x) { return cast(x[0], t); });
    }
}

// Literals: what an integer does not hold is refused, not rounded.
TEST(Integers, LiteralsFit) {
  const auto error = [](auto make) {
    Module m;
    Builder b(m, "f");
    b.result("y", make(b.param("x", {DType::kI64, {3}})));
    const auto f = b.finish();
    return f.ok() ? std::string() : f.error().message;
  };
  EXPECT_NE(error([](Var x) { return lt(x, 2.5); }).find("i64 does not hold 2.5"),
            std::string::npos);
  EXPECT_NE(error([](Var x) { return x * 0.5; }).find("does not hold 0.5"), std::string::npos);
  EXPECT_NE(error([](Var x) { return cast(x, DType::kU8) + 256.0; }).find("does not hold 256"),
            std::string::npos);
  EXPECT_NE(error([](Var x) { return reduce_mean(x, {0}); }).find("cast it to a float first"),
            std::string::npos);
  EXPECT_EQ(error([](Var x) { return max(x * 2.0, -1.0); }), "");
}

// The extremes of every integer type through every sample of every op that takes integers.
HostTensor extremes(const Type& type, uint64_t seed, uint64_t stream) {
  HostTensor t(type);
  const int64_t low = least_int(type.dtype), high = greatest_int(type.dtype);
  const Ints values = {low, low + 1, 0, 1, 2, high / 2, high - 1, high, kBig, -kBig, -1, 3};
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double u = philox_uniform(seed, stream, static_cast<uint64_t>(i));
    store_int(t.ref(), i, values[static_cast<size_t>(u * static_cast<double>(values.size()))]);
  }
  return t;
}

bool is_alike(std::string_view types, size_t k) {  // operand k shares operand 0's type, "T"
  for (; k > 0 && types.find(',') != types.npos; --k) types.remove_prefix(types.find(',') + 1);
  types.remove_prefix(std::min(types.find_first_not_of(' '), types.size()));
  return k == 0 && !types.empty() && types[0] == 'T';
}

TEST(Integers, CompiledIsTheReference) {
  int n_tried = 0;
  for (const OpDef* op : all_ops()) {
    if (!op->reference.ints || !op->samples || op->types.empty()) continue;
    for (const Sample& s : op->samples()) {
      if (!s.expect_error.empty() || s.regions) continue;
      const Case c = make_case(*op, s, 7);
      for (const DType t : {DType::kI64, DType::kI32, DType::kI8, DType::kU8, DType::kBool}) {
        std::vector<HostTensor> in = c.values;
        std::vector<Type> types;
        for (size_t k = 0; k < in.size(); ++k) {
          if (is_alike(op->types, k)) in[k] = extremes({t, in[k].type.shape}, 7, k);
          types.push_back(in[k].type);
        }
        if (!infer({op, &s.attrs, types, {}, nullptr, {}}).ok()) continue;
        SCOPED_TRACE(cat(c.name(), " of ", t));
        const RanBoth ran = run_both(
            in, [&](Builder& b, std::span<const Var> x) { return b.emit_n(*op, s.attrs, x); });
        ASSERT_TRUE(ran.ok()) << ran.error.to_string();
        for (size_t r = 0; r < ran.compiled.size(); ++r)
          EXPECT_EQ(ints_of(ran.compiled[r]), ints_of(ran.reference[r])) << "result " << r;
        ++n_tried;
      }
    }
  }
  EXPECT_GT(n_tried, 400);
}

}  // namespace
}  // namespace tegula::testing
