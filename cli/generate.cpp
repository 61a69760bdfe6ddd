#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "tegula/io/json.h"
#include "tegula/serve/generator.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string model, prompt, dtype = "f32", tune = "off", tune_cache;
  int64_t max_tokens = 200;
  SamplerConfig sampler{0.8, 0, 1.0, 0};
  int threads = 0;
  bool json = false;
};

struct Stream {
  bool print;
  std::string text;
};

int run(const Options& o) {
  const auto mode = parse_tune_mode(o.tune);
  if (!mode.ok()) return report(mode.error());
  auto g = Generator::load(o.model, o.threads, {*mode, o.tune_cache},
                           parse_dtype(o.dtype).value_or(DType::kF32));
  if (!g.ok()) return report(g.error());
  for (const std::string& note : (*g)->notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  Stream stream{!o.json, {}};
  GenerateStats stats;
  if (!o.json) std::fputs(o.prompt.c_str(), stdout);
  auto st = (*g)->generate(
      o.prompt, o.max_tokens, o.sampler,
      [](void* context, std::string_view piece) {
        auto& s = *static_cast<Stream*>(context);
        s.text += piece;
        if (s.print) {
          std::fwrite(piece.data(), 1, piece.size(), stdout);
          std::fflush(stdout);
        }
      },
      &stream, stats);
  if (!st.ok()) return report(st.error());
  if (o.json) {
    const double decode_s = stats.decode_ms / 1e3;
    const Json j =
        Json::object({{"text", stream.text},
                      {"prompt_tokens", stats.prompt_tokens},
                      {"new_tokens", stats.new_tokens},
                      {"load_ms", stats.load_ms},
                      {"prefill_ms", stats.prefill_ms},
                      {"decode_ms", stats.decode_ms},
                      {"tokens_per_s", static_cast<double>(stats.new_tokens) / decode_s}});
    std::printf("%s\n", j.dump().c_str());
  } else {
    std::printf("\n");
  }
  return 0;
}
}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto* cmd = app.add_subcommand("generate", "Continue a prompt with a trained model");
  static Options o;
  cmd->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  cmd->add_option("--model", o.model, "Directory of the model")->required()->type_name("DIR");
  cmd->add_option("--prompt", o.prompt, "Text to continue")->required();
  whole(cmd->add_option("--max-tokens", o.max_tokens, "How many tokens to add"), 0);
  real(cmd->add_option("--temperature", o.sampler.temperature, "0: always the likeliest token"), 0);
  whole(cmd->add_option("--top-k", o.sampler.top_k, "Among the K likeliest; 0: all"), 0);
  real(cmd->add_option("--top-p", o.sampler.top_p, "Among the likeliest that reach probability P"),
       0, 1);
  one_of(cmd->add_option("--dtype", o.dtype, "Of weights, activations and the cache"),
         {"f32", "bf16", "f16"});
  whole(cmd->add_option("--seed", o.sampler.seed, "Random seed"), 0, INT64_MAX);
  whole(cmd->add_option("--threads", o.threads, "0: all cores"), 0, 4096);
  add_tuning(*cmd, o.tune, o.tune_cache);
  cmd->add_flag("--json", o.json, "Print one JSON object at the end instead of the text");
  cmd->callback([&exit_code] { exit_code = run(o); });
}

}  // namespace tegula::cli
