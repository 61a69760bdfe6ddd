// Few queries over many keys: the keys are split over the blocks, the last block of a head
// combines.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/describe/decode_query.h"

namespace tegula::cuda {

namespace {
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
  TEGULA_TRY(check_device(q, 80));
  const auto c = TEGULA_TRY(kernel::parse_attention(*q.attrs, q.in, false, kernel::kTakesPages));
  TEGULA_TRY(check_plain(c));
  if (c.page > 0 && (c.seqlens_k->stride[0] != 1 || !c.table->is_contiguous() || c.n_q != 1))
    return unsupported("keys in pages: one query a sequence, lengths and table without gaps");
  TEGULA_TRY(check_rows(c));
  if (c.right >= 0) return unsupported("no window to the right: use attention_sm90");
  TEGULA_TRY(check_readable(c, false, {&q.in[0], &q.in[1], &q.in[2]}));
  TEGULA_TRY(check_results(c, q.out[0], q.out[1]));
  const DecodeVariant v =
      TEGULA_TRY(choose_decode(decode_shape(c, *q.target), q.target->capability));
  return check_smem(q, v.smem_bytes());
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = kernel::parse_attention(*q.attrs, q.in, false, kernel::kTakesPages);
  // At the finest split that any device asks for.
  return c.ok() ? decode_workspace_bytes(decode_shape(*c, *q.target), 128) : 0;
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
};

}  // namespace tegula::cuda
