#include "tests/train/on_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tegula/ir/collective.h"
#include "tegula/models/init.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/train/deal.h"
#include "tegula/train/step.h"
#include "tests/common/join_stores.h"

namespace tegula {

TrainConfig tiny(const char* model, const char* mode) {
  TrainConfig c;
  c.model.type = model;
  c.model.vocab_size = 61, c.model.n_layers = 2, c.model.n_heads = 4, c.model.d_model = 32;
  c.model.max_seqlen = 16, c.model.has_bias = std::string(model) == "gpt2";
  if (std::string(model) != "gpt2" && std::string(model) != "moe") c.model.n_kv_heads = 2;
  if (std::string(model) == "moe") c.model.n_experts = 4;
  c.batch = 8, c.mode = mode;
  EXPECT_TRUE(c.model.resolve().ok());
  return c;
}

namespace {

void fill(const TrainConfig& c, int64_t step, std::vector<int32_t>& tokens,
          std::vector<int32_t>& targets) {
  const auto n = static_cast<size_t>(c.batch * c.model.max_seqlen);
  tokens.resize(n), targets.resize(n);
  for (size_t i = 0; i < n; ++i) {
    tokens[i] = static_cast<int32_t>((i * i + 7 * i + static_cast<size_t>(step)) % 61);
    targets[i] = static_cast<int32_t>((3 * i + static_cast<size_t>(step)) % 61);
  }
}

// Does it send what its data decides, at most what is planned?
bool is_bound(const Plan& plan) {
  return std::ranges::any_of(
      plan.steps, [](const Step& s) { return s.op->collective && s.op->collective->is_bound; });
}

}  // namespace

Ran run_on(TrainConfig c, const char* mesh_text) {
  Ran ran;
  const Mesh mesh = in_training_order(*mesh_from_text(mesh_text));
  c.mesh = mesh;
  StepFunctions f = *build_step_functions(c);
  Target target = Target::this_cpu(1);
  auto compiled = compile_for_ranks(c, f, f.train_step, target);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  if (!compiled.ok()) return ran;
  RankGroup group(mesh);
  const auto n = static_cast<size_t>(mesh.n_ranks());
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Store>> stores;
  std::vector<std::unique_ptr<Session>> sessions;
  float lr = 0.01F, c1 = 0, c2 = 0;
  int64_t seed = 5;
  std::vector<std::vector<int32_t>> tokens(n), targets(n);
  for (size_t r = 0; r < n; ++r) {
    ranks.push_back(std::make_unique<Rank>(1));
    ranks[r]->peers = &group.peers(static_cast<int64_t>(r));
    stores.push_back(std::make_unique<Store>(*ranks[r]));
    auto s = Session::create(compiled->plans[r], *ranks[r]);
    EXPECT_TRUE(s.ok()) << s.error().to_string();
    sessions.push_back(std::move(*s));
    EXPECT_TRUE(bind_shares(*sessions[r], *stores[r], *compiled, static_cast<int64_t>(r)).ok());
    for (const auto& [name, data] :
         {std::pair<const char*, void*>{"lr", &lr}, {"c1", &c1}, {"c2", &c2}, {"seed", &seed}})
      if (compiled->plans[r]->find_param(name) >= 0)
        EXPECT_TRUE(sessions[r]->bind(name, data).ok());
  }
  for (const WeightSpec& w : f.weights) {
    std::vector<float> whole(static_cast<size_t>(w.type.shape.numel()));
    const TensorRef ref = contiguous_ref(whole.data(), w.type);
    init_weight(w, 3, ref);
    for (auto& s : stores) EXPECT_TRUE(s->fill(w.name, ref).ok());
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    c1 = static_cast<float>(1 / (1 - std::pow(c.optimizer.beta1, step + 1)));
    c2 = static_cast<float>(1 / (1 - std::pow(c.optimizer.beta2, step + 1)));
    std::vector<int32_t> all_tokens, all_targets;
    fill(c, step, all_tokens, all_targets);
    const Type batch{DType::kI32, {c.batch, c.model.max_seqlen}};
    deal(dealt_order(c), all_tokens), deal(dealt_order(c), all_targets);
    for (size_t r = 0; r < n; ++r) {
      for (auto& [name, all, own] : {std::tuple{"tokens", &all_tokens, &tokens[r]},
                                     {"targets", &all_targets, &targets[r]}}) {
        const TensorRef whole = contiguous_ref(all->data(), batch);
        own->resize(
            static_cast<size_t>(share_bytes(*compiled, static_cast<int64_t>(r), name, whole) / 4));
        take_share(*compiled, static_cast<int64_t>(r), name, whole, own->data());
      }
      EXPECT_TRUE(sessions[r]->bind("tokens", tokens[r].data()).ok());
      EXPECT_TRUE(sessions[r]->bind("targets", targets[r].data()).ok());
    }
    std::vector<int64_t> sent(n);
    for (size_t r = 0; r < n; ++r) sent[r] = group.sent_bytes(static_cast<int64_t>(r));
    const Status st = group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
    EXPECT_TRUE(st.ok()) << st.error().to_string();
    if (!st.ok()) return ran;
    for (size_t r = 0; r < n; ++r) {
      const auto rank = static_cast<int64_t>(r);
      const int64_t now = group.sent_bytes(rank) - sent[r];
      const int64_t planned = compiled->plans[r]->sent_bytes(mesh, mesh.at(rank));
      EXPECT_LE(now, planned) << mesh_text << " rank " << r;
      EXPECT_TRUE(now == planned || is_bound(*compiled->plans[r]))
          << mesh_text << " rank " << r << ": sent " << now << ", planned " << planned;
      ran.sent_bytes += now, ran.planned_bytes += planned;
      EXPECT_EQ(sessions[r]->result("loss").as<float>()[0],
                sessions[0]->result("loss").as<float>()[0]);
    }
    ran.losses.push_back(sessions[0]->result("loss").as<float>()[0]);
    ran.norms.push_back(sessions[0]->result("grad_norm").as<float>()[0]);
  }
  std::vector<const Store*> parts;
  for (const auto& s : stores) parts.push_back(s.get());
  const auto whole = joined(parts);
  EXPECT_TRUE(whole.ok()) << whole.error().to_string();
  for (const WeightSpec& w : f.weights) {
    std::vector<float> values(static_cast<size_t>(w.type.shape.numel()));
    const auto it = std::ranges::find(*whole, w.name, &NamedTensor::name);
    EXPECT_NE(it, whole->end());
    const TensorRef to = contiguous_ref(values.data(), w.type);
    if (it->parts.empty()) {
      copy_elements(it->tensor, to);
    } else {
      for (const TensorPart& p : it->parts) copy_elements(p.data, part_of(to, p.box));
    }
    ran.weights[w.name] = std::move(values);
  }
  return ran;
}

double largest_difference(const Ran& a, const Ran& b) {
  double most = 0;
  for (const auto& [name, x] : a.weights)
    for (size_t i = 0; i < x.size(); ++i)
      most = std::max(most, std::fabs(double{x[i]} - double{b.weights.at(name)[i]}));
  return most;
}

int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += std::memcmp(&a[i], &b[i], sizeof a[i]) != 0;
  return n;
}

void expect_bits_of_one_rank(const TrainConfig& c, const char* mesh) {
  const Ran one = run_on(c, ""), many = run_on(c, mesh);
  EXPECT_EQ(one.losses, many.losses) << c.dtype;
  EXPECT_EQ(one.norms, many.norms) << c.dtype;
  for (const auto& [name, w] : one.weights)
    EXPECT_EQ(differing(w, many.weights.at(name)), 0) << c.dtype << " " << name;
}

}  // namespace tegula
