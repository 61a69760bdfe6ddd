// Renders chat templates, for tests that compare with jinja2.
//   run_template < requests > results
// A request is a line of JSON, {"template": …, "variables": {…}, "now": seconds of Unix time}; so
// is a result, {"text": …} or {"error": …}.
#include <cstdio>
#include <string>

#include "tegula/io/json.h"
#include "tegula/text/template.h"

namespace {

tegula::Result<std::string> render(const tegula::Json& request) {
  const auto* text = request.find("template")->as<std::string>();
  const auto parsed = TEGULA_TRY(tegula::ChatTemplate::parse(*text, "template"));
  tegula::TemplateLimits limits;
  limits.now = *request.find("now")->as<int64_t>();
  return parsed.render(*request.find("variables"), limits);
}

}  // namespace

int main() {
  std::string line;
  for (int c = 0; (c = std::getchar()) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
      continue;
    }
    const auto request = tegula::Json::parse(line, "request");
    if (!request.ok()) return 2;
    const auto text = render(*request);
    const tegula::Json result =
        tegula::Json::object({text.ok() ? tegula::Json::Member{"text", *text}
                                        : tegula::Json::Member{"error", text.error().message}});
    std::puts(result.dump().c_str());
    line.clear();
  }
}
