#include "tegula/models/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tegula/base/str.h"
#include "tegula/io/json.h"
#include "tegula/models/model.h"

namespace tegula {

namespace {

struct Scaling {
  Json json;
  const ModelConfig& config;

  // 0 where it is not said.
  double number(std::string_view member) const {
    const Json* value = json.find(member);
    return value ? value->number(0) : 0;
  }
  double original() const {
    const double said = number("original_max_position_embeddings");
    return said > 0 ? said : static_cast<double>(config.max_seqlen);
  }
  double factor() const {
    const double said = number("factor");
    return said > 0 ? said : static_cast<double>(config.max_seqlen) / original();
  }
  bool is(std::string_view type) const { return *json.find("rope_type") == Json(type); }
};

// A pair's rate is its own for the share `kept`, and that by `factor` for the rest.
double divisor(double kept, double factor) { return 1 / ((1 - kept) / factor + kept); }

void set_llama3(const Scaling& s, Rotary& r) {
  const double low = s.number("low_freq_factor"), high = s.number("high_freq_factor");
  for (size_t i = 0; i < r.divisors.size(); ++i) {
    const double rate =
        std::pow(r.theta, -2 * static_cast<double>(i) / static_cast<double>(r.dims));
    const double turns = s.original() * rate / (2 * std::numbers::pi);
    r.divisors[i] = divisor(std::clamp((turns - low) / (high - low), 0.0, 1.0), s.factor());
  }
}

// [Peng et al. 2023, section 3.2 and eq. 22]
void set_yarn(const Scaling& s, Rotary& r) {
  const auto dims = static_cast<double>(r.dims);
  // The index of the pair that turns so often in the trained context.
  const auto pair_of = [&](double turns) {
    return dims * std::log(s.original() / (turns * 2 * std::numbers::pi)) / (2 * std::log(r.theta));
  };
  const double fast = s.number("beta_fast"), slow = s.number("beta_slow");
  double first = pair_of(fast > 0 ? fast : 32), last = pair_of(slow > 0 ? slow : 1);
  const Json* truncate = s.json.find("truncate");
  if (truncate == nullptr || *truncate == Json(true))
    first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, dims - 1);
  if (first == last) last += 0.001;
  for (size_t i = 0; i < r.divisors.size(); ++i) {
    const double ramp = (static_cast<double>(i) - first) / (last - first);
    r.divisors[i] = divisor(1 - std::clamp(ramp, 0.0, 1.0), s.factor());
  }
  const auto by = [&](double m) {
    return s.factor() <= 1 ? 1 : 0.1 * m * std::log(s.factor()) + 1;
  };
  const double said = s.number("attention_factor"), m = s.number("mscale");
  const double all = s.number("mscale_all_dim");
  r.scale = said > 0 ? said : m > 0 && all > 0 ? by(m) / by(all) : by(1);
}

bool is_long(const Scaling& s, int64_t longest) {
  return static_cast<double>(longest) > s.original();
}

void set_longrope(const Scaling& s, int64_t longest, Rotary& r) {
  const Json* list = s.json.find(is_long(s, longest) ? "long_factor" : "short_factor");
  r.divisors.clear();
  for (const Json& x : *list->as<Json::Array>()) r.divisors.push_back(x.number(1));
  const double said = s.number("attention_factor");
  r.scale = said > 0          ? said
            : s.factor() <= 1 ? 1
                              : std::sqrt(1 + std::log(s.factor()) / std::log(s.original()));
}

}  // namespace

Rotary rotary_of(const ModelConfig& m, int64_t longest) {
  Rotary r;
  r.theta = m.rope_theta;
  const auto model = find_model(m.type);
  const bool has_share = model.ok() && has_setting(**model, setting::kRotaryShare);
  const double share = has_share ? m.number(setting::kRotaryShare) : 0;
  r.dims = share > 0 ? static_cast<int64_t>(static_cast<double>(m.head_dim) * share) : m.head_dim;
  if (r.dims % 2 != 0 && r.dims < m.head_dim) {  // transformers turns a pair more, by these angles
    r.theta = std::pow(r.theta, static_cast<double>(r.dims + 1) / static_cast<double>(r.dims));
    ++r.dims;
  }
  const std::string text = m.text(setting::kRopeScaling);
  if (text.empty()) return r;
  const Scaling s{*Json::parse(text, "rope_scaling"), m};
  if (s.is("dynamic")) return r;  // it is for texts past the context, of which there are none
  r.divisors.assign(static_cast<size_t>(r.dims / 2), s.factor());
  if (s.is("llama3")) set_llama3(s, r);
  if (s.is("yarn")) set_yarn(s, r);
  if (s.is("longrope")) set_longrope(s, longest, r);
  return r;
}

Rotary rotary_of_all(const ModelConfig& m, int64_t, int64_t longest) {
  return rotary_of(m, longest);
}

int64_t short_context(const ModelConfig& m) {
  const std::string text = m.text(setting::kRopeScaling);
  if (text.empty()) return 0;
  const Scaling s{*Json::parse(text, "rope_scaling"), m};
  return s.is("longrope") && is_long(s, m.max_seqlen) ? static_cast<int64_t>(s.original()) : 0;
}

std::string note_on_rotary(const ModelConfig& m, int64_t longest) {
  const std::string text = m.text(setting::kRopeScaling);
  if (text.empty()) return "";
  const Scaling s{*Json::parse(text, "rope_scaling"), m};
  if (!s.is("longrope")) return "";
  return cat("texts that may reach ", longest, " tokens, and ", s.original(),
             " were trained at first: their angles are divided by LongRoPE's ",
             is_long(s, longest) ? "long" : "short", "_factor throughout");
}

}  // namespace tegula
