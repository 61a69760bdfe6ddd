// Samples too large for finite differences, for kernels alone: several blocks of rows, shards and
// spans, hence more than one task where a task's size is part of the numeric order.
#include <gtest/gtest.h>

#include "tegula/kernels/registry.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

// A sample of the op with other shapes, its values drawn.
struct Wide {
  std::string_view op, sample;
  std::vector<Shape> in;
};

const std::vector<Wide>& wide_samples() {
  static const std::vector<Wide> all = {
      {"dot", "matrix", {{300, 20}, {20, 30}}},
      {"dot", "batched", {{3, 4, 6}, {3, 6, 5}}},
      {"dot", "batched", {{3, 90, 130}, {3, 130, 70}}},
      // Few rows: shards of k in memory of their own.
      {"dot", "sharded", {{3, 64}, {64, 5000}}},
      {"layer_norm_bwd", "rows", {{100, 5}, {5}, {100}, {100}, {100, 5}}},
      {"layer_norm_bwd", "no bias", {{7, 10, 5}, {5}, {7, 10}, {7, 10}, {7, 10, 5}}},
      {"rms_norm_bwd", "rows", {{4, 25, 5}, {5}, {4, 25}, {4, 25, 5}}},
      {"linear_cross_entropy", "batch", {{2, 100, 8}, {150, 8}, {2, 100}}},
      {"linear_cross_entropy_bwd",
       "batch",
       {{2, 100, 8}, {150, 8}, {2, 100}, {2, 100}, {2, 100}, {2, 100}}},
      {"linear_cross_entropy_grads",
       "batch",
       {{2, 100, 8}, {150, 8}, {2, 100}, {2, 100}, {2, 100}}},
      {"attention", "causal", {{1, 200, 2, 16}, {1, 200, 2, 16}, {1, 200, 2, 16}}},
      // Spans of keys are tasks of their own; or a full block of rows packs its keys for itself.
      {"attention", "causal", {{1, 42, 2, 16}, {1, 1100, 1, 16}, {1, 1100, 1, 16}}},
      {"attention", "one query", {{2, 1, 4, 8}, {2, 700, 2, 8}, {2, 700, 2, 8}}},
      {"attention", "one query", {{2, 1, 4, 32}, {2, 700, 2, 32}, {2, 700, 2, 32}}},  // in tiles
      {"all_to_all_ragged", "alone", {{20, 13, 4}, {20, 13}, {20, 13}}},
      {"attention_bwd",
       "causal",
       {{1, 200, 2, 16},
        {1, 200, 2, 16},
        {1, 200, 2, 16},
        {1, 200, 2, 16},
        {1, 2, 200},
        {1, 200, 2, 16},
        {1, 2, 200}}},
  };
  return all;
}

Case case_of(const Wide& w, uint64_t seed) {
  const OpDef& op = *find_op(w.op);
  for (Sample s : op.samples()) {
    if (s.name != w.sample) continue;
    EXPECT_LE(s.in.size(), w.in.size()) << w.op;
    for (size_t k = 0; k < s.in.size(); ++k) s.in[k].type.shape = w.in[k], s.in[k].values.clear();
    s.name += cat(", ", w.in[0]);
    return make_case(op, s, seed);
  }
  ADD_FAILURE() << w.op << " has no sample " << w.sample;
  return {};
}

TEST(WideSamples, HoldForEveryKernel) {
  for (const Wide& w : wide_samples()) {
    const Case c = case_of(w, 1);
    ASSERT_FALSE(c.out.empty()) << c.name();
    const Verdict v = check_kernels(c);
    EXPECT_EQ(v.kind, Verdict::kPass) << c.name() << "\n" << v.why;
  }
}

}  // namespace
}  // namespace tegula::testing
