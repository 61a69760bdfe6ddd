// Unigram (T5, XLM-RoBERTa, ALBERT, mT5) in the form of tokenizer.json: each word is cut into the
// likeliest pieces.
#include "tegula/base/algorithm.h"
#include "tegula/text/tokenizer_kind.h"
#include "tegula/text/unigram.h"

namespace tegula {
namespace {

class UnigramModel : public TokenModel {
 public:
  UnigramModel(Words words, UnigramEncoder encoder)
      : words_(std::move(words)), encoder_(std::move(encoder)) {}
  Status encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const override {
    struct Sink : WordSink {
      Sink(const UnigramEncoder& encoder, std::vector<int32_t>& ids) : encoder(encoder), ids(ids) {}
      void take(std::string_view word) override {
        if (status.ok()) status = encoder.encode(word, scratch, ids);
      }
      const UnigramEncoder& encoder;
      std::vector<int32_t>& ids;
      UnigramEncoder::Scratch scratch;
      Status status;
    } sink(encoder_, ids);
    words_.cut(text, is_first, sink);
    return sink.status;
  }
  Json::Object members() const override { return {}; }

 private:
  Words words_;
  UnigramEncoder encoder_;
};

bool is_it(const TokenizerFile& f) { return f.model_type == "Unigram"; }

Result<std::shared_ptr<const TokenModel>> read(const TokenizerFile& f) {
  TEGULA_TRY(check_keys(f.model, "model", {"unk_id", "vocab", "byte_fallback"}));
  if (f.words.is_byte_level()) return unsupported("its model Unigram follows ByteLevel");
  if (f.scores.empty()) return invalid_argument("model.vocab has no scores");
  UnigramEncoder::Options options;
  options.smallest = *std::min_element(f.scores.begin(), f.scores.end());
  if (const Json* unknown = f.model.find("unk_id"); !is_absent(unknown)) {
    const double id = unknown->number(-1);
    if (!(id >= 0 && id < static_cast<double>(f.scores.size())))
      return invalid_argument(cat("model.unk_id is none of the ", f.scores.size(), " tokens"));
    options.unknown = static_cast<int32_t>(id);
  }
  std::vector<UnigramPiece> pieces;
  for (size_t id = 0; id < f.scores.size(); ++id)
    pieces.push_back({f.names[id], static_cast<int32_t>(id), f.scores[id]});
  if (is_true(f.model.find("byte_fallback")))
    for (uint32_t b = 0; b < 256; ++b) {
      const auto at = f.ids.find(cat("<0x", to_hex(b, 2), ">"));
      if (at != f.ids.end() && !f.is_added[at->second]) options.bytes[b] = at->second;
    }
  return std::make_shared<UnigramModel>(f.words, UnigramEncoder(pieces, options));
}

}  // namespace

const TokenizerKind kUnigramTokenizer{"unigram", nullptr, is_it, read};

}  // namespace tegula
