#include "tegula/planner/answer.h"

#include "tegula/base/algorithm.h"
#include "tegula/planner/model_config.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

double real(int64_t n) { return static_cast<double>(n); }

// Takes what the question says, else what the model was trained with, else a sequence a device.
Status set_job(const Question& q, Answer& a) {
  Job& job = a.job;
  job.dtype = TEGULA_TRY(parse_number(q.dtype));
  if (a.pins.dtype) job.dtype = *a.pins.dtype;
  if (a.pins.flash) job.flash = *a.pins.flash;
  if (a.pins.kernel) job.kernel = *a.pins.kernel;
  job.loss = a.pins.loss;
  const ModelSpec& model = a.preset.model;
  job.framework = TEGULA_TRY(find_framework(q.framework));
  const bool is_own = !job.framework || job.framework->name == "tegula";
  const bool can_be = is_own && !model.family.empty() && job.flash && !model.has_dropout;
  job.is_built = q.built || (q.prefers_built && can_be);
  job.optimizer = TEGULA_TRY(parse_optimizer(q.optimizer));
  if (q.built && !is_own)
    return invalid_argument(cat("--keeps built: --framework ", q.framework,
                                " keeps what it keeps; built is tegula's own graph"));
  if (job.is_built && (a.preset.model.family.empty() || !job.flash))
    return invalid_argument(cat("--keeps built: ", a.preset.model.name,
                                " is not built here, or not with naive attention"));
  job.seqlen = q.seqlen > 0 ? q.seqlen : std::max<int64_t>(1, a.preset.seqlen);
  job.batch_tokens = q.batch_tokens;
  if (job.batch_tokens == 0) {
    const int64_t usual = a.preset.batch_tokens > 0
                              ? a.preset.batch_tokens
                              : job.seqlen * (a.cluster ? a.cluster->n_devices : a.other.n);
    job.batch_tokens = std::max<int64_t>(1, usual / job.seqlen) * job.seqlen;
  }
  return {};
}

// The least number of devices, doubled and doubled again, that holds the job.
std::string nearest_that_fits(const Answer& a) {
  ClusterSpec more = *a.cluster;
  while (more.n_devices * 2 <= kMostDevices) {
    more.n_devices *= 2;
    Pins pins = a.pins;
    pins.dp.reset();
    Job job = a.job;
    // A step must have a sequence for every rank.
    job.batch_tokens = std::max(job.batch_tokens, job.seqlen * more.n_devices);
    const auto r = search_layouts(a.preset.model, a.params, more, job, pins);
    if (!r.ok() || r->best.empty()) continue;
    return cat("; ", more.n_devices, "x", more.device.name, " would do, by ",
               to_string(r->best[0].layout));
  }
  return "";
}

// Asks for the plans of the best layouts' layers that are not known; false: none told anything.
bool learn(LivePlans& plans, const ModelSpec& model, const Job& job, const SearchResult& found,
           LiveTable& known) {
  bool is_new = false;
  for (const StepPrice& p : found.best) {
    if (known.has_asked(p.layout)) continue;
    auto live = plans.of(model, job, p.layout);
    is_new |= live.has_value();
    known.add(p.layout, std::move(live));
  }
  return is_new;
}

// Searches, and again with what the best layouts' layers keep by their plans, which is left in
// `job`. What the last search finds is priced by all that is known: nothing is asked any more.
Result<SearchResult> search(const Question& q, const Answer& a, const ClusterSpec& cluster,
                            Job& job) {
  constexpr int kMostSearches = 3;
  LiveTable known = job.live ? *job.live : LiveTable();
  for (int i = 1;; ++i) {
    auto found = TEGULA_TRY(search_layouts(a.preset.model, a.params, cluster, job, a.pins));
    if (!q.plans || !job.is_built || i == kMostSearches) return found;
    const bool is_new = learn(*q.plans, a.preset.model, job, found, known);
    job.live = std::make_shared<LiveTable>(known);
    if (!is_new) return found;
  }
}

Compared compare_one(const Question& q, const Answer& a, const ClusterSpec& cluster, Job& job) {
  Compared one;
  one.cluster = cluster;
  if (q.serve) {
    auto served = plan_serving(a.preset.model, a.params, cluster, a.serve_job);
    if (served.ok())
      one.serve = served->best.front();
    else
      one.why_not = served.error().message;
    return one;
  }
  auto found = search(q, a, cluster, job);
  if (!found.ok()) {
    one.why_not = found.error().message;
  } else if (found->best.empty()) {
    one.why_not = cat("does not fit: the smallest layout needs ", gb(found->smallest->peak_bytes()),
                      " of ", gb(usable_bytes(cluster)), " usable");
  } else {
    one.train = found->best.front();
  }
  return one;
}

// "A100,H100": as many of each as --gpus names, or one.
Status compare(const Question& q, std::span<const Accelerator> own, Answer& a) {
  const int64_t n = a.cluster ? a.cluster->n_devices : 1;
  Job job = a.job;
  for (std::string_view rest = q.compare; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    ClusterSpec cluster;
    cluster.device = TEGULA_TRY(find_accelerator(rest.substr(0, comma), own));
    cluster.n_devices = n;
    a.compared.push_back(compare_one(q, a, cluster, job));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {};
}

// Prices what --gpus asks for: by a kind's own model, served, or the best layouts of training.
Status price(const Question& q, Answer& a) {
  if (a.other.kind) {
    TEGULA_TRY(check_plain(a.preset.model, q.gpus));
    const double keys = real(q.serve ? q.prompt + q.output / 2 : a.job.seqlen);
    const OtherJob job{q.serve, real(a.job.batch_tokens), real(std::max<int64_t>(1, q.serve_batch)),
                       keys, a.job.dtype};
    a.other_price = TEGULA_TRY(a.other.kind->price(a.preset.model, a.params, a.other.n, job));
    return {};
  }
  if (!a.cluster) {
    if (q.serve) return invalid_argument("--serve needs --gpus, what to serve on: 8xH100");
    return {};
  }
  if (q.serve) {
    const Pins& p = a.pins;
    if (p.dp || p.tp || p.pp || p.cp || p.ep || p.interleave || p.slices || p.microbatch ||
        p.zero || p.sp || p.flash || p.loss || p.context || p.turns || p.remat)
      return invalid_argument(cat("--fix ", q.fix, ": with --serve only dtype can be fixed"));
    a.serve = TEGULA_TRY(plan_serving(a.preset.model, a.params, *a.cluster, a.serve_job));
    return {};
  }
  a.found = TEGULA_TRY(search(q, a, *a.cluster, a.job));
  StepPricer fast(a.preset.model, a.params, *a.cluster, a.job, kFast);
  StepPricer slow(a.preset.model, a.params, *a.cluster, a.job, kSlow);
  for (const StepPrice& p : a.found.best)
    a.intervals.push_back({fast.price(p.layout).step_s(), slow.price(p.layout).step_s()});
  return {};
}

}  // namespace

Result<Answer> answer(const Question& q) {
  Answer a;
  a.pins = TEGULA_TRY(parse_pins(q.fix));
  a.preset = TEGULA_TRY(read_model(q.model));
  const ModelSpec& model = a.preset.model;
  a.params = TEGULA_TRY(count_params(model));
  if (!model.family.empty() && model.family != "decoder") {
    const int64_t graph = TEGULA_TRY(graph_params(model));
    if (graph != a.params.total)
      return internal_error(cat(model.name, ": its graph has ", graph,
                                " parameters, the planner counts ", a.params.total));
  }
  std::vector<Accelerator> own = q.machines;
  for (const DeviceSheet& sheet : q.devices) own.push_back(TEGULA_TRY(make_accelerator(sheet)));
  a.other = find_other_cluster(q.gpus);
  if (!q.gpus.empty() && !a.other.kind) a.cluster = TEGULA_TRY(parse_cluster(q.gpus, own));
  TEGULA_TRY(set_job(q, a));
  a.flops = token_flops(model, real(a.job.seqlen));
  a.tokens_total = q.tokens_total, a.budget = q.budget;
  a.serve_job = {q.prompt, q.output, q.serve_batch, a.job.dtype};
  TEGULA_TRY(price(q, a));
  if (!q.compare.empty()) TEGULA_TRY(compare(q, own, a));
  return a;
}

double mfu(const Answer& a, const StepPrice& p) {
  return p.flops_model /
         (p.step_s() * real(a.cluster->n_devices) * a.cluster->device.peak(a.job.dtype));
}

double hfu(const Answer& a, const StepPrice& p) { return mfu(a, p) * p.flops_hw / p.flops_model; }

std::string why_nothing_fits(const Answer& a) {
  const StepPrice& p = *a.found.smallest;
  const MemoryBytes& m = p.memory;
  const ClusterSpec& c = *a.cluster;
  return cat(a.preset.model.name, " does not fit on ", c.n_devices, "x", c.device.name, ": of ",
             a.found.n_layouts, " layouts the smallest (", to_string(p.layout), ") needs ",
             gb(p.peak_bytes()), " a device = weights ", gb(m.weights), " + gradients ",
             gb(m.gradients), " + optimizer ", gb(m.optimizer), " + activations ",
             gb(m.activations), " + temporaries ", gb(m.temporaries), copies_text(m), ", and ",
             gb(usable_bytes(c)), " of ", gb(c.device.memory_bytes), " are usable",
             nearest_that_fits(a));
}

}  // namespace tegula::planner
