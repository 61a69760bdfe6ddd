// Gradient checkpointing: the backward part computes activations again instead of keeping them.
//
// The forward part is a chain of segments (remat_chain.h). Each segment, or run of segments, keeps
// all it saves, some of it (values that cost least to recompute per byte go first: elementwise ops
// and norms before products), or only its entry. `kSqrt` keeps every √N-th entry [Chen et al.
// 2016]; `kBudget` minimises the time of recomputation by dynamic programming (remat_dp.h), and
// asks the memory planner for the true peak, tightening its own model of it until the plan fits.
//
// A recomputed node reads everything through a barrier that waits for the gradient arriving at the
// segment, so that no other pass and no scheduler can move it back into the forward part. The same
// ops run on the same values: gradients keep their bits.
//
// A body that holds a forward and a backward part of its own (a loop over micro-batches) is done by
// itself: its arena is one workspace of the function's.
#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/fuse.h"
#include "tegula/passes/remat_chain.h"
#include "tegula/passes/remat_dp.h"

namespace tegula {

extern const PassDef dce_pass, norm_residual_pass, widen_again_pass;

namespace {

constexpr size_t kMaxStepwise = 24;  // more saved values than this are dropped in two steps
constexpr int kMaxPlans = 10;        // tries to meet the budget
constexpr int kMaxRun = 24;          // segments without a value kept between them
constexpr int kLeastOfBody = 8;      // segments of a region that kSqrt looks at

struct Choice {
  RematOption option;
  std::vector<ValueId> dropped;  // saved values of a lone segment; a run drops everything
};

struct Candidate {
  Function function;
  double seconds;  // of recomputation
  int64_t peak;    // planned bytes
};

class Rematerializer {
 public:
  Rematerializer(Module& module, const Function& f, const PassOptions& options)
      : module_(module),
        f_(f),
        options_(options),
        chain_(find_chain(module, f, options)),
        recomputer_(f, chain_),
        keep_(f.values.size(), 0) {
    for (const Output& r : f.results) keep_[chain_.root[r.value]] = 1;
    // A loss and its gradients are one op only of the same operands (loss_grads).
    for (const Node& n : f.nodes)
      if (n.op == &linear_cross_entropy_op)
        for (const ValueId v : n.inputs) keep_[chain_.root[v]] = 1;
  }

  // Every √N blocks of a body: not of a layer's few, which are computed again as it is.
  bool has_chain() const {
    const bool is_every_sqrt = options_.is_region && options_.remat == Remat::kSqrt;
    return chain_.n_segments >= (is_every_sqrt ? kLeastOfBody : 2);
  }

  Result<Function> every_sqrt() {
    const int n = chain_.n_segments;
    const int run = std::max(1, static_cast<int>(std::lround(std::sqrt(static_cast<double>(n)))));
    std::vector<Choice> chosen;
    for (int begin = 0; begin < n; begin += run)
      if (const int end = std::min(begin + run, n); end < n) chosen.push_back(drop_run(begin, end));
    return rewrite(chosen);
  }

  Result<Function> within_budget();

 private:
  int64_t bytes(ValueId v) const { return f_.type(v).bytes(); }
  void list_options();
  void list_segment(int s);
  Choice choice_of(int begin, int end, std::vector<ValueId> dropped);
  Choice drop_run(int begin, int end);
  std::vector<Choice> pick(const std::vector<int>& indices) const;
  Result<Function> rewrite(const std::vector<Choice>& chosen);
  Result<int64_t> peak_of(const Function& f) const;
  Result<std::optional<Candidate>> plan_for(int64_t modelled_budget);
  Result<std::optional<Candidate>> search(int64_t budget);
  NodeId first_reader(const Recompute& r) const;
  NodeId gate_before(NodeId reader, int end) const;

  Module& module_;
  const Function& f_;
  const PassOptions& options_;
  RematChain chain_;
  Recomputer recomputer_;
  std::vector<uint8_t> keep_;  // results; while asked: what a choice keeps
  std::vector<Choice> choices_;
  // For kBudget. The model: bytes of the choices; its peak with everything kept, and its least.
  std::vector<RematOption> modelled_;
  int64_t all_modelled_ = 0, least_modelled_ = 0;
  int64_t all_planned_ = 0;
};

// Keeps the saved values of a segment but for `dropped` (of a run: keeps nothing but its entry).
Choice Rematerializer::choice_of(int begin, int end, std::vector<ValueId> dropped) {
  const bool is_run = end - begin > 1;
  std::vector<ValueId> kept;
  if (!is_run)
    for (ValueId v : chain_.saved[static_cast<size_t>(begin)])
      if (std::find(dropped.begin(), dropped.end(), v) == dropped.end()) kept.push_back(v);
  for (ValueId v : kept) keep_[v] = 1;
  const Recompute r = recomputer_.plan(begin, end, keep_);
  for (ValueId v : kept) keep_[v] = 0;
  Choice c;
  c.dropped = std::move(dropped);
  c.option = {begin, end, 0, r.bytes, r.seconds};
  c.option.working_bytes += chain_.backward_bytes[static_cast<size_t>(end - 1)];
  for (ValueId v : kept) c.option.kept_bytes += bytes(v);
  const ValueId entry = chain_.entry[static_cast<size_t>(begin)];
  bool reads_entry = chain_.entry_is_saved[static_cast<size_t>(begin)] != 0;
  for (ValueId v : r.inputs) reads_entry |= chain_.root[v] == entry;
  if (entry != kNone && reads_entry) c.option.kept_bytes += bytes(entry);
  return c;
}

Choice Rematerializer::drop_run(int begin, int end) {
  std::vector<ValueId> all;
  if (end - begin == 1) all = chain_.saved[static_cast<size_t>(begin)];
  return choice_of(begin, end, std::move(all));
}

// From keeping everything to keeping nothing, each step the value that costs least per byte.
void Rematerializer::list_segment(int s) {
  std::vector<ValueId> left = chain_.saved[static_cast<size_t>(s)], dropped;
  choices_.push_back(choice_of(s, s + 1, {}));
  if (s == chain_.n_segments - 1) return;  // its backward pass follows at once
  if (left.size() > kMaxStepwise) {
    for (ValueId v : left) {
      const OpDef* op = f_.producer(v)->op;
      if (op->is_elementwise || op->is_reduction || op->precision == Precision::kHigh)
        dropped.push_back(v);
    }
    choices_.push_back(choice_of(s, s + 1, dropped));
    choices_.push_back(choice_of(s, s + 1, left));
    return;
  }
  while (!left.empty()) {
    size_t best = 0;
    double best_rate = HUGE_VAL;
    Choice best_choice;
    const double now = choices_.back().option.seconds;
    for (size_t i = 0; i < left.size(); ++i) {
      auto trial = dropped;
      trial.push_back(left[i]);
      Choice c = choice_of(s, s + 1, std::move(trial));
      const double rate =
          (c.option.seconds - now) / static_cast<double>(std::max<int64_t>(bytes(left[i]), 1));
      if (rate < best_rate) best_rate = rate, best = i, best_choice = std::move(c);
    }
    dropped = best_choice.dropped;
    choices_.push_back(std::move(best_choice));
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

void Rematerializer::list_options() {
  const int n = chain_.n_segments;
  for (int s = 0; s < n; ++s) list_segment(s);
  for (int begin = 0; begin < n - 1; ++begin)
    for (int end = begin + 2; end < n && end <= begin + kMaxRun; ++end)
      choices_.push_back(drop_run(begin, end));
}

std::vector<Choice> Rematerializer::pick(const std::vector<int>& indices) const {
  std::vector<Choice> out;
  for (int i : indices) out.push_back(choices_[static_cast<size_t>(i)]);
  return out;
}

NodeId Rematerializer::first_reader(const Recompute& r) const {
  std::vector<uint8_t> made(f_.nodes.size(), 0);
  for (NodeId n : r.nodes) made[n] = 1;
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    if (!chain_.is_backward[n]) continue;
    for (ValueId v : f_.nodes[n].inputs)
      if (const NodeId p = f_.values[v].node; p != kNone && made[p]) return n;
  }
  return kNone;
}

// The last node before the reader that belongs to the backward pass of later segments: when it has
// run, the gradient has arrived.
NodeId Rematerializer::gate_before(NodeId reader, int end) const {
  for (NodeId n = reader; n-- > 0;)
    if (chain_.is_backward[n] && chain_.late[n] >= end && f_.nodes[n].n_outputs > 0) return n;
  return kNone;
}

Result<Function> Rematerializer::rewrite(const std::vector<Choice>& chosen) {
  struct Work {
    Recompute recompute;
    NodeId reader, gate;
  };
  std::vector<Work> work;
  for (const Choice& c : chosen) {
    const int begin = c.option.begin, end = c.option.end;
    std::vector<ValueId> kept;
    if (end - begin == 1)
      for (ValueId v : chain_.saved[static_cast<size_t>(begin)])
        if (std::find(c.dropped.begin(), c.dropped.end(), v) == c.dropped.end()) kept.push_back(v);
    for (ValueId v : kept) keep_[v] = 1;
    Work w{recomputer_.plan(begin, end, keep_), kNone, kNone};
    for (ValueId v : kept) keep_[v] = 0;
    if (w.recompute.nodes.empty()) continue;
    w.reader = first_reader(w.recompute);
    if (w.reader != kNone) w.gate = gate_before(w.reader, end);
    if (w.gate != kNone) work.push_back(std::move(w));
  }
  std::sort(work.begin(), work.end(),
            [](const Work& a, const Work& b) { return a.reader < b.reader; });

  Rewriter rw(module_, f_);
  Builder& b = rw.builder();
  size_t next = 0;
  for (NodeId n = 0; n < f_.nodes.size(); ++n) {
    for (; next < work.size() && work[next].reader == n; ++next) {
      const Work& w = work[next];
      const Var gate = rw.at(f_.nodes[w.gate].output());
      b.set_phase(Phase::kBackward);
      std::vector<std::pair<ValueId, Var>> outside;  // to be seen as before by what follows
      for (ValueId v : w.recompute.inputs) {
        const Node* p = f_.producer(v);
        if (p && (p->op == &constant_op || p->op == &iota_op)) continue;
        outside.emplace_back(v, rw.at(v));
        b.set_origin(p ? p->origin : f_.nodes[n].origin);
        const Var xs[] = {rw.at(v)}, after[] = {gate};
        rw.bind(v, barrier(xs, after)[0]);
      }
      for (NodeId m : w.recompute.nodes) {
        Node again = f_.nodes[m];
        again.phase = Phase::kBackward;
        rw.take(again);
      }
      for (const auto& [v, var] : outside) rw.bind(v, var);
    }
    rw.clone(f_.nodes[n]);
  }
  return rw.finish();
}

Result<int64_t> Rematerializer::peak_of(const Function& f) const {
  Module copy = module_;
  Function fused = f;
  // Whatever comes after this pass decides on lifetimes, too.
  for (const PassDef* pass : {&dce_pass, &norm_residual_pass, &widen_again_pass})
    TEGULA_TRY(pass->run(copy, fused, options_));
  TEGULA_TRY(fuse_function(copy, fused, true, sums_columns(options_)));
  return options_.asked().peak_bytes(copy, fused);
}

// Least time within the model's budget; none if nothing fits it.
Result<std::optional<Candidate>> Rematerializer::plan_for(int64_t modelled_budget) {
  const auto chosen = choose_remat(modelled_, chain_.n_segments, modelled_budget);
  if (!chosen) return std::optional<Candidate>();
  double seconds = 0;
  for (int k : *chosen) seconds += modelled_[static_cast<size_t>(k)].seconds;
  Function f = TEGULA_TRY(rewrite(pick(*chosen)));
  const int64_t peak = TEGULA_TRY(peak_of(f));
  return std::optional<Candidate>(Candidate{std::move(f), seconds, peak});
}

// The model's own peak for keeping everything stands for the planned one; then the model's budget
// is lowered until the plan fits, and raised again while there is room.
Result<std::optional<Candidate>> Rematerializer::search(int64_t budget) {
  int64_t low = least_modelled_, high = all_modelled_, target = high - (all_planned_ - budget);
  const int64_t unit = std::max<int64_t>(high / 128, 1);
  std::optional<Candidate> best;
  for (int i = 0; i < kMaxPlans && low <= high; ++i) {
    target = std::clamp(target, low + unit, std::max(low + unit, high));
    auto candidate = TEGULA_TRY(plan_for(target));
    if (!candidate || (best && candidate->seconds >= best->seconds)) break;
    const int64_t peak = candidate->peak;
    if (peak <= budget) {
      best = std::move(candidate);
      if (budget - peak <= budget / 64) break;
      low = target;
      target += budget - peak;
    } else {
      if (target <= low + unit) break;
      high = target;
      target -= std::max(peak - budget, unit);
    }
    if (best && high - low < unit) break;
    if (target <= low || target >= high) target = low + (high - low) / 2;
  }
  return best;
}

Result<Function> Rematerializer::within_budget() {
  const int64_t budget = options_.memory_bytes;
  all_planned_ = TEGULA_TRY(peak_of(f_));
  if (all_planned_ <= budget) return f_;
  list_options();
  for (const Choice& c : choices_) modelled_.push_back(c.option);
  int64_t kept = 0;
  for (const Choice& c : choices_) {
    if (c.option.end - c.option.begin > 1 || !c.dropped.empty()) continue;
    kept += c.option.kept_bytes;
    all_modelled_ = std::max(all_modelled_, kept + c.option.working_bytes);
  }
  for (int64_t step = all_modelled_; step > all_modelled_ / 256; step /= 2)
    if (!choose_remat(modelled_, chain_.n_segments, least_modelled_ + step))
      least_modelled_ += step;
  auto found = TEGULA_TRY(search(budget));
  if (found) return std::move(found->function);

  // The least that works: the best of tries that do not depend on the budget, so that it does work.
  // Every √N is one of them, since the model's peak is not the planned one: where segments are few,
  // a choice that costs the model more may need less.
  std::optional<Candidate> least = Candidate{TEGULA_TRY(every_sqrt()), 0, 0};
  least->peak = TEGULA_TRY(peak_of(least->function));
  for (int64_t k = 1, n = kMaxPlans; k <= n; ++k) {
    const int64_t up = (all_modelled_ - least_modelled_) * k * k / (4 * n * n);
    auto next = TEGULA_TRY(plan_for(k == n ? all_modelled_ : least_modelled_ + up));
    if (next && next->peak < least->peak) least = std::move(next);
  }
  if (least->peak <= budget || options_.is_region) return std::move(least->function);
  return out_of_memory(cat("a budget of ", budget,
                           " bytes for activations, gradients and workspaces is too small: the "
                           "least that works is ",
                           least->peak, " bytes; use that, or a smaller batch"));
}

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.remat == Remat::kNone) return false;
  bool has_backward = false;
  for (const Node& n : f.nodes) has_backward |= n.phase == Phase::kBackward;
  if (!has_backward) return false;
  // So that it is narrow values that are saved.
  const bool is_widened = TEGULA_TRY(widen_again_pass.run(module, f, options));
  Rematerializer remat(module, f, options);
  if (!remat.has_chain()) return is_widened;
  Function out =
      TEGULA_TRY(options.remat == Remat::kSqrt ? remat.every_sqrt() : remat.within_budget());
  const bool changed = is_widened || out.nodes.size() != f.nodes.size();
  f = std::move(out);
  return changed;
}

}  // namespace

extern const PassDef remat_pass = {
    .name = "remat",
    .doc = "computes activations again to save memory",
    .phase = PassPhase::kMemory,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
