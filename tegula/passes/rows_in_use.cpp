#include "tegula/passes/rows_in_use.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/dot_dims.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {

class Rows {
 public:
  explicit Rows(const Function& f) : f_(f), share_(f.values.size(), 1) {}

  std::vector<double> take() {
    for (const Node& n : f_.nodes)
      if (n.n_outputs == 1 && n.regions.empty()) share_[n.output()] = share_of(n);
    return std::move(share_);
  }

 private:
  const Shape& shape(ValueId v) const { return f_.type(v).shape; }
  static Dim last(const Shape& s) { return s[s.rank() - 1]; }
  bool has_rows_of(ValueId a, ValueId b) const {
    return shape(a).rank() > 0 && shape(b).rank() > 0 && last(shape(a)) == last(shape(b));
  }

  double share_of(const Node& n) const {
    const ValueId y = n.output();
    if (n.op == &scatter_op) return of_scatter(n);
    if (n.op == &dot_op) return of_product(n);
    if (n.op == &permute_op)
      return n.attrs.ints("order").back() + 1 == shape(y).rank() ? share_[n.inputs[0]] : 1;
    if (n.op == &reshape_op) return has_rows_of(n.inputs[0], y) ? share_[n.inputs[0]] : 1;
    if (n.op == &slice_op || gives_zero_for_zero(n.op)) return share_[n.inputs[0]];
    if (n.op == &mul_op) return std::min(share_[n.inputs[0]], share_[n.inputs[1]]);
    if (n.op == &add_op || n.op == &sub_op)
      return std::max(share_[n.inputs[0]], share_[n.inputs[1]]);
    return 1;
  }
  static bool gives_zero_for_zero(const OpDef* op) {
    return op == &cast_op || op == &neg_op || op == &silu_op || op == &gelu_op || op == &relu_op;
  }
  // Rows y put one by one into rows of zeros.
  double of_scatter(const Node& n) const {
    const Shape &from = shape(n.inputs[0]), &to = shape(n.output());
    if (n.inputs.size() > 2 || n.attrs.str("mode") != "add") return 1;
    if (n.attrs.i("dim") + 1 == to.rank() || !(last(from) == last(to))) return 1;
    const auto rows = static_cast<double>(to.numel()), filled = static_cast<double>(from.numel());
    return rows > 0 ? std::min(1.0, filled / rows) : 1;
  }
  // The summed operand is a row of a, and the other dims of a stay.
  double of_product(const Node& n) const {
    const auto names = DotDims::parse(n.attrs.str("dims"));
    if (!names.ok() || n.inputs.size() != 2 || names->a.empty() || names->out.empty()) return 1;
    for (int d = 0; d + 1 < names->a.size(); ++d)
      if (!names->out.has(names->a[d]) || names->out.back() == names->a[d]) return 1;
    return names->out.has(names->a.back()) ? 1 : share_[n.inputs[0]];
  }

  const Function& f_;
  std::vector<double> share_;
};

}  // namespace

std::vector<double> rows_in_use(const Function& f) { return Rows(f).take(); }

}  // namespace tegula
