#include "tegula/cost/price.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/cost/calls.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace {

// An H200's row says: large products at .845 of the peak, three quarters of its clock when
// they keep .8 of it busy; nine tenths of the bandwidth.
constexpr double kBusy = 0.845;

TEST(Price, IsTheLongerOfWorkAndBytes) {
  const Target h200 = *find_target("h200");
  // 2·4096³ operations of bf16 at 989e12 a second; 3·4096²·2 bytes at 4.8e12.
  EXPECT_DOUBLE_EQ(price(h200, DType::kBF16, 2.0 * 4096 * 4096 * 4096, 3.0 * 4096 * 4096 * 2),
                   2.0 * 4096 * 4096 * 4096 / (989e12 * kBusy * .75));
  EXPECT_DOUBLE_EQ(price(h200, DType::kF32, 0, .9 * 4.8e12), 1);
  Target slower = h200;  // what was measured holds
  slower.flops_efficiency = 0.5, slower.bytes_efficiency = 0.25;
  EXPECT_DOUBLE_EQ(price(slower, DType::kBF16, 989e12, 0), 2);
  EXPECT_DOUBLE_EQ(price(slower, DType::kBF16, 0, 4.8e12), 4);
}

double price_of_dot(const Target& target, int64_t m, int64_t k, int64_t n, DType dtype) {
  const Attrs attrs{{"dims", std::string("m k, k n -> m n")}};
  const Type in[] = {{dtype, {m, k}}, {dtype, {k, n}}}, out[] = {{dtype, {m, n}}};
  return price(target, {&dot_op, &attrs, in, out, nullptr, {}});
}

TEST(Price, OfAnOp) {
  const Target h200 = *find_target("h200");
  // One row: the matrix is read. 3 µs of launch, 2 of a product's start, and half of the products,
  // 32 tiles side by side, are not hidden behind it.
  const double few = 2.0 * 4096 * 4096 / 989e12 / (kBusy * 4096 / (4096 + 150.0));
  EXPECT_DOUBLE_EQ(price_of_dot(h200, 1, 4096, 4096, DType::kBF16),
                   5e-6 + 2.0 * (4096 + 4096 * 4096 + 4096) / (.9 * 4.8e12) + few / 2);
  // 1024 tiles of 128² on 132 multiprocessors: 7.76 of 8 waves, at k / (k + 150) of .845, and the
  // clock that products alone leave at that load.
  const double peak_s = 2.0 * 4096 * 4096 * 4096 / 989e12;
  const double memory = 3 * 2.0 * 4096 * 4096 / (.9 * 4.8e12);
  const double full = 5e-6 + peak_s / (kBusy * 4096 / (4096 + 150.0) * (1024 / 132.0 / 8)) +
                      memory / 2 * 256 / 4096;
  const double clock = 1 - .25 * std::pow(peak_s / full / .8, 1.5);
  EXPECT_NEAR(price_of_dot(h200, 4096, 4096, 4096, DType::kBF16) / (full / clock), 1, 1e-12);
}

// Passes price a target's op as the planner prices a cluster's call: by one function, one row.
TEST(Price, OfATargetIsThatOfItsRow) {
  for (const Target& t : target_presets()) {
    const Accelerator* row = find_preset(t.name);
    ASSERT_EQ(row != nullptr, t.device == DeviceKind::kCuda) << t.name;
    if (!row) continue;
    const Work product = matmul_work("dot", 512, 1024, 2048, 2);
    const Work works[] = {product};
    EXPECT_DOUBLE_EQ(price_of_dot(t, 512, 2048, 1024, DType::kBF16),
                     price(works, *row, kExpected, Number::kBf16).total())
        << t.name;
    Work attention;
    attention.unit = Unit::kAttentionBackward, attention.seqlen = 4096, attention.head_dim = 128;
    attention.flops = 1e12;
    const Work calls[] = {attention};
    EXPECT_DOUBLE_EQ(price(t, attention, DType::kBF16),
                     price(calls, *row, kExpected, Number::kBf16).total())
        << t.name;
  }
}

TEST(Price, OfAttentionHasItsShape) {
  const Type q{DType::kBF16, {2, 512, 8, 64}}, k{DType::kBF16, {2, 4096, 2, 64}};
  const Type in[] = {q, k, k}, out[] = {q, {DType::kF32, {2, 8, 512}}};
  const Attrs attrs{{"scale", 0.125}};
  const Work w = work_of({&attention_op, &attrs, in, out, nullptr, {}});
  EXPECT_EQ(w.unit, Unit::kAttention);
  EXPECT_EQ(w.seqlen, 4096);
  EXPECT_EQ(w.head_dim, 64);
  EXPECT_GE(w.flops, 4.0 * 2 * 512 * 8 * 64 * 4096);
}

TEST(Price, OfALossHasItsProductsShape) {
  const Type x{DType::kBF16, {64, 96}}, w{DType::kBF16, {1000, 96}}, t{DType::kI32, {64}};
  const Type s{DType::kF32, {64}}, in[] = {x, w, t, s, s}, out[] = {s, s, x, w};
  const Attrs attrs;
  for (const OpDef* op : {&linear_cross_entropy_op, &linear_cross_entropy_grads_op}) {
    const bool is_forward = op == &linear_cross_entropy_op;
    const std::span<const Type> all(in), results(out);
    const Work work = work_of({op,
                               &attrs,
                               all.first(is_forward ? 3 : 5),
                               results.first(is_forward ? 2 : 4),
                               nullptr,
                               {}});
    EXPECT_EQ(work.m, 64) << op->name;
    EXPECT_EQ(work.n, 1000) << op->name;
    EXPECT_EQ(work.k, 96) << op->name;
  }
}

// The live device names itself otherwise and has clocks of its own: its chip's row still holds.
TEST(Price, OfALiveDeviceIsByItsChip) {
  Target live = *find_target("h100");
  live.name = "NVIDIA H100 80GB HBM3", live.bf16_flops_per_s = 1070e12, live.bytes_per_s = 3.36e12;
  EXPECT_DOUBLE_EQ(flops_per_s(live, DType::kBF16), 1070e12 * kBusy * .75);
  EXPECT_DOUBLE_EQ(bytes_per_s(live), .9 * 3.36e12);
  EXPECT_DOUBLE_EQ(link_of(live).bytes_per_s, .78 * 450e9);
}

TEST(Price, OfAMachineThatNobodyMeasured) {
  EXPECT_DOUBLE_EQ(price(Target::one_thread(), DType::kF32, 1e11, 0), 1);
  EXPECT_DOUBLE_EQ(price(Target::one_thread(), DType::kF32, 0, 1e10), 1);
  EXPECT_DOUBLE_EQ(price_of_dot(Target::one_thread(), 256, 256, 256, DType::kF32),
                   2.0 * 256 * 256 * 256 / 1e11);
}

TEST(Price, OfAnExchangeIsItsLinks) {
  Target t = Target::one_thread();
  EXPECT_DOUBLE_EQ(price_of_exchange(t, 3, 1e10), 3e-5 + 1);
  t.link_s = 1e-3, t.link_bytes_per_s = 1e9;
  EXPECT_DOUBLE_EQ(price_of_exchange(t, 3, 1e9), 3e-3 + 1);
  const Target h200 = *find_target("h200");
  EXPECT_DOUBLE_EQ(price_of_exchange(h200, 2, 450e9), 2e-6 + 1 / .78);
}

// A concatenation moves nothing that a GPU's elementwise calls write into its place; rows on end
// any call writes there.
TEST(Price, OfAConcatenationInPlace) {
  const auto price_of = [](const char* target, int dim, bool is_computed, bool is_read_twice) {
    double both[2];
    for (const bool joins : {false, true}) {
      Module m;
      Builder b(m, "f");
      std::vector<Var> parts;
      for (const char* name : {"a", "b"}) {
        const Var x = b.param(name, {DType::kF32, {256, 256}});
        parts.push_back(is_computed ? tanh(x) : x);
        if (is_read_twice || !joins) b.result(name, parts.back());
      }
      if (joins) b.result("both", concat(parts, dim));
      const FuncId f = *b.finish_into_module();
      both[joins] = price_of_calls(*find_target(target), m, m[f]);
    }
    return both[1] - both[0];
  };
  EXPECT_EQ(price_of("h200", 1, true, false), 0);
  EXPECT_EQ(price_of("h200", 0, true, false), 0);
  EXPECT_EQ(price_of("zen4", 0, true, false), 0);
  EXPECT_GT(price_of("zen4", 1, true, false), 0) << "no strides";
  EXPECT_GT(price_of("h200", 1, false, false), 0) << "parameters lie where they lie";
  EXPECT_GT(price_of("h200", 1, true, true), 0) << "each is read by itself, too";
}

TEST(Price, OfRent) {
  EXPECT_DOUBLE_EQ(dollars(*find_preset("H100-SXM"), 64, 1800), 64 * 6.0 / 2);
  EXPECT_EQ(dollars(Accelerator(), 64, 1800), 0);
}

// n − 1 hops, of which as many leave a node as the ring passes nodes.
TEST(Collectives, AMessageOfManyRingsHasItsHops) {
  ClusterSpec c;
  c.device = *find_preset("h100");
  c.n_devices = 64;
  const double inside = 4 * c.device.inside.seconds, between = 14.0 / 6 * c.device.between.seconds;
  const auto hops = [&](RankSpan group, double messages) {
    return seconds_of(c, Collective::kAllGather, 0, group, kExpected, messages);
  };
  EXPECT_DOUBLE_EQ(hops({8, 1}, 1), 7 * inside);
  EXPECT_DOUBLE_EQ(hops({16, 1}, 3), 3 * (13 * inside + 2 * between));
  EXPECT_DOUBLE_EQ(hops({8, 8}, 1), 7 * between);  // one rank a node
  EXPECT_EQ(hops({1, 1}, 5), 0);
}

}  // namespace
}  // namespace tegula
