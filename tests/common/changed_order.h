// The verdict of both halves of kept_order.h on two graphs.
#pragma once

#include "tegula/passes/pipeline.h"
#include "tegula/passes/superopt/kept_order.h"

namespace tegula::test {

// "": bits stay with the kernels of this pipeline. Errors: a pass's.
inline Result<std::string> changed_order(const Module& before, const Module& after,
                                         const PipelineOptions& pipeline) {
  if (std::string text = superopt::difference(before, after); !text.empty()) return text;
  superopt::Sums sums[2];
  for (int k = 0; k < 2; ++k) {
    Module m = k == 0 ? before : after;
    TEGULA_TRY(run_passes(m, 0, pipeline));
    sums[k] = superopt::sums_of(m, m[0], pipeline.pass.asked());
  }
  return superopt::difference(sums[0], sums[1]);
}

}  // namespace tegula::test
