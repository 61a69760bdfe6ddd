#include "tegula/models/convert.h"

#include <cstdio>

#include "cli/command.h"

namespace tegula::cli {

namespace {

struct Options {
  std::string from, out, dtype;
};

Status run(const Options& o) {
  const auto files = TEGULA_TRY(ModelFiles::open(o.from, Check::kAllButTensors));
  const auto dtype = o.dtype.empty() ? std::optional<DType>() : parse_dtype(o.dtype);
  const Converted done = TEGULA_TRY(convert_model(*files, o.out, dtype));
  for (const std::string& note : done.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  std::printf("%s: %s tensors, %s bytes\n", o.out.c_str(), cat(done.n_tensors).c_str(),
              cat(done.n_bytes).c_str());
  return {};
}

}  // namespace

void add_convert(const Command& app, int& exit_code) {
  const auto cmd = app.add_command(
      "convert", "Write a model in another form: a GGUF file, or a directory as Hugging Face's");
  static Options o;
  cmd.add_option("--from", o.from, "A GGUF file, a directory of a model, or a run")
      .required()
      .refuse_empty();
  cmd.add_option("--out", o.out, "FILE.gguf, or a new directory").required().refuse_empty();
  one_of(cmd.add_option("--dtype", o.dtype, "Of the weights; as stored, blocks as f32"),
         {"f32", "bf16", "f16"});
  cmd.callback([&exit_code] { exit_code = report(run(o)); });
}

}  // namespace tegula::cli
