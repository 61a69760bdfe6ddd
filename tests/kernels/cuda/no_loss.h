// That a variant of a kernel fits a multiprocessor and compiles without loss.
#pragma once

#include <gtest/gtest.h>

#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/cuda/variants.h"

namespace tegula::cuda::testing {

// Skips where there is no compiler.
inline void expect_no_loss(std::string_view source, const std::vector<std::string>& defines,
                           std::string_view arch = "sm_90a") {
  const Result<Compiled> c = compile_kernel(source, defines, arch);
  if (!c.ok() && c.error().code == Code::kUnsupported) GTEST_SKIP() << c.error().message;
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->spill_bytes, 0) << c->log;
  EXPECT_FALSE(c->is_serialized) << c->log;
  EXPECT_GT(c->registers, 0) << c->log;
  EXPECT_FALSE(c->cubin.empty());
}

template <class Variant>
void expect_no_loss(const Result<Variant>& v, std::string_view source,
                    std::string_view arch = "sm_90a") {
  ASSERT_TRUE(v.ok()) << v.error().message;
  SCOPED_TRACE(v->name());
  EXPECT_LE(v->smem_bytes(), smem_limit_bytes(arch));
  expect_no_loss(source, v->defines(), arch);
}

}  // namespace tegula::cuda::testing
