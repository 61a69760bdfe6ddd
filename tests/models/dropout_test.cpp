// Every dropout of a model draws numbers of its own: masks are pairwise independent.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ir/interpret.h"
#include "tegula/models/model.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace {

constexpr int64_t kBatch = 2, kSeqlen = 8;

ModelConfig small(std::string_view family) {
  ModelConfig m;
  m.type = family, m.vocab_size = 11, m.n_layers = 3, m.n_heads = 2, m.d_model = 16, m.d_ff = 16;
  m.max_seqlen = kSeqlen, m.n_experts = 2, m.n_experts_per_token = 1, m.dropout = 0.5;
  EXPECT_TRUE(m.resolve().ok());
  return m;
}

// One bit per element of a dropout's mask, by row-major position; -1 where the mask shows nothing.
struct Mask {
  std::string what;
  std::vector<int> kept;
};

// The masks that the model's drawing nodes draw: of random numbers, which are at least a half; of
// attention, by a call with the node's own attributes whose weights are all equal and whose values
// are a unit matrix, so that its result is its weights.
std::vector<Mask> masks_of(std::string_view family) {
  const ModelConfig config = small(family);
  const ModelDef& model = **find_model(family);
  Module module;
  Builder b(module, "model");
  Context c(b, config);
  c.seed = b.param("seed", {DType::kI64, {}});
  const Type ids = {DType::kI32, {kBatch, kSeqlen}};
  b.result("loss", model_loss(c, model, b.param("tokens", ids), b.param("targets", ids)));
  const auto f = b.finish();
  EXPECT_TRUE(f.ok()) << f.error().to_string();

  Builder drawn(module, "drawn");
  const Var seed = drawn.param("seed", {DType::kI64, {}});
  std::vector<Mask> masks;
  for (const Node& n : f->nodes) {
    if (n.op == &random_uniform_op) {
      drawn.result("u", drawn.emit_n(*n.op, n.attrs, {&seed, 1})[0]);
      masks.push_back({"residual", {}});
    } else if (n.op == &attention_op && n.attrs.has("dropout")) {
      const Shape q = f->type(n.inputs[0]).shape;
      const Var zero = fill(drawn, 0, {DType::kF32, q});
      const Shape square = {q[0], kSeqlen, q[2], kSeqlen};
      const Var unit =
          cast(eq(iota(drawn, square, 1, DType::kI64), iota(drawn, square, 3, DType::kI64)),
               DType::kF32);
      const Var in[] = {zero, zero, unit, seed};
      drawn.result("o", drawn.emit_n(*n.op, n.attrs, in)[0]);
      masks.push_back({"attention", {}});
    }
  }
  const auto g = drawn.finish();
  EXPECT_TRUE(g.ok()) << g.error().to_string();
  HostTensor value({DType::kI64, {}});
  value.put(0, 12345);
  const auto out = interpret(module, *g, {{value}});
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  for (size_t i = 0; i < masks.size(); ++i) {
    const HostTensor& x = (*out)[i];
    std::vector<int>& kept = masks[i].kept;
    if (masks[i].what == "residual") {
      for (int64_t k = 0; k < x.numel(); ++k) kept.push_back(x.at(k) >= 0.5);
      continue;
    }
    // o[b q h k] is the weight of key k; the numbers are drawn by ((b·h + head)·q + i)·k + j.
    const Shape& s = x.type.shape;
    kept.assign(static_cast<size_t>(x.numel()), -1);
    for (int64_t k = 0; k < x.numel(); ++k) {
      const int64_t key = k % kSeqlen, head = k / kSeqlen % s[2].bound();
      const int64_t query = k / (kSeqlen * s[2].bound()) % kSeqlen;
      const int64_t batch = k / (kSeqlen * s[2].bound() * kSeqlen);
      const int64_t at = ((batch * s[2].bound() + head) * kSeqlen + query) * kSeqlen + key;
      if (key <= query) kept[static_cast<size_t>(at)] = x.at(k) != 0;
    }
  }
  return masks;
}

TEST(Dropout, MasksOfAModelArePairwiseIndependent) {
  for (const ModelDef* model : all_models()) {
    const std::vector<Mask> masks = masks_of(model->name);
    EXPECT_GE(masks.size(), 2u) << model->name;
    for (size_t i = 0; i < masks.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        double n = 0, agree = 0;
        for (size_t k = 0; k < std::min(masks[i].kept.size(), masks[j].kept.size()); ++k) {
          const int x = masks[i].kept[k], y = masks[j].kept[k];
          if (x >= 0 && y >= 0) ++n, agree += x == y;
        }
        ASSERT_GT(n, 60) << model->name;
        // Two independent masks of one half agree in n/2 ± √n/2 places; the same mask in all n.
        EXPECT_LT(std::abs(agree - n / 2), 4 * std::sqrt(n) / 2)
            << model->name << ": dropouts " << j << " (" << masks[j].what << ") and " << i << " ("
            << masks[i].what << ")";
      }
    }
  }
}

// Another seed, as every step has, gives another mask; and a share p is dropped.
TEST(Dropout, ASeedGivesItsShareOfZeros) {
  for (const double p : {0.1, 0.5, 0.9}) {
    Module module;
    ModelConfig config;
    config.dropout = p;
    Builder b(module, "f");
    Context c(b, config);
    c.seed = b.param("seed", {DType::kI64, {}});
    b.result("y", c.dropout(fill(b, 1, {DType::kF32, {100, 100}})));
    const auto f = b.finish();
    ASSERT_TRUE(f.ok());
    std::vector<HostTensor> first;
    for (const double seed : {1, 2}) {
      HostTensor value({DType::kI64, {}});
      value.put(0, seed);
      const auto out = interpret(module, *f, {{value}});
      ASSERT_TRUE(out.ok());
      double zeros = 0;
      for (int64_t i = 0; i < 10000; ++i) {
        const double y = (*out)[0].at(i);
        zeros += y == 0;
        if (y != 0) {
          EXPECT_FLOAT_EQ(static_cast<float>(y), static_cast<float>(1 / (1 - p)));
        }
      }
      EXPECT_NEAR(zeros / 10000, p, 4 * std::sqrt(p * (1 - p) / 10000));
      first.push_back((*out)[0]);
    }
    EXPECT_NE(first[0].bytes, first[1].bytes);
  }
}

}  // namespace
}  // namespace tegula
