// Shared by the commands that write text: the model, how tokens are drawn, chats.
#pragma once

#include "cli/flags.h"
#include "tegula/io/json.h"
#include "tegula/serve/chat.h"
#include "tegula/serve/generator.h"

namespace tegula::cli {

struct TextOptions {
  std::string model, dtype = "f32", cache_dtype, tune = "off", tune_cache;
  double superopt = 0;
  std::string rules;
  std::string mode, device = "cpu";  // mode empty: exact on the CPU, fast on a GPU
  std::string activations;           // of products with weights in blocks; empty: int8
  std::string chat_template, system;
  std::vector<std::string> stop, bias, template_arguments;
  int64_t batch = 1, chunk = 0;
  SamplerConfig sampler{0.8, 0, 1.0, 0};
  int threads = 0;
  bool ignore_eos = false, has_dtype = false;  // the second: it was given
};

void add_model(const Command& cmd, TextOptions& o);     // --model, --dtype, --mode, --device, …
void add_sampling(const Command& cmd, TextOptions& o);  // --temperature, --top-k, --stop, …
std::vector<Flag> add_chat_flags(const Command& cmd, TextOptions& o);
// Flags that leave one another without use; `lines_differ`: texts may have settings of their own.
void check_together(const Command& cmd, TextOptions& o, bool lines_differ = false);

// The model's small files, and a note on what nobody reads of them.
Result<std::unique_ptr<Generator>> open_model(const TextOptions& o);
Result<ChatPrompts> open_chat(const Generator& g, const TextOptions& o);
// Weights, plans and cache; `r` says what is particular to the command. Returns the cache's bytes,
// which are printed before they are taken where they are many or `says_cache`.
Result<int64_t> prepare(Generator& g, const TextOptions& o, RunnerOptions r, bool says_cache);

// The settings of a line of JSONL instead of those of the flags, by the flags' names with '_'.
struct LineSettings {
  SamplerConfig sampler;
  std::vector<std::string> stop;
  int64_t max_tokens = 0;
};
// False: the key is none of them.
Result<bool> read_setting(const std::string& key, const Json& value, LineSettings& settings);
// Biases name tokens of the vocabulary.
Status check_bias(const SamplerConfig& sampler, const Generator& g);

}  // namespace tegula::cli
