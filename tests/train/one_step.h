// One optimizer step of a small model on drawn tokens, however it is run.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tegula/base/philox.h"
#include "tegula/models/init.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/program_session.h"
#include "tegula/train/step.h"

namespace tegula::testing {

inline constexpr int64_t kVocab = 20;

inline TrainConfig config_of(const std::string& family, int64_t accumulate,
                             const std::string& dtype) {
  TrainConfig c;
  c.model.type = family;
  c.model.n_layers = 4, c.model.n_heads = 2, c.model.d_model = 16, c.model.d_ff = 24;
  c.model.max_seqlen = 12, c.model.vocab_size = kVocab;
  if (family == "moe") c.model.n_experts = 4;
  if (family == "gpt2") c.model.dropout = 0.1;
  EXPECT_TRUE(c.model.resolve().ok());
  c.batch = 2, c.accumulate = accumulate, c.dtype = dtype;
  return c;
}

// The inputs of one step, and where its weights and state are.
struct Step {
  TrainConfig c;
  StepFunctions f;
  std::unique_ptr<Rank> rank = std::make_unique<Rank>(2);
  Store store{*rank};
  std::vector<int32_t> tokens, targets;
  std::vector<int64_t> seeds;
  float lr = 0.05F, c1 = 10, c2 = 1000;
  std::vector<float> losses;
  float norm = 0;
  std::vector<Recomputed> recomputed;
  int64_t arena_bytes = 0;

  explicit Step(const TrainConfig& config) : c(config) {
    auto built = build_step_functions(c);
    EXPECT_TRUE(built.ok()) << built.error().to_string();
    f = std::move(*built);
    tokens.resize(static_cast<size_t>(c.batch * c.accumulate * c.model.max_seqlen));
    targets.resize(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(philox_bits(5, 0, i) % kVocab);
      targets[i] = static_cast<int32_t>(philox_bits(5, 1, i) % kVocab);
    }
    for (int64_t m = 0; m < c.accumulate; ++m) seeds.push_back(17 + m);
  }
  size_t row(int64_t m) const { return static_cast<size_t>(m * c.batch * c.model.max_seqlen); }

  void init_weights() {
    for (const WeightSpec& w : f.weights) {
      const auto at = store.get(w.name, w.type);
      ASSERT_TRUE(at.ok());
      init_weight(w, 3, *at);
    }
  }

  // order: the passes in another order than the pipeline's.
  void run_whole(std::span<const PassDef* const> order = {},
                 const Target& target = Target::this_cpu(2)) {
    init_weights();
    CompileOptions options = compile_options(c, target);
    options.passes.order = order;
    std::vector<FuncId> ids{c.accumulate == 1 ? f.train_step : f.micro_step};
    if (c.accumulate > 1) ids.push_back(f.update);
    std::vector<std::unique_ptr<Session>> sessions;
    for (FuncId id : ids) {
      auto compiled = compile(f.module, id, options);
      ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
      for (const Recomputed& r : compiled->recomputed) recomputed.push_back(r);
      arena_bytes = std::max(arena_bytes, compiled->plan->arena_bytes);
      auto s = Session::create(compiled->plan, *rank);
      ASSERT_TRUE(s.ok() && (*s)->bind_store(store).ok());
      for (auto [name, data] : {std::pair("lr", &lr), std::pair("c1", &c1), std::pair("c2", &c2)})
        if ((*s)->plan().find_param(name) >= 0) ASSERT_TRUE((*s)->bind(name, data).ok());
      sessions.push_back(std::move(*s));
    }
    Session& main = *sessions[0];
    for (int64_t m = 0; m < c.accumulate; ++m) {
      ASSERT_TRUE(main.bind("tokens", tokens.data() + row(m)).ok());
      ASSERT_TRUE(main.bind("targets", targets.data() + row(m)).ok());
      if (main.plan().find_param("seed") >= 0)
        ASSERT_TRUE(main.bind("seed", &seeds[static_cast<size_t>(m)]).ok());
      ASSERT_TRUE(main.run().ok());
      losses.push_back(main.result("loss").as<float>()[0]);
    }
    if (c.accumulate > 1) ASSERT_TRUE(sessions[1]->run().ok());
    norm = sessions.back()->result("grad_norm").as<float>()[0];
  }
};

inline void expect_same(const Step& a, const Step& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(std::memcmp(&a.norm, &b.norm, sizeof a.norm), 0) << a.norm << " " << b.norm;
  for (const auto& [name, entry] : a.store) {
    const TensorRef other = b.store.find(name);
    ASSERT_NE(other.data, nullptr) << name;
    EXPECT_EQ(std::memcmp(entry.ref.data, other.data, static_cast<size_t>(entry.type.bytes())), 0)
        << name;
  }
}

}  // namespace tegula::testing
