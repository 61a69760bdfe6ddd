// tokenizer.json: an accepted one encodes into ids that it has, decodes them to the text (bytes and
// BPE), and is saved and loaded the same.
#include "tegula/text/tokenizer.h"

#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  const std::string folder = scratch() + "/tokenizer", again_folder = scratch() + "/again";
  std::filesystem::create_directory(folder), std::filesystem::create_directory(again_folder);
  put(folder + "/tokenizer.json", input);
  const auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return false;
  for (const auto& [name, text] : tokenizer->files()) put(again_folder + "/" + name, text);
  const auto again = Tokenizer::load(again_folder);
  TEGULA_CHECK(again.ok() && again->vocab_size() == tokenizer->vocab_size());
  const std::string_view texts[] = {"", "a b\n", "It's 1234 \xc3\xa9\xff <|endoftext|>x",
                                    input.substr(0, 200)};
  for (const std::string_view text : texts) {
    const auto ids = tokenizer->encode(text), ids_again = again->encode(text);
    TEGULA_CHECK(ids.ok() == ids_again.ok());
    if (!ids.ok()) continue;
    TEGULA_CHECK(*ids == *ids_again);
    for (const int32_t id : *ids) TEGULA_CHECK(id >= 0 && id < tokenizer->vocab_size());
    TEGULA_CHECK(tokenizer->decode(*ids) == again->decode(*ids));
  }
  const int32_t beyond[] = {-1, static_cast<int32_t>(tokenizer->vocab_size()), INT32_MAX};
  (void)tokenizer->decode(beyond);
  return true;
}

}  // namespace

extern constinit const Target tokenizer_target{"tokenizer", run};

}  // namespace tegula::fuzz
