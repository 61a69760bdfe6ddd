// Runs a plan that nobody trusts, on memory of exactly the sizes that it names.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "tegula/base/element.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ir/reference.h"
#include "tegula/plan/verify.h"
#include "tegula/runtime/session.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

// Whether it runs in the time that one input may take. Loops within loops multiply.
inline bool is_small(const Plan& p, int64_t budget = 1 << 16) {
  if (p.arena_bytes > 1 << 22 || p.param_bytes > 1 << 22 || p.target.n_threads > 4) return false;
  for (const Step& s : p.steps) {
    int64_t elements = 1, trips = 1;
    for (const auto* list : {&s.in, &s.out})
      for (const PlanTensor& t : *list) {
        const int64_t n = t.type.shape.numel();
        if (n > budget) return false;
        elements = std::max(elements, n);
        for (int d = 0; d < t.type.shape.rank(); ++d)
          trips = std::max(trips, t.type.shape[d].bound());
      }
    if (elements > budget || (budget -= elements) < 0) return false;
    for (const auto& [name, value] : s.attrs)
      if (const auto* n = value.get_if<int64_t>(); n && name == "max_trips")
        trips = std::max(trips, *n);
    for (const auto& region : s.regions)
      if (trips > budget || !is_small(*region, budget / std::max<int64_t>(trips, 1))) return false;
  }
  return true;
}

// All symbols at their bounds, at 0, at 1, at one less than their bounds.
inline std::vector<std::vector<int64_t>> extents_of(const std::vector<Symbol>& symbols) {
  std::vector<std::vector<int64_t>> all(symbols.empty() ? 1 : 4);
  for (const Symbol& s : symbols) {
    all[0].push_back(s.bound), all[1].push_back(0);
    all[2].push_back(std::min<int64_t>(s.bound, 1));
    all[3].push_back(std::max<int64_t>(s.bound - 1, 0));
  }
  return all;
}

// A refusal is fine; a result is then read to its last element.
inline void run_everywhere(const std::shared_ptr<const Plan>& plan) {
  static Rank rank(2);
  for (const auto& extents : extents_of(plan->symbols)) {
    auto session = Session::create(plan, rank);
    if (!session.ok()) return;
    std::vector<HostTensor> memory;
    for (size_t i = 0; i < plan->params.size(); ++i) {
      Type bound = plan->params[i].tensor.type;
      for (int d = 0; d < bound.shape.rank(); ++d) bound.shape[d] = bound.shape[d].bound();
      HostTensor& t = memory.emplace_back(bound);
      for (int64_t k = 0; k < t.numel(); ++k) t.put(k, static_cast<double>(k % 5) - 1);
    }
    for (size_t i = 0; i < memory.size(); ++i)
      (*session)->bind(static_cast<int>(i), memory[i].bytes.data());
    if (!(*session)->run(extents).ok()) continue;
    double sum = 0;
    for (size_t r = 0; r < plan->results.size(); ++r) {
      const TensorRef t = (*session)->result(static_cast<int>(r));
      for_each_index(shape_of(t),
                     [&](const Index& i) { sum += load_element(t, RefTensors::offset_at(t, i)); });
    }
    volatile double kept = sum;
    (void)kept;
  }
}

}  // namespace tegula::fuzz
