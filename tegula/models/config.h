// The configuration of a model. A setting is declared once; a family says which of them it has, in
// its own file, and reading and writing config.json, printing, checking and the flags of the
// command line follow from that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

class Json;
struct ModelConfig;
struct ModelDef;

enum class SettingType : uint8_t { kSize, kNumber, kFlag, kText, kTexts, kSizes };
enum class Range : uint8_t {
  kPositive,
  kNotNegative,
  kShare
};  // of numbers; a share: from 0, below 1

// None: it was not said.
using SettingValue = std::variant<std::monostate, int64_t, double, bool, std::string,
                                  std::vector<std::string>, std::vector<int64_t>>;

struct Setting {
  // Where a configuration keeps it; none: by its name, in ModelConfig::own.
  using Place = std::variant<std::monostate, int64_t ModelConfig::*, double ModelConfig::*,
                             bool ModelConfig::*, std::optional<bool> ModelConfig::*>;
  std::string_view name;  // in messages: n_heads
  std::string_view flag;  // n-heads; empty: the command line has none
  std::string_view doc;   // of the flag
  SettingType type = SettingType::kSize;
  Place at = {};
  int64_t least = 1, most = 0;  // of sizes, each of them
  Range range = Range::kPositive;
  std::string_view choices = {};  // of texts, by '|'; empty: any
  bool null_is_zero = false;      // 0 is JSON's null: none, or what follows from the others
  bool is_of_training = false;    // only a training step reads it

  static constexpr Setting size(std::string_view name, std::string_view flag, std::string_view doc,
                                int64_t least, int64_t most, Place at = {}) {
    return {name, flag, doc, SettingType::kSize, at, least, most};
  }
  static constexpr Setting number(std::string_view name, std::string_view flag,
                                  std::string_view doc, Range range, Place at = {}) {
    return {name, flag, doc, SettingType::kNumber, at, 1, 0, range};
  }
  static constexpr Setting on(std::string_view name, std::string_view flag, std::string_view doc,
                              Place at = {}) {
    return {name, flag, doc, SettingType::kFlag, at};
  }
  static constexpr Setting text(std::string_view name, std::string_view flag, std::string_view doc,
                                std::string_view choices) {
    return {name, flag, doc, SettingType::kText, {}, 1, 0, Range::kPositive, choices};
  }
  static constexpr Setting texts(std::string_view name, std::string_view choices) {
    return {name, {}, {}, SettingType::kTexts, {}, 1, 0, Range::kPositive, choices};
  }
  static constexpr Setting sizes(std::string_view name, int64_t least, int64_t most) {
    return {name, {}, {}, SettingType::kSizes, {}, least, most};
  }
  constexpr Setting or_null() const {
    Setting s = *this;
    s.null_is_zero = true;
    return s;
  }
  constexpr Setting of_training() const {
    Setting s = *this;
    s.is_of_training = true;
    return s;
  }
};

// A setting that a family has.
struct Field {
  using Default = std::variant<std::monostate, int64_t, double, bool, std::string_view>;
  const Setting* setting;
  // Its keys in config.json, by spaces: "a.b" is b in a. All are written. They must agree, and an
  // absent one means `absent`; of a setting of training alone the last one counts. Empty:
  // config.json has none.
  std::string_view keys;
  Default absent = {};         // what it means that no key is there; none: one must be
  Default initial = {};        // of a new model, where nothing (or 0) is said
  std::string_view also = {};  // other spellings of the key: what is there must agree
};

// A key of config.json of which only these values, JSON by '|', mean what the family computes.
struct FixedKey {
  std::string_view key, values;
  bool is_written = false;  // the first of them
};

struct ModelConfig {
  std::string type = "gpt2";  // the name of a ModelDef
  // The vocabulary: what most families have. All but vocab_size may be left as they are.
  int64_t vocab_size = 0;
  int64_t n_layers = 4;
  int64_t n_heads = 4;
  int64_t n_kv_heads = 0;  // 0: n_heads
  int64_t head_dim = 0;    // 0: d_model / n_heads
  int64_t d_model = 128;
  int64_t d_ff = 0;         // 0: the family's
  int64_t max_seqlen = 64;  // the context: tokens that the model can see
  int64_t n_experts = 8;
  int64_t n_experts_per_token = 2;
  // Room of an expert in training, in shares of an even load; 0: for all. Else nothing is dropped.
  double capacity_factor = 1.25;
  double balance_loss = 0.01;  // coefficient of the experts' balance loss
  double norm_eps = 0;         // 0: the family's
  double rope_theta = 0;       // 0: the family's
  double dropout = 0;
  bool has_bias = false;
  // One table for tokens in and out. None: what files of the family usually have.
  std::optional<bool> tie_embeddings;
  // The settings that only some families have, by the names of their settings.
  std::vector<std::pair<std::string_view, SettingValue>> own;

  // After resolve().
  bool is_tied() const { return tie_embeddings.value_or(true); }
  // Fills the zeros, and what is not there, with the family's defaults. Errors name the numbers:
  // "d_model 100 is not a multiple of n_heads 3".
  Status resolve();

  SettingValue get(const Setting& setting) const;
  void set(const Setting& setting, SettingValue value);
  // The value, of the setting's type; 0, false or nothing where it was not said.
  int64_t size(const Setting& setting) const;
  double number(const Setting& setting) const;
  bool is_on(const Setting& setting) const;
  std::string text(const Setting& setting) const;
  std::vector<std::string> texts(const Setting& setting) const;
  std::vector<int64_t> sizes(const Setting& setting) const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

namespace setting {
inline constexpr Setting kVocabSize =
    Setting::size("vocab_size", "", "", 1, 1 << 24, &ModelConfig::vocab_size);
inline constexpr Setting kLayers =
    Setting::size("n_layers", "n-layers", "Layers", 1, 4096, &ModelConfig::n_layers);
inline constexpr Setting kHeads =
    Setting::size("n_heads", "n-heads", "Query heads", 1, 65536, &ModelConfig::n_heads);
inline constexpr Setting kKvHeads =
    Setting::size("n_kv_heads", "n-kv-heads", "Key/value heads; 0: as query heads", 0, 65536,
                  &ModelConfig::n_kv_heads)
        .or_null();
inline constexpr Setting kHeadDim =
    Setting::size("head_dim", "head-dim", "Size of a head; 0: d-model / n-heads", 0, 65536,
                  &ModelConfig::head_dim)
        .or_null();
inline constexpr Setting kWidth =
    Setting::size("d_model", "d-model", "Width", 1, 1 << 24, &ModelConfig::d_model);
inline constexpr Setting kFfWidth =
    Setting::size("d_ff", "d-ff", "Feed-forward width; 0: the family's", 0, 1 << 26,
                  &ModelConfig::d_ff)
        .or_null();
inline constexpr Setting kExperts =
    Setting::size("n_experts", "n-experts", "Experts", 1, 65536, &ModelConfig::n_experts);
inline constexpr Setting kExpertsPerToken =
    Setting::size("n_experts_per_token", "experts-per-token", "Experts a token sees", 1, 65536,
                  &ModelConfig::n_experts_per_token);
inline constexpr Setting kCapacity =
    Setting::number("capacity_factor", "capacity-factor",
                    "Room of an expert in training, in even loads; 0: for all", Range::kNotNegative,
                    &ModelConfig::capacity_factor)
        .of_training();
inline constexpr Setting kBalance =
    Setting::number("balance_loss", "balance-loss", "Coefficient of the experts' balance loss",
                    Range::kNotNegative, &ModelConfig::balance_loss)
        .of_training();
inline constexpr Setting kBias =
    Setting::on("has_bias", "bias", "Biases in linear layers and norms", &ModelConfig::has_bias);
inline constexpr Setting kTied = Setting::on(
    "tie_embeddings", "tie-embeddings", "One table for tokens in and out, or a head of its own",
    &ModelConfig::tie_embeddings);
inline constexpr Setting kDropout =
    Setting::number("dropout", "dropout", "Share of activations set to 0", Range::kShare,
                    &ModelConfig::dropout)
        .of_training();
inline constexpr Setting kContext =
    Setting::size("max_seqlen", "context", "Tokens that the model can see; default: --seqlen", 1,
                  1 << 28, &ModelConfig::max_seqlen);
inline constexpr Setting kNormEps =
    Setting::number("norm_eps", "", "", Range::kPositive, &ModelConfig::norm_eps);
inline constexpr Setting kRopeTheta =
    Setting::number("rope_theta", "", "", Range::kPositive, &ModelConfig::rope_theta);
}  // namespace setting

// The settings that families have, each once: the vocabulary first, in the order above, then their
// own in the order of the families.
std::vector<const Setting*> all_settings();
// Null: the family has no such setting.
const Field* find_field(const ModelDef& model, const Setting& setting);
inline bool has_setting(const ModelDef& model, const Setting& setting) {
  return find_field(model, setting) != nullptr;
}

Json setting_json(const SettingValue& value);

}  // namespace tegula
