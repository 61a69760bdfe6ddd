#include "tegula/kernels/cuda/plugin/attention_pad.h"

#include <algorithm>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

namespace {

constexpr int64_t kThreads = 256, kMostBlocks = 1024;

// Fixed in the plan: where a tensor lies in memory is not looked at.
bool needs_padding(TensorRef t) {
  t.data = nullptr;
  return t.rank == 4 && size_bytes(t.dtype) == 2 && !is_copyable(t);
}

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

struct Copy {
  Module module;
  FunctionHandle function;
};

Status copy(const TensorRef& from, const TensorRef& to, StreamHandle stream) {
  AttentionPadParams p{};
  p.from = tensor_of(operand_of(from)), p.to = tensor_of(operand_of(to));
  p.from_step = from.stride[3], p.to_step = to.stride[3];
  p.n_rows = from.shape[0] * from.shape[1] * from.shape[2];
  p.seqlen = static_cast<int>(from.shape[1]), p.n_heads = static_cast<int>(from.shape[2]);
  p.head_dim = static_cast<int>(from.shape[3]);
  if (p.n_rows * p.head_dim == 0) return {};
  const Copy* k = TEGULA_TRY(loaded<Copy>(
      "attention_pad", "attention_pad.cu", {}, [](const std::string& cubin) -> Result<Copy> {
        Module module = TEGULA_TRY(Module::load(cubin));
        const FunctionHandle function = TEGULA_TRY(module.function("attention_pad", 0));
        return Copy{std::move(module), function};
      }));
  const Driver* d = TEGULA_TRY(Driver::get());
  void* arguments[] = {&p};
  const int64_t blocks = std::min(ceil_div(p.n_rows, kThreads / 32), kMostBlocks);
  return d->check(d->launch(k->function, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1, 0,
                            stream, arguments, nullptr),
                  "launching attention_pad");
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

Status copy_padded(const PaddedOperands& which, const PaddedCall& p, const DeviceCall& call,
                   bool is_back) {
  const auto& given = is_back ? call.out : call.in;
  for (const int* at = is_back ? which.out : which.in; *at >= 0; ++at) {
    const auto i = static_cast<size_t>(*at);
    if (!needs_padding(given[i])) continue;
    if (is_back)
      TEGULA_TRY(copy(p.out[i], given[i], call.queue->stream));
    else
      TEGULA_TRY(copy(given[i], p.in[i], call.queue->stream));
  }
  return {};
}

}  // namespace tegula::cuda
