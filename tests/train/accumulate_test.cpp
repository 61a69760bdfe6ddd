// n micro-batches whose gradients are summed make the step that one batch of all their rows makes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/base/philox.h"
#include "tegula/models/init.h"
#include "tegula/runtime/session.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

struct Stepped {
  std::unique_ptr<Rank> rank = std::make_unique<Rank>(2);
  Store store{*rank};
  double loss = 0;
  int64_t planned_flops = 0, counted_flops = 0;
};

TrainConfig config(int64_t batch, int64_t accumulate, const std::string& optimizer) {
  TrainConfig c;
  c.model.n_layers = 2, c.model.n_heads = 2, c.model.d_model = 16, c.model.max_seqlen = 12;
  c.model.vocab_size = 20;
  EXPECT_TRUE(c.model.resolve().ok());
  c.optimizer.name = optimizer, c.optimizer.clip = 0, c.optimizer.weight_decay = 0;
  c.batch = batch, c.accumulate = accumulate;
  return c;
}

// One optimizer step over the same 8 sequences.
Stepped step(const TrainConfig& c) {
  Stepped out;
  auto f = build_step_functions(c);
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  auto session_of = [&](FuncId id) {
    auto compiled = compile(f->module, id, compile_options(c, Target::this_cpu(2)));
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    auto s = Session::create(compiled->plan, *out.rank);
    EXPECT_TRUE(s.ok() && (*s)->bind_store(out.store).ok());
    return std::move(*s);
  };
  const bool one = c.accumulate == 1;
  auto main = session_of(one ? f->train_step : f->micro_step);
  auto update = one ? nullptr : session_of(f->update);
  for (const WeightSpec& w : f->weights) init_weight(w, 3, out.store.find(w.name));
  const int64_t row = c.model.max_seqlen, all = c.batch * c.accumulate * row;
  std::vector<int32_t> tokens(static_cast<size_t>(all)), targets(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(philox_bits(5, 0, i) % 20);
    targets[i] = static_cast<int32_t>(philox_bits(5, 1, i) % 20);
  }
  float lr = 0.5F, c1 = 10, c2 = 1000;
  for (Session* s : {main.get(), update.get()})
    if (s)
      for (auto [name, data] : {std::pair("lr", &lr), std::pair("c1", &c1), std::pair("c2", &c2)})
        if (s->plan().find_param(name) >= 0) EXPECT_TRUE(s->bind(name, data).ok());
  for (int64_t micro = 0; micro < c.accumulate; ++micro) {
    EXPECT_TRUE(main->bind("tokens", tokens.data() + micro * c.batch * row).ok());
    EXPECT_TRUE(main->bind("targets", targets.data() + micro * c.batch * row).ok());
    EXPECT_TRUE(main->run().ok());
    out.loss += main->result("loss").as<float>()[0] / static_cast<double>(c.accumulate);
  }
  out.planned_flops = main->plan().flops() * c.accumulate;
  out.counted_flops = main->counters().math_flops;
  if (update) {
    EXPECT_TRUE(update->run().ok());
    out.planned_flops += update->plan().flops();
    out.counted_flops += update->counters().math_flops;
  }
  return out;
}

TEST(Accumulate, IsOneBigBatch) {
  const TrainConfig whole = config(8, 1, "sgd");
  const Stepped big = step(whole);
  const auto functions = build_step_functions(whole);
  ASSERT_TRUE(functions.ok());
  // Sums of so many terms in another order differ by no more than this share of their size.
  const double share = 8 * 12 * static_cast<double>(std::numeric_limits<float>::epsilon());
  for (int64_t n : {2, 4, 8}) {
    const Stepped parts = step(config(8 / n, n, "sgd"));
    EXPECT_NEAR(parts.loss, big.loss, share * big.loss);
    EXPECT_EQ(parts.planned_flops, parts.counted_flops);
    for (const WeightSpec& w : functions->weights) {
      const TensorRef a = big.store.find(w.name), b = parts.store.find(w.name);
      std::vector<float> start(static_cast<size_t>(a.numel()));
      TensorRef s = a;
      s.data = start.data();
      init_weight(w, 3, s);
      double moved = 0, apart = 0, size = 0;
      for (int64_t i = 0; i < a.numel(); ++i) {
        const double x = a.as<float>()[i], y = b.as<float>()[i];
        moved += std::pow(x - start[static_cast<size_t>(i)], 2);
        apart += (x - y) * (x - y), size += x * x;
      }
      EXPECT_GT(moved, 0) << w.name;
      // The weight itself rounds once more.
      EXPECT_LE(std::sqrt(apart), share * std::sqrt(moved) + 1.2e-7 * std::sqrt(size)) << w.name;
    }
  }
}

TEST(Accumulate, LeavesZeroSums) {
  const Stepped parts = step(config(2, 4, "adamw"));
  int sums = 0;
  for (const auto& [name, entry] : parts.store) {
    if (!name.starts_with("grad.")) continue;
    ++sums;
    for (int64_t i = 0; i < entry.ref.numel(); ++i) EXPECT_EQ(entry.ref.as<float>()[i], 0);
  }
  EXPECT_GT(sums, 0);
}

}  // namespace
}  // namespace tegula
