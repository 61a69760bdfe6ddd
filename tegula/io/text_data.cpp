#include "tegula/io/text_data.h"

#include <sys/stat.h>

#include <cerrno>
#include <map>

#include "tegula/io/file.h"

namespace tegula {
namespace {

constexpr int64_t kTrainTenths = 9;

bool is_binary(std::string_view bytes) { return bytes.find('\0') != bytes.npos; }

bool is_utf16(std::string_view bytes) {
  return bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff");
}

class Walk {
 public:
  explicit Walk(TextData& data) : data_(data) {}

  void visit(const std::string& directory) {
    const auto names = list_directory(directory);
    if (!names.ok()) return skip(directory, "unreadable");
    for (const std::string& name : *names) {
      const std::string path = join_path(directory, name);
      struct stat info;
      if (::lstat(path.c_str(), &info) != 0)
        skip(path, "unreadable");
      else if (name.starts_with('.'))
        skip(path, "hidden");
      else if (S_ISLNK(info.st_mode))
        skip(path, "link");
      else if (S_ISDIR(info.st_mode))
        name == "build" ? skip(path, "build directory") : visit(path);
      else if (!S_ISREG(info.st_mode))
        skip(path, "not a file");
      else
        add(path);
    }
  }

 private:
  void add(const std::string& path) {
    const auto bytes = read_file(path);
    if (!bytes.ok()) return skip(path, "unreadable");
    if (bytes->empty()) return skip(path, "empty");
    if (is_binary(*bytes)) return skip(path, "binary");
    data_.text += *bytes;
    if (data_.text.back() != '\n') data_.text += '\n';
    ++data_.n_files;
  }
  void skip(const std::string& path, const char* reason) {
    data_.skipped.push_back({path, reason});
  }
  TextData& data_;
};

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

Result<TextData> load_text(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return file_error("read", path, errno);
  TextData data;
  if (S_ISDIR(info.st_mode)) {
    TEGULA_TRY(list_directory(path));  // the top one must be readable
    Walk(data).visit(path);
    if (data.n_files > 0) return data;
    std::string message = cat("the directory '", path, "' holds no text: ", data.summary());
    if (!data.skipped.empty())
      append(message, cat("; '", data.skipped[0].path, "' is ", data.skipped[0].reason));
    return invalid_argument(message + ". Give a text file or a directory of them");
  }
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
    return invalid_argument(cat("'", path, "' is neither a file nor a directory"));
  data.text = TEGULA_TRY(read_file(path));
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
