#include <cmath>

#include "tegula/cost/price.h"
#include "tegula/io/json.h"
#include "tegula/planner/budget.h"
#include "tegula/planner/help.h"
#include "tegula/planner/report.h"

namespace tegula::planner {

namespace {

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
  j.set("context", context_name(l.context));
  j.set("ep", l.ep);
  j.set("zero", l.zero);
  j.set("sp", l.sp);
  j.set("schedule", turns_name(l.turns));
  j.set("interleave", l.interleave);
  j.set("slices", l.slices);
  j.set("microbatch", l.microbatch);
  j.set("remat", remat_name(l.remat));
}

template <size_t N>
Json parts_json(const std::array<Part, N>& parts) {
  Json j = Json::object();
  for (const Part& p : parts) j.set(p.key, p.value);
  return j;
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
  j.set("mfu_of_seen_keys", mfu_of_seen_keys(a, p));
  j.set("hfu", hfu(a, p));
  j.set("peak_bytes", p.peak_bytes());
  const Reserve reserve = reserve_of(*a.cluster, a.job, p.layout, p.peak_bytes());
  j.set("reserved_bytes", Json::Array{reserve.low, reserve.high});
  j.set("fit", fit_name(reserve.fit));
  j.set("memory", parts_json(p.memory.parts()));
  j.set("bubble", p.bubble());
  j.set("exposed_comm_s", p.seconds.exposed_comm());
  j.set("seconds", parts_json(p.seconds.parts()));
  StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  j.set("stages", json_list(pricer.stages(p.layout), [](const StageMemory& s) {
          return Json::object({{"layers", s.layers}, {"memory", parts_json(s.memory.parts())}});
        }));
  Json::Array layers;
  for (int64_t s = 0; s < p.layout.pp * p.layout.chunks(); ++s)
    layers.emplace_back(layers_of_stage(a.preset.model, a.job, p.layout, s));
  j.set("stage_layers", std::move(layers));
  j.set("made_again", made_again(a.job, p.layout));
  j.set("bound_by", p.bound_by());
  return j;
}

Json rejected_json(const Rejected& r) {
  Json j = Json::object();
  set_layout(j, r.price.layout);
  j.set("fit", fit_name(r.fit));
  j.set("step_s", r.price.step_s());
  j.set("peak_bytes", r.price.peak_bytes());
  j.set("why", r.why);
  return j;
}

Json step_json(const StepSeconds& s) {
  const ServeLayout& l = s.layout;
  return Json::object({{"partition", partition_name(l.partition)},
                       {"x", l.x},
                       {"gather", l.gather},
                       {"attention_by", l.attention_by_batch ? "batch" : "heads"},
                       {"seconds", s.total()},
                       {"comm_s", s.comm},
                       {"bound_by", s.bound_by()}});
}

Json serve_json(const ServePrice& p, const ClusterSpec& c) {
  Json j = Json::object({{"n", p.n},
                         {"copies", p.copies},
                         {"batch", p.batch},
                         {"ttft_s", p.prefill.total()},
                         {"tpot_s", p.decode.total()},
                         {"request_s", p.request_s},
                         {"tokens_per_s", p.tokens_per_s},
                         {"tokens_per_s_per_gpu", p.tokens_per_s / real(c.n_devices)},
                         {"weight_bytes", p.weight_bytes},
                         {"kv_bytes", p.kv_bytes},
                         {"prefill", step_json(p.prefill)},
                         {"decode", step_json(p.decode)}});
  if (p.dollars_per_million_tokens > 0)
    j.set("dollars_per_million_tokens", p.dollars_per_million_tokens);
  return j;
}

Json serve_json(const Answer& a) {
  const ServeAnswer& s = *a.serve;
  const auto priced = [&](const ServePrice& p) { return serve_json(p, *a.cluster); };
  Json j = Json::object({{"prompt", a.serve_job.prompt},
                         {"output", a.serve_job.output},
                         {"layouts", json_list(s.best, priced)},
                         {"kv_bytes_per_sequence", s.kv_bytes_per_sequence},
                         {"max_batch", s.max_batch},
                         {"concurrency", s.max_batch * s.best.front().copies},
                         {"compute_bound_batch", s.compute_bound_batch},
                         {"context_switch_s", s.context_switch_s}});
  if (s.quickest) j.set("quickest", serve_json(*s.quickest, *a.cluster));
  return j;
}

Json compared_json(const Answer& a, const Compared& c) {
  Json j = Json::object({{"gpus", cat(c.cluster.n_devices, "x", c.cluster.device.name)}});
  const double n = real(c.cluster.n_devices), rent = dollars(c.cluster.device, n, 1);
  if (c.train) {
    const double tokens_per_s = real(a.job.batch_tokens) / c.train->step_s();
    set_layout(j, c.train->layout);
    j.set("step_s", c.train->step_s());
    j.set("tokens_per_s_per_gpu", tokens_per_s / n);
    j.set("dollars_per_million_tokens", rent / tokens_per_s * 1e6);
  }
  if (c.serve) {
    j.set("tokens_per_s_per_gpu", c.serve->tokens_per_s / n);
    j.set("ttft_s", c.serve->prefill.total());
    j.set("tpot_s", c.serve->decode.total());
    j.set("dollars_per_million_tokens", c.serve->dollars_per_million_tokens);
  }
  if (!c.why_not.empty()) j.set("why_not", c.why_not);
  return j;
}

Json other_json(const Answer& a) {
  const OtherPrice& p = a.other_price;
  const PublishedFigure f = a.other.kind->published();
  Json j = Json::object({{"kind", a.other.kind->name},
                         {"n", a.other.n},
                         {"of", p.of},
                         {"seconds", p.seconds()},
                         {"memory_needed", p.memory_needed},
                         {"memory_bytes", p.memory_bytes}});
  j.set(
      "terms", json_list(p.terms, [](const OtherTerm& t) {
        return Json::object({{"what", t.what}, {"seconds", t.seconds}, {"is_hidden", t.is_hidden}});
      }));
  j.set("published", Json::object({{"what", f.what},
                                   {"unit", f.unit},
                                   {"source", f.source},
                                   {"published", f.published},
                                   {"planned", f.planned},
                                   {"error", f.error()},
                                   {"assumed", f.assumed}}));
  return j;
}

// The job and the cluster as they were taken, and what a whole run takes.
void add_question(const Answer& a, Json& j) {
  const ClusterSpec& c = *a.cluster;
  j.set("cluster", Json::object({{"device", c.device.name},
                                 {"n_devices", c.n_devices},
                                 {"n_idle", a.n_idle},
                                 {"devices_per_node", c.device.devices_per_node},
                                 {"visible_bytes", visible_bytes(c.device)},
                                 {"source", c.device.source}}));
  if (a.measured) j.set("microbenchmarks", *a.measured);
  const auto texts = [](const auto& list) { return Json::Array(list.begin(), list.end()); };
  j.set("without_effect", texts(a.without_effect));
  if (!a.untried.empty()) j.set("effect_untried", texts(a.untried));
  if (a.found.best.empty()) return;
  j.set("job", Json::object({{"seqlen", a.job.seqlen},
                             {"batch_tokens", a.job.batch_tokens},
                             {"dtype", number_name(a.job.dtype)},
                             {"attention", a.job.attention()},
                             {"framework", a.job.framework ? a.job.framework->name : ""},
                             {"framework_factor", a.job.framework ? a.job.framework->factor : 1.0},
                             {"keeps", a.job.is_built ? "built" : "mixed"},
                             {"overlap", hides_of(a.job)}}));
  j.set("what_would_help", json_list(what_would_help(a), [](const Help& h) {
          return Json::object({{"twice_the", h.what},
                               {"time", h.time},
                               {"per", *h.note ? "token" : "step"},
                               {"layout", h.by}});
        }));
  if (a.tokens_total <= 0) return;
  const double steps = a.tokens_total / real(a.job.batch_tokens);
  const double hours = steps * a.found.best[0].step_s() / 3600,
               devices = real(c.n_devices + a.n_idle);
  j.set("run", Json::object({{"tokens", a.tokens_total},
                             {"steps", steps},
                             {"days", hours / 24},
                             {"device_hours", hours * devices},
                             {"dollars", dollars(c.device, devices, 3600 * hours)}}));
}

}  // namespace

std::string to_json(const Answer& a) {
  Json::Array layouts;
  for (size_t i = 0; i < a.found.best.size(); ++i)
    layouts.push_back(layout_json(a, a.found.best[i], a.intervals[i]));
  Json j = Json::object(
      {{"params", a.params.total},
       {"params_active", a.params.active},
       {"flops_per_token_forward", counted(a.flops.forward())},
       {"flops_per_token_train", counted(a.flops.train())},
       {"kv_bytes_per_token", counted(kv_bytes_per_token(a.preset.model, bytes_of(a.job.dtype)))},
       {"layouts", layouts},
       {"n_equal", a.found.n_equal},
       {"rejected", json_list(a.found.rejected, rejected_json)}});
  std::vector<std::string> notes = a.preset.notes;
  notes.insert(notes.end(), a.notes.begin(), a.notes.end());
  if (!notes.empty()) j.set("notes", Json::Array(notes.begin(), notes.end()));
  if (a.budget > 0) {
    const auto optimum = [](const Optimum& o) {
      return Json::object({{"params", o.params}, {"tokens", o.tokens}});
    };
    j.set("budget", Json::object({{"flops", a.budget},
                                  {"by_20_a_parameter", optimum(chinchilla(a.budget))},
                                  {"by_fitted_loss", optimum(chinchilla_by_loss(a.budget))}}));
  }
  if (a.cluster) add_question(a, j);
  if (!a.why_not_served.empty())
    j.set("serve", Json::object({{"layouts", Json::Array{}}, {"why_not", a.why_not_served}}));
  if (a.other.kind) j.set("other_kind", other_json(a));
  if (a.serve) j.set("serve", serve_json(a));
  const auto compared = [&](const Compared& c) { return compared_json(a, c); };
  if (!a.compared.empty()) j.set("compare", json_list(a.compared, compared));
  return j.dump();
}

}  // namespace tegula::planner
