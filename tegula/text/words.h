// Words: how tokenizer.json's "pre_tokenizer" cuts a text into the words that a model works on.
//
// A table of steps (words.cpp), each of which cuts what the one before it has left: Split by a
// pattern, ByteLevel's rule of GPT-2, Digits, Metaspace, WhitespaceSplit, Punctuation,
// BertPreTokenizer, and sequences of these. Patterns of the table of pretokenize.h have a scanner
// written by hand, the others are compiled (pattern.h). Errors: kUnsupported for other types, keys
// and orders, by name. Cost: linear; 100 MB/s and more for one step, and each step reads the text
// once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/text/json_form.h"
#include "tegula/text/pretokenize.h"

namespace tegula {

// Who takes the words, one after the other.
class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void take(std::string_view word) = 0;
};

// One step: hands all pieces of a text on, in their order.
class WordStep {
 public:
  virtual ~WordStep() = default;
  virtual void cut(std::string_view text, WordSink& to) const = 0;
};

class Words {
 public:
  // By a rule written by hand; null: a text is one word.
  static Words by(FirstWord rule);
  // Null pointer or JSON's null: a text is one word.
  static Result<Words> read(const Json* pre_tokenizer);

  bool is_whole() const { return steps_.empty(); }
  // Whether a space is put in front of the text alone; of its first word, once it is cut.
  bool puts_first() const { return prefix_ == Prefix::kFirst; }
  bool puts_behind_cuts() const { return puts_first() && !before_.empty(); }
  bool is_byte_level() const { return is_byte_level_; }
  // `is_first`: nothing stands before it in what is encoded.
  void cut(std::string_view text, bool is_first, WordSink& to) const;

 private:
  Status add(const Json& json);
  Status add_byte_level(const Json& json);
  Status add_metaspace(const Json& json);
  enum class Prefix : uint8_t { kNever, kFirst, kAlways };
  void change(std::string_view text, bool puts, std::string& to) const;
  // Cut before a space is put in front of each piece.
  std::vector<std::shared_ptr<const WordStep>> before_;
  // The text before it is cut: spaces replaced, one put in front.
  std::string space_;  // replaces spaces; empty: they stay
  Prefix prefix_ = Prefix::kNever;
  bool is_byte_level_ = false;
  std::vector<std::shared_ptr<const WordStep>> steps_;
};

}  // namespace tegula
