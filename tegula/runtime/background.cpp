// The work that a session does with steps that run in the background: a start shows the ranks'
// tensors and says what is to be brought; the step that ends it adds what came.

#include "tegula/base/algorithm.h"
#include "tegula/base/denormals.h"
#include "tegula/ir/opdef.h"
#include "tegula/kernels/moves.h"
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
    const bool is_exchange = step.kernel && step.kernel->moves && step.attrs.i("ranks") > 1;
    if (is_exchange && !b.is_empty && rank_->peers->brings())
      rank_->peers->exchange(call_of(i, rank_->peers), *step.kernel->moves);
    else
      launch(i, rank_->peers);
  } else if (b.is_empty) {
    return;
  } else if (step.starts >= 0) {
    Errand& errand = rank_->peers->errand(step.attrs.str("axis"), step.starts);
    b.moves.clear();
    step.kernel->moves->list(call_of(i, nullptr), errand.index(), 0, b.moves);
    errand.post(b.in[0], b.out[0], b.moves);
    running_.push_back({i, &errand});
  } else {
    const auto work = std::find_if(running_.begin(), running_.end(), [&](const Running& r) {
      return plan_->steps[r.step].starts == step.ends;
    });
    TEGULA_CHECK(work != running_.end(), "plan ", plan_->name, " ends work that is not running");
    if (!work->is_done) complete(*work);
    work->errand->end();  // a rank that failed is seen by run_step
    running_.erase(work);
  }
  if (completes) complete_some();
}

// Waits for what is brought, and does the rest.
void Session::complete(Running& work) {
  const KernelDef& kernel = *plan_->steps[work.step].kernel;
  if (work.errand->wait() && kernel.moves->finish) {
    const FlushDenormals flush;
    kernel.moves->finish(call_of(work.step, nullptr), work.errand->index(), 0);
  }
  work.is_done = true;
}

void Session::complete_some() {
  for (Running& r : running_)
    if (!r.is_done && completes(completes_context, plan_->steps[r.step].starts)) complete(r);
}

}  // namespace tegula
