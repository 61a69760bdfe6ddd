#include "tegula/models/text_part.h"

#include "tegula/io/json.h"

namespace tegula {

Json text_part(const Json& config, std::string& others) {
  const Json* text = config.find("text_config");
  if (text == nullptr || text->as<Json::Object>() == nullptr) return {};
  Json part = *text;
  if (const Json* tied = config.find("tie_word_embeddings")) part.set("tie_word_embeddings", *tied);
  for (const char* key : {"eos_token_id", "dtype", "torch_dtype"})
    if (const Json* its = config.find(key); its != nullptr && part.find(key) == nullptr)
      part.set(key, *its);
  for (const Json::Member& m : *config.as<Json::Object>())
    if (m.key.ends_with("_config") && m.key != "text_config" && m.value.as<Json::Object>())
      others += cat(others.empty() ? "" : ", ", m.key);
  return part;
}

std::string text_name(std::string_view name) {
  constexpr std::string_view kBehind = "language_model.", kWithin = "model.language_model.";
  if (name.starts_with(kBehind)) return std::string(name.substr(kBehind.size()));
  if (name.starts_with(kWithin)) return cat("model.", name.substr(kWithin.size()));
  return name == "lm_head.weight" ? std::string(name) : "";
}

}  // namespace tegula
