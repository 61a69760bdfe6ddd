#include "tegula/io/json.h"

#include <cmath>
#include <limits>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

TEST(Json, RoundTripsValuesAndKeepsOrder) {
  const std::string text =
      R"({"z": 1, "a": [true, false, null, -3, 1.5, 2.0, "q\"\\\n\u0001é😀"], "o": {}, "e": []})";
  const Json j = Json::parse(text, "t").value();
  EXPECT_EQ(j.dump(), text);
  EXPECT_EQ(Json::parse(j.dump(2), "t").value(), j);
  EXPECT_EQ(*j.find("z")->as<int64_t>(), 1);
  EXPECT_EQ(j.find("nothing"), nullptr);
  EXPECT_EQ(j.find("z")->find("x"), nullptr);
}

TEST(Json, NumbersSurviveExactly) {
  for (double d : {0.1, 1e300, -5e-324, 3.0, 1.0 / 3, 123456789012345680.0}) {
    const Json back = Json::parse(Json(d).dump(), "t").value();
    ASSERT_NE(back.as<double>(), nullptr) << Json(d).dump();
    EXPECT_EQ(*back.as<double>(), d);
  }
  for (int64_t i :
       {int64_t{0}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    const Json back = Json::parse(Json(i).dump(), "t").value();
    ASSERT_NE(back.as<int64_t>(), nullptr);
    EXPECT_EQ(*back.as<int64_t>(), i);
  }
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(INFINITY).dump(), "null");
  EXPECT_EQ(Json::parse("18446744073709551615", "t").value().number(0), 18446744073709551615.0);
}

TEST(Json, BuildsAndSets) {
  Json j;
  j.set("a", 1);
  j.set("b", "x");
  j.set("a", Json::Array{1, 2.5, "s"});
  EXPECT_EQ(j.dump(), R"({"a": [1, 2.5, "s"], "b": "x"})");
  EXPECT_EQ(j.dump(1), "{\n \"a\": [\n  1,\n  2.5,\n  \"s\"\n ],\n \"b\": \"x\"\n}");
  EXPECT_EQ(Json("\xff").dump(), "\"\xef\xbf\xbd\"");
}

TEST(Json, BadTextIsAnErrorThatNamesTheSource) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":1,}", "nul", "1 2", "{\"a\" 1}", "\"\xff\"",
                          "[1e999]", "'a'", "// c\n1", "\"\t\""})
    expect_error(Json::parse(bad, "f.json"), Code::kInvalidArgument, {"'f.json'", "JSON"});
  expect_error(Json::parse(R"({"a": 1, "b": {"a": 2}, "a": 3})", "f"), Code::kInvalidArgument,
               {"'a'", "twice"});
  EXPECT_TRUE(Json::parse(R"({"a": 1, "b": {"a": 2}})", "f").ok());
  const std::string deep(1000000, '[');
  expect_error(Json::parse(deep, "f"), Code::kInvalidArgument, {"128 levels"});
}

TEST(Json, EndsAtItsEnd) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"{}\0{}"sv, "[1]\0"sv, "\0"sv, "\"a\0b\""sv, "[1\0]"sv})
    expect_error(Json::parse(text, "f.json"), Code::kInvalidArgument, {"f.json", "NUL byte at "});
  expect_error(Json::parse("{} {}", "f.json"), Code::kInvalidArgument, {"byte 4"});
  EXPECT_TRUE(Json::parse("\"a\\u0000b\"", "f.json").ok());
}

}  // namespace
}  // namespace tegula
