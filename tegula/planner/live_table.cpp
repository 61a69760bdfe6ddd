#include "tegula/planner/live_table.h"

namespace tegula::planner {

const LayerLive* LiveTable::find(const Layout& l) const {
  if (l.ep > 1 || l.slices > 1) return nullptr;
  const auto found = known_.find(shape_of(l));
  return found == known_.end() || !found->second ? nullptr : &*found->second;
}

bool LiveTable::has_asked(const Layout& l) const {
  return l.ep > 1 || l.slices > 1 || known_.contains(shape_of(l));
}

void LiveTable::add(const Layout& l, std::optional<LayerLive> live) {
  known_.emplace(shape_of(l), std::move(live));
}

}  // namespace tegula::planner
