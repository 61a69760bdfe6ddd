#include "tegula/serve/embed.h"

#include <cstdio>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/io/text_data.h"

namespace tegula::cli {

namespace {
struct Options {
  std::string model, text, texts, out, pooling, normalise, dtype = "f32";
  EmbedOptions embed;
};

Result<std::vector<std::string>> texts_of(const Options& o) {
  if (o.texts.empty())
    return std::vector<std::string>{o.text == "-" ? TEGULA_TRY(read_text(o.text)) : o.text};
  const auto lines = split(TEGULA_TRY(read_text(o.texts)), '\n');
  if (lines.empty())
    return invalid_argument(cat("'", o.texts, "' is empty: give it a text a line"));
  return lines;
}

Status write(const std::string& path, std::span<const Embedder::Embedding> all, int64_t width) {
  std::vector<float> rows;
  for (const auto& e : all) rows.insert(rows.end(), e.vector.begin(), e.vector.end());
  const NamedTensor tensor{"embeddings",
                           contiguous_ref(rows.data(), {DType::kF32, {std::ssize(all), width}})};
  return write_safetensors(path, {&tensor, 1});
}

void print(std::span<const Embedder::Embedding> all) {
  Json::Array rows, tokens;
  for (const auto& e : all) {
    Json::Array row;
    for (const float x : e.vector) row.emplace_back(static_cast<double>(x));
    rows.emplace_back(std::move(row)), tokens.emplace_back(e.tokens - e.left_out);
  }
  const Json json = Json::object({{"embeddings", std::move(rows)}, {"tokens", std::move(tokens)}});
  print_line(json);
}

Status run(const Options& o) {
  TEGULA_TRY(keep_inputs({"--out", o.out}, {{"--model", o.model}, {"--texts", o.texts}}));
  const auto texts = TEGULA_TRY(texts_of(o));
  const auto e = TEGULA_TRY(Embedder::open(o.model));
  note_on_model(o.model);
  if (!o.pooling.empty()) e->pooling.by = TEGULA_TRY(parse_pooling(o.pooling));
  if (!o.normalise.empty()) e->pooling.is_normalised = o.normalise == "true";
  EmbedOptions options = o.embed;
  options.dtype = parse_dtype(o.dtype).value_or(DType::kF32);
  TEGULA_TRY(e->prepare(options));
  const auto all = TEGULA_TRY(e->embed(texts));
  for (const std::string& note : e->notes) print_note(note);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].left_out > 0)
      print_note(cat("text ", i + 1, " has ", all[i].tokens, " tokens, and the model sees ",
                     all[i].tokens - all[i].left_out, ": its end is left out"));
  if (o.out.empty())
    print(all);
  else
    TEGULA_TRY(write(o.out, all, e->width()));
  return {};
}
}  // namespace

void add_embed(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("embed", "Vectors of texts: JSON, or a safetensors file");
  static Options o;
  cmd.take_last();
  cmd.add_option("--model", o.model, "Directory of the model").required().type_name("DIR");
  const auto text = cmd.add_option("--text", o.text, "A text, or - for standard input");
  const auto texts = cmd.add_option("--texts", o.texts, "A file with a text a line, or -")
                         .type_name("FILE")
                         .excludes(text);
  cmd.add_option("--out", o.out, "Safetensors file for \"embeddings\" [texts, width]")
      .type_name("FILE");
  one_of(cmd.add_option("--pooling", o.pooling,
                        "How tokens' vectors become one; else as the model's files say, or mean"),
         {"mean", "cls", "last", "max"});
  one_of(cmd.add_option("--normalise", o.normalise,
                        "Whether vectors have length 1; else as the model's files say, or not"),
         {"true", "false"});
  whole(cmd.add_option("--batch", o.embed.batch, "Texts at once; no bit changes"), 1, 4096);
  one_of(cmd.add_option("--dtype", o.dtype, "Of weights and activations"), {"f32", "bf16", "f16"});
  add_threads(cmd, o.embed.threads);
  cmd.callback([&exit_code, text, texts] {
    if (!text.is_given() && !texts.is_given()) usage_error("--text or --texts is required");
    exit_code = report(run(o));
  });
}

}  // namespace tegula::cli
