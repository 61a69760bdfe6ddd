// Stages: how the layers of a model are dealt to the stages of a pipeline, and what a rank holds.
//
// L layers over n = pp·chunks stages: as the job says (--fix stages=6+6); else L/n each where n
// divides L, which Megatron demands; else, and with torchtitan always, the table and the head count
// as a layer each, and of L + 2 the first (L + 2) mod n stages take one more, as torchtitan does.
#pragma once

#include <string>
#include <vector>

#include "tegula/planner/layout.h"

namespace tegula::planner {

int64_t layers_of_stage(const ModelSpec& model, const Job& job, const Layout& layout,
                        int64_t stage);

// The stages that a rank of the pipeline holds.
struct RankStages {
  int64_t layers = 0;      // all
  int64_t in_a_stage = 0;  // of opposite pipelines its largest stage's, else all
  bool has_first = false, has_last = false;
  friend bool operator==(const RankStages&, const RankStages&) = default;
};
RankStages stages_of(const ModelSpec& model, const Job& job, const Layout& layout, int64_t rank);

// All ranks' stages, for prices that many layouts share.
struct Dealt {
  struct Kind {
    RankStages held;
    int64_t ranks = 0;
  };
  std::vector<Kind> kinds;  // ranks that hold alike
  // The ranks of which one has the fullest memory: a rank behind the second never holds more than
  // the one before it but by what was fixed, and where pipelines are opposite.
  std::vector<std::pair<int64_t, RankStages>> telling;
  int64_t most_in_a_stage = 0;
};
Dealt deal(const ModelSpec& model, const Job& job, const Layout& layout);

// "6 + 6 layers", "7 + 14 × 8 + 7 layers"; and whose way that is.
std::string stages_text(const ModelSpec& model, const Job& job, const Layout& layout);

}  // namespace tegula::planner
