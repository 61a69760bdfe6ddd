#include "tegula/kernels/cuda/plugin/lines.h"

namespace tegula::cuda {

LineParams lines_along(int dim, const TensorRef& x,
                       std::initializer_list<const TensorRef*> results) {
  LineParams p{};
  std::vector<int64_t> extents;
  std::vector<int64_t> strides[3];
  const auto stride = [&](const TensorRef& t, int d) {
    // A result without that dim has the others in their order.
    if (t.rank == x.rank) return t.stride[d];
    return t.stride[d > dim ? d - 1 : d];
  };
  for (int d = 0; d < x.rank; ++d) {
    if (d == dim) continue;
    extents.push_back(x.shape[d]), strides[0].push_back(x.stride[d]);
    int t = 1;
    for (const TensorRef* r : results) strides[t++].push_back(stride(*r, d));
    for (; t < 3; ++t) strides[t].push_back(0);
  }
  p.x = x.data, p.n = x.shape[dim], p.step[0] = x.stride[dim];
  int t = 1;
  for (const TensorRef* r : results) {
    p.step[t] = r->rank == x.rank ? r->stride[dim] : 0;
    (t++ == 1 ? p.y : p.z) = r->data;
  }
  p.lines = loops_of(extents, {strides[0], strides[1], strides[2]});
  return p;
}

std::vector<std::string> line_defines(DType t) {
  const char* sum = t == DType::kF64   ? "TEGULA_SUM=double"
                    : t == DType::kI64 ? "TEGULA_SUM=unsigned long long"
                    : t == DType::kI32 ? "TEGULA_SUM=unsigned"
                                       : "TEGULA_SUM=float";
  return {type_define(t), sum};
}

}  // namespace tegula::cuda
