// Tests what may be lost when the power goes: the calls of the operating system are recorded, and
// nothing is given its final name, or reported as saved, before it has been flushed.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <vector>

#include "tegula/io/checkpoint.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// A disk that keeps what was flushed, and forgets the rest: contents by fsync of a file, names by
// fsync of the directory that holds them.
class Disk {
 public:
  static Disk* recording;
  Disk() { recording = this; }
  ~Disk() { recording = nullptr; }

  // A file that is called temporary may come and go unseen.
  void named(const std::string& path) {
    if (path.substr(path.rfind('/') + 1).starts_with(".tmp-")) return;
    unsaved_names_.insert(key(parent_path(path)));
  }
  void written(int fd) {
    const Key k = key(fd);
    if (k.is_regular) unsaved_contents_.insert(k);
  }
  void flushed(int fd) {
    const Key k = key(fd);
    unsaved_contents_.erase(k), unsaved_names_.erase(k);
    n_flushes_++;
  }
  void renamed(const std::string& from, const std::string& to) {
    require_saved(from, cat(from, " becomes ", to));
    named(to);
    n_renames_++;
  }
  // A file, or all that a directory or link leads to.
  void require_saved(const std::string& path, const std::string& when) {
    const Key k = key(path);
    if (unsaved_contents_.count(k)) lost.push_back(cat("contents of ", path, " when ", when));
    if (unsaved_names_.count(k)) lost.push_back(cat("names in ", path, " when ", when));
    struct stat info;
    if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return;
    const std::vector<std::string> names = list_directory(path).value();
    for (const std::string& name : names) require_saved(join_path(path, name), when);
  }
  std::vector<std::string> lost;
  int n_flushes() const { return n_flushes_; }
  int n_renames() const { return n_renames_; }

 private:
  struct Key {
    uint64_t device = 0, inode = 0;
    bool is_regular = false;
    auto operator<=>(const Key&) const = default;
  };
  static Key of(const struct stat& s) { return {s.st_dev, s.st_ino, S_ISREG(s.st_mode)}; }
  static Key key(int fd) {
    struct stat s = {};
    ::fstat(fd, &s);
    return of(s);
  }
  static Key key(const std::string& path) {
    struct stat s = {};
    ::stat(path.c_str(), &s);
    return of(s);
  }
  std::set<Key> unsaved_contents_, unsaved_names_;
  int n_flushes_ = 0, n_renames_ = 0;
};
Disk* Disk::recording = nullptr;

}  // namespace
}  // namespace tegula

// The library's calls come here, since the linker finds a program's own functions first.
using tegula::Disk;
extern "C" {
ssize_t write(int fd, const void* data, size_t n) {
  const auto result = ::syscall(SYS_write, fd, data, n);
  if (Disk::recording && result > 0) Disk::recording->written(fd);
  return result;
}
int fsync(int fd) {
  const auto result = static_cast<int>(::syscall(SYS_fsync, fd));
  if (Disk::recording && result == 0) Disk::recording->flushed(fd);
  return result;
}
int rename(const char* from, const char* to) noexcept {
  if (Disk::recording) Disk::recording->renamed(from, to);
  return static_cast<int>(::syscall(SYS_rename, from, to));
}
int mkdir(const char* path, mode_t mode) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_mkdir, path, mode));
  if (Disk::recording && result == 0) Disk::recording->named(path);
  return result;
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
  va_end(rest);
  struct stat info;
  const bool is_new = (flags & O_CREAT) && ::stat(path, &info) != 0;
  const auto result = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (Disk::recording && result >= 0 && is_new) Disk::recording->named(path);
  return result;
}
}

namespace tegula {
namespace {

TEST(Durability, AReplacedFileIsFlushedBeforeItsNameAndItsNameAfter) {
  TempDir dir;
  Disk disk;
  ASSERT_TRUE(replace_file(dir / "f", "contents").ok());
  disk.require_saved(dir.path(), "replace_file returns");
  EXPECT_EQ(disk.lost, std::vector<std::string>());
  EXPECT_EQ(disk.n_renames(), 1);
  EXPECT_GE(disk.n_flushes(), 2);
}

TEST(Durability, ACheckpointIsFlushedWholeBeforeItIsPublished) {
  TempDir dir;
  const std::string out = dir / "runs/out";
  Disk disk;
  for (int64_t step = 1; step <= 3; ++step) {
    auto writer = CheckpointWriter::begin(out, step);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    const std::vector<int32_t> values(700, 1);
    const NamedTensor tensors[] = {
        {"w", contiguous_ref(const_cast<int32_t*>(values.data()), {DType::kI32, {700}})}};
    ASSERT_TRUE(writer->add_tensors(kModelFile, tensors).ok());
    ASSERT_TRUE(writer->add_file(kConfigFile, "{}").ok());
    ASSERT_TRUE(writer->publish().ok());
    disk.require_saved(dir.path(), cat("step ", step, " is reported as saved"));
  }
  EXPECT_EQ(disk.lost, std::vector<std::string>());
  EXPECT_GE(disk.n_renames(), 6);
}

}  // namespace
}  // namespace tegula
