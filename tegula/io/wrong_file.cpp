#include "tegula/io/wrong_file.h"

#include <algorithm>
#include <array>

#include "tegula/base/str.h"

namespace tegula {

namespace {

constexpr std::string_view kAgain = "download it again";
constexpr std::string_view kConvert =
    "convert it where you trust it, with transformers' "
    "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)";

struct Magic {
  std::string_view bytes, what;
};
using namespace std::literals;  // NOLINT(google-build-using-namespace): "…"sv holds NUL bytes
constexpr Magic kMagics[] = {
    {"\x1f\x8b"sv, "compressed with gzip: unpack it with gunzip"},
    {"BZh"sv, "compressed with bzip2: unpack it with bunzip2"},
    {"\xfd"
     "7zXZ\0"sv,
     "compressed with xz: unpack it with unxz"},
    {"\x28\xb5\x2f\xfd"sv, "compressed with zstd: unpack it with unzstd"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive: unpack it"},
    {"Rar!\x1a\x07"sv, "a RAR archive: unpack it"},
    {"GGUF"sv, "a GGUF file under another name: give its own path as the model"},
    {"\x89HDF\r\n\x1a\n"sv,
     "an HDF5 file, as TensorFlow writes them: get the model's safetensors files"},
    {"\x93NUMPY"sv, "a NumPy array: get the model's safetensors files"},
    {"\xff\xfe"sv, "UTF-16 text: save it as UTF-8"},
    {"\xfe\xff"sv, "UTF-16 text: save it as UTF-8"},
    {"%PDF-"sv, "a PDF: download the model's own file"},
    {"\x7f"
     "ELF"sv,
     "a program: download the model's own file"}};

bool starts_with_any_case(std::string_view text, std::string_view prefix) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin(),
                                                    [&](char a, char b) { return a == lower(b); });
}

std::string_view trimmed(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  while (!text.empty() && std::string_view(" \t\r\n").find(text[0]) != text.npos)
    text.remove_prefix(1);
  return text;
}

// "size 123" of a pointer; "" without.
std::string pointer_size(std::string_view text) {
  const size_t at = text.find("\nsize ");
  if (at == text.npos) return "";
  const size_t begin = at + 6,
               end = std::min(text.find_first_not_of("0123456789", begin), text.size());
  return end == begin ? "" : cat(" to ", text.substr(begin, end - begin), " bytes");
}

bool is_readable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
}

// The first words, on one line.
std::string first_words(std::string_view text) {
  std::string words;
  for (const char c : text.substr(0, 60)) words += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  while (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

bool is_page(std::string_view text) {
  constexpr std::array<std::string_view, 6> kBegins = {"<!doctype html", "<html", "<head",
                                                       "<body",          "<?xml", "<!--"};
  return std::ranges::any_of(kBegins,
                             [&](auto begin) { return starts_with_any_case(text, begin); });
}

// A zip: PyTorch's checkpoints are one, with the pickle data.pkl as its first entry.
std::string what_zip(std::string_view bytes) {
  if (bytes.substr(0, 256).find("data.pkl") != bytes.npos)
    return cat("it is a PyTorch checkpoint, a pickle that can run any code when it is read: ",
               kConvert);
  return "it is a zip archive: unpack it";
}

}  // namespace

std::string what_it_is_instead(std::string_view bytes, bool is_text) {
  if (bytes.empty()) return cat("it has 0 bytes, as an interrupted download leaves it: ", kAgain);
  const std::string_view begin = trimmed(bytes.substr(0, 1024));
  if (begin.starts_with("version https://git-lfs.github.com/") ||
      begin.starts_with("version https://hawser.github.com/"))
    return cat("it is a Git LFS pointer", pointer_size(begin),
               ", not the file itself: run `git lfs pull` in the repository, or ", kAgain);
  if (is_page(begin))
    return cat("it is a web page (HTML), not the file: ", kAgain,
               " by the link of the file itself, logged in where the model is gated");
  if (begin.starts_with("PK\x03\x04")) return what_zip(bytes);
  for (const Magic& magic : kMagics)
    if (bytes.starts_with(magic.bytes)) return cat("it is ", magic.what);
  if (bytes.substr(0, 1024).find("ustar") == 257) return "it is a tar archive: unpack it";
  if (bytes[0] == '\x80' && bytes.size() > 1 && bytes[1] >= 2 && bytes[1] <= 5)
    return cat("it is a Python pickle, which can run any code when it is read: ", kConvert);
  const std::string_view first = bytes.substr(0, 64);
  if (first.size() == 64 && std::ranges::all_of(first, [](char c) { return c == 0; }))
    return cat("it begins with ", first.size(), " zero bytes, as an interrupted download leaves ",
               "it: ", kAgain);
  // "Entry not found", where an object or a number of bytes was expected.
  const bool is_sentence =
      !begin.empty() && begin.find(' ') != begin.npos &&
      ((begin[0] >= 'A' && begin[0] <= 'Z') || (begin[0] >= 'a' && begin[0] <= 'z'));
  const bool is_told =
      is_text ? is_sentence && bytes.size() < 1024 : is_sentence || bytes.size() >= 16;
  if (is_told && is_readable(first))
    return cat("it is text, \"", first_words(begin), "\", as a server answers: ", kAgain);
  return "";
}

}  // namespace tegula
