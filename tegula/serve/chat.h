// ChatPrompts: the ids of a prompt, of a chat's messages, by a model's template.
//
// The template sees what transformers gives it: messages, add_generation_prompt, tools and
// documents (none, unless they are given), the texts of special tokens, and further variables; what
// a message says of its reasoning has all the names that templates read.
// Its text is encoded as it is: special tokens are those that the template writes.
// Errors: kInvalidArgument where neither the model has a template nor one is given, and for
// messages that are no list of objects; those of ChatTemplate and Tokenizer.
#pragma once

#include "tegula/io/json.h"
#include "tegula/models/model_files.h"
#include "tegula/text/template.h"
#include "tegula/text/tokenizer.h"

namespace tegula {

class ChatPrompts {
 public:
  // `instead`: a template that counts, if it has a text; `variables`: an object.
  static Result<ChatPrompts> open(const ModelFiles& files, const Tokenizer& tokenizer,
                                  const TextFile& instead, Json variables);
  // `chat`: a list of messages, {"role": …, "content": …}, or an object with such "messages", and
  // with what else the template shall see ("tools").
  Result<std::vector<int32_t>> ids(const Json& chat) const;
  // Ids of the model's eos_token: where the files name other ends of a text, it ends a turn, too.
  const std::vector<int32_t>& end_of_turn() const { return end_of_turn_; }

 private:
  ChatPrompts(ChatTemplate of, const Tokenizer& tokenizer, Json variables)
      : template_(std::move(of)), tokenizer_(&tokenizer), variables_(std::move(variables)) {}
  ChatTemplate template_;
  const Tokenizer* tokenizer_;
  Json variables_;
  std::vector<int32_t> end_of_turn_;
};

}  // namespace tegula
