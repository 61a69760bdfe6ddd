// Says what is drawn from, for tests that compare with transformers' processors of logits.
//   run_sampler < requests > results
// A request is a line of JSON, {"logits": […], "ids": […], "n_prompt": …} and settings as
// `generate` has them; a result is [[id, probability], …].
#include <cstdio>
#include <string>

#include "tegula/io/json.h"
#include "tegula/serve/sampler.h"

int main() {
  using tegula::Json;
  std::string line;
  for (int c = 0; (c = std::getchar()) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    const auto request = Json::parse(line, "request");
    if (!request.ok()) return 2;
    const auto number = [&](const char* key, double otherwise) {
      const Json* value = request->find(key);
      return value != nullptr ? value->number(otherwise) : otherwise;
    };
    tegula::SamplerConfig config{.temperature = number("temperature", 1),
                                 .top_k = static_cast<int64_t>(number("top_k", 0)),
                                 .top_p = number("top_p", 1)};
    config.min_p = number("min_p", 0), config.typical_p = number("typical_p", 1);
    config.repetition_penalty = number("repetition_penalty", 1);
    if (const Json* bias = request->find("logit_bias"))
      for (const auto& [id, value] : *bias->as<Json::Object>())
        config.bias.emplace_back(std::stoi(id), value.number(0));
    std::vector<float> logits;
    for (const Json& x : *request->find("logits")->as<Json::Array>())
      logits.push_back(static_cast<float>(x.number(0)));
    std::vector<int32_t> ids;
    for (const Json& x : *request->find("ids")->as<Json::Array>())
      ids.push_back(static_cast<int32_t>(x.number(0)));
    const auto n_prompt = static_cast<size_t>(number("n_prompt", 0));
    Json::Array all;
    for (const auto& [token, p] : tegula::distribution(logits, config, {ids, n_prompt}))
      all.push_back(Json::Array{token, p});
    std::puts(Json(std::move(all)).dump().c_str());
    line.clear();
  }
}
