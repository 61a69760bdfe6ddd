#include "tegula/kernels/cuda/attention_features.h"

#include <string_view>

namespace tegula::cuda {

namespace {

constexpr int kMaxExpression = 400;
// Positions and a window's ends are added up in 32 bits.
constexpr int kMaxWindow = 1 << 29;

Status check_expression(std::string_view what, const std::string& text) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_. ,+-*/%<>=!&|^~?:()";
  if (text.size() > kMaxExpression)
    return invalid_argument(
        cat("attention: ", what, " has ", text.size(), " characters; at most ", kMaxExpression));
  const size_t at = text.find_first_not_of(kAllowed);
  if (at != std::string::npos)
    return invalid_argument(cat("attention: ", what, " \"", text, "\" has '", text[at], "' at ", at,
                                ": give one C expression without statements"));
  int open = 0;
  for (const char c : text) {
    open += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (open < 0) break;
  }
  if (open != 0)
    return invalid_argument(cat("attention: ", what, " \"", text, "\" has unmatched brackets"));
  return {};
}

Status needs(bool is_given, const char* feature, const char* what) {
  if (is_given) return {};
  return invalid_argument(cat("attention: ", feature, " needs ", what));
}

uint64_t hash(std::string_view text) {  // FNV-1a
  uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return h;
}

}  // namespace

std::string AttentionFeatures::name() const {
  std::string s;
  if (has_window) s += "_window";
  if (is_packed) s += "_packed";
  if (is_paged) s += "_paged";
  if (has_documents) s += "_documents";
  if (has_softcap) s += "_softcap";
  if (has_alibi) s += "_alibi";
  if (has_dropout) s += "_dropout";
  if (has_sinks) s += "_sinks";
  if (bias != BiasType::kNone) s += bias == BiasType::kF32 ? "_bias32" : "_bias16";
  if (!score_fn.empty()) s += cat("_score", hash(score_fn));
  if (!mask_fn.empty()) s += cat("_mask", hash(mask_fn));
  return s;
}

std::vector<std::string> AttentionFeatures::defines() const {
  std::vector<std::string> d;
  if (has_window) d.emplace_back("TEGULA_WINDOW=1");
  if (is_packed) d.emplace_back("TEGULA_VARLEN=1");
  if (is_paged) d.emplace_back("TEGULA_PAGED=1");
  if (has_documents) d.emplace_back("TEGULA_DOCUMENTS=1");
  if (has_softcap) d.emplace_back("TEGULA_SOFTCAP=1");
  if (has_alibi) d.emplace_back("TEGULA_ALIBI=1");
  if (has_dropout) d.emplace_back("TEGULA_DROPOUT=1");
  if (has_sinks) d.emplace_back("TEGULA_SINKS=1");
  if (bias != BiasType::kNone) d.push_back(cat("TEGULA_BIAS=", static_cast<int>(bias)));
  if (!score_fn.empty()) d.push_back("TEGULA_SCORE_FN=" + score_fn);
  if (!mask_fn.empty()) d.push_back("TEGULA_MASK_FN=" + mask_fn);
  return d;
}

Status AttentionFeatures::check() const {
  TEGULA_TRY(check_expression("score function", score_fn));
  TEGULA_TRY(check_expression("mask function", mask_fn));
  if (is_paged && (has_documents || has_dropout || bias != BiasType::kNone))
    return unsupported("attention: keys in pages go with no documents, bias or dropout");
  if (is_packed && has_documents)
    return unsupported(
        "attention: documents within packed sequences; give cu_seqlens of the documents, or "
        "documents of a batch that is not packed");
  return {};
}

Status check_features(const AttentionFeatures& f, const AttentionFeatureParams& p, int64_t batch) {
  TEGULA_TRY(f.check());
  if (f.is_packed) {
    TEGULA_TRY(needs(p.cu_seqlens_q && (p.cu_seqlens_k || f.is_paged) && p.n_sequences >= 0,
                     "packing", "offsets for q and for k, and how many sequences there are"));
    if (batch != 1)
      return unsupported(cat("attention: packed sequences in a batch of ", batch,
                             "; put all into one batch entry"));
  }
  if (f.is_paged)
    TEGULA_TRY(needs(p.seqlens_k && p.block_table && p.page_size > 0 && p.last_page >= 0, "paging",
                     "lengths, a block table and pages"));
  if (f.has_documents)
    TEGULA_TRY(needs(p.documents_q && p.documents_k, "documents", "their numbers for q and for k"));
  if (f.has_alibi) TEGULA_TRY(needs(p.slopes, "ALiBi", "slopes"));
  if (f.has_sinks) TEGULA_TRY(needs(p.sinks, "sinks", "a score for each head"));
  if (f.bias != BiasType::kNone) TEGULA_TRY(needs(p.bias, "bias", "a tensor"));
  if (f.has_softcap)
    TEGULA_TRY(
        needs(p.softcap > 0 && p.softcap_inverse > 0, "softcap", "a positive cap and its inverse"));
  if (f.has_dropout)
    TEGULA_TRY(needs(p.seed && p.dropout >= 0 && p.dropout < 1 && p.keep_factor >= 1, "dropout",
                     "a seed, a rate in [0, 1) and keep_factor = 1 / (1 - rate)"));
  if (f.has_window && (p.window_left > kMaxWindow || p.window_right > kMaxWindow))
    return unsupported(cat("attention: a window of (", p.window_left, ", ", p.window_right,
                           "); up to 2^29, or -1 for all"));
  return {};
}

}  // namespace tegula::cuda
