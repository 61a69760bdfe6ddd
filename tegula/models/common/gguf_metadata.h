// A configuration as a GGUF's metadata: gguf_config.cpp's other way.
#pragma once

#include <string>
#include <vector>

#include "tegula/io/gguf_writer.h"
#include "tegula/models/common/gguf_architectures.h"

namespace tegula {

struct GgufMetadata {
  struct List {
    std::string name;
    std::vector<float> values;
  };
  std::vector<GgufOutKey> keys;
  std::vector<List> tensors;  // divisors of RoPE's angles
};
// `notes`: what llama.cpp does not read, or reads as another thing.
Result<GgufMetadata> gguf_metadata(const ModelConfig& config, const GgufArchitecture& a,
                                   std::vector<std::string>& notes);

// Whether what was read from a file's metadata is the model that was written. Error: kUnsupported,
// with the first key that the format cannot say.
Status check_gguf_config(const ModelConfig& written, const ModelConfig& read,
                         const GgufArchitecture& a);

}  // namespace tegula
