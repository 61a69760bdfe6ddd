#include "tegula/text/template.h"

#include <gtest/gtest.h>

#include "tegula/io/json.h"

namespace tegula {
namespace {

Result<std::string> render(std::string_view text, const Json& variables,
                           const TemplateLimits& limits = {}) {
  const auto parsed = ChatTemplate::parse(text, "t.jinja");
  if (!parsed.ok()) return parsed.error();
  return parsed->render(variables, limits);
}

Json variables() {
  return Json::parse(R"({"messages": [{"role": "user", "content": " Hi, \"Zoë\" "},
                                      {"role": "assistant", "content": "Yes.\n"}],
                         "tools": [{"name": "f", "args": {"x": 1.5, "n": null, "b": true}}],
                         "add_generation_prompt": true, "bos_token": "<s>", "numbers": [3, 1, 2]})",
                     "variables")
      .value();
}

// jinja2's answers: tests/oracle/chat_templates_test.py asks it itself, on many more.
TEST(Template, RendersAsJinjaDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m.content | trim }}\n{% endfor "
       "%}"
       "{% if add_generation_prompt %}<|assistant|>{% endif %}",
       "<s><|user|>Hi, \"Zoë\"\n<|assistant|>Yes.\n<|assistant|>"},
      {"{{ tools | tojson }}", R"([{"name": "f", "args": {"x": 1.5, "n": null, "b": true}}])"},
      {"{{ tools[0].args | tojson(indent=2) }}",
       "{\n  \"x\": 1.5,\n  \"n\": null,\n  \"b\": true\n}"},
      {"{{ tools[0].args }}", "{'x': 1.5, 'n': None, 'b': True}"},
      {"a\n  {% if true %}\n  b\n  {% endif %}\n", "a\n  b\n"},
      {"{% set ns = namespace(s=0) %}{% for n in numbers %}{% set ns.s = ns.s + n %}{% endfor %}{{ "
       "ns.s }}",
       "6"},
      {"{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(b=3, a=4) }}", "1243"},
      {"{% for n in numbers if n > 1 %}{{ loop.index }}{{ n }}{{ ',' if not loop.last }}{% endfor "
       "%}",
       "13,22"},
      {"{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}",
       " Hi, \"Zoë\" "},
      {"{% set ns = namespace(n=0) %}{% for x in numbers if ns.n < 2 %}{{ x }}{% set ns.n = ns.n + "
       "1 %}"
       "{% endfor %}",
       "31"},
      {"{{ strftime_now('%d %b %Y') }}", "14 Nov 2023"},
      {"{{ 'Zoë'[::-1] ~ 7 // 2 ~ none ~ 1e16 ~ (1,) }}", "ëoZ3None1e+16(1,)"},
  };
  TemplateLimits limits;
  limits.now = 1'700'000'000;
  for (const auto& [text, expected] : cases) {
    const auto made = render(text, variables(), limits);
    ASSERT_TRUE(made.ok()) << text << ": " << made.error().message;
    EXPECT_EQ(*made, expected) << text;
  }
}

TEST(Template, SaysWhatIsWrongAndInWhichLine) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"\n{% if true %}", {"t.jinja", "line", "{% endif %}"}},
      {"a\n\n{{ 1 + }}", {"line 3", "unexpected"}},
      {"{% nosuch %}", {"line 1", "unknown tag {% nosuch %}"}},
      {"\n{% include 'x' %}", {"line 2", "the tag {% include %}"}},
      {"{% for x in y recursive %}{% endfor %}", {"line 1", "recursive"}},
      {"\n\n{{ x | nosuch }}", {"line 3", "the filter nosuch"}},
      {"{{ x is nosuch }}", {"line 1", "the test nosuch"}},
      {"\n{{ x.y }}", {"line 2", "'x' is undefined"}},
      {"{{ numbers.append(1) }}", {"line 1", "list.append"}},
      {"{{ 'a' % 1 }}", {"line 1", "a format"}},
      {"{{ 9223372036854775807 + 1 }}", {"line 1", "64 bits"}},
      {"{{ cycler(1) }}", {"line 1", "the function cycler"}},
      {"{% macro f() %}\n{{ 1 + 'a' }}{% endmacro %}\n{{ f() }}", {"line 2", "int", "str"}},
      {"{{ dict(**numbers) }}", {"line 1", "arguments behind **"}},
      {"{{ raise_exception('no ' ~ 'system') }}", {"t.jinja", "refuses these messages: no system"}},
  };
  for (const auto& [text, words] : cases) {
    const auto made = render(text, variables());
    ASSERT_FALSE(made.ok()) << text << " gave " << *made;
    for (const char* word : words)
      EXPECT_NE(made.error().message.find(word), std::string::npos)
          << text << ": " << made.error().message;
  }
}

std::string repeated(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// A template may come from anyone: it ends, in bounded memory, and not by the stack.
TEST(Template, HostileOnesEnd) {
  const std::string texts[] = {
      "{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}",
      "{{ " + repeated("[", 100000) + repeated("]", 100000) + " }}",
      "{{ " + repeated("not ", 100000) + "1 }}",
      "{{ " + repeated("-", 100000) + "1 }}",
      "{{ 1" + repeated(" + 1", 100000) + " }}",
      "{{ x" + repeated(".x", 100000) + " }}",
      "{{ x" + repeated("|list", 100000) + " }}",
      repeated("{% if 1 %}", 100000) + repeated("{% endif %}", 100000),
      "{{ 1 if 1 else " + repeated("1 if 1 else ", 100000) + "1 }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}",
      "{% set ns = namespace(x=[]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}"
      "{{ ns.x | tojson | length }}{{ ns.x | string | length }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}"
      "{{ ns.x == [ns.x[0], ns.x[1]] }}{{ ns.x[0] == ns.x[1][:] }}",
      "{{ 'x' * 99999999999 }}",
      "{{ [0] * 99999999999 }}",
      "{{ range(999999999) }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{{ '" + std::string(5000, 'x') + "' }}{% endfor %}",
      "{{ 'x' | indent(99999999) }}{{ ('a\n' * 9999) | indent(99999) }}",
      "{{ ('a' * 99999) | replace('', 'b' * 99999) }}",
      "{{ 'a' | join('b' * 99999999) }}{{ (range(9999) | list) | join('b' * 9999999) }}",
  };
  for (const std::string& text : texts) {
    const auto made = render(text, Json::object());
    const bool is_short = made.ok() && made->size() < 100'000;
    EXPECT_TRUE(!made.ok() || is_short) << text.substr(0, 120);
  }
}

}  // namespace
}  // namespace tegula
