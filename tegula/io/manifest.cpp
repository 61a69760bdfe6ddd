#include "tegula/io/manifest.h"

#include "tegula/io/file.h"
#include "tegula/io/json.h"

namespace tegula {
namespace {

constexpr std::string_view kFormat = "tegula-checkpoint-1";
constexpr std::string_view kName = "manifest.json";
constexpr std::string_view kAdvice =
    "Use another checkpoint, or copy this one again from where it came";

// The text that the manifest's own hash covers: everything it says, in one fixed form.
std::string content_hash(const Manifest& m) {
  std::string text = cat("step ", m.step, "\n");
  for (const ManifestEntry& f : m.files)
    append(text, cat(f.sha256, " ", f.n_bytes, " ", f.name, "\n"));
  return sha256_hex(text);
}

std::string text_of(const Json* value) {
  const auto* text = value != nullptr ? value->as<std::string>() : nullptr;
  return text != nullptr ? *text : "";
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

// A JSON file that is whole and still not what was saved was edited: it is not damaged, but not the
// checkpoint's either.
bool is_edited(std::string_view name, std::string_view bytes) {
  return name.ends_with(".json") && Json::parse(bytes, name).ok();
}

Error edited(const std::string& path) {
  return io_error(cat("'", path,
                      "' was altered: it is whole, but not as it was saved. If you edited ",
                      "it, copy the files to a directory of their own without ", kName,
                      ", which is then taken as it is; else take another checkpoint"));
}

Status check_file(const std::string& directory, const ManifestEntry& entry, Check check) {
  const std::string path = join_path(directory, entry.name);
  const MappedFile file = TEGULA_TRY(MappedFile::open(path));
  const bool has_other_size = file.bytes().size() != entry.n_bytes;
  if (has_other_size && is_edited(entry.name, file.bytes())) return edited(path);
  if (has_other_size)
    return io_error(cat("'", path, "' is ",
                        file.bytes().size() < entry.n_bytes ? "truncated" : "altered", ": it has ",
                        file.bytes().size(), " bytes, its manifest says ", entry.n_bytes,
                        " (SHA-256 ", entry.sha256, "). ", kAdvice));
  if (check == Check::kSizes) return {};
  if (check == Check::kAllButTensors && entry.name.ends_with(".safetensors")) return {};
  const std::string actual = sha256_hex(file.bytes());
  if (actual != entry.sha256 && is_edited(entry.name, file.bytes())) return edited(path);
  if (actual != entry.sha256)
    return io_error(cat("'", path, "' was altered: its SHA-256 is ", actual, ", its manifest says ",
                        entry.sha256, ". ", kAdvice));
  return {};
}

}  // namespace

std::string format_manifest(const Manifest& manifest) {
  Json::Array files;
  for (const ManifestEntry& f : manifest.files)
    files.push_back(Json::object({{"name", f.name}, {"n_bytes", f.n_bytes}, {"sha256", f.sha256}}));
  const Json json = Json::object({{"format", kFormat},
                                  {"step", manifest.step},
                                  {"files", std::move(files)},
                                  {"content_sha256", content_hash(manifest)}});
  return json.dump(2) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  const auto damaged = [&](std::string_view why) {
    return io_error(cat("'", path, "' is damaged: ", why, ". ", kAdvice));
  };
  const auto parsed = Json::parse(text, path);
  if (!parsed.ok()) return damaged(parsed.error().message);
  if (const std::string format = text_of(parsed->find("format")); format != kFormat)
    return unsupported(
        cat("'", path, "' has the format '", format, "', and this version reads ", kFormat,
            ": it was written by a newer version; use that, or a checkpoint of this one"));
  Manifest manifest;
  const auto* step = parsed->find_as<int64_t>("step");
  const auto* files = parsed->find_as<Json::Array>("files");
  if (step == nullptr || files == nullptr) return damaged("it has no step or no files");
  manifest.step = *step;
  for (const Json& f : *files) {
    const auto* n_bytes = f.find_as<int64_t>("n_bytes");
    ManifestEntry entry{text_of(f.find("name")), 0, text_of(f.find("sha256"))};
    if (n_bytes == nullptr || !is_plain_name(entry.name))
      return damaged(cat("the entry '", entry.name, "' is not a file of this directory"));
    entry.n_bytes = static_cast<uint64_t>(*n_bytes);
    manifest.files.push_back(std::move(entry));
  }
  const std::string expected = text_of(parsed->find("content_sha256"));
  const std::string actual = content_hash(manifest);
  if (expected != actual)
    return damaged(cat("its content's SHA-256 is ", actual, ", it says ", expected));
  return manifest;
}

static Result<Manifest> read_manifest(const std::string& directory) {
  const std::string path = join_path(directory, kName);
  const std::string text = TEGULA_TRY(read_file(path));
  return parse_manifest(text, path);
}

Status check_file_of_manifest(const std::string& directory, std::string_view name) {
  const Manifest manifest = TEGULA_TRY(read_manifest(directory));
  for (const ManifestEntry& entry : manifest.files)
    if (entry.name == name) return check_file(directory, entry, Check::kHashes);
  return {};
}

Result<Manifest> check_manifest(const std::string& directory, Check check) {
  Manifest manifest = TEGULA_TRY(read_manifest(directory));
  for (const ManifestEntry& entry : manifest.files) TEGULA_TRY(check_file(directory, entry, check));
  return manifest;
}

}  // namespace tegula
