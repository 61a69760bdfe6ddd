// A table of what layers keep and need by liveness, for the shapes of layers that a search came to.
//
// A shape is what a rank's layer depends on: ranks of tp and cp, sequences of a micro-batch. Plans
// are made by whoever may compile (LivePlans); the planner asks for those of its best layouts and
// searches again, a few times at most.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "tegula/planner/layout.h"
#include "tegula/planner/timeline.h"

namespace tegula::planner {

class LiveTable {
 public:
  // Null: not known, or what is computed by slices, or over ranks of experts.
  const LayerLive* find(const Layout& layout) const;
  bool has_asked(const Layout& layout) const;
  void add(const Layout& layout, std::optional<LayerLive> live);

 private:
  using Shape = std::tuple<int64_t, int64_t, int64_t>;
  static Shape shape_of(const Layout& l) { return {l.tp, l.cp, l.microbatch}; }
  std::map<Shape, std::optional<LayerLive>> known_;
};

class LivePlans {
 public:
  virtual ~LivePlans() = default;
  // Asked once of a shape. None: the model is not built here, or its plans would take too long.
  virtual std::optional<LayerLive> of(const ModelSpec& model, const Job& job,
                                      const Layout& layout) = 0;
};

}  // namespace tegula::planner
