#include "tegula/runtime/tuner.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/denormals.h"

namespace tegula {

namespace {
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

constexpr double kSampleSeconds = 3e-4;  // of a sample, at least
constexpr int kRounds = 3;
constexpr double kHopeless = 1.25;  // times the best so far: one sample is enough
constexpr double kClearly = 0.985;  // of the rule's time
constexpr int kFinalists = 4;
constexpr int kQuickTrials = 24;
constexpr double kQuickSeconds = 0.5, kFullSeconds = 20;  // of a call

// Memory that the tensor spans, filled with small normal numbers, and its data set to it.
Result<Region> back(MemoryAccount& account, TensorRef& t) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < t.rank && t.shape[d] > 0; ++d)
    (t.stride[d] < 0 ? low : high) += (t.shape[d] - 1) * t.stride[d];
  const int64_t size = size_bytes(t.dtype);
  Region memory = TEGULA_TRY(Region::allocate(account, (high - low + 1) * size));
  std::memset(memory.data(), 0x3c, static_cast<size_t>(memory.bytes()));
  t.data = static_cast<std::byte*>(memory.data()) - low * size;
  return memory;
}

double prior_seconds(const TuningCost& cost, const CoreSpeed& speed) {
  double outer = 0;
  for (int level = 1; level <= CacheSizes::kLevels; ++level)
    outer += cost.bytes[level] / speed.bytes_per_s[level];
  return std::max(cost.flops / speed.flops_per_s, cost.bytes[0] / speed.bytes_per_s[0]) + outer;
}
}  // namespace

Result<TuneMode> parse_tune_mode(std::string_view text) {
  if (text == "off") return TuneMode::kOff;
  if (text == "quick") return TuneMode::kQuick;
  if (text == "full") return TuneMode::kFull;
  return invalid_argument(cat("--tune: must be off, quick or full, not '", text, "'"));
}

std::string tuning_directory(const TuneOptions& options) {
  if (!options.directory.empty()) return options.directory;
  // An empty or relative XDG path counts as unset, as its specification says.
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg == '/')
    return cat(xdg, "/tegula");
  if (const char* home = std::getenv("HOME"); home && *home) return cat(home, "/.cache/tegula");
  return "";
}

CallTuner::CallTuner(const KernelDef& kernel, const KernelQuery& query, Rank& rank)
    : kernel_(&kernel),
      query_(query),
      rank_(&rank),
      in_(query.in.begin(), query.in.end()),
      out_(query.out.begin(), query.out.end()) {}

Result<CallTuner> CallTuner::create(const KernelDef& kernel, const KernelQuery& query, Rank& rank,
                                    const CoreSpeed& speed) {
  if (!kernel.tuning) return invalid_argument(cat("kernel ", kernel.name, " has nothing to tune"));
  CallTuner t(kernel, query, rank);
  t.points_ = kernel.tuning->points(query);
  int64_t bytes = 0;
  for (const Tuning& point : t.points_) {
    KernelQuery q = query;
    q.tuning = point;
    if (kernel.workspace_bytes) bytes = std::max(bytes, kernel.workspace_bytes(q));
    const TuningCost cost = kernel.tuning->cost(q, speed.caches);
    t.prior_.push_back(prior_seconds(cost, speed));
    std::vector<double> knobs(std::begin(point.knob), std::end(point.knob));
    std::vector<double> terms = {t.prior_.back() * 1e9, cost.flops};
    terms.insert(terms.end(), std::begin(cost.bytes), std::end(cost.bytes));
    t.features_.push_back(quadratic_features(knobs, terms));
  }
  for (auto* refs : {&t.in_, &t.out_})
    for (TensorRef& r : *refs) t.memory_.push_back(TEGULA_TRY(back(rank.memory, r)));
  t.workspace_ = TEGULA_TRY(Region::allocate(rank.memory, std::max<int64_t>(bytes, 1)));
  t.sample(0);  // warms up
  const double once = std::max(t.sample(0), 1e-7);
  t.runs_ = static_cast<int>(std::clamp(std::ceil(kSampleSeconds / once), 1.0, 1e4));
  t.sample_seconds_ = once * t.runs_;
  return t;
}

double CallTuner::sample(size_t point) {
  const FlushDenormals flush;
  Counters counters;
  KernelCall call{query_.attrs,   in_,          out_,     workspace_.data(),
                  query_.program, &rank_->pool, &counters};
  call.tuning = points_[point];
  const double start = kernel_seconds(rank_->pool);
  for (int i = 0; i < runs_; ++i) kernel_->launch(call);
  return (kernel_seconds(rank_->pool) - start) / runs_;
}

// Every round times the rule and all points still in the race; slow drifts of the machine meet both
// sides of each ratio.
void CallTuner::measure(std::span<const size_t> points, std::span<double> ratios, int rounds) {
  std::vector<std::vector<double>> samples(points.size());
  for (int round = 0; round < rounds; ++round) {
    const double rule = sample(0);
    for (size_t i = 0; i < points.size(); ++i) {
      if (round > 0 && samples[i][0] > kHopeless * best_ratio_) continue;
      samples[i].push_back(sample(points[i]) / rule);
    }
  }
  for (size_t i = 0; i < points.size(); ++i) {
    ratios[i] = median(samples[i]);
    best_ratio_ = std::min(best_ratio_, ratios[i]);
  }
}

std::vector<Trial> CallTuner::search(int trials, double seconds) {
  struct Context {
    CallTuner* tuner;
    double seconds;
    Stopwatch watch = {};
  } context{this, seconds};
  best_ratio_ = 1;
  // Not more than there is time for, of large calls.
  const double affordable = std::max(4.0, seconds / (kRounds * sample_seconds_));
  if (affordable < trials) trials = static_cast<int>(affordable);
  return tegula::search(
      {features_, prior_}, {.trials = trials},
      [](void* raw, std::span<const size_t> points, std::span<double> ratios) {
        auto& c = *static_cast<Context*>(raw);
        if (c.watch.seconds() > c.seconds) return false;
        c.tuner->measure(points, ratios, kRounds);
        return true;
      },
      &context);
}

std::vector<Trial> CallTuner::exhaustive() {
  std::vector<Trial> trials;
  std::vector<size_t> group;
  best_ratio_ = 1;
  const auto flush = [&](int rounds) {
    std::vector<double> ratios(group.size());
    measure(group, ratios, rounds);
    for (size_t i = 0; i < group.size(); ++i) trials.push_back({group[i], ratios[i]});
    group.clear();
  };
  const auto sort = [&] {
    std::stable_sort(trials.begin(), trials.end(),
                     [](const Trial& a, const Trial& b) { return a.ratio < b.ratio; });
  };
  for (size_t p = 0; p < points_.size(); ++p) {
    group.push_back(p);
    if (group.size() == 8 || p + 1 == points_.size()) flush(1);
  }
  sort();
  // One sample picks the luckiest as much as the fastest.
  const size_t again = std::min<size_t>(24, trials.size());
  for (size_t i = 0; i < again; ++i) group.push_back(trials[i].point);
  const std::vector<Trial> rest(trials.begin() + static_cast<std::ptrdiff_t>(again), trials.end());
  trials.clear();
  flush(9);
  sort();
  trials.insert(trials.end(), rest.begin(), rest.end());
  return trials;
}

std::vector<double> CallTuner::compare(const std::vector<size_t>& points, int rounds) {
  std::vector<std::vector<double>> samples(points.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < points.size(); ++i) samples[i].push_back(1e3 * sample(points[i]));
  // The ratios of a round are steadier than its times.
  const double base = median(samples[0]);
  std::vector<double> ms;
  for (const auto& s : samples) {
    std::vector<double> ratios;
    for (size_t r = 0; r < s.size(); ++r) ratios.push_back(s[r] / samples[0][r]);
    ms.push_back(base * median(ratios));
  }
  return ms;
}

CallTuner::Choice CallTuner::choose(const std::vector<Trial>& trials, double seconds) {
  std::vector<size_t> finalists = {0};
  for (const Trial& t : trials)
    if (t.point != 0 && finalists.size() <= kFinalists && t.ratio < 1) finalists.push_back(t.point);
  const double round = sample_seconds_ * static_cast<double>(finalists.size());
  const auto ms = compare(finalists, static_cast<int>(std::clamp(seconds / round, 3.0, 9.0)));
  const auto best = static_cast<size_t>(std::min_element(ms.begin(), ms.end()) - ms.begin());
  if (ms[best] < kClearly * ms[0]) return {finalists[best], ms[best], ms[0]};
  return {0, ms[0], ms[0]};
}

Result<TunedCall> tune_call(const KernelDef& kernel, const KernelQuery& query, Rank& rank,
                            const CoreSpeed& speed, TuneMode mode) {
  CallTuner tuner = TEGULA_TRY(CallTuner::create(kernel, query, rank, speed));
  const auto points = static_cast<int>(tuner.points().size());
  const bool is_full = mode == TuneMode::kFull;
  const double seconds = is_full ? kFullSeconds : kQuickSeconds;
  const auto trials = is_full ? tuner.search(std::max(32, points / 10), seconds)
                              : tuner.search(kQuickTrials, seconds);
  const CallTuner::Choice choice = tuner.choose(trials, seconds);
  TunedCall call;
  call.tuning = tuner.points()[choice.point];
  call.is_full = is_full, call.trials = static_cast<int>(trials.size()), call.points = points;
  call.ms = choice.ms, call.default_ms = choice.default_ms;
  return call;
}

namespace {

// A launch of a plan that a table may know, at the bounds of its symbols.
struct TunableCall {
  const Step* step;
  std::vector<TensorRef> in, out;
  double flops = 0;  // of all steps that make the same call
};

std::vector<TensorRef> refs_of(const std::vector<PlanTensor>& tensors) {
  std::vector<TensorRef> refs;
  for (const PlanTensor& t : tensors) {
    TensorRef& r = refs.emplace_back(contiguous_ref(nullptr, t.type));
    std::copy_n(t.stride, kMaxRank, r.stride);
  }
  return refs;
}

KernelQuery query_of(const TunableCall& c, const Target& target) {
  return {&c.step->attrs, c.in, c.out, c.step->program.get(), &target};
}

void collect(const Plan& plan, std::map<std::string, TunableCall>& calls) {
  for (const Step& s : plan.steps) {
    for (const auto& region : s.regions) collect(*region, calls);
    if (!s.kernel || !s.kernel->tuning) continue;
    TunableCall call{&s, refs_of(s.in), refs_of(s.out)};
    const std::string key = tuning_key(*s.kernel, query_of(call, plan.target));
    calls.try_emplace(key, std::move(call)).first->second.flops += static_cast<double>(s.flops);
  }
}

}  // namespace

std::vector<std::string> tunable_calls(const Plan& plan) {
  std::map<std::string, TunableCall> calls;
  collect(plan, calls);
  std::vector<std::string> keys;
  for (const auto& [key, call] : calls) keys.push_back(key);
  return keys;
}

Result<int> tune_plan(const Plan& plan, Rank& rank, TuneMode mode, TuningTable& table) {
  std::map<std::string, TunableCall> calls;
  if (mode != TuneMode::kOff) collect(plan, calls);
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [key, call] : calls) {
    const TunedCall* known = table.find(key);
    if (!known || (mode == TuneMode::kFull && !known->is_full))
      order.push_back({-call.flops, &key});
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : *a.second < *b.second;
  });
  std::optional<CoreSpeed> speed;
  for (const auto& [flops, key] : order) {
    if (!speed) speed = probe_core(rank.pool);
    const TunableCall& call = calls.at(*key);
    const TunedCall found =
        TEGULA_TRY(tune_call(*call.step->kernel, query_of(call, plan.target), rank, *speed, mode));
    table.put(*key, found);
  }
  return static_cast<int>(order.size());
}

}  // namespace tegula
