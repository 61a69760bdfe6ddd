// Converting a model between forms: a directory as Hugging Face lays it out, or a run, or a GGUF
// file, to either of the first and the last.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/base/dtype.h"
#include "tegula/models/model_files.h"

namespace tegula {

struct Converted {
  std::vector<std::string> notes;  // what is not bit for bit, or not kept
  int64_t n_tensors = 0;
  uint64_t n_bytes = 0;  // of them
};

// Writes the model to `path`: a GGUF file, if it ends so, else a new directory; synced, and renamed
// when it is complete and was read back. `dtype`: of weights; none: as stored, of blocks f32. A
// GGUF's lists (norms, biases) and router are f32 whatever it is, since its readers want them so.
// Memory: the largest weight twice. Errors: kUnsupported for a model, a tokenizer or a key that the
// form cannot say, by name; a path that is there already; those of the readers and writers.
Result<Converted> convert_model(const ModelFiles& from, const std::string& path,
                                std::optional<DType> dtype);

}  // namespace tegula
