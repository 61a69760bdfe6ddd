#include "tegula/cost/price.h"
#include "tegula/planner/budget.h"
#include "tegula/planner/help.h"
#include "tegula/planner/pipeline.h"
#include "tegula/planner/print.h"
#include "tegula/planner/report.h"

namespace tegula::planner {

namespace {

void model_card(std::string& out, const Answer& a) {
  const ModelSpec& m = a.preset.model;
  print(out, "model       %s: %s parameters", m.name.c_str(), grouped(a.params.total).c_str());
  if (m.is_moe()) print(out, ", %s active a token", grouped(a.params.active).c_str());
  print(out, "\n            %s\n",
        m.family.empty() ? "counted and priced alone: no family of tegula builds it"
                         : cat("family ", m.family, "; its graph has as many").c_str());
  for (const std::string& note : a.preset.notes) print(out, "note        %s\n", note.c_str());
  print(out,
        "FLOPs       %.5g a token forward, %.5g in training, attention over all keys (PaLM's "
        "convention, of mfu)\n"
        "            %.5g forward by causal keys alone; 6N is %.5g; sequences of %s\n",
        a.flops.forward(), a.flops.train(),
        a.flops.layers + a.flops.head + a.flops.causal_attention, 6 * real(a.params.active),
        grouped(a.job.seqlen).c_str());
  const double n = real(a.params.active);
  const Optimum best = chinchilla(120 * n * n);
  const double loss = predicted_loss(best.params, best.tokens);
  print(out,
        "optimum     20 tokens a parameter (Chinchilla): %.4g tokens, %.4g FLOPs, a loss of about "
        "%.3g; critical batch there about %.2g tokens\n",
        best.tokens, 6 * best.params * best.tokens, loss, critical_batch_tokens(loss));
  if (a.budget > 0) {
    const Optimum rule = chinchilla(a.budget), fit = chinchilla_by_loss(a.budget);
    print(
        out,
        "budget      %.4g FLOPs: %.4g parameters and %.4g tokens by 20 a parameter, %.4g and %.4g "
        "by the fitted loss\n",
        a.budget, rule.params, rule.tokens, fit.params, fit.tokens);
  }
  if (m.kind == ModelKind::kDecoder)
    print(out, "KV cache    %s bytes a token in %s\n",
          grouped(static_cast<int64_t>(kv_bytes_per_token(m, bytes_of(a.job.dtype)))).c_str(),
          std::string(number_name(a.job.dtype)).c_str());
}

void cluster_card(std::string& out, const Answer& a) {
  const ClusterSpec& c = *a.cluster;
  const Accelerator& d = c.device;
  print(out,
        "cluster     %s x %s: %.4g TFLOP/s in %s (dense), %.4g GB at %.4g GB/s, ridge %.0f; %s a "
        "node, %.4g GB/s between them, %.4g to other nodes\n",
        grouped(c.n_devices).c_str(), d.name.c_str(), d.peak(a.job.dtype) / 1e12,
        d.has_bf16 || a.job.dtype != Number::kBf16 ? std::string(number_name(a.job.dtype)).c_str()
                                                   : "f16, for bf16, which it has not",
        d.memory_bytes / 1e9, d.memory_bytes_per_s / 1e9, d.ridge(a.job.dtype),
        grouped(d.devices_per_node).c_str(), d.inside.bytes_per_s / 1e9,
        d.between.bytes_per_s / 1e9);
}

void add_laws(std::string& out, const Json& measured) {
  out += "measured    by a law a line; nine of ten rows are within its residual\n";
  for (const Json& law : *measured.find("laws")->as<Json::Array>())
    out += cat("            ", law.dump(), '\n');
  for (const char* key : {"file", "source", "missing", "rows_of_other_dtypes"})
    out += cat("            ", key, ": ", measured.find(key)->dump(), '\n');
}

void job_card(std::string& out, const Answer& a) {
  print(out, "job         %s tokens a step, %s sequences of %s; %s attention\n",
        grouped(a.job.batch_tokens).c_str(), grouped(a.job.batch_tokens / a.job.seqlen).c_str(),
        grouped(a.job.seqlen).c_str(), std::string(a.job.attention()).c_str());
  if (a.job.framework)
    print(out, "framework   %s: its dtypes, its loss, what it fuses and hides (docs/planner.md)\n",
          std::string(a.job.framework->name).c_str());
  print(out, "overlap     %.3g of the exchange of data parallelism that could hide does, %s\n",
        hides_of(a.job),
        a.job.overlap ? "as was fixed"
        : a.job.framework
            ? cat("as with ", a.job.framework->name, "; --fix overlap= says another share").c_str()
            : "and none in the interval's slow end; --fix overlap= says another share");
  for (const std::string& note : a.notes) print(out, "note        %s\n", note.c_str());
  print(out, "search      %s layouts: %s fit, %s may not fit, the others do not\n",
        grouped(a.found.n_layouts).c_str(), grouped(a.found.n_fit).c_str(),
        grouped(a.found.n_may_fit).c_str());
}

// Where the convention's MFU says little.
std::string seen_keys(const Answer& a, const StepPrice& p) {
  if (mfu(a, p) < 1) return "";
  std::string text;
  print(text, " by all keys (%.1f %% by those that are seen)", 100 * mfu_of_seen_keys(a, p));
  return text;
}

void layout_rows(std::string& out, const Answer& a) {
  out += "\nbest layouts\n";
  if (a.found.n_equal > 1)
    print(out, "  the first %lld are equal within 1 %%: the simplest stands first\n",
          static_cast<long long>(a.found.n_equal));
  for (size_t i = 0; i < a.found.best.size(); ++i) {
    const StepPrice& p = a.found.best[i];
    print(out,
          "  %zu  %s\n     %.4g s a step (%.4g to %.4g), %.4g tokens/s a device, %.4g TFLOP/s, MFU "
          "%.1f %%%s, HFU %.1f %%, %.1f GB%s, bound by %s\n",
          i + 1, to_string(p.layout).c_str(), p.step_s(), a.intervals[i].low, a.intervals[i].high,
          real(a.job.batch_tokens) / p.step_s() / real(a.cluster->n_devices),
          p.flops_model / p.step_s() / real(a.cluster->n_devices) / 1e12, 100 * mfu(a, p),
          seen_keys(a, p).c_str(), 100 * hfu(a, p), p.peak_bytes() / 1e9,
          a.found.fit == Fit::kFits ? "" : cat(", which ", fit_name(a.found.fit)).c_str(),
          std::string(p.bound_by()).c_str());
  }
}

void stage_rows(std::string& out, const Answer& a, const Layout& l) {
  print(out, "stages      %s\n", stages_text(a.preset.model, a.job, l).c_str());
  int64_t rank = 0;
  for (const StageMemory& s : StepPricer(a.preset.model, a.params, *a.cluster, a.job).stages(l)) {
    print(out, "  %10lld  %lld layers: %s = %.2f\n", static_cast<long long>(rank++),
          static_cast<long long>(s.layers), memory_text(s.memory).c_str(), s.memory.total() / 1e9);
  }
}

void best_in_detail(std::string& out, const Answer& a) {
  const StepPrice& p = a.found.best[0];
  print(out, "\nmemory      stage %lld is the fullest: %s = %.2f allocated\n            %s\n",
        static_cast<long long>(p.worst_stage), memory_text(p.memory).c_str(), p.peak_bytes() / 1e9,
        reserve_text(*a.cluster, a.job, p.layout, p.peak_bytes()).c_str());
  if (a.job.live && a.job.live->find(p.layout))
    out +=
        "            activations and temporaries by the plans of a few layers of the graph "
        "itself\n";
  print(out, "again       %s computed again in the backward part\n",
        cat(made_again(a.job, p.layout), p.layout.remat == Remat::kNone ? " is" : " are").c_str());
  if (p.layout.pp > 1) stage_rows(out, a, p.layout);
  out += "a step      ";
  bool is_first = true;
  for (const Part& part : p.seconds.parts())
    if (part.value > 0) {
      print(out, "%s%s %.4g s (%.1f %%)", is_first ? "" : ", ", part.name, part.value,
            100 * part.value / p.step_s());
      is_first = false;
    }
  out += '\n';
  if (p.layout.pp > 1) {
    StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
    for (const StepPrice& t : by_every_schedule(pricer, a.preset.model, p.layout)) {
      if (t.layout.turns == p.layout.turns) continue;
      const Fit fit = reserve_of(*a.cluster, a.job, t.layout, t.peak_bytes()).fit;
      print(out, "            by %s: %.4g s, bubble %.1f %%, %.1f GB%s\n",
            std::string(turns_name(t.layout.turns)).c_str(), t.step_s(), 100 * t.bubble(),
            t.peak_bytes() / 1e9, fit == Fit::kFits ? "" : cat(", which ", fit_name(fit)).c_str());
    }
  }
  if (a.tokens_total > 0) {
    const double steps = a.tokens_total / real(a.job.batch_tokens);
    const double hours = steps * p.step_s() / 3600, devices = real(a.cluster->n_devices + a.n_idle);
    print(out, "a run       %.4g tokens: %.4g steps, %.4g days, %.4g device hours", a.tokens_total,
          steps, hours / 24, hours * devices);
    if (a.cluster->device.dollars_per_hour > 0)
      print(out, ", %.4g dollars at %.3g an hour",
            dollars(a.cluster->device, devices, 3600 * hours), a.cluster->device.dollars_per_hour);
    out += '\n';
  }
}

// The best layout again on a cluster that is twice as good in one respect.
void add_help(std::string& out, const Answer& a) {
  out += "\nwhat would help most (the best layout again)\n";
  for (const Help& h : what_would_help(a))
    print(out, "  twice the %-28s %+.1f %% time%s%s\n", h.what, 100 * h.time, h.note,
          h.by.empty() ? "" : cat(", by ", h.by).c_str());
}

}  // namespace

std::string to_text(const Answer& a) {
  std::string out;
  model_card(out, a);
  if (!a.compared.empty()) add_compared(out, a);
  if (a.other.kind) add_other(out, a);
  if (!a.cluster) return out;
  cluster_card(out, a);
  if (a.measured) add_laws(out, *a.measured);
  for (const std::string& input : a.without_effect)
    print(out, "no effect   %s: the answer is the same without\n", input.c_str());
  for (const std::string& input : a.untried)
    print(out, "untried     whether %s has an effect: too many layouts without\n", input.c_str());
  if (a.serve) add_serving(out, a);
  if (a.found.best.empty()) return out;
  job_card(out, a);
  layout_rows(out, a);
  best_in_detail(out, a);
  if (!a.found.rejected.empty()) out += "\nwhy not\n";
  for (const Rejected& r : a.found.rejected)
    print(out, "  %s\n     %s\n", to_string(r.price.layout).c_str(), r.why.c_str());
  add_help(out, a);
  return out;
}

}  // namespace tegula::planner
