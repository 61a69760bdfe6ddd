// Blocks to f32, a row after the other.
#include "tegula/base/block_format.h"
#include "tegula/kernels/cpu/common/rows.h"

namespace tegula::kernel {

namespace {
void launch(const KernelCall& call) {
  const TensorRef &w = call.in[0], &y = call.out[0];
  BlockFormat format;
  find_block_format(call.attrs->str("format"), format);
  const int64_t n = row_length(y), rows = row_count(y);
  const int64_t flops = rows * n * (layout_of(format).has_min ? 2 : 1);
  call.counters->add(flops, flops);
  Loops at;
  for (int d = 0; d + 1 < w.rank; ++d) {
    Factor f;
    f.extent = w.shape[d], f.stride[kA] = w.stride[d], f.stride[kOut] = y.stride[d];
    at.add(f);
  }
  const int64_t grain = call.pool->grain(8);
  call.pool->parallel_for(ceil_div(rows, grain), [&](int64_t task, int) {
    for (int64_t i = task * grain; i < std::min((task + 1) * grain, rows); ++i)
      dequantise_blocks(format, static_cast<const uint8_t*>(w.data) + at.offset(i, kA), n,
                        y.as<float>() + at.offset(i, kOut));
  });
}
}  // namespace

extern constinit const KernelDef dequantise_blocks_rows{
    .name = "dequantise_blocks_rows",
    .op = "dequantise_blocks",
    .order = "exact",
    .doc = "a block at a time, threads over rows",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          const auto whole = [](const TensorRef& t) {
            return t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] == 1;
          };
          return whole(q.in[0]) && whole(q.out[0]);
        },
    .launch = launch,
};

}  // namespace tegula::kernel
