// The tokenizers of tokenizer_kinds.json, one of every form.
#pragma once

#include "tegula/io/json.h"
#include "tegula/text/tokenizer.h"
#include "tests/io/temp_dir.h"

namespace tegula {

inline Json fixture() {
  const char* path = "tests/text/tokenizer_kinds.json";
  return Json::parse(read_file(path).value(), path).value();
}

// The tokenizer.json of a kind: the file of its base, with its own parts.
inline Json file_of(const Json& all, const Json& kind) {
  Json file = *all.find("bases")->find(*kind.find("base")->as<std::string>());
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
    file.set(part, *kind.find(part));
  Json model = *file.find("model");
  for (const Json::Member& flag : *kind.find("model")->as<Json::Object>())
    model.set(flag.key, flag.value);
  file.set("model", std::move(model));
  return file;
}

inline Result<Tokenizer> load(const Json& file) {
  TempDir dir;
  EXPECT_TRUE(replace_file(dir / "tokenizer.json", file.dump()).ok());
  return Tokenizer::load(dir.path());
}

}  // namespace tegula
