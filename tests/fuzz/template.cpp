// Chat templates: one that is accepted ends within its bounds, with a text or an error that names
// it, and renders to the same again.
#include "tegula/text/template.h"

#include "tegula/io/json.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  static const Json variables =
      Json::parse(R"({"messages": [{"role": "user", "content": "Hi \"é\"\n"},
                                   {"role": "assistant", "content": null, "tool_calls": [{"a": [1, 2.5]}]}],
                      "tools": [{"name": "f", "parameters": {"x": {"type": "string"}}}],
                      "add_generation_prompt": true, "numbers": [3, 1, 2]})",
                  "variables")
          .value();
  const auto parsed = ChatTemplate::parse(input, "input");
  if (!parsed.ok()) {
    TEGULA_CHECK(parsed.error().message.find("line ") != std::string::npos, parsed.error().message);
    return false;
  }
  const TemplateLimits limits{.steps = 20'000, .text_bytes = 1 << 20, .now = 1};
  const auto text = parsed->render(variables, limits), again = parsed->render(variables, limits);
  TEGULA_CHECK(text.ok() == again.ok());
  if (text.ok())
    TEGULA_CHECK(*text == *again && text->size() <= limits.text_bytes + input.size());
  else
    TEGULA_CHECK(text.error().message == again.error().message);
  return true;
}

}  // namespace

extern constinit const Target template_target{"template", run};

}  // namespace tegula::fuzz
