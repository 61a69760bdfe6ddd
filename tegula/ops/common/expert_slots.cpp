#include "tegula/ops/common/expert_slots.h"

namespace tegula {

Var extent_of(Builder& b, Dim size, DType dtype) {
  return b.emit(extent_op, {{"size", std::vector<Dim>{size}}, {"dtype", dtype}}, {});
}

Var slots_of(Var experts, Var positions, Dim n_experts, Dim capacity) {
  Builder& b = experts.builder();
  const DType i32 = DType::kI32;
  const Var e = cast(experts, i32), p = cast(positions, i32);
  const Var rows = extent_of(b, capacity, i32);
  const Var is_expert = logical_and(ge(e, 0.0), lt(e, extent_of(b, n_experts, i32)));
  const Var is_row = logical_and(ge(p, 0.0), lt(p, rows));
  return select(logical_and(is_expert, is_row), e * rows + p, constant(b, -1, i32));
}

Var shards_first(Var x) {
  const auto rows = mul(x.dim(0), x.dim(2));
  if (!rows.ok()) return x.builder().fail(rows.error());
  return reshape(permute(x, {1, 0, 2, 3}), {x.dim(1), *rows, x.dim(3)});
}

Var experts_first(Var x, Dim n_experts, Dim capacity) {
  return permute(reshape(x, {x.dim(0), n_experts, capacity, x.dim(2)}), {1, 0, 2, 3});
}

Result<DimMap> combine_dims(const OpCall& c, std::string_view spec) {
  DimMap m = TEGULA_TRY(solve_dims(c.op->name, spec, c.in));
  m.factors[static_cast<size_t>(m.find("e"))].index_operand = 1;
  m.factors[static_cast<size_t>(m.find("cap"))].index_operand = 2;
  return m;
}

int64_t chosen_bytes(const OpCall& c) {
  const Shape &y = c.shape(0), &choices = c.shape(1);
  const int64_t rows = y[0].bound() * y[1].bound() * y[2].bound();
  return std::min(rows, choices.numel()) * y[3].bound() * size_bytes(c.in[0].dtype);
}

}  // namespace tegula
