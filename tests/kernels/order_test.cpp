#include "tegula/kernels/order.h"

#include <gtest/gtest.h>

#include <set>

#include "tegula/kernels/registry.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;

Target amx() {
  Target t = *find_target("sapphire-rapids");
  t.n_threads = 3;
  return t;
}

// The orders of an op's kernels on the CPU, rungs that are kept for reading aside.
std::set<std::string_view> kernel_orders(std::string_view op) {
  std::set<std::string_view> orders;
  for (const KernelDef* k : cpu_kernels())
    if (k->op == op && k->priority >= 0) orders.insert(k->order);
  return orders;
}

TEST(Order, OpsOfSeveralOrdersHaveThemInTheTable) {
  std::set<std::string_view> ops;
  for (const KernelDef* k : cpu_kernels()) ops.insert(k->op);
  for (std::string_view op : ops) {
    std::set<std::string_view> told;
    const OrderDef* last = nullptr;
    for (const OrderDef& o : cpu_orders())
      if (o.op == op) told.insert(o.name), last = &o;
    if (kernel_orders(op).size() < 2) {
      EXPECT_TRUE(told.empty()) << op;
      continue;
    }
    EXPECT_EQ(told, kernel_orders(op)) << op;
    ASSERT_NE(last, nullptr) << op;
    EXPECT_TRUE(last->takes == nullptr && last->min_isa == Isa::kPortable) << op;
  }
}

// A product has one order whatever its extents, and a kernel of it.
TEST(Order, ExtentsNeverDecide) {
  const Target target = amx();
  const Attrs attrs{{"dims", std::string("b m k, b k n -> b m n")}};
  const Attrs wide{{"dims", std::string("b m k, b k n -> b m n")}, {"out", DType::kF32}};
  for (unsigned seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const int64_t b = pick(rng, 1, 2), m = pick(rng, 1, 40), k = pick(rng, 1, 80),
                  n = pick(rng, 1, 80);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const Attrs* a : {&attrs, &wide}) {
        const TensorRef in[] = {contiguous_ref(nullptr, {dtype, {b, m, k}}),
                                contiguous_ref(nullptr, {dtype, {b, k, n}})};
        const TensorRef out =
            contiguous_ref(nullptr, {a == &wide ? DType::kF32 : dtype, {b, m, n}});
        const KernelQuery q{.attrs = a, .in = in, .out = std::span(&out, 1), .target = &target};
        const auto order = resolve_order("dot", target, q);
        EXPECT_EQ(order, dtype == DType::kBF16 ? "amx_pairs" : "fma_chain");
        const KernelDef* kernel = best_kernel("dot", target, {&q, 1}, order);
        ASSERT_NE(kernel, nullptr) << b << " " << m << " " << k << " " << n;
        EXPECT_EQ(kernel->order, order);
      }
  }
}

TEST(Order, OneQueryIsAKindOfCall) {
  const Target target = amx();
  const auto order = [&](int64_t queries, int64_t heads, int64_t d, double softcap = 0) {
    const Attrs attrs{{"scale", 0.1}, {"softcap", softcap}};
    const TensorRef in[] = {contiguous_ref(nullptr, {DType::kBF16, {2, queries, heads, d}}),
                            contiguous_ref(nullptr, {DType::kBF16, {2, 70, 2, d}}),
                            contiguous_ref(nullptr, {DType::kBF16, {2, 70, 2, d}})};
    const TensorRef out[] = {contiguous_ref(nullptr, {DType::kBF16, {2, queries, heads, d}}),
                             contiguous_ref(nullptr, {DType::kF32, {2, heads, queries}})};
    const KernelQuery q{.attrs = &attrs, .in = in, .out = out, .target = &target};
    const auto name = resolve_order("attention", target, q);
    EXPECT_NE(best_kernel("attention", target, {&q, 1}, name), nullptr) << name;
    return name;
  };
  EXPECT_EQ(order(1, 4, 64), "amx_kb64");
  for (const int64_t queries : {2, 7, 16, 100}) EXPECT_EQ(order(queries, 4, 64), "amx_kb512");
  EXPECT_EQ(order(1, 4, 40), "amx_kb512");  // heads that no tile of 32 fits
  EXPECT_EQ(order(40, 4, 64, 5), "kb64");
  EXPECT_EQ(order(1, 4, 64, 5), "kb64");
}

}  // namespace
}  // namespace tegula
