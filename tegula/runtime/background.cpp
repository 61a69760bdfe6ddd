// The work that a session does with steps that run in the background: a start shows the ranks'
// tensors, the work itself is done after any step up to the one that ends it.

#include "tegula/base/algorithm.h"
#include "tegula/ir/opdef.h"
#include "tegula/kernels/peers.h"
#include "tegula/runtime/session.h"

namespace tegula {

void Session::launch_among_peers(size_t i) {
  const Step& step = plan_->steps[i];
  BoundStep& b = bound_[i];
  const bool is_in_background = step.starts >= 0 || step.ends >= 0;
  if (step.op->collective && step.ends < 0 && !b.is_empty)
    rank_->peers->begin(step.op->name, step.attrs.str("axis"), plan_->name, i);
  if (!is_in_background) {
    launch(i, rank_->peers);
  } else if (b.is_empty) {
    return;
  } else if (step.starts >= 0) {
    Errand& errand = rank_->peers->errand(step.attrs.str("axis"), step.starts);
    errand.post(b.in[0], b.out[0]);
    running_.push_back({i, &errand});
  } else {
    const auto work = std::find_if(running_.begin(), running_.end(), [&](const Running& r) {
      return plan_->steps[r.step].starts == step.ends;
    });
    TEGULA_CHECK(work != running_.end(), "plan ", plan_->name, " ends work that is not running");
    if (!work->is_done) launch(i, work->errand);
    work->errand->end();  // a rank that failed is seen by run_step
    running_.erase(work);
  }
  if (!running_.empty()) complete_some();
}

void Session::complete_some() {
  for (Running& r : running_) {
    if (r.is_done) continue;
    const bool is_time = completes ? completes(completes_context, plan_->steps[r.step].starts)
                                   : r.errand->is_ready();
    if (!is_time) continue;
    launch(r.step, r.errand);
    r.is_done = true;
  }
}

}  // namespace tegula
