// Few queries over many keys: the keys are split over the blocks, the last block of a head
// combines.
#include "tegula/kernels/cuda/attention_decode.h"

#include <algorithm>

#include "tegula/kernels/cuda/plugin/attention_call.h"

namespace tegula::cuda {

namespace {
// Heads and splits that fill the machine: this device, or an H200 where none is open.
int multiprocessors() {
  const auto n = hopper_multiprocessors();
  return n.ok() ? *n : 132;
}

DecodeShape decode_shape(const kernel::AttentionCall& c) {
  DecodeShape s{.batch = c.batch,
                .seqlen_q = c.n_q,
                .seqlen_k = c.n_k,
                .n_heads_q = c.n_heads,
                .n_heads_kv = c.n_kv_heads,
                .head_dim = c.d,
                .is_causal = c.is_causal,
                .window_left = c.left,
                .is_f16 = c.q->dtype == DType::kF16};
  if (s.n_heads_kv > 0 && s.n_heads_q % s.n_heads_kv == 0)
    s.heads = decode_heads(s, multiprocessors());
  return s;
}

// Rows of a KV head beyond a tile, of several queries, are rather a short sequence than decoding.
constexpr int64_t kMostRowsOfQueries = 16;
Status check_rows(const kernel::AttentionCall& c) {
  if (c.n_q <= 1 || c.n_q * c.group <= kMostRowsOfQueries) return {};
  const int64_t most = std::max<int64_t>(1, kMostRowsOfQueries / c.group);
  return unsupported(cat(c.n_q, " queries of ", c.group, " heads a KV head: the nearest is ", most,
                         most == 1 ? " query" : " queries",
                         ": use attention_sm90 or attention_mma"));
}

Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(80));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, false));
  TEGULA_TRY(check_plain(c));
  TEGULA_TRY(check_rows(c));
  if (c.right >= 0) return unsupported("no window to the right: use attention_sm90");
  TEGULA_TRY(check_readable(c, false, {&q.in[0], &q.in[1], &q.in[2]}));
  TEGULA_TRY(check_results(c, q.out[0], q.out[1]));
  const DecodeVariant v = TEGULA_TRY(choose_decode(decode_shape(c), device_capability()));
  return check_smem(v.smem_bytes());
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false);
  // At the finest split that any device asks for.
  return c.ok() ? decode_workspace_bytes(decode_shape(*c), 128) : 0;
}

Status launch(const DeviceCall& call) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, false));
  DecodeCall a;
  a.shape = decode_shape(c), a.scale = c.scale;
  const DecodeVariant v = TEGULA_TRY(choose_decode(a.shape, device_capability()));
  const DecodeKernel* k = TEGULA_TRY(
      loaded<DecodeKernel>(v.name(), "attention_decode.cu", v.defines(),
                           [&](const std::string& cubin) { return DecodeKernel::load(v, cubin); }));
  a.q = operand_of(call.in[0]), a.k = operand_of(call.in[1]), a.v = operand_of(call.in[2]);
  a.o = operand_of(call.out[0]), a.lse = call.out[1].as<float>();
  a.keys_per_split = decode_split(a.shape, multiprocessors());
  a.workspace = call.workspace;
  a.counters = static_cast<unsigned*>(
      TEGULA_TRY(zeroed_memory(decode_blocks(a.shape) * static_cast<int64_t>(sizeof(unsigned)))));
  a.stream = call.queue->stream;
  return k->launch(a);
}
}  // namespace

extern constinit const KernelDef attention_decode{
    .name = "attention_decode",
    .op = "attention",
    .device = DeviceKind::kCuda,
    .order = "split_keys",
    .doc = "few queries: keys split over blocks, combined by log-sum-exp in the same pass",
    .priority = 200,
    .supports = passes<check>,
    .check = check,
    .workspace_bytes = workspace_bytes,
    .launch = launch_into_queue<launch>,
};

}  // namespace tegula::cuda
