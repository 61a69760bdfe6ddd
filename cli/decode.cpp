
#include "cli/command.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "tegula/io/json.h"
#include "tegula/models/model_files.h"
#include "tegula/text/detokenizer.h"
#include "tegula/text/token_rows.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string model, ids, special = "inverse";
  bool bytes = false, json = false;
};

Result<TokenRows> rows_of(const Options& o) {
  if (o.ids.starts_with('[')) return parse_token_rows(o.ids, "--ids");
  return read_token_rows(input_path(o.ids));
}

Status check(const TokenRows& rows, int64_t n) {
  for (size_t row = 0; row < rows.size(); ++row)
    for (size_t i = 0; i < rows[row].size(); ++i)
      if (rows[row][i] >= n)
        return invalid_argument(cat("id ", rows[row][i], ", number ", i + 1, " of row ", row + 1,
                                    ", is none of the tokenizer's ", n, ": 0 to ", n - 1));
  return {};
}

Status run(const Options& o) {
  const auto files = TEGULA_TRY(ModelFiles::open(o.model, Check::kAllButTensors));
  const Tokenizer tokenizer = TEGULA_TRY(files->tokenizer());
  TokenRows rows = TEGULA_TRY(rows_of(o));
  TEGULA_TRY(check(rows, tokenizer.vocab_size()));
  if (!o.json) {  // rows are cut anywhere, within a character, too
    TokenRows one(1);
    for (const auto& row : rows) one[0].insert(one[0].end(), row.begin(), row.end());
    rows = std::move(one);
  }
  Json::Array texts;
  for (auto& row : rows) {
    std::span<const int32_t> ids = row;
    if (o.special == "inverse") ids = tokenizer.inner(ids);
    if (o.special == "skip") {
      std::erase_if(row, [&](int32_t id) { return tokenizer.is_special(id); });
      ids = row;
    }
    texts.emplace_back(o.bytes ? tokenizer.decode(ids) : shown_text(tokenizer, ids));
  }
  if (o.json)
    print_line(Json(std::move(texts)));
  else
    print_text(*texts[0].as<std::string>());
  return {};
}
}  // namespace

void add_decode(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("decode", "Token ids as the text that they are, and no more");
  static Options o;
  cmd.add_option("--model", o.model, "Directory of a model, for its tokenizer").required();
  cmd.add_option("--ids", o.ids,
                 "JSON, [1, 2, 3] or rows of ids: itself, a file, or - for standard input")
      .required();
  one_of(cmd.add_option("--special", o.special,
                        "inverse: without the ids that encode puts around a text; keep: all; "
                        "skip: without all that the tokenizer calls special"),
         {"inverse", "keep", "skip"});
  const auto bytes = cmd.add_flag(
      "--bytes", o.bytes, "Bytes that are no UTF-8 as they are, not as the replacement U+FFFD");
  cmd.add_flag("--json", o.json, "Print a list of texts, one for each row").excludes(bytes);
  cmd.callback([&exit_code] { exit_code = report(run(o)); });
}

}  // namespace tegula::cli
