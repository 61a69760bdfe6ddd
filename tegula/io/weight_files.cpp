#include "tegula/io/weight_files.h"

#include <map>

#include "tegula/io/json.h"

namespace tegula {
namespace {

constexpr std::string_view kOneFile = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kPickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

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
        return invalid_argument(cat("tensor ", t.name, " is both in '", *other.path, "' and in '",
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
  if (!path_exists(opened.path_))
    for (const std::string_view pickle : kPickles)
      if (path_exists(join_path(directory, pickle)))
        return unsupported(
            cat("'", directory, "' has its weights in ", pickle, ", a format that can run any ",
                "code when it is read: convert it where you trust it, with transformers' ",
                "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)"));
  opened.files_.push_back(TEGULA_TRY(SafetensorsFile::open(opened.path_)));
  return opened;
}

WeightFiles::Found WeightFiles::find(std::string_view name) const {
  for (const SafetensorsFile& file : files_)
    if (const TensorRef* t = file.find(name)) return {t, &file.path()};
  return {};
}

}  // namespace tegula
