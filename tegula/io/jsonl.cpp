#include "tegula/io/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "tegula/io/file.h"

namespace tegula {

Result<std::vector<Json>> read_jsonl(const std::string& path, std::vector<std::string>* broken) {
  const std::string text = TEGULA_TRY(read_file(path));
  std::vector<Json> rows;
  std::string_view rest = text;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    auto row = Json::parse(rest.substr(0, end), cat(path, ":", line));
    if (row.ok())
      rows.push_back(std::move(*row));
    else if (end != rest.npos && broken != nullptr)
      broken->push_back(std::move(row).error().message);
    else if (end != rest.npos)
      return std::move(row).error();
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  return rows;
}

Result<JsonlWriter> JsonlWriter::open(const std::string& path, int flags) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | flags, 0644);
  if (fd < 0) return file_error("create", path, errno);
  return JsonlWriter(fd, path);
}

Result<JsonlWriter> JsonlWriter::create(const std::string& path) { return open(path, O_TRUNC); }

Result<JsonlWriter> JsonlWriter::resume(const std::string& path, std::string_view key, double last,
                                        std::vector<std::string>& notes) {
  if (!path_exists(path)) return create(path);
  std::vector<std::string> broken;
  const std::vector<Json> rows = TEGULA_TRY(read_jsonl(path, &broken));
  if (!broken.empty())
    notes.push_back(cat("dropped ", broken.size(), broken.size() == 1 ? " row of '" : " rows of '",
                        path, "': ", broken[0]));
  std::string kept;
  for (const Json& row : rows) {
    const Json* value = row.find(key);
    if (value == nullptr || value->number(last) <= last) kept += row.dump() + "\n";
  }
  TEGULA_TRY(replace_file(path, kept));
  return open(path, 0);
}

JsonlWriter::JsonlWriter(JsonlWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

JsonlWriter::~JsonlWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Status JsonlWriter::append(const Json& row) {
  struct stat ours, named;
  if (::fstat(fd_, &ours) != 0) return file_error("write", path_, errno);
  if (::stat(path_.c_str(), &named) != 0 || ours.st_dev != named.st_dev ||
      ours.st_ino != named.st_ino)
    return Error{Code::kDevice, cat("'", path_, "' was moved or deleted while it was written: ",
                                    "what follows has no place in it")};
  const std::string line = row.dump() + "\n";
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  int error = 0;
  size_t n_written = 0;
  while (n_written < line.size() && error == 0) {
    const ssize_t n = ::write(fd_, line.data() + n_written, line.size() - n_written);
    if (n >= 0) n_written += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) error = errno;
  }
  if (error == 0) return {};
  // A full disk may take a part of the line: take it back, so that the file stays readable.
  if (n_written > 0 && before >= 0) (void)!::ftruncate(fd_, before);
  return file_error("write", path_, error);
}

}  // namespace tegula
