#include "tegula/text/sentencepiece_file.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"
#include "tegula/text/added_tokens.h"
#include "tegula/text/bpe_model.h"
#include "tegula/text/charsmap.h"
#include "tegula/text/proto.h"
#include "tegula/text/unigram.h"

namespace tegula {
namespace {

constexpr std::string_view kSpace = "\u2581";
enum Type : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
enum ModelType : uint8_t { kUnigram = 1, kBpe, kWord, kChar };

struct Piece {
  std::string text;
  float score = 0;
  uint64_t type = kNormal;
};

struct Proto {
  std::vector<Piece> pieces;
  uint64_t model_type = kUnigram;
  bool has_bytes = false, is_suffix = false;
  int32_t begin = 1, end = 2;
  Charsmap charsmap;
  bool adds_prefix = true, removes_extra = true, escapes = true;
};

Status read_piece(std::string_view bytes, Proto& proto) {
  Piece p;
  ProtoReader reader(bytes);
  for (ProtoField f; TEGULA_TRY(reader.next(f));) {
    if (f.number == 1) p.text = f.bytes;
    if (f.number == 2) p.score = f.f32();
    if (f.number == 3) p.type = f.value;
  }
  const size_t id = proto.pieces.size();
  if (p.text.empty() || !is_utf8(p.text))
    return invalid_argument(cat("piece ", id, " is ", p.text.empty() ? "empty" : "no UTF-8"));
  if (!std::isfinite(p.score)) return invalid_argument(cat("piece ", id, " has no finite score"));
  if (p.type < kNormal || p.type > kByte || p.type == kUnused)
    return unsupported(cat("piece ", id, " '", p.text, "' has the type ", p.type,
                           p.type == kUnused ? ", unused" : ""));
  proto.pieces.push_back(std::move(p));
  return {};
}

Status read_trainer(std::string_view bytes, Proto& proto) {
  ProtoReader reader(bytes);
  for (ProtoField f; TEGULA_TRY(reader.next(f));) {
    if (f.number == 3) proto.model_type = f.value;
    if (f.number == 24) proto.is_suffix = f.value != 0;
    if (f.number == 35) proto.has_bytes = f.value != 0;
    if (f.number == 41) proto.begin = static_cast<int32_t>(f.value);
    if (f.number == 42) proto.end = static_cast<int32_t>(f.value);
  }
  return {};
}

Status read_normalizer(std::string_view bytes, Proto& proto, bool is_way_back) {
  ProtoReader reader(bytes);
  for (ProtoField f; TEGULA_TRY(reader.next(f));) {
    if (is_way_back && f.number == 2 && !f.bytes.empty())
      return unsupported("it normalises texts on the way back from ids, too");
    if (is_way_back) continue;
    if (f.number == 2 && !f.bytes.empty())
      proto.charsmap = TEGULA_TRY(Charsmap::read(std::string(f.bytes)));
    if (f.number == 3) proto.adds_prefix = f.value != 0;
    if (f.number == 4) proto.removes_extra = f.value != 0;
    if (f.number == 5) proto.escapes = f.value != 0;
  }
  return {};
}

Result<Proto> read_proto(std::string_view bytes) {
  Proto proto;
  ProtoReader reader(bytes);
  for (ProtoField f; TEGULA_TRY(reader.next(f));) {
    if (f.number == 1) TEGULA_TRY(read_piece(f.bytes, proto));
    if (f.number == 2) TEGULA_TRY(read_trainer(f.bytes, proto));
    if (f.number == 3 || f.number == 5) TEGULA_TRY(read_normalizer(f.bytes, proto, f.number == 5));
  }
  if (proto.pieces.empty()) return invalid_argument("it has no pieces");
  if (proto.is_suffix) return unsupported("its spaces end words (treat_whitespace_as_suffix)");
  if (!proto.escapes) return unsupported("its spaces stay spaces (escape_whitespaces is false)");
  if (proto.model_type != kUnigram && proto.model_type != kBpe)
    return unsupported(cat("it is a model of ", proto.model_type == kWord ? "words" : "characters",
                           " (model_type ", proto.model_type, ")"));
  return proto;
}

// A text in normal form. [sentencepiece, normalizer.cc]
class SpaceNormalizer {
 public:
  SpaceNormalizer(const Proto& proto, const AddedTokens& symbols)
      : charsmap_(proto.charsmap),
        symbols_(symbols),
        adds_prefix_(proto.adds_prefix),
        removes_extra_(proto.removes_extra) {}

  std::string apply(std::string_view text, bool adds_prefix) const {
    std::string out;
    bool is_behind_space = removes_extra_, has_begun = false;
    const auto put = [&](std::string_view part) {
      if (!has_begun && removes_extra_ && part == " ") return;
      if (!has_begun && adds_prefix_ && adds_prefix) out += kSpace;
      has_begun = true;
      while (is_behind_space && part.starts_with(' ')) part.remove_prefix(1);
      if (part.empty()) return;
      for (const char c : part)
        if (c == ' ')
          out += kSpace;
        else
          out += c;
      is_behind_space = removes_extra_ && part.ends_with(' ');
    };
    for (const AddedTokens::Piece& piece : symbols_.split(text, false)) {
      if (piece.id >= 0) {
        put(piece.text);
        continue;
      }
      for (std::string_view rest = piece.text; !rest.empty();) {
        const Charsmap::Match match = charsmap_.longest(rest);
        const CodePoint c = first_code_point(rest);
        const size_t n = match.n_bytes > 0 ? match.n_bytes : c.n_bytes;
        put(match.n_bytes > 0 ? match.to : c.is_valid ? rest.substr(0, n) : "\ufffd");
        rest.remove_prefix(n);
      }
    }
    while (removes_extra_ && out.ends_with(kSpace)) out.resize(out.size() - kSpace.size());
    return out;
  }

 private:
  Charsmap charsmap_;
  AddedTokens symbols_;
  bool adds_prefix_, removes_extra_;
};

class SentencePieceModel : public TokenModel {
 public:
  SentencePieceModel(SpaceNormalizer normalizer, AddedTokens symbols, bool is_first_alone)
      : normalizer_(std::move(normalizer)),
        symbols_(std::move(symbols)),
        is_first_alone_(is_first_alone) {}
  Status encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const override {
    const std::string normal = normalizer_.apply(text, is_first || !is_first_alone_);
    UnigramEncoder::Scratch scratch;
    if (merges == nullptr) return unigram.encode(normal, scratch, ids);
    for (const AddedTokens::Piece& p : symbols_.split(normal, false)) {
      if (p.id >= 0)
        ids.push_back(p.id);
      else
        TEGULA_TRY(merges->encode(p.text, false, ids));
    }
    return {};
  }
  Json::Object members() const override { return {}; }

  std::unique_ptr<BpeModel> merges;  // null: Unigram
  UnigramEncoder unigram;

 private:
  SpaceNormalizer normalizer_;
  AddedTokens symbols_;
  bool is_first_alone_;
};

// Two pieces whose texts are another one are merged to it: the larger score first.
Result<std::unique_ptr<BpeModel>> merges_of(const Proto& proto, const BpeAlphabet& alphabet,
                                            std::span<const std::string> names) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < proto.pieces.size(); ++id)
    if (proto.pieces[id].type == kNormal)
      ids.emplace(proto.pieces[id].text, static_cast<int32_t>(id));
  std::vector<BpeMerge> merges;
  for (const auto& [text, id] : ids) {
    const size_t before = merges.size();
    size_t n_characters = 0;
    for (size_t n = 0; n < text.size(); ++n_characters) {
      n += first_code_point(text.substr(n)).n_bytes;
      const auto left = ids.find(text.substr(0, n)), right = ids.find(text.substr(n));
      if (n < text.size() && left != ids.end() && right != ids.end())
        merges.push_back({left->second, right->second, id});
    }
    if (n_characters > 1 && merges.size() == before)
      return unsupported(cat("piece ", id, " '", text, "' is not two pieces of the model"));
  }
  std::sort(merges.begin(), merges.end(), [&](const BpeMerge& a, const BpeMerge& b) {
    const float x = proto.pieces[a.id].score, y = proto.pieces[b.id].score;
    return x != y         ? x > y
           : a.id != b.id ? a.id < b.id
                          : a.left < b.left || (a.left == b.left && a.right < b.right);
  });
  auto m = std::make_unique<BpeModel>(Words(), alphabet, merges);
  m->cut_at_junctions(names, merges);
  return m;
}

UnigramEncoder pieces_of(const Proto& proto, const BpeAlphabet& alphabet) {
  UnigramEncoder::Options o;
  o.unknown = alphabet.unknown, o.bytes = alphabet.bytes, o.sums_f32 = true;
  float smallest = INFINITY, largest = -INFINITY;
  for (const Piece& p : proto.pieces)
    if (p.type == kNormal)
      smallest = std::min(smallest, p.score), largest = std::max(largest, p.score);
  o.smallest = smallest;
  std::vector<UnigramPiece> pieces;
  for (size_t id = 0; id < proto.pieces.size(); ++id) {
    const Piece& p = proto.pieces[id];
    if (p.type != kNormal && p.type != kUserDefined) continue;
    // A symbol of the user's is chosen wherever it stands.
    const float all = static_cast<float>(p.text.size()) * largest - 0.1f;
    pieces.push_back({p.text, static_cast<int32_t>(id), p.type == kNormal ? p.score : all});
  }
  return UnigramEncoder(pieces, o);
}

}  // namespace

Result<SentencePieceFile> read_sentencepiece(std::string_view bytes, bool is_first_alone) {
  const Proto proto = TEGULA_TRY(read_proto(bytes));
  SentencePieceFile file;
  BpeAlphabet alphabet;
  alphabet.is_bytes = false, alphabet.fuses_unknown = true;
  std::vector<AddedToken> symbols;
  for (size_t i = 0; i < proto.pieces.size(); ++i) {
    const Piece& p = proto.pieces[i];
    const auto id = static_cast<int32_t>(i);
    file.names.push_back(p.text);
    file.are_bytes.push_back(p.type == kByte);
    file.are_control.push_back(p.type == kControl || p.type == kUnknown);
    if (p.type == kUserDefined) symbols.push_back({p.text, id});
    if (p.type == kUnknown) alphabet.unknown = id;
    const CodePoint c = first_code_point(p.text);
    if (p.type == kNormal && c.n_bytes == p.text.size()) alphabet.characters.emplace(c.value, id);
    if (p.type == kByte && proto.has_bytes) {
      uint32_t b = 0;
      while (b < 256 && p.text != cat("<0x", to_hex(b, 2), ">")) ++b;
      if (b == 256) return invalid_argument(cat("piece ", i, " '", p.text, "' is no byte"));
      alphabet.bytes[b] = id;
    }
  }
  if (alphabet.unknown < 0) return invalid_argument("it has no unknown piece");
  const auto place = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < file.names.size() ? id : -1;
  };
  file.begin = place(proto.begin), file.end = place(proto.end);
  file.n_spaces = proto.removes_extra ? 1'000'000 : proto.adds_prefix ? 1 : 0;
  // One with a space is kept by the normaliser, and found in no normal form: as in the library.
  const AddedTokens whole(symbols);
  auto model =
      std::make_shared<SentencePieceModel>(SpaceNormalizer(proto, whole), whole, is_first_alone);
  const bool is_bpe = proto.model_type == kBpe;
  if (is_bpe)
    model->merges = TEGULA_TRY(merges_of(proto, alphabet, file.names));
  else
    model->unigram = pieces_of(proto, alphabet);
  file.kind = is_bpe ? "sentencepiece" : "unigram";
  file.model = std::move(model);
  return file;
}

}  // namespace tegula
