#include <cmath>

#include "tegula/io/json.h"
#include "tegula/planner/report.h"

namespace tegula::planner {

namespace {

double real(int64_t n) { return static_cast<double>(n); }

// A count that a double holds exactly prints as a whole number.
Json counted(double v) {
  if (v == std::floor(v) && std::abs(v) < 9e15) return static_cast<int64_t>(v);
  return v;
}

void set_layout(Json& j, const Layout& l) {
  j.set("dp", l.dp);
  j.set("tp", l.tp);
  j.set("pp", l.pp);
  j.set("cp", l.cp);
  j.set("ep", l.ep);
  j.set("zero", l.zero);
  j.set("sp", l.sp);
  j.set("schedule", turns_name(l.turns));
  j.set("interleave", l.interleave);
  j.set("microbatch", l.microbatch);
  j.set("remat", remat_name(l.remat));
}

Json memory_json(const MemoryBytes& m) {
  return Json::object({{"weights", m.weights},
                       {"gradients", m.gradients},
                       {"optimizer", m.optimizer},
                       {"activations", m.activations},
                       {"temporaries", m.temporaries}});
}

Json layout_json(const Answer& a, const StepPrice& p, const Interval& interval) {
  Json j = Json::object();
  set_layout(j, p.layout);
  const double n = real(a.cluster->n_devices);
  j.set("step_s", p.step_s());
  j.set("interval_s", Json::Array{interval.low, interval.high});
  j.set("tokens_per_s_per_gpu", real(a.job.batch_tokens) / p.step_s() / n);
  j.set("tflops_model", p.flops_model / p.step_s() / n / 1e12);
  j.set("tflops_hw", p.flops_hw / p.step_s() / n / 1e12);
  j.set("mfu", mfu(a, p));
  j.set("hfu", hfu(a, p));
  j.set("peak_bytes", p.peak_bytes());
  j.set("memory", memory_json(p.memory));
  j.set("bubble", p.bubble());
  j.set("exposed_comm_s", p.seconds.exposed_comm());
  j.set("bound_by", p.bound_by());
  return j;
}

Json rejected_json(const Rejected& r) {
  Json j = Json::object();
  set_layout(j, r.price.layout);
  j.set("fits", r.fits);
  j.set("step_s", r.price.step_s());
  j.set("peak_bytes", r.price.peak_bytes());
  j.set("why", r.why);
  return j;
}

}  // namespace

std::string to_json(const Answer& a) {
  Json::Array layouts, rejected;
  for (size_t i = 0; i < a.found.best.size(); ++i)
    layouts.push_back(layout_json(a, a.found.best[i], a.intervals[i]));
  for (const Rejected& r : a.found.rejected) rejected.push_back(rejected_json(r));
  const Json j = Json::object(
      {{"params", a.params.total},
       {"params_active", a.params.active},
       {"flops_per_token_forward", counted(a.flops.forward())},
       {"flops_per_token_train", counted(a.flops.train())},
       {"kv_bytes_per_token", counted(kv_bytes_per_token(a.preset.model, bytes_of(a.job.dtype)))},
       {"layouts", layouts},
       {"rejected", rejected}});
  return j.dump();
}

}  // namespace tegula::planner
