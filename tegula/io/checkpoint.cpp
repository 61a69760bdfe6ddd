#include "tegula/io/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/io/manifest.h"

namespace tegula {
namespace {

constexpr std::string_view kDirectory = "checkpoints";
constexpr std::string_view kLatest = "latest";
constexpr std::string_view kBest = "best";
constexpr std::string_view kBestFile = "best.json";  // in checkpoints/
constexpr std::string_view kLock = ".lock";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kDoomed = "old-";
constexpr size_t kKept = 2;

std::string checkpoints_of(const std::string& dir) { return join_path(dir, kDirectory); }

// A name of the form step-N or step-N.K, in order of age.
struct StepName {
  int64_t step = -1, repeat = 0;
  std::string name;
};

StepName parse_step_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  StepName s{-1, 0, name};
  if (!name.starts_with(kPrefix)) return s;
  const char* const end = name.data() + name.size();
  auto parsed = std::from_chars(name.data() + kPrefix.size(), end, s.step);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.')
    parsed = std::from_chars(parsed.ptr + 1, end, s.repeat);
  if (parsed.ec != std::errc() || parsed.ptr != end) s.step = -1;
  return s;
}

std::string step_name(int64_t step, int64_t repeat) {
  return printed("step-%06lld", static_cast<long long>(step)) +
         (repeat == 0 ? "" : cat(".", repeat));
}

std::string read_link(const std::string& path) {
  std::string target(4096, '\0');
  const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
  target.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return target;
}

mode_t mode_of(const std::string& path) {  // of a link itself; 0: nothing is there
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode : 0;
}
bool is_there(const std::string& path) { return mode_of(path) != 0; }
bool is_link(const std::string& path) { return S_ISLNK(mode_of(path)); }
bool is_plain_file(const std::string& path) { return S_ISREG(mode_of(path)); }

// The checkpoint that `latest` or `best` names, without its directory. In a copy the name may be a
// file with what was the link's text, or a directory with the checkpoint's files.
std::string named_checkpoint(const std::string& dir, std::string_view name) {
  const std::string path = join_path(dir, name);
  if (is_link(path) || is_plain_file(path)) {
    const auto text = is_link(path) ? Result<std::string>(read_link(path)) : read_file(path);
    return text.ok() ? text->substr(text->rfind('/') + 1) : "";
  }
  const auto its = read_file(join_path(path, kManifestFile));
  const auto all = list_directory(checkpoints_of(dir));
  if (!its.ok() || !all.ok()) return "";
  for (const std::string& step : *all) {
    const auto other = read_file(join_path(join_path(checkpoints_of(dir), step), kManifestFile));
    if (parse_step_name(step).step >= 0 && other.ok() && *other == *its) return step;
  }
  return "";
}

// Names in DIR/checkpoints: what `latest` names, then `previous`, then by descending step.
std::vector<std::string> candidates(const std::string& dir, std::string_view previous = "") {
  std::vector<StepName> found;
  if (const auto names = list_directory(checkpoints_of(dir)); names.ok())
    for (const std::string& name : *names)
      if (StepName s = parse_step_name(name); s.step >= 0) found.push_back(std::move(s));
  const std::string latest = named_checkpoint(dir, kLatest);
  const auto place = [&](const StepName& s) {
    return s.name == latest ? 0 : s.name == previous ? 1 : 2;
  };
  std::sort(found.begin(), found.end(), [&](const StepName& a, const StepName& b) {
    if (place(a) != place(b)) return place(a) < place(b);
    return a.step != b.step ? a.step > b.step : a.repeat > b.repeat;
  });
  std::vector<std::string> names;
  for (StepName& s : found) names.push_back(std::move(s.name));
  return names;
}

// Whether .tmp-NAME in checkpoints/ is what a writer that died left: .tmp-step-N-PID or
// .tmp-old-step-N, a directory of nothing but files.
bool is_stale(const std::string& dir, std::string_view name) {
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  const bool is_doomed = name.starts_with(kDoomed);
  if (is_doomed) name.remove_prefix(kDoomed.size());
  const size_t dash = is_doomed ? name.npos : name.rfind('-');
  if (parse_step_name(std::string(name.substr(0, dash))).step < 0) return false;
  if (!is_doomed && name.find_first_not_of("0123456789", dash + 1) != name.npos) return false;
  const std::string path =
      join_path(checkpoints_of(dir), cat(kTemporary, is_doomed ? kDoomed : "", name));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  const auto names = list_directory(path);
  return names.ok() && std::all_of(names->begin(), names->end(), [&](const std::string& file) {
           return ::lstat(join_path(path, file).c_str(), &info) == 0 && S_ISREG(info.st_mode);
         });
}

// Removes what writers that died left behind. Only under the lock: nobody else is writing.
void remove_stale(const std::string& dir) {
  if (const auto names = list_directory(checkpoints_of(dir)); names.ok())
    for (const std::string& name : *names)
      if (is_stale(dir, name)) (void)remove_tree(join_path(checkpoints_of(dir), name));
  if (const auto names = list_directory(dir); names.ok())
    for (const std::string& name : *names) {
      const std::string path = join_path(dir, name), target = read_link(path);
      if (name.starts_with(kTemporary) &&
          (target.starts_with(cat(kLatest, "/")) || target.starts_with(cat(kDirectory, "/step-"))))
        (void)remove_tree(path);
    }
}

Status check_root_name(const std::string& dir, std::string_view name) {
  const std::string path = join_path(dir, name);
  if (!is_there(path) || is_link(path)) return {};
  return invalid_argument(cat("'", path, "' is there already and is not a checkpoint's; saving ",
                              "would hide it. Choose another output directory or move it away"));
}

// A checkpoint loses its name before it loses its files, so that every step-N is complete.
Status remove_checkpoint(const std::string& dir, const std::string& name) {
  const std::string path = join_path(checkpoints_of(dir), name);
  const std::string doomed = join_path(checkpoints_of(dir), cat(kTemporary, kDoomed, name));
  if (::rename(path.c_str(), doomed.c_str()) != 0) return file_error("remove", path, errno);
  return remove_tree(doomed);
}

bool is_for_resume_only(std::string_view name) {
  return name == kOptimizerFile || name == kTrainerStateFile || name == kManifestFile;
}

std::string free_step_name(const std::string& dir, int64_t step) {
  for (int64_t repeat = 0;; ++repeat)
    if (std::string name = step_name(step, repeat); !is_there(join_path(checkpoints_of(dir), name)))
      return name;
}

// Makes `latest` or `best` a link again where a copy has something else of that name. A directory
// that is no other's copy becomes a checkpoint of its own.
Status restore_link(const std::string& dir, std::string_view name) {
  const std::string path = join_path(dir, name);
  std::string step = named_checkpoint(dir, name);
  if (is_plain_file(path)) {
    if (parse_step_name(step).step < 0) return check_root_name(dir, name);
    TEGULA_TRY(remove_tree(path));
    return replace_link(path, join_path(kDirectory, step));
  }
  std::string away = join_path(checkpoints_of(dir), cat(kTemporary, kDoomed, step));
  if (step.empty()) {
    const auto manifest = check_manifest(path, Check::kSizes);
    if (!manifest.ok()) return check_root_name(dir, name);
    step = free_step_name(dir, manifest->step);
    away = join_path(checkpoints_of(dir), step);
  } else {
    TEGULA_TRY(remove_tree(away));
  }
  if (::rename(path.c_str(), away.c_str()) != 0) return file_error("move", path, errno);
  TEGULA_TRY(replace_link(path, join_path(kDirectory, step)));
  return away.ends_with(cat(kDoomed, step)) ? remove_tree(away) : Status();
}

}  // namespace

Status restore_links(const std::string& dir) {
  for (const std::string_view name : {kLatest, kBest})
    if (const std::string path = join_path(dir, name); is_there(path) && !is_link(path))
      TEGULA_TRY(restore_link(dir, name));
  const auto files = list_directory(join_path(dir, kLatest));
  if (!files.ok()) return {};
  for (const std::string& name : *files)
    if (const std::string path = join_path(dir, name);
        !is_for_resume_only(name) && is_plain_file(path)) {
      TEGULA_TRY(remove_tree(path));
      TEGULA_TRY(replace_link(path, join_path(kLatest, name)));
    }
  return {};
}

Status prepare_checkpoints(const std::string& dir, std::span<const std::string> files) {
  TEGULA_TRY(make_directories(checkpoints_of(dir)));
  for (std::string_view name : {kLatest, kBest, kModelFile, kConfigFile})
    TEGULA_TRY(check_root_name(dir, name));
  for (const std::string& name : files) TEGULA_TRY(check_root_name(dir, name));
  return {};
}

Result<FileLock> lock_checkpoints(const std::string& dir) {
  TEGULA_TRY(make_directories(checkpoints_of(dir)));
  return FileLock::acquire(join_path(checkpoints_of(dir), kLock));
}

CheckpointWriter::CheckpointWriter(CheckpointWriter&& other) noexcept
    : dir_(std::move(other.dir_)),
      step_(other.step_),
      name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      lock_(std::move(other.lock_)),
      entries_(std::move(other.entries_)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!temporary_.empty()) (void)remove_tree(temporary_);
}

Result<CheckpointWriter> CheckpointWriter::begin(const std::string& dir, int64_t step) {
  CheckpointWriter w(dir, step);
  TEGULA_TRY(prepare_checkpoints(dir));
  w.lock_.emplace(TEGULA_TRY(lock_checkpoints(dir)));
  TEGULA_TRY(w.make_temporary(*w.lock_));
  return w;
}

Result<CheckpointWriter> CheckpointWriter::begin(const std::string& dir, int64_t step,
                                                 const FileLock& held) {
  CheckpointWriter w(dir, step);
  TEGULA_TRY(prepare_checkpoints(dir));
  TEGULA_TRY(w.make_temporary(held));
  return w;
}

Status CheckpointWriter::make_temporary(const FileLock& lock) {
  if (step_ < 0) return invalid_argument(cat("a checkpoint of step ", step_));
  if (lock.is_held()) remove_stale(dir_);
  name_ = free_step_name(dir_, step_);
  const std::string temporary =
      join_path(checkpoints_of(dir_), cat(kTemporary, name_, "-", ::getpid()));
  if (::mkdir(temporary.c_str(), 0755) != 0) return file_error("create", temporary, errno);
  temporary_ = temporary;
  return {};
}

Status CheckpointWriter::check_new(std::string_view name) const {
  TEGULA_CHECK(!temporary_.empty(), "a file is added after publish()");
  for (const Entry& e : entries_)
    if (e.name == name) return invalid_argument(cat("the checkpoint has '", name, "' already"));
  return is_for_resume_only(name) ? Status() : check_root_name(dir_, name);
}

Result<CheckpointWriter::Shared> CheckpointWriter::share(std::string_view name,
                                                         const SharedSafetensors& file) {
  TEGULA_TRY(check_new(name));
  Shared s{join_path(temporary_, name), join_path(join_path(checkpoints_of(dir_), name_), name)};
  TEGULA_TRY(file.create(s.path, s.shown_path));
  return s;
}

Status CheckpointWriter::take(std::string_view name) {
  TEGULA_TRY(check_new(name));
  const MappedFile file = TEGULA_TRY(MappedFile::open(join_path(temporary_, name)));
  entries_.push_back({std::string(name), {file.bytes().size(), sha256_hex(file.bytes())}});
  return {};
}

Result<OutputFile> CheckpointWriter::create(std::string_view name) {
  TEGULA_TRY(check_new(name));
  return OutputFile::create(join_path(temporary_, name),
                            join_path(join_path(checkpoints_of(dir_), name_), name));
}

Status CheckpointWriter::finish(std::string_view name, OutputFile& file) {
  const OutputFile::Digest digest = TEGULA_TRY(file.finish());
  entries_.push_back({std::string(name), digest});
  return {};
}

Status CheckpointWriter::add_tensors(std::string_view name, std::span<const NamedTensor> tensors,
                                     const Metadata& metadata) {
  OutputFile file = TEGULA_TRY(create(name));
  TEGULA_TRY(write_safetensors(file, tensors, metadata));
  return finish(name, file);
}

Status CheckpointWriter::add_file(std::string_view name, std::string_view bytes) {
  OutputFile file = TEGULA_TRY(create(name));
  TEGULA_TRY(file.write(bytes));
  return finish(name, file);
}

Status CheckpointWriter::link_from_root() {
  // Before `latest` moves: so the links lead somewhere from the first moment on, or nowhere yet.
  for (const Entry& e : entries_) {
    const std::string path = join_path(dir_, e.name), target = join_path(kLatest, e.name);
    if (is_for_resume_only(e.name) || read_link(path) == target) continue;
    TEGULA_TRY(replace_link(path, target));
  }
  return replace_link(join_path(dir_, kLatest), join_path(kDirectory, name_));
}

std::string CheckpointWriter::remove_old(std::string_view previous) {
  size_t n_kept = 0;
  const auto best = best_checkpoint(dir_);
  for (const std::string& name : candidates(dir_, previous)) {
    const std::string path = join_path(checkpoints_of(dir_), name);
    // Sizes only: the last two that look whole stay; a damaged one takes no place.
    if (name == name_ || (n_kept < kKept && check_manifest(path, Check::kSizes).ok())) {
      ++n_kept;
      continue;
    }
    if (best && best->path == path) continue;
    if (const Status s = remove_checkpoint(dir_, name); !s.ok()) return s.error().message;
  }
  return "";
}

Result<CheckpointWriter::Published> CheckpointWriter::publish() {
  Published published{join_path(checkpoints_of(dir_), name_), 0, ""};
  Manifest manifest{step_, {}};
  for (const Entry& e : entries_) {
    manifest.files.push_back({e.name, e.digest.n_bytes, e.digest.sha256});
    published.n_bytes += e.digest.n_bytes;
  }
  OutputFile file = TEGULA_TRY(create(kManifestFile));
  TEGULA_TRY(file.write(format_manifest(manifest)));
  TEGULA_TRY(file.finish());
  TEGULA_TRY(sync_directory(temporary_));
  if (::rename(temporary_.c_str(), published.path.c_str()) != 0)
    return file_error("publish", published.path, errno);
  temporary_.clear();
  TEGULA_TRY(sync_directory(checkpoints_of(dir_)));
  // Not simply the one of the next lower step: a run may have gone on from an earlier one.
  const std::string previous = named_checkpoint(dir_, kLatest);
  TEGULA_TRY(link_from_root());
  published.warning = remove_old(previous);
  return published;
}

Status keep_best(const std::string& dir, const BestCheckpoint& best) {
  if (!std::isfinite(best.val_loss))  // it compares with no other
    return invalid_argument(cat("a validation loss of ", best.val_loss, " makes step ", best.step,
                                " no best checkpoint: only a finite one does"));
  const std::string name = best.path.substr(best.path.rfind('/') + 1);
  const Json json =
      Json::object({{"checkpoint", name}, {"step", best.step}, {"val_loss", best.val_loss}});
  TEGULA_TRY(replace_file(join_path(checkpoints_of(dir), kBestFile), json.dump(1) + "\n"));
  return replace_link(join_path(dir, kBest), join_path(kDirectory, name));
}

std::optional<BestCheckpoint> best_checkpoint(const std::string& dir) {
  const std::string path = join_path(checkpoints_of(dir), kBestFile);
  const auto text = read_file(path);
  const auto json = text.ok() ? Json::parse(*text, path) : Result<Json>(text.error());
  if (!json.ok()) return std::nullopt;
  const auto* name = json->find_as<std::string>("checkpoint");
  const auto* step = json->find_as<int64_t>("step");
  const Json* loss = json->find("val_loss");
  if (!name || !step || !loss || !loss->is_number() || parse_step_name(*name).step < 0)
    return std::nullopt;
  BestCheckpoint best{join_path(checkpoints_of(dir), *name), *step, loss->number(0)};
  if (!path_exists(best.path)) return std::nullopt;
  return best;
}

Result<int64_t> verify_checkpoint(const std::string& checkpoint) {
  return TEGULA_TRY(check_manifest(checkpoint, Check::kHashes)).step;
}

Result<GoodCheckpoint> latest_good(const std::string& dir, Check check) {
  GoodCheckpoint good;
  for (const std::string& name : candidates(dir)) {
    good.path = join_path(checkpoints_of(dir), name);
    const auto manifest = check_manifest(good.path, check);
    if (manifest.ok()) {
      good.step = manifest->step;
      return good;
    }
    good.rejected.push_back(manifest.error().message);
  }
  if (good.rejected.empty())
    return invalid_argument(cat(
        "'", dir, "' holds no checkpoint; give the directory that was --out of a training run"));
  std::string message = cat("none of the checkpoints in '", dir, "' is whole");
  for (const std::string& line : good.rejected) append(message, cat("; ", line));
  return io_error(std::move(message));
}

Status verify_model_tensors(const std::string& directory) {
  if (!path_exists(join_path(directory, kManifestFile))) return {};
  return check_file_of_manifest(directory, kModelFile);
}

Result<std::string> resolve_model_directory(const std::string& path, Check check) {
  if (path_exists(checkpoints_of(path))) return TEGULA_TRY(latest_good(path, check)).path;
  if (path_exists(join_path(path, kManifestFile))) {
    TEGULA_TRY(check_manifest(path, check));
    return path;
  }
  if (path_exists(join_path(path, kConfigFile))) return path;
  if (!path_exists(path)) return file_error("open", path, ENOENT);
  const auto names = list_directory(path);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>())
    if (name.ends_with(".gguf"))
      return invalid_argument(cat("'", path, "' is no model, but the file in it is: give '",
                                  join_path(path, name), "'"));
  return invalid_argument(
      cat("'", path, "' is no model: it has neither checkpoints/ nor ", kConfigFile));
}

}  // namespace tegula
