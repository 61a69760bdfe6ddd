#include "tegula/serve/pooling.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/io/json.h"

namespace tegula {

namespace {

constexpr std::pair<std::string_view, PoolBy> kNames[] = {
    {"mean", PoolBy::kMean}, {"cls", PoolBy::kCls}, {"last", PoolBy::kLast}, {"max", PoolBy::kMax}};

bool is_on(const Json* value) {
  const bool* on = value != nullptr ? value->as<bool>() : nullptr;
  return on != nullptr && *on;
}

Result<Json> read(const ModelFiles& files, std::string_view name, std::string& path) {
  const TextFile file = TEGULA_TRY(files.other(name));
  path = file.path;
  if (file.text.empty()) return Json();
  return Json::parse(file.text, file.path);
}

// "pooling_mode_cls_token": true, …; or "pooling_mode": "cls".
Status read_modes(const Json& json, const std::string& path, int64_t width, Pooling& pooling) {
  constexpr std::pair<std::string_view, PoolBy> kModes[] = {{"cls_token", PoolBy::kCls},
                                                            {"mean_tokens", PoolBy::kMean},
                                                            {"max_tokens", PoolBy::kMax},
                                                            {"lasttoken", PoolBy::kLast}};
  int n = 0;
  for (const Json::Member& m : *json.as<Json::Object>()) {
    const std::string_view key = m.key;
    const auto wrong = [&](std::string_view why) {
      return unsupported(cat("'", path, "': ", key, " is ", m.value.dump(), why));
    };
    if (key == "word_embedding_dimension" || key == "embedding_dimension") {
      if (m.value != Json(width))
        return invalid_argument(cat("'", path, "': ", key, " is ", m.value.dump(),
                                    ", and the model's vectors have ", width));
    } else if (key == "pooling_mode") {
      const auto* name = m.value.as<std::string>();
      if (name == nullptr) return wrong(": one name is computed");
      pooling.by = TEGULA_TRY(parse_pooling(*name == "lasttoken" ? "last" : *name));
      ++n;
    } else if (key.starts_with("pooling_mode_")) {
      if (!is_on(&m.value)) continue;
      const auto mode = std::find_if(std::begin(kModes), std::end(kModes),
                                     [&](const auto& k) { return key.substr(13) == k.first; });
      if (mode == std::end(kModes)) return wrong(": mean, cls, lasttoken and max are computed");
      pooling.by = mode->second;
      ++n;
    } else if (key != "include_prompt") {
      return wrong(", a key that tegula does not read");
    }
  }
  if (n == 1) return {};
  return unsupported(cat("'", path, "': ", n, " ways of pooling at once: one is computed"));
}

Status read_modules(const ModelFiles& files, int64_t width, Pooling& pooling) {
  std::string path;
  const Json modules = TEGULA_TRY(read(files, "modules.json", path));
  if (modules.is_null()) return {};
  const auto* list = modules.as<Json::Array>();
  if (list == nullptr) return invalid_argument(cat("'", path, "' is no list of modules"));
  for (const Json& each : *list) {
    const auto *type = each.find_as<std::string>("type"), *at = each.find_as<std::string>("path");
    const std::string name = type ? *type : "";
    const std::string kind = name.substr(name.rfind('.') + 1);
    if (kind == "Transformer" && (at == nullptr || at->empty())) continue;
    if (kind == "Normalize") {
      pooling.is_normalised = true;
    } else if (kind == "Pooling" && at != nullptr) {
      std::string file;
      const Json config = TEGULA_TRY(read(files, cat(*at, "/config.json"), file));
      if (config.as<Json::Object>() == nullptr)
        return invalid_argument(cat("'", path, "' names '", file, "', which says nothing"));
      TEGULA_TRY(read_modes(config, file, width, pooling));
      if (const Json* prompt = config.find("include_prompt");
          prompt != nullptr && !is_on(prompt) && !pooling.prompt.empty())
        return unsupported(cat("'", file, "': include_prompt is false, and there is a prompt"));
    } else {
      return unsupported(cat("'", path, "': the module ", each.dump(), " is not computed"));
    }
  }
  return {};
}

// The prompt that stands in front of texts unless another is asked for.
Status read_prompt(const ModelFiles& files, Pooling& pooling) {
  std::string path;
  const Json config = TEGULA_TRY(read(files, "config_sentence_transformers.json", path));
  const Json* name = config.find("default_prompt_name");
  if (name == nullptr || name->is_null()) return {};
  const auto* text = name->as<std::string>();
  const Json* prompts = config.find("prompts");
  const auto* prompt = text && prompts ? prompts->find_as<std::string>(*text) : nullptr;
  if (prompt == nullptr)
    return invalid_argument(
        cat("'", path, "': default_prompt_name ", name->dump(), " is none of its prompts"));
  pooling.prompt = *prompt;
  return {};
}

}  // namespace

Result<PoolBy> parse_pooling(std::string_view name) {
  for (const auto& [known, by] : kNames)
    if (name == known) return by;
  return unsupported(cat("pooling by ", name, " is not computed: mean, cls, last and max are"));
}

Result<Pooling> read_pooling(const ModelFiles& files, int64_t width) {
  Pooling pooling;
  TEGULA_TRY(read_prompt(files, pooling));
  TEGULA_TRY(read_modules(files, width, pooling));
  std::string path;
  const Json config = TEGULA_TRY(read(files, "sentence_bert_config.json", path));
  if (is_on(config.find("do_lower_case")))
    return unsupported(cat("'", path, "': do_lower_case is true: texts would be changed first"));
  if (const Json* most = config.find("max_seq_length"); most != nullptr && !most->is_null()) {
    const auto* n = most->as<int64_t>();
    if (n == nullptr || *n < 1)
      return invalid_argument(cat("'", path, "': max_seq_length is ", most->dump()));
    pooling.most_tokens = *n;
  }
  return pooling;
}

std::vector<float> Pooling::apply(std::span<const float> rows, int64_t d) const {
  const auto width = static_cast<size_t>(d), n = rows.size() / width;
  std::vector<double> x(width);
  for (size_t i = 0; i < width; ++i) {
    const auto at = [&](size_t t) { return static_cast<double>(rows[t * width + i]); };
    switch (by) {
      case PoolBy::kCls:
        x[i] = at(0);
        break;
      case PoolBy::kLast:
        x[i] = at(n - 1);
        break;
      case PoolBy::kMean:
        for (size_t t = 0; t < n; ++t) x[i] += at(t);
        x[i] /= static_cast<double>(n);
        break;
      case PoolBy::kMax:
        x[i] = at(0);
        for (size_t t = 1; t < n; ++t) x[i] = std::max(x[i], at(t));
        break;
    }
  }
  double norm = 0;
  for (const double v : x) norm += v * v;
  norm = is_normalised ? std::max(std::sqrt(norm), 1e-12) : 1;
  std::vector<float> out;
  for (const double v : x) out.push_back(static_cast<float>(v / norm));
  return out;
}

}  // namespace tegula
