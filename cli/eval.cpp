#include <cmath>
#include <cstdio>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "tegula/io/json.h"
#include "tegula/io/text_data.h"
#include "tegula/models/model_files.h"
#include "tegula/serve/evaluate.h"
#include "tegula/text/tokenizer.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string model, data, tokens, dtype = "f32", mode = "exact", activations = "int8";
  EvaluateOptions evaluate;
  bool json = false;
};

Result<std::vector<int32_t>> ids_of(const std::string& model, std::string_view text) {
  const auto files = TEGULA_TRY(ModelFiles::open(model, Check::kAllButTensors));
  return TEGULA_TRY(files->tokenizer()).encode(text);
}

// Both models' ids must be the same, where both have a tokenizer.
Status check_tokenizers(const Options& o, std::string_view text, const std::vector<int32_t>& ids) {
  const auto files = ModelFiles::open(o.evaluate.against, Check::kAllButTensors);
  if (!files.ok()) return {};  // a file of logits, which has its tokens; or no model, as is told
  const auto tokenizer = (*files)->tokenizer();
  if (!tokenizer.ok() || TEGULA_TRY(tokenizer->encode(text)) == ids) return {};
  return invalid_argument(cat("the tokenizers of '", o.model, "' and '", o.evaluate.against,
                              "' give different ids for '", o.data,
                              "': distributions of different tokens cannot be compared"));
}

Json to_json(const Evaluation& e, int64_t bytes, double bits_a_byte) {
  Json j = Json::object({{"perplexity", e.perplexity()},
                         {"nll", e.nll},
                         {"nll_per_token", e.nll / static_cast<double>(e.tokens)},
                         {"tokens", e.tokens},
                         {"bytes", bytes > 0 ? Json(bytes) : Json()},
                         {"bits_per_byte", bytes > 0 ? Json(bits_a_byte) : Json()},
                         {"windows", e.windows},
                         {"context", e.context},
                         {"stride", e.stride}});
  if (e.divergence)
    j.set("kl", Json::object({{"mean", e.divergence->mean},
                              {"max", e.divergence->largest},
                              {"max_at", e.divergence->largest_at},
                              {"same_best", e.divergence->same_best}}));
  return j;
}

void print(const Evaluation& e, int64_t bytes, double bits_a_byte) {
  const auto n = static_cast<double>(e.tokens);
  std::printf("perplexity %.6g: %.6g nats a token", e.perplexity(), e.nll / n);
  if (bytes > 0)
    std::printf(", %.6g bits a byte of %lld", bits_a_byte, static_cast<long long>(bytes));
  std::printf("; %lld tokens predicted in %lld windows of %lld, stride %lld\n",
              static_cast<long long>(e.tokens), static_cast<long long>(e.windows),
              static_cast<long long>(e.context), static_cast<long long>(e.stride));
  if (e.divergence)
    std::printf(
        "KL(reference || model) mean %.6g, largest %.6g at token %lld; the likeliest token "
        "is the same for %.2f %%\n",
        e.divergence->mean, e.divergence->largest, static_cast<long long>(e.divergence->largest_at),
        100 * static_cast<double>(e.divergence->same_best) / n);
}

Status run(Options& o) {
  EvaluateOptions& e = o.evaluate;
  TEGULA_TRY(keep_inputs({"--logits", e.logits_path}, {{"--model", o.model},
                                                       {"--data", o.data},
                                                       {"--tokens", o.tokens},
                                                       {"--against", e.against}}));
  e.dtype = parse_dtype(o.dtype).value_or(DType::kF32);
  e.quantises_activations = o.activations == "int8";
  e.mode = o.mode == "fast" ? Mode::kFast : Mode::kExact;
  int64_t bytes = 0;
  TokenRows rows;
  if (!o.data.empty()) {
    const TextData text = TEGULA_TRY(load_text(o.data));
    bytes = static_cast<int64_t>(text.text.size());
    rows.push_back(TEGULA_TRY(ids_of(o.model, text.text)));
    if (!e.against.empty()) TEGULA_TRY(check_tokenizers(o, text.text, rows[0]));
  } else {
    rows = TEGULA_TRY(read_token_rows(input_path(o.tokens)));
  }
  const Evaluation done = TEGULA_TRY(evaluate(o.model, rows, e));
  note_on_model(o.model);
  if (!done.note.empty()) print_note(done.note);
  const double bits = bytes > 0 ? done.nll / std::log(2.0) / static_cast<double>(bytes) : 0;
  if (o.json)
    print_line(to_json(done, bytes, bits));
  else
    print(done, bytes, bits);
  return {};
}
}  // namespace

void add_eval(const Command& app, int& exit_code) {
  const auto cmd =
      app.add_command("eval", "Perplexity of a model, and its distance from another one");
  static Options o;
  cmd.take_last();
  cmd.add_option("--model", o.model, "Directory of the model").required().type_name("DIR");
  const auto data =
      cmd.add_option("--data", o.data, "A text, a directory of texts, or -").type_name("FILE");
  const auto tokens =
      cmd.add_option("--tokens", o.tokens, "JSON, rows of ids, each a text; - for standard input")
          .type_name("FILE")
          .excludes(data);
  whole(cmd.add_option("--context", o.evaluate.context, "Tokens of a window; 0: the model's"), 0);
  whole(cmd.add_option("--stride", o.evaluate.stride,
                       "Tokens from window to window; 0: the context, so that none overlap"),
        0);
  whole(cmd.add_option("--batch", o.evaluate.batch, "Windows at once; no bit changes"), 1, 4096);
  cmd.add_option("--against", o.evaluate.against,
                 "Another model, or logits in a file: how far the model is from it")
      .type_name("DIR|FILE");
  cmd.add_option("--logits", o.evaluate.logits_path, "Safetensors file for the logits")
      .type_name("FILE");
  one_of(cmd.add_option("--dtype", o.dtype, "Of weights and activations"), {"f32", "bf16", "f16"});
  one_of(cmd.add_option("--activations", o.activations,
                        "Of products with weights in blocks: int8, summed exactly, or f32"),
         {"int8", "f32"});
  one_of(cmd.add_option("--mode", o.mode, "exact: long sums in 8 fixed parts; fast: in one"),
         {"exact", "fast"});
  add_threads(cmd, o.evaluate.threads);
  cmd.add_flag("--json", o.json, "Print one JSON object");
  cmd.callback([&exit_code, data, tokens] {
    if (!data.is_given() && !tokens.is_given()) usage_error("--data or --tokens is required");
    exit_code = report(run(o));
  });
}

}  // namespace tegula::cli
