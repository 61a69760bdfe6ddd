#include "tegula/plan/schedule_check.h"

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {

// Once-a-step parts stand in a schedule of a program; only their order is looked at.
enum Row { kF, kB, kW, kRows };
constexpr int kAbsent = -1;

int row_of(PartKind kind) {
  return kind == PartKind::kForward          ? kF
         : kind == PartKind::kBackward       ? kB
         : kind == PartKind::kWeightGradient ? kW
                                             : kRows;
}

class Checker {
 public:
  explicit Checker(const Schedule& s) : s_(s), shape_(s.shape) {}

  Result<ScheduleFacts> run(int most_in_flight) {
    TEGULA_TRY(check_numbers());
    TEGULA_TRY(place());
    TEGULA_TRY(check_each_once());
    TEGULA_TRY(check_ranks());
    TEGULA_TRY(check_sums());
    TEGULA_TRY(check_groups());
    TEGULA_TRY(check_cycles());
    return facts(most_in_flight);
  }

 private:
  Error wrong(int rank, const Instr& i, const std::string& what) const {
    return invalid_argument(cat("schedule: on rank ", rank, ", ", text_of(i), " ", what));
  }

  Status check_numbers() const {
    if (shape_.n_stages < 1 || shape_.n_micro_batches < 1 || shape_.n_slices < 1 ||
        s_.ranks.size() != static_cast<size_t>(shape_.n_ranks))
      return invalid_argument(cat("schedule: ", s_.ranks.size(), " lists for ", shape_.n_ranks,
                                  " ranks, ", shape_.n_stages, " stages, ", shape_.n_micro_batches,
                                  " micro-batches, ", shape_.n_slices, " slices"));
    for (int rank = 0; rank < shape_.n_ranks; ++rank)
      for (const Instr& i : s_.ranks[rank]) {
        const bool is_micro = is_per_micro_batch(i.kind);
        const int n_micro = is_micro ? shape_.n_micro_batches : 1,
                  n_slices = is_micro ? shape_.n_slices : 1;
        if (i.stage < 0 || i.stage >= shape_.n_stages || i.micro_batch < 0 ||
            i.micro_batch >= n_micro || i.slice < 0 || i.slice >= n_slices)
          return wrong(rank, i,
                       cat("does not exist: there are ", shape_.n_stages, " stages, ", n_micro,
                           " micro-batches and ", n_slices, " slices of it"));
        if (is_micro && (row_of(i.kind) == kRows || (row_of(i.kind) == kW && !has_weights()) ||
                         (row_of(i.kind) == kB && !s_.trains)))
          return wrong(rank, i, "has no place in it");
      }
    return {};
  }
  bool has_weights() const { return s_.trains && s_.weight_gradients_apart; }
  int last_row() const { return !s_.trains ? kF : has_weights() ? kW : kB; }

  // One entry of a list, as a node of the graph of waiting.
  struct Entry {
    int rank;
    const Instr* instr;
    size_t group;  // those that go together have one
  };

  size_t slot(int row, int stage, int micro_batch, int slice) const {
    return ((static_cast<size_t>(row) * static_cast<size_t>(shape_.n_stages) +
             static_cast<size_t>(stage)) *
                static_cast<size_t>(shape_.n_micro_batches) +
            static_cast<size_t>(micro_batch)) *
               static_cast<size_t>(shape_.n_slices) +
           static_cast<size_t>(slice);
  }

  Status place() {
    at_.assign(slot(kRows, 0, 0, 0), kAbsent);
    for (int rank = 0; rank < shape_.n_ranks; ++rank) {
      bool with_last = false;
      for (const Instr& i : s_.ranks[rank]) {
        if (!with_last) ++n_groups_;
        with_last = i.with_next;
        if (row_of(i.kind) != kRows) {
          int& at = at_[slot(row_of(i.kind), i.stage, i.micro_batch, i.slice)];
          if (at != kAbsent)
            return wrong(rank, i,
                         cat("is there a second time: rank ", entries_[at].rank, " has it, too"));
          at = static_cast<int>(entries_.size());
        }
        entries_.push_back({rank, &i, n_groups_ - 1});
      }
      if (with_last)
        return wrong(rank, *entries_.back().instr, "goes with the next one, and is last");
    }
    return {};
  }

  template <class Visit>
  Status for_each_slot(Visit visit) const {
    constexpr PartKind kKinds[] = {PartKind::kForward, PartKind::kBackward,
                                   PartKind::kWeightGradient};
    for (int row = 0; row <= last_row(); ++row)
      for (int s = 0; s < shape_.n_stages; ++s)
        for (int m = 0; m < shape_.n_micro_batches; ++m)
          for (int t = 0; t < shape_.n_slices; ++t)
            TEGULA_TRY(visit(Instr{kKinds[row], s, m, t}, at_[slot(row, s, m, t)]));
    return {};
  }

  Status check_each_once() const {
    return for_each_slot([](const Instr& i, int at) -> Status {
      if (at != kAbsent) return {};
      return invalid_argument(cat("schedule: no rank runs ", text_of(i)));
    });
  }

  Status check_ranks() const {
    return for_each_slot([&](const Instr& i, int at) -> Status {
      const Entry& e = entries_[at];
      const int home = entries_[at_[slot(kF, i.stage, i.micro_batch, 0)]].rank;
      if (e.rank == home) return {};
      return wrong(e.rank, i,
                   cat("is not where that micro-batch's activations lie, on rank ", home));
    });
  }

  // Sums of gradients are chains.
  Status check_sums() const {
    if (!s_.trains) return {};
    const auto n_stages = static_cast<size_t>(shape_.n_stages);
    std::vector<const Instr*> last(s_.ranks.size() * n_stages);
    for (const Entry& e : entries_) {
      if (row_of(e.instr->kind) != last_row()) continue;
      const Instr*& before =
          last[static_cast<size_t>(e.rank) * n_stages + static_cast<size_t>(e.instr->stage)];
      if (before && before->micro_batch > e.instr->micro_batch)
        return wrong(e.rank, *e.instr,
                     cat("is added behind that of micro-batch ", before->micro_batch,
                         ": sums are ascending"));
      before = e.instr;
    }
    return {};
  }

  Status check_groups() const {
    for (const Entry& e : entries_) {
      if (!e.instr->with_next) continue;
      const Entry& next = *(&e + 1);
      const int a = row_of(e.instr->kind), b = row_of(next.instr->kind);
      if ((a == kF && b == kB) || (a == kB && b == kW)) continue;
      return wrong(e.rank, *e.instr,
                   cat("cannot go together with ", text_of(*next.instr),
                       ": a forward part goes with a backward part, which may have its weight "
                       "gradients with it"));
    }
    int updates = 0;
    for (const Entry& e : entries_) updates += e.instr->kind == PartKind::kUpdate;
    for (const Entry& e : entries_) {
      if (e.instr->weights == 0) continue;
      int made = 0;
      for (const Entry* b = entries_.data(); b != &e && updates > 0; ++b)
        made += b->rank == e.rank && b->instr->kind == PartKind::kUpdate &&
                b->instr->stage == e.instr->stage;
      if (e.instr->weights < 0 || e.instr->weights > made)
        return wrong(e.rank, *e.instr,
                     cat("reads weights of version ", e.instr->weights, ", and ", made,
                         " updates of the stage stand before it"));
    }
    return {};
  }

  // visit(entry) for each entry that this one reads from.
  template <class Visit>
  void sources(const Instr& i, Visit visit) const {
    const auto read = [&](int row, int stage, int slice) {
      visit(at_[slot(row, stage, i.micro_batch, slice)]);
    };
    const int row = row_of(i.kind);
    if (row == kF && i.stage > 0) read(kF, i.stage - 1, i.slice);
    if (row == kF && i.slice > 0) read(kF, i.stage, i.slice - 1);
    if (row == kB) read(kF, i.stage, i.slice);
    if (row == kB && i.stage + 1 < shape_.n_stages) read(kB, i.stage + 1, i.slice);
    if (row == kB && i.slice + 1 < shape_.n_slices) read(kB, i.stage, i.slice + 1);
    if (row == kW) read(kB, i.stage, i.slice);
  }

  // Depth first from each group to what it waits for; a group met again on the way is a cycle.
  Status check_cycles() const {
    std::vector<size_t> first(n_groups_ + 1, entries_.size());
    for (size_t e = entries_.size(); e-- > 0;) first[entries_[e].group] = e;
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(n_groups_, kNew);
    struct Visit {
      size_t group;
      std::vector<size_t> waits_for;
    };
    std::vector<Visit> path;
    const auto open = [&](size_t g) {
      state[g] = kOpen;
      Visit v{g, {}};
      for (size_t e = first[g]; e < first[g + 1]; ++e)
        sources(*entries_[e].instr, [&](int from) {
          const auto other = entries_[from].group;
          if (other != g) v.waits_for.push_back(other);
        });
      if (g > 0 && entries_[first[g - 1]].rank == entries_[first[g]].rank)
        v.waits_for.push_back(g - 1);
      path.push_back(std::move(v));
    };
    for (size_t start = 0; start < n_groups_; ++start) {
      if (state[start] == kNew) open(start);
      while (!path.empty()) {
        if (path.back().waits_for.empty()) {
          state[path.back().group] = kDone;
          path.pop_back();
          continue;
        }
        const size_t next = path.back().waits_for.back();
        path.back().waits_for.pop_back();
        if (state[next] == kNew) open(next);
        if (state[next] != kOpen || next == path.back().group) continue;
        std::string text;
        size_t from = path.size();
        while (path[from - 1].group != next) --from;
        for (size_t i = from - 1; i < path.size(); ++i)
          text += cat(text_of(*entries_[first[path[i].group]].instr), " (rank ",
                      entries_[first[path[i].group]].rank, ") waits for ");
        return invalid_argument(
            cat("schedule: it can never go on: ", text, text_of(*entries_[first[next]].instr)));
      }
    }
    return {};
  }

  Result<ScheduleFacts> facts(int most_in_flight) const {
    ScheduleFacts out;
    out.stages.resize(s_.ranks.size());
    out.peak_in_flight.assign(s_.ranks.size(), 0);
    std::vector<int> now(s_.ranks.size());
    for (const Entry& e : entries_) {
      const auto rank = static_cast<size_t>(e.rank);
      std::vector<int>& stages = out.stages[rank];
      const auto at = std::lower_bound(stages.begin(), stages.end(), e.instr->stage);
      if (at == stages.end() || *at != e.instr->stage) stages.insert(at, e.instr->stage);
      const int row = row_of(e.instr->kind);
      if (row == kF) out.peak_in_flight[rank] = std::max(out.peak_in_flight[rank], ++now[rank]);
      if (row == last_row()) --now[rank];
    }
    const auto most = std::max_element(out.peak_in_flight.begin(), out.peak_in_flight.end());
    if (most_in_flight > 0 && *most > most_in_flight)
      return out_of_memory(cat("schedule: rank ", most - out.peak_in_flight.begin(), " keeps ",
                               *most, " forward results at once, and ", most_in_flight,
                               " are allowed"));
    return out;
  }

  const Schedule& s_;
  const ScheduleShape& shape_;
  std::vector<Entry> entries_;
  std::vector<int> at_;  // per slot: its entry
  size_t n_groups_ = 0;
};

}  // namespace

Result<ScheduleFacts> check_schedule(const Schedule& schedule, int most_in_flight) {
  return Checker(schedule).run(most_in_flight);
}

}  // namespace tegula
