// The matmul kernels need a GPU to run, but not to compile: what is chosen compiles without loss
// and fits, and calls that cannot be served are refused. What the kernels compute is checked on a
// GPU by bench/cuda/matmul.py.
#include <gtest/gtest.h>

#include <algorithm>

#include "tegula/kernels/cuda/matmul.h"
#include "tegula/kernels/cuda/matmul_rungs.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tests/kernels/cuda/no_loss.h"

namespace tegula::cuda {
namespace {

constexpr int kSmemLimit_bytes = 227 * 1024;

MatmulShape shape(int64_t m, int64_t n, int64_t k, bool a_mn_major = false,
                  bool b_mn_major = true) {
  return {m, n, k, a_mn_major, b_mn_major};
}

std::vector<MatmulShape> shapes() {
  std::vector<MatmulShape> all;
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const int64_t n : {1, 300, 2048, 8192}) all.push_back(shape(n, n, n, a, b));
  return all;
}

using testing::expect_no_loss;

class CudaMatmul : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto version = nvrtc_version(); !version.ok())
      GTEST_SKIP() << version.error().message;
  }
};

TEST_F(CudaMatmul, ChosenVariantsCompileWithoutLoss) {
  std::vector<std::string> seen;
  for (const MatmulShape& s : shapes()) {
    const MatmulVariant v = choose_matmul(s);
    EXPECT_EQ(v.a_mn_major, s.a_mn_major);
    EXPECT_EQ(v.b_mn_major, s.b_mn_major);
    EXPECT_LE(v.smem_bytes(), kSmemLimit_bytes) << v.name();
    if (std::find(seen.begin(), seen.end(), v.name()) != seen.end()) continue;
    seen.push_back(v.name());
    expect_no_loss("matmul_sm90.cu", v.defines());
  }
}

TEST_F(CudaMatmul, RungsCompileWithoutLoss) {
  for (const MatmulRung& r : matmul_rungs()) expect_no_loss(r.source, r.defines);
  for (const bool b_mn_major : {false, true})
    for (const char* arch : {"sm_80", "sm_90a"})
      expect_no_loss("matmul_mma.cu", MatmulMmaKernel::defines(b_mn_major), arch);
  expect_no_loss("divergence.cu", {});
  EXPECT_LE(MatmulMmaKernel::smem_bytes(90), kSmemLimit_bytes);
  EXPECT_LE(MatmulMmaKernel::smem_bytes(80), 163 * 1024);
  EXPECT_LE(MatmulMmaKernel::smem_bytes(89), 99 * 1024);
}

TEST_F(CudaMatmul, TooManyStagesDoNotCompile) {
  MatmulVariant v;
  v.n_stages = 5;
  EXPECT_GT(v.smem_bytes(), kSmemLimit_bytes);
  const Result<Compiled> c = compile_kernel("matmul_sm90.cu", v.defines());
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("227"), std::string::npos) << c.error().message;
}

TEST(CudaMatmulCall, RefusesShapesAndStrides) {
  alignas(16) char memory[32] = {};
  const MatmulCall good{
      .shape = shape(100, 200, 300), .a = {memory, 304}, .b = {memory, 200}, .c = {memory, 200}};
  ASSERT_TRUE(check_matmul(good).ok()) << check_matmul(good).error().message;
  const auto refused = [&](auto change, const char* says) {
    MatmulCall call = good;
    change(call);
    const Status s = check_matmul(call);
    ASSERT_FALSE(s.ok()) << says;
    EXPECT_NE(s.error().message.find(says), std::string::npos) << s.error().message;
  };
  refused([](MatmulCall& c) { c.shape.k = 0; }, "empty");
  refused([](MatmulCall& c) { c.shape.m = int64_t{1} << 31; }, "2^30");
  refused([](MatmulCall& c) { c.a.stride = 300; }, "the rows of a are 300 elements apart");
  refused([](MatmulCall& c) { c.b.stride = 192; }, "at least 200");
  refused([&](MatmulCall& c) { c.c.data = memory + 2; }, "c is not aligned");
  // Transposed operands have rows of the other extent.
  refused([](MatmulCall& c) { c.shape.b_mn_major = false; }, "at least 300");
  MatmulCall transposed = good;
  transposed.shape.a_mn_major = true;
  transposed.a.stride = 104;
  EXPECT_TRUE(check_matmul(transposed).ok());
}

TEST(CudaMatmulCall, RungsRefuseWhatTheyCannotIndex) {
  EXPECT_TRUE(check_matmul_rung(4096, 4096, 4096).ok());
  EXPECT_FALSE(check_matmul_rung(0, 1, 1).ok());
  const Status s = check_matmul_rung(65536, 1, 65536);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace tegula::cuda
