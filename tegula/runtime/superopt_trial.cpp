#include "tegula/runtime/superopt_trial.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/base/element.h"
#include "tegula/base/median.h"
#include "tegula/io/file.h"
#include "tegula/runtime/measure.h"
#include "tegula/runtime/probe.h"

namespace tegula {

namespace {
constexpr MachineFile kFile{"tegula.superopt", 1, "table of rewritings", "remove it", "blocks"};
constexpr int kLeastRounds = 3, kMostRounds = 200;
constexpr double kTurnSeconds = 1e-3;  // a turn is one run, or as many as take so long
constexpr double kWarmUpSeconds = .1;  // of a device: what ran before decides its clocks
// Shares of the time for timing: kernels are compiled and first runs done by then; turns last so
// long.
constexpr double kShareToBeReady = .75, kShareOfTurns = .4;

// The i-th element, by rows.
int64_t offset_of(const TensorRef& t, int64_t i) {
  int64_t at = 0;
  for (int d = t.rank - 1; d >= 0; i /= t.shape[d--]) at += i % t.shape[d] * t.stride[d];
  return at;
}

// Signs of zeros count, signs and payloads of NaNs do not.
bool same_bits(const TensorRef& a, const TensorRef& b) {
  const int last = a.rank - 1;
  const bool has_rows = a.rank > 0 && a.stride[last] == 1 && b.stride[last] == 1;
  const int64_t run = has_rows ? a.shape[last] : 1, n = a.numel();  // elements side by side in both
  const auto bytes = static_cast<int64_t>(size_bytes(a.dtype));
  for (int64_t i = 0; i < n; i += run) {
    const int64_t x = offset_of(a, i), y = offset_of(b, i);
    const char *of_a = static_cast<const char*>(a.data) + x * bytes,
               *of_b = static_cast<const char*>(b.data) + y * bytes;
    if (std::memcmp(of_a, of_b, static_cast<size_t>(run * bytes)) == 0) continue;
    for (int64_t k = 0; k < run; ++k)
      if (std::memcmp(of_a + k * bytes, of_b + k * bytes, static_cast<size_t>(bytes)) != 0 &&
          !(std::isnan(load_element(a, x + k)) && std::isnan(load_element(b, y + k))))
        return false;
  }
  return true;
}

// At some places of a parameter of floats.
void plant(const TensorRef& t, uint64_t param, std::initializer_list<double> specials) {
  if (!is_float(t.dtype) || t.numel() == 0) return;
  uint64_t at = param + 1;
  for (const double s : specials) {
    at = at * 6364136223846793005U + 1442695040888963407U;
    store_element(t, static_cast<int64_t>(at % static_cast<uint64_t>(t.numel())), s);
  }
}
constexpr double kInf = std::numeric_limits<double>::infinity();
void plant_infinity(const TensorRef& t, uint64_t param) { plant(t, param, {-0.0, 0.0, kInf}); }
void plant_all(const TensorRef& t, uint64_t p) { plant(t, p, {-0.0, 0.0, kInf, NAN, -kInf}); }

// Sizes that are not known before a run at their bounds.
Module at_bounds(Module m) {
  for (Value& v : m[0].values)
    for (int d = 0; d < v.type.shape.rank(); ++d) v.type.shape[d] = v.type.shape[d].bound();
  for (Node& n : m[0].nodes)
    for (const AttrDef& def : n.op->attrs)
      if (AttrValue* a = n.attrs.find(def.name))
        if (auto* dims = a->get_if<std::vector<Dim>>())
          for (Dim& d : *dims) d = d.bound();
  return m;
}

// Do the last runs of both have the same results, bit by bit?
Result<bool> agree(Measurement& a, Measurement& b) {
  for (const Plan::Port& of : a.session().plan().results)
    if (!same_bits(TEGULA_TRY(a.session().fetch(of.name)), TEGULA_TRY(b.session().fetch(of.name))))
      return false;
  return true;
}

// An infinity in one parameter after another, since a NaN, and one made of two infinities, hides
// what others do; then all specials in all of them.
Status compare_on_specials(std::vector<Measurement>& all,
                           std::vector<superopt::Trial::Timed>& out) {
  const size_t n = all[0].session().plan().params.size();
  for (size_t turn = 0; turn <= n; ++turn)
    for (size_t k = 0; k < all.size(); ++k) {
      if (turn > 0 && turn < n) TEGULA_TRY(all[k].fill(turn - 1));
      if (turn < n) TEGULA_TRY(all[k].fill(turn, plant_infinity));
      for (size_t p = 0; turn == n && p < n; ++p) TEGULA_TRY(all[k].fill(p, plant_all));
      TEGULA_TRY(all[k].time());
      out[k].has_bits_of_first = out[k].has_bits_of_first && TEGULA_TRY(agree(all[0], all[k]));
    }
  return {};
}
}  // namespace

MachineTrial::MachineTrial(const CompileOptions& options, Device* device)
    : options_(options), device_(device) {
  options_.superopt_seconds = 0;
  const Target& t = options_.plan.target;
  machine_ = cat(machine_name(), ", ", t.name, device ? "" : cat(", ", t.n_threads, " threads"));
  const std::string directory = tuning_directory(options_.tune);
  if (!directory.empty()) path_ = machine_file_path(directory, "superopt", machine_);
  options_.tune.mode = TuneMode::kOff;
  if (path_.empty() || !path_exists(path_)) return;
  if (auto kept = kFile.load(path_, machine_); kept.ok()) kept_ = std::move(*kept);
}

Result<std::vector<superopt::Trial::Timed>> MachineTrial::time(std::span<const Module> candidates,
                                                               double seconds) {
  const double begin = steady_seconds();
  Rank rank = device_ ? Rank(*device_) : Rank(options_.plan.target.n_threads);
  if (seconds > 0) rank.compiles_until_s = begin + kShareToBeReady * seconds;
  const bool compares = options_.passes.pass.mode == Mode::kExact;
  std::vector<Measurement> all;
  std::vector<Timed> out(1);
  for (const Module& m : candidates) {
    const Compiled c = TEGULA_TRY(compile(std::make_shared<Module>(at_bounds(m)), 0, options_));
    Measurement next = TEGULA_TRY(Measurement::create(c.plan, rank, {}));
    const auto first_run = next.time();
    const bool is_late = seconds > 0 && steady_seconds() > begin + kShareToBeReady * seconds;
    if (is_late && !first_run.ok()) break;
    TEGULA_TRY(first_run);
    all.push_back(std::move(next));
    out.resize(all.size());
    out.back().has_bits_of_first = compares && TEGULA_TRY(agree(all[0], all.back()));
    if (is_late) break;
  }
  out[0].ready_s = steady_seconds() - begin;
  if (all.size() < std::min<size_t>(candidates.size(), 2)) return out;
  double one = 0;  // the second run on a device makes a graph
  for (int i = 0; i < 2; ++i) one = TEGULA_TRY(all[0].time());
  const int runs = static_cast<int>(std::clamp(kTurnSeconds / std::max(one, 1e-9), 1., 1e3));
  if (device_) TEGULA_TRY(all[0].time(static_cast<int>(std::max(1., kWarmUpSeconds / one))));
  std::vector<std::vector<double>> ms(all.size()), ratios(all.size());
  const double end = std::min(begin + seconds, steady_seconds() + kShareOfTurns * seconds);
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && steady_seconds() < end);
       ++round)
    for (size_t k = 0; k < all.size(); ++k) {
      ms[k].push_back(TEGULA_TRY(all[k].time(runs)));
      ratios[k].push_back(ms[0].back() / ms[k].back());
    }
  for (size_t k = 0; k < all.size(); ++k) {
    out[k].seconds = median(ms[k]), out[k].times_faster = median(ratios[k]);
  }
  if (compares) TEGULA_TRY(compare_on_specials(all, out));
  return out;
}

double MachineTrial::speed(uint64_t candidate) {
  const Json* v = kept_.find(cat(candidate));
  const auto* times = v ? v->as<double>() : nullptr;
  return times ? *times : -1;
}

void MachineTrial::keep_speed(uint64_t candidate, double times_faster) {
  kept_.set(cat(candidate), times_faster);
  is_changed_ = true;
}

std::string MachineTrial::recall(uint64_t block) {
  const Json* v = decided_.find(cat(block));
  if (!v) v = kept_.find(cat(block));
  const auto* text = v ? v->as<std::string>() : nullptr;
  return text ? *text : "";
}

void MachineTrial::keep(uint64_t block, const std::string& text, bool is_whole) {
  decided_.set(cat(block), text);
  if (!is_whole) return;
  kept_.set(cat(block), text);
  is_changed_ = true;
}

Status MachineTrial::save() const {
  if (path_.empty() || !is_changed_) return {};
  Json all = kept_;
  // Others may have kept more since; a file that cannot be read is replaced.
  if (const auto now = path_exists(path_) ? kFile.load(path_, machine_) : Result<Json>(Json());
      now.ok())
    if (const auto* members = now->as<Json::Object>())
      for (const auto& [block, text] : *members)
        if (!all.find(block)) all.set(block, text);
  return kFile.save(path_, machine_, all);
}

}  // namespace tegula
