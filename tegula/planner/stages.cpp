#include "tegula/planner/stages.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/str.h"

namespace tegula::planner {

namespace {

bool is_torchtitan(const Job& job) { return job.framework && job.framework->counts_ends; }

int64_t n_stages(const Layout& l) { return l.pp * l.chunks(); }

}  // namespace

int64_t layers_of_stage(const ModelSpec& m, const Job& job, const Layout& l, int64_t stage) {
  const int64_t n = n_stages(l);
  if (!job.stages.empty()) return job.stages[static_cast<size_t>(stage)];
  if (n == 1 || (m.n_layers % n == 0 && !is_torchtitan(job))) return m.n_layers / n;
  const int64_t units = m.n_layers + 2;
  return units / n + (stage < units % n) - (stage == 0) - (stage == n - 1);
}

RankStages stages_of(const ModelSpec& m, const Job& job, const Layout& l, int64_t rank) {
  RankStages s{0, 0, rank == 0, rank == l.head_rank()};
  const auto layers = [&](int64_t stage) { return layers_of_stage(m, job, l, stage); };
  for (int64_t chunk = 0; chunk < l.chunks(); ++chunk) {
    const bool is_back = l.turns == Turns::kZeroBubbleV && chunk == 1;
    s.layers += layers(chunk * l.pp + (is_back ? l.pp - 1 - rank : rank));
  }
  s.in_a_stage = s.layers;
  if (l.copies() == 1) return s;
  const int64_t other = l.pp - 1 - rank, of_other = layers(other);
  s.layers += of_other, s.in_a_stage = std::max(s.in_a_stage, of_other);
  s.has_first |= other == 0, s.has_last |= other == l.head_rank();
  return s;
}

Dealt deal(const ModelSpec& m, const Job& job, const Layout& l) {
  Dealt d;
  for (int64_t rank = 0; rank < l.pp; ++rank) {
    const RankStages held = stages_of(m, job, l, rank);
    d.most_in_a_stage = std::max(d.most_in_a_stage, held.in_a_stage);
    if (!job.stages.empty() || l.copies() == 2 || rank <= 1 || rank == l.pp / 2 || rank == l.pp - 1)
      d.telling.emplace_back(rank, held);
    const auto like = std::find_if(d.kinds.begin(), d.kinds.end(),
                                   [&](const Dealt::Kind& k) { return k.held == held; });
    if (like != d.kinds.end())
      ++like->ranks;
    else
      d.kinds.push_back({held, 1});
  }
  return d;
}

std::string stages_text(const ModelSpec& m, const Job& job, const Layout& l) {
  const int64_t n = n_stages(l);
  std::string sizes, begins;
  bool is_whole = true;  // no stage is without a layer
  for (int64_t stage = 0, begin = 0; stage < n;) {
    const int64_t layers = layers_of_stage(m, job, l, stage);
    int64_t alike = 0;
    is_whole &= layers > 0;
    for (; stage < n && layers_of_stage(m, job, l, stage) == layers; ++stage, ++alike) {
      begins += cat(begins.empty() ? "" : ",", begin);
      begin += layers;
    }
    sizes += sizes.empty() ? "" : " + ";
    sizes += alike > 2    ? cat(alike, " × ", layers)
             : alike == 2 ? cat(layers, " + ", layers)
                          : cat(layers);
  }
  const bool is_even = m.n_layers % n == 0 && !is_torchtitan(job);
  return cat(sizes, " layers, ",
             !job.stages.empty() ? "as was fixed"
             : is_even           ? "even, as Megatron deals them"
                       : "the table and the head count as a layer each, as torchtitan does",
             n <= 16 && is_whole ? cat(" (--stages-at ", begins, ")") : std::string());
}

}  // namespace tegula::planner
