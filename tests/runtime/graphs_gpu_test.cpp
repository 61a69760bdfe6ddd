// Random graphs on a device beside the CPU: constants, iotas, 0-d and repeated values in every
// place, symbols at several extents, state that is overwritten, gradients. Skipped where there is
// no GPU; CI runs it on the driver made for tests.
//
//   exact    values are small integers, so that any order gives the reference's values
//   bits     where both plans have the same calls in the same orders, as their kernels declare:
//            equal bits
//   near     where they do not: as near to f64 as the references of the tensors' own precision,
//            twice over, and one rounding. Of a result of a few elements the references' error is
//            one draw and no bound: of cases 0 to 800 those of 479, 484, 652 and 737, of 1 to 4
//            elements, are up to 1.7 times as far
//
// Every run is done twice, the second time as a replayed graph. In ctest a few graphs, since each
// of their kernels is compiled; by command for as long as it is told:
//   TEGULA_SWEEP_SECONDS=1200 build/cuda/tests/tests_runtime_gpu --gtest_filter=DeviceGraphs.*
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tegula/ir/text.h"
#include "tegula/ops/autodiff.h"
#include "tegula/runtime/compile.h"
#include "tests/common/differs.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"
#include "tests/common/sweep.h"

namespace tegula {
namespace {

using test::differs;
using Values = std::vector<HostTensor>;

// A parameter as a plan's strides have it: the value in a corner of a box of the bounds' size, NaN
// or all ones around it.
HostTensor boxed(const Type& type, const HostTensor& value) {
  Type bound = type;
  for (int d = 0; d < bound.shape.rank(); ++d) bound.shape[d] = bound.shape[d].bound();
  HostTensor box(bound);
  std::fill(box.bytes.begin(), box.bytes.end(), std::byte{0xff});
  TensorRef corner = box.ref();
  for (int d = 0; d < corner.rank; ++d) corner.shape[d] = value.type.shape[d].bound();
  copy_into(corner, value.ref());
  return box;
}

// A session on a device with memory of its own for what is no input.
class DeviceRun {
 public:
  static Result<std::unique_ptr<DeviceRun>> create(std::shared_ptr<const Plan> plan,
                                                   Device& device) {
    std::unique_ptr<DeviceRun> run(new DeviceRun(std::move(plan), device));
    run->session_ = TEGULA_TRY(Session::create(run->plan_, run->rank_));
    for (const Plan::Port& p : run->plan_->params)
      run->memory_.push_back(
          p.role == Role::kInput ? nullptr : TEGULA_TRY(device.allocate(p.tensor.type.bytes())));
    return run;
  }
  ~DeviceRun() {
    session_.reset();
    for (void* data : memory_) device_.release(data);
  }
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  Result<Values> run(std::span<const HostTensor> in, std::span<const int64_t> extents) {
    std::vector<HostTensor> boxes;
    for (size_t i = 0; i < plan_->params.size(); ++i)
      boxes.push_back(boxed(plan_->params[i].tensor.type, in[i]));
    for (size_t i = 0; i < boxes.size(); ++i) {
      if (plan_->params[i].role == Role::kInput) {
        TEGULA_TRY(session_->bind_input(plan_->params[i].name, boxes[i].bytes.data()));
        continue;
      }
      session_->bind(static_cast<int>(i), memory_[i]);
      TEGULA_TRY(device_.copy(memory_[i], boxes[i].bytes.data(),
                              static_cast<int64_t>(boxes[i].bytes.size())));
    }
    TEGULA_TRY(session_->run(extents));
    Values out;
    for (const Plan::Port& r : plan_->results)
      out.push_back(copy_of(TEGULA_TRY(session_->fetch(r.name))));
    return out;
  }

 private:
  DeviceRun(std::shared_ptr<const Plan> plan, Device& device)
      : device_(device), rank_(device), plan_(std::move(plan)) {}

  Device& device_;
  Rank rank_;
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Session> session_;
  std::vector<void*> memory_;  // of each parameter
};

double largest_error(const HostTensor& have, const HostTensor& want) {
  double worst = 0;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double x = have.at(i), y = want.at(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    worst = std::max(worst, std::isnan(x - y) ? HUGE_VAL : std::fabs(x - y));
  }
  return worst;
}

// Empty: no farther from f64 than twice what the naive references are, and one rounding.
std::string is_far(const Values& have, const Values& naive, const Values& oracle) {
  for (size_t r = 0; r < oracle.size(); ++r) {
    double magnitude = 0;
    for (int64_t i = 0; i < oracle[r].numel(); ++i)
      if (std::isfinite(oracle[r].at(i)))
        magnitude = std::max(magnitude, std::fabs(oracle[r].at(i)));
    const DType t = have[r].type.dtype;
    const double allowed =
        2 * largest_error(naive[r], oracle[r]) + (is_float(t) ? epsilon(t) * magnitude : 0);
    const double error = largest_error(have[r], oracle[r]);
    if (!(error <= allowed))
      return cat("result ", r, ", ", have[r].type, ": error ", error, ", allowed ", allowed);
  }
  return "";
}

// How often each order stands in a plan, by op and dtypes. A kernel of order "exact" has the
// definition's values, as the op's reference has. Tile programs are not counted: each instruction
// is rounded alone, and sums of rows are in "lane16" everywhere (tile/program.h).
using Orders = std::map<std::string, std::multiset<std::string_view>>;
void add_orders(const Plan& plan, Orders& orders) {
  for (const Step& s : plan.steps) {
    for (const auto& region : s.regions) add_orders(*region, orders);
    if (s.program || s.op->is_view || !s.regions.empty()) continue;
    std::string call(s.op->name);
    for (const PlanTensor& t : s.in) append(call, cat(" ", t.type.dtype));
    orders[call].insert(s.kernel ? s.kernel->order : "reference");
  }
}

// "Kernels of one op, dtype and order give identical bits" (kernels/kernel.h): so do two plans
// whose calls are the same, in the same orders. An op that one of them has in simpler ops is in no
// order of the other's.
bool has_one_order(const Plan& a, const Plan& b) {
  Orders one, other;
  add_orders(a, one), add_orders(b, other);
  for (const Orders* from : {&one, &other})
    for (const auto& [call, unused] : *from) {
      auto &x = one[call], &y = other[call];
      if (x.count("exact") + y.count("exact") > 0)
        for (auto* orders : {&x, &y}) orders->erase("exact"), orders->erase("reference");
    }
  return one == other;
}

struct Tally {
  int graphs = 0, runs = 0, exact = 0, bits = 0, near = 0;
};

struct Graph {
  Module module;
  FuncId f = kNone;
  bool is_exact = false;
};

Result<Graph> graph_of(uint64_t seed) {
  Graph g;
  testing::RandomGraphOptions options;
  options.is_exact = g.is_exact = seed % 3 == 0;
  options.is_wild = seed % 4 != 1, options.is_symbolic = seed % 2 == 0;
  options.has_state = seed % 5 < 2, options.has_layers = seed % 7 < 5;
  options.n_nodes = 3 + static_cast<int>(seed % 14);
  g.f = TEGULA_TRY(testing::RandomGraph(g.module, seed, options).build());
  if (!g.is_exact && seed % 3 == 1) g.f = TEGULA_TRY(vjp_function(g.module, g.f));
  return g;
}

Values inputs_of(const Graph& g, uint64_t seed, std::span<const int64_t> extents) {
  Values in = test::random_inputs(g.module, g.module[g.f], seed, extents);
  for (HostTensor& t : in)
    for (int64_t i = 0; g.is_exact && i < t.numel(); ++i) t.put(i, std::round(4 * t.at(i)));
  return in;
}

bool has_negative_dim(const Function& f, std::span<const int64_t> extents) {
  for (const Value& v : f.values)
    for (const Dim& d : v.type.shape)
      if (d.at(extents) < 0) return true;
  return false;
}

Result<std::shared_ptr<const Plan>> plan_for(const Graph& g, const Target& target) {
  CompileOptions o;
  o.plan.target = target, o.plan.verify = true;
  return TEGULA_TRY(compile(std::make_shared<Module>(g.module), g.f, o)).plan;
}

Result<std::string> compare(const Graph& g, const Plan& cpu, DeviceRun& device, const Values& in,
                            std::span<const int64_t> extents, bool same_order, Tally& tally) {
  const Values first = TEGULA_TRY(device.run(in, extents));
  const Values again = TEGULA_TRY(device.run(in, extents));
  if (auto d = differs(again, first, true); !d.empty()) return cat("run again, ", d);
  const Function& f = g.module[g.f];
  const Values naive = TEGULA_TRY(interpret(g.module, f, in, Arithmetic::kNaive, extents));
  ++tally.runs;
  if (g.is_exact) {
    ++tally.exact;
    return differs(first, naive, false);
  }
  if (same_order) {
    ++tally.bits;
    return differs(first, TEGULA_TRY(test::try_run_plan(cpu, in, extents)), true);
  }
  ++tally.near;
  return is_far(first, naive, TEGULA_TRY(interpret(g.module, f, in, Arithmetic::kOracle, extents)));
}

Result<std::string> on_both(uint64_t seed, Device& device, Tally& tally) {
  const Result<Graph> built = graph_of(seed);
  if (!built.ok()) return std::string();  // ops may refuse what was drawn
  const Graph& g = *built;
  const auto cpu = TEGULA_TRY(plan_for(g, Target::this_cpu(1)));
  const auto planned = plan_for(g, device.target());
  if (!planned.ok()) return cat(planned.error().message, "\n", to_text(g.module, g.module[g.f]));
  const std::shared_ptr<const Plan>& plan = *planned;
  ++tally.graphs;
  for (const Step& s : plan->steps)
    if (!s.kernel && s.regions.empty() && !s.op->is_view)
      return cat(s.op->name, " of ", s.in.empty() ? s.out[0].type : s.in[0].type,
                 " has no kernel there");
  if (const int n = plan->host_steps(); n > 0) return cat(n, " steps of regions are the host's");
  const bool same_order = has_one_order(*cpu, *plan);
  const auto run = TEGULA_TRY(DeviceRun::create(plan, device));
  const size_t n_turns = g.module.symbols.empty() ? 1 : 2;
  for (size_t turn = 0; turn < n_turns; ++turn) {
    std::vector<int64_t> extents;
    for (size_t s = 0; s < g.module.symbols.size(); ++s) {
      const int64_t bound = g.module.symbols[s].bound;
      const int64_t less[] = {0, 1, (bound + 1) / 2};
      extents.push_back(turn == 0 ? bound : std::min(bound, less[(seed / 2) % 3]));
    }
    if (has_negative_dim(g.module[g.f], extents)) continue;
    const Values in = inputs_of(g, seed, extents);
    if (!test::try_run_plan(*cpu, in, extents).ok()) continue;  // below a least extent
    const std::string why = TEGULA_TRY(compare(g, *cpu, *run, in, extents, same_order, tally));
    if (!why.empty())
      return cat("at ", extents, ": ", why, "\n", to_text(g.module, g.module[g.f]),
                 plan->to_string());
  }
  return std::string();
}

TEST(DeviceGraphs, AreTheCpus) {
  const auto opened = open_device();
  if (!opened.ok()) GTEST_SKIP() << opened.error().message;
  Tally tally;
  test::sweep(16, [&](uint64_t seed) { return on_both(seed, **opened, tally); });
  std::printf("%d graphs, %d runs: %d exact, %d by bits, %d near\n", tally.graphs, tally.runs,
              tally.exact, tally.bits, tally.near);
  EXPECT_GT(tally.exact, 0);
  EXPECT_GT(tally.bits, 0);
}

}  // namespace
}  // namespace tegula
