// A model's weights in a store: where they lie in their files, as far as these have the dtype, or
// lie in blocks that the CPU computes on; the others are copied.
#pragma once

#include "tegula/base/memory.h"
#include "tegula/models/checkpoint.h"
#include "tegula/runtime/store.h"

namespace tegula {

// `rank` is the one whose store it is; the store borrows from the result. `formats` gets those of
// the weights that stay in blocks, which Context::formats must know, `dequantised` those of the
// others that lie in some. Errors: those of ModelWeights; no memory.
Result<std::shared_ptr<ModelWeights>> map_weights(const ModelFiles& files,
                                                  const ModelConfig& config, DType dtype,
                                                  const Rank& rank, Store& store,
                                                  BlockFormats& formats,
                                                  BlockFormats* dequantised = nullptr);

}  // namespace tegula
