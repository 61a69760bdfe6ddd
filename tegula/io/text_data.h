// Text to train on: a file, or all the text in a directory; then tokens, cut in two.
//
// "-" is standard input. Bytes are UTF-8 by habit, but any will do; what Windows adds to a text is
// left out, in every file: the byte order mark at its start, and the CR of a line that ends with CR
// LF. So a text has the same tokens wherever it was saved. A directory is walked recursively in the
// byte order of its names and the files are joined, each ended by a newline; so the same tree gives
// the same text everywhere. In a walk these are left out, and counted: names that begin with a dot
// (.git), directories named build, what runs of Tegula wrote, symbolic links, what is no regular
// file, file systems that are no storage (/proc), files with NUL bytes (binary), empty files,
// unreadable ones.
// Errors: kIo for what is missing or unreadable; kInvalidArgument for empty or binary data
// (saying so for UTF-16), directories without text or with more than kMostTextBytes in
// kMostTextFiles, named pipes and devices, and text shorter than one sequence.
// Cost: one read; memory of the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

struct SkippedFile {
  std::string path;
  std::string reason;
};

struct TextData {
  std::string text;
  int64_t n_files = 0;
  std::vector<SkippedFile> skipped;
  // "12 files, 345678 bytes; skipped 3 (binary: 2, hidden: 1)"
  std::string summary() const;
};

inline constexpr int64_t kMostTextBytes = int64_t{16} << 30, kMostTextFiles = 1000000;

// Without a byte order mark at the start; CR LF is LF. A CR alone stays.
std::string plain_text(std::string bytes);
// A prompt or another text that is no training data: all of it, plain, NUL bytes too. "-" is
// standard input. Errors: those of read_file; UTF-16.
Result<std::string> read_text(const std::string& path);

// `out`, if it lies in the directory `path`, is left out: a run shall not read what it writes.
Result<TextData> load_text(const std::string& path, const std::string& out = "");

// The first 90 % of the tokens train, the rest validate.
struct TokenData {
  std::vector<int32_t> tokens;
  size_t n_train = 0;
  std::span<const int32_t> train() const { return std::span(tokens).first(n_train); }
  std::span<const int32_t> validation() const { return std::span(tokens).subspan(n_train); }
};

// Both parts must hold one sequence and the token after it: seqlen + 1 tokens.
Result<TokenData> split_tokens(std::vector<int32_t> tokens, int64_t seqlen);

}  // namespace tegula
