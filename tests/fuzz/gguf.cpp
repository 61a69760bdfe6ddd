// GGUF: every value and byte of an accepted file can be read, and what a model's reader makes of it
// is a model or an error.
#include "tegula/io/gguf.h"

#include "tegula/io/json.h"
#include "tegula/io/weight_files.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/gguf_files.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  const std::string path = scratch() + "/in.gguf";
  put(path, input);
  const auto file = GgufFile::open(path);
  if (!file.ok()) return false;
  uint64_t sum = 0;
  for (const GgufKey& k : file->keys()) {
    sum += k.value.shown().size() + k.value.type_name().size();
    for (const GgufValue& v : k.value.elements()) sum += v.shown().size();
    TEGULA_CHECK(file->find(k.name) == &k.value);
  }
  for (const GgufTensor& t : file->tensors()) {
    const auto n = static_cast<size_t>(t.bytes.numel() * size_bytes(t.bytes.dtype));
    TEGULA_CHECK(n <= input.size() && file->tensor(t.name) == &t);
    for (size_t i = 0; i < n; ++i) sum += t.bytes.as<uint8_t>()[i];
  }
  volatile uint64_t kept = sum;
  static_cast<void>(kept);
  const auto model = GgufFiles::open(path);
  if (!model.ok()) return true;
  static_cast<void>((*model)->generation());
  static_cast<void>((*model)->chat_template());
  static_cast<void>((*model)->end_of_text());
  if (const auto tokenizer = (*model)->tokenizer(); tokenizer.ok())
    static_cast<void>(tokenizer->encode("The cat, 12 of them. \xc3\xa9"));
  if (!load_model_config(**model).ok()) return true;
  const auto weights = (*model)->weights();
  if (!weights.ok()) return true;
  weights->for_each([&](std::string_view, const WeightFiles::Found& found) {
    if (found.stored == nullptr) return;
    std::vector<float> row(static_cast<size_t>(found.stored->n_values()));
    for (int64_t i = 0; i < found.stored->n_rows(); ++i) found.stored->read_row(i, row.data());
  });
  return true;
}

}  // namespace

extern constinit const Target gguf_target{"gguf", run};

}  // namespace tegula::fuzz
