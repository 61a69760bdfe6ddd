#include "cli/paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tegula/io/file.h"

namespace tegula::cli {

namespace {
bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string real_path(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  std::string text = real ? real : path;
  std::free(real);
  return text;
}

// Whether the file `out`, which is there, belongs to the directory.
bool is_part_of(const std::string& out, const struct stat& info, const std::string& directory) {
  if (real_path(out).starts_with(real_path(directory) + "/")) return true;
  const auto names = list_directory(directory);
  if (!names.ok()) return false;
  for (const std::string& name : *names) {
    struct stat file;
    if (::stat(join_path(directory, name).c_str(), &file) == 0 && is_same(file, info)) return true;
  }
  return false;
}
}  // namespace

Status keep_inputs(const NamedPath& out, std::initializer_list<NamedPath> inputs) {
  struct stat to, from;
  if (::stat(out.path.c_str(), &to) != 0 || S_ISCHR(to.st_mode) || S_ISFIFO(to.st_mode)) return {};
  for (const NamedPath& in : inputs) {
    if (in.path.empty() || ::stat(in.path.c_str(), &from) != 0) continue;
    if (is_same(to, from) || (S_ISDIR(from.st_mode) && is_part_of(out.path, to, in.path)))
      return invalid_argument(cat(
          out.flag, " '", out.path, "' is ", S_ISDIR(from.st_mode) ? "a file of " : "", in.flag,
          " '", in.path, "': writing it would destroy what is read; choose another ", out.flag));
  }
  return {};
}

bool is_same_place(const std::string& a, const std::string& b) {
  struct stat of_a, of_b;
  return ::stat(a.c_str(), &of_a) == 0 && ::stat(b.c_str(), &of_b) == 0 && is_same(of_a, of_b);
}

std::string input_path(const std::string& path) { return path == "-" ? "/dev/stdin" : path; }

Status write_result(const std::string& path, const std::string& bytes) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
    return replace_file(real_path(path), bytes);
  // Opening a pipe that nobody reads would wait for ever.
  const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno == ENXIO)
    return invalid_argument(cat("'", path,
                                "' is a pipe or a socket that nobody reads: start its "
                                "reader first, or name a file"));
  if (fd < 0) return file_error("open", path, errno);
  ::fcntl(fd, F_SETFL, O_WRONLY);
  int error = 0;
  for (size_t at = 0; at < bytes.size() && error == 0;) {
    const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (n >= 0) at += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) error = errno;
  }
  ::close(fd);
  return error == 0 ? Status() : Status(file_error("write", path, error));
}

}  // namespace tegula::cli
