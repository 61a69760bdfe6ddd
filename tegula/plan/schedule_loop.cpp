#include "tegula/plan/schedule_loop.h"

#include "tegula/base/algorithm.h"

namespace tegula {

ScheduleLoop::ScheduleLoop(const Program& program, const Schedule& schedule, RunsOn runs_on)
    : program_(program),
      n_slices_(schedule.shape.n_slices),
      runs_on_(runs_on),
      lists_(schedule.ranks.size()),
      reads_(program.parts.size()),
      is_summed_(program.parts.size()) {
  const size_t n_slots = program.parts.size() * static_cast<size_t>(program.n_micro_batches) *
                         static_cast<size_t>(n_slices_);
  rank_.assign(n_slots, -1), done_.assign(n_slots, 0);
  const auto n_stages = static_cast<size_t>(program.n_stages);
  constexpr size_t kKinds = static_cast<size_t>(PartKind::kUpdate) + 1;
  std::vector<int> parts(kKinds * n_stages, -1);
  const auto part_of = [&](PartKind kind, int stage) -> int& {
    return parts[static_cast<size_t>(kind) * n_stages + static_cast<size_t>(stage)];
  };
  for (size_t i = 0; i < program.parts.size(); ++i) {
    const Part& p = program.parts[i];
    part_of(p.kind == PartKind::kWhole ? PartKind::kForward : p.kind, p.stage) =
        static_cast<int>(i);
  }
  for (size_t rank = 0; rank < lists_.size(); ++rank) {
    List& list = lists_[rank];
    bool with_last = false;
    for (const Instr& i : schedule.ranks[rank]) {
      const int part = part_of(i.kind, i.stage);
      if (part < 0) continue;
      list.runs.push_back({part, i.micro_batch, i.slice});
      rank_[slot(list.runs.back())] = static_cast<int>(rank);
      if (!with_last) list.ends.push_back(0);
      list.ends.back() = list.runs.size();
      with_last = i.with_next && runs_on == RunsOn::kRanks;
    }
  }
  for (const Flow& flow : program.flows)
    for (int to : flow.to) {
      std::vector<int>& from = reads_[static_cast<size_t>(to)];
      if (std::find(from.begin(), from.end(), flow.from) == from.end()) from.push_back(flow.from);
      if (is_per_micro_batch(program.parts[static_cast<size_t>(flow.from)].kind) &&
          !is_per_micro_batch(program.parts[static_cast<size_t>(to)].kind))
        is_summed_[static_cast<size_t>(flow.from)] = 1;
    }
}

size_t ScheduleLoop::count() const {
  size_t n = 0;
  for (const List& list : lists_) n += list.runs.size();
  return n;
}

std::span<const PartRun> ScheduleLoop::next(size_t rank) const {
  const List& list = lists_[rank];
  if (list.at == list.runs.size()) return {};
  return std::span(list.runs).subspan(list.at, list.ends[list.group] - list.at);
}

bool ScheduleLoop::waits(const PartRun& run, std::span<const PartRun> together,
                         PartRun& missing) const {
  bool waits = false;
  const auto wait_for = [&](const PartRun& from) {
    if (waits || done_[slot(from)]) return;
    for (const PartRun& t : together)
      if (slot(t) == slot(from)) return;
    waits = true, missing = from;
  };
  sources(run, wait_for);
  if (runs_on_ == RunsOn::kOneRank && is_summed(run.part) && run.micro_batch > 0)
    for (int t = 0; t < n_slices_; ++t) wait_for({run.part, run.micro_batch - 1, t});
  return waits;
}

std::span<const PartRun> ScheduleLoop::ready(size_t rank) const {
  const std::span<const PartRun> together = next(rank);
  PartRun missing;
  for (const PartRun& run : together)
    if (waits(run, together, missing)) return {};
  return together;
}

void ScheduleLoop::finish(size_t rank) {
  for (const PartRun& run : next(rank)) done_[slot(run)] = 1;
  List& list = lists_[rank];
  list.at = list.ends[list.group++];
}

Error ScheduleLoop::deadlock() const {
  const auto text = [&](const PartRun& r) {
    const Part& p = program_.parts[static_cast<size_t>(r.part)];
    return text_of({p.kind, p.stage, r.micro_batch, r.slice});
  };
  std::string all;
  for (size_t rank = 0; rank < lists_.size(); ++rank) {
    const std::span<const PartRun> together = next(rank);
    PartRun missing;
    for (const PartRun& run : together)
      if (waits(run, together, missing)) {
        all += cat(all.empty() ? "" : "; ", "on rank ", rank, " ", text(run), " waits for ",
                   text(missing));
        break;
      }
  }
  return invalid_argument(cat("the schedule can never go on: ", all));
}

}  // namespace tegula
