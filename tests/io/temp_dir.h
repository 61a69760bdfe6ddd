// A directory of its own for a test, removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tegula/io/file.h"

namespace tegula {

class TempDir {
 public:
  // In memory where possible: for tests of many saves, whose syncs would only test the disk.
  enum class Where { kDisk, kMemory };
  explicit TempDir(Where where = Where::kDisk) {
    static int counter = 0;
    const bool in_memory = where == Where::kMemory && ::access("/dev/shm", W_OK) == 0;
    path_ = cat(in_memory ? "/dev/shm/" : ::testing::TempDir(), "tegula-io-", ::getpid(), "-",
                counter++);
    EXPECT_TRUE(make_directories(path_).ok());
  }
  ~TempDir() { EXPECT_TRUE(remove_tree(path_).ok()); }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

// EXPECT that a Result failed with this code and that its message holds every one of the parts.
template <class R>
void expect_error(const R& result, Code code, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message;
  for (std::string_view part : parts)
    EXPECT_NE(result.error().message.find(part), std::string::npos)
        << "'" << part << "' is not in: " << result.error().message;
}

}  // namespace tegula
