#include "tegula/text/normalizer.h"

#include "tegula/base/range.h"
#include "tegula/io/utf8.h"
#include "tegula/text/grapheme.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/unicode.h"

namespace tegula {
namespace {

constexpr double kMostGrowth = 10'000;

bool is_space(char32_t c) { return c < 0x110000 && char_class(c) == CharClass::kSpace; }

// The blocks of Han characters that BERT sets apart by spaces.
bool is_chinese(char32_t c) {
  constexpr char32_t kBlocks[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                     {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                     {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return any_of(kBlocks, [c](const auto& block) { return block[0] <= c && c <= block[1]; });
}

// Nothing joins an ASCII character from before it, so a text may be cut there.
std::string in_normal_form(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80) ++end;
    if (end < text.size() && end > at) --end;  // the last one may be composed with what follows
    out += text.substr(at, end - at);
    at = end;
    if (at == text.size()) break;
    ++end;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    out += to_utf8(normal_form(to_code_points(text.substr(at, end - at)), form));
    at = end;
  }
  return out;
}

// The same for what changes characters without regard to ASCII ones behind them.
template <class Change>
std::string by_parts(std::string_view text, Change change) {
  constexpr size_t kPart = size_t{1} << 16;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.size(), at + kPart);
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    out += to_utf8(change(to_code_points(text.substr(at, end - at))));
    at = end;
  }
  return out;
}

std::string strip(std::string_view text, bool left, bool right) {
  const std::u32string all = to_code_points(text);
  size_t begin = 0, end = all.size();
  while (left && begin < end && is_space(all[begin])) ++begin;
  while (right && end > begin && is_space(all[end - 1])) --end;
  return to_utf8(std::u32string_view(all).substr(begin, end - begin));
}

std::u32string without(std::u32string_view text, bool (*is_gone)(char32_t)) {
  std::u32string out;
  for (const char32_t c : text)
    if (c >= 0x110000 || !is_gone(c)) out += c;
  return out;
}

std::u32string clean(std::u32string_view text) {
  std::u32string out = without(text, is_control);
  for (char32_t& c : out)
    if (is_space(c)) c = ' ';
  return out;
}

std::u32string part_chinese(std::u32string_view text) {
  std::u32string out;
  for (const char32_t c : text) {
    const bool is_apart = is_chinese(c);
    if (is_apart) out += ' ';
    out += c;
    if (is_apart) out += ' ';
  }
  return out;
}

std::string replace(std::string_view text, const TextPattern& pattern, std::string_view with) {
  TextPattern::Finder finder(pattern, text);
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Pattern::Match match = finder.find(at);
    out += text.substr(at, match.begin - at);
    if (match.begin == text.size()) break;
    out += with;
    at = match.end;
  }
  return out;
}

// As the library does it: what a character with its marks begins with, if they are up to five
// bytes, stands for all of them.
std::string by_charsmap(std::string_view text, const Charsmap& charsmap) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t n = grapheme_bytes(text.substr(at));
    const auto whole = n < 6 ? charsmap.shortest(text.substr(at, n)) : Charsmap::Match{};
    if (whole.n_bytes > 0) {
      out += whole.to;
      at += n;
      continue;
    }
    for (const size_t end = at + n; at < end;) {
      const auto one = text.substr(at, first_code_point(text.substr(at)).n_bytes);
      const auto match = charsmap.shortest(one);
      out += match.n_bytes > 0 ? match.to : one;
      at += one.size();
    }
  }
  return out;
}

}  // namespace

Result<Normalizer> Normalizer::read(const Json* normalizer) {
  Normalizer n;
  if (!is_absent(normalizer)) TEGULA_TRY(n.add(*normalizer));
  return n;
}

Status Normalizer::add(const Json& json) {
  const std::string type = text_of(json.find("type"));
  const std::string name = cat("normalizer ", type);
  if (type == "Sequence") {
    TEGULA_TRY(check_keys(json, name, {"normalizers"}));
    for (const Json& each : list_of(json.find("normalizers"))) TEGULA_TRY(add(each));
    return {};
  }
  constexpr std::string_view kPlain[] = {"NFD", "NFKD", "NFC", "NFKC", "Lowercase", "StripAccents"};
  for (uint8_t i = 0; i < std::size(kPlain); ++i)
    if (type == kPlain[i]) {
      steps_.push_back({static_cast<Kind>(i)});
      return check_keys(json, name, {});
    }
  Step step;
  if (type == "Strip") {
    TEGULA_TRY(check_keys(json, name, {"strip_left", "strip_right"}));
    step.kind = Kind::kStrip;
    step.strips_left = is_true(json.find("strip_left"));
    step.strips_right = is_true(json.find("strip_right"));
  } else if (type == "Prepend") {
    TEGULA_TRY(check_keys(json, name, {"prepend"}));
    step.kind = Kind::kPrepend;
    step.text = TEGULA_TRY(need_text(json, name, "prepend"));
  } else if (type == "Replace") {
    TEGULA_TRY(check_keys(json, name, {"pattern", "content"}));
    step.kind = Kind::kReplace;
    step.pattern = TEGULA_TRY(TextPattern::read(json, name));
    step.text = TEGULA_TRY(need_text(json, name, "content"));
    growth_ *= std::max<double>(1, static_cast<double>(step.text.size()));
    if (growth_ > kMostGrowth) return unsupported("its normalizer makes texts so much longer");
  } else if (type == "BertNormalizer") {
    TEGULA_TRY(check_keys(json, name,
                          {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}));
    step.kind = Kind::kBert;
    step.cleans = is_true(json.find("clean_text"));
    step.parts_chinese = is_true(json.find("handle_chinese_chars"));
    step.lowers = is_true(json.find("lowercase"));
    const Json* accents = json.find("strip_accents");
    step.strips_accents = is_absent(accents) ? step.lowers : is_true(accents);
  } else if (type == "Precompiled") {
    TEGULA_TRY(check_keys(json, name, {"precompiled_charsmap"}));
    step.kind = Kind::kPrecompiled;
    const Json* map = json.find("precompiled_charsmap");
    if (is_absent(map) || text_of(map).empty()) return {};  // nothing is replaced
    step.charsmap = TEGULA_TRY(Charsmap::read(TEGULA_TRY(from_base64(text_of(map)))));
  } else {
    return unsupported(cat("its normalizer is of type ", type.empty() ? "none" : type));
  }
  steps_.push_back(std::move(step));
  return {};
}

bool Normalizer::moves_the_first() const {
  constexpr Kind kMoves[] = {Kind::kReplace, Kind::kStripAccents, Kind::kStrip, Kind::kBert};
  return any_of(steps_, [&](const Step& s) { return contains(kMoves, s.kind); });
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) out = apply(step, out);
  return out;
}

std::string Normalizer::apply(const Step& step, std::string_view text) {
  switch (step.kind) {
    case Kind::kNfd:
    case Kind::kNfkd:
    case Kind::kNfc:
    case Kind::kNfkc: {
      constexpr NormalForm kForms[] = {NormalForm::kNfd, NormalForm::kNfkd, NormalForm::kNfc,
                                       NormalForm::kNfkc};
      return in_normal_form(text, kForms[static_cast<int>(step.kind)]);
    }
    case Kind::kLowercase:
      return by_parts(text, [](const std::u32string& all) { return lower_case(all); });
    case Kind::kStripAccents:
      return by_parts(text, [](const std::u32string& all) { return without(all, is_mark); });
    case Kind::kStrip:
      return strip(text, step.strips_left, step.strips_right);
    case Kind::kPrepend:
      return text.empty() ? "" : cat(step.text, text);
    case Kind::kReplace:
      return replace(text, step.pattern, step.text);
    case Kind::kPrecompiled:
      return by_charsmap(text, step.charsmap);
    case Kind::kBert:
      return by_parts(text, [&](std::u32string all) {
        if (step.cleans) all = clean(all);
        if (step.parts_chinese) all = part_chinese(all);
        if (step.strips_accents)
          all = without(normal_form(all, NormalForm::kNfd), is_nonspacing_mark);
        return step.lowers ? lower_case(all) : all;
      });
  }
  return std::string(text);
}

}  // namespace tegula
