#include <chrono>

#include "tests/text/kinds.h"

namespace tegula {
namespace {

// A word of ten megabytes, in every form of words and of models: what is not linear takes hours.
TEST(TokenizerKinds, LongWordsTakeLinearTime) {
  const Json all = fixture();
  const size_t n = size_t{10} << 20;
  std::string many, words;
  for (size_t i = 0; i < n / 2; ++i) many += "Aa";
  for (size_t i = 0; i < n / 6; ++i) words += "the the";  // no space ends a word of Llama 2's
  const auto seconds = [](const Tokenizer& t, std::string_view text) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(t.encode(text).ok());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const std::string texts[] = {many, words};
  for (const auto& [name, kind] : *all.find("kinds")->as<Json::Object>()) {
    const auto t = load(file_of(all, kind));
    ASSERT_TRUE(t.ok()) << name;
    for (const std::string& text : texts) {
      const double tenth = seconds(*t, std::string_view(text).substr(0, text.size() / 10));
      const double whole = seconds(*t, text);
      EXPECT_LT(whole, 10 * tenth * 4 + .5) << name << ": a tenth takes " << tenth << " s";
    }
  }
}

}  // namespace
}  // namespace tegula
