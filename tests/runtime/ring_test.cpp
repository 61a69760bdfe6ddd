// A ring of attention over ranks: the values of the whole, to twice the error of a naive
// computation in the same precision; what it sends, holds and does as planned; nothing that no mask
// lets see.
#include "tegula/passes/ring.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/base/philox.h"
#include "tegula/ir/interpret.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

struct Case {
  const char* name;
  AttentionOptions options;
  DType dtype = DType::kF32;
  int64_t seqlen = 48, n_heads = 3, n_kv_heads = 3;
  bool has_slopes = false, drops = false;
  bool sums = false;  // results are numbers, so that nothing of the whole is held for them
};

std::vector<Case> cases() {
  AttentionOptions causal, window, cap, one_way;
  causal.is_causal = window.is_causal = cap.is_causal = true;
  window.window_left = 7;
  cap.softcap = 2, cap.window_left = 20;
  one_way.window_right = 3;
  return {{"full", {}},
          {"causal", causal},
          {"causal, grouped heads", causal, DType::kF32, 48, 6, 2},
          {"causal, bf16", causal, DType::kBF16, 48, 6, 2},
          {"full, bf16", {}, DType::kBF16},
          {"a window of less than a block", window, DType::kF32, 96},
          {"a cap and a window of more", cap},
          {"keys after the query", one_way},
          {"ALiBi", causal, DType::kF32, 48, 3, 3, true},
          {"dropout", causal, DType::kF32, 48, 3, 3, false, true},
          {"long", causal, DType::kF32, 384, 1, 1}};
}

FuncId write_step(Module& module, const Case& c) {
  Builder b(module, "ring");
  const Shape q_shape = {2, c.seqlen, c.n_heads, 5}, k_shape = {2, c.seqlen, c.n_kv_heads, 5};
  const Var q = b.param("q", {c.dtype, q_shape}), k = b.param("k", {c.dtype, k_shape});
  const Var v = b.param("v", {c.dtype, k_shape}), d_o = b.param("do", {c.dtype, q_shape});
  AttentionOptions options = c.options;
  if (c.has_slopes) options.alibi = b.param("slopes", {DType::kF32, {c.n_heads}});
  if (c.drops) options.dropout = 0.25, options.seed = b.param("seed", {DType::kI64, {}});
  const Attention a = attention(q, k, v, options);
  const Var ys[] = {a.o}, cts[] = {d_o}, xs[] = {q, k, v};
  const std::vector<Var> grads = pullback(b, ys, cts, xs);
  const std::pair<const char*, Var> results[] = {
      {"o", a.o}, {"lse", a.lse}, {"dq", grads[0]}, {"dk", grads[1]}, {"dv", grads[2]}};
  for (const auto& [name, x] : results)
    b.result(name, c.sums ? reduce_sum(reshape(x, {-1}), {0}) : x);
  return *b.finish_into_module();
}

// Every parameter: as a whole, and where it lies.
struct Given {
  std::vector<HostTensor> whole;
  std::vector<Sharding> shardings;
};
Given given(const Function& f) {
  Given g;
  for (const Param& p : f.params) {
    HostTensor t(f.type(p.value));
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double u = philox_uniform(g.whole.size(), 3, static_cast<uint64_t>(i));
      t.put(i, p.name == "seed" ? 11 : p.name == "slopes" ? u / 2 : 2 * u - 1);
    }
    const bool is_split = p.name != "seed" && p.name != "slopes";
    g.shardings.push_back({is_split ? AxisSharding::split(1) : AxisSharding()});
    g.whole.push_back(std::move(t));
  }
  return g;
}

struct Ranks {
  CompiledRanks compiled;
  std::vector<std::vector<HostTensor>> results;  // of each rank, whole
};

Ranks run_ranks(const Case& c, int64_t n, Mode mode) {
  auto module = std::make_shared<Module>();
  const FuncId f = write_step(*module, c);
  const Given g = given((*module)[f]);
  const Mesh mesh = {{{"cp", n}}};
  CompileOptions options;
  options.plan.verify = true;
  options.passes.pass.mode = mode;
  Ranks out{*compile_ranks(module, f, {mesh, g.shardings, mode}, options), {}};
  RankGroup group(mesh);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<HostTensor>> shares;
  for (int64_t r = 0; r < n; ++r) {
    const auto& plan = out.compiled.plans[static_cast<size_t>(r)];
    ranks.push_back(std::make_unique<Rank>(1));
    ranks.back()->peers = &group.peers(r);
    sessions.push_back(std::move(*Session::create(plan, *ranks.back())));
    sessions.back()->arena().poison(0xff, &ranks.back()->pool);
    shares.emplace_back();
    for (size_t p = 0; p < g.whole.size(); ++p) {
      HostTensor part(plan->params[p].tensor.type);
      const Share share = local_share(mesh, g.whole[p].type.shape, g.shardings[p], mesh.at(r));
      for (size_t i = 0; i < share.boxes.size(); ++i)
        copy_elements(part_of(g.whole[p].ref(), share.boxes[i]),
                      part_of(part.ref(), share.places[i]));
      shares.back().push_back(std::move(part));
    }
    for (size_t p = 0; p < shares.back().size(); ++p)
      sessions.back()->bind(static_cast<int>(p), shares.back()[p].ref().data);
  }
  const Status st = group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
  EXPECT_TRUE(st.ok()) << st.error().to_string();
  for (int64_t r = 0; r < n; ++r) {
    Session& s = *sessions[static_cast<size_t>(r)];
    const Plan& plan = s.plan();
    EXPECT_EQ(group.sent_bytes(r), plan.sent_bytes(mesh, mesh.at(r))) << "rank " << r;
    EXPECT_EQ(s.counters().math_flops, plan.flops()) << "rank " << r;
    out.results.emplace_back();
    for (size_t i = 0; i < plan.results.size(); ++i) {
      HostTensor t(plan.results[i].tensor.type);
      copy_elements(s.result(static_cast<int>(i)), t.ref());
      out.results.back().push_back(std::move(t));
    }
  }
  return out;
}

int64_t attention_flops(const Plan& plan) {
  int64_t n = 0;
  for (const Step& s : plan.steps)
    if (s.op->name.starts_with("attention")) n += s.flops;
  return n;
}
int64_t count(const Plan& plan, std::string_view op) {
  return std::count_if(plan.steps.begin(), plan.steps.end(),
                       [&](const Step& s) { return s.op->name == op && s.ends < 0; });
}

double largest(const HostTensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.numel(); ++i)
    if (std::isfinite(t.at(i))) most = std::max(most, std::fabs(t.at(i)));
  return most;
}
double distance(const HostTensor& a, const HostTensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    if (a.at(i) != b.at(i)) most = std::max(most, std::fabs(a.at(i) - b.at(i)));
  return most;
}

TEST(Ring, HasTheValuesOfTheWhole) {
  for (const Case& c : cases()) {
    Module module;
    const FuncId f = write_step(module, c);
    const Given g = given(module[f]);
    const auto want = *interpret(module, module[f], g.whole);
    const auto naive = *interpret(module, module[f], g.whole, Arithmetic::kNaive);
    for (const int64_t n : {2, 3, 4, 8}) {
      SCOPED_TRACE(cat(c.name, " on ", n, " ranks"));
      const Ranks ran = run_ranks(c, n, Mode::kFast);
      ASSERT_GE(count(*ran.compiled.plans[0], "send_recv"), 2);
      EXPECT_EQ(count(*ran.compiled.plans[0], "attention"), n);
      EXPECT_GT(ran.compiled.plans[0]->n_background(), 0);
      for (size_t i = 0; i < want.size(); ++i) {
        const double eps = std::ldexp(1.0, c.dtype == DType::kBF16 && i != 1 ? -8 : -23);
        const double most = 2 * distance(naive[i], want[i]) + eps * largest(want[i]);
        for (const auto& results : ran.results)
          EXPECT_LE(distance(results[i], want[i]), most)
              << module[f].results[i].name << ", naive " << distance(naive[i], want[i]);
      }
    }
  }
}

// Blocks behind a causal mask are neither sent nor attended to.
TEST(Ring, SendsAndDoesNoMoreThanTheMaskLetsSee) {
  const Case causal = cases()[1], window = cases()[5];
  for (const Case& c : {causal, window}) {
    const Ranks one = run_ranks(c, 1, Mode::kFast), many = run_ranks(c, 4, Mode::kFast);
    const int64_t block = 2 * 2 * (c.seqlen / 4) * c.n_kv_heads * 5 * 4;  // bytes of K and V
    double flops = 0;
    for (const auto& plan : many.compiled.plans)
      flops += static_cast<double>(attention_flops(*plan));
    // A row's last division is done in each part that it sees.
    EXPECT_LE(flops, 1.05 * static_cast<double>(attention_flops(*one.compiled.plans[0])));
    // Those of 4 blocks that others see: 3 + 2 + 1; with the window each is seen by the next.
    const int64_t seen = c.options.window_left < 0 ? 6 : 3;
    int64_t sent = 0;
    for (size_t r = 0; r < 4; ++r)
      for (const Step& s : many.compiled.plans[r]->steps)
        if (s.op->name == "send_recv" && s.ends < 0) {
          const auto& from = s.attrs.ints("from");
          if (std::count(from.begin(), from.end(), static_cast<int64_t>(r)) > 0)
            sent += s.in[0].type.bytes();
        }
    EXPECT_EQ(sent, 3 * seen * block) << c.name;  // twice round, and gradients home
  }
}

TEST(Ring, TakesLessMemoryThanGathering) {
  Case c = cases()[10];
  c.seqlen = 1024, c.sums = true;
  const Ranks ring = run_ranks(c, 8, Mode::kFast), gathers = run_ranks(c, 8, Mode::kExact);
  EXPECT_EQ(count(*gathers.compiled.plans[0], "send_recv"), 0);
  EXPECT_GE(count(*gathers.compiled.plans[0], "all_gather"), 2);
  const int64_t whole = 2 * c.seqlen * 5 * 4;  // of K; gathered, K and V are there at once
  EXPECT_LT(ring.compiled.plans[0]->arena_bytes + whole, gathers.compiled.plans[0]->arena_bytes);
  int64_t sent = 0, sent_gathering = 0;
  for (int64_t r = 0; r < 8; ++r) {
    sent += ring.compiled.plans[static_cast<size_t>(r)]->sent_bytes(ring.compiled.mesh, {{r}});
    sent_gathering +=
        gathers.compiled.plans[static_cast<size_t>(r)]->sent_bytes(ring.compiled.mesh, {{r}});
  }
  EXPECT_LT(sent, sent_gathering);
}

}  // namespace
}  // namespace tegula
