// Every kernel of the CUDA plug-in on a GPU, through its KernelDef: the samples of its op, and the
// same with heads of 64 and 128 (of e4m3: to 256), against the f64 reference. Skipped where no GPU
// can be used.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "tegula/kernels/registry.h"
#include "tegula/ops/table.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

// Attention and its backward: q, k, v (and o, do) with heads of `d`, scores kept in range.
Sample widened(const Sample& s, int64_t d, bool is_backward) {
  Sample wide = s;
  wide.name = cat(s.name, ", heads of ", d);
  for (size_t i = 0; i < (is_backward ? 6U : 3U); ++i)
    if (i != 4) wide.in[i].type.shape[3] = d;
  wide.attrs.set("scale", s.attrs.f("scale") / 8);
  return wide;
}

// Few and many rows, in whole pieces of 16 bytes, with the matrix lying either way.
void add_products(std::vector<Sample>& all) {
  for (const char* dims : {"m k, k n -> m n", "m k, n k -> m n"})
    for (const int64_t m : {1, 3, 9, 70})
      for (const DType t : {DType::kF32, DType::kBF16}) {
        const bool is_transposed = std::string_view(dims).find("n k") != std::string_view::npos;
        const Shape b = is_transposed ? Shape{136, 320} : Shape{320, 136};
        all.push_back({cat(dims, " of ", m, " rows, ", dtype_name(t)),
                       {{{t, {m, 320}}}, {{t, b}}},
                       {{"dims", std::string(dims)}}});
      }
}

std::vector<Sample> samples_of(const OpDef& op) {
  std::vector<Sample> all;
  const bool is_backward = op.name == "attention_bwd";
  if (op.name == "dot") add_products(all);
  for (const Sample& s : op.samples()) {
    if (!s.expect_error.empty()) continue;
    all.push_back(s);
    if (!is_backward && op.name != "attention") continue;
    for (const int64_t d : {64, 128}) all.push_back(widened(s, d, is_backward));
    if (s.in[0].type.dtype == DType::kF8E4M3)
      for (const int64_t d : {192, 256}) all.push_back(widened(s, d, is_backward));
  }
  return all;
}

// In parts, so that processes can share them (GTEST_TOTAL_SHARDS): most of the time is compiling.
constexpr int kParts = 16;
class DeviceKernels : public ::testing::TestWithParam<int> {
 protected:
  static std::map<std::string_view, int> n_checked;
  static void TearDownTestSuite() {
    const bool is_all = std::getenv("GTEST_TOTAL_SHARDS") == nullptr &&
                        std::getenv("TEGULA_TEST_KERNEL") == nullptr &&
                        GTEST_FLAG_GET(filter) == "*";
    for (const auto& [name, n] : n_checked) {
      std::printf("%-28s %d calls\n", std::string(name).c_str(), n);
      if (is_all) EXPECT_GT(n, 0) << name << " serves none of the samples";
    }
  }
};
std::map<std::string_view, int> DeviceKernels::n_checked;

TEST_P(DeviceKernels, SamplesOfTheirOps) {
  const auto opened = open_device();
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  Device& device = **opened;
  std::printf("%s\n", device.target().name.c_str());
  int index = 0;
  const char* only = std::getenv("TEGULA_TEST_KERNEL");  // kernels whose name has this
  for (const KernelDef* kernel : all_kernels()) {
    if (kernel->device != DeviceKind::kCuda) continue;
    if (only != nullptr && kernel->name.find(only) == std::string_view::npos) continue;
    const OpDef* op = find_op(kernel->op);
    ASSERT_NE(op, nullptr) << kernel->name;
    if (op->samples == nullptr) continue;  // of fused loops: tests/tile
    int& n = n_checked[kernel->name];
    for (const Sample& s : samples_of(*op)) {
      if (index++ % kParts != GetParam()) continue;
      for (const uint64_t seed : {1, 2}) {
        const Case c = make_case(*op, s, seed);
        const Verdict v = check_kernel_on_device(c, *kernel, device, kernel->repeats_bits, n);
        if (v.kind == Verdict::kFail) ADD_FAILURE() << c.name() << "\n" << v.why;
      }
    }
  }
  if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
}
INSTANTIATE_TEST_SUITE_P(Parts, DeviceKernels, ::testing::Range(0, kParts));

// Samples of what dropout keeps, where 4 neighbours of a query have one block of random numbers
// that threads share, where rows begin within a block, and where a packed sequence's keys do; with
// two heads, and past a tile.
std::vector<Sample> dropouts(std::string_view op, int64_t d) {
  std::vector<Sample> all;
  for (const auto& [name, n_keys] :
       {std::pair{"whole blocks", 76}, {"blocks across rows", 74}, {"a sequence's blocks", 76}}) {
    const bool is_packed = std::string_view(name).starts_with("a seq");
    const Shape q = {1, 21, 2, d}, k = {1, n_keys, 1, d};
    const DType t = d == 64 ? DType::kF32 : DType::kBF16;  // f32: and what is narrower
    Sample s{cat(op, ": ", name, ", heads of ", d),
             {{{t, q}}, {{t, k}}, {{t, k}}},
             {{"dropout", 0.4}, {"scale", 0.1}, {"stream", int64_t{3}}}};
    if (op == "attention_bwd") {
      s.in.push_back({{t, q}});
      s.in.push_back({{DType::kF32, {1, 2, 21}}, 3, 4});
      s.in.push_back({{t, q}});
    }
    if (is_packed) {
      s.attrs.set("varlen", true);
      s.in.push_back({{DType::kI32, {3}}, 0, 0, {0, 2, 21}});
      s.in.push_back({{DType::kI32, {3}}, 0, 0, {0, 6, 76}});
    }
    s.in.push_back({{DType::kI64, {}}, 0, 1000});
    all.push_back(std::move(s));
  }
  return all;
}

class DeviceDropout : public ::testing::TestWithParam<int> {};

TEST_P(DeviceDropout, KeepsWhatTheSeedSays) {
  const auto opened = open_device();
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  const char* only = std::getenv("TEGULA_TEST_KERNEL");
  for (const KernelDef* kernel : all_kernels()) {
    if (kernel->device != DeviceKind::kCuda || !kernel->op.starts_with("attention")) continue;
    if (only != nullptr && kernel->name.find(only) == std::string_view::npos) continue;
    int n = 0;
    for (const Sample& s : dropouts(kernel->op, GetParam())) {
      const Case c = make_case(*find_op(kernel->op), s, 1);
      ASSERT_FALSE(c.out.empty()) << infer(c.call()).error().message;
      const Verdict v = check_kernel_on_device(c, *kernel, **opened, kernel->repeats_bits, n);
      if (v.kind == Verdict::kFail) ADD_FAILURE() << c.name() << "\n" << v.why;
    }
    std::printf("%-28s %d calls\n", std::string(kernel->name).c_str(), n);
  }
  if (is_launch_only()) GTEST_SKIP() << kLaunchOnly;
}
INSTANTIATE_TEST_SUITE_P(HeadDims, DeviceDropout, ::testing::Values(64, 128, 192));

}  // namespace
}  // namespace tegula::testing
