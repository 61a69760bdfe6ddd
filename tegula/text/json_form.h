// What the readers of tokenizer.json ask of its parts. Every key is named by whoever reads the
// part, and one that is not is an error, so that none is passed over.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tegula/io/json.h"

namespace tegula {

// A string, or "" where it is none; whether it is true; whether it is null or not there.
std::string text_of(const Json* value);
bool is_true(const Json* value);
bool is_absent(const Json* value);
// 3, 0xab -> "0AB"
std::string to_hex(uint32_t value, int n_digits);

// kUnsupported where `part` has a key that is neither "type" nor one of `keys`. `name` is the
// part's in the message: "normalizer NFC".
Status check_keys(const Json& part, std::string_view name,
                  std::initializer_list<std::string_view> keys);
// The elements of a list; none where it is no list.
const Json::Array& list_of(const Json* value);
// A member that must be a string: kInvalidArgument.
Result<std::string> need_text(const Json& part, std::string_view name, std::string_view key);

}  // namespace tegula
