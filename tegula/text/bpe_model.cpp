#include "tegula/text/bpe_model.h"

#include <cstring>

#include "tegula/base/range.h"
#include "tegula/io/utf8.h"

namespace tegula {
namespace {

// A longer word is encoded each time it comes.
constexpr size_t kMaxCachedBytes = 256;
constexpr size_t kJunctionBits = size_t{1} << 20;

// Where the ids of a word stand that has come before: open addressing, in which a word that has no
// place near its own is not kept, so that no text makes a search long.
class WordCache {
 public:
  struct Entry {
    const char* word = nullptr;  // null: free
    uint32_t n_bytes = 0, hash = 0;
    size_t begin = 0;  // in the output
    uint32_t n_ids = 0;
  };

  // The word's entry, or the free one that it may take, or null.
  Entry* find(std::string_view word) {
    if (n_words_ * 2 >= entries_.size()) grow();
    const uint32_t hash = hash_of(word);
    for (size_t i = 0; i < kMostSteps; ++i) {
      Entry& e = entries_[(hash + i) & (entries_.size() - 1)];
      if (e.word == nullptr) {
        if (n_words_ >= kMostWords) return nullptr;
        e.n_bytes = static_cast<uint32_t>(word.size()), e.hash = hash;
        return &e;
      }
      if (e.hash == hash && std::string_view(e.word, e.n_bytes) == word) return &e;
    }
    return nullptr;
  }
  void keep(Entry& entry, const char* word, size_t begin, size_t n_ids) {
    entry.word = word, entry.begin = begin, entry.n_ids = static_cast<uint32_t>(n_ids);
    ++n_words_;
  }

 private:
  static constexpr size_t kMostSteps = 16, kMostWords = size_t{1} << 20;

  static uint32_t hash_of(std::string_view word) {
    constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
    const char* at = word.data();
    size_t n = word.size();
    uint64_t hash = n * kFactor;
    for (; n > 8; n -= 8, at += 8) {
      uint64_t part;
      std::memcpy(&part, at, 8);
      hash = (hash ^ part) * kFactor;
      hash ^= hash >> 32;
    }
    uint64_t rest = 0;  // one to eight bytes; some may be read twice
    if (n >= 4) {
      uint32_t first, last;
      std::memcpy(&first, at, 4), std::memcpy(&last, at + n - 4, 4);
      rest = uint64_t{first} << 32 | last;
    } else if (n > 0) {
      const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(at[i])}; };
      rest = byte(0) << 16 | byte(n / 2) << 8 | byte(n - 1);
    }
    hash = (hash ^ rest) * kFactor;
    return static_cast<uint32_t>(hash >> 32);
  }

  void grow() {
    std::vector<Entry> old = std::move(entries_);
    entries_ = std::vector<Entry>(old.empty() ? 64 : old.size() * 4);
    n_words_ = 0;
    for (const Entry& e : old)
      for (size_t i = 0; e.word != nullptr && i < kMostSteps; ++i) {
        Entry& to = entries_[(e.hash + i) & (entries_.size() - 1)];
        if (to.word != nullptr) continue;
        to = e;
        ++n_words_;
        break;
      }
  }

  std::vector<Entry> entries_;
  size_t n_words_ = 0;
};

size_t junction_bit(char32_t left, char32_t right) {
  uint64_t key = uint64_t{left} << 32 | right;
  key *= 0x9e3779b97f4a7c15;
  return (key >> 40) % kJunctionBits;
}

char32_t first_character(std::string_view text) {
  const CodePoint c = first_code_point(text);
  return c.is_valid ? c.value : 0x110000 + c.value;
}

char32_t last_character(std::string_view text) {
  for (size_t n = std::min<size_t>(4, text.size()); n > 1; --n) {
    const CodePoint c = first_code_point(text.substr(text.size() - n));
    if (c.is_valid && c.n_bytes == n) return c.value;
  }
  return first_character(text.substr(text.size() - 1));
}

}  // namespace

BpeModel::BpeModel(Words words, const BpeAlphabet& alphabet, std::span<const BpeMerge> merges)
    : words_(std::move(words)), alphabet_(alphabet), bpe_(merges) {
  is_complete_ = alphabet_.is_bytes && !contains(alphabet_.bytes, -1);
  ascii_.fill(-1);
  for (const auto& [c, id] : alphabet_.characters)
    if (c < ascii_.size()) ascii_[c] = id;
}

void BpeModel::cut_at_junctions(std::span<const std::string> names,
                                std::span<const BpeMerge> merges) {
  // Where characters may be unknown, runs of them matter, and a byte that stands for a character
  // has a neighbour that its name does not show.
  const auto& bytes = alphabet_.bytes;
  if (contains(bytes, -1)) return;
  std::vector<bool> is_byte(names.size());
  for (const int32_t id : bytes) is_byte[id] = true;
  std::vector<uint64_t> filter(kJunctionBits / 64);
  for (const BpeMerge& m : merges) {
    const auto l = static_cast<size_t>(m.left), r = static_cast<size_t>(m.right);
    if (names[l].empty() || names[r].empty() || is_byte[l] || is_byte[r] || is_byte[m.id]) return;
    const size_t bit = junction_bit(last_character(names[l]), first_character(names[r]));
    filter[bit / 64] |= uint64_t{1} << bit % 64;
  }
  junctions_ = std::move(filter);
}

bool BpeModel::may_join(char32_t left, char32_t right) const {
  const size_t bit = junction_bit(left, right);
  return (junctions_[bit / 64] >> bit % 64 & 1) != 0;
}

void BpeModel::symbols(std::string_view word, std::vector<int32_t>& out) const {
  out.resize(0);
  if (is_complete_) {
    for (const char c : word) out.push_back(alphabet_.bytes[static_cast<unsigned char>(c)]);
    return;
  }
  bool is_pending = false;  // an unknown token that is not put yet
  const auto put = [&](int32_t id) {
    if (is_pending) out.push_back(alphabet_.unknown);
    is_pending = false;
    out.push_back(id);
  };
  const auto put_unknown = [&] {
    if (alphabet_.unknown < 0) return;
    if (is_pending && !alphabet_.fuses_unknown) out.push_back(alphabet_.unknown);
    is_pending = true;
  };
  for (size_t at = 0; at < word.size();) {
    if (alphabet_.is_bytes) {
      const int32_t id = alphabet_.bytes[static_cast<unsigned char>(word[at++])];
      id >= 0 ? put(id) : put_unknown();
      continue;
    }
    const CodePoint c = first_code_point(word.substr(at));
    int32_t id = -1;
    if (c.value < ascii_.size()) {
      id = ascii_[c.value];
    } else if (c.is_valid) {
      const auto known = alphabet_.characters.find(c.value);
      if (known != alphabet_.characters.end()) id = known->second;
    }
    const std::string_view text = word.substr(at, c.n_bytes);
    at += c.n_bytes;
    if (id >= 0) {
      put(id);
      continue;
    }
    const auto byte_id = [&](char b) { return alphabet_.bytes[static_cast<unsigned char>(b)]; };
    if (all_of(text, [&](char b) { return byte_id(b) >= 0; }))
      // An unknown token that is pending stays so, as in the library.
      for (const char b : text) out.push_back(byte_id(b));
    else
      put_unknown();
  }
  if (is_pending) out.push_back(alphabet_.unknown);
}

class BpeModel::Sink : public WordSink {
 public:
  Sink(const BpeModel& model, std::vector<int32_t>& out) : model_(model), out_(out) {}

  void take(std::string_view word) override {
    if (!model_.whole_.empty())
      if (const auto at = model_.whole_.find(std::string(word)); at != model_.whole_.end()) {
        out_.push_back(at->second);
        return;
      }
    if (model_.junctions_.empty()) {
      encode(word);
      return;
    }
    size_t begin = 0;
    char32_t before = 0;
    for (size_t at = 0; at < word.size();) {
      const CodePoint c = first_code_point(word.substr(at));
      const char32_t value = c.is_valid ? c.value : 0x110000 + c.value;
      if (at > begin && !model_.may_join(before, value)) {
        encode(word.substr(begin, at - begin));
        begin = at;
      }
      before = value;
      at += c.n_bytes;
    }
    encode(word.substr(begin));
  }

 private:
  void encode(std::string_view word) {
    WordCache::Entry* entry = word.size() <= kMaxCachedBytes ? cache_.find(word) : nullptr;
    if (entry != nullptr && entry->word != nullptr) {
      for (size_t i = 0; i < entry->n_ids; ++i) out_.push_back(out_[entry->begin + i]);
      return;
    }
    const size_t begin = out_.size();
    model_.symbols(word, symbols_);
    model_.bpe_.merge(symbols_, scratch_, out_);
    if (entry != nullptr) cache_.keep(*entry, word.data(), begin, out_.size() - begin);
  }

  const BpeModel& model_;
  std::vector<int32_t>& out_;
  // A word's ids are copied from its first appearance in the output.
  WordCache cache_;
  std::vector<int32_t> symbols_;
  BpeEncoder::Scratch scratch_;
};

Status BpeModel::encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size() / 3);
  Sink sink(*this, ids);
  words_.cut(text, is_first, sink);
  return {};
}

Result<std::vector<BpeMerge>> read_merges(const TokenizerFile& f) {
  std::vector<BpeMerge> merges;
  const auto* list = f.model.find_as<Json::Array>("merges");
  if (list == nullptr) return invalid_argument("model.merges is missing");
  for (const Json& entry : *list) {
    std::string left, right;
    if (const auto* pair = entry.as<Json::Array>(); pair != nullptr && pair->size() == 2) {
      left = text_of(&(*pair)[0]), right = text_of(&(*pair)[1]);
    } else if (const auto* text = entry.as<std::string>()) {
      const size_t space = text->find(' ');
      left = text->substr(0, space);
      right = space == text->npos ? "" : text->substr(space + 1);
    }
    const auto l = f.ids.find(left), r = f.ids.find(right), joined = f.ids.find(left + right);
    if (left.empty() || right.empty() || l == f.ids.end() || r == f.ids.end() ||
        joined == f.ids.end())
      return invalid_argument(cat("merge ", merges.size(), " ('", left, "' with '", right,
                                  "') does not join two tokens of the vocabulary to a third"));
    merges.push_back({l->second, r->second, joined->second});
  }
  return merges;
}

Status read_bpe_settings(const TokenizerFile& f, BpeAlphabet& alphabet) {
  TEGULA_TRY(check_keys(f.model, "model",
                        {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                         "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!text_of(f.model.find(key)).empty()) return unsupported(cat("model.", key, " is set"));
  if (!is_absent(f.model.find("dropout"))) return unsupported("model.dropout is set");
  alphabet.fuses_unknown = is_true(f.model.find("fuse_unk"));
  if (const std::string unknown = text_of(f.model.find("unk_token")); !unknown.empty()) {
    const auto at = f.ids.find(unknown);
    if (at == f.ids.end() || f.is_added[at->second])
      return invalid_argument(cat("model.unk_token '", unknown, "' is not in model.vocab"));
    alphabet.unknown = at->second;
  }
  return {};
}

}  // namespace tegula
