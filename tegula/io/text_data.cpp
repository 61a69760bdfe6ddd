#include "tegula/io/text_data.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "tegula/io/file.h"
#include "tegula/io/run_directory.h"

namespace tegula {
namespace {

constexpr int64_t kTrainTenths = 9;

bool is_binary(std::string_view bytes) { return bytes.find('\0') != bytes.npos; }

bool is_utf16(std::string_view bytes) {
  return bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff");
}

// File systems whose files are no stored bytes: reading them may never end.
bool is_storage(const std::string& directory) {
  struct statfs info;
  if (::statfs(directory.c_str(), &info) != 0) return true;
  for (const int64_t magic : {PROC_SUPER_MAGIC + 0L, SYSFS_MAGIC + 0L, DEBUGFS_MAGIC + 0L,
                              TRACEFS_MAGIC + 0L, CGROUP_SUPER_MAGIC + 0L, CGROUP2_SUPER_MAGIC + 0L,
                              DEVPTS_SUPER_MAGIC + 0L, SECURITYFS_MAGIC + 0L, BPF_FS_MAGIC + 0L})
    if (info.f_type == magic) return false;
  return true;
}

class Walk {
 public:
  Walk(TextData& data, const std::string& out) : data_(data) {
    has_out_ = !out.empty() && ::stat(out.c_str(), &out_) == 0;
  }

  Status visit(const std::string& directory) {
    if (!is_storage(directory)) return skip(directory, "no stored files");
    const auto names = list_directory(directory);
    if (!names.ok()) return skip(directory, "unreadable");
    for (const std::string& name : *names) {
      const std::string path = join_path(directory, name);
      struct stat info;
      if (::lstat(path.c_str(), &info) != 0)
        TEGULA_TRY(skip(path, "unreadable"));
      else if (name.starts_with('.'))
        TEGULA_TRY(skip(path, "hidden"));
      else if (S_ISLNK(info.st_mode))
        TEGULA_TRY(skip(path, "link"));
      else if (S_ISDIR(info.st_mode))
        TEGULA_TRY(enter(path, name, info));
      else if (!S_ISREG(info.st_mode))
        TEGULA_TRY(skip(path, "not a file"));
      else
        TEGULA_TRY(add(path, info.st_size));
    }
    return {};
  }

 private:
  Status enter(const std::string& path, const std::string& name, const struct stat& info) {
    const bool is_out = has_out_ && info.st_dev == out_.st_dev && info.st_ino == out_.st_ino;
    if (is_out || is_run_directory(path)) return skip(path, "output of tegula");
    return name == "build" ? skip(path, "build directory") : visit(path);
  }
  Status add(const std::string& path, int64_t n_bytes) {
    if (n_bytes == 0) return skip(path, "empty");
    if (n_bytes > kMostTextBytes - static_cast<int64_t>(data_.text.size())) return too_much(path);
    auto bytes = read_file(path);
    if (!bytes.ok()) return skip(path, "unreadable");
    if (is_binary(*bytes)) return skip(path, "binary");
    const std::string text = plain_text(std::move(bytes).value());
    if (text.empty()) return skip(path, "empty");
    data_.text += text;
    if (data_.text.back() != '\n') data_.text += '\n';
    return ++data_.n_files > kMostTextFiles ? too_much(path) : Status();
  }
  Status skip(const std::string& path, const char* reason) {
    data_.skipped.push_back({path, reason});
    const auto n = static_cast<int64_t>(data_.skipped.size());
    return n > kMostTextFiles ? too_much(path) : Status();
  }
  Status too_much(const std::string& path) const {
    return invalid_argument(cat("the directory holds more than is read of one, ", kMostTextFiles,
                                " files and ", kMostTextBytes >> 30, " GiB of text: reached at '",
                                path, "', after ", data_.summary(), ". Give a smaller directory"));
  }
  TextData& data_;
  struct stat out_ {};
  bool has_out_ = false;
};

// A pipe that the shell made (<(zcat FILE)) and not one with a name in a directory, which may have
// no writer: opening it would wait for ever.
bool is_unnamed_pipe(std::string path) {
  for (int links = 0; links < 8; ++links) {  // /dev/stdin -> /proc/self/fd/0 -> pipe:[1234]
    char target[4096];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    if (n <= 0) return false;
    path.assign(target, static_cast<size_t>(n));
    if (path.starts_with("pipe:")) return true;
  }
  return false;
}

Result<TextData> load_directory(const std::string& path, const std::string& out) {
  if (is_run_directory(path))
    return invalid_argument(cat("'", path,
                                "' is the output of a training run, which is no text to "
                                "train on: give another directory, or a file of it by name"));
  TextData data;
  TEGULA_TRY(list_directory(path));  // the top one must be readable
  TEGULA_TRY(Walk(data, out).visit(path));
  if (data.n_files > 0) return data;
  std::string message = cat("the directory '", path, "' holds no text: ", data.summary());
  if (!data.skipped.empty())
    append(message, cat("; '", data.skipped[0].path, "' is ", data.skipped[0].reason));
  return invalid_argument(message + ". Give a text file or a directory of them");
}

}  // namespace

std::string TextData::summary() const {
  std::string line = cat(n_files, n_files == 1 ? " file, " : " files, ", text.size(), " bytes");
  if (skipped.empty()) return line;
  std::map<std::string, int64_t> counts;
  for (const SkippedFile& s : skipped) ++counts[s.reason];
  append(line, cat("; skipped ", skipped.size(), " ("));
  std::string_view comma = "";
  for (const auto& [reason, n] : counts) {
    append(line, cat(comma, reason, ": ", n));
    comma = ", ";
  }
  return line + ")";
}

std::string plain_text(std::string bytes) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (bytes.starts_with(kByteOrderMark)) bytes.erase(0, kByteOrderMark.size());
  size_t at = bytes.find("\r\n");
  if (at == bytes.npos) return bytes;
  for (size_t i = at; i < bytes.size(); ++i)
    if (bytes[i] != '\r' || i + 1 == bytes.size() || bytes[i + 1] != '\n') bytes[at++] = bytes[i];
  bytes.resize(at);
  return bytes;
}

Result<std::string> read_text(const std::string& path) {
  std::string bytes = TEGULA_TRY(read_file(path == "-" ? "/dev/stdin" : path));
  if (is_utf16(bytes) && is_binary(bytes))
    return invalid_argument(cat("'", path, "' looks like UTF-16: convert it with iconv -t UTF-8"));
  return plain_text(std::move(bytes));
}

Result<TextData> load_text(const std::string& path, const std::string& out) {
  const bool is_input = path == "-";
  struct stat info;
  if ((is_input ? ::fstat(STDIN_FILENO, &info) : ::stat(path.c_str(), &info)) != 0)
    return file_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) return load_directory(path, out);
  if (!is_input && S_ISFIFO(info.st_mode) && !is_unnamed_pipe(path))
    return invalid_argument(cat("'", path,
                                "' is a named pipe, which may never be written to: give "
                                "--data - and the pipe as standard input, < ",
                                path));
  if (!is_input && !S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
    return invalid_argument(cat("'", path, "' is neither a file nor a directory"));
  TextData data;
  data.text = plain_text(TEGULA_TRY(read_file(is_input ? "/dev/stdin" : path)));
  data.n_files = 1;
  if (data.text.empty())
    return invalid_argument(cat("the file '", path, "' is empty: there is nothing to train on"));
  if (is_binary(data.text))
    return invalid_argument(
        cat("the file '", path, "' is binary: it has a NUL byte at ", data.text.find('\0'), ". ",
            is_utf16(data.text) ? "It looks like UTF-16: convert it with iconv -t UTF-8"
                                : "Give plain text"));
  return data;
}

Result<TokenData> split_tokens(std::vector<int32_t> tokens, int64_t seqlen) {
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t n_train = n * kTrainTenths / 10;
  const int64_t needed = seqlen + 1;
  if (n_train < needed || n - n_train < needed)
    return invalid_argument(cat("the text is too short: ", n, " tokens, of which ", n_train,
                                " train and ", n - n_train, " validate, but each part needs ",
                                needed, " (seqlen ", seqlen, " and one more). Give at least ",
                                10 * needed, " tokens or choose a seqlen of at most ",
                                std::max<int64_t>(std::min(n_train, n - n_train) - 1, 0)));
  return TokenData{std::move(tokens), static_cast<size_t>(n_train)};
}

}  // namespace tegula
