// Ops whose order the table states, on a device and on the CPU, at sizes past every tile of their
// kernels, with ties, NaN, zeros of both signs and denormals: the same bits. Skipped where no GPU
// can be used.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tegula/base/denormals.h"
#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tests/kernels/strided.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

using Bytes = std::vector<std::vector<std::byte>>;  // of each result

// Few different numbers, of f32: what a stable order and "the latest among equals" are about. For
// sort without denormals, which the CPU, where the reference sorts, writes as zeros.
SampleInput rough(const Shape& shape, uint64_t seed, double tiny = 1e-40) {
  SampleInput s{{DType::kF32, shape}};
  const double few[] = {0., -0., 1, -1, 2.5, -2.5, tiny, -tiny, 3, INFINITY, -INFINITY, 7};
  uint64_t state = seed * 2 + 1;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uint64_t which = state >> 40;
    s.values.push_back(which % 499 == 0 ? NAN : few[which % 12]);
  }
  return s;
}
SampleInput drawn(DType t, const Shape& shape, double low, double high) {
  return {{t, shape}, low, high};
}

Bytes on_cpu(const Case& c) {
  Bytes bytes;
  std::vector<HostTensor> results;
  std::vector<TensorRef> out;
  for (const Type& t : c.out) results.emplace_back(t);
  for (HostTensor& t : results) out.push_back(t.ref());
  constexpr int kThreads = 2;
  const Target target = Target::this_cpu(kThreads);
  const std::vector<TensorRef> in = c.refs();
  const KernelQuery query{.attrs = &c.sample.attrs, .in = in, .out = out, .target = &target};
  const KernelDef* kernel = best_kernel(c.op->name, target, {&query, 1});
  if (kernel != nullptr) {
    run_kernel(*kernel, c.sample.attrs, in, out, kThreads);
  } else {
    const FlushDenormals flush;
    results = evaluate(c.call(), c.refs(), Arithmetic::kNaive).value();
  }
  for (const HostTensor& t : results) bytes.push_back(t.bytes);
  return bytes;
}

Bytes on_device(const Case& c, const KernelDef& kernel, Device& device, int64_t& flops) {
  std::vector<TensorRef> in = c.refs(), out;
  std::vector<void*> owned;
  const auto own = [&](int64_t bytes) {
    return owned.emplace_back(device.allocate(bytes).value());
  };
  for (TensorRef& t : in) {
    const int64_t bytes = t.numel() * size_bytes(t.dtype);
    void* data = own(bytes);
    device.copy(data, t.data, bytes).value();
    t.data = data;
  }
  Bytes results;
  for (const Type& t : c.out) {
    out.push_back(contiguous_ref(nullptr, t));
    results.emplace_back(static_cast<size_t>(t.bytes()));
    out.back().data = own(t.bytes());
  }
  Counters counters;
  DeviceCall call;
  call.attrs = &c.sample.attrs, call.in = in, call.out = out;
  call.counters = &counters, call.target = &device.target();
  const KernelQuery query{
      .attrs = &c.sample.attrs, .in = in, .out = out, .target = &device.target()};
  if (kernel.workspace_bytes != nullptr) call.workspace = own(kernel.workspace_bytes(query));
  launch_of(kernel)->prepare(call).value()->enqueue(device.stream()).value();
  device.wait().value();
  for (size_t r = 0; r < out.size(); ++r)
    device.copy(results[r].data(), out[r].data, c.out[r].bytes()).value();
  for (void* data : owned) device.release(data);
  flops = counters.math_flops;
  return results;
}

std::vector<Sample> large_samples(std::string_view op) {
  const auto line = [](int64_t dim, bool reverse, bool smallest = false) {
    Attrs a{{"dim", dim}, {"reverse", reverse}};
    if (smallest) a.set("smallest", true);
    return a;
  };
  std::vector<Sample> s;
  if (op == "cummax")
    s = {{"a long line", {rough({1, 7000}, 1)}, line(1, false)},
         {"few lines, back", {rough({5, 1300}, 2)}, line(1, true, true)},
         {"across", {rough({300, 2, 45}, 3)}, line(0, false)},
         {"many lines", {rough({70, 200}, 4)}, line(1, true)}};
  if (op == "linear_recurrence") {
    const auto two = [](const Shape& shape, double low, double high) {
      return std::vector{drawn(DType::kF32, shape, low, high), drawn(DType::kF32, shape, -1, 1)};
    };
    // With factors below .3 and 1e-30 to start with, the chain soon is denormal.
    s = {{"a long line", two({1, 5000}, -1.01, 1.01), line(1, false)},
         {"few lines, back", two({5, 1300}, -1, 1), line(1, true)},
         {"across", two({300, 2, 45}, -1, 1), line(0, false)},
         {"many lines", two({70, 200}, -1, 1), line(1, true)},
         {"decay",
          {drawn(DType::kF32, {3, 700}, .1, .3), drawn(DType::kF32, {3, 700}, 1e-39, 1e-38)},
          line(1, false)}};
  }
  if (op == "sort")
    s = {{"a tile", {rough({3, 2048}, 1, .5)}, {}},
         {"merged", {rough({2, 9001}, 2, .5)}, {}},
         {"down", {rough({3, 5000}, 3, .5)}, {{"descending", true}}},
         {"many rows", {rough({40, 3, 77}, 4, .5)}, {{"descending", true}}},
         {"whole numbers", {drawn(DType::kI64, {2, 4100}, -50, 50)}, {}}};
  if (op == "embedding_bwd") {
    const auto rows = [](int64_t n) { return Attrs{{"rows", std::vector<Dim>{n}}}; };
    s = {{"few of many ids",
          {drawn(DType::kF32, {3, 3001, 20}, -1, 1), drawn(DType::kI32, {3, 3001}, -1, 3)},
          rows(3)},
         {"many ids, wide",
          {drawn(DType::kF32, {2500, 300}, -1, 1), drawn(DType::kI64, {2500}, -5, 4000)},
          rows(4000)},
         {"bf16",
          {drawn(DType::kBF16, {4100, 8}, -1, 1), drawn(DType::kI32, {4100}, 0, 200)},
          rows(200)}};
  }
  if (op == "scatter")
    for (const char* mode : {"add", "max", "set"})
      s.push_back({cat("rows of ids, ", mode),
                   {drawn(DType::kF32, {3, 5000}, -1, 1), drawn(DType::kI32, {3, 5000}, -1, 90)},
                   {{"dim", int64_t{1}},
                    {"batch", int64_t{1}},
                    {"size", std::vector<Dim>{90}},
                    {"mode", std::string(mode)}}});
  if (op == "searchsorted") {
    SampleInput ascending{{DType::kF32, {3000}}};
    for (int i = 0; i < 3000; ++i) ascending.values.push_back(std::floor(i / 7.0) * .25 - 50);
    s = {{"left", {ascending, drawn(DType::kF32, {5000}, -60, 60)}, {}},
         {"right", {ascending, rough({5000}, 1)}, {{"right", true}}}};
  }
  if (op == "max_pool") {
    const auto two = [](int64_t v) { return std::vector<int64_t>{v, v}; };
    s = {{"planes",
          {rough({3, 5, 40, 37}, 1)},
          {{"kernel", two(3)},
           {"stride", two(2)},
           {"lo", two(1)},
           {"hi", two(1)},
           {"dilation", two(2)}}}};
  }
  if (op == "dot_i8") {
    const DType i8 = DType::kI8, f32 = DType::kF32;
    for (const int64_t m : {5, 130})
      for (const int64_t bits : {8, 4})
        s.push_back(
            {cat(m, " rows, ", bits, " bits"),
             {drawn(i8, {m, 420}, -128, 127), drawn(f32, {m}, 0, .01),
              bits == 8 ? drawn(i8, {420, 150}, -128, 127) : drawn(DType::kU8, {210, 150}, 0, 255),
              drawn(f32, {6, 150}, -.02, .02)},
             {{"bits", bits}}});
  }
  return s;
}

class DeviceBits : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceBits, AreTheCpus) {
  const auto opened = open_device();
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  const KernelDef* kernel = nullptr;
  for (const KernelDef* k : all_kernels())
    if (k->device == DeviceKind::kCuda && k->op == GetParam()) kernel = k;
  ASSERT_NE(kernel, nullptr);
  for (const Sample& s : large_samples(GetParam())) {
    const Case c = make_case(*find_op(GetParam()), s, 1);
    ASSERT_FALSE(c.out.empty()) << c.name();
    int64_t flops = 0;
    const Bytes got = on_device(c, *kernel, **opened, flops);
    if (is_launch_only()) continue;
    EXPECT_EQ(flops, flops_of(c.call())) << c.name();
    const Bytes want = on_cpu(c);
    for (size_t r = 0; r < want.size(); ++r) {
      const auto differs = std::mismatch(want[r].begin(), want[r].end(), got[r].begin());
      EXPECT_TRUE(got[r] == want[r])
          << c.name() << ", result " << r << ": the first byte that differs is "
          << differs.first - want[r].begin() << " of " << want[r].size();
    }
  }
  if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
}
INSTANTIATE_TEST_SUITE_P(Ops, DeviceBits,
                         ::testing::Values("cummax", "linear_recurrence", "sort", "searchsorted",
                                           "max_pool", "dot_i8", "embedding_bwd", "scatter"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tegula::testing
