#include "tegula/runtime/superopt_trial.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/io/file.h"
#include "tegula/runtime/measure.h"
#include "tegula/runtime/probe.h"

namespace tegula {

namespace {
constexpr MachineFile kFile{"tegula.superopt", 1, "table of rewritings", "remove it", "blocks"};
constexpr int kLeastRounds = 3, kMostRounds = 200;

// Signs of zeros count, signs and payloads of NaNs do not.
bool same_bits(const TensorRef& a, const TensorRef& b) {
  const size_t bytes = static_cast<size_t>(a.numel()) * size_bytes(a.dtype);
  if (std::memcmp(a.data, b.data, bytes) == 0) return true;
  if (a.dtype != DType::kF32) return false;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const float x = a.as<float>()[i], y = b.as<float>()[i];
    if (std::isnan(x) != std::isnan(y)) return false;
    if (!std::isnan(x) && (x != y || std::signbit(x) != std::signbit(y))) return false;
  }
  return true;
}

// An infinity, a NaN and zeros of either sign in the first rows of each parameter of floats.
void plant_specials(Measurement& m) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {-0.0F, 0.0F, kInf, std::nanf(""), -kInf};
  uint64_t at = 1;
  for (const auto& p : m.session().plan().params)
    for (const TensorRef& t : m.values(p.name))
      if (t.dtype == DType::kF32 && t.numel() > 0)
        for (const float s : specials)
          t.as<float>()[(at = at * 6364136223846793005U + 1442695040888963407U) %
                        static_cast<uint64_t>(t.numel())] = s;
}

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

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

Result<bool> agree(std::vector<Measurement*> pair) {
  for (Measurement* m : pair) TEGULA_TRY(m->time_once());
  for (size_t r = 0; r < pair[0]->session().plan().results.size(); ++r)
    if (!same_bits(pair[0]->session().result(static_cast<int>(r)),
                   pair[1]->session().result(static_cast<int>(r))))
      return false;
  return true;
}
}  // namespace

MachineTrial::MachineTrial(const CompileOptions& options) : options_(options) {
  options_.superopt_seconds = 0;
  const Target& t = options.plan.target;
  machine_ = cat(machine_name(), ", ", t.name, ", ", t.n_threads, " threads");
  const std::string directory = tuning_directory(options_.tune);
  if (!directory.empty()) path_ = machine_file_path(directory, "superopt", machine_);
  options_.tune.mode = TuneMode::kOff;
  if (path_.empty() || !path_exists(path_)) return;
  if (auto kept = kFile.load(path_, machine_); kept.ok()) kept_ = std::move(*kept);
}

Result<std::vector<superopt::Trial::Timed>> MachineTrial::time(std::span<const Module> candidates,
                                                               double seconds) {
  const double end = steady_seconds() + seconds;
  Rank rank(options_.plan.target.n_threads);
  std::vector<Measurement> all;
  for (const Module& m : candidates) {
    const Compiled c = TEGULA_TRY(compile(std::make_shared<Module>(at_bounds(m)), 0, options_));
    all.push_back(TEGULA_TRY(Measurement::create(c.plan, rank, {})));
  }
  std::vector<Timed> out(all.size());
  for (size_t k = 0; k < all.size(); ++k)
    out[k].has_bits_of_first = k == 0 || TEGULA_TRY(agree({&all[0], &all[k]}));
  std::vector<std::vector<double>> ms(all.size()), ratios(all.size());
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && steady_seconds() < end);
       ++round)
    for (size_t k = 0; k < all.size(); ++k) {
      ms[k].push_back(TEGULA_TRY(all[k].time_once()));
      ratios[k].push_back(ms[0].back() / ms[k].back());
    }
  for (size_t k = 0; k < all.size(); ++k)
    out[k].seconds = median(ms[k]), out[k].times_faster = median(ratios[k]);
  for (Measurement& m : all) plant_specials(m);
  for (size_t k = 1; k < all.size(); ++k)
    out[k].has_bits_of_first &= TEGULA_TRY(agree({&all[0], &all[k]}));
  return out;
}

std::string MachineTrial::recall(uint64_t block) {
  const Json* v = kept_.find(cat(block));
  const auto* text = v ? v->as<std::string>() : nullptr;
  return text ? *text : "";
}

void MachineTrial::keep(uint64_t block, const std::string& text) {
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
