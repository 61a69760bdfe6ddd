#include "tegula/text/post_processor.h"

#include <string>

#include "tegula/text/json_form.h"

namespace tegula {
namespace {

Result<std::vector<int32_t>> ids_of_special(const Json& processor, const std::string& name) {
  const Json* all = processor.find("special_tokens");
  const Json* special = all != nullptr ? all->find(name) : nullptr;
  std::vector<int32_t> ids;
  if (special != nullptr)
    for (const Json& id : list_of(special->find("ids")))
      if (const auto* v = id.as<int64_t>(); v != nullptr && *v >= 0 && *v < INT32_MAX)
        ids.push_back(static_cast<int32_t>(*v));
  if (ids.empty())
    return invalid_argument(
        cat("its post_processor puts '", name, "' around a text, which has no ids"));
  return ids;
}

// {"type": "TemplateProcessing", "single": [{"SpecialToken": …}, {"Sequence": …}, …], …}
Result<Around> read_template(const Json& processor) {
  const auto* parts = processor.find_as<Json::Array>("single");
  if (parts == nullptr) return invalid_argument("its post_processor has no template");
  Around around;
  int n_texts = 0;
  for (const Json& part : *parts) {
    if (const Json* special = part.find("SpecialToken")) {
      auto& to = n_texts == 0 ? around.before : around.behind;
      const auto ids = TEGULA_TRY(ids_of_special(processor, text_of(special->find("id"))));
      to.insert(to.end(), ids.begin(), ids.end());
    } else {
      ++n_texts;
    }
  }
  if (n_texts != 1)
    return unsupported(cat("its post_processor holds the text ", n_texts, " times"));
  return around;
}

// {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2], …}
Result<Around> read_ends(const Json& processor) {
  const auto id = [&](const char* key) -> Result<std::vector<int32_t>> {
    const auto* pair = processor.find_as<Json::Array>(key);
    const auto* v = pair != nullptr && pair->size() == 2 ? (*pair)[1].as<int64_t>() : nullptr;
    if (v == nullptr || *v < 0 || *v >= INT32_MAX)
      return invalid_argument(cat("its post_processor has no ", key));
    return std::vector{static_cast<int32_t>(*v)};
  };
  return Around{TEGULA_TRY(id("cls")), TEGULA_TRY(id("sep"))};
}

Status add(const Json* processor, Around& around) {
  if (processor == nullptr || processor->is_null()) return {};
  const std::string type = text_of(processor->find("type"));
  const std::string name = cat("post_processor ", type);
  if (type == "ByteLevel")  // it moves offsets, not ids
    return check_keys(*processor, name, {"add_prefix_space", "trim_offsets", "use_regex"});
  if (type == "Sequence") {
    for (const Json& each : list_of(processor->find("processors"))) TEGULA_TRY(add(&each, around));
    return {};
  }
  Around outer;
  if (type == "TemplateProcessing")
    TEGULA_TRY(check_keys(*processor, name, {"single", "pair", "special_tokens"}));
  else if (type == "RobertaProcessing" || type == "BertProcessing")
    TEGULA_TRY(check_keys(*processor, name, {"sep", "cls", "trim_offsets", "add_prefix_space"}));
  if (type == "TemplateProcessing")
    outer = TEGULA_TRY(read_template(*processor));
  else if (type == "RobertaProcessing" || type == "BertProcessing")
    outer = TEGULA_TRY(read_ends(*processor));
  else
    return unsupported(cat("its post_processor is of type ", type));
  around.before.insert(around.before.begin(), outer.before.begin(), outer.before.end());
  around.behind.insert(around.behind.end(), outer.behind.begin(), outer.behind.end());
  return {};
}

}  // namespace

Result<Around> read_post_processor(const Json* processor) {
  Around around;
  TEGULA_TRY(add(processor, around));
  return around;
}

}  // namespace tegula
