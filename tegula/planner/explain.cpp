#include "tegula/planner/explain.h"

#include <algorithm>

#include "tegula/planner/attention_access.h"
#include "tegula/planner/collective_table.h"
#include "tegula/planner/nearest.h"
#include "tegula/planner/print.h"
#include "tegula/planner/ring.h"

namespace tegula::planner {

namespace {

void explain_params(std::string& out, const Answer& a) {
  const ModelSpec& m = a.preset.model;
  const ParamCount& p = a.params;
  const auto line = [&](const char* what, int64_t n) {
    if (n > 0) print(out, "  %-34s %20s\n", what, grouped(n).c_str());
  };
  print(out, "parameters of %s: %s layers of\n", m.name.c_str(), grouped(m.n_layers).c_str());
  line("  attention", p.attention);
  line("  router", p.router);
  line(m.is_moe() ? "  one expert" : "  feed-forward or recurrence", p.expert);
  line("  experts beside, of every token", p.shared);
  line("  norms", p.norms);
  line("  a layer", p.layer);
  line("all layers", m.kind == ModelKind::kMlp
                         ? p.total - p.embedding - p.head
                         : (m.n_layers - m.n_dense_layers) * p.layer +
                               m.n_dense_layers * (p.attention + p.norms + p.dense));
  if (m.n_dense_layers > 0)
    print(out, "  of which %s layers have %s in the place of experts\n",
          grouped(m.n_dense_layers).c_str(), grouped(p.dense).c_str());
  line("embedding", p.embedding);
  line("positions and norm of embedding", p.positions);
  line("final norm", p.final_norm);
  line("head", p.head);
  line("all", p.total);
  if (m.is_moe()) line("active a token", p.active);
}

void explain_memory(std::string& out, const Answer& a, const StepPrice& p) {
  const Layout& l = p.layout;
  const RankParams r = rank_params(a.preset.model, a.params, l);
  const StateBytes s = state_bytes(a.job, a.preset.model);
  const RankStages held = stages_of(a.preset.model, a.job, l, p.worst_stage);
  const int64_t shards = l.zero_ranks() * l.copies();
  StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  const ActivationBytes& act = pricer.layer(l).activations;
  const int64_t m = n_microbatches(a.job, l);
  print(out, "memory of stage %lld of %lld, %s\n", static_cast<long long>(p.worst_stage),
        static_cast<long long>(l.pp), to_string(l).c_str());
  print(out,
        "  parameters of a rank = %lld layers · (%.6g + experts %.6g)%s%s\n"
        "  weights      %g bytes each%s = %.6g\n  gradients    %g bytes each%s = %.6g\n"
        "  optimizer    %g bytes each%s = %.6g\n",
        static_cast<long long>(held.layers), r.layer, r.experts,
        held.has_first ? cat(" + embedding ", r.first).c_str() : "",
        held.has_last ? cat(" + head ", r.last).c_str() : "", s.weights,
        l.zero >= 3 ? cat(" / ", shards).c_str() : "", p.memory.weights, s.gradients,
        l.zero >= 2 ? cat(" / ", shards).c_str() : "", p.memory.gradients, s.optimizer,
        l.zero >= 1 ? cat(" / ", shards).c_str() : "", p.memory.optimizer);
  print(out,
        "  activations  %.6g layers in flight (%lld micro-batches) · %.6g bytes a layer = %.6g\n",
        layers_in_flight(l, m, p.worst_stage, held.in_a_stage), static_cast<long long>(m),
        act.layer, p.memory.activations);
  print(out, "  temporaries  %.6g, of a layer's gradients %.6g\n", p.memory.temporaries,
        act.working);
  print(out, "  in all       %s\n", memory_text(p.memory).c_str());
  print(out, "  sum          %.6g\n", p.peak_bytes());
  RankShape shape = rank_shape(l, a.preset.model, a.job);
  out += "  saved by a layer for one micro-batch\n";
  for (const Saved& t : layer_work(a.preset.model, shape).saved)
    print(out, "    %-28s %.6g bytes%s\n", std::string(t.name).c_str(), t.bytes,
          t.is_core    ? " (naive attention's)"
          : t.is_cheap ? " (a norm's or an activation's)"
                       : "");
}

void explain_step(std::string& out, const Answer& a, const StepPrice& p) {
  const Layout& l = p.layout;
  StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  const LayerPrice& r = pricer.layer(l);
  print(out, "a step by %s\n", to_string(l).c_str());
  print(
      out,
      "  %lld micro-batches of %lld sequences%s; stages of %s\n"
      "  a layer: forward %.6g s, gradients of inputs %.6g, of weights %.6g, computed again %.6g\n"
      "  its waits: tp %.6g and %.6g s, cp %.6g and %.6g, experts %.6g each way\n",
      static_cast<long long>(n_microbatches(a.job, l)), static_cast<long long>(l.microbatch),
      l.slices > 1 ? cat(" in ", l.slices, " slices, of one of which what follows is").c_str() : "",
      stages_text(a.preset.model, a.job, l).c_str(), r.forward.total(), r.input_backward.total(),
      r.weight_backward.total(), r.recompute.total(), r.tp_forward, r.tp_backward + r.tp_recompute,
      r.cp_forward, r.cp_backward, r.ep);
  for (const Part& part : p.seconds.parts()) print(out, "  %-16s %.6g s\n", part.name, part.value);
  print(out, "  %-16s %.6g s\n", "sum", p.step_s());
  print(out, "  MFU = %.6g FLOPs / (%.6g s · %lld · %.6g) = %.4f; HFU with %.6g FLOPs = %.4f\n",
        p.flops_model, p.step_s(), static_cast<long long>(a.cluster->n_devices),
        a.cluster->device.peak(a.job.dtype), mfu(a, p), p.flops_hw, hfu(a, p));
}

void explain_work(std::string& out, const Answer& a, const Work& w, const char* phase) {
  const Accelerator& d = a.cluster->device;
  const WorkPrice p = price(w, d, kExpected, a.job.dtype);
  print(out, "  %-22s %.6g FLOPs, %.6g bytes", phase, w.flops, w.bytes);
  if (w.flops > 0)
    print(out, ": %.4g FLOPs a byte, ridge %.4g", w.flops / w.bytes, d.ridge(a.job.dtype));
  if (w.unit == Unit::kMatmul)
    print(out, "; %.6g multiply-adds, %g of [%g %g]·[%g %g], waves filled %.3f", w.flops / 2,
          w.count, w.m, w.k, w.k, w.n, p.wave);
  const std::string apart = p.apart_s > 0 ? cat(" + ", p.apart_s, " that do not hide") : "";
  print(out, "\n%25smax(%.4g s of compute, %.4g of memory)%s + %.4g launch = %.4g s, bound by %s\n",
        "", p.flops_s, p.bytes_s, apart.c_str(), p.launch_s, p.seconds,
        std::string(bound_name(p.bound)).c_str());
}

void explain_attention(std::string& out, const Answer& a, const RankShape& s) {
  const double heads = real(a.preset.model.n_heads) / s.tp, d = real(a.preset.model.head_dim);
  out += "  what naive kernels access, step by step, of one sequence\n";
  const auto table = access_table(s.seqlen, d, heads);
  for (const AccessRow& r : table)
    print(out, "    %-8s %.6g elements, %s, %.6g bytes, %.6g FLOPs\n", std::string(r.what).c_str(),
          r.elements, r.times == 2 ? "read and written" : "once", r.bytes, r.flops);
  const AccessTotal t = total(table);
  print(out, "    all      %.6g bytes, %.6g FLOPs: %.4g a byte; with more keys it rises to %.4g\n",
        t.bytes, t.flops, t.intensity(), intensity_limit(d));
  const double sram = a.cluster->device.sram_bytes;
  if (sram <= 0) return;
  const AccessBytes b = access_bytes(s.seqlen, d, heads, sram);
  print(
      out,
      "    bytes without tiles %.4g, tiled products %.4g, flash attention with %.4g bytes of SRAM "
      "%.4g, least %.4g\n",
      b.naive, b.tiled, sram, b.flash, b.least);
}

// Every op's names, and the lines of one.
struct Found {
  std::string text;
  std::vector<std::string_view> names;
};

Found explain_op(const Answer& a, const StepPrice& p, std::string_view what) {
  const RankShape s = rank_shape(p.layout, a.preset.model, a.job);
  const ModelSpec& m = a.preset.model;
  Found f;
  for (const LayerWork& w : {embedding_work(m, s), layer_work(m, s), head_work(m, s)}) {
    for (const auto& [list, phase] :
         {std::pair{&w.forward, "forward"}, std::pair{&w.input_backward, "gradients of inputs"},
          std::pair{&w.weight_backward, "gradients of weights"}})
      for (const Work& x : *list) {
        if (std::ranges::find(f.names, x.name) == f.names.end()) f.names.push_back(x.name);
        if (x.name != what) continue;
        if (f.text.empty())
          print(f.text, "%s on one rank, a micro-batch of %g tokens, %s\n",
                std::string(what).c_str(), s.tokens(), to_string(p.layout).c_str());
        explain_work(f.text, a, x, phase);
      }
  }
  if (!f.text.empty() && what == "attention") explain_attention(f.text, a, s);
  return f;
}

}  // namespace

Result<std::string> explain(const Answer& a, std::string_view what) {
  std::string out;
  if (what == "params") {
    explain_params(out, a);
    return out;
  }
  if (!a.cluster)
    return invalid_argument(cat("--explain ", what, " needs --gpus: only params go without"));
  if (what == "ring") {
    explain_ring(out, a.preset.model, *a.cluster, a.job);
    return out;
  }
  if (what == "collectives") {
    explain_collectives(out, *a.cluster);
    return out;
  }
  if (a.found.best.empty() && !a.found.smallest)
    return invalid_argument(cat("--explain ", what, " is for training: leave out --serve"));
  // Where nothing fits, the smallest layout says why.
  const StepPrice& p = a.found.best.empty() ? *a.found.smallest : a.found.best[0];
  if (what == "memory") {
    explain_memory(out, a, p);
    return out;
  }
  if (what == "step") {
    explain_step(out, a, p);
    return out;
  }
  Found f = explain_op(a, p, what);
  if (!f.text.empty()) return std::move(f.text);
  for (const char* name : {"params", "memory", "step", "ring", "collectives"})
    f.names.emplace_back(name);
  return invalid_argument(
      cat("--explain knows no '", what, "': the nearest are ", nearest_names(what, f.names)));
}

}  // namespace tegula::planner
