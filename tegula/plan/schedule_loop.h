// ScheduleLoop: the one loop that follows a schedule, whatever the backend: simulated, one rank in
// turns, ranks.
//
// The waits are read from the program's flows; of a micro-batch in slices, a forward part waits
// for that of the slice before it, a backward part for that of the slice behind it, since keys and
// values go one way and their gradients the other. The loop gives each entry to the backend as
// soon as everything that it reads has been made, so a backend sees an order that is right for it,
// and an order that can never go on is an error (a deadlock), which names what each rank waits
// for.
#pragma once

#include <span>
#include <vector>

#include "tegula/plan/schedule.h"

namespace tegula {

// One run of a part: its index in the program, its micro-batch and its slice.
struct PartRun {
  int part = 0;
  int micro_batch = 0;
  int slice = 0;
};

// On ranks, each has a sum of its own of a stage's gradients, and entries that go together are
// given together. One rank in turns has one sum: micro-batches are added in ascending order, though
// different ranks of the schedule would add them.
enum class RunsOn : uint8_t { kRanks, kOneRank };

class ScheduleLoop {
 public:
  // Entries whose part the program has not (no gradient flows out of the first stage) are passed
  // over; kForward stands for kWhole where there is one stage.
  ScheduleLoop(const Program& program, const Schedule& schedule, RunsOn runs_on);

  // backend.run(std::span<const PartRun> together, int rank) -> Status, in an order in which what
  // is read has been made; more than one where they begin and end together.
  template <class Backend>
  Status follow(Backend& backend) {
    for (size_t left = count(); left > 0;) {
      bool any = false;
      for (size_t rank = 0; rank < lists_.size(); ++rank) {
        const std::span<const PartRun> together = ready(rank);
        if (together.empty()) continue;
        TEGULA_TRY(backend.run(together, static_cast<int>(rank)));
        any = true, left -= together.size();
        finish(rank);
      }
      if (!any) return deadlock();
    }
    return {};
  }

  // visit(PartRun) for each run that this one must wait for: the makers of all that it reads.
  template <class Visit>
  void sources(const PartRun& run, Visit visit) const {
    const PartKind kind = kind_of(run);
    const bool is_micro = is_per_micro_batch(kind);
    for (int from : reads_[static_cast<size_t>(run.part)]) {
      if (!is_per_micro_batch(program_.parts[static_cast<size_t>(from)].kind))
        visit(PartRun{from, 0, 0});
      else if (is_micro)
        visit(PartRun{from, run.micro_batch, run.slice});
      else
        for (int m = 0; m < program_.n_micro_batches; ++m)
          for (int t = 0; t < n_slices_; ++t) visit(PartRun{from, m, t});
    }
    if (kind == PartKind::kForward && run.slice > 0)
      visit(PartRun{run.part, run.micro_batch, run.slice - 1});
    if (kind == PartKind::kBackward && run.slice + 1 < n_slices_)
      visit(PartRun{run.part, run.micro_batch, run.slice + 1});
  }

  PartKind kind_of(const PartRun& run) const {
    return program_.parts[static_cast<size_t>(run.part)].kind;
  }
  // A number for each run, below n_slots(); of parts that run once, that of micro-batch 0.
  size_t slot(const PartRun& run) const {
    return (static_cast<size_t>(run.part) * static_cast<size_t>(program_.n_micro_batches) +
            static_cast<size_t>(run.micro_batch)) *
               static_cast<size_t>(n_slices_) +
           static_cast<size_t>(run.slice);
  }
  size_t n_slots() const { return rank_.size(); }
  int rank_of(const PartRun& run) const { return rank_[slot(run)]; }  // -1: none runs it
  int n_slices() const { return n_slices_; }
  // A value of this part becomes part of a sum over micro-batches.
  bool is_summed(int part) const { return is_summed_[static_cast<size_t>(part)] != 0; }

 private:
  // A rank's entries, of parts that there are; those up to an end of `ends` go together.
  struct List {
    std::vector<PartRun> runs;
    std::vector<size_t> ends;
    size_t at = 0, group = 0;
  };
  size_t count() const;
  std::span<const PartRun> next(size_t rank) const;   // none: nothing is left
  std::span<const PartRun> ready(size_t rank) const;  // none: nothing is left, or it must wait
  // The entry that one of `together` must wait for: into `missing`, false if for nothing.
  bool waits(const PartRun& run, std::span<const PartRun> together, PartRun& missing) const;
  void finish(size_t rank);
  Error deadlock() const;

  const Program& program_;
  int n_slices_;
  RunsOn runs_on_;
  std::vector<List> lists_;              // per rank
  std::vector<int> rank_;                // per slot
  std::vector<uint8_t> done_;            // per slot
  std::vector<std::vector<int>> reads_;  // per part: the parts whose flows it reads
  std::vector<uint8_t> is_summed_;       // per part
};

}  // namespace tegula
