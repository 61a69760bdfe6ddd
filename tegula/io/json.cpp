#include "tegula/io/json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "tegula/io/wrong_file.h"

namespace tegula {
namespace {

constexpr size_t kMaxDepth = 128;

// Builds a Json from the parser's events; a false return ends the parse.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return add(static_cast<double>(value));
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json(Json::Array())); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!levels_.back().keys.insert(value).second) {
      error_ = cat("the key '", value, "' stands twice in one object");
      return false;
    }
    levels_.back().key = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& e) override {
    error_ = cat("syntax error at byte ", position);
    const std::string_view text = e.what();
    const size_t at = text.find("syntax error");
    const std::string_view reason = at == text.npos ? text : text.substr(at);
    append(error_, cat(" near '", token.substr(0, 40), "' (", reason.substr(0, 200), ")"));
    return false;
  }

  Json root;
  std::string& error() { return error_; }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };
  bool open(Json value) {
    if (levels_.size() == kMaxDepth) {
      error_ = cat("it is nested more than ", kMaxDepth, " levels deep");
      return false;
    }
    levels_.push_back({std::move(value), {}, {}});
    return true;
  }
  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (levels_.empty()) {
      root = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (auto* object = level.value.as<Json::Object>())
      object->push_back({std::move(level.key), std::move(value)});
    else
      level.value.as<Json::Array>()->push_back(std::move(value));
    return true;
  }
  std::vector<Level> levels_;
  std::string error_;
};

void append_quoted(std::string& out, const std::string& s) {
  // The library knows which bytes are UTF-8 and which characters need an escape.
  out += nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  // So that a float stays a float when read back.
  if (text.find_first_of(".e") == text.npos) out += ".0";
}

void new_line(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

}  // namespace

Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}

Json Json::object(std::initializer_list<Member> members) { return Json(Object(members)); }

Result<Json> Json::parse(std::string_view text, std::string_view what) {
  // In another kind of file the place of a syntax error says nothing.
  const auto refuse = [&](const std::string& why) {
    const std::string other = what_it_is_instead(text, true);
    return invalid_argument(cat("'", what, "' is not valid JSON: ", other.empty() ? why : other));
  };
  // The library takes it for the end of the text, and what follows would pass unseen.
  if (const size_t at = text.find('\0'); at != text.npos)
    return refuse(cat("it has a NUL byte at ", at));
  Builder builder;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.root);
  const auto has = [&](const char* text) {
    return builder.error().find(text) != std::string::npos;
  };
  if (has("unexpected end of input") || has("missing closing quote"))
    builder.error() += ": it ends too early, as a truncated file does";
  return refuse(builder.error());
}

std::string Json::dump(int indent) const {
  std::string out;
  append_to(out, indent, 0);
  return out;
}

void Json::append_to(std::string& out, int indent, int depth) const {
  const auto separate = [&](size_t i) {
    if (i > 0) out += indent < 0 ? ", " : ",";
    new_line(out, indent, depth + 1);
  };
  if (is_null()) {
    out += "null";
  } else if (const bool* b = as<bool>()) {
    out += *b ? "true" : "false";
  } else if (const int64_t* i = as<int64_t>()) {
    out += std::to_string(*i);
  } else if (const double* d = as<double>()) {
    append_number(out, *d);
  } else if (const auto* s = as<std::string>()) {
    append_quoted(out, *s);
  } else if (const auto* array = as<Array>()) {
    out += '[';
    for (size_t k = 0; k < array->size(); ++k) {
      separate(k);
      (*array)[k].append_to(out, indent, depth + 1);
    }
    if (!array->empty()) new_line(out, indent, depth);
    out += ']';
  } else if (const auto* object = as<Object>()) {
    out += '{';
    for (size_t k = 0; k < object->size(); ++k) {
      separate(k);
      append_quoted(out, (*object)[k].key);
      out += ": ";
      (*object)[k].value.append_to(out, indent, depth + 1);
    }
    if (!object->empty()) new_line(out, indent, depth);
    out += '}';
  }
}

double Json::number(double otherwise) const {
  if (const int64_t* i = as<int64_t>()) return static_cast<double>(*i);
  if (const double* d = as<double>()) return *d;
  return otherwise;
}

const Json* Json::find(std::string_view key) const {
  if (const auto* members = as<Object>())
    for (const Member& m : *members)
      if (m.key == key) return &m.value;
  return nullptr;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  auto* members = as<Object>();
  TEGULA_CHECK(members != nullptr, "set() on JSON that is no object");
  for (Member& m : *members)
    if (m.key == key) {
      m.value = std::move(value);
      return;
    }
  members->push_back({std::string(key), std::move(value)});
}

bool operator==(const Json& a, const Json& b) { return a.value_ == b.value_; }

}  // namespace tegula
