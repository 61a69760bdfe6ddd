// Characters merged to tokens, and bytes for those that have none: SentencePiece's BPE (Llama 2,
// Mistral, Gemma) in the form of tokenizer.json. Spaces are U+2581 by the normaliser or by
// Metaspace.
#include "tegula/io/utf8.h"
#include "tegula/text/bpe_model.h"

namespace tegula {
namespace {

bool is_it(const TokenizerFile& f) { return f.model_type == "BPE"; }

Result<std::shared_ptr<const TokenModel>> read(const TokenizerFile& f) {
  BpeAlphabet alphabet;
  alphabet.is_bytes = false;
  TEGULA_TRY(read_bpe_settings(f, alphabet));
  std::unordered_map<std::string, int32_t> whole;
  for (size_t id = 0; id < f.names.size(); ++id) {
    if (f.is_added[id] || f.names[id].empty()) continue;
    const CodePoint c = first_code_point(f.names[id]);
    if (c.is_valid && c.n_bytes == f.names[id].size())
      alphabet.characters.emplace(c.value, static_cast<int32_t>(id));
    if (is_true(f.model.find("ignore_merges")))
      whole.emplace(f.names[id], static_cast<int32_t>(id));
  }
  if (is_true(f.model.find("byte_fallback")))
    for (uint32_t b = 0; b < 256; ++b) {
      const auto at = f.ids.find(cat("<0x", to_hex(b, 2), ">"));
      if (at != f.ids.end() && !f.is_added[at->second]) alphabet.bytes[b] = at->second;
    }
  const auto merges = TEGULA_TRY(read_merges(f));
  auto m = std::make_shared<BpeModel>(f.words, alphabet, merges);
  m->set_whole_words(std::move(whole));
  m->cut_at_junctions(f.names, merges);
  return m;
}

}  // namespace

const TokenizerKind kSentencePieceTokenizer{"sentencepiece", nullptr, is_it, read};

}  // namespace tegula
