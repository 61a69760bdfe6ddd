#include "tegula/text/template.h"

#include "tegula/base/amounts.h"
#include "tegula/text/template_evaluator.h"

namespace tegula {

ChatTemplate::ChatTemplate(std::string what, std::shared_ptr<const jinja::Node> root)
    : what_(std::move(what)), root_(std::move(root)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string what) {
  auto root = TEGULA_TRY(named(cat("the chat template '", what, "'"), jinja::parse_template(text)));
  return ChatTemplate(std::move(what), std::make_shared<const jinja::Node>(std::move(root)));
}

Result<std::string> ChatTemplate::render(const Json& variables,
                                         const TemplateLimits& limits) const {
  return named(cat("the chat template '", what_, "'"),
               jinja::Evaluator(variables, limits).render(*root_));
}

}  // namespace tegula
