#include "tegula/kernels/cuda/plugin/attention_pad.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

struct Copy {
  Module module;
  FunctionHandle function;
};

Status copy(const TensorRef& from, const TensorRef& to, const Stream& stream) {
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
  const int64_t blocks = std::min(ceil_div(p.n_rows, kThreads / 32), kMostBlocks);
  return d->start(k->function, {{blocks, 1, 1}, {kThreads, 1, 1}}, stream,
                  "launching attention_pad", p);
}

}  // namespace

Status copy_padded(const PaddedOperands& which, const PaddedCall& p, const DeviceCall& call,
                   const Stream& to, bool is_back) {
  const auto& given = is_back ? call.out : call.in;
  for (const int* at = is_back ? which.out : which.in; *at >= 0; ++at) {
    const auto i = static_cast<size_t>(*at);
    if (!needs_padding(given[i])) continue;
    if (is_back)
      TEGULA_TRY(copy(p.out[i], given[i], to));
    else
      TEGULA_TRY(copy(given[i], p.in[i], to));
  }
  return {};
}

}  // namespace tegula::cuda
