#include "tegula/serve/chat.h"

namespace tegula {

Result<ChatPrompts> ChatPrompts::open(const ModelFiles& files, const Tokenizer& tokenizer,
                                      const TextFile& instead, Json variables) {
  const TextFile its = instead.text.empty() ? TEGULA_TRY(files.chat_template()) : instead;
  if (its.text.empty())
    return invalid_argument(
        cat("'", files.path(), "' has no chat template (chat_template.jinja, ",
            "chat_template in tokenizer_config.json, tokenizer.chat_template in a ",
            "GGUF file), so it is no model of ",
            "chats: give one with --chat-template FILE, or continue a text ",
            "with tegula generate --prompt"));
  const TextFile special = TEGULA_TRY(files.special_tokens());
  Json all =
      Json::object({{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true}});
  const Json tokens = TEGULA_TRY(Json::parse(special.text, special.path));
  for (const Json* each : {&tokens, static_cast<const Json*>(&variables)})
    if (const auto* members = each->as<Json::Object>())
      for (const auto& [key, value] : *members) all.set(key, value);
  ChatPrompts chat(TEGULA_TRY(ChatTemplate::parse(its.text, its.path)), tokenizer, std::move(all));
  if (const Json* end = tokens.find("eos_token"); end != nullptr) {
    chat.end_of_turn_ = TEGULA_TRY(tokenizer.encode(*end->as<std::string>(), false));
    if (chat.end_of_turn_.size() != 1) chat.end_of_turn_.clear();  // no token of the vocabulary
  }
  return chat;
}

// A message's reasoning has several names; templates read the first, or the second.
static Json with_reasoning(const Json& message) {
  constexpr const char* kNames[] = {"reasoning_content", "thinking", "reasoning"};
  for (const char* name : kNames) {
    const Json* said = message.find(name);
    if (said == nullptr || said->is_null()) continue;
    Json all = Json::object();
    if (message.find("thinking") == nullptr) all.set("thinking", *said);
    for (const auto& [key, value] : *message.as<Json::Object>()) all.set(key, value);
    all.set("reasoning_content", *said);
    return all;
  }
  return message;
}

Result<std::vector<int32_t>> ChatPrompts::ids(const Json& chat) const {
  Json all = variables_;
  if (chat.as<Json::Array>() != nullptr) all.set("messages", chat);
  if (const auto* members = chat.as<Json::Object>())
    for (const auto& [key, value] : *members) all.set(key, value);
  const Json* messages = all.find("messages");
  const auto* list = messages != nullptr ? messages->as<Json::Array>() : nullptr;
  if (list == nullptr || list->empty())
    return invalid_argument(
        "a chat is a list of messages, or an object with \"messages\": [{\"role\": "
        "\"user\", \"content\": \"…\"}]");
  Json::Array each;
  for (const Json& message : *list) {
    if (message.as<Json::Object>() == nullptr)
      return invalid_argument(
          cat("message ", each.size() + 1, " is no object with a role and a content"));
    each.push_back(with_reasoning(message));
  }
  all.set("messages", std::move(each));
  return tokenizer_->encode(TEGULA_TRY(template_.render(all)), false);
}

}  // namespace tegula
