#include <cstdio>

#include "cli/command.h"
#include "tegula/io/text_data.h"
#include "tegula/models/model_files.h"
#include "tegula/text/tokenizer.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string model, text;
  int64_t length = 0;
};

Status run(const Options& o) {
  const auto files = TEGULA_TRY(ModelFiles::open(o.model, Check::kAllButTensors));
  const Tokenizer tokenizer = TEGULA_TRY(files->tokenizer());
  const auto ids = TEGULA_TRY(tokenizer.encode(TEGULA_TRY(read_text(o.text))));
  const size_t length = o.length > 0 ? static_cast<size_t>(o.length) : ids.size();
  std::printf("[");
  for (size_t at = 0; length > 0 && at + length <= ids.size(); at += length) {
    std::printf(at == 0 ? "[" : ",\n [");
    for (size_t i = 0; i < length; ++i) std::printf(i == 0 ? "%d" : ", %d", ids[at + i]);
    std::printf("]");
  }
  std::printf("]\n");
  return {};
}
}  // namespace

void add_encode(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("encode", "A text as token ids: JSON, rows of ids");
  static Options o;
  cmd.add_option("--model", o.model, "Directory of a model, for its tokenizer").required();
  cmd.add_option("--text", o.text, "Text file, or - for standard input").required();
  whole(cmd.add_option("--length", o.length,
                       "Ids in a row, leaving out an incomplete last one; 0: all"),
        0);
  cmd.callback([&exit_code] { exit_code = report(run(o)); });
}

}  // namespace tegula::cli
