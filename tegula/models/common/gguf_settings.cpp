#include "tegula/models/common/gguf_settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tegula/models/common/names.h"

namespace tegula {
namespace {

using Norm = GgufSetting::Norm;
constexpr GgufSetting kSettings[] = {
    {"context_length", "max_seqlen", true},
    {"embedding_length", "d_model", true},
    {"block_count", "n_layers", true},
    {"attention.head_count", "n_heads", true},
    {"feed_forward_length",
     "d_ff",
     true,
     {},
     "llama smollm3 qwen2 qwen3 gemma2 gemma3 phi3 olmo2 starcoder2 gptneox gpt2"},
    {"feed_forward_length", "dense_ff", false, {}, "qwen2moe qwen3moe"},
    {"expert_feed_forward_length", "d_ff", true, {}, "qwen2moe qwen3moe"},
    {"expert_shared_feed_forward_length", "shared_expert_ff", true},
    {"expert_count", "n_experts", true},
    {"expert_used_count", "n_experts_per_token", true},
    {"attention.layer_norm_rms_epsilon", "norm_eps", true, {}, {}, Norm::kRms},
    {"attention.layer_norm_epsilon", "norm_eps", true, {}, {}, Norm::kLayer},
    {"rope.freq_base", "rope_theta", false, "10000.0"},
    {"rope.freq_base_swa", "rope_local_base_freq", false, "10000.0"},
    {"attention.sliding_window", "sliding_window", false, "4096", "gemma2"},
    {"attention.sliding_window", "sliding_window", true, {}, "gemma3"},
    {"attention.sliding_window", "sliding_window", false, "null",
     "llama phi3 starcoder2 smollm3 qwen2 qwen3 qwen2moe qwen3moe"},
    {"attention.sliding_window_pattern", "sliding_window_pattern"},
    {"attn_logit_softcapping", "attn_logit_softcapping", false, "50.0"},
    {"final_logit_softcapping", "final_logit_softcapping", false, "30.0", "gemma2"},
    {"final_logit_softcapping", "final_logit_softcapping", false, "null", "gemma3"},
    {"use_parallel_residual", "use_parallel_residual", false, "true"}};

}  // namespace

std::span<const GgufSetting> gguf_settings() { return kSettings; }

bool GgufSetting::is_of(const GgufArchitecture& a) const {
  if (norm != Norm::kAny && (norm == Norm::kLayer) != a.has_layer_norm) return false;
  return only.empty() || any_word(only, [&](std::string_view w) { return w == a.name; });
}

const Field* find_setting(const ModelDef& model, std::string_view setting) {
  for (const Field& f : model.fields)
    if (f.setting->name == setting && !f.keys.empty()) return &f;
  return nullptr;
}

// [Dubey et al. 2024]
std::vector<float> llama3_divisors(double theta, int64_t dims, double factor, double low,
                                   double high, double original) {
  std::vector<float> divisors;
  for (int64_t i = 0; i < dims; i += 2) {
    const double rate = std::pow(theta, -static_cast<double>(i) / static_cast<double>(dims));
    const double turns = original * rate / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  return divisors;
}

Json scaling_of_divisors(const Json& divisors, double theta, double dims) {
  const auto& list = *divisors.as<Json::Array>();
  double factor = 1;
  for (const Json& x : list) factor = std::max(factor, x.number(1));
  // The settings of every Llama 3 that is published.
  const auto n = static_cast<int64_t>(list.size());
  const auto rule = llama3_divisors(theta, 2 * n, factor, 1, 4, 8192);
  bool is_rule = dims == 2 * static_cast<double>(n);
  for (size_t i = 0; is_rule && i < rule.size(); ++i)
    is_rule = std::abs(rule[i] - list[i].number(0)) <= 1e-6 * rule[i];
  if (is_rule)
    return Json::object({{"rope_type", "llama3"},
                         {"factor", factor},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}});
  return Json::object({{"rope_type", "longrope"},
                       {"short_factor", divisors},
                       {"long_factor", divisors},
                       {"attention_factor", 1.0}});
}

}  // namespace tegula
