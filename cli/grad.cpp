#include <cstdio>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "tegula/text/token_rows.h"
#include "tegula/train/gradients.h"
#include "tegula/train/masking.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string model, tokens, targets, out, dtype = "f32";
  int threads = 0;
};

Status run(const Options& o) {
  TEGULA_TRY(keep_inputs({"--out", o.out},
                         {{"--tokens", o.tokens}, {"--targets", o.targets}, {"--model", o.model}}));
  const auto rows = TEGULA_TRY(read_token_rows(input_path(o.tokens)));
  std::vector<std::vector<int32_t>> targets;
  if (!o.targets.empty()) targets = TEGULA_TRY(read_token_rows(input_path(o.targets), kIgnored));
  const DType dtype = o.dtype == "f64" ? DType::kF64 : DType::kF32;
  const ModelGradients g = TEGULA_TRY(model_gradients(o.model, rows, targets, dtype, o.threads));
  note_on_model(o.model);
  if (!g.note.empty()) print_note(g.note);
  TEGULA_TRY(write_gradients(o.out, g));
  std::printf("loss %.9g; logits and %zu gradients are in %s\n", g.loss, g.grads.size(),
              o.out.c_str());
  return {};
}
}  // namespace

void add_grad(const Command& app, int& exit_code) {
  const auto cmd = app.add_command(
      "grad", "Loss, logits and gradients of a model on given tokens, to compare ports");
  static Options o;
  cmd.add_option("--model", o.model, "Directory of the model").required();
  cmd.add_option("--tokens", o.tokens,
                 "JSON, rows of ids: [[1, 2, 3], [4, 5, 6]]; - for standard input")
      .required();
  cmd.add_option("--targets", o.targets,
                 "As --tokens: what each is to give, -100: nothing; default: the next token")
      .default_str("");
  cmd.add_option("--out", o.out, "Safetensors file to write").required();
  one_of(cmd.add_option("--dtype", o.dtype, "Of the arithmetic; f64: the ops' references, slowly"),
         {"f32", "f64"});
  add_threads(cmd, o.threads);
  cmd.callback([&exit_code] { exit_code = report(run(o)); });
}

}  // namespace tegula::cli
