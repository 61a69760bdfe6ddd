#include "tegula/kernels/cpu/common/block_dot.h"

namespace tegula::kernel {

bool BlockDot::parse(const Attrs& attrs, std::span<const TensorRef> in, const TensorRef& out,
                     BlockDot& c) {
  if (in.size() < 2 || !find_block_format(attrs.str("format"), c.format)) return false;
  c.layout = &layout_of(c.format);
  const TensorRef &x = in[0], &w = in[1];
  const auto ends_whole = [](const TensorRef& t) {
    return t.shape[t.rank - 1] == 1 || t.stride[t.rank - 1] == 1;
  };
  if (!ends_whole(x) || !ends_whole(w) || !ends_whole(out)) return false;
  if (in.size() > 2 && !ends_whole(in[2])) return false;
  c.n = w.shape[0], c.k = x.shape[x.rank - 1];
  for (int d = 0; d + 1 < x.rank; ++d) {
    Factor f;
    f.extent = x.shape[d];
    f.stride[kA] = x.stride[d], f.stride[kOut] = out.stride[d];
    f.stride[kB] = in.size() > 2 ? in[2].stride[d] : 0;
    c.rows.add(f);
  }
  c.m = c.rows.count;
  return true;
}

}  // namespace tegula::kernel
