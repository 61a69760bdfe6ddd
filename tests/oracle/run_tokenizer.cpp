// Encodes and decodes many texts by one tokenizer, for tests that compare with another library.
//   run_tokenizer DIRECTORY < texts > results
//   run_tokenizer DIRECTORY ids < ids > texts
// A text is its length (u32) and its bytes; a result is the number of ids (u32), the ids (i32), the
// length (u32) and the bytes of what they decode to. All in the machine's order of bytes. Ids are
// their number and themselves; the texts of these are the streaming detokenizer's.
#include <cstdio>
#include <string>

#include "tegula/text/detokenizer.h"

namespace {

void put(const void* bytes, size_t n) {
  if (n > 0) std::fwrite(bytes, 1, n, stdout);
}

int fail(const tegula::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  const auto tokenizer = tegula::Tokenizer::load(argv[1]);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  uint32_t n = 0;
  while (argc == 3 && std::fread(&n, sizeof n, 1, stdin) == 1) {
    std::vector<int32_t> ids(n);
    if (n > 0 && std::fread(ids.data(), sizeof(int32_t), n, stdin) != n) return 2;
    tegula::Detokenizer detokenizer(*tokenizer, true);
    std::string text;
    for (const int32_t id : ids) text += detokenizer.add(id);
    text += detokenizer.rest();
    const auto n_bytes = static_cast<uint32_t>(text.size());
    put(&n_bytes, sizeof n_bytes), put(text.data(), n_bytes);
  }
  while (std::fread(&n, sizeof n, 1, stdin) == 1) {
    std::string text(n, '\0');
    if (std::fread(text.data(), 1, n, stdin) != n) return 2;
    const auto ids = tokenizer->encode(text);
    if (!ids.ok()) return fail(ids.error());
    const std::string back = tokenizer->decode(*ids);
    const auto n_ids = static_cast<uint32_t>(ids->size()),
               n_bytes = static_cast<uint32_t>(back.size());
    put(&n_ids, sizeof n_ids), put(ids->data(), n_ids * sizeof(int32_t));
    put(&n_bytes, sizeof n_bytes), put(back.data(), n_bytes);
  }
}
