// Search: a function's blocks rewritten by proven rules, as far as that makes them faster.
//
// From each block a best-first search with backtracking goes over what its rules make of it: the
// cheapest candidate next, those kept that cost at most α times the best, equal ones once. A
// candidate's price is that of its calls after the rest of the pipeline, since fusion changes the
// sum (cost/calls.h). The cheapest few are then timed on the target; the fastest is taken if it is
// faster than the block as it was, in a second round, too, and alike blocks are replaced alike. In
// mode exact only rules of class exact are tried, only what keeps every sum's order and width with
// the kernels chosen on the target (kept_order.h) is timed, and that must have the block's bits, on
// special values, too. [Jia et al. 2019, TASO, sections 4 and 5]
#pragma once

#include "tegula/passes/pass.h"

namespace tegula::superopt {

struct Rule;
class RuleSet;

// The rules in the tool (named.rules), parsed once.
const std::vector<Rule>& named_rules();
bool keeps_order(const Rule& rule);  // by arithmetic: of class exact

// Whom the search asks for what only a machine can say.
class Trial {
 public:
  virtual ~Trial() = default;
  struct Timed {
    double seconds = 0;
    double times_faster = 0;         // than the first: the median of rounds in which all take turns
    bool has_bits_of_first = false;  // mode exact: all results', on special values, too
    double ready_s = 0;  // of the first: until all could run, kernels compiled that no cache has
  };
  // Times functions 0 of these modules, as the pipeline and the planner make them; the first is
  // what the others stand for. At most about so many seconds: the last may be left out, all but the
  // first, and that is then not timed, either. 0: until all can run, and a few turns.
  virtual Result<std::vector<Timed>> time(std::span<const Module> candidates, double seconds) = 0;
  // The result that was kept of a block, by its hash; "": nothing.
  virtual std::string recall(uint64_t block) = 0;
  // The times_faster at which a candidate was last timed beside its block, 0 where its bits
  // were others; < 0: never.
  virtual double speed(uint64_t) { return -1; }
  virtual void keep_speed(uint64_t, double) {}
  // is_whole: for good; else the search was cut short, and only who asks this Trial hears of it.
  virtual void keep(uint64_t block, const std::string& text, bool is_whole) = 0;
};

struct TakenRule {
  std::string name;
  int64_t times = 0;         // over all blocks
  bool keeps_order = false;  // of every sum, with the kernels chosen (kept_order.h)
};

// The outcome, for people.
struct Found {
  std::vector<TakenRule> rules;
  int64_t n_blocks = 0, n_distinct = 0, n_changed = 0, n_candidates = 0, n_recalled = 0;
  int64_t n_accidents = 0;          // distinct blocks whose best was faster in a first round alone
  double seconds = 0, ready_s = 0;  // of them, until what is timed could run
  bool is_spent = false;            // the budget ended the search
  double priced_before_s = 0, priced_after_s = 0;  // of all changed blocks
  double timed_before_s = 0, timed_after_s = 0;    // 0: not timed
  // Cheaper candidates that mode exact left out: rules, and how their sums would change.
  std::vector<std::pair<std::string, std::string>> refused;
  std::string failure;  // why candidates could not be timed; "": they were
  std::vector<std::string> lines() const;
};

// Rewrites f; true: it changed. options.superopt must be there.
Result<bool> superoptimise(Module& module, Function& f, const PassOptions& options);

}  // namespace tegula::superopt

namespace tegula {

struct Superoptimise {
  double seconds = 0;  // for the whole function
  double alpha = 1.05;
  const superopt::RuleSet* rules = nullptr;  // null: those in the tool
  std::string_view passes;                   // those that are left out, as PipelineOptions says
  PassPhase from = PassPhase::kAny;          // of what was cut: the passes that follow
  size_t n_timed = 3;                        // candidates of a block
  superopt::Trial* trial = nullptr;          // null: the price decides
  superopt::Found* found = nullptr;          // null: nobody asks
};

}  // namespace tegula
