#include "tegula/text/template.h"

#include "tegula/text/template_evaluator.h"

namespace tegula {

namespace {
Error named(std::string_view what, Error error) {
  error.message = cat("the chat template '", what, "': ", error.message);
  return error;
}
}  // namespace

ChatTemplate::ChatTemplate(std::string what, std::shared_ptr<const jinja::Node> root)
    : what_(std::move(what)), root_(std::move(root)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string what) {
  auto root = jinja::parse_template(text);
  if (!root.ok()) return named(what, std::move(root).error());
  return ChatTemplate(std::move(what), std::make_shared<const jinja::Node>(std::move(*root)));
}

Result<std::string> ChatTemplate::render(const Json& variables,
                                         const TemplateLimits& limits) const {
  auto text = jinja::Evaluator(variables, limits).render(*root_);
  if (!text.ok()) return named(what_, std::move(text).error());
  return text;
}

}  // namespace tegula
