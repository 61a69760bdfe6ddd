#include "tegula/kernels/cuda/describe/attention_padded.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"

namespace tegula::cuda {

bool needs_padding(TensorRef t) {
  t.data = nullptr;
  return t.rank == 4 && size_bytes(t.dtype) == 2 && !is_copyable(t);
}

namespace {

TensorRef padded(const TensorRef& t, char* at) {
  TensorRef r = t;
  r.data = at;
  r.stride[3] = 1, r.stride[2] = round_up(t.shape[3], int64_t{8});
  r.stride[1] = t.shape[2] * r.stride[2], r.stride[0] = t.shape[1] * r.stride[1];
  return r;
}

bool any_needs_padding(const int* which, std::span<const TensorRef> given) {
  for (; *which >= 0; ++which)
    if (needs_padding(given[static_cast<size_t>(*which)])) return true;
  return false;
}

void pad(const int* which, std::span<const TensorRef> given, char* workspace, PaddedCall& p,
         std::vector<TensorRef>& to) {
  to.assign(given.begin(), given.end());
  for (; *which >= 0; ++which) {
    TensorRef& t = to[static_cast<size_t>(*which)];
    if (!needs_padding(t)) continue;
    t = padded(t, workspace == nullptr ? nullptr : workspace + p.workspace_bytes);
    p.workspace_bytes += round_up(2 * t.shape[0] * t.stride[0], int64_t{256});
  }
}

}  // namespace

bool has_padded(const PaddedOperands& which, std::span<const TensorRef> in,
                std::span<const TensorRef> out) {
  return any_needs_padding(which.in, in) || any_needs_padding(which.out, out);
}

PaddedCall padded(const PaddedOperands& which, std::span<const TensorRef> in,
                  std::span<const TensorRef> out, char* workspace) {
  PaddedCall p;
  pad(which.in, in, workspace, p, p.in);
  pad(which.out, out, workspace, p, p.out);
  return p;
}

}  // namespace tegula::cuda
