#include "tegula/io/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tegula/io/file.h"

namespace tegula {
namespace {

// The kind of entry that a run makes under each name.
enum class Kind { kDirectory, kFile, kLink, kLinkToDirectory };
struct Name {
  std::string_view name;
  Kind kind;
};
constexpr Name kNames[] = {
    {"checkpoints", Kind::kDirectory},     {"latest", Kind::kLinkToDirectory},
    {"best", Kind::kLinkToDirectory},      {"metrics.jsonl", Kind::kFile},
    {"report.html", Kind::kFile},          {"model.safetensors", Kind::kLink},
    {"config.json", Kind::kLink},          {"tokenizer.json", Kind::kLink},
    {"tokenizer_config.json", Kind::kLink}};

bool look(const std::string& path, struct stat& info) { return ::lstat(path.c_str(), &info) == 0; }

// A copy may have a link's text or target in its place.
bool is_of(Kind kind, const struct stat& info) {
  switch (kind) {
    case Kind::kDirectory:
      return S_ISDIR(info.st_mode);
    case Kind::kFile:
      return S_ISREG(info.st_mode);
    case Kind::kLink:
      return S_ISLNK(info.st_mode) || S_ISREG(info.st_mode);
    case Kind::kLinkToDirectory:
      return S_ISLNK(info.st_mode) || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
  }
  return false;
}

std::string_view what_is(const struct stat& info) {
  return S_ISLNK(info.st_mode)   ? "a link"
         : S_ISDIR(info.st_mode) ? "a directory"
         : S_ISREG(info.st_mode) ? "a file"
                                 : "a device or a pipe";
}

bool is_step_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789.", kPrefix.size()) == name.npos;
}

std::vector<Name> names_with(std::span<const std::string> files) {
  std::vector<Name> names(std::begin(kNames), std::end(kNames));
  for (const std::string& file : files) names.push_back({file, Kind::kLink});
  return names;
}

std::string link_target(const std::string& path) {
  char target[256] = {};
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target - 1);
  return std::string(target, n > 0 ? static_cast<size_t>(n) : 0);
}

// Other files of a checkpoint, which have links there, too.
std::vector<std::string> links_into_latest(const std::string& dir) {
  std::vector<std::string> links;
  if (const auto names = list_directory(dir); names.ok())
    for (const std::string& name : *names)
      if (link_target(join_path(dir, name)) == cat("latest/", name)) links.push_back(name);
  return links;
}

Status remove_name(const std::string& dir, const Name& n) {
  const std::string path = join_path(dir, n.name);
  struct stat info;
  if (n.kind != Kind::kDirectory || !look(path, info) || !S_ISDIR(info.st_mode))
    return remove_tree(path);
  for (const std::string& name : TEGULA_TRY(list_directory(path)))
    if (is_step_name(name) || name == "best.json") TEGULA_TRY(remove_tree(join_path(path, name)));
  return {};
}

}  // namespace

bool is_run_directory(const std::string& dir) {
  if (path_exists(join_path(dir, kRunMarker))) return true;
  return link_target(join_path(dir, "latest")).starts_with("checkpoints/step-") ||
         (path_exists(join_path(dir, "checkpoints")) &&
          path_exists(join_path(dir, "latest/manifest.json")));
}

Status check_run_directory(const std::string& dir, RunStart start) {
  struct stat info;
  if (::stat(dir.c_str(), &info) != 0)
    return errno == ENOENT ? Status() : Status(file_error("open", dir, errno));
  if (!S_ISDIR(info.st_mode)) return file_error("write into", dir, ENOTDIR);
  if (start == RunStart::kOverwrite) return {};
  const bool is_ours = start == RunStart::kResume || is_run_directory(dir);
  for (const Name& n : kNames) {
    const std::string path = join_path(dir, n.name);
    if (!look(path, info) || (is_ours && is_of(n.kind, info))) continue;
    return invalid_argument(
        cat("'", path, "' is ", what_is(info),
            is_ours ? " and not what a run makes of that name" : " that tegula did not write",
            ", and a run would overwrite it: choose another output directory, "
            "move it away, or insist with --overwrite"));
  }
  return {};
}

Status clear_run_directory(const std::string& dir, std::span<const std::string> files) {
  const std::vector<std::string> links = links_into_latest(dir);
  for (const Name& n : names_with(links)) TEGULA_TRY(remove_name(dir, n));
  for (const Name& n : names_with(files)) TEGULA_TRY(remove_name(dir, n));
  return {};
}

Status mark_run_directory(const std::string& dir) {
  TEGULA_TRY(make_directories(dir));
  const std::string marker = join_path(dir, kRunMarker);
  struct stat info;
  if (look(marker, info)) return {};
  return write_file(marker,
                    "tegula train writes its checkpoints, metrics and report into this directory, "
                    "and reads no text from it.\n");
}

bool is_written_by_run(const std::string& dir, const std::string& path) {
  struct stat input, output;
  if (::stat(path.c_str(), &input) != 0) return false;
  const std::vector<std::string> links = links_into_latest(dir);
  for (const Name& n : names_with(links))
    if (::stat(join_path(dir, n.name).c_str(), &output) == 0 && input.st_dev == output.st_dev &&
        input.st_ino == output.st_ino)
      return true;
  return false;
}

}  // namespace tegula
