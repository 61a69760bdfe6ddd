#include "tegula/planner/search.h"

#include <array>
#include <cmath>
#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/planner/enumerate.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

// A setting whose other values are worth a word.
struct Setting {
  const char* name;
  int64_t (*value)(const Layout&);
};
constexpr Setting kSettings[] = {
    {"tp", [](const Layout& l) { return l.tp; }},
    {"pp", [](const Layout& l) { return l.pp; }},
    {"cp", [](const Layout& l) { return l.cp; }},
    {"context",
     [](const Layout& l) { return l.cp > 1 ? static_cast<int64_t>(l.context) : int64_t{-1}; }},
    {"ep", [](const Layout& l) { return l.ep; }},
    {"zero", [](const Layout& l) { return int64_t{l.zero}; }},
    {"sp", [](const Layout& l) { return int64_t{l.sp}; }},
    {"schedule", [](const Layout& l) { return static_cast<int64_t>(l.turns); }},
    {"microbatch", [](const Layout& l) { return l.microbatch; }},
    {"remat", [](const Layout& l) { return static_cast<int64_t>(l.remat); }}};

struct Candidate {
  double step_s = HUGE_VAL, peak = HUGE_VAL;
  Layout layout;
  bool beats(const Candidate& o) const {
    return step_s != o.step_s ? step_s < o.step_s : peak < o.peak;
  }
};

using Mesh = std::array<int64_t, 8>;
Mesh mesh_of(const Layout& l) {
  return {l.dp,         l.tp,
          l.pp,         l.cp,
          l.ep,         static_cast<int64_t>(l.context),
          l.microbatch, static_cast<int64_t>(l.remat)};
}

// The layouts that are kept while layouts pass by.
class Tally {
 public:
  // Layouts that are `fit` or better are kept.
  Tally(const ClusterSpec& cluster, const Job& job, Fit fit)
      : cluster_(&cluster), job_(&job), fit_(fit) {}

  void see(const StepPrice& p) {
    const Candidate c{p.step_s(), p.peak_bytes(), p.layout};
    const double usable = usable_of(p.layout);
    ++n_layouts_;
    if (c.peak <= usable)
      ++n_fit_;
    else if (c.peak <= usable_bytes(*cluster_, *job_, p.layout, Fit::kMayNotFit))
      ++n_may_fit_;
    if (!has_smallest_ || c.peak < smallest_.peak) smallest_ = c, has_smallest_ = true;
    if (p.is_bound) return;
    if (c.peak > usable) {
      if (c.peak <= 2 * usable && c.beats(twice_)) twice_ = c;
      keep(too_large_, c);
      return;
    }
    keep(best_, c);
    for (size_t i = 0; i < std::size(kSettings); ++i) {
      Candidate& known = by_setting_[i][kSettings[i].value(c.layout)];
      if (c.beats(known)) known = c;
    }
  }

  // Whether a layout that takes at least so long may be among those that are kept.
  bool may_keep(const StepPrice& least) const {
    const double step_s = least.step_s(), peak = least.peak_bytes(),
                 usable = usable_of(least.layout);
    const auto may = [&](const std::vector<Candidate>& list) {
      return list.size() < kBestLayouts || step_s <= list.back().step_s;
    };
    if (peak > usable) return may(too_large_) || (peak <= 2 * usable && step_s <= twice_.step_s);
    if (may(best_)) return true;
    for (size_t i = 0; i < std::size(kSettings); ++i) {
      const auto known = by_setting_[i].find(kSettings[i].value(least.layout));
      if (known == by_setting_[i].end() || step_s <= known->second.step_s) return true;
    }
    return false;
  }

  const std::vector<Candidate>& best() const { return best_; }
  const std::vector<Candidate>& too_large() const { return too_large_; }
  // The fastest that fits with another value of a setting; infinite: none.
  Candidate other(size_t setting, int64_t than) const {
    Candidate best;
    for (const auto& [value, c] : by_setting_[setting])
      if (value != than && c.beats(best)) best = c;
    return best;
  }
  const Candidate& smallest() const { return smallest_; }
  const Candidate& twice() const { return twice_; }
  int64_t n_layouts() const { return n_layouts_; }
  int64_t n_fit() const { return n_fit_; }
  int64_t n_may_fit() const { return n_may_fit_; }
  Fit fit() const { return fit_; }

 private:
  double usable_of(const Layout& l) const { return usable_bytes(*cluster_, *job_, l, fit_); }
  // The best few of different meshes, fastest first.
  static void keep(std::vector<Candidate>& list, const Candidate& c) {
    if (list.size() == kBestLayouts && !c.beats(list.back())) return;
    const auto same = std::find_if(list.begin(), list.end(), [&](const Candidate& k) {
      return mesh_of(k.layout) == mesh_of(c.layout);
    });
    if (same != list.end()) {
      if (!c.beats(*same)) return;
      list.erase(same);
    }
    const auto at =
        std::find_if(list.begin(), list.end(), [&](const Candidate& k) { return c.beats(k); });
    list.insert(at, c);
    if (list.size() > kBestLayouts) list.pop_back();
  }

  const ClusterSpec* cluster_;
  const Job* job_;
  Fit fit_;
  std::vector<Candidate> best_, too_large_;
  std::array<std::map<int64_t, Candidate>, std::size(kSettings)> by_setting_;
  Candidate smallest_, twice_;
  bool has_smallest_ = false;
  int64_t n_layouts_ = 0, n_fit_ = 0, n_may_fit_ = 0;
};

// How much of a layout has to be run and understood.
int parts_of(const Layout& l) {
  return 2 * (l.pp > 1) + (l.pp > 1 && l.turns != Turns::kOneFOneB) + (l.copies() == 2) +
         (l.tp > 1) + (l.cp > 1) + (l.ep > 1) + (l.zero > 1) + (l.zero > 2) +
         (l.remat == Remat::kFull);
}

std::string why_too_large(const ClusterSpec& c, const Job& job, const StepPrice& p,
                          const StepPrice* best) {
  std::string text =
      cat(reserve_text(c, job, p.layout, p.peak_bytes()), "; ", memory_text(p.memory));
  if (best) text += cat("; it would be ", percent(1 - p.step_s() / best->step_s()), " faster");
  return text;
}

// Which part of the step grew most.
std::string why_slower(const StepPrice& p, const StepPrice& best) {
  auto grown = p.seconds.parts();
  const auto before = best.seconds.parts();
  for (size_t i = 0; i < grown.size(); ++i) grown[i].value -= before[i].value;
  const Part& most = *std::max_element(
      grown.begin(), grown.end(), [](const Part& x, const Part& y) { return x.value < y.value; });
  const double slower = p.step_s() / best.step_s() - 1;
  if (slower <= 0 || most.value <= 0)
    return cat("as fast, with ", gb(p.peak_bytes()), " instead of ", gb(best.peak_bytes()));
  return cat(percent(slower), " slower, ", most.value, " s more of it for ", most.name);
}

// For every setting the fastest layout that has another value of it; one layout may be several's.
void add_slower(const Tally& tally, StepPricer& pricer, const StepPrice& best,
                std::vector<Rejected>& out) {
  const size_t begin = out.size();
  for (const Setting& setting : kSettings) {
    const auto i = static_cast<size_t>(&setting - kSettings);
    const Candidate c = tally.other(i, setting.value(best.layout));
    if (!std::isfinite(c.step_s)) continue;
    const auto known = std::find_if(out.begin() + static_cast<int64_t>(begin), out.end(),
                                    [&](const Rejected& r) { return r.price.layout == c.layout; });
    if (known != out.end()) {
      known->why = cat("other ", setting.name, ", ", known->why.substr(6));
      continue;
    }
    const StepPrice p = pricer.price(c.layout);
    out.push_back({p, tally.fit(), cat("other ", setting.name, ": ", why_slower(p, best))});
  }
}

}  // namespace

Result<SearchResult> search_layouts(const ModelSpec& model, const ParamCount& params,
                                    const ClusterSpec& cluster, const Job& job, const Pins& pins) {
  TEGULA_TRY(check_job(model, cluster, job));
  StepPricer pricer(model, params, cluster, job);
  const std::vector<Layout> all = meshes(model, cluster, job, pins);
  const auto tally_of = [&](Fit fit) {
    Tally tally(cluster, job, fit);
    std::vector<Layout> layouts;
    for (const Layout& mesh : all) {
      complete(mesh, model, job, pins, layouts);
      for (const Layout& l : layouts) {
        StepPrice p = pricer.bound(l);
        if (p.is_bound && tally.may_keep(p)) p = pricer.price(l);
        tally.see(p);
      }
    }
    return tally;
  };
  SearchResult r;
  Tally tally = tally_of(Fit::kFits);
  if (tally.n_layouts() == 0) return why_none(model, cluster, job, pins);
  r.n_fit = tally.n_fit(), r.n_may_fit = tally.n_may_fit();
  // A layout that may not fit is an answer where nothing fits.
  if (r.n_fit == 0 && r.n_may_fit > 0) r.fit = Fit::kMayNotFit, tally = tally_of(r.fit);
  r.n_layouts = tally.n_layouts();
  r.smallest = pricer.price(tally.smallest().layout);
  if (std::isfinite(tally.twice().step_s)) r.with_twice_memory = pricer.price(tally.twice().layout);
  for (const Candidate& c : tally.best()) r.best.push_back(pricer.price(c.layout));
  const auto behind = std::find_if(r.best.begin(), r.best.end(), [&](const StepPrice& p) {
    return p.step_s() > (1 + kEqualShare) * r.best[0].step_s();
  });
  r.n_equal = behind - r.best.begin();
  if (!r.best.empty()) r.fastest_s = r.best[0].step_s();
  std::stable_sort(r.best.begin(), behind, [](const StepPrice& x, const StepPrice& y) {
    return parts_of(x.layout) < parts_of(y.layout);
  });
  const StepPrice* best = r.best.empty() ? nullptr : &r.best.front();
  for (const Candidate& c : tally.too_large()) {
    if (best && c.step_s >= best->step_s()) continue;
    const StepPrice p = pricer.price(c.layout);
    r.rejected.push_back({p, reserve_of(cluster, job, p.layout, p.peak_bytes()).fit,
                          why_too_large(cluster, job, p, best)});
  }
  if (best) add_slower(tally, pricer, *best, r.rejected);
  return r;
}

}  // namespace tegula::planner
