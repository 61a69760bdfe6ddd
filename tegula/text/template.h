// ChatTemplate: the Jinja template that makes one prompt of a chat's messages.
//
// Templates that `transformers` renders with jinja2 (an immutable sandbox, trim_blocks,
// lstrip_blocks, break and continue, its own tojson, raise_exception, strftime_now, {% generation
// %}), text for text: for, if, set, namespace, macro, call, with, filter, raw; expressions, slices,
// filters, tests and methods of texts, lists and dicts. Not computed, and refused by name and line:
// including other templates, recursive loops, a macro's varargs, cycler, joiner, formats with %,
// integers beyond 64 bits. Bounds hold for any template: levels, steps and bytes. Errors:
// kInvalidArgument for what is no Jinja, for what Jinja refuses too, and for what the template
// refuses by raise_exception; kUnsupported; with the template's name and the line. Cost: about .1
// µs a step. render() is thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tegula/base/memory.h"
#include "tegula/base/result.h"

namespace tegula {

class Json;
namespace jinja {
struct Node;
}

struct TemplateLimits {
  int64_t steps = 10'000'000;
  size_t text_bytes = size_t{64} << 20;
  int64_t now = -1;  // for strftime_now, seconds of Unix time; -1: the clock's
};

class ChatTemplate {
 public:
  // `what` names it in errors: a path, usually.
  static Result<ChatTemplate> parse(std::string_view text, std::string what);
  // The variables are an object: messages, add_generation_prompt, tools, bos_token, …
  Result<std::string> render(const Json& variables, const TemplateLimits& limits = {}) const;

 private:
  ChatTemplate(std::string what, std::shared_ptr<const jinja::Node> root);
  std::string what_;
  std::shared_ptr<const jinja::Node> root_;
};

}  // namespace tegula
