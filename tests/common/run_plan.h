// Runs a function of a module through plan and session, on tensors of the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "tegula/base/philox.h"
#include "tegula/ir/interpret.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/memory_watch.h"
#include "tegula/runtime/session.h"

namespace tegula::test {

// References only, so that results have the bits of the naive interpreter.
inline PlanOptions references() {
  PlanOptions o;
  o.use_kernels = false;
  return o;
}

// Values in [-1, 1); integers in [0, 3).
inline HostTensor random_tensor(const Type& type, uint64_t seed) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    t.put(i, is_float(type.dtype) ? 2 * philox_uniform(seed, 1, at) - 1
                                  : static_cast<double>(philox_bits(seed, 1, at) % 3));
  }
  return t;
}

inline std::vector<HostTensor> random_inputs(const Module& m, const Function& f, uint64_t seed,
                                             std::span<const int64_t> extents = {}) {
  std::vector<int64_t> bounds(extents.begin(), extents.end());
  if (bounds.empty())
    for (const Symbol& s : m.symbols) bounds.push_back(s.bound);
  std::vector<HostTensor> in;
  for (const Param& p : f.params) {
    const Type& t = f.type(p.value);
    in.push_back(random_tensor({t.dtype, t.shape.at(bounds)}, seed + 100 * in.size()));
  }
  return in;
}

// One run of a plan: inputs are laid into parameters of the bounds' strides (donated ones are
// copies), results copied out at the extents. Error: the run's, or the watch's.
inline Result<std::vector<HostTensor>> try_run_plan(const Plan& plan,
                                                    std::span<const HostTensor> in,
                                                    std::span<const int64_t> extents = {},
                                                    int n_threads = 1, int64_t* flops = nullptr) {
  Rank rank(n_threads);
  auto session = TEGULA_TRY(Session::create(std::make_shared<Plan>(plan), rank));
  Session& s = *session;
  std::vector<HostTensor> memory;
  std::vector<HostTensor> out;
  for (size_t i = 0; i < plan.params.size(); ++i) {
    Type bound = plan.params[i].tensor.type;
    for (int d = 0; d < bound.shape.rank(); ++d) bound.shape[d] = bound.shape[d].bound();
    memory.emplace_back(bound);
    // Outside the extents the box holds NaN or all ones: nobody may read it.
    std::fill(memory.back().bytes.begin(), memory.back().bytes.end(), std::byte{0xff});
    TensorRef box = memory.back().ref();
    for (int d = 0; d < box.rank; ++d) box.shape[d] = in[i].type.shape[d].bound();
    copy_into(box, in[i].ref());
    s.bind(static_cast<int>(i), memory.back().bytes.data());
  }
  // Watched: a kernel that writes behind its workspace, or needs a larger one at these extents, is
  // an error.
  const Plan* const plans[] = {&plan};
  const auto watch =
      TEGULA_TRY(MemoryWatch::create(s.arena(), plans, MemoryWatch::Workspaces::kApart));
  s.watch(watch.get());
  watch->begin(0xff);
  TEGULA_TRY(s.run(extents));
  TEGULA_TRY(watch->end());
  if (flops) *flops = s.counters().math_flops;
  for (size_t r = 0; r < plan.results.size(); ++r)
    out.push_back(copy_of(s.result(static_cast<int>(r))));
  return out;
}

// The same of a plan that keeps all rules, in a run without an error.
inline std::vector<HostTensor> run_plan(const Plan& plan, std::span<const HostTensor> in,
                                        std::span<const int64_t> extents = {}, int n_threads = 1,
                                        int64_t* flops = nullptr) {
  const auto valid = verify_plan(plan);
  EXPECT_TRUE(valid.ok()) << valid.error().to_string() << "\n" << plan.to_string();
  auto out = try_run_plan(plan, in, extents, n_threads, flops);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return out.ok() ? *out : std::vector<HostTensor>();
}

// Plans and runs with references, and expects the bits of the naive interpreter.
inline void expect_bits_of_interpreter(const std::shared_ptr<Module>& m, FuncId f,
                                       uint64_t seed = 1, std::span<const int64_t> extents = {}) {
  const auto in = random_inputs(*m, (*m)[f], seed, extents);
  auto plan = make_plan(m, f, references());
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  auto want = interpret(*m, (*m)[f], in, Arithmetic::kNaive, extents);
  ASSERT_TRUE(want.ok()) << want.error().to_string();
  const auto have = run_plan(*plan, in, extents);
  ASSERT_EQ(have.size(), want->size());
  for (size_t r = 0; r < have.size(); ++r) {
    EXPECT_EQ(have[r].type, (*want)[r].type);
    EXPECT_EQ(have[r].bytes, (*want)[r].bytes)
        << (*m)[f].results[r].name << " of " << (*m)[f].name << "\n"
        << plan->to_string();
  }
}

}  // namespace tegula::test
