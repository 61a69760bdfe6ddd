#include "tegula/plan/verify.h"

#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/ir/regions.h"
#include "tegula/plan/verify_parts.h"

namespace tegula::verify {

namespace {

using Wide = __int128;
constexpr int64_t kLine = 64;  // alignment of slots
int64_t to_line(int64_t n) { return (n + kLine - 1) / kLine * kLine; }

struct Held {  // a run of bytes
  int64_t end = 0;
  ValueId value = kNone;               // kNone: scratch of a workspace
  int writer = -1;                     // step; -1: there from the start
  const PlanTensor* layout = nullptr;  // as it was written
  int64_t at = 0;                      // where layout's slot begins
};
using Memory = std::map<int64_t, Held>;  // by begin

class Checker {
 public:
  Checker(const Plan& plan, bool is_region)
      : plan_(plan), is_region_(is_region), memory_(plan.params.size() + 1) {}

  Status run() {
    for (size_t s = 0; s < plan_.least.size(); ++s)
      if (s >= plan_.symbols.size() || least(static_cast<int>(s)) < 0 ||
          least(static_cast<int>(s)) > plan_.symbols[s].bound)
        return error("M2 tensors", cat("symbol ", s, " has no extent that may be run"));
    TEGULA_TRY(slots());
    TEGULA_TRY(ports());
    for (size_t i = 0; i < plan_.steps.size(); ++i) TEGULA_TRY(step_form(i));
    TEGULA_TRY(check_background(plan_, is_region_));
    TEGULA_TRY(lifetimes());
    TEGULA_TRY(overlap());
    TEGULA_TRY(totals());
    load_params();
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      TEGULA_TRY(check_launch(plan_, i));
      TEGULA_TRY(check_regions(plan_, i));
      TEGULA_TRY(aliasing(i));
      TEGULA_TRY(execute(i));
    }
    return donations();
  }

 private:
  Error error(std::string_view rule, const std::string& what) const {
    return broken(plan_, rule, what);
  }
  int64_t least(int symbol) const {
    const auto s = static_cast<size_t>(symbol);
    return s < plan_.least.size() ? plan_.least[s].extent : 0;
  }
  const Slot& slot(int s) const { return plan_.slots[s]; }
  std::string slot_name(int s) const { return cat("slot ", s, " (", slot(s).name, ")"); }
  // Arena: 0; parameter p: 1 + p.
  size_t space(int s) const {
    return slot(s).kind == SlotKind::kArena ? 0 : static_cast<size_t>(slot(s).param) + 1;
  }
  int64_t base(int s) const { return slot(s).kind == SlotKind::kArena ? slot(s).offset : 0; }
  // The tensor that a region's parameter is bound to has the strides of the tensor there.
  Bytes room_of(int s) const {
    if (is_region_ && slot(s).kind == SlotKind::kParam)
      return reach(plan_.params[slot(s).param].tensor).value_or(Bytes{});
    return {0, slot(s).bytes};
  }
  Bytes place(const PlanTensor& t) const {
    Bytes b = *reach(t);
    b.begin += base(t.slot), b.end += base(t.slot);
    return b;
  }
  std::vector<Bytes> places(const PlanTensor& t) const {
    std::vector<Bytes> runs = runs_of(t);
    for (Bytes& b : runs) b.begin += base(t.slot), b.end += base(t.slot);
    return runs;
  }
  // Do they share a byte? Pieces of one whole may lie between each other.
  bool share(const PlanTensor& a, const PlanTensor& b) const {
    if (space(a.slot) != space(b.slot) || !place(a).meets(place(b))) return false;
    const std::vector<Bytes> x = places(a), y = places(b);
    for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
      if (x[i].meets(y[j])) return true;
      x[i].end <= y[j].begin ? ++i : ++j;
    }
    return false;
  }

  Status slots() const {
    std::vector<bool> taken(plan_.params.size(), false);
    for (size_t i = 0; i < plan_.slots.size(); ++i) {
      const Slot& s = plan_.slots[i];
      const std::string name = slot_name(static_cast<int>(i));
      if (s.bytes < 0) return error("M1 slots", cat(name, " has ", s.bytes, " bytes"));
      if (s.kind == SlotKind::kParam) {
        if (s.param < 0 || static_cast<size_t>(s.param) >= plan_.params.size())
          return error("M1 slots", cat(name, " is parameter ", s.param, " of ", taken.size()));
        if (taken[s.param])
          return error("M1 slots", cat(name, " is a second slot of parameter ", s.param));
        taken[s.param] = true;
      } else if (s.offset < 0 || s.offset % kLine != 0 ||
                 Wide{s.offset} + s.bytes > plan_.arena_bytes) {
        return error("M1 slots", cat(name, ", ", s.bytes, " bytes at offset ", s.offset,
                                     ", does not lie in an arena of ", plan_.arena_bytes,
                                     " bytes at a multiple of ", kLine));
      }
    }
    return {};
  }

  Status tensor(const PlanTensor& t, const std::string& who, bool is_written,
                bool needs_value = true) const {
    if (t.slot < 0 || static_cast<size_t>(t.slot) >= plan_.slots.size())
      return error("M2 tensors", cat(who, " lies in slot ", t.slot, " of ", plan_.slots.size()));
    for (const Dim& d : t.type.shape) {
      if (d.symbol == kNoSymbol) continue;
      if (d.symbol < 0 || static_cast<size_t>(d.symbol) >= plan_.symbols.size() ||
          plan_.symbols[d.symbol].bound != d.symbol_bound)
        return error("M2 tensors", cat(who, " has a dim of an unknown symbol or bound"));
      if (d.scale < 0 || d.offset + d.scale * least(d.symbol) < 0)
        return error("M2 tensors", cat(who, " has a dim below 0 at an extent that may be run"));
    }
    const auto bytes = reach(t);
    const Bytes room = room_of(t.slot);
    if (!bytes || (!bytes->is_empty() && (bytes->begin < room.begin || bytes->end > room.end)))
      return error(
          "M2 tensors",
          cat(who, ", ", t.type, " with strides ", strides(t), ", ",
              bytes ? cat("reaches bytes [", bytes->begin, ", ", bytes->end, ")")
                    : std::string("reaches beyond any memory"),
              " of ", slot_name(t.slot), ", which has [", room.begin, ", ", room.end, ")"));
    if (count_runs(t) > kMostRuns)
      return error("M2 tensors", cat(who, ", ", t.type, " with strides ", strides(t),
                                     ", is scattered over more than ", kMostRuns,
                                     " places, which is more than are checked"));
    if (t.byte_offset % size_bytes(t.type.dtype) != 0)
      return error("M2 tensors", cat(who, " lies at byte ", t.byte_offset, ", not aligned"));
    if (needs_value && (t.value == kNone || t.holds == kNone))
      return error("M2 tensors", cat(who, " does not say which value it is"));
    return is_written ? own_places(t, who) : Status{};
  }

  static std::vector<int64_t> strides(const PlanTensor& t) {
    return {t.stride, t.stride + t.type.shape.rank()};
  }

  // No two indices share an element: sorted by stride, each dim steps over all smaller ones.
  Status own_places(const PlanTensor& t, const std::string& who) const {
    std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
    for (int d = 0; d < t.type.shape.rank(); ++d) {
      const int64_t n = t.type.shape[d].bound();
      if (n == 0) return {};
      if (n > 1) dims.emplace_back(std::abs(t.stride[d]), n);
    }
    std::sort(dims.begin(), dims.end());
    int64_t span = 1;
    for (const auto& [stride, n] : dims) {
      if (stride < span)
        return error("M2 tensors", cat(who, " is written with strides ", strides(t), " of ", t.type,
                                       ": elements would share a place"));
      span = stride * (n - 1) + span;
    }
    return {};
  }

  Status ports() const {
    for (size_t p = 0; p < plan_.params.size(); ++p) {
      const auto& port = plan_.params[p];
      const std::string who = cat("parameter ", port.name);
      TEGULA_TRY(tensor(port.tensor, who, false, !is_region_));  // a result's home is empty
      if (space(port.tensor.slot) != p + 1 || port.tensor.byte_offset != 0)
        return error("M1 slots", cat(who, " lies in ", slot_name(port.tensor.slot),
                                     ", which is not bound to it"));
      if (port.donated_to >= static_cast<int>(plan_.results.size()) || port.donated_to < -1)
        return error("M5 donations", cat(who, " is donated to result ", port.donated_to, " of ",
                                         plan_.results.size()));
    }
    for (const auto& port : plan_.results)
      TEGULA_TRY(tensor(port.tensor, cat("result ", port.name), false));
    return {};
  }

  Status step_form(size_t i) const {
    const Step& s = plan_.steps[i];
    const std::string who = step_name(plan_, i);
    for (size_t k = 0; k < s.in.size(); ++k)
      TEGULA_TRY(tensor(s.in[k], cat(who, ": operand ", k), false));
    for (size_t k = 0; k < s.out.size(); ++k) {
      TEGULA_TRY(tensor(s.out[k], cat(who, ": result ", k), true));
      if (s.out[k].value != s.out[k].holds)
        return error("M4 values", cat(who, ": result ", k, " claims to be a view"));
    }
    if (s.workspace < -1 || s.workspace >= static_cast<int>(plan_.slots.size()) ||
        (s.workspace >= 0 && slot(s.workspace).kind != SlotKind::kArena))
      return error("M7 kernels", cat(who, ": workspace in slot ", s.workspace));
    return {};
  }

  // First and last step of every slot, from the steps alone.
  Status lifetimes() {
    const int n = static_cast<int>(plan_.steps.size());
    lives_.assign(plan_.slots.size(), {n + 1, -1});
    auto use = [&](int s, int step) {
      auto& [first, last] = lives_[s];
      first = std::min(first, step), last = std::max(last, step);
    };
    for (int i = 0; i < n; ++i) {
      const Step& s = plan_.steps[i];
      for (const PlanTensor& t : s.in) use(t.slot, i);
      for (const PlanTensor& t : s.out) use(t.slot, i);
      if (s.workspace >= 0) use(s.workspace, i);
    }
    for (const auto& r : plan_.results) use(r.tensor.slot, n);
    for (size_t s = 0; s < lives_.size(); ++s) {
      const auto [first, last] = lives_[s];
      const Slot& have = plan_.slots[s];
      if (last < 0 || have.kind == SlotKind::kParam || have.bytes == 0) continue;
      if (have.first_step != first || have.last_step != last)
        return error("M3 overlap", cat(slot_name(static_cast<int>(s)), " is said to live in steps ",
                                       have.first_step, " to ", have.last_step,
                                       " and is used in steps ", first, " to ", last));
    }
    return {};
  }

  Status overlap() const {
    std::vector<int> order;
    for (size_t s = 0; s < lives_.size(); ++s)
      if (plan_.slots[s].kind == SlotKind::kArena && plan_.slots[s].bytes > 0 &&
          lives_[s].second >= 0)
        order.push_back(static_cast<int>(s));
    auto first = [&](int s) { return lives_[s].first; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return first(a) < first(b); });
    std::map<int64_t, int> live;  // by offset
    for (int s : order) {
      std::erase_if(live, [&](const auto& l) { return lives_[l.second].second < first(s); });
      const auto next = live.lower_bound(slot(s).offset);
      int hit = -1;
      if (next != live.end() && next->first < slot(s).offset + slot(s).bytes) hit = next->second;
      if (next != live.begin()) {
        const int before = std::prev(next)->second;
        if (slot(before).offset + slot(before).bytes > slot(s).offset) hit = before;
      }
      if (hit >= 0)
        return error("M3 overlap",
                     cat(slot_name(hit), ", bytes [", slot(hit).offset, ", ",
                         slot(hit).offset + slot(hit).bytes, "), and ", slot_name(s), ", bytes [",
                         slot(s).offset, ", ", slot(s).offset + slot(s).bytes,
                         "), are both alive at step ", first(s)));
      live.emplace(slot(s).offset, s);
    }
    return {};
  }

  Status totals() const {
    int64_t top = 0, bound = 0, live = 0, params = 0;
    std::vector<int64_t> delta(plan_.steps.size() + 2, 0);
    for (size_t s = 0; s < plan_.slots.size(); ++s) {
      const Slot& have = plan_.slots[s];
      const int64_t bytes = to_line(have.bytes);
      if (have.kind == SlotKind::kParam) {
        params += bytes;
      } else if (bytes > 0 && lives_[s].second >= 0) {
        top = std::max(top, have.offset + bytes);
        delta[lives_[s].first] += bytes;
        delta[static_cast<size_t>(lives_[s].second) + 1] -= bytes;
      }
    }
    for (int64_t d : delta) bound = std::max(bound, live += d);
    if (top != plan_.arena_bytes)
      return error("M8 totals", cat("the arena has ", plan_.arena_bytes,
                                    " bytes, the highest slot ends at ", top));
    if (bound != plan_.lower_bound_bytes)
      return error("M8 totals", cat("the lower bound is given as ", plan_.lower_bound_bytes,
                                    " bytes, the largest live sum is ", bound));
    if (!is_region_ && params != plan_.param_bytes)
      return error("M8 totals", cat("parameters are given as ", plan_.param_bytes,
                                    " bytes, their slots have ", params));
    return plan_.target.n_threads < 1 ? error("M8 totals", cat(plan_.target.n_threads, " threads"))
                                      : Status{};
  }

  static bool may_overwrite(const Step& s, size_t operand, size_t result) {
    if (s.op->is_elementwise) return true;
    if (s.program && s.kernel) return operand >= s.op->regions->n_factors;
    for (const auto& pair : s.op->aliases)
      if (static_cast<size_t>(pair[0]) == operand && static_cast<size_t>(pair[1]) == result)
        return true;
    const RegionDef* def = s.op->regions;  // a loop starts from its carry where it lies
    return def && !def->carries.empty() && operand == result &&
           static_cast<int64_t>(result) < s.attrs.get_or<int64_t>(def->carries, 0);
  }

  static bool same_elements(const PlanTensor& a, const PlanTensor& b) {
    if (!(a.type == b.type)) return false;
    for (int d = 0; d < a.type.shape.rank(); ++d)
      if (a.stride[d] != b.stride[d] && a.type.shape[d].bound() > 1) return false;
    return true;
  }

  // Operand k of a concat that lies where the concat would put it.
  bool is_its_piece(const Step& s, size_t k) const {
    if (s.op->joins.empty()) return false;
    const auto dim = static_cast<int>(s.attrs.i(s.op->joins));
    PlanTensor piece = s.out[0];
    for (size_t j = 0; j < k; ++j)
      piece.byte_offset +=
          s.in[j].type.shape[dim].bound() * piece.stride[dim] * size_bytes(piece.type.dtype);
    piece.type = s.in[k].type;
    return place(piece).begin == place(s.in[k]).begin && same_elements(piece, s.in[k]);
  }

  Status aliasing(size_t i) const {
    const Step& s = plan_.steps[i];
    Bytes scratch;
    if (s.workspace >= 0)
      scratch = {base(s.workspace), base(s.workspace) + slot(s.workspace).bytes};
    for (size_t k = 0; k < s.out.size(); ++k) {
      if (space(s.out[k].slot) == 0 && place(s.out[k]).meets(scratch))
        return error("M6 aliasing", cat(step_name(plan_, i), ": result ", k, " in its workspace"));
      for (size_t j = 0; j < k; ++j)
        if (share(s.out[j], s.out[k]))
          return error("M6 aliasing", cat(step_name(plan_, i), ": results ", j, " and ", k,
                                          " lie in the same bytes of ", slot_name(s.out[k].slot)));
    }
    for (size_t k = 0; k < s.in.size(); ++k) {
      const Bytes in = place(s.in[k]);
      if (space(s.in[k].slot) == 0 && in.meets(scratch))
        return error("M6 aliasing", cat(step_name(plan_, i), ": operand ", k, " in its workspace"));
      for (size_t j = 0; j < s.out.size(); ++j) {
        if (!share(s.in[k], s.out[j]) || is_its_piece(s, k)) continue;
        if (in.begin != place(s.out[j]).begin || !same_elements(s.in[k], s.out[j]) ||
            !may_overwrite(s, k, j))
          return error("M6 aliasing",
                       cat(step_name(plan_, i), " writes result ", j, " over operand ", k, " in ",
                           slot_name(s.in[k].slot), ", which it may not"));
      }
    }
    return {};
  }

  void write(Memory& m, Bytes b, Held held) {
    if (b.is_empty()) return;
    auto it = m.upper_bound(b.begin);
    if (it != m.begin()) --it;
    while (it != m.end() && it->first < b.end) {
      const int64_t begin = it->first;
      const Held old = it->second;
      if (old.end <= b.begin) {
        ++it;
        continue;
      }
      it = m.erase(it);
      if (begin < b.begin) {
        Held left = old;
        left.end = b.begin;
        m.emplace(begin, left);
      }
      if (old.end > b.end) it = m.emplace(b.end, old).first;
    }
    held.end = b.end;
    m.emplace(b.begin, held);
  }

  std::string writer(const Held& h) const {
    return h.writer < 0 ? std::string("the caller")
                        : step_name(plan_, static_cast<size_t>(h.writer));
  }

  // All of t's bytes hold its value, in the layout that t's strides assume.
  Status read(const PlanTensor& t, const std::string& who, std::string_view rule = "M4 values") {
    const Bytes want = place(t);
    const Memory& m = memory_[space(t.slot)];
    const std::string is = cat(who, " is value ", t.holds, ", bytes [", want.begin, ", ", want.end,
                               ") of ", slot(t.slot).kind == SlotKind::kArena ? "the arena" : "",
                               slot(t.slot).kind == SlotKind::kArena ? "" : slot_name(t.slot));
    const PlanTensor* seen = nullptr;  // a layout that fits
    for (const Bytes& run : places(t)) {
      int64_t at = run.begin;
      while (at < run.end) {
        auto it = m.upper_bound(at);
        const Held* h = it == m.begin() ? nullptr : &std::prev(it)->second;
        if (!h || h->end <= at)
          return error(rule, cat(is, ", but nobody has written byte ", at, " before"));
        if (h->value != t.holds)
          return error(rule,
                       cat(is, ", but ", writer(*h), " left ",
                           h->value == kNone ? std::string("scratch") : cat("value ", h->value),
                           " there, at byte ", at));
        if (h->layout != seen)
          TEGULA_TRY(check_strides(plan_, t, base(t.slot), *h->layout, h->at, who));
        seen = h->layout, at = h->end;
      }
    }
    return {};
  }

  void load_params() {
    for (const auto& p : plan_.params)
      if (p.tensor.holds != kNone)
        for (const Bytes& run : places(p.tensor))
          write(memory_[space(p.tensor.slot)], run, {0, p.tensor.holds, -1, &p.tensor, 0});
  }

  Status execute(size_t i) {
    const Step& s = plan_.steps[i];
    const int step = static_cast<int>(i);
    for (size_t k = 0; k < s.in.size(); ++k)
      TEGULA_TRY(read(s.in[k], cat(step_name(plan_, i), ": operand ", k)));
    if (s.ends >= 0)
      for (const PlanTensor& t : s.out)
        for (const Bytes& run : places(t)) TEGULA_TRY(untouched(memory_[space(t.slot)], run, i));
    if (s.workspace >= 0) {
      const Bytes all{base(s.workspace), base(s.workspace) + slot(s.workspace).bytes};
      if (s.ends >= 0) TEGULA_TRY(untouched(memory_[0], all, i));
      write(memory_[0], all, {0, kNone, step, nullptr, 0});
    }
    // Nobody knows until it ends how much of it is there.
    for (const PlanTensor& t : s.out)
      for (const Bytes& run : places(t))
        write(memory_[space(t.slot)], run,
              {0, s.starts < 0 ? t.holds : kNone, step, &t, base(t.slot)});
    return {};
  }

  // Since it was started in the background, nobody wrote where the work does.
  Status untouched(const Memory& m, const Bytes& run, size_t end) const {
    int64_t at = run.begin;
    while (at < run.end) {
      const auto it = m.upper_bound(at);
      const Held* h = it == m.begin() ? nullptr : &std::prev(it)->second;
      const bool is_there = h && h->end > at && h->writer >= 0;
      if (!is_there || plan_.steps[h->writer].starts != plan_.steps[end].ends)
        return error("M11 background",
                     cat(step_name(plan_, end), ": ", h ? writer(*h) : std::string("nobody"),
                         " wrote byte ", at, " while it ran"));
      at = h->end;
    }
    return {};
  }

  // After the last step. In a region every result takes over a parameter; see check_regions.
  Status donations() {
    for (const auto& p : plan_.params) {
      bool is_taken_over = false;
      for (size_t r = 0; r < plan_.results.size(); ++r) {
        const auto& result = plan_.results[r];
        const bool is_there = result.tensor.slot == p.tensor.slot;
        const bool is_its_own = result.tensor.holds == p.tensor.holds;
        is_taken_over |= is_there && !is_its_own;
        if (is_region_) continue;
        if (p.donated_to == static_cast<int>(r)) {
          if (!is_there || !place(result.tensor).is_same(place(p.tensor)) ||
              !same_elements(result.tensor, p.tensor))
            return error("M5 donations", cat("parameter ", p.name, " is donated to result ",
                                             result.name, ", which lies elsewhere"));
        } else if (is_there && !is_its_own) {
          return error("M5 donations", cat("result ", result.name, " lies in parameter ", p.name,
                                           ", which is not donated to it"));
        }
      }
      if (!is_taken_over && p.tensor.holds != kNone)
        TEGULA_TRY(read(p.tensor, cat("parameter ", p.name, ", which must keep its contents,"),
                        "M5 donations"));
    }
    for (const auto& r : plan_.results) TEGULA_TRY(read(r.tensor, cat("result ", r.name)));
    return {};
  }

  const Plan& plan_;
  bool is_region_;
  std::vector<std::pair<int, int>> lives_;
  std::vector<Memory> memory_;
};

}  // namespace

Status check_plan(const Plan& plan, bool is_region) { return Checker(plan, is_region).run(); }

}  // namespace tegula::verify

namespace tegula {
Status verify_plan(const Plan& plan) { return verify::check_plan(plan, false); }
}  // namespace tegula
