#include "tegula/ops/common/rules.h"

namespace tegula {

MapMaker::MapMaker(size_t n_operands, size_t n_results) {
  map_.operands.resize(n_operands);
  map_.results.resize(n_results), map_.result_shapes.resize(n_results);
}

uint8_t MapMaker::factor(std::string name, Dim size, bool is_whole) {
  const auto f = static_cast<uint8_t>(map_.add_factor(std::move(name), size));
  map_.factors.back().whole = is_whole;
  return f;
}

void MapMaker::result(size_t r, Dim size, DimExpr index) {
  map_.results[r].push_back(std::move(index));
  map_.result_shapes[r].push_back(size);
}

DimMap MapMaker::done(Combine contracted) && {
  map_.finish(contracted);
  return std::move(map_);
}

Attrs resized(const OpCall& c, std::string_view name, int d, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  auto shape = a.dims(name);
  shape[static_cast<size_t>(d)] = hi - lo;
  a.set(name, std::move(shape));
  return a;
}

Result<std::vector<DType>> named_dtype(const OpCall& c) {
  return std::vector{c.attrs->dtype("dtype")};
}

Grads jvp_of_first(Builder& b, const JvpCall& c) {
  std::vector<Var> in(c.in.begin(), c.in.end());
  in[0] = c.tangent[0];
  return b.emit_n(*c.call->op, c.attrs(), in);
}

}  // namespace tegula
