// Launches of gather, scatter and the embedding, which are one thing.
#pragma once

#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

// y[o, i, q] = x[o, ids[o, i], q].
Status launch_gather(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                     const TensorRef& y, const Stream& to);
enum class Meet : uint8_t { kSet, kAdd, kMul, kMax, kMin };
// x[o, ids[o, i], q] = y[o, i, q]: the last slice of an id stands. One launch, which may be joined
// with others.
Result<std::unique_ptr<Prepared>> prepare_put(const DeviceCall& call, const TensorRef& x,
                                              const TensorRef& ids, const TensorRef& y);
Status launch_put(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                  const TensorRef& y, const Stream& to);
// x[o, ids[o, i], q] = x meets y[o, i, q], in the order of i. x has its start already; the call's
// workspace is ScatterSizes'.
Status launch_scatter(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                      const TensorRef& y, Meet meet, const Stream& to);

}  // namespace tegula::cuda
