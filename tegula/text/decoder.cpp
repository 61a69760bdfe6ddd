#include "tegula/text/decoder.h"

#include <array>
#include <charconv>

#include "tegula/base/range.h"
#include "tegula/io/utf8.h"

namespace tegula {
namespace {

// JSON strings hold characters, not bytes, so GPT-2 writes each byte as a visible character:
// itself where Latin-1 shows one, else the next one from U+0100 on.
struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<int, 0x180> byte{};
  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool is_visible = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      character[b] = is_visible ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};
const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = from.empty() ? text.npos : text.find(from);
    out += text.substr(0, at);
    if (at == text.npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

// As the library does it, in this order.
std::string clean_up(std::string text) {
  constexpr std::string_view kPairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                            {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                            {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                            {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) text = replace_all(text, from, to);
  return text;
}

// "<0xE9>" as its byte, or what it is.
std::string byte_of(std::string name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return name;
  unsigned byte = 0;
  const auto read = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  if (read.ec != std::errc() || read.ptr != name.data() + 5) return name;
  return std::string(1, static_cast<char>(byte));
}

}  // namespace

std::string to_visible(std::string_view bytes) {
  std::string out;
  for (char b : bytes) append_utf8(out, byte_alphabet().character[static_cast<unsigned char>(b)]);
  return out;
}

bool from_visible(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (!c.is_valid || c.value >= byte_alphabet().byte.size() || byte_alphabet().byte[c.value] < 0)
      return false;
    bytes += static_cast<char>(byte_alphabet().byte[c.value]);
    at += c.n_bytes;
  }
  return true;
}

Result<Decoder> Decoder::read(const Json* decoder) {
  Decoder d;
  if (is_absent(decoder))
    d.steps_.push_back({Kind::kJoin});
  else
    TEGULA_TRY(d.add(*decoder));
  return d;
}

Status Decoder::add(const Json& json) {
  const std::string type = text_of(json.find("type"));
  const std::string name = cat("decoder ", type);
  if (type == "Sequence") {
    TEGULA_TRY(check_keys(json, name, {"decoders"}));
    for (const Json& each : list_of(json.find("decoders"))) TEGULA_TRY(add(each));
    return {};
  }
  if (type == "Fuse") {
    is_fused_ = true;
    return check_keys(json, name, {});
  }
  Step step{};
  if (type == "ByteLevel") {
    TEGULA_TRY(check_keys(json, name, {"add_prefix_space", "trim_offsets", "use_regex"}));
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    TEGULA_TRY(check_keys(json, name, {}));
    step.kind = Kind::kByteFallback;
  } else if (type == "Replace") {
    TEGULA_TRY(check_keys(json, name, {"pattern", "content"}));
    step.kind = Kind::kReplace;
    const Json* pattern = json.find("pattern");
    step.from = pattern != nullptr ? text_of(pattern->find("String")) : "";
    if (step.from.empty()) return unsupported("its decoder replaces what a pattern finds");
    step.to = TEGULA_TRY(need_text(json, name, "content"));
  } else if (type == "Strip") {
    TEGULA_TRY(check_keys(json, name, {"content", "start", "stop"}));
    step.kind = Kind::kStrip;
    step.from = TEGULA_TRY(need_text(json, name, "content"));
    const Json *start = json.find("start"), *stop = json.find("stop");
    step.at_begin = static_cast<size_t>(std::clamp(start ? start->number(0) : 0, 0.0, 1e6));
    step.at_end = static_cast<size_t>(std::clamp(stop ? stop->number(0) : 0, 0.0, 1e6));
  } else if (type == "Metaspace") {
    TEGULA_TRY(check_keys(
        json, name, {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}));
    step.kind = Kind::kMetaspace;
    step.from = TEGULA_TRY(need_text(json, name, "replacement"));
    const Json *scheme = json.find("prepend_scheme"), *older = json.find("add_prefix_space");
    step.is_on =
        scheme != nullptr ? text_of(scheme) != "never" : older == nullptr || is_true(older);
  } else if (type == "WordPiece") {
    TEGULA_TRY(check_keys(json, name, {"prefix", "cleanup"}));
    step.kind = Kind::kWordPiece;
    step.from = TEGULA_TRY(need_text(json, name, "prefix"));
    step.is_on = is_true(json.find("cleanup"));
  } else {
    return unsupported(cat("its decoder is of type ", type.empty() ? "none" : type));
  }
  if (!is_fused_) {
    steps_.push_back(std::move(step));
    return {};
  }
  if (step.kind != Kind::kStrip || step.at_end > 0 || n_strips_ > 0)
    return unsupported(cat("its decoder has ", type, " behind Fuse"));
  strips_ = step.from, n_strips_ = step.at_begin;
  return {};
}

std::string Decoder::text(std::string_view name, bool is_first) const {
  std::string out(name);
  for (const Step& step : steps_) out = apply(step, std::move(out), is_first);
  return out;
}

std::string Decoder::apply(const Step& step, std::string text, bool is_first) {
  switch (step.kind) {
    case Kind::kByteLevel: {
      std::string bytes;
      return from_visible(text, bytes) ? bytes : text;
    }
    case Kind::kByteFallback:
      return byte_of(std::move(text));
    case Kind::kReplace:
      return replace_all(text, step.from, step.to);
    case Kind::kStrip: {
      std::string_view rest = text;
      for (size_t i = 0; i < step.at_begin && rest.starts_with(step.from); ++i)
        rest.remove_prefix(step.from.size());
      for (size_t i = 0; i < step.at_end && rest.ends_with(step.from); ++i)
        rest.remove_suffix(step.from.size());
      return std::string(rest);
    }
    case Kind::kMetaspace:
      return replace_all(text, step.from, is_first && step.is_on ? "" : " ");
    case Kind::kWordPiece: {
      if (!is_first)
        text = text.starts_with(step.from) ? text.substr(step.from.size()) : cat(" ", text);
      return step.is_on ? clean_up(std::move(text)) : text;
    }
    case Kind::kJoin:
      return is_first ? text : cat(" ", text);
  }
  return text;
}

bool Decoder::is_byte(std::string_view name) const {
  const auto falls_back = [](const Step& s) { return s.kind == Kind::kByteFallback; };
  return name.size() == 6 && byte_of(std::string(name)).size() == 1 && any_of(steps_, falls_back);
}

bool Decoder::minds_the_first() const {
  return any_of(steps_, [](const Step& s) {
    return s.kind == Kind::kWordPiece || s.kind == Kind::kJoin ||
           (s.kind == Kind::kMetaspace && s.is_on);
  });
}

size_t Decoder::stripped(std::string_view text) const {
  size_t n = 0;
  for (size_t i = 0; i < n_strips_ && text.substr(n).starts_with(strips_); ++i) n += strips_.size();
  return n;
}

}  // namespace tegula
