#include "tegula/models/config.h"

#include <algorithm>

#include "tegula/models/common/config_json.h"
#include "tegula/models/model.h"

namespace tegula {

namespace {

template <class T>
T value_or_nothing(const SettingValue& value) {
  const T* v = std::get_if<T>(&value);
  return v ? *v : T();
}

// Whether nothing is said. A member of the configuration has no other word for that than 0.
bool is_unsaid(const ModelConfig& config, const Setting& s) {
  const SettingValue value = config.get(s);
  if (s.at.index() == 0) return std::holds_alternative<std::monostate>(value);
  if (const auto* i = std::get_if<int64_t>(&value)) return *i == 0;
  if (const auto* d = std::get_if<double>(&value)) return *d == 0;
  return std::holds_alternative<std::monostate>(value);
}

// Checks what a model of these sizes would have to hold, before a graph of it is built. The factors
// are named, so that it is plain which of them to change.
Status check_products(const ModelDef& model, const ModelConfig& m) {
  constexpr double kMost = 1LL << 42;  // elements: 16 TiB of f32
  using Factors = std::vector<std::pair<const char*, int64_t>>;
  const std::pair<const char*, int64_t> layers{"n_layers", m.n_layers};
  std::vector<Factors> products = {{{"vocab_size", m.vocab_size}, {"d_model", m.d_model}},
                                   {layers, {"d_model", m.d_model}, {"d_ff", m.d_ff}},
                                   {layers, {"d_model", m.d_model}, {"d_model", m.d_model}}};
  if (has_setting(model, setting::kExperts)) products[1].emplace_back("n_experts", m.n_experts);
  if (has_setting(model, setting::kHeads)) {
    products.push_back(
        {layers, {"d_model", m.d_model}, {"n_heads", m.n_heads}, {"head_dim", m.head_dim}});
    products.push_back({layers,
                        {"max_seqlen", m.max_seqlen},
                        {"n_kv_heads", m.n_kv_heads},
                        {"head_dim", m.head_dim}});
  }
  products.push_back({{"max_seqlen", m.max_seqlen}, {"d_model", m.d_model}});
  for (const Factors& factors : products) {
    double product = 1;
    std::string text;
    for (const auto& [name, size] : factors) {
      product *= static_cast<double>(size);
      text += cat(text.empty() ? "" : " × ", name, " ", size);
    }
    if (product > kMost)
      return invalid_argument(cat(text, " are ", product, " elements; at most ", kMost,
                                  " are supported: make one of them smaller"));
  }
  return {};
}

}  // namespace

SettingValue ModelConfig::get(const Setting& s) const {
  if (const auto* p = std::get_if<int64_t ModelConfig::*>(&s.at)) return this->**p;
  if (const auto* p = std::get_if<double ModelConfig::*>(&s.at)) return this->**p;
  if (const auto* p = std::get_if<bool ModelConfig::*>(&s.at)) return this->**p;
  if (const auto* p = std::get_if<std::optional<bool> ModelConfig::*>(&s.at))
    return (this->**p) ? SettingValue(*(this->**p)) : SettingValue();
  for (const auto& [name, value] : own)
    if (name == s.name) return value;
  return {};
}

void ModelConfig::set(const Setting& s, SettingValue value) {
  if (const auto* p = std::get_if<int64_t ModelConfig::*>(&s.at))
    this->** p = value_or_nothing<int64_t>(value);
  else if (const auto* p = std::get_if<double ModelConfig::*>(&s.at))
    this->** p = value_or_nothing<double>(value);
  else if (const auto* p = std::get_if<bool ModelConfig::*>(&s.at))
    this->** p = value_or_nothing<bool>(value);
  else if (const auto* p = std::get_if<std::optional<bool> ModelConfig::*>(&s.at))
    this->** p = value_or_nothing<bool>(value);
  else {
    // In the order of names, so that two configurations are equal whatever was set first.
    const auto it =
        std::ranges::lower_bound(own, s.name, {}, [](const auto& o) { return o.first; });
    if (it != own.end() && it->first == s.name)
      it->second = std::move(value);
    else
      own.emplace(it, s.name, std::move(value));
  }
}

int64_t ModelConfig::size(const Setting& s) const { return value_or_nothing<int64_t>(get(s)); }
double ModelConfig::number(const Setting& s) const { return value_or_nothing<double>(get(s)); }
bool ModelConfig::is_on(const Setting& s) const { return value_or_nothing<bool>(get(s)); }
std::string ModelConfig::text(const Setting& s) const {
  return value_or_nothing<std::string>(get(s));
}
std::vector<std::string> ModelConfig::texts(const Setting& s) const {
  return value_or_nothing<std::vector<std::string>>(get(s));
}
std::vector<int64_t> ModelConfig::sizes(const Setting& s) const {
  return value_or_nothing<std::vector<int64_t>>(get(s));
}

Status ModelConfig::resolve() {
  const ModelDef& model = *TEGULA_TRY(find_model(type));
  for (const Field& f : model.fields) {
    if (!std::holds_alternative<std::monostate>(f.initial) && is_unsaid(*this, *f.setting))
      set(*f.setting, value_of(f.initial, *f.setting));
    if (const std::string wrong = misfit(*f.setting, get(*f.setting)); !wrong.empty())
      return invalid_argument(
          cat(f.setting->name, " is ", setting_json(get(*f.setting)).dump(), wrong));
  }
  if (model.resolve) TEGULA_TRY(model.resolve(*this));
  return check_products(model, *this);
}

std::vector<const Setting*> all_settings() {
  using namespace setting;  // NOLINT(google-build-using-namespace)
  std::vector<const Setting*> all = {&kLayers,  &kHeads,    &kKvHeads,         &kHeadDim, &kWidth,
                                     &kFfWidth, &kExperts,  &kExpertsPerToken, &kBias,    &kTied,
                                     &kContext, &kCapacity, &kBalance,         &kDropout};
  for (const ModelDef* model : all_models())
    for (const Field& f : model->fields)
      if (std::ranges::find(all, f.setting->name, &Setting::name) == all.end())
        all.push_back(f.setting);
  return all;
}

const Field* find_field(const ModelDef& model, const Setting& s) {
  for (const Field& f : model.fields)
    if (f.setting->name == s.name) return &f;
  return nullptr;
}

}  // namespace tegula
