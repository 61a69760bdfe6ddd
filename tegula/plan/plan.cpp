#include "tegula/plan/plan.h"

#include <cstdio>

#include "tegula/base/range.h"
#include "tegula/base/saturating.h"
#include "tegula/cost/price.h"
#include "tegula/ir/collective.h"
#include "tegula/ir/regions.h"
#include "tegula/ir/sharding.h"
#include "tegula/kernels/moves.h"
#include "tegula/plan/step_seconds.h"

namespace tegula {

std::vector<TensorRef> refs_at(const std::vector<PlanTensor>& tensors,
                               std::span<const int64_t> extents) {
  std::vector<TensorRef> refs;
  refs.reserve(tensors.size());
  for (const PlanTensor& t : tensors) {
    TensorRef r;
    r.dtype = t.type.dtype, r.rank = t.type.shape.rank();
    for (int d = 0; d < r.rank; ++d)
      r.shape[d] = t.type.shape[d].at(extents), r.stride[d] = t.stride[d];
    refs.push_back(r);
  }
  return refs;
}

bool are_empty(std::span<const TensorRef> tensors) {
  return all_of(tensors, [](const TensorRef& t) { return t.numel() == 0; });
}

std::vector<std::vector<int64_t>> some_extents(std::span<const Symbol> symbols,
                                               std::span<const LeastExtent> least) {
  std::vector<std::vector<int64_t>> all(symbols.empty() ? 1 : 5);
  for (size_t s = 0; s < symbols.size(); ++s) {
    const int64_t bound = symbols[s].bound, low = s < least.size() ? least[s].extent : 0;
    const int64_t tries[] = {bound, bound - 1, bound / 2, 1, 0};
    for (size_t i = 0; i < all.size(); ++i)
      all[i].push_back(std::min(std::max(tries[i], low), bound));
  }
  for (size_t s = 0; s < symbols.size() && symbols.size() > 1; ++s)  // each alone
    for (const size_t i : {size_t{1}, size_t{3}, size_t{4}}) {
      std::vector<int64_t> alone = all[0];
      alone[s] = all[i][s];
      all.push_back(std::move(alone));
    }
  return all;
}

int64_t Plan::flops() const {
  int64_t n = 0;
  for (const Step& s : steps) n = saturating_add(n, s.flops);
  return n;
}

int64_t Plan::bytes() const {
  int64_t n = 0;
  for (const Step& s : steps) n = saturating_add(n, s.bytes);
  return n;
}

Status check_totals(const Plan& plan) {
  const auto refuse = [&](const char* what, int64_t Step::*of) {
    double sum = 0;
    for (const Step& s : plan.steps) sum += static_cast<double>(s.*of);
    return unsupported(cat("plan ", plan.name, ": its ", plan.steps.size(), " steps have ", sum,
                           " ", what, " together, and 64 bits count to ", kUncountable,
                           ": cut it into smaller ones (--batch, --accumulate, --seqlen)"));
  };
  if (plan.flops() == kUncountable) return refuse("FLOPs", &Step::flops);
  if (plan.bytes() == kUncountable) return refuse("bytes", &Step::bytes);
  return {};
}

// fn of the step's call at the bounds.
template <class F>
static auto with_call(const Step& s, F&& fn) {
  std::vector<Type> in, out;
  for (const PlanTensor& t : s.in) in.push_back(t.type);
  for (const PlanTensor& t : s.out) out.push_back(t.type);
  return fn(OpCall{s.op, &s.attrs, in, out, nullptr, {}});
}

double seconds_of(const Target& target, const Step& s) {
  if (s.op->collective)
    return s.ends >= 0 ? 0 : with_call(s, [&](const OpCall& c) { return price(target, c); });
  const DType dtype = s.in.empty() ? DType::kF32 : s.in[0].type.dtype;
  const auto flops = static_cast<double>(s.flops), bytes = static_cast<double>(s.bytes);
  return price(target, with_call(s, [&](const OpCall& c) { return work_of(c, flops, bytes); }),
               dtype);
}

double Plan::seconds() const {
  double sum = 0;
  for (const Step& s : steps) sum += seconds_of(target, s);
  return sum;
}

bool Plan::has_collectives() const {
  return any_of(steps, [](const Step& s) { return s.op->collective && s.attrs.i("ranks") > 1; });
}

// Bytes that the group's ranks take from the one at `index`, by an algorithm that is data.
static int64_t taken_bytes(const Plan& plan, const Step& s, int64_t index) {
  // Nothing is touched: data has an address, so that places in it have.
  static constexpr uintptr_t kSomewhere = uintptr_t{1} << 40;
  std::vector<int64_t> bounds;
  for (const Symbol& symbol : plan.symbols) bounds.push_back(symbol.bound);
  auto in = refs_at(s.in, bounds), out = refs_at(s.out, bounds);
  for (auto* refs : {&in, &out})
    for (TensorRef& t : *refs) t.data = reinterpret_cast<void*>(kSomewhere);
  Counters counters;
  const KernelCall call{.attrs = &s.attrs,
                        .in = in,
                        .out = out,
                        .workspace = reinterpret_cast<void*>(kSomewhere),
                        .counters = &counters,
                        .tuning = s.tuning,
                        .target = &plan.target};
  const CollectiveMoves& how = *s.kernel->moves;
  const int n_rounds = how.n_rounds ? how.n_rounds(call) : 1;
  std::vector<Move> moves;
  int64_t bytes = 0;
  for (int64_t taker = 0; taker < s.attrs.i("ranks"); ++taker) {
    if (taker == index) continue;
    moves.clear();
    for (int round = 0; round < n_rounds; ++round) how.list(call, taker, round, moves);
    for (const Move& m : moves)
      if (m.giver == index) bytes += m.bytes * m.count;
  }
  return bytes;
}

int64_t Plan::sent_bytes(const Mesh& mesh, std::span<const int64_t> at) const {
  int64_t bytes = 0;
  for (const Step& s : steps) {
    if (!s.op->collective || s.attrs.i("ranks") == 1 || s.ends >= 0) continue;
    const int axis = mesh.find(s.attrs.str("axis"));
    TEGULA_CHECK(axis >= 0, "plan ", name, ": the mesh has no axis ", s.attrs.str("axis"));
    const int64_t index = at[axis];
    if (s.kernel && s.kernel->moves && s.attrs.find("algorithm"))
      bytes += taken_bytes(*this, s, index);
    else
      bytes +=
          with_call(s, [&](const OpCall& c) { return s.op->collective->sent_bytes(c, index); });
  }
  return bytes;
}

int Plan::n_background() const {
  return static_cast<int>(
      std::count_if(steps.begin(), steps.end(), [](const Step& s) { return s.starts >= 0; }));
}

int Plan::host_steps() const {
  if (target.device == DeviceKind::kCpu) return 0;
  int n = 0;
  for (const Step& s : steps) {
    // A loop's rounds are known before it runs, unless the data decides.
    const bool is_loop =
        !s.regions.empty() && !s.op->regions->is_choice() && s.op->regions->body() == 0;
    n += s.kernel == nullptr && !is_loop;
    for (const auto& region : s.regions) n += region->host_steps();
  }
  return n;
}

int Plan::find_param(std::string_view wanted) const {
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].name == wanted) return static_cast<int>(i);
  return -1;
}

int Plan::find_result(std::string_view wanted) const {
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].name == wanted) return static_cast<int>(i);
  return -1;
}

std::string Plan::to_string() const {
  std::string out = cat("plan ", name, ": ", steps.size(), " steps, ", slots.size(), " slots\n",
                        "  arena ", arena_bytes, " bytes (lower bound ", lower_bound_bytes,
                        "), parameters ", param_bytes, ", FLOPs ", flops(), "\n");
  auto tensor = [&](const PlanTensor& t) {
    const Slot& s = slots[t.slot];
    std::string at = s.kind == SlotKind::kParam ? params[s.param].name : cat("@", s.offset);
    if (t.byte_offset) append(at, cat("+", t.byte_offset));
    return cat(at, ":", ::tegula::to_string(t.type, symbols));
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    out += cat("  ", i, " ", s.starts >= 0 ? cat("start ", s.starts, " ") : "",
               s.ends >= 0 ? cat("done ", s.ends, " ") : "", s.op->name, " [",
               s.kernel                            ? s.kernel->name
               : target.device == DeviceKind::kCpu ? "reference"
                                                   : "none");
    if (!(s.tuning == Tuning{}))
      for (const int32_t v : s.tuning.knob) out += cat(" ", v);
    out += "] (";
    for (size_t k = 0; k < s.in.size(); ++k) out += cat(k ? ", " : "", tensor(s.in[k]));
    out += ") -> ";
    for (size_t k = 0; k < s.out.size(); ++k) out += cat(k ? ", " : "", tensor(s.out[k]));
    out += cat("  flops ", s.flops, " bytes ", s.bytes);
    if (s.workspace >= 0) {
      const Slot& w = slots[s.workspace];
      out += cat(" workspace @", w.offset, ":", w.bytes);
    }
    out += "\n";
  }
  return out;
}

}  // namespace tegula
