#include "tegula/planner/guide.h"

#include <cmath>

#include "tegula/cost/collective.h"
#include "tegula/planner/enumerate.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

class Walk {
 public:
  Walk(const Answer& a, double deadline_s) : a_(a), deadline_s_(deadline_s) {}

  Guide take() {
    if (std::optional<StepPrice> p = fits_plainly())
      in_time(*p);
    else if (std::optional<StepPrice> q = fits_with_less())
      in_time(*q);
    else
      inter_or_intra(), whole_cluster();
    return std::move(guide_);
  }

 private:
  void say(int number, std::string question, std::string numbers, bool is_yes,
           std::string verdict) {
    guide_.steps.push_back(
        {number, std::move(question), std::move(numbers), std::move(verdict), is_yes});
  }
  // The best of n devices under pins; what was smallest, too.
  SearchResult search(int64_t n, const Pins& pins) const {
    ClusterSpec c = *a_.cluster;
    c.n_devices = n;
    auto found = search_layouts(a_.preset.model, a_.params, c, a_.job, pins);
    return found.ok() ? std::move(*found) : SearchResult{};
  }
  static Pins one_device() {
    Pins pins;
    pins.dp = pins.tp = pins.pp = pins.cp = pins.ep = 1;
    return pins;
  }
  double run_s(double step_s) const { return a_.tokens_total / real(a_.job.batch_tokens) * step_s; }
  std::string days(double seconds) const { return cat(seconds / 86400, " days"); }

  std::optional<StepPrice> fits_plainly();
  std::optional<StepPrice> fits_with_less();
  void in_time(const StepPrice& one);
  void inter_or_intra();
  std::string in_time_by();
  void whole_cluster();

  const Answer& a_;
  double deadline_s_;
  Guide guide_;
};

std::optional<StepPrice> Walk::fits_plainly() {
  Pins pins = one_device();
  pins.remat = Remat::kNone;
  const SearchResult r = search(1, pins);
  const bool fits = !r.best.empty() && r.fit == Fit::kFits;
  const StepPrice* p = fits ? &r.best[0] : r.smallest ? &*r.smallest : nullptr;
  const std::string numbers = p ? cat(reserve_text(*a_.cluster, a_.job, p->layout, p->peak_bytes()),
                                      "; ", memory_text(p->memory))
                                : "no layout";
  say(1, "does it fit on one device?", numbers, fits,
      fits ? "then only time matters" : "then memory first");
  return fits ? std::optional(r.best[0]) : std::nullopt;
}

std::optional<StepPrice> Walk::fits_with_less() {
  const SearchResult r = search(1, one_device());
  const bool fits = !r.best.empty() && r.fit == Fit::kFits;
  std::string numbers = "no layout";
  if (r.smallest)
    numbers = cat("at least ", gb(r.smallest->peak_bytes()), " = ", memory_text(r.smallest->memory),
                  ", by remat ", remat_name(r.smallest->layout.remat));
  std::string verdict = "gradient accumulation and recomputation are enough";
  if (!fits && r.smallest) {
    const double over =
        r.smallest->peak_bytes() - usable_bytes(*a_.cluster, a_.job, r.smallest->layout);
    const double host = a_.cluster->device.host_bytes_per_s;
    verdict = "then several devices";
    if (host > 0)
      verdict += cat("; swapping ", gb(over), " to the host and back would add ", 2 * over / host,
                     " s to every micro-batch of ",
                     r.smallest->step_s() / real(n_microbatches(a_.job, r.smallest->layout)), " s");
  }
  say(3, "does it fit with micro-batches, accumulation and recomputation?", numbers, fits, verdict);
  return fits ? std::optional(r.best[0]) : std::nullopt;
}

// From a layout of one device: enough, or data parallelism over the fewest that are.
void Walk::in_time(const StepPrice& one) {
  const bool has_deadline = deadline_s_ > 0 && a_.tokens_total > 0;
  const bool is_done = has_deadline && run_s(one.step_s()) <= deadline_s_;
  std::string numbers = cat(one.step_s(), " s a step");
  if (a_.tokens_total > 0) numbers += cat(", ", days(run_s(one.step_s())), " for the run");
  numbers += has_deadline ? cat(", of ", days(deadline_s_)) : ", and no deadline is given";
  say(2, "is the job done in time on one?", numbers, is_done,
      is_done ? "one device it is" : "then data parallelism until it is");
  if (is_done) {
    guide_.chosen = one, guide_.n_devices = 1;
    return;
  }
  for (const int64_t n : divisors(a_.cluster->n_devices)) {
    Pins pins;
    pins.tp = pins.pp = pins.cp = 1;
    const SearchResult r = search(n, pins);
    if (r.best.empty() || !has_deadline || run_s(r.best[0].step_s()) > deadline_s_) continue;
    say(2, cat("is it on ", n, "?"),
        cat(days(run_s(r.best[0].step_s())), " by ", to_string(r.best[0].layout)), true,
        "data parallelism is enough");
    guide_.chosen = r.best[0], guide_.n_devices = n;
    return;
  }
  whole_cluster();
}

// A layer's collectives of tensor parallelism against its work, within a node and between nodes,
// and a stage's sends.
void Walk::inter_or_intra() {
  const ClusterSpec& c = *a_.cluster;
  const int64_t t = std::min<int64_t>(8, c.device.devices_per_node);
  RankShape s;
  s.seqlen = real(a_.job.seqlen), s.flash = a_.job.flash;
  Layout whole;
  StepPricer pricer(a_.preset.model, a_.params, c, a_.job);
  const LayerPrice& p = pricer.layer(whole);
  const double work = p.forward.total() / real(t);
  const double bytes = s.element_bytes * s.tokens() * real(a_.preset.model.d_model);
  const double inside = 2 * pricer.comm(Collective::kAllReduce, bytes, {t, 1});
  const double between =
      2 * pricer.comm(Collective::kAllReduce, bytes, {t, c.device.devices_per_node});
  const double send = bytes / (c.device.between.bytes_per_s * c.device.sustained.between[0].share);
  const double stage = real(a_.preset.model.n_layers) / 8 * p.forward.total();
  const std::string numbers = cat(
      "a layer forward over ", t, " devices: ", 1e3 * work, " ms of work; its collectives ",
      1e3 * inside, " ms within a node, ", 1e3 * between, " ms between nodes; a send between ",
      "stages ", 1e3 * send, " ms, for ", 1e3 * stage, " ms of work on an eighth of the layers");
  const bool is_intra = inside < work;
  std::string verdict =
      is_intra ? "intra-operator (tp, sp) within a node" : "inter-operator (pp) even within a node";
  verdict += between < work ? ", and between nodes, too" : "; between nodes inter-operator (pp)";
  say(4, "are links fast enough to cut operators?", numbers, is_intra, verdict);
}

// More of the same devices that would meet the deadline, doubled.
std::string Walk::in_time_by() {
  for (int64_t n = 2 * a_.cluster->n_devices; n <= kMostDevices; n *= 2) {
    if (a_.job.batch_tokens / a_.job.seqlen < n) break;
    const SearchResult r = search(n, a_.pins);
    if (!r.best.empty() && run_s(r.best[0].step_s()) <= deadline_s_)
      return cat("; ", n, " would take ", days(run_s(r.best[0].step_s())));
  }
  return "; no doubling of them would, with steps of this many tokens";
}

void Walk::whole_cluster() {
  const bool fits = !a_.found.best.empty();
  std::string numbers = cat(a_.found.n_layouts, " layouts of ", a_.cluster->n_devices,
                            " devices, of which ", a_.found.n_fit, " fit");
  std::string verdict = fits ? to_string(a_.found.best[0].layout) : "nothing fits: more devices";
  bool is_done = fits;
  if (fits) {
    numbers += cat("; ", a_.found.best[0].step_s(), " s a step");
    if (a_.tokens_total > 0) numbers += cat(", ", days(run_s(a_.found.best[0].step_s())));
    if (deadline_s_ > 0 && a_.tokens_total > 0)
      is_done = run_s(a_.found.best[0].step_s()) <= deadline_s_;
    if (!is_done) verdict += cat(": the best there is, and late", in_time_by());
    guide_.chosen = a_.found.best[0];
  }
  guide_.n_devices = a_.cluster->n_devices;
  say(5, "what is the best of all combinations?", numbers, is_done, verdict);
}

}  // namespace

Guide guide(const Answer& answer, double deadline_s) { return Walk(answer, deadline_s).take(); }

std::string to_text(const Guide& g) {
  std::string out = "\nhow to get there\n";
  for (const GuideStep& s : g.steps)
    out += cat("  ", s.number, ". ", s.question, " ", s.is_yes ? "yes" : "no", ": ", s.numbers,
               "\n     ", s.verdict, "\n");
  return out;
}

}  // namespace tegula::planner
