// Parameters: the published counts digit by digit, the graphs of the families that are built here,
// and sizes that no machine could hold.
#include "tegula/planner/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tegula/planner/model_config.h"

namespace tegula::planner {
namespace {

ParamCount count_of(std::string_view name) {
  const auto preset = find_model_preset(name);
  EXPECT_TRUE(preset.ok()) << name;
  const auto count = count_params(preset->model);
  EXPECT_TRUE(count.ok()) << count.error().to_string();
  return *count;
}

// The digits of the weights that their makers published, counted tensor by tensor.
TEST(Params, EveryDigitOfPublishedWeights) {
  const std::pair<const char*, int64_t> published[] = {{"gpt2", 124'439'808},
                                                       {"gpt2-medium", 354'823'168},
                                                       {"gpt2-large", 774'030'080},
                                                       {"gpt2-xl", 1'557'611'200},
                                                       {"llama2-7b", 6'738'415'616},
                                                       {"llama2-13b", 13'015'864'320},
                                                       {"llama2-70b", 68'976'648'192},
                                                       {"llama3-8b", 8'030'261'248},
                                                       {"llama3-70b", 70'553'706'496},
                                                       {"llama3-405b", 405'853'388'800},
                                                       {"mistral-7b", 7'241'732'096},
                                                       {"mixtral-8x7b", 46'702'792'704},
                                                       {"mixtral-8x22b", 140'620'634'112},
                                                       {"qwen2-7b", 7'615'616'512},
                                                       {"bloom-176b", 176'247'271'424}};
  for (const auto& [name, n] : published) EXPECT_EQ(count_of(name).total, n) << name;
}

// The digits of papers, which print fewer: Brown et al. 2020, table D.1 (in millions); Chowdhery et
// al. 2022, table 1; Smith et al. 2022; Rae et al. 2021; Hoffmann et al. 2022; Zaremba et al. 2014;
// Jiang et al. 2024 for the active ones. The last printed digit is `unit`. PaLM's table has 540.35
// billion without the 2.2 million weights of norms, and 540.36 with them.
TEST(Params, EveryPrintedDigitOfPapers) {
  const struct {
    const char* name;
    double printed, unit;
    bool active = false;
  } papers[] = {{"gpt3-125m", 125e6, 1e6},         {"gpt3-350m", 356e6, 1e6},
                {"gpt3-760m", 760e6, 1e6},         {"gpt3-1.3b", 1320e6, 10e6},
                {"gpt3-2.7b", 2650e6, 10e6},       {"gpt3-6.7b", 6660e6, 10e6},
                {"gpt3-13b", 12850e6, 10e6},       {"gpt3-175b", 174600e6, 100e6},
                {"palm-540b", 540.35e9, 0.01e9},   {"mt-nlg-530b", 530e9, 1e9},
                {"gopher-280b", 280e9, 1e9},       {"chinchilla-70b", 70e9, 1e9},
                {"lstm-large", 66e6, 1e6},         {"mixtral-8x7b", 12.9e9, 0.1e9, true},
                {"mixtral-8x22b", 39e9, 1e9, true}};
  for (const auto& p : papers) {
    const ParamCount c = count_of(p.name);
    const int64_t norms = std::string_view(p.name) == "palm-540b" ? 118 * c.norms : 0;
    const double n = static_cast<double>((p.active ? c.active : c.total) - norms);
    EXPECT_EQ(std::round(n / p.unit), std::round(p.printed / p.unit)) << p.name << " has " << n;
  }
}

TEST(Params, TheGraphHasAsMany) {
  std::set<std::string> families;
  for (const ModelPreset& p : model_presets()) {
    if (p.model.family.empty()) continue;
    const auto graph = graph_params(p.model);
    ASSERT_TRUE(graph.ok()) << p.model.name << ": " << graph.error().to_string();
    EXPECT_EQ(*graph, count_params(p.model)->total) << p.model.name;
    families.insert(p.model.family);
  }
  EXPECT_EQ(families,
            (std::set<std::string>{"gpt2", "llama", "lstm", "mistral", "mlp", "moe", "qwen2"}));
}

TEST(Params, ActiveAreFewerOnlyWithExperts) {
  for (const ModelPreset& p : model_presets()) {
    const ParamCount c = *count_params(p.model);
    if (p.model.is_moe())
      EXPECT_LT(c.active, c.total) << p.model.name;
    else
      EXPECT_EQ(c.active, c.total) << p.model.name;
  }
}

TEST(Params, AbsurdSizesAreErrorsAndNeverOverflow) {
  ModelSpec m = find_model_preset("llama3-8b")->model;
  for (int64_t ModelSpec::*at : {&ModelSpec::n_layers, &ModelSpec::d_model, &ModelSpec::d_ff,
                                 &ModelSpec::vocab_size, &ModelSpec::n_heads}) {
    for (const int64_t size : {int64_t{0}, int64_t{-1}}) {
      ModelSpec bad = m;
      bad.*at = size;
      EXPECT_FALSE(count_params(bad).ok());
    }
    ModelSpec huge = m;
    huge.*at = int64_t{1} << 61;
    huge.*at -= huge.*at % huge.n_kv_heads;
    const auto count = count_params(huge);
    ASSERT_FALSE(count.ok());
    EXPECT_NE(count.error().message.find("make one of them smaller"), std::string::npos);
  }
  m.n_layers = int64_t{1} << 31;  // 10^18 parameters are counted all the same
  const auto count = count_params(m);
  ASSERT_TRUE(count.ok());
  EXPECT_GT(count->total, 400'000'000'000'000'000);
}

TEST(Params, NamesNearAMistypedOne) {
  const auto preset = find_model_preset("lama3-8b");
  ASSERT_FALSE(preset.ok());
  EXPECT_NE(preset.error().message.find("llama3-8b"), std::string::npos);
}

}  // namespace
}  // namespace tegula::planner
