// Tells the kind of a file taken for another; the command line's side is downloads_test.py.
#include "tegula/io/wrong_file.h"

#include <gtest/gtest.h>

#include "tegula/io/json.h"

namespace tegula {
namespace {

TEST(WrongFile, NamesWhatItIs) {
  using namespace std::literals;
  static constexpr char kZeros[64] = {};
  for (const auto& [bytes, word] :
       {std::pair{""sv, "0 bytes"},
        {"version https://git-lfs.github.com/spec/v1\nsize 12\n"sv, "Git LFS pointer to 12 bytes"},
        {"\xef\xbb\xbf<!doctype HTML>"sv, "web page"},
        {"\x1f\x8b\x08"sv, "gzip"},
        {"PK\x03\x04......x/data.pkl"sv, "PyTorch"},
        {"PK\x03\x04......x"sv, "zip archive"},
        {"\x80\x02}q"sv, "pickle"},
        {std::string_view(kZeros, 64), "64 zero bytes"},
        {"Not Found"sv, "\"Not Found\""}})
    for (const bool is_text : {false, true})
      EXPECT_NE(what_it_is_instead(bytes, is_text).find(word), std::string::npos) << word;
}

TEST(WrongFile, SaysNothingOfWhatMayBeRight) {
  EXPECT_EQ(what_it_is_instead("{\"a\": 1", true), "");
  EXPECT_EQ(what_it_is_instead("[1, 2", true), "");
  EXPECT_EQ(what_it_is_instead("nul", true), "");
  EXPECT_EQ(what_it_is_instead(std::string(8, '\2') + "{\"a\"", false), "");
}

TEST(WrongFile, IsToldOfJson) {
  const auto of = [](std::string_view text) { return Json::parse(text, "f").error().message; };
  EXPECT_NE(of("<html></html>").find("'f' is not valid JSON: it is a web page"), std::string::npos);
  EXPECT_NE(of("{\"a\": [1, 2").find("truncated"), std::string::npos);
  EXPECT_NE(of("{\"a\": tru}").find("syntax error"), std::string::npos);
}

}  // namespace
}  // namespace tegula
