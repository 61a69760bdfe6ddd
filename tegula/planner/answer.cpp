#include "tegula/planner/answer.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/planner/effects.h"
#include "tegula/planner/model_config.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

// Layers of each stage, by their number or by the layers that they begin with.
Status set_stages(const Question& q, const ModelSpec& model, const Pins& pins, Job& job) {
  job.stages = pins.stages;
  if (!q.stages_at.empty()) {
    if (!job.stages.empty())
      return invalid_argument("--stages-at and --fix stages= say the same: leave one out");
    for (size_t s = 0; s < q.stages_at.size(); ++s)
      job.stages.push_back((s + 1 < q.stages_at.size() ? q.stages_at[s + 1] : model.n_layers) -
                           q.stages_at[s]);
    if (q.stages_at[0] != 0 || *std::min_element(job.stages.begin(), job.stages.end()) < 1)
      return invalid_argument(cat("--stages-at: stages of ", stages_name(job.stages),
                                  " layers: give the layer of ", model.n_layers,
                                  " that each begins with, ascending, the first 0"));
  }
  int64_t sum = 0;
  for (const int64_t n : job.stages) sum += n;
  if (!job.stages.empty() && sum != model.n_layers)
    return invalid_argument(cat("--fix stages=", stages_name(job.stages), " are ", sum,
                                " layers, and ", model.name, " has ", model.n_layers));
  return {};
}

// Takes what the question says, else what the model was trained with, else a sequence a device.
Status set_job(const Question& q, Answer& a) {
  Job& job = a.job;
  job.dtype = TEGULA_TRY(parse_number(q.dtype));
  if (a.pins.dtype && q.has_dtype && *a.pins.dtype != job.dtype)
    return invalid_argument(cat("--dtype ", q.dtype, " and --fix dtype=",
                                number_name(*a.pins.dtype), " differ: leave one out"));
  if (a.pins.dtype) job.dtype = *a.pins.dtype;
  if (a.pins.flash) job.flash = *a.pins.flash;
  if (a.pins.kernel) job.kernel = *a.pins.kernel;
  if (a.pins.naive) job.naive = *a.pins.naive;
  job.live = q.live, job.loss = a.pins.loss, job.overlap = a.pins.overlap;
  TEGULA_TRY(set_stages(q, a.preset.model, a.pins, job));
  const ModelSpec& model = a.preset.model;
  job.framework = TEGULA_TRY(find_framework(q.framework));
  const bool is_own = !job.framework || job.framework->name == "tegula";
  const bool can_be = is_own && !model.family.empty() && job.flash && !model.has_dropout;
  const bool has_whole = job.framework && job.framework->logit_bytes > 0;
  if (job.loss && *job.loss != Loss::kFused && !has_whole)
    return invalid_argument(cat("--fix loss=", *job.loss == Loss::kWhole ? "whole" : "chunked",
                                ": the loss here never holds all logits; give a --framework whose "
                                "does, megatron or torch"));
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

// Whether so many devices hold the job, with a step of a sequence for every rank at least.
std::optional<Layout> fitting(const Answer& a, int64_t n) {
  ClusterSpec cluster = *a.cluster;
  cluster.n_devices = n;
  Pins pins = a.pins;
  pins.dp.reset();
  Job job = a.job;
  const int64_t sequences = std::max<int64_t>(job.batch_tokens / job.seqlen, n);
  job.batch_tokens = (sequences + n - 1) / n * n * job.seqlen;
  const auto r = search_layouts(a.preset.model, a.params, cluster, job, pins);
  if (!r.ok() || r->n_fit == 0) return {};
  return r->best[0].layout;
}

// The least number of devices that holds the job: doubled until it does, then in eighths between.
std::string nearest_that_fits(const Answer& a) {
  for (int64_t n = a.cluster->n_devices; n * 2 <= kMostDevices; n *= 2) {
    if (!fitting(a, 2 * n)) continue;
    const int64_t step = std::max<int64_t>(1, n / 8);
    for (int64_t more = n + step; more <= 2 * n; more += step)
      if (const auto layout = fitting(a, more))
        return cat("; ", more, "x", a.cluster->device.name, " would do, by ", to_string(*layout));
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
    one.why_not = cat("the smallest layout ", reserve_text(cluster, job, found->smallest->layout,
                                                           found->smallest->peak_bytes()));
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
    ClusterSpec cluster;
    cluster.device = TEGULA_TRY(find_accelerator(take_until(',', rest), own));
    cluster.n_devices = n;
    a.compared.push_back(compare_one(q, a, cluster, job));
  }
  return {};
}

// The layouts of all devices, or of fewer, the others idle, where that is faster or all that
// divides.
Status search_with_idle(const Question& q, Answer& a) {
  const int64_t n = a.cluster->n_devices, sequences = a.job.batch_tokens / a.job.seqlen;
  auto all = search(q, a, *a.cluster, a.job);
  const bool is_free = !a.pins.dp && !a.pins.tp && !a.pins.pp && !a.pins.cp;
  int64_t fewer = 1;  // the largest power of two below
  while (fewer * 2 < n) fewer *= 2;
  if (!is_free || n < 3 || (n & (n - 1)) == 0) {
    a.found = TEGULA_TRY(std::move(all));
    return {};
  }
  ClusterSpec some = *a.cluster;
  some.n_devices = fewer;
  Job job = a.job;
  auto found = search(q, a, some, job);
  const bool is_better =
      found.ok() && !found->best.empty() &&
      (!all.ok() || all->best.empty() || found->fit < all->fit ||
       (found->fit == all->fit && found->best[0].step_s() < all->best[0].step_s()));
  if (!is_better) {
    a.found = TEGULA_TRY(std::move(all));
    return {};
  }
  std::string batches = sequences >= n ? cat(sequences / n * n, " or ") : std::string();
  batches += cat((sequences / n + 1) * n, " sequences (", (sequences / n + 1) * n * a.job.seqlen,
                 " tokens)");
  a.notes.push_back(cat(n - fewer, " of ", n, " devices are left idle: ", fewer,
                        all.ok() && !all->best.empty() ? " are faster" : " are what divides",
                        "; steps of ", batches, " use all"));
  a.n_idle = n - fewer;
  a.cluster = some, a.job = job, a.found = std::move(*found);
  return {};
}

void add_notes(const Question& q, Answer& a) {
  const int64_t most = a.preset.model.max_seqlen, trained = a.preset.seqlen;
  const int64_t longest = most > 0 ? most : trained;
  if (a.cluster && !q.serve && longest > 0 && a.job.seqlen > longest)
    a.notes.push_back(cat("sequences of ", a.job.seqlen, " tokens are longer than the ", longest,
                          " that ", a.preset.model.name, " takes"));
  if (a.cluster && !q.serve && q.seqlen == 0 && trained > 0 && a.preset.batch_tokens == 0)
    a.notes.push_back(cat("no --seqlen was given: the longest context of the file, ", trained));
  if (a.cluster && !q.serve && q.batch_tokens == 0 && a.preset.batch_tokens == 0)
    a.notes.push_back("no --batch-tokens was given: one sequence a device");
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
    Pins only;
    only.dtype = a.pins.dtype;
    if (a.pins != only)
      return invalid_argument(cat("--fix ", q.fix, ": with --serve only dtype can be fixed"));
    auto served = plan_serving(a.preset.model, a.params, *a.cluster, a.serve_job);
    if (!served.ok()) {
      if (served.error().message.find(kDoesNotFit) == std::string::npos) return served.error();
      a.why_not_served = served.error().message;
      return {};
    }
    a.serve = std::move(*served);
    return {};
  }
  TEGULA_TRY(search_with_idle(q, a));
  if (q.is_trial) return {};
  if (a.found.fit == Fit::kMayNotFit)
    a.notes.push_back(cat("nothing fits for certain", nearest_that_fits(a)));
  const Accelerator& device = a.cluster->device;
  if (!device.sustained.is_known && device.matmul_shares.empty())
    a.notes.push_back(cat("nothing is known of what ", device.name,
                          "'s kernels sustain: products are taken at ", device.sustained.product,
                          " of its peak, and the interval is wide; --microbenchmarks says it"));
  StepPricer fast(a.preset.model, a.params, *a.cluster, a.job, device.sustained.fast);
  StepPricer slow(a.preset.model, a.params, *a.cluster, a.job, device.sustained.slow);
  for (const StepPrice& p : a.found.best)
    a.intervals.push_back({std::min(p.step_s(), fast.price(p.layout).step_s()),
                           std::max(p.step_s(), slow.price(p.layout).step_s())});
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
  if (!q.microbenchmarks.empty() && !a.cluster)
    return invalid_argument("--microbenchmarks is of a device that executes kernel by kernel");
  if (!q.microbenchmarks.empty()) {
    a.measured = TEGULA_TRY(q.fit(q.microbenchmarks, a.job.dtype, a.cluster->device));
    own.insert(own.begin(), a.cluster->device);  // what it is compared with
  }
  a.flops = token_flops(model, real(a.job.seqlen));
  a.tokens_total = q.tokens_total, a.budget = q.budget;
  a.serve_job = {q.prompt, q.output, q.serve_batch, a.job.dtype};
  TEGULA_TRY(price(q, a));
  if (!q.compare.empty()) TEGULA_TRY(compare(q, own, a));
  if (q.is_trial) return a;
  add_notes(q, a);
  Effects effects = effects_of(q, a);
  a.without_effect = std::move(effects.without), a.untried = std::move(effects.untried);
  return a;
}

double mfu(const Answer& a, const StepPrice& p) {
  return p.flops_model /
         (p.step_s() * real(a.cluster->n_devices) * a.cluster->device.peak(a.job.dtype));
}

double hfu(const Answer& a, const StepPrice& p) { return mfu(a, p) * p.flops_hw / p.flops_model; }

double mfu_of_seen_keys(const Answer& a, const StepPrice& p) {
  return mfu(a, p) * (1 - 3 * (a.flops.attention - a.flops.causal_attention) / a.flops.train());
}

std::string why_nothing_fits(const Answer& a) {
  if (!a.why_not_served.empty()) return a.why_not_served;
  const StepPrice& p = *a.found.smallest;
  const ClusterSpec& c = *a.cluster;
  return cat(a.preset.model.name, " does not fit on ", c.n_devices, "x", c.device.name, ": of ",
             a.found.n_layouts, " layouts the smallest (", to_string(p.layout), ") ",
             reserve_text(c, a.job, p.layout, p.peak_bytes()), "; ", memory_text(p.memory),
             nearest_that_fits(a));
}

}  // namespace tegula::planner
