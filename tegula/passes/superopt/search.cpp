#include "tegula/passes/superopt/search.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/cost/calls.h"
#include "tegula/ir/hash.h"
#include "tegula/passes/pipeline.h"
#include "tegula/passes/superopt/blocks.h"
#include "tegula/passes/superopt/kept_order.h"
#include "tegula/passes/superopt/rule_set.h"

namespace tegula {
extern const PassDef views_pass, cse_pass, dce_pass;
}  // namespace tegula

namespace tegula::superopt {

extern const char* const kNamedRules;

const std::vector<Rule>& named_rules() {
  static const std::vector<Rule> rules = [] {
    auto parsed = parse_rules(kNamedRules, "named.rules");
    TEGULA_CHECK(parsed.ok(), parsed.ok() ? "" : parsed.error().message);
    return std::move(*parsed);
  }();
  return rules;
}

bool keeps_order(const Rule& rule) {
  const auto at = rule.notes.find("class");
  return at != rule.notes.end() && at->second == "exact";
}

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// A move: a rule at one place, or wherever it fits, again and again.
struct Move {
  size_t rule = 0, place = 0;
  bool is_everywhere = false;
};
constexpr size_t kMostTimes = 64;
// A rewriting that is timed must be so much faster than nothing: times differ by less from run to
// run.
constexpr double kLeastGain = 1.03;
constexpr double kShareOfSearch = 0.4;  // of the budget; what is left is for timing
constexpr size_t kMostKept = 32;        // candidates of a block that are cheaper, to be timed
constexpr double kShareOfSecond = 0.3;  // of the time for timing: what is best once more

struct Candidate {
  Module module;  // function 0
  double price = 0;
  std::map<size_t, int64_t> times;  // by rule
  std::string moves;                // "rule:place …", "all" for the place
  Sums sums;                        // after the rest of the pipeline
  std::set<size_t> changing;        // rules that made other sums, once replay() was asked for them
  uint64_t hash = 0;
};

class BlockSearch {
 public:
  BlockSearch(const PassOptions& options, Found& found)
      : options_(options),
        found_(found),
        rules_(options.superopt->rules ? *options.superopt->rules : RuleSet::of_tool()) {
    inner_.pass = options, inner_.passes = options.superopt->passes;
    inner_.from = options.superopt->from;
    inner_.pass.superopt = nullptr, inner_.pass.recomputed = nullptr;
    inner_.pass.memory_bytes = 0, inner_.pass.remat = Remat::kNone;
  }

  // The best candidates, the block itself first and the rest by price. What was timed before counts
  // as that, in the prices' unit: both are off by what the block's own price is off by. What was
  // timed no faster than the block is no candidate again.
  Result<std::vector<Candidate>> run(const Module& block, uint64_t key, double seconds) {
    end_ = Clock::now() + std::chrono::duration<double>(seconds);
    Candidate first{block, 0, {}, "", {}, {}};
    TEGULA_TRY(tidy(first.module));
    TEGULA_TRY(price(first));
    std::set<uint64_t> seen = {mix(key, hash_of(first.module, first.module[0]))};
    // Where the tool's own rules have been tried, those of a file come next: in time that is left.
    std::multimap<double, Candidate> queues[2];
    std::vector<Candidate> best;  // without the first
    double least = first.price;
    queues[0].emplace(first.price, first);
    while (!found_.is_spent) {
      const bool is_file = queues[0].empty();
      auto& queue = queues[is_file];
      if (queue.empty()) break;
      const Candidate from = std::move(queue.begin()->second);
      queue.erase(queue.begin());
      if (from.price > options_.superopt->alpha * least) {
        queue.clear();
        continue;
      }
      if (!is_file && rules_.all().size() > rules_.n_named()) queues[1].emplace(from.price, from);
      for (const Move& move : is_file ? moves_of_file(from) : moves(from.module)) {
        if (is_late()) break;
        Candidate next = from;
        if (!apply_move(next, move)) continue;
        next.hash = mix(key, hash_of(next.module, next.module[0]));
        if (!seen.insert(next.hash).second) continue;
        ++found_.n_candidates;
        if (!price(next).ok()) continue;  // an op may refuse these sizes
        if (next.price < first.price && !may_take(first, next)) continue;
        Trial* const trial = options_.superopt->trial;
        const double speed = trial ? trial->speed(next.hash) : -1;
        if (speed > 0) next.price = first.price / speed;
        if (speed != 0) least = std::min(least, next.price);
        if (next.price < first.price && (speed < 0 || speed > kLeastGain)) keep(best, next);
        if (next.price <= options_.superopt->alpha * least)
          queues[0].emplace(next.price, std::move(next));
      }
    }
    best.insert(best.begin(), std::move(first));
    return best;
  }

  // May a mode take this in the block's place? In mode exact it must keep the order of sums.
  bool may_take(const Candidate& block, const Candidate& c) {
    if (options_.mode == Mode::kFast) return true;
    const std::string why = changes(block, c);
    if (why.empty()) return true;
    std::string line;
    for (const auto& [r, times] : c.times)
      line += cat(line.empty() ? "" : " and ", rules_.all()[r].name);
    if (std::none_of(found_.refused.begin(), found_.refused.end(),
                     [&](const auto& known) { return known.first == line; }))
      found_.refused.emplace_back(std::move(line), why);
    return false;
  }

  const RuleSet& rules() const { return rules_; }

  // The candidate that these moves make of the block; none: they are of other rules, or not for
  // this mode. `says_orders`: which of them made other sums.
  std::optional<Candidate> replay(const Module& block, std::string_view text,
                                  bool says_orders = false) {
    Candidate c{block, 0, {}, "", {}, {}};
    if (!tidy(c.module).ok() || !price(c).ok()) return {};
    const Candidate first = c;
    while (!text.empty()) {
      const std::string word(take_until(' ', text));
      const size_t colon = word.find(':');
      if (colon == std::string::npos) return {};
      Move move;
      const auto& rules = rules_.all();
      while (move.rule < rules.size() && rules[move.rule].name != word.substr(0, colon))
        ++move.rule;
      if (move.rule == rules.size()) return {};
      move.is_everywhere = word.substr(colon + 1) == "all";
      if (!move.is_everywhere)
        move.place = static_cast<size_t>(std::strtoull(word.c_str() + colon + 1, nullptr, 10));
      const Candidate before = says_orders ? c : Candidate();
      if (!is_allowed(rules[move.rule]) || !apply_move(c, move)) return {};
      if (says_orders && (!price(c).ok() || !changes(before, c).empty()))
        c.changing.insert(move.rule);
    }
    if (!price(c).ok() || !may_take(first, c)) return {};
    return c;
  }

 private:
  // There is more to try, and no time: says so.
  bool is_late() const { return found_.is_spent |= Clock::now() > end_; }
  bool is_allowed(const Rule& rule) const {
    return options_.mode == Mode::kFast || keeps_order(rule);
  }

  void keep(std::vector<Candidate>& best, const Candidate& c) const {
    const auto at = std::find_if(best.begin(), best.end(),
                                 [&](const Candidate& b) { return b.price > c.price; });
    best.insert(at, c);
    if (best.size() > kMostKept) best.pop_back();
  }

  static Status tidy(Module& m) {
    for (const PassDef* pass : {&views_pass, &cse_pass, &dce_pass})
      TEGULA_TRY(run_pass(m, 0, *pass));
    return {};
  }

  Status price(Candidate& c) const {
    Module m = c.module;
    TEGULA_TRY(run_passes(m, 0, inner_));
    c.price = price_of_calls(*options_.target, m, m[0]);
    c.sums = sums_of(m, m[0], options_.asked());
    return {};
  }

  static std::string changes(const Candidate& before, const Candidate& after) {
    std::string text = difference(before.module, after.module);
    return text.empty() ? difference(before.sums, after.sums) : text;
  }

  // Each rule wherever it fits, and at one of each kind of place.
  std::vector<Move> moves(const Module& m) const {
    std::vector<Move> all;
    const Kinds kinds(m[0]);
    for (const size_t r : rules_.that_may_fit(kinds)) {
      if (r >= rules_.n_named() || !is_allowed(rules_.all()[r])) continue;
      const auto found = find_matches(m, m[0], kinds, rules_.all()[r], kMostTimes);
      if (!found.empty()) all.push_back({r, 0, true});  // one may make room for the next
      std::set<std::string> seen;
      for (size_t k = 0; k < found.size(); ++k)
        if (seen.insert(found[k].key()).second) all.push_back({r, k, false});
    }
    return all;
  }

  // Rules of a file are many: the moves alone whose calls, before fusion, cost hardly more than
  // now, the cheapest first.
  std::vector<Move> moves_of_file(const Candidate& from) const {
    const auto price_of = [&](const Module& m) {
      return price_of_calls(*options_.target, m, m[0]);
    };
    const double now = price_of(from.module);
    std::multimap<double, Move> priced;
    const Kinds kinds(from.module[0]);
    for (const size_t r : rules_.that_may_fit(kinds)) {
      if (r < rules_.n_named() || !is_allowed(rules_.all()[r])) continue;
      const auto found =
          find_matches(from.module, from.module[0], kinds, rules_.all()[r], kMostTimes);
      std::set<std::string> seen;
      bool gains = false;
      const auto look = [&](const Move& move) {
        Candidate next = from;
        if (is_late() || !apply_move(next, move)) return;
        const double then = price_of(next.module);
        if (then <= options_.superopt->alpha * now) priced.emplace(then, move);
        gains |= then < now;
      };
      for (size_t k = 0; k < found.size(); ++k)
        if (seen.insert(found[k].key()).second) look({r, k, false});
      if (gains && found.size() > 1) look({r, 0, true});
    }
    std::vector<Move> all;
    for (const auto& [then, move] : priced) all.push_back(move);
    return all;
  }

  bool apply_move(Candidate& c, const Move& move) const {
    const Rule& rule = rules_.all()[move.rule];
    size_t times = 0;
    for (size_t skip = move.place; times < kMostTimes;) {
      const auto found = find_matches(c.module, c.module[0], rule, skip + 1);
      if (skip >= found.size()) break;
      auto next = apply(c.module, c.module[0], rule, found[skip]);
      if (!next) {
        if (!move.is_everywhere) return false;
        ++skip;
        continue;
      }
      c.module[0] = std::move(*next);
      ++times;
      if (!move.is_everywhere) break;
    }
    if (times == 0 || !tidy(c.module).ok()) return false;
    c.times[move.rule] += static_cast<int64_t>(times);
    c.moves += cat(c.moves.empty() ? "" : " ", rule.name, ":",
                   move.is_everywhere ? "all" : cat(move.place));
    return true;
  }

  const PassOptions& options_;
  Found& found_;
  const RuleSet& rules_;
  PipelineOptions inner_;
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;  // of the search
};

// Blocks that are alike, and what became of them.
struct Kind {
  std::vector<const Block*> blocks;
  Module module;
};

class Superoptimiser {
 public:
  Superoptimiser(Module& module, Function& f, const PassOptions& options)
      : module_(module), f_(f), options_(options), how_(*options.superopt) {}

  Result<bool> run() {
    const auto start = Clock::now();
    if (options_.mode == Mode::kExact && !how_.trial) {
      found_.failure = "mode exact needs the target here, to compare bits";
      if (how_.found) *how_.found = std::move(found_);
      return false;
    }
    const std::vector<Block> blocks = blocks_of(module_, f_);
    std::map<uint64_t, Kind> kinds;
    for (const Block& b : blocks) {
      Module m = TEGULA_TRY(extract(module_, f_, b));
      const uint64_t hash = hash_of(m, m[0]);
      Kind& kind = kinds[hash];
      if (kind.blocks.empty()) kind.module = std::move(m);
      kind.blocks.push_back(&b);
    }
    found_.n_blocks = static_cast<int64_t>(blocks.size());
    found_.n_distinct = static_cast<int64_t>(kinds.size());
    std::vector<Replacement> replaced;
    size_t left = kinds.size();
    for (auto& [hash, kind] : kinds) {
      const double budget =
          std::max(0.0, how_.seconds - since(start)) / static_cast<double>(left--);
      if (!TEGULA_TRY(improve(hash, kind, budget))) continue;
      for (const Block* b : kind.blocks) replaced.push_back({b, &kind.module});
    }
    found_.seconds = since(start);
    found_.n_changed = static_cast<int64_t>(replaced.size());
    if (!replaced.empty()) {
      Function out = TEGULA_TRY(replace(module_, f_, replaced));
      f_ = std::move(out);
    }
    if (how_.found) *how_.found = std::move(found_);
    return !replaced.empty();
  }

 private:
  Result<bool> improve(uint64_t hash, Kind& kind, double budget) {
    BlockSearch search(options_, found_);
    const bool was_spent = std::exchange(found_.is_spent, false);
    // The kept result depends on the mode, the rules' text and the passes behind, too.
    const uint64_t key = mix(mix(mix(hash, options_.mode == Mode::kFast), search.rules().hash()),
                             hash_of(how_.passes));
    std::vector<Candidate> all;
    std::string kept = how_.trial ? how_.trial->recall(key) : "";
    if (kept == "-") return ++found_.n_recalled, found_.is_spent = was_spent, false;
    if (!kept.empty()) {
      auto c = search.replay(kind.module, kept);
      if (c && TEGULA_TRY(has_bits(kind, *c))) {
        take(search, kind, std::move(*c));
        return ++found_.n_recalled, found_.is_spent = was_spent, true;
      }
    }
    const auto start = Clock::now();
    all = TEGULA_TRY(search.run(kind.module, key, how_.trial ? kShareOfSearch * budget : budget));
    size_t best = all.size() > 1 ? 1 : 0;
    if (how_.trial && best > 0) best = TEGULA_TRY(fastest(kind, all, budget - since(start)));
    const bool is_whole = !std::exchange(found_.is_spent, found_.is_spent || was_spent);
    if (how_.trial)
      how_.trial->keep(key, best ? all[best].moves : "-", is_whole && found_.failure.empty());
    if (best == 0) return false;
    const auto n = static_cast<double>(kind.blocks.size());
    found_.priced_before_s += n * all[0].price, found_.priced_after_s += n * all[best].price;
    take(search, kind, std::move(all[best]));
    return true;
  }

  // Compares a kept result again: its bits were those of the kernels of another day.
  Result<bool> has_bits(const Kind& kind, const Candidate& c) {
    if (options_.mode == Mode::kFast) return true;
    const Module pair[] = {kind.module, c.module};
    const auto timed = how_.trial->time(pair, 0);
    return timed.ok() && (*timed)[1].has_bits_of_first;
  }

  // The cheapest few are timed, then the next, until one of them is faster.
  Result<size_t> fastest(const Kind& kind, const std::vector<Candidate>& all, double seconds) {
    const auto start = Clock::now();
    const bool was_spent = std::exchange(found_.is_spent, false);
    size_t best = 0;
    for (size_t from = 1; best == 0 && from < all.size() && !found_.is_spent;
         from += how_.n_timed) {
      const double left = seconds - since(start);
      const std::span few(all.begin() + static_cast<std::ptrdiff_t>(from),
                          std::min(how_.n_timed, all.size() - from));
      found_.is_spent = left <= 0;
      if (left > 0) best = TEGULA_TRY(fastest(kind, all[0], few, left));
      if (best > 0) best += from - 1;
      if (!found_.failure.empty()) break;
    }
    found_.is_spent |= was_spent;
    return best;
  }

  // Which of these, from 1 on; 0: none is faster than the block.
  Result<size_t> fastest(const Kind& kind, const Candidate& block, std::span<const Candidate> of,
                         double seconds) {
    std::vector<Module> modules = {block.module};
    for (const Candidate& c : of) modules.push_back(c.module);
    const auto timed = how_.trial->time(modules, (1 - kShareOfSecond) * seconds);
    if (!timed.ok()) return found_.failure = timed.error().message, size_t{0};
    size_t best = 0;
    found_.is_spent |= timed->size() < modules.size();
    for (const auto& t : *timed) found_.ready_s += t.ready_s;
    for (size_t k = 1; k < timed->size(); ++k) {
      const bool may_be = options_.mode == Mode::kFast || (*timed)[k].has_bits_of_first;
      const double speed = may_be ? (*timed)[k].times_faster : 0;
      how_.trial->keep_speed(of[k - 1].hash, speed);
      if (speed > std::max(kLeastGain, (*timed)[best].times_faster)) best = k;
    }
    if (best == 0) return best;
    // Once more, planned and laid out anew: what is kept for later runs must be no accident.
    const Module pair[] = {block.module, of[best - 1].module};
    const auto again = how_.trial->time(pair, kShareOfSecond * seconds);
    if (!again.ok()) return found_.failure = again.error().message, size_t{0};
    if (again->size() < 2) return found_.is_spent = true, size_t{0};
    const double speed = (*again)[1].times_faster;
    how_.trial->keep_speed(of[best - 1].hash, speed);
    if (speed <= kLeastGain) return ++found_.n_accidents, size_t{0};
    const auto n = static_cast<double>(kind.blocks.size());
    found_.timed_before_s += n * (*timed)[0].seconds;
    found_.timed_after_s += n * (*timed)[best].seconds;
    return best;
  }

  void take(BlockSearch& search, Kind& kind, Candidate c) {
    if (options_.mode == Mode::kFast)
      if (auto again = search.replay(kind.module, c.moves, true)) c.changing = again->changing;
    for (const auto& [r, times] : c.times) {
      const Rule& rule = search.rules().all()[r];
      auto at = std::find_if(found_.rules.begin(), found_.rules.end(),
                             [&](const TakenRule& t) { return t.name == rule.name; });
      if (at == found_.rules.end()) at = found_.rules.insert(at, {rule.name, 0, true});
      at->keeps_order &= !c.changing.contains(r);
      at->times += times * static_cast<int64_t>(kind.blocks.size());
    }
    kind.module = std::move(c.module);
  }

  Module& module_;
  Function& f_;
  const PassOptions& options_;
  const Superoptimise& how_;
  Found found_;
};

// Four digits.
std::string number(double x) { return printed("%.4g", x); }

}  // namespace

Result<bool> superoptimise(Module& module, Function& f, const PassOptions& options) {
  return Superoptimiser(module, f, options).run();
}

std::vector<std::string> Found::lines() const {
  std::vector<std::string> out = {
      cat("superopt: ", n_blocks, " blocks, ", n_distinct, " distinct, ", n_candidates,
          " candidates in ", number(seconds), " s",
          ready_s > 0 ? cat(", ", number(ready_s), " of it to compile and load") : "",
          n_recalled > 0 ? cat(", ", n_recalled, " known from before") : "")};
  if (is_spent) out.emplace_back("superopt: the budget is spent: this is the best so far");
  if (!failure.empty()) out.push_back(cat("superopt: not timed, so not taken: ", failure));
  if (n_accidents > 0)
    out.push_back(cat("superopt: faster in one round alone: ", n_accidents, " blocks"));
  for (const auto& [names, why] : refused)
    out.push_back(cat("superopt: in mode exact without ", names, ": ", why));
  if (rules.empty()) out.emplace_back("superopt: no rule makes any block faster");
  for (const TakenRule& r : rules)
    out.push_back(cat("superopt: ", r.name, " ", r.times, " times, ",
                      r.keeps_order ? "bits kept" : "sums in another order"));
  if (priced_before_s > 0)
    out.push_back(cat("superopt: ", n_changed, " blocks priced ", number(1e3 * priced_before_s),
                      " ms, now ", number(1e3 * priced_after_s)));
  if (timed_before_s > 0)
    out.push_back(cat("superopt: timed ", number(1e3 * timed_before_s), " ms, now ",
                      number(1e3 * timed_after_s), ": ", number(timed_before_s / timed_after_s),
                      " x"));
  return out;
}

}  // namespace tegula::superopt
