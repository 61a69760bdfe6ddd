#include "tegula/base/amounts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tegula {
namespace {

TEST(Amounts, Counts) {
  const auto count = [](std::string_view text) {
    const auto n = read_count(text, INT64_MIN, INT64_MAX);
    return n.ok() ? *n : -77;
  };
  for (const auto& [text, n] : {std::pair<const char*, int64_t>{"0", 0},
                                {"64", 64},
                                {"9223372036854775807", INT64_MAX},
                                {"9007199254740993", 9007199254740993},  // 2^53 + 1
                                {"-3", -3},
                                {"64k", 64000},
                                {"64K", 64000},
                                {"16Ki", 16384},
                                {"16ki", 16384},
                                {"1.5M", 1500000},
                                {"0.5k", 500},
                                {"1.1k", 1100},
                                {"1.005M", 1005000},
                                {"2Mi", 2 << 20},
                                {"300B", 300000000000},
                                {"3P", 3000000000000000}})
    EXPECT_EQ(count(text), n) << text;
  for (const char* text : {"",
                           " ",
                           " 1",
                           "1 ",
                           "+1",
                           "k",
                           "1.5",
                           "0.0005k",
                           "1x",
                           "1kk",
                           "1KiB",
                           "1kB",
                           "0x10",
                           "1e",
                           "1e3",
                           "1e30",
                           "9223372036854775808",
                           "9300P",
                           "nan",
                           "inf",
                           "-",
                           "--1",
                           "1,000",
                           "1_000",
                           "٣"})
    EXPECT_EQ(count(text), -77) << text;
}

TEST(Amounts, CountsHaveBounds) {
  EXPECT_EQ(read_count("4k", 1, 4000).value(), 4000);
  const auto message = [](std::string_view text, int64_t least, int64_t most) {
    return read_count(text, least, most).error().message;
  };
  EXPECT_EQ(message("5k", 1, 4000), "must be a whole number from 1 to 4000, not '5k'");
  EXPECT_EQ(message("0", 1, int64_t{1} << 40), "must be a whole number of at least 1, not '0'");
  EXPECT_EQ(message("a", 0, 3), "must be a whole number from 0 to 3, not 'a'");
}

TEST(Amounts, Numbers) {
  EXPECT_EQ(read_amount("1e13", 0, HUGE_VAL).value(), 1e13);
  EXPECT_EQ(read_amount("15.6T", 0, HUGE_VAL).value(), 15.6e12);
  EXPECT_EQ(read_amount("0.25", 0, 1).value(), 0.25);
  EXPECT_EQ(read_amount("-1e-3", -1, 1).value(), -1e-3);
  for (const char* text : {"", "x", "nan", "inf", "1e999", "1e308k", "2", "0.5 "})
    EXPECT_FALSE(read_amount(text, 0, 1).ok()) << text;
  EXPECT_EQ(read_amount("2", 0, 1).error().message, "must be a number from 0 to 1, not '2'");
  EXPECT_EQ(read_amount("x", 1, HUGE_VAL).error().message,
            "must be a number of at least 1, not 'x'");
}

TEST(Amounts, Bytes) {
  const auto bytes = [](std::string_view text) {
    const auto n = read_bytes(text);
    return n.ok() ? *n : -77;
  };
  constexpr int64_t kOne = 1;
  for (const auto& [text, n] : {std::pair<const char*, int64_t>{"1", 1},
                                {"4096", 4096},
                                {"4096B", 4096},
                                {"64k", 64 << 10},
                                {"64K", 64 << 10},
                                {"64Ki", 64 << 10},
                                {"64KiB", 64 << 10},
                                {"64kB", 64000},
                                {"512MiB", 512 << 20},
                                {"512mib", 512 << 20},
                                {"512MB", 512000000},
                                {"2G", kOne << 31},
                                {"2g", kOne << 31},
                                {"2GiB", kOne << 31},
                                {"2GB", 2000000000},
                                {"1TiB", kOne << 40},
                                {"1tb", 1000000000000},
                                {"1.5TiB", 3 * (kOne << 39)},
                                {"1PiB", kOne << 50},
                                {"1e3", 1000},
                                {"1.15kB", 1150},
                                {"0.5KiB", 512}})
    EXPECT_EQ(bytes(text), n) << text;
  for (const char* text : {"", "0", "-1", "1x", "MiB", "1 MiB", "1MiBs", "1Mbit", "1iB", "1e30",
                           "8192PiB", "nan", "0.1"})
    EXPECT_EQ(bytes(text), -77) << text;
  EXPECT_NE(read_bytes("1Mbit").error().message.find("512MiB, 2G"), std::string::npos);
}

TEST(Amounts, NamesOfDevices) {
  for (const auto& [a, b] : {std::pair<const char*, const char*>{"H200", "h200"},
                             {"A100-40GB", "a100_40gb"},
                             {"TPU v4", "tpu-v4"},
                             {"rtx4090", "RTX-4090"}})
    EXPECT_TRUE(is_same_name(a, b)) << a;
  EXPECT_FALSE(is_same_name("h100", "h200"));
  EXPECT_FALSE(is_same_name("h100", "h100-pcie"));
}

}  // namespace
}  // namespace tegula
