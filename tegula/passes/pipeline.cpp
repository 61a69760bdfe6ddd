#include "tegula/passes/pipeline.h"

#include <cstdio>
#include <utility>

#include "tegula/base/amounts.h"
#include "tegula/base/clock.h"
#include "tegula/base/text.h"
#include "tegula/ir/regions.h"
#include "tegula/ir/text.h"
#include "tegula/ir/verify.h"

namespace tegula {

// The one place that holds the order; a pass may stand in it more than once.
#define TEGULA_PIPELINE(X) \
  X(merge_scans)           \
  X(control)               \
  X(scan_sums)             \
  X(scan_layout)           \
  X(dce)                   \
  X(quantised_dot)         \
  X(block_weights)         \
  X(superopt)              \
  X(lower)                 \
  X(cse)                   \
  X(views)                 \
  X(fold)                  \
  X(algebra)               \
  X(control)               \
  X(views)                 \
  X(cse)                   \
  X(dce)                   \
  X(one_chain)             \
  X(order_free_sum)        \
  X(exact_shards)          \
  X(sum_products)          \
  X(autocast)              \
  X(sort_keys)             \
  X(merge_products)        \
  X(merge_sums)            \
  X(move_casts)            \
  X(blockwise)             \
  X(bias_activation)       \
  X(remat)                 \
  X(recompute)             \
  X(dce)                   \
  X(loss_grads)            \
  X(sum_shards)            \
  X(norm_residual)         \
  X(widen_again)           \
  X(fuse)                  \
  X(wrap)                  \
  X(epilogues)

#define TEGULA_DECLARE(name) extern const PassDef name##_pass;
TEGULA_PIPELINE(TEGULA_DECLARE)
#undef TEGULA_DECLARE

namespace {
#define TEGULA_ADDRESS(name) &name##_pass,
constexpr const PassDef* kPipeline[] = {TEGULA_PIPELINE(TEGULA_ADDRESS)};
#undef TEGULA_ADDRESS

bool names(std::string_view list, std::string_view name) {
  while (!list.empty())
    if (take_until(',', list) == name) return true;
  return false;
}

Status check_names(std::string_view list, bool minus) {
  while (!list.empty()) {
    std::string_view name = take_until(',', list);
    if (minus && !name.starts_with('-'))
      return invalid_argument(cat("passes: \"", name, "\" must be \"-\" and the name of a pass"));
    if (minus) name.remove_prefix(1);
    if (!find_pass(name) && (minus || name != "all")) {
      std::string all;
      for (const PassDef* p : kPipeline)
        if (!names(all, p->name)) all += cat(all.empty() ? "" : ",", p->name);
      return invalid_argument(cat("there is no pass \"", name, "\"; passes are ", all));
    }
  }
  return {};
}

// Regions go through each stage before the function that holds them: the passes of loops see bodies
// as they were written, those up to the precision with ops as they were (autocast does bodies with
// their function), and the others as they will run.
constexpr size_t kStages = 3;
size_t stage_of(PassPhase phase) {
  return phase <= PassPhase::kLoops ? 0 : phase <= PassPhase::kPrecision ? 1 : 2;
}

struct Manager {
  Module& module;
  const PipelineOptions& options;
  std::vector<PassReport> reports;
  std::vector<size_t> next = {};  // per function: the first stage that it has not been through
  PassOptions in_region = options.pass;
  std::span<const PassDef* const> passes = options.order.empty() ? pipeline() : options.order;
  // Functions of an earlier run have been through the phases before options.from.
  size_t n_known = module.functions.size();

  size_t& next_of(FuncId id) {
    if (id >= next.size()) next.resize(module.functions.size(), 0);
    return next[id];
  }

  // Through the stages up to the last.
  Status run(FuncId id, size_t last, bool is_region = false) {
    for (size_t stage = next_of(id); stage <= last; stage = next_of(id)) {
      if (stage > 0) TEGULA_TRY(run_regions(id, stage));
      next_of(id) = stage + 1;
      PassPhase phase = PassPhase::kLoops;
      for (const PassDef* pass : passes) {
        if (pass->phase != PassPhase::kAny) phase = pass->phase;
        if (stage_of(phase) != stage || phase >= options.until) continue;
        if (phase < options.from && id < n_known) continue;
        if (names(options.passes, cat("-", pass->name))) continue;
        if (is_region && pass == &autocast_pass) continue;
        const size_t n_before = module.functions.size();
        TEGULA_TRY(run_one(id, *pass, is_region));
        if (stage > 0 && module.functions.size() > n_before) TEGULA_TRY(run_regions(id, stage));
      }
    }
    return {};
  }

  // The functions that its nodes hold.
  Status run_regions(FuncId id, size_t last) {
    for (size_t n = 0; n < module[id].nodes.size(); ++n)
      if (has_bodies(*module[id].nodes[n].op))
        for (size_t r = 0; r < module[id].nodes[n].regions.size(); ++r)
          TEGULA_TRY(run(module[id].nodes[n].regions[r], last, true));
    return {};
  }

  Status run_one(FuncId id, const PassDef& pass, bool is_region) {
    PassReport r{pass.name, module[id].name};
    r.nodes_before = static_cast<int64_t>(module[id].nodes.size());
    const Stopwatch watch;
    r.changed = TEGULA_TRY(run_pass(module, id, pass, is_region ? in_region : options.pass));
    r.ms = watch.ms();
    r.nodes_after = static_cast<int64_t>(module[id].nodes.size());
    if (options.verify && r.changed)
      if (auto st = verify(module, module[id]); !st.ok()) return st;
    if (names(options.dump_after, pass.name) || names(options.dump_after, "all")) {
      const std::string text = to_text(module, module[id]);
      options.dump ? options.dump(pass.name, text)
                   : static_cast<void>(std::fprintf(stderr, "%s\n", text.c_str()));
    }
    reports.push_back(std::move(r));
    return {};
  }
};

}  // namespace

std::span<const PassDef* const> pipeline() { return kPipeline; }

Status check_order(std::span<const PassDef* const> passes) {
  PassPhase phase = PassPhase::kAny;
  uint8_t has = kAtFirst;
  for (const PassDef* pass : passes) {
    if (pass->phase != PassPhase::kAny && pass->phase < phase)
      return invalid_argument(cat("pass ", pass->name, " stands behind a pass of a later phase"));
    if (pass->phase != PassPhase::kAny) phase = pass->phase;
    if ((pass->needs & ~has) != 0)
      return invalid_argument(cat("pass ", pass->name,
                                  " stands where what it needs is not there: properties ",
                                  pass->needs & ~has, " of passes/pass.h"));
    has = static_cast<uint8_t>((has | pass->gives) & ~pass->takes);
  }
  return {};
}

const PassDef* find_pass(std::string_view name) {
  for (const PassDef* p : kPipeline)
    if (p->name == name) return p;
  return nullptr;
}

Result<bool> run_pass(Module& module, FuncId id, const PassDef& pass, const PassOptions& options) {
  Function f = std::move(module[id]);
  auto changed = pass.run(module, f, options);
  module[id] = std::move(f);
  return named(cat("pass ", pass.name, " of ", module[id].name), std::move(changed));
}

Result<std::vector<PassReport>> run_passes(Module& module, FuncId f,
                                           const PipelineOptions& options) {
  auto st = check_names(options.passes, true);
  if (st.ok()) st = check_names(options.dump_after, false);
  if (st.ok() && !options.order.empty()) st = check_order(options.order);
  if (!st.ok()) return std::move(st).error();
  Manager m{module, options, {}};
  m.in_region.is_region = true;
  st = m.run(f, kStages - 1);
  if (!st.ok()) return std::move(st).error();
  return std::move(m.reports);
}

std::string to_text(std::span<const PassReport> reports) {
  std::string out = "pass                      ms    nodes\n";
  double total = 0;
  for (const PassReport& r : reports) {
    total += r.ms;
    out += printed("%-18s %9.3f %8lld", std::string(r.pass).c_str(), r.ms,
                   static_cast<long long>(r.nodes_before));
    out += cat(r.changed ? cat(" -> ", r.nodes_after) : "  unchanged", "  ", r.function, "\n");
  }
  return out + printed("%-18s %9.3f\n", "total", total);
}

}  // namespace tegula
