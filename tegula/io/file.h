// Files: whole reads, synced writes, atomic replacement, read-only maps, locks.
//
// Durability: what replace_file, OutputFile::finish and sync_directory report as done has been
// handed to the disk (fsync of the file, and of the directory for a new name). After a crash at
// any moment replace_file leaves the old bytes or the new ones, never a mixture.
// Errors: kIo, "cannot VERB 'PATH': REASON (ENAME). REMEDY"; kDevice where no other path would help
// (a full disk, a limit, a fault); kInvalidArgument for a directory given where a file is meant. A
// full disk is found at write, fsync or close, whichever says so. Cost: one pass over the bytes;
// reads allocate the size of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/io/sha256.h"

namespace tegula {

// The error for a failed system call: `action` is the verb ("read", "create", …).
Error file_error(std::string_view action, std::string_view path, int errno_value,
                 std::source_location where = std::source_location::current());

// All bytes of a regular file, a pipe (at most 4 GiB) or a terminal; other devices are refused.
Result<std::string> read_file(const std::string& path);
// Creates or truncates, writes, syncs. Not atomic: for files in a directory not yet published.
Status write_file(const std::string& path, std::string_view bytes);
// Atomic and durable: temporary sibling, fsync, rename, fsync of the directory.
Status replace_file(const std::string& path, std::string_view bytes);
// Atomic and durable: `path` becomes a symbolic link to `target`, whatever link it was before.
Status replace_link(const std::string& path, const std::string& target);
Status sync_directory(const std::string& path);
Status make_directories(const std::string& path);
// Removes a file or a directory with all it holds, following no links; absent is fine.
Status remove_tree(const std::string& path);
// Names in a directory without "." and "..", sorted by byte.
Result<std::vector<std::string>> list_directory(const std::string& path);
bool path_exists(const std::string& path);      // follows links
bool is_regular_file(const std::string& path);  // likewise
std::string join_path(std::string_view directory, std::string_view name);
std::string parent_path(std::string_view path);  // "." when there is none

// A file or a directory that gets its name once it is complete.
class Unpublished {
 public:
  explicit Unpublished(const std::string& path);
  Unpublished(const Unpublished&) = delete;
  ~Unpublished();  // removes it, unless it was published
  const std::string& temporary() const { return temporary_; }
  // Renames it, durably.
  Status publish();

 private:
  std::string path_, temporary_;
};

// A new file, written front to back through a buffer, hashed on the way. Without finish() the
// file stays as far as it got: its owner removes it.
class OutputFile {
 public:
  // Errors name `shown_path` where the file has a temporary name; empty means `path`.
  static Result<OutputFile> create(const std::string& path, const std::string& shown_path = "");
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  Status write(const void* data, size_t n_bytes);
  Status write(std::string_view bytes) { return write(bytes.data(), bytes.size()); }
  struct Digest {
    uint64_t n_bytes = 0;
    std::string sha256;  // 64 hex digits
  };
  uint64_t n_bytes() const { return n_bytes_; }  // so far
  // Flushes, fsyncs and closes; the size and the SHA-256 of what was written.
  Result<Digest> finish();

 private:
  OutputFile(int fd, std::string shown_path) : fd_(fd), path_(std::move(shown_path)) {}
  Status flush();
  int fd_ = -1;
  uint64_t n_bytes_ = 0;
  std::string path_;  // as errors show it
  std::string buffer_;
  Sha256 hash_;
};

// A whole file mapped read-only; writing through it faults. Pages come from the page cache on
// first touch. A file that someone truncates while it is mapped raises SIGBUS: published files
// are replaced, never rewritten in place.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// An exclusive advisory lock on a file that is made for it; released by the kernel when the
// process ends in any way. Where the file system has no locks, is_held() is false.
class FileLock {
 public:
  // kInvalidArgument when another holder has it.
  static Result<FileLock> acquire(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();
  bool is_held() const { return fd_ >= 0; }

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace tegula
