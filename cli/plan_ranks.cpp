#include <cstdio>
#include <map>

#include "cli/bench.h"
#include "cli/plan.h"
#include "tegula/io/json.h"
#include "tegula/ir/collective.h"

namespace tegula::cli {

namespace {

struct PlannedRanks {
  StepFunctions functions;
  std::vector<StepPart> parts;
  std::vector<CompiledRanks> plans;  // of each part
  const CompiledRanks& step() const { return plans[0]; }
  std::vector<StepCost> costs;
  std::vector<int64_t> sent_bytes;
  ProductShares products;
};

int64_t sent_bytes(const CompiledRanks& c, int64_t rank) {
  return c.plans[static_cast<size_t>(rank)]->sent_bytes(c.mesh, c.mesh.at(rank));
}

Result<PlannedRanks> planned(const TrainConfig& c, const Target& target) {
  PlannedRanks p;
  p.functions = TEGULA_TRY(build_step_functions(c));
  p.parts = parts_of_step(c, p.functions);
  for (const StepPart& part : p.parts)
    p.plans.push_back(TEGULA_TRY(compile_for_ranks(c, p.functions, part.function, target)));
  TrainConfig alone = c;
  alone.mesh = {}, alone.zero = 0, alone.superopt = 0;
  const StepFunctions whole = TEGULA_TRY(build_step_functions(alone));
  const CompiledRanks by_one =
      TEGULA_TRY(compile_for_ranks(alone, whole, parts_of_step(alone, whole)[0].function, target));
  p.products = product_shares(p.step(), *by_one.plans[0], batch_shares(c));
  for (int64_t r = 0; r < c.mesh.n_ranks(); ++r) {
    const auto i = static_cast<size_t>(r);
    p.costs.push_back(TEGULA_TRY(step_cost(c, plans_of_rank(p.plans, r))));
    p.sent_bytes.push_back(0);
    for (size_t part = 0; part < p.parts.size(); ++part)
      p.sent_bytes[i] += p.parts[part].times * sent_bytes(p.plans[part], r);
  }
  return p;
}

// The collectives that rank 0 executes with others, by op and axis.
struct Exchange {
  int64_t count = 0, sent_bytes = 0;
  bool is_bound = false;  // what data decides, at most
};
std::map<std::string, Exchange> exchanges(const PlannedRanks& p) {
  std::map<std::string, Exchange> all;
  const auto add = [&](const CompiledRanks& ranks, int64_t times) {
    Plan one;  // of a single step, to count what it sends
    one.module = ranks.plans[0]->module;
    for (const Step& s : ranks.plans[0]->steps) {
      if (!s.op->collective || s.ends >= 0) continue;
      one.steps = {s};
      Exchange& e = all[cat(s.op->name, " over ", s.attrs.str("axis"))];
      e.count += times, e.is_bound = s.op->collective->is_bound;
      e.sent_bytes += times * one.sent_bytes(ranks.mesh, ranks.mesh.at(0));
    }
  };
  for (size_t part = 0; part < p.parts.size(); ++part) add(p.plans[part], p.parts[part].times);
  return all;
}

// Products that all ranks of an axis do alike, by place, op and axis.
struct Alike {
  int64_t flops = 0;
  std::string indivisible;  // sizes that the axis' ranks do not divide
};
std::map<std::string, Alike> uncut(const PlannedRanks& p) {
  std::map<std::string, Alike> all;
  for (const Uncut& u : p.step().sharded.uncut) {
    const std::string place = u.scope.empty() ? "the step" : u.scope;
    Alike& a = all[cat(u.op->name, " of ", place, " over ", p.step().mesh.axes[u.axis].name)];
    a.flops += u.flops;
    if (a.indivisible.empty()) a.indivisible = u.indivisible;
  }
  return all;
}

void print_json(const PlannedRanks& p, const TrainConfig& c) {
  Json::Array ranks, sends, alike, notes;
  for (size_t r = 0; r < p.costs.size(); ++r)
    ranks.push_back(Json::object({{"flops", p.costs[r].flops},
                                  {"sent_bytes", p.sent_bytes[r]},
                                  {"peak_bytes", p.costs[r].peak_bytes()},
                                  {"rules", *json_of(p.step().rewritten[r]).find("rules")}}));
  for (const auto& [what, e] : exchanges(p))
    sends.push_back(
        Json::object({{"what", what}, {"count", e.count}, {"sent_bytes", e.sent_bytes}}));
  for (const auto& [what, a] : uncut(p))
    alike.push_back(
        Json::object({{"what", what}, {"flops", a.flops}, {"indivisible", a.indivisible}}));
  for (const std::string& note : p.step().notes) notes.push_back(note);
  print_line(
      Json::object({{"params", parameter_count(p.functions.weights)},
                    {"mesh", to_text(c.mesh)},
                    {"mode", c.mode},
                    {"ranks", std::move(ranks)},
                    {"collectives", std::move(sends)},
                    {"uncut", std::move(alike)},
                    {"notes", std::move(notes)},
                    {"products", Json::object({{"of_one_rank", p.products.all},
                                               {"without_uncut", p.products.without_uncut}})}}));
}

void print_text(const PlannedRanks& p, const TrainConfig& c) {
  std::printf("mesh        %s: %lld ranks, mode %s\n", to_text(c.mesh).c_str(),
              static_cast<long long>(c.mesh.n_ranks()), c.mode.c_str());
  for (size_t r = 0; r < p.costs.size(); ++r)
    std::printf("rank %-6zu %.4g FLOPs, %.1f MiB at its peak, sends %.4g bytes a step\n", r,
                static_cast<double>(p.costs[r].flops),
                static_cast<double>(p.costs[r].peak_bytes()) / (1 << 20),
                static_cast<double>(p.sent_bytes[r]));
  for (const auto& [what, e] : exchanges(p))
    std::printf("exchange    %lld %s, %s%.4g bytes sent by rank 0\n",
                static_cast<long long>(e.count), what.c_str(), e.is_bound ? "at most " : "",
                static_cast<double>(e.sent_bytes));
  std::printf("products    %.3f of one rank's FLOPs over all ranks, %.3f without what is not cut\n",
              p.products.all, p.products.without_uncut);
  for (const auto& [what, a] : uncut(p))
    std::printf(
        "not cut     %s: %.4g FLOPs on every rank%s\n", what.c_str(), static_cast<double>(a.flops),
        a.indivisible.empty() ? ""
                              : cat("; what its ranks do not divide: ", a.indivisible).c_str());
  for (const std::string& note : p.step().notes) std::printf("note        %s\n", note.c_str());
}

}  // namespace

Status plan_ranks(const TrainConfig& config, const Target& target) {
  const PlannedRanks p = TEGULA_TRY(planned(config, target));
  config.json ? print_json(p, config) : print_text(p, config);
  return {};
}

}  // namespace tegula::cli
