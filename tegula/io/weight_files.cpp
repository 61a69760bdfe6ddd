#include "tegula/io/weight_files.h"

#include <unistd.h>

#include <map>

#include "tegula/base/algorithm.h"
#include "tegula/io/json.h"

namespace tegula {
namespace {

constexpr std::string_view kOneFile = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// Files that a directory without those may have instead, by the beginning and the end of a name.
struct Instead {
  std::string_view begin, end, what;
};
constexpr std::string_view kPickle =
    "a format that can run any code when it is read: convert it where you trust it, with "
    "transformers' AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)";
constexpr Instead kInsteads[] = {
    {"pytorch_model", ".bin", kPickle},
    {"pytorch_model.bin.index", ".json", kPickle},
    {"adapter_model", ".safetensors",
     "a LoRA adapter alone: merge it into its model with peft's merge_and_unload(), and save that"},
    {"adapter_model", ".bin",
     "a LoRA adapter alone: merge it into its model with peft's merge_and_unload(), and save that"},
    {"consolidated", ".safetensors",
     "whose tensors have the names of Mistral's own programs: get the model.safetensors files"},
    {"", ".pth", kPickle},
    {"", ".gguf", "which is a model of its own: give its path, not the directory's"},
    {"tf_model", ".h5", "TensorFlow's: get the model's safetensors files"},
    {"flax_model", ".msgpack", "Flax's: get the model's safetensors files"},
    {"model", ".safetensors",
     "a shard without model.safetensors.index.json, which says what lies where: get that file, "
     "too"},
    {"", ".safetensors", "a name that says nothing: rename it to model.safetensors if it is all"}};

// A link of a cache whose file is gone, and what else the directory has.
Error no_weights(const std::string& directory, const std::string& path) {
  char target[4096];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  if (n > 0)
    return {Code::kIo,
            cat("'", path, "' is a link to '", std::string_view(target, static_cast<size_t>(n)),
                "', which is not there: download it again, or copy with cp -L")};
  const auto names = list_directory(directory);
  for (const Instead& other : kInsteads)
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{})
      if (name.starts_with(other.begin) && name.ends_with(other.end))
        return unsupported(cat("'", directory, "' has its weights in ", name, ", ", other.what));
  return {Code::kIo, cat("'", directory, "' has no ", kOneFile,
                         ": is it a model's directory, and its download complete?")};
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

}  // namespace

Status WeightFiles::open_shards(const std::string& directory) {
  const Json index = TEGULA_TRY(Json::parse(TEGULA_TRY(read_file(path_)), path_));
  const Json* map = index.find("weight_map");
  const auto* members = map != nullptr ? map->as<Json::Object>() : nullptr;
  if (members == nullptr || members->empty())
    return invalid_argument(cat("'", path_, "' has no \"weight_map\" from tensors to files: copy ",
                                "the checkpoint again from where it came"));
  std::map<std::string, std::vector<std::string_view>> names_of;  // by file, in their order
  for (const Json::Member& m : *members) {
    const auto* file = m.value.as<std::string>();
    if (file == nullptr || !is_plain_name(*file))
      return invalid_argument(cat("'", path_, "': tensor ", m.key, " lies in ", m.value.dump(),
                                  ", which names no file of this directory"));
    names_of[*file].push_back(m.key);
  }
  std::string missing;
  int64_t n_missing = 0;
  for (const auto& [file, names] : names_of)
    if (!path_exists(join_path(directory, file))) missing += cat(n_missing++ > 0 ? ", " : "", file);
  if (n_missing > 0)
    return Error{Code::kIo, cat("'", path_, "' names ", names_of.size(), " shards, of which ",
                                n_missing, n_missing == 1 ? " is" : " are", " not there (", missing,
                                "): download the rest")};
  for (const auto& [file, names] : names_of) {
    auto shard = SafetensorsFile::open(join_path(directory, file));
    if (!shard.ok()) {
      Error error = std::move(shard).error();
      error.message = cat(error.message, " (a shard that '", path_, "' names)");
      return error;
    }
    for (const std::string_view name : names)
      if (shard->find(name) == nullptr)
        return invalid_argument(cat("'", path_, "' says that tensor ", name, " is in ", file,
                                    ", which does not have it: copy the checkpoint again"));
    for (const NamedTensor& t : shard->tensors())
      if (const Found other = find(t.name); other.tensor != nullptr)
        return invalid_argument(cat("tensor ", t.name, " is both in '", other.path, "' and in '",
                                    shard->path(), "': keep the shards of one checkpoint only"));
    files_.push_back(std::move(*shard));
  }
  return {};
}

Result<WeightFiles> WeightFiles::open(const std::string& directory) {
  WeightFiles opened;
  opened.path_ = join_path(directory, kOneFile);
  const std::string index = join_path(directory, kIndex);
  if (!path_exists(opened.path_) && path_exists(index)) {
    opened.path_ = index;
    TEGULA_TRY(opened.open_shards(directory));
    return opened;
  }
  if (!path_exists(opened.path_)) return no_weights(directory, opened.path_);
  opened.files_.push_back(TEGULA_TRY(SafetensorsFile::open(opened.path_)));
  return opened;
}

WeightFiles::WeightFiles(std::string path, std::vector<StoredTensor> tensors,
                         std::shared_ptr<const void> holder)
    : path_(std::move(path)), stored_(std::move(tensors)), holder_(std::move(holder)) {
  std::sort(stored_.begin(), stored_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

WeightFiles::Found WeightFiles::find(std::string_view name) const {
  for (const SafetensorsFile& file : files_)
    if (const TensorRef* t = file.find(name)) return {t, file.path()};
  const auto at =
      std::lower_bound(stored_.begin(), stored_.end(), name,
                       [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  if (at == stored_.end() || at->name != name) return {};
  return {&at->tensor, at->path, at->tensor.data == nullptr ? &*at : nullptr};
}

}  // namespace tegula
