// JSON Lines: one JSON value a line; the metrics of a run.
//
// A row is written by one system call and is in the file when append() returns (not synced: a
// metric may be lost in a power cut, never torn by a crash of the process). resume() repairs what
// a crash, a bad disk or a rewind left: lines that are not JSON, and rows beyond the step that is
// resumed from.
// Errors: kIo; kInvalidArgument for a line in the middle that is not JSON, naming file and line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/io/json.h"

namespace tegula {

class JsonlWriter {
 public:
  // A new, empty file.
  static Result<JsonlWriter> create(const std::string& path);
  // Goes on after the rows of the file whose number `key` is at most `last`; others, and a torn
  // last line, are dropped. So are broken lines in the middle, which a line in `notes` tells. An
  // absent file is created.
  static Result<JsonlWriter> resume(const std::string& path, std::string_view key, double last,
                                    std::vector<std::string>& notes);
  JsonlWriter(JsonlWriter&& other) noexcept;
  JsonlWriter& operator=(JsonlWriter&&) = delete;
  ~JsonlWriter();

  Status append(const Json& row);

 private:
  static Result<JsonlWriter> open(const std::string& path, int flags);
  JsonlWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

// The rows of a file; a last line without a newline that is not JSON is left out. With `broken`,
// lines in the middle that are not JSON are no error: it gets the reasons.
Result<std::vector<Json>> read_jsonl(const std::string& path,
                                     std::vector<std::string>* broken = nullptr);

}  // namespace tegula
