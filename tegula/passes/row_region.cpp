#include "tegula/passes/row_region.h"

#include "tegula/base/range.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

// Does the operand (or result) have the row factors as its leading dims, or nowhere? -1: otherwise.
int rows_of(const std::vector<DimExpr>& dims, const std::vector<int>& factors) {
  size_t leading = 0, anywhere = 0;
  for (size_t d = 0; d < dims.size(); ++d)
    for (const DimTerm& t : dims[d].terms)
      for (size_t r = 0; r < factors.size(); ++r)
        if (t.factor == factors[r]) {
          ++anywhere;
          leading += d == r && dims[d].is_plain();
        }
  if (anywhere == 0) return 0;
  return leading == factors.size() && anywhere == leading ? 1 : -1;
}

// Whose rows do not know where they stand.
bool is_known(const Node& n) { return n.op->is_elementwise || n.op->is_rowwise || is_plain_dot(n); }

bool starts_with(const Shape& s, const Shape& rows) {
  if (s.rank() < rows.rank()) return false;
  for (int d = 0; d < rows.rank(); ++d)
    if (!(s[d] == rows[d])) return false;
  return true;
}

class Finder {
 public:
  Finder(const Module& module, const Function& f, RowRegion& region)
      : module_(module), f_(f), r_(region) {}

  bool run(NodeId product) {
    const Node& n = f_.nodes[product];
    if (n.phase != Phase::kForward || !is_plain_dot(n)) return false;
    const Shape &out = f_.type(n.output()).shape, &in = f_.type(n.inputs[0]).shape;
    if (out.rank() < 2 || in.rank() != out.rank()) return false;
    r_.rows = out;
    r_.rows.erase(out.rank() - 1);
    if (!starts_with(in, r_.rows)) return false;
    for (int d = 0; d < out.rank(); ++d)
      if (!out[d].is_const() || !in[d].is_const()) return false;
    narrow_ = out[out.rank() - 1].bound();
    if (in[in.rank() - 1].bound() <= narrow_ || r_.n_rows() < 2) return false;
    r_.in.assign(f_.nodes.size(), RowRegion::kOutside);
    result_ = n.output();
    find_readers();
    if (!take_forward(product) || !take_backward() || !wide_stays_inside()) return false;
    take_norms();
    take_residual();
    for (NodeId i = 0; i < r_.in.size(); ++i) {
      if (r_.in[i] == RowRegion::kForward) r_.forward.push_back(i);
      if (r_.in[i] == RowRegion::kBackward) r_.backward.push_back(i);
    }
    return is_convex(RowRegion::kForward) && is_convex(RowRegion::kBackward);
  }

 private:
  NodeId maker(ValueId v) const { return f_.values[v].node; }

  void find_readers() {
    readers_.resize(f_.values.size());
    is_result_.assign(f_.values.size(), 0);
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      for (ValueId v : f_.nodes[n].inputs) readers_[v].push_back(n);
    for (const Output& o : f_.results) is_result_[o.value] = 1;
  }

  bool is_wide(ValueId v) const {
    const Shape& s = f_.type(v).shape;
    return starts_with(s, r_.rows) && s.numel() > r_.n_rows() * narrow_;
  }

  // A value that is the same for all rows can be made in every block.
  bool is_repeated(ValueId v) const {
    const NodeId n = maker(v);
    if (n == kNone || !f_.nodes[n].op->is_view || f_.nodes[n].inputs.size() != 1 ||
        f_.type(f_.nodes[n].inputs[0]).shape.numel() >= f_.type(v).shape.numel())
      return false;
    std::vector<uint8_t> has_rows;
    return row_use(module_, f_, f_.nodes[n], r_.rows, &has_rows) == RowUse::kEach && !has_rows[0];
  }

  // The node, and what makes its wide operands.
  bool take(NodeId n, uint8_t part, bool may_sum) {
    if (r_.in[n] != RowRegion::kOutside) return true;
    const Node& node = f_.nodes[n];
    const bool is_forward = node.phase == Phase::kForward;
    std::vector<uint8_t> has_rows;
    const RowUse use = row_use(module_, f_, node, r_.rows, &has_rows);
    if (is_forward != (part == RowRegion::kForward) || use == RowUse::kNone ||
        (use == RowUse::kSum && !may_sum))
      return false;
    r_.in[n] = part;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (!has_rows[i] || !is_wide(v) || is_repeated(v)) continue;
      r_.wide_bytes = std::max(r_.wide_bytes, f_.type(v).bytes());
      const NodeId p = maker(v);
      if (p == kNone) return false;
      const uint8_t side = f_.nodes[p].phase == Phase::kForward ? RowRegion::kForward : part;
      if (side != part && r_.in[p] != side) return false;
      if (!take(p, side, false)) return false;
    }
    return true;
  }

  bool take_forward(NodeId product) { return take(product, RowRegion::kForward, false); }

  // To a fixed point: whoever reads something wide, and (in take) whoever makes it.
  bool take_backward() {
    bool grows = true;
    while (grows) {
      grows = false;
      for (NodeId n = 0; n < f_.nodes.size(); ++n) {
        if (r_.in[n] == RowRegion::kOutside) continue;
        for (uint32_t i = 0; i < f_.nodes[n].n_outputs; ++i) {
          const ValueId v = f_.nodes[n].output(i);
          if (!is_wide(v)) continue;
          for (NodeId reader : readers_[v]) {
            if (r_.in[reader] != RowRegion::kOutside) continue;
            if (!take(reader, RowRegion::kBackward, true)) return false;
            grows = true;
          }
        }
      }
    }
    return true;
  }

  bool wide_stays_inside() const {
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      for (uint32_t i = 0; r_.in[n] && i < f_.nodes[n].n_outputs; ++i)
        if (const ValueId v = f_.nodes[n].output(i); is_wide(v) && is_result_[v]) return false;
    return true;
  }

  bool is_read_outside(ValueId v) const {
    return is_result_[v] ||
           any_of(readers_[v], [&](NodeId n) { return r_.in[n] == RowRegion::kOutside; });
  }

  // Narrow values that only the region reads are made in it, products excepted: they would be
  // computed twice. A norm's statistics may leave.
  void take_norms() {
    for (auto n = static_cast<NodeId>(f_.nodes.size()); n-- > 0;) {
      const Node& node = f_.nodes[n];
      if (r_.in[n] || node.phase != Phase::kForward || node.op->is_view || is_plain_dot(node) ||
          readers_[node.output()].empty() || is_read_outside(node.output()) ||
          !feeds_forward(node.output()))
        continue;
      std::vector<uint8_t> has_rows;
      if (row_use(module_, f_, node, r_.rows, &has_rows) == RowUse::kEach && has_rows[0])
        r_.in[n] = RowRegion::kForward;
    }
  }
  bool feeds_forward(ValueId v) const {
    return any_of(readers_[v], [&](NodeId n) { return r_.in[n] == RowRegion::kForward; });
  }

  // Elementwise ops behind the product whose other operands the region has anyway.
  void take_residual() {
    for (;;) {
      const auto& readers = readers_[result_];
      if (is_result_[result_] || readers.size() != 1) return;
      const Node& n = f_.nodes[readers[0]];
      if (r_.in[readers[0]] || n.phase != Phase::kForward || !n.op->is_elementwise ||
          n.n_outputs != 1)
        return;
      std::vector<uint8_t> has_rows;
      if (row_use(module_, f_, n, r_.rows, &has_rows) != RowUse::kEach) return;
      for (size_t i = 0; i < n.inputs.size(); ++i)
        if (n.inputs[i] != result_ && has_rows[i] && !is_repeated(n.inputs[i]) &&
            !feeds_forward(n.inputs[i]))
          return;
      r_.in[readers[0]] = RowRegion::kForward;
      result_ = n.output();
    }
  }

  // No operand of the part depends on its results by way of a node outside it.
  bool is_convex(uint8_t part) const {
    std::vector<uint8_t> depends(f_.nodes.size(), 0);
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      bool from_part = false, by_outside = false;
      for (ValueId v : f_.nodes[n].inputs)
        if (const NodeId p = maker(v); p != kNone) {
          from_part |= r_.in[p] == part || depends[p];
          by_outside |= r_.in[p] != part && depends[p];
        }
      if (r_.in[n] == part && by_outside) return false;
      depends[n] = from_part;
    }
    return true;
  }

  const Module& module_;
  const Function& f_;
  RowRegion& r_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<uint8_t> is_result_;
  int64_t narrow_ = 0;
  ValueId result_ = kNone;
};

}  // namespace

namespace {
// With the leading dims of a result (or an operand) for rows: which operands have them? False:
// somewhere they stand elsewhere.
bool rows_lead(const DimMap& map, const std::vector<DimExpr>& leading, const Shape& rows,
               int result, std::vector<uint8_t>* has_rows) {
  std::vector<int> factors;
  for (int d = 0; d < rows.rank(); ++d) {
    if (d >= static_cast<int>(leading.size())) return false;
    const DimExpr& e = leading[static_cast<size_t>(d)];
    if (!e.is_plain()) return false;
    const Factor& f = map.factors[e.terms[0].factor];
    if (f.whole || !(f.size == rows[d])) return false;
    factors.push_back(e.terms[0].factor);
  }
  has_rows->clear();
  for (const auto& operand : map.operands) {
    const int k = rows_of(operand, factors);
    if (k < 0) return false;
    has_rows->push_back(static_cast<uint8_t>(k));
  }
  return all_of(map.results, [&](const auto& r) { return rows_of(r, factors) == result; });
}
}  // namespace

RowUse row_use(const Module& module, const Function& f, const Node& n, const Shape& rows,
               std::vector<uint8_t>* has_rows) {
  if (!is_known(n)) return RowUse::kNone;
  const auto in = f.input_types(n), out = f.output_types(n);
  const auto map = dim_map({n.op, &n.attrs, in, out, &module, n.regions});
  if (!map.ok()) return RowUse::kNone;
  if (rows_lead(*map, map->results[0], rows, 1, has_rows)) return RowUse::kEach;
  // A sum must be one that goes on from block to block, and over nothing but rows.
  if ((n.op->is_reduction && n.attrs.flag("keep")) || out[0].dtype != DType::kF32 ||
      !rows_lead(*map, map->operands[0], rows, 0, has_rows))
    return RowUse::kNone;
  int n_summed = 0;
  for (const auto& combine : map->combine) {
    if (combine[0] != Combine::kFree && combine[0] != Combine::kSum) return RowUse::kNone;
    n_summed += combine[0] == Combine::kSum;
  }
  const bool all = all_of(*has_rows, [](auto k) { return k != 0; });
  return all && n_summed == rows.rank() ? RowUse::kSum : RowUse::kNone;
}

bool find_row_region(const Module& module, const Function& f, NodeId n, RowRegion* region) {
  *region = {};
  return Finder(module, f, *region).run(n);
}

}  // namespace tegula
