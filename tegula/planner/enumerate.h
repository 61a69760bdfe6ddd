// The layouts that the search looks at.
#pragma once

#include <vector>

#include "tegula/planner/layout.h"

namespace tegula::planner {

// Divisors, ascending. n from 1 to 2^40.
std::vector<int64_t> divisors(int64_t n);

// Every mesh with ep, sp, micro-batch and recomputation; ZeRO stage and schedule are still open.
std::vector<Layout> meshes(const ModelSpec& model, const ClusterSpec& cluster, const Job& job,
                           const Pins& pins);
// Every layout on that mesh: ZeRO stages and schedules.
void complete(const Layout& mesh, const ModelSpec& model, const Job& job, const Pins& pins,
              std::vector<Layout>& out);

// Why no layout is left: of what the pins say, the first thing that does not divide.
Error why_none(const ModelSpec& model, const ClusterSpec& cluster, const Job& job,
               const Pins& pins);

}  // namespace tegula::planner
