#include "tegula/models/common/why_missing.h"

#include "tegula/base/algorithm.h"
#include "tegula/models/common/names.h"
#include "tegula/models/decoder.h"

namespace tegula {

namespace {

struct Wrapper {
  std::string_view prefix, what;
};
constexpr Wrapper kWrappers[] = {
    {"module.", "DistributedDataParallel's: save model.module.state_dict()"},
    {"_orig_mod.", "torch.compile's: save the model that was compiled, model._orig_mod"},
    {"_fsdp_wrapped_module.", "FSDP's: save a full state dict"},
    {"_forward_module.", "Lightning's: save the module inside"},
    {"base_model.model.", "peft's: save the model that merge_and_unload() returns"},
    {"state_dict.", "a trainer's: save its state dict alone"},
    {"language_model.", "of a model of images and text: save its language model alone"},
    {"model.language_model.", "of a model of images and text: save its language model alone"}};

std::string what_wrapper(std::string_view prefix) {
  for (const Wrapper& w : kWrappers)
    if (prefix.starts_with(w.prefix)) return cat(", ", w.what);
  return ": save the model itself, not what holds it";
}

// Its name; "": none is it.
template <class F>
std::string_view first_tensor(const WeightFiles& files, F&& is_it) {
  std::string_view first;
  files.for_each([&](std::string_view name, const WeightFiles::Found&) {
    if (first.empty() && is_it(name)) first = name;
  });
  return first;
}

// Weights as codes, with their scales beside them.
bool is_quantised(std::string_view name) {
  return any_word(
      ".qweight .qzeros .weight_scale .weight_scale_inv .weight_packed .SCB .absmax "
      ".quant_map .scales",
      [&](auto ending) { return name.ends_with(ending); });
}

// The number behind "layers.", "layer." or "h."; -1: the name has none.
int64_t layer_of(std::string_view name) {
  for (const std::string_view mark : {"layers.", ".layer.", ".h.", "h."}) {
    const size_t at = name.find(mark);
    if (at == name.npos) continue;
    size_t i = at + mark.size();
    int64_t n = 0;
    const size_t begin = i;
    for (; i < name.size() && i < begin + 9 && name[i] >= '0' && name[i] <= '9'; ++i)
      n = n * 10 + (name[i] - '0');
    if (i > begin) return n;
  }
  return -1;
}

// The keys of a setting, or its name where config.json has none.
std::string keys_of(const ModelConfig& config, const Setting& s) {
  const auto model = find_model(config.type);
  const Field* f = model.ok() ? find_field(**model, s) : nullptr;
  return std::string(f == nullptr || f->keys.empty() ? s.name : f->keys);
}

// The setting that says whether there is a bias of that name.
struct BiasSetting {
  const Setting& setting;
  bool is_on;
};
BiasSetting bias_of(const ModelConfig& config, std::string_view name) {
  const auto model = find_model(config.type);
  const bool is_apart = model.ok() && has_setting(**model, setting::kFfnBias);
  if (is_apart && name.find(".mlp.") != name.npos)
    return {setting::kFfnBias, config.is_on(setting::kFfnBias)};
  return {setting::kBias, config.has_bias};
}

std::string with_prefix(const WeightFiles& files, std::string_view name) {
  const std::string_view longer = first_tensor(files, [&](std::string_view other) {
    return other.size() > name.size() && other.ends_with(name) &&
           other[other.size() - name.size() - 1] == '.';
  });
  if (!longer.empty()) {
    const auto prefix = longer.substr(0, longer.size() - name.size());
    return cat("tensor ", name, " is missing, but there is ", longer, ": all names begin with ",
               prefix, what_wrapper(prefix));
  }
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const std::string_view shorter = name.substr(dot + 1);
    if (shorter.find('.') == shorter.npos || files.find(shorter).tensor == nullptr) continue;
    return cat("tensor ", name, " is missing, but there is ", shorter, ": the names lack ",
               name.substr(0, dot + 1),
               ", as those of a model without its head do: save the whole model, a ",
               "…ForCausalLM");
  }
  return "";
}

}  // namespace

std::string why_missing(const WeightFiles& files, const ModelConfig& config,
                        std::string_view name) {
  const TensorNames& names = names_of(config);
  const std::string missing = cat("tensor ", name, " is missing");
  if (first_tensor(files, [](auto) { return true; }).empty())
    return "it has no tensors: download or save it again";
  if (name == names.head && !config.is_tied() && files.find(names.table).tensor != nullptr)
    return cat(missing,
               ", a head of its own: set \"tie_word_embeddings\" to true in config.json if ",
               "the model uses its embedding, ", names.table, ", for both; else the file is ",
               "incomplete");
  if (name == names.table && config.is_tied() && files.find(names.head).tensor != nullptr)
    return cat(missing, ", and ", names.head, " is there: config.json ties the two ",
               "(\"tie_word_embeddings\"), and the file must have them under the name ",
               names.table, ": rename the tensor, or save the model again with transformers");
  if (const std::string why = with_prefix(files, name); !why.empty()) return why;
  if (const std::string_view t = first_tensor(files, is_quantised); !t.empty())
    return cat(missing, ", and there is ", t,
               ": quantised weights are not read; get or save the model as f32, f16 or bf16");
  if (name.ends_with(".bias") && bias_of(config, name).is_on)
    return cat(missing, ": config.json says that there are biases (",
               keys_of(config, bias_of(config, name).setting),
               "), and the file has none of that name");
  if (name.find(".experts.") != name.npos)
    return cat(missing, ": config.json has ", keys_of(config, setting::kExperts), " ",
               config.n_experts, ", and the file has fewer");
  if (const auto model = find_model(config.type);
      model.ok() && has_setting(**model, setting::kDenseLayers) && name.find(".mlp.") != name.npos)
    return cat(missing, ": config.json says which layers have experts (",
               keys_of(config, setting::kDenseLayers), ", ", keys_of(config, setting::kSparseStep),
               "), and the file has others");
  const int64_t layer = layer_of(name);
  int64_t most = -1;
  first_tensor(files, [&](std::string_view other) {
    most = std::max(most, layer_of(other));
    return false;
  });
  if (layer > most && most >= 0)
    return cat(missing, ": the layers end at ", most, ", and config.json has ",
               keys_of(config, setting::kLayers), " ", config.n_layers,
               ": one of the two is of another model");
  return cat(missing, ": is config.json that of another model?");
}

std::string keys_of_sizes(const ModelConfig& config, std::span<const int64_t> has,
                          std::span<const int64_t> needs) {
  const auto model = find_model(config.type);
  if (!model.ok() || has.size() != needs.size()) return "";
  std::string keys;
  const auto add = [&](const Setting& s) {
    const std::string said = cat(keys_of(config, s), " ", config.size(s));
    if (keys.find(said) == keys.npos) keys += cat(keys.empty() ? "" : ", ", said);
  };
  for (size_t d = 0; d < has.size(); ++d) {
    if (has[d] == needs[d]) continue;
    if ((config.n_heads + 2 * config.n_kv_heads) * config.head_dim == needs[d])
      for (const Setting* s : {&setting::kHeads, &setting::kKvHeads, &setting::kHeadDim}) add(*s);
    for (const Field& f : (*model)->fields) {
      const Setting& s = *f.setting;
      if (s.type != SettingType::kSize || f.keys.empty()) continue;
      const int64_t size = config.size(s);
      const bool is_fused = &s == &setting::kFfWidth && 2 * size == needs[d];
      if (size == needs[d] || 3 * size == needs[d] || is_fused) add(s);
      const bool is_heads = &s == &setting::kHeads || &s == &setting::kKvHeads;
      if (is_heads && size * config.head_dim == needs[d]) add(s), add(setting::kHeadDim);
    }
  }
  return keys.empty() ? "" : cat("; config.json has ", keys);
}

std::string why_extra(const ModelConfig& config, std::string_view name) {
  const std::string no_place = "which the model of its config.json has no place for: ";
  const auto model = find_model(config.type);
  const auto has = [&](const Setting& s) { return model.ok() && has_setting(**model, s); };
  if (layer_of(name) >= config.n_layers)
    return cat(no_place, "it has ", keys_of(config, setting::kLayers), " ", config.n_layers);
  if (name.ends_with(".bias") && has(setting::kBias) && !bias_of(config, name).is_on)
    return cat(no_place, "it says that there are no biases (",
               keys_of(config, bias_of(config, name).setting), ")");
  if (name.find(".experts.") != name.npos && has(setting::kExperts))
    return cat(no_place, "it has ", keys_of(config, setting::kExperts), " ", config.n_experts);
  return cat(no_place, "is it another model's?");
}

}  // namespace tegula
