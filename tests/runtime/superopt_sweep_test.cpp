// Random graphs rewritten by every rule that matches anywhere, and by the whole search in both
// modes, compiled and run on the CPU's kernels beside the graph as it was:
//
//   order kept (kept_order.h)   the same bits, with infinities, NaN, −0 and the least numbers
//   planted in
//                               one parameter after another and in all at once, too
//   else                        within the error bounds of both (tests/common/error_bound.h)
//
// Rules are those of the tool and the published ones of tests/data. In ctest some hundred graphs;
// by command as many as it is told, with what was covered:
//   TEGULA_SWEEP=10000 build/release/tests/tests_runtime --gtest_filter=SuperoptSweep.*
#include <fstream>
#include <map>
#include <sstream>

#include "tegula/ir/text.h"
#include "tegula/passes/superopt/match.h"
#include "tegula/passes/superopt/search.h"
#include "tegula/plan/planning.h"
#include "tegula/runtime/compile.h"
#include "tests/common/changed_order.h"
#include "tests/common/differs.h"
#include "tests/common/error_bound.h"
#include "tests/common/rewritable_graph.h"
#include "tests/common/run_plan.h"
#include "tests/common/sweep.h"

namespace tegula {
namespace {

using superopt::Rule;
using Tensors = std::vector<HostTensor>;

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> rules = [] {
    std::ifstream file("tests/data/rules_xla.txt");
    std::stringstream text;
    text << file.rdbuf();
    auto published = superopt::parse_rules(text.str(), "rules_xla.txt");
    TEGULA_CHECK(published.ok(), published.ok() ? "" : published.error().message);
    std::vector<Rule> all = superopt::named_rules();
    all.insert(all.end(), published->begin(), published->end());
    return all;
  }();
  return rules;
}

struct Tally {
  int64_t not_built = 0, graphs = 0, rewritten = 0, kept = 0, bounded = 0, runs = 0, searched = 0;
  double largest_share = 0;                                  // of a bound
  std::map<std::string, std::pair<int64_t, int64_t>> rules;  // times tried, times with bits kept
};

Tensors inputs(const Function& f, uint64_t seed) {
  Tensors in;
  for (const Param& p : f.params)
    in.push_back(test::random_tensor(f.type(p.value), seed + 100 * in.size()));
  return in;
}

// Some elements of the tensor, each special value where there is room. A NaN, and one made of two
// infinities, hides what others do: `is_alone` leaves these out.
void plant(HostTensor& t, uint64_t seed, bool is_alone) {
  const double inf = std::numeric_limits<double>::infinity();
  // Denormals of f16 alone: of others what is flushed differs from pass to pass (passes/pass.h).
  const double least = t.type.dtype == DType::kF16 ? 3e-7 : 0x1p-126;
  const double specials[] = {-0.0, inf, least, -least, 0.0, -inf, std::nan("")};
  for (size_t k = 0; k < (is_alone ? 5 : 7) && t.numel() > 0; ++k)
    t.put(static_cast<int64_t>(philox_bits(seed, 3, k) % static_cast<uint64_t>(t.numel())),
          specials[k]);
}

// One graph, compiled, and its results on the inputs as they are and with specials.
class Sampled {
 public:
  static Result<Sampled> of(const Module& m, const CompileOptions& options) {
    Sampled s;
    s.module_ = m;
    s.plan_ = TEGULA_TRY(compile(std::make_shared<Module>(m), 0, options)).plan;
    return s;
  }
  Result<Tensors> run(const Tensors& in) const { return test::try_run_plan(*plan_, in); }
  const Module& module() const { return module_; }

 private:
  Module module_;
  std::shared_ptr<const Plan> plan_;
};

// `turn` 0: as they are; then each parameter alone, without and with NaNs; at last all of them.
Tensors planted(const Tensors& in, size_t turn, uint64_t seed) {
  Tensors out = in;
  for (size_t p = 0; p < in.size(); ++p)
    if (turn > 2 * in.size() || (turn > 0 && (turn - 1) / 2 == p))
      plant(out[p], seed + p, turn <= 2 * in.size() && turn % 2 == 1);
  return out;
}

struct Case {
  uint64_t seed = 0;
  CompileOptions options;
  PipelineOptions pipeline;
  Tally* tally = nullptr;
  std::optional<Sampled> before;
  Tensors in;
  std::vector<Tensors> results;  // of `before`, turn by turn
  std::vector<test::Bound> bounds;

  // "": `after` gives the same bits, or as nearly the same as it must.
  Result<std::string> check(const Module& after, bool is_kept) {
    const Sampled rewritten = TEGULA_TRY(Sampled::of(after, options));
    const size_t turns = is_kept ? 2 * in.size() + 2 : 1;
    for (size_t turn = 0; turn < turns; ++turn) {
      const Tensors here = planted(in, turn, seed);
      if (results.size() <= turn) results.push_back(TEGULA_TRY(before->run(here)));
      const Tensors have = TEGULA_TRY(rewritten.run(here));
      ++tally->runs;
      if (is_kept) {
        if (auto d = test::differs(have, results[turn]); !d.empty())
          return cat(turn == 0               ? ""
                     : turn <= 2 * in.size() ? cat("specials in p", (turn - 1) / 2, ": ")
                                             : "specials: ",
                     d);
        continue;
      }
      if (bounds.empty())
        bounds = TEGULA_TRY(test::ErrorBounds::of(before->module(), before->module()[0], in));
      const auto of_after = TEGULA_TRY(test::ErrorBounds::of(after, after[0], in));
      auto d = test::outside(results[0], bounds, have, of_after, tally->largest_share);
      if (!d.empty()) return d;
    }
    return std::string();
  }
};

// Says that everything is faster and has the bits: the search alone decides what mode exact takes.
struct Greedy : superopt::Trial {
  Result<std::vector<Timed>> time(std::span<const Module> all, double) override {
    std::vector<Timed> out(all.size(), {1, 1.5, true});
    out[0].times_faster = 1;
    return out;
  }
  std::string recall(uint64_t) override { return ""; }
  void keep(uint64_t, const std::string&, bool) override {}
};

Result<std::string> by_rules(Case& c, const Module& m) {
  for (const Rule& rule : all_rules()) {
    std::vector<std::string> seen;
    for (const superopt::Match& match : superopt::find_matches(m, m[0], rule, 16)) {
      if (std::find(seen.begin(), seen.end(), match.key()) != seen.end() || seen.size() == 2)
        continue;
      seen.push_back(match.key());
      Module after = m;
      auto f = superopt::apply(after, m[0], rule, match);
      if (!f) continue;
      after[0] = std::move(*f);
      const std::string why = TEGULA_TRY(test::changed_order(m, after, c.pipeline));
      ++c.tally->rewritten, ++(why.empty() ? c.tally->kept : c.tally->bounded);
      auto& [times, kept] = c.tally->rules[rule.name];
      ++times, kept += why.empty();
      const auto said = c.check(after, why.empty());
      if (!said.ok() || !said->empty())
        return cat(rule.name, why.empty() ? ", bits kept: " : ", in bounds: ",
                   said.ok() ? *said : said.error().message, "\n", to_text(m, m[0]),
                   to_text(after, after[0]));
    }
  }
  return std::string();
}

Result<std::string> by_search(Case& c, const Module& m) {
  for (const Mode mode : {Mode::kExact, Mode::kFast}) {
    Greedy trial;
    superopt::Found found;
    Superoptimise how{
        .seconds = 1, .passes = "-merge_products,-merge_sums", .trial = &trial, .found = &found};
    PassOptions pass = c.pipeline.pass;
    pass.mode = mode, pass.superopt = &how;
    Module after = m;
    if (!TEGULA_TRY(run_pass(after, 0, *find_pass("superopt"), pass))) continue;
    ++c.tally->searched;
    bool is_kept = true;
    for (const superopt::TakenRule& r : found.rules) is_kept = is_kept && r.keeps_order;
    if (mode == Mode::kExact && !is_kept) return std::string("mode exact took what changes order");
    const auto said = c.check(after, is_kept && mode == c.pipeline.pass.mode);
    if (!said.ok() || !said->empty())
      return cat(mode == Mode::kExact ? "search in exact: " : "search in fast: ",
                 said.ok() ? *said : said.error().message, "\n", to_text(m, m[0]),
                 to_text(after, after[0]));
  }
  return std::string();
}

Result<std::string> rules_on_is_off(uint64_t seed, Tally& tally) {
  Module m;
  testing::RewritableGraph graph(m, seed);
  const size_t turn = static_cast<size_t>(seed / 2) % all_rules().size();
  const auto built = seed % 2 == 0 ? graph.build() : graph.build(all_rules()[turn]);
  if (!built.ok()) return ++tally.not_built, std::string();
  ++tally.graphs;
  Case c;
  c.seed = seed, c.tally = &tally;
  c.options.passes.pass.mode = seed % 2 == 0 ? Mode::kExact : Mode::kFast;
  const PlanningFor planning(c.options.plan);
  c.pipeline = c.options.passes;
  c.pipeline.pass.planning = &planning, c.pipeline.pass.target = &c.options.plan.target;
  c.in = inputs(m[0], seed);
  c.before = TEGULA_TRY(Sampled::of(m, c.options));
  auto said = TEGULA_TRY(by_rules(c, m));
  return said.empty() ? by_search(c, m) : std::move(said);
}

TEST(SuperoptSweep, RulesOnIsOff) {
  Tally tally;
  test::sweep(150, [&](uint64_t seed) { return rules_on_is_off(seed, tally); });
  std::printf(
      "%ld graphs (%ld not built), %ld rewritings by a rule: %ld keep bits, %ld in bounds (%.3f of "
      "one at most); "
      "%ld by the search; %ld runs\n",
      tally.graphs, tally.not_built, tally.rewritten, tally.kept, tally.bounded,
      tally.largest_share, tally.searched, tally.runs);
  if (std::getenv("TEGULA_SWEEP"))
    for (const Rule& rule : all_rules()) {
      const auto [times, kept] = tally.rules[rule.name];
      std::printf("%8ld %8ld  %s\n", times, kept, rule.name.c_str());
    }
  EXPECT_GT(tally.kept, tally.graphs / 4);
  EXPECT_GT(tally.bounded, 0);
  EXPECT_GT(tally.searched, 0);
  EXPECT_LE(tally.largest_share, 1);
  EXPECT_LT(tally.not_built, 10 + tally.graphs / 10);
}

}  // namespace
}  // namespace tegula
