// The pages of serving and of several accelerators side by side.
#include "tegula/cost/price.h"
#include "tegula/planner/print.h"
#include "tegula/planner/report.h"

namespace tegula::planner {

namespace {

std::string describe(const StepSeconds& s) {
  const ServeLayout& l = s.layout;
  std::string text(partition_name(l.partition));
  if (l.partition == Partition::kStationary2d) text += cat(" ", l.x, "·", l.n / l.x);
  if (l.gather > 1) text += cat(" over ", l.gather);
  return text + (l.attention_by_batch ? ", attention by sequences" : ", attention by heads");
}

void row(std::string& out, const ServePrice& p) {
  print(out, "  %lld %s of %lld device%s, batches of %lld: %.4g tokens/s",
        static_cast<long long>(p.copies), p.copies == 1 ? "copy" : "copies",
        static_cast<long long>(p.n), p.n == 1 ? "" : "s", static_cast<long long>(p.batch),
        p.tokens_per_s);
  if (p.dollars_per_million_tokens > 0)
    print(out, ", %.3g dollars a million", p.dollars_per_million_tokens);
  print(
      out,
      "\n     first token after %.4g s (%s, bound by %s)\n     then %.4g ms a token (%s, bound by "
      "%s); %.1f GB of weights and %.1f of keys and values a device\n",
      p.prefill.total(), describe(p.prefill).c_str(), std::string(p.prefill.bound_by()).c_str(),
      1e3 * p.decode.total(), describe(p.decode).c_str(), std::string(p.decode.bound_by()).c_str(),
      p.weight_bytes / 1e9, p.kv_bytes / 1e9);
  print(out, "     a request takes %.4g s there: %lld at once, %.4g a second\n", p.request_s,
        static_cast<long long>(p.batch * p.copies), p.sequences_per_s * real(p.copies));
}

}  // namespace

void add_serving(std::string& out, const Answer& a) {
  const ServeAnswer& s = *a.serve;
  print(
      out,
      "request     a prompt of %lld tokens, %lld come out; %.3g GB of keys and values at its end\n",
      static_cast<long long>(a.serve_job.prompt), static_cast<long long>(a.serve_job.output),
      s.kv_bytes_per_sequence / 1e9);
  const int64_t everywhere = s.max_batch * s.best.front().copies;
  print(
      out,
      "memory      %.4g GB of weights a copy; the best below holds %lld sequences a copy, %lld in "
      "all\n",
      s.weights_bytes / 1e9, static_cast<long long>(s.max_batch),
      static_cast<long long>(everywhere));
  print(out, "decoding    products turn from memory- to compute-bound at a batch of %.4g\n",
        s.compute_bound_batch);
  if (s.context_switch_s > 0)
    print(out, "switch      a sequence's cache out to the host and another's in: %.3g s\n",
          s.context_switch_s);
  out += "\nmost tokens a second\n";
  for (const ServePrice& p : s.best) row(out, p);
  if (!s.quickest) return;
  out += "\nleast time between tokens\n";
  row(out, *s.quickest);
}

void add_other(std::string& out, const Answer& a) {
  const OtherKind& k = *a.other.kind;
  const OtherPrice& p = a.other_price;
  print(out, "cluster     %lldx%s. It executes otherwise: %s\n", static_cast<long long>(a.other.n),
        std::string(k.name).c_str(), std::string(k.executes).c_str());
  print(out, "memory      %.4g GB of %.4g a device\n", p.memory_needed / 1e9, p.memory_bytes / 1e9);
  print(out, "price       %.4g s %s\n", p.seconds(), p.of.c_str());
  for (const OtherTerm& t : p.terms)
    print(out, "            %.4g s %s%s\n", t.seconds, t.what.c_str(),
          t.is_hidden ? " (not counted: hidden, or apart)" : "");
  for (const std::string& text : p.assumed) print(out, "assumed     %s\n", text.c_str());
  out += cat("published   ", to_text(k.published()), "\n");
}

void add_compared(std::string& out, const Answer& a) {
  out += "\nside by side\n";
  for (const Compared& c : a.compared) {
    const double n = real(c.cluster.n_devices), rent = dollars(c.cluster.device, n, 1);
    print(out, "  %-6lldx %-16s ", static_cast<long long>(c.cluster.n_devices),
          c.cluster.device.name.c_str());
    if (c.train) {
      const double rate = real(a.job.batch_tokens) / c.train->step_s();
      print(out, "%.4g s a step, %.4g tokens/s a device, %.3g dollars a million; %s\n",
            c.train->step_s(), rate / n, rent / rate * 1e6, to_string(c.train->layout).c_str());
    } else if (c.serve) {
      print(out,
            "%.4g tokens/s a device, first after %.3g s, then %.3g ms, %.3g dollars a million\n",
            c.serve->tokens_per_s / n, c.serve->prefill.total(), 1e3 * c.serve->decode.total(),
            c.serve->dollars_per_million_tokens);
    } else {
      print(out, "%s\n", c.why_not.c_str());
    }
  }
}

}  // namespace tegula::planner
