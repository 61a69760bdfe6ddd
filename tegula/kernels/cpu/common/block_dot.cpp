#include "tegula/kernels/cpu/common/block_dot.h"

namespace tegula::kernel {

TensorRef expert_of(const TensorRef& all, int64_t e) {
  TensorRef one = all;
  one.rank = all.rank - 1;
  for (int d = 0; d < one.rank; ++d)
    one.shape[d] = all.shape[d + 1], one.stride[d] = all.stride[d + 1];
  if (all.data != nullptr)
    one.data = static_cast<char*>(all.data) + e * all.stride[0] * size_bytes(all.dtype);
  return one;
}

bool BlockDot::parse(const Attrs& attrs, std::span<const TensorRef> in, const TensorRef& out,
                     BlockDot& c) {
  if (in.size() >= 2 && in[1].rank == 3) {
    TensorRef one[3];
    for (size_t k = 0; k < in.size(); ++k) one[k] = expert_of(in[k], 0);
    c.experts = in[1].shape[0];
    return parse(attrs, std::span(one, in.size()), expert_of(out, 0), c);
  }
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
