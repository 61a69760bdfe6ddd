#include "tegula/io/text_data.h"

#include <sys/stat.h>
#include <unistd.h>

#include <numeric>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// Whatever Windows adds to a text is no part of it, whatever file it stands in.
TEST(TextData, ByteOrderMarksAndCrLfOfWindowsAreLeftOut) {
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"\xef\xbb\xbf", ""},
                                    {"\xef\xbb\xbf"
                                     "a",
                                     "a"},
                                    {"a\xef\xbb\xbf", "a\xef\xbb\xbf"},
                                    {"\xef\xbb", "\xef\xbb"},
                                    {"a\r\nb\r\n", "a\nb\n"},
                                    {"\r\n\r\n", "\n\n"},
                                    {"a\rb\r", "a\rb\r"},
                                    {"\r\r\n\n\r", "\r\n\n\r"},
                                    {std::string("a\0\r\n", 4), std::string("a\0\n", 3)}})
    EXPECT_EQ(plain_text(bytes), text);
  TempDir dir;
  ASSERT_TRUE(make_directories(dir / "tree").ok());
  ASSERT_TRUE(write_file(dir / "tree/a",
                         "\xef\xbb\xbf"
                         "A\r\n")
                  .ok());
  ASSERT_TRUE(write_file(dir / "tree/b",
                         "\xef\xbb\xbf"
                         "B")
                  .ok());
  ASSERT_TRUE(write_file(dir / "tree/c", "\xef\xbb\xbf").ok());
  EXPECT_EQ(load_text(dir / "tree/a").value().text, "A\n");
  EXPECT_EQ(load_text(dir / "tree").value().text, "A\nB\n");
  expect_error(load_text(dir / "tree/c"), Code::kInvalidArgument, {"is empty"});
  EXPECT_EQ(read_text(dir / "tree/a").value(), "A\n");
  ASSERT_TRUE(write_file(dir / "utf16", std::string("\xff\xfe"
                                                    "a\0",
                                                    4))
                  .ok());
  expect_error(read_text(dir / "utf16"), Code::kInvalidArgument, {"UTF-16", "iconv"});
}

TEST(TextData, AFileIsTakenAsItIs) {
  TempDir dir;
  const std::string text = "no newline at the end, \xff\xfe and é";
  ASSERT_TRUE(write_file(dir / "t", text).ok());
  const TextData data = load_text(dir / "t").value();
  EXPECT_EQ(data.text, text);
  EXPECT_EQ(data.summary(), cat("1 file, ", text.size(), " bytes"));
}

TEST(TextData, ADirectoryIsWalkedInOrderAndSaysWhatItLeavesOut) {
  TempDir dir;
  for (const char* d : {"src/sub", ".git", "build", "src/build"})
    ASSERT_TRUE(make_directories(dir / d).ok());
  for (const auto& [name, text] : {std::pair<const char*, std::string>{"b.txt", "B"},
                                   {"a.txt", "A\n"},
                                   {"src/z.cpp", "Z"},
                                   {"src/sub/y.cpp", "Y\n"},
                                   {"src.txt", "S"},
                                   {"empty", ""},
                                   {"image", std::string("P\0NG", 4)},
                                   {".hidden", "H"},
                                   {".git/config", "G"},
                                   {"build/out", "O"},
                                   {"src/build/out", "O"}})
    ASSERT_TRUE(write_file(dir / name, text).ok());
  ASSERT_EQ(::symlink("..", (dir / "src/loop").c_str()), 0);
  ASSERT_EQ(::symlink("a.txt", (dir / "copy").c_str()), 0);
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const TextData data = load_text(dir.path()).value();
  EXPECT_EQ(data.text, "A\nB\nY\nZ\nS\n");
  EXPECT_EQ(data.n_files, 5);
  EXPECT_EQ(data.summary(),
            "5 files, 10 bytes; skipped 9 (binary: 1, build directory: 2, empty: 1, hidden: 2, "
            "link: 2, not a file: 1)");
}

TEST(TextData, BadDataIsAnError) {
  TempDir dir;
  expect_error(load_text(dir / "absent"), Code::kIo, {"/absent'", "No such file"});
  expect_error(load_text(dir.path()), Code::kInvalidArgument, {"holds no text", "0 files"});
  ASSERT_TRUE(write_file(dir / "empty", "").ok());
  expect_error(load_text(dir / "empty"), Code::kInvalidArgument, {"/empty' is empty"});
  ASSERT_TRUE(write_file(dir / "bin", std::string("ab\0c", 4)).ok());
  expect_error(load_text(dir / "bin"), Code::kInvalidArgument,
               {"/bin' is binary", "NUL byte at 2"});
  ASSERT_TRUE(write_file(dir / "utf16", std::string("\xff\xfe"
                                                    "a\0",
                                                    4))
                  .ok());
  expect_error(load_text(dir / "utf16"), Code::kInvalidArgument, {"UTF-16", "iconv"});
  expect_error(load_text(dir.path()), Code::kInvalidArgument,
               {"holds no text", "binary: 2", "empty: 1", "/bin' is binary"});
  expect_error(load_text("/dev/zero"), Code::kInvalidArgument, {"neither a file nor a directory"});
  if (::geteuid() != 0) {
    ASSERT_TRUE(write_file(dir / "secret", "s").ok());
    ::chmod((dir / "secret").c_str(), 0);
    expect_error(load_text(dir / "secret"), Code::kIo, {"EACCES"});
  }
}

TEST(TextData, SplitsNineToOne) {
  std::vector<int32_t> tokens(1115394);
  std::iota(tokens.begin(), tokens.end(), 0);
  const TokenData data = split_tokens(std::move(tokens), 64).value();
  EXPECT_EQ(data.train().size(), 1003854u);  // as nanoGPT's split of the same text
  EXPECT_EQ(data.validation().size(), 111540u);
  EXPECT_EQ(data.train().front(), 0);
  EXPECT_EQ(data.validation().front(), 1003854);
}

TEST(TextData, TextShorterThanOneSequenceIsAnErrorWithNumbers) {
  const auto tokens = [](size_t n) { return std::vector<int32_t>(n); };
  expect_error(split_tokens(tokens(100), 64), Code::kInvalidArgument,
               {"100 tokens", "90 train", "10 validate", "65", "650 tokens", "at most 9"});
  expect_error(split_tokens({}, 8), Code::kInvalidArgument, {"0 tokens", "at most 0"});
  EXPECT_TRUE(split_tokens(tokens(650), 64).ok());
  EXPECT_FALSE(split_tokens(tokens(640), 64).ok());
  EXPECT_TRUE(split_tokens(tokens(100), 9).ok());
}

}  // namespace
}  // namespace tegula
