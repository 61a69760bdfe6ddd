#include "tegula/passes/local_call.h"

#include "tegula/base/algorithm.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/table.h"
#include "tegula/passes/ring.h"

namespace tegula {

namespace {

// Is the dim the product of its factors and nothing more, so that each index is one of theirs?
bool is_product(const DimMap& m, const DimExpr& e, Dim extent) {
  if (e.offset != 0 || e.is_window || e.terms.empty()) return false;
  int64_t inner = 1;
  for (size_t t = e.terms.size(); t-- > 0;) {
    const Dim size = m.factors[e.terms[t].factor].size;
    if (!size.is_const() || !(e.terms[t].coeff == Dim(inner))) return false;
    inner *= size.bound();
  }
  return extent == Dim(inner);
}

// Where a factor stands in a tensor's dims: {dim, parts before it}; {-1, …}: nowhere. Empty: in a
// way that a share of it is no share of the dim.
struct Stand {
  int dim = -1;
  int64_t before = 1;
  bool is_sound = true;
};
Stand stand_of(const DimMap& m, const std::vector<DimExpr>& dims, const Shape& shape, int factor) {
  Stand s;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t before = 1;
    for (const DimTerm& t : dims[d].terms) {
      if (t.factor == factor) {
        s.is_sound &= s.dim < 0 && is_product(m, dims[d], shape[static_cast<int>(d)]);
        s.dim = static_cast<int>(d), s.before = before;
      }
      before *= m.factors[t.factor].size.bound();
    }
  }
  return s;
}

bool may_be_cut(const DimMap& m, int factor, int64_t parts, int64_t n, bool is_rows) {
  const Factor& f = m.factors[factor];
  if (f.whole || f.ragged_by >= 0 || !f.size.is_const()) return false;
  if (is_rows != (f.index_operand >= 0) || (is_rows && parts > 1)) return false;
  return f.size.bound() > 0 && f.size.bound() % (parts * n) == 0;
}

// The cut along one of a dim's factors that splits the dim so; kWhole: none does.
AxisCut cut_of_dim(const DimMap& m, const DimExpr& e, Dim extent, const AxisSharding& split,
                   int64_t n, bool is_rows) {
  if (!is_product(m, e, extent)) return {};
  int64_t before = 1;
  for (const DimTerm& t : e.terms) {
    const int64_t size = m.factors[t.factor].size.bound();
    if (split.parts % before == 0) {
      const int64_t parts = split.parts / before;
      if (parts <= size && size % (parts * n) == 0 && may_be_cut(m, t.factor, parts, n, is_rows))
        return {is_rows ? AxisCut::kRows : AxisCut::kAlong, t.factor, parts};
    }
    before *= size;
  }
  return {};
}

// A slice, pad or concatenation along the very dim that is split, piece by piece.
struct Pieces {
  int dim = -1;
  int64_t size = 0;  // of a piece
};
bool cuts_itself(const LocalCall& c) {
  return (c.op == &slice_op && c.attrs.i("step") == 1) ||
         (c.op == &pad_op && c.attrs.i("interior") == 0 && !c.attrs.has("size")) ||
         c.op == &concat_op;
}
Pieces pieces_of(const LocalCall& c, int64_t parts) {
  Pieces p;
  if (!cuts_itself(c)) return p;
  const auto dim = static_cast<int>(c.attrs.i("dim"));
  const Dim extent = c.in[0].shape[dim];
  if (!extent.is_const() || parts < 1 || extent.bound() == 0 || extent.bound() % parts != 0)
    return p;
  const int64_t size = extent.bound() / parts;
  bool fits = true;
  if (c.op == &slice_op) {
    const Dim n = c.attrs.dims("size")[0];
    fits = n.is_const() && c.attrs.i("start") % size == 0 && n.bound() % size == 0;
  } else if (c.op == &pad_op) {
    fits = c.attrs.i("lo") % size == 0 && c.attrs.i("hi") % size == 0;
  }
  for (const Type& t : c.in) fits &= t.shape[dim].is_const() && t.shape[dim].bound() % size == 0;
  return fits ? Pieces{dim, size} : p;
}

// Every tensor is split along its queries or its keys.
bool states_of_ring(const LocalCall& c, const DimMap& m, int64_t n, std::vector<AxisSharding>& in,
                    std::vector<AxisSharding>& out) {
  const RingFactors f = ring_factors(c, m, n);
  if (f.queries < 0) return false;
  const auto split = [&](const std::vector<DimExpr>& dims, const Type& t) {
    for (const int factor : {f.queries, f.keys}) {
      const Stand s = stand_of(m, dims, t.shape, factor);
      if (s.dim >= 0) return AxisSharding::split(s.dim);
    }
    return AxisSharding();
  };
  for (size_t k = 0; k < in.size(); ++k) in[k] = split(m.operands[k], c.in[k]);
  for (size_t r = 0; r < out.size(); ++r) out[r] = split(m.results[r], c.out[r]);
  return true;
}

}  // namespace

static int first_factor(const DimMap& m, size_t dim) {
  const bool has_one =
      !m.operands.empty() && m.operands[0].size() > dim && !m.operands[0][dim].terms.empty();
  return has_one ? m.operands[0][dim].terms[0].factor : -1;
}
int outer_factor(const DimMap& m) { return first_factor(m, 0); }
int inner_factor(const DimMap& m) { return first_factor(m, 1); }

LocalCall::LocalCall(const Module& m, const Function& f, const Node& n)
    : op(n.op),
      attrs(n.attrs),
      in(f.input_types(n)),
      out(f.output_types(n)),
      module(&m),
      regions(n.regions) {}

// A rank has its share of the shards.
static void share_shards(Attrs& attrs, int64_t SumShards::*of_factor, int64_t n) {
  if (!attrs.has(kSumShards)) return;
  SumShards left = SumShards::of(attrs);
  left.*of_factor = std::max<int64_t>(1, left.*of_factor / n);
  left.put(attrs);
}

Status LocalCall::cut(const AxisCut& cut, int64_t n, int64_t index, const DimMap* map) {
  if (cut.kind == AxisCut::kWhole || cut.kind == AxisCut::kLinear || n == 1) return {};
  DimMap own;
  if (map == nullptr && cut.kind != AxisCut::kPieces) own = TEGULA_TRY(dim_map(call()));
  const DimMap& m = map != nullptr ? *map : own;
  if (cut.kind == AxisCut::kRing) {  // as in its first step: its own queries and keys
    const RingFactors f = ring_factors(*this, m, n);
    TEGULA_TRY(this->cut({AxisCut::kAlong, f.queries, 1}, n, index, &m));
    return this->cut({AxisCut::kAlong, f.keys, 1}, n, index);
  }
  if (cut.kind == AxisCut::kPieces) {
    const auto dim = static_cast<int>(attrs.i("dim"));
    for (Type& t : in) t.shape[dim] = t.shape[dim].bound() / n;
    if (op == &slice_op) {
      attrs.set("start", attrs.i("start") / n);
      attrs.set("size", std::vector<Dim>{attrs.dims("size")[0].bound() / n});
    } else if (op == &pad_op) {
      attrs.set("lo", attrs.i("lo") / n), attrs.set("hi", attrs.i("hi") / n);
    }
  } else {
    const int64_t size = m.factors[cut.factor].size.bound() / n;
    // Shares of several parts are no one range: what depends on where it begins has one part.
    const int64_t lo = cut.parts == 1 ? index * size : 0;
    if (op->localize) attrs = op->localize(call(), m, cut.factor, lo, lo + size);
    if (outer_factor(m) == cut.factor) share_shards(attrs, &SumShards::outer, n);
    if (inner_factor(m) == cut.factor) share_shards(attrs, &SumShards::inner, n);
    for (size_t k = 0; k < in.size(); ++k) {
      const Stand s = stand_of(m, m.operands[k], in[k].shape, cut.factor);
      if (s.dim >= 0) in[k].shape[s.dim] = in[k].shape[s.dim].bound() / n;
    }
  }
  out.clear();
  out = TEGULA_TRY(infer(call()));
  return {};
}

AxisCut cut_of_operand(const LocalCall& c, const DimMap& m, size_t k, const AxisSharding& split,
                       int64_t n) {
  if (k >= m.operands.size()) return {};
  if (cuts_itself(c) && split.dim == c.attrs.i("dim"))
    return pieces_of(c, split.parts).dim >= 0 && k == 0 ? AxisCut{AxisCut::kPieces, -1, split.parts}
                                                        : AxisCut{};
  return cut_of_dim(m, m.operands[k][split.dim], c.in[k].shape[split.dim], split, n, false);
}

AxisCut cut_of_result(const LocalCall& c, const DimMap& m, size_t r, const AxisSharding& split,
                      int64_t n) {
  if (r >= m.results.size()) return {};
  return cut_of_dim(m, m.results[r][split.dim], c.out[r].shape[split.dim], split, n, false);
}

AxisCut cut_of_rows(const LocalCall& c, const DimMap& m, size_t k, const AxisSharding& split,
                    int64_t n) {
  if (k >= m.operands.size()) return {};
  return cut_of_dim(m, m.operands[k][split.dim], c.in[k].shape[split.dim], split, n, true);
}

bool states_of_cut(const LocalCall& c, const DimMap& m, const AxisCut& cut, int64_t n,
                   std::vector<AxisSharding>& in, std::vector<AxisSharding>& out) {
  in.assign(c.in.size(), {}), out.assign(c.out.size(), {});
  if (cut.kind == AxisCut::kWhole) return true;
  if (cut.kind == AxisCut::kLinear) {
    const bool is_max = c.op == &max_op || c.op == &reduce_max_op;
    const auto how = is_max ? Combine::kMax : Combine::kSum;
    in.assign(c.in.size(), AxisSharding::pending(how)), out.assign(c.out.size(), in[0]);
    if (c.op == &mul_op) in[1] = {};  // a factor that all ranks have
    return true;
  }
  if (cut.kind == AxisCut::kPieces) {
    const Pieces p = pieces_of(c, cut.parts);
    if (p.dim < 0 || p.size % n != 0) return false;
    const auto state = [&](const Type& t) {
      return AxisSharding::split(p.dim, t.shape[p.dim].bound() / p.size);
    };
    for (size_t k = 0; k < in.size(); ++k) in[k] = state(c.in[k]);
    out[0] = state(c.out[0]);
    return true;
  }
  if (cut.kind == AxisCut::kRing) return states_of_ring(c, m, n, in, out);
  const bool is_rows = cut.kind == AxisCut::kRows;
  if (!may_be_cut(m, cut.factor, cut.parts, n, is_rows)) return false;
  for (size_t k = 0; k < in.size(); ++k) {
    const Stand s = stand_of(m, m.operands[k], c.in[k].shape, cut.factor);
    if (!s.is_sound) return false;
    if (s.dim >= 0) in[k] = AxisSharding::split(s.dim, s.before * cut.parts);
  }
  for (size_t r = 0; r < out.size(); ++r) {
    const Stand s = stand_of(m, m.results[r], c.out[r].shape, cut.factor);
    const Combine how = m.combine[cut.factor][r];
    if (!s.is_sound) return false;
    if (how == Combine::kFree && s.dim >= 0) {
      out[r] = AxisSharding::split(s.dim, s.before * cut.parts);
    } else if (how == Combine::kSum || how == Combine::kMax || how == Combine::kMin ||
               (how == Combine::kLogSumExp && is_rows)) {
      out[r] = AxisSharding::pending(how);
    } else if (how != Combine::kEqual) {
      return false;
    }
  }
  return true;
}

}  // namespace tegula
