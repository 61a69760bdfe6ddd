// Every key of a config.json that a family knows, and what reading does with it.
//
// A key is computed, must have one of a few values, bounds texts, concerns training alone, or is
// free: it says nothing about logits. A key that changes other models is refused by name, unless
// its value says "no" (null, false, 0). What neither tegula nor `transformers` knows is left where
// it is, and named in a note. Values inside of an object that is read are all known, or refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

class Json;
struct ModelDef;

enum class KeyUse : uint8_t { kComputed, kTraining, kFixed, kFree, kOther };

struct ConfigKey {
  std::string key;  // "a.b": b in a
  KeyUse use = KeyUse::kFree;
  std::string what;  // the setting, the values that are allowed, or why it is free
};

// "computed", "training", "one value", "ignored", "refused".
std::string_view use_name(KeyUse use);
// Sorted by use, then by key.
std::vector<ConfigKey> config_keys(const ModelDef& model);

// Whether a key says nothing of logits in any family.
bool is_free_key(std::string_view key);

// Errors: kUnsupported for a key that changes mathematics that the family does not compute,
// kInvalidArgument for one that is no object where it must be; both name file, key and value.
Status check_config_keys(const Json& json, const std::string& path, const ModelDef& model);

// The keys of a config.json that nobody knows, as a note of one line; "": none, or no config.json.
std::string note_on_keys(std::string_view text, const std::string& path);

}  // namespace tegula
