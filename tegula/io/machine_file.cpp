#include "tegula/io/machine_file.h"

#include "tegula/base/str.h"
#include "tegula/io/file.h"
#include "tegula/io/sha256.h"

namespace tegula {

Error MachineFile::refuse(const std::string& path, std::string_view why) const {
  return invalid_argument(cat(path, ": ", why, "; ", remedy));
}

Status MachineFile::save(const std::string& path, const std::string& machine, Json content) const {
  const std::string hash = sha256_hex(content.dump());
  Json file = Json::object();
  file.set("format", format), file.set("version", version), file.set("machine", machine);
  file.set("sha256", hash), file.set(body, std::move(content));
  TEGULA_TRY(make_directories(parent_path(path)));
  return replace_file(path, file.dump(1) + "\n");
}

Result<Json> MachineFile::load(const std::string& path, const std::string& machine) const {
  const std::string text = TEGULA_TRY(read_file(path));
  const Json file = TEGULA_TRY(Json::parse(text, path));
  const auto is = [&](std::string_view key, const Json& value) {
    const Json* have = file.find(key);
    return have && *have == value;
  };
  const Json* content = file.find(body);
  if (!is("format", Json(format)) || !content) return refuse(path, cat("this is no ", what));
  if (!is("version", Json(version)))
    return refuse(path, "it has another version than this build's");
  if (!is("machine", Json(machine))) return refuse(path, "it is of another machine");
  if (!is("sha256", Json(sha256_hex(content->dump())))) return refuse(path, "its text was altered");
  return *content;
}

std::string machine_file_path(const std::string& directory, std::string_view prefix,
                              const std::string& machine) {
  return join_path(directory, cat(prefix, "-", sha256_hex(machine).substr(0, 16), ".json"));
}

}  // namespace tegula
