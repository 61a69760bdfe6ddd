// tokenizer.model: an accepted one encodes into ids that it has.
#include "tegula/text/detokenizer.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  const std::string folder = scratch() + "/sentencepiece";
  std::filesystem::create_directory(folder);
  put(folder + "/tokenizer.model", input);
  const auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return false;
  const std::string_view texts[] = {"", "a b\n", "  It's 1234 \xc3\xa9\xff <s>x\xe2\x96\x81 ",
                                    input.substr(0, 200)};
  for (const std::string_view text : texts) {
    const auto ids = tokenizer->encode(text);
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) TEGULA_CHECK(id >= 0 && id < tokenizer->vocab_size());
    (void)shown_text(*tokenizer, *ids);
  }
  return true;
}

}  // namespace

extern constinit const Target sentencepiece_target{"sentencepiece", run};

}  // namespace tegula::fuzz
