// Launches of gather, scatter and the embedding, which are one thing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/kernels/cuda/plugin/joinable.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

// y[o, i, q] = x[o, ids[o, i], q].
Status launch_gather(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                     const TensorRef& y, const Stream& to);
enum class Meet : uint8_t { kSet, kAdd, kMul, kMax, kMin };
// The launch of prepare_put: calls are IndexParams.
class PutLaunch final : public JoinableLaunch {
 public:
  PutLaunch(const JoinableKernel& kernel, const IndexParams& p, int64_t n_blocks,
            std::vector<std::string> defines)
      : JoinableLaunch(kernel, words_of(p), n_blocks), defines(std::move(defines)) {}
  const std::vector<std::string> defines;
  // Call i, if all it does is put rows of 16 bits in one piece by ids of 32 bits.
  std::optional<RowsParams> rows(size_t i) const;
};
// x[o, ids[o, i], q] = y[o, i, q]: the last slice of an id stands. One launch, which may be joined
// with others.
Result<std::unique_ptr<Prepared>> prepare_put(const DeviceCall& call, const TensorRef& x,
                                              const TensorRef& ids, const TensorRef& y);
// Blocks of so many threads that a call of put takes.
int64_t put_blocks(const IndexParams& p, int n_threads);
Status launch_put(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                  const TensorRef& y, const Stream& to);
// x[o, ids[o, i], q] = x meets y[o, i, q], in the order of i. x has its start already; the call's
// workspace is ScatterSizes'.
Status launch_scatter(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                      const TensorRef& y, Meet meet, const Stream& to);

}  // namespace tegula::cuda
