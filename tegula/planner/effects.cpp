#include "tegula/planner/effects.h"

#include "tegula/base/algorithm.h"
#include "tegula/planner/enumerate.h"

namespace tegula::planner {

namespace {

bool is_same(const Answer& x, const Answer& y) {
  if (x.serve.has_value() != y.serve.has_value() || x.found.best.size() != y.found.best.size() ||
      x.flops.forward() != y.flops.forward() || x.n_idle != y.n_idle)
    return false;
  if (x.serve)
    return x.serve->best[0].tokens_per_s == y.serve->best[0].tokens_per_s &&
           x.serve->best[0].request_s == y.serve->best[0].request_s;
  return std::equal(x.found.best.begin(), x.found.best.end(), y.found.best.begin(),
                    [](const StepPrice& a, const StepPrice& b) {
                      return to_string(a.layout) == to_string(b.layout) &&
                             a.step_s() == b.step_s() && a.peak_bytes() == b.peak_bytes();
                    });
}

struct Input {
  std::string name;
  Question without;
};

// Whatever differs from a question that says nothing.
std::vector<Input> inputs_of(const Question& q) {
  std::vector<Input> all;
  const Question nothing;
  const auto add = [&](const std::string& name, auto Question::*field) {
    if (q.*field == nothing.*field) return;
    all.push_back({name, q});
    all.back().without.*field = nothing.*field;
  };
  add(cat("--seqlen ", q.seqlen), &Question::seqlen);
  add(cat("--batch-tokens ", q.batch_tokens), &Question::batch_tokens);
  add(cat("--dtype ", q.dtype), &Question::dtype);
  add("--keeps built", &Question::built);
  add(cat("--optimizer ", q.optimizer), &Question::optimizer);
  add(cat("--framework ", q.framework), &Question::framework);
  add("--stages-at", &Question::stages_at);
  add(cat("--microbenchmarks ", q.microbenchmarks), &Question::microbenchmarks);
  add(cat("--prompt ", q.prompt), &Question::prompt);
  add(cat("--output ", q.output), &Question::output);
  add(cat("--batch ", q.serve_batch), &Question::serve_batch);
  for (size_t begin = 0; begin < q.fix.size();) {
    const size_t end = std::min(q.fix.find(',', begin), q.fix.size());
    all.push_back({cat("--fix ", q.fix.substr(begin, end - begin)), q});
    std::string& rest = all.back().without.fix;
    rest.erase(begin, std::min(end + 1, q.fix.size()) - begin);
    if (rest.ends_with(',')) rest.pop_back();
    begin = end + 1;
  }
  return all;
}

}  // namespace

Effects effects_of(const Question& q, const Answer& a) {
  Effects e;
  if (!a.cluster || (!a.serve && a.found.best.empty())) return e;
  for (Input& i : inputs_of(q)) {
    const auto pins = parse_pins(i.without.fix);
    if (!a.serve && pins.ok() &&
        meshes(a.preset.model, *a.cluster, a.job, *pins).size() > kMostMeshes) {
      e.untried.push_back(i.name);
      continue;
    }
    i.without.is_trial = true, i.without.plans = nullptr, i.without.compare.clear();
    i.without.live = a.job.live;
    if (const auto other = answer(i.without); other.ok() && is_same(a, *other))
      e.without.push_back(i.name);
  }
  return e;
}

}  // namespace tegula::planner
