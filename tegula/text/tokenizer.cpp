#include "tegula/text/tokenizer.h"

#include "tegula/base/algorithm.h"
#include "tegula/text/tokenizer_forms.h"

namespace tegula {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// In the order in which a file is tried.
const TokenizerKind* const kKinds[] = {&kBytesTokenizer,     &kCharsTokenizer,
                                       &kBpeTokenizer,       &kSentencePieceTokenizer,
                                       &kWordPieceTokenizer, &kUnigramTokenizer};

// Up to the size that a kind may have: "bpe:".
std::string_view stem(std::string_view name) { return name.substr(0, name.find(':') + 1); }

bool is_asked_for(const TokenizerKind& kind, std::string_view name) {
  return stem(kind.name).empty() ? name == kind.name : name.starts_with(stem(kind.name));
}

}  // namespace

Result<Tokenizer> Tokenizer::train(std::string_view name, std::string_view text) {
  for (const TokenizerKind* kind : kKinds)
    if (kind->train != nullptr && is_asked_for(*kind, name))
      return Tokenizer(kind->name, TEGULA_TRY(kind->train(name, text)));
  return invalid_argument(cat("unknown tokenizer '", name, "'; choose bytes, chars or bpe:N"));
}

Result<const TokenizerKind*> kind_of(const TokenizerFile& file) {
  for (const TokenizerKind* kind : kKinds)
    if (kind->is_it(file)) return kind;
  return unsupported(cat("its model ", file.model_type, " is not a form that tegula reads"));
}

Tokenizer::Tokenizer(std::string_view kind, Vocabulary vocabulary)
    : kind_(kind), tokens_(std::move(vocabulary.tokens)), model_(std::move(vocabulary.model)) {}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool adds) const {
  std::vector<int32_t> ids;
  if (adds) ids = before_;
  const auto encode_normalized = [&](std::string_view part, bool is_first) -> Status {
    if (added_.empty(true)) return model_->encode(part, is_first, ids);
    for (const AddedTokens::Piece& p : added_.split(part, true)) {
      if (p.id >= 0)
        ids.push_back(p.id);
      else
        TEGULA_TRY(model_->encode(p.text, is_first && p.text.data() == part.data(), ids));
    }
    return {};
  };
  const auto encode_part = [&](std::string_view part, bool is_first) -> Status {
    if (forms_ == nullptr || forms_->normalizer.empty()) return encode_normalized(part, is_first);
    return encode_normalized(forms_->normalizer.apply(part), is_first);
  };
  if (added_.empty(false)) {
    TEGULA_TRY(encode_part(text, true));
  } else {
    for (const AddedTokens::Piece& p : added_.split(text, false)) {
      if (p.id >= 0)
        ids.push_back(p.id);
      else
        TEGULA_TRY(encode_part(p.text, p.text.data() == text.data()));
    }
  }
  if (adds) ids.insert(ids.end(), behind_.begin(), behind_.end());
  return ids;
}

void Tokenizer::add_special(const std::string& name) {
  std::vector<AddedToken> all = added_.tokens(false);
  all.push_back({name, static_cast<int32_t>(vocab_size())});
  all.back().is_special = true;
  tokens_.push_back(name);
  is_special_.resize(tokens_.size());
  is_special_.back() = true;
  added_ = AddedTokens(std::move(all));
}

int32_t Tokenizer::special(std::string_view name) const {
  for (const bool normalized : {false, true})
    for (const AddedToken& t : added_.tokens(normalized))
      if (t.is_special && t.content == name) return t.id;
  return -1;
}

std::string_view Tokenizer::token(int32_t id) const {
  return id >= 0 && id < vocab_size() ? std::string_view(tokens_[id]) : kReplacement;
}

std::string Tokenizer::first_token(int32_t id) const {
  if (forms_ != nullptr && !forms_->names.empty() && id >= 0 && id < vocab_size())
    return forms_->decoder.text(forms_->names[id], true);
  return std::string(token(id));
}

size_t Tokenizer::stripped(std::string_view text) const {
  return forms_ != nullptr ? forms_->decoder.stripped(text) : 0;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i)
    i == 0 ? text += first_token(ids[i]) : text += token(ids[i]);
  text.erase(0, stripped(text));
  return text;
}

std::span<const int32_t> Tokenizer::inner(std::span<const int32_t> ids) const {
  const auto begins = std::span(before_), ends = std::span(behind_);
  if (ids.size() >= begins.size() && std::equal(begins.begin(), begins.end(), ids.begin()))
    ids = ids.subspan(begins.size());
  if (ids.size() >= ends.size() && std::equal(ends.rbegin(), ends.rend(), ids.rbegin()))
    ids = ids.first(ids.size() - ends.size());
  return ids;
}

}  // namespace tegula
