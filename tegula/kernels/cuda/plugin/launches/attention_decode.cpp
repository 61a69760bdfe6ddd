
#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/describe/decode_query.h"
#include "tegula/kernels/cuda/plugin/attention_count.h"
#include "tegula/kernels/cuda/plugin/decode_launch.h"

namespace tegula::cuda {

Status DecodeLaunch::make() {
  list = LaunchList();
  call_.stream = list;
  return kernel_.launch(call_);
}

Status DecodeLaunch::settle(std::span<const MemoryRange> constant) {
  call_.is_settled = std::all_of(early_.begin(), early_.end(),
                                 [&](const TensorRef& t) { return lies_in(t.data, constant); });
  return make();
}

namespace {
Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  TEGULA_TRY(count_attention(call, false));
  const auto c =
      TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false, kernel::kTakesPages));
  DecodeCall a;
  a.shape = decode_shape(c, *call.target), a.scale = c.scale;
  const DecodeVariant v = TEGULA_TRY(choose_decode(a.shape, call.target->capability));
  const DecodeKernel* k = TEGULA_TRY(
      loaded<DecodeKernel>(v.name(), "attention_decode.cu", v.defines(),
                           [&](const std::string& cubin) { return DecodeKernel::load(v, cubin); }));
  a.q = operand_of(call.in[0]), a.k = operand_of(call.in[1]), a.v = operand_of(call.in[2]);
  a.o = operand_of(call.out[0]), a.lse = call.out[1].as<float>();
  a.keys_per_split = decode_split(a.shape, call.target->multiprocessors);
  std::vector<TensorRef> early;
  if (c.page > 0) {
    early = {*c.seqlens_k, *c.table};
    a.seqlens_k = c.seqlens_k->as<int>(), a.pages = c.table->as<int>();
    a.pages_per_sequence = c.table->shape[1], a.n_pages = c.k->shape[0];
    a.keys_per_split = kKeysPerSplitOfPages;
  }
  a.workspace = call.workspace;
  a.counters = static_cast<unsigned*>(
      TEGULA_TRY(zeroed_memory(decode_blocks(a.shape) * static_cast<int64_t>(sizeof(unsigned)))));
  auto prepared = std::make_unique<DecodeLaunch>(*k, v, a, early);
  TEGULA_TRY(prepared->make());
  return std::unique_ptr<Prepared>(std::move(prepared));
}
}  // namespace

extern constinit const KernelLaunch attention_decode_launch{"attention_decode", prepare};

}  // namespace tegula::cuda
