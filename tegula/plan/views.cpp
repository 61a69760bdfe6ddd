#include "tegula/plan/views.h"

namespace tegula {

void set_contiguous(PlanTensor& t) {
  int64_t stride = 1;
  for (int d = t.type.shape.rank() - 1; d >= 0; --d) {
    t.stride[d] = stride;
    stride *= t.type.shape[d].bound();
  }
}

bool is_contiguous(const PlanTensor& t) {
  int64_t expect = 1;
  for (int d = t.type.shape.rank() - 1; d >= 0; --d) {
    const int64_t n = t.type.shape[d].bound();
    if (n != 1 && t.stride[d] != expect) return false;
    expect *= n;
  }
  return true;
}

// All but the first of a run of dims that are read as one must be constant: strides are those of
// the bounds.
static bool has_gaps(const std::vector<DimExpr>& dims, const Shape& shape) {
  bool is_first = true;
  for (int d = 0; d < shape.rank(); ++d) {
    if (!dims[static_cast<size_t>(d)].is_window) continue;
    if (!is_first && !shape[d].is_const()) return true;
    is_first &= shape[d] == Dim(1);
  }
  return false;
}

Result<PlanTensor> view_of(const OpCall& call, size_t index, const PlanTensor& in) {
  PlanTensor out = in;
  out.type = call.out[index];
  const DimMap map = TEGULA_TRY(dim_map(call));
  const auto& operand = map.operands[index < map.operands.size() ? index : 0];
  const auto& result = map.results[index];
  // Only a whole contiguous run can be read under another split (reshape [2,3] -> [3,2]).
  for (const DimExpr& e : result)
    if (e.is_window) {  // no affine form
      if (!is_contiguous(in))
        return unsupported("a reshape across dims needs a contiguous operand");
      if (has_gaps(operand, in.type.shape) || has_gaps(result, out.type.shape))
        return unsupported(cat(call.op->name, " of ", call.in[0], " to ", out.type,
                               ": below its bound a symbolic dim leaves gaps between rows"));
      set_contiguous(out);
      return out;
    }
  std::vector<int64_t> stride(map.factors.size(), 0);
  int64_t offset = 0;
  for (size_t d = 0; d < operand.size(); ++d) {
    offset += operand[d].offset * in.stride[d];
    for (const DimTerm& t : operand[d].terms) {
      if (!t.coeff.is_const() && map.factors[t.factor].size.bound() != 1)
        return unsupported(cat(call.op->name, " of ", call.in[0], " to ", out.type,
                               ": only the outermost part of a dim may be symbolic"));
      stride[t.factor] += in.stride[d] * t.coeff.bound();
    }
  }
  out.byte_offset += offset * size_bytes(in.type.dtype);
  for (size_t d = 0; d < result.size(); ++d) {
    // Parts of extent 1 do not matter; the others must nest: stride(major) =
    // n(minor)·stride(minor). Strides are those of the bounds, so only the outermost part may be
    // symbolic. A broadcast part has stride and span 0.
    int64_t s = 0, span = 0;
    bool is_first = true, is_const = true;
    for (size_t t = result[d].terms.size(); t-- > 0;) {
      const auto f = result[d].terms[t].factor;
      const int64_t n = map.factors[f].size.bound();
      if (n == 1) continue;
      if (is_first) {
        s = stride[f];
        span = s * n;
        is_first = false, is_const = map.factors[f].size.is_const();
        continue;
      }
      if (stride[f] != span || !is_const)
        return unsupported(cat(call.op->name, " of ", call.in[0], " to ", out.type,
                               ": the merged dims do not nest"));
      span *= n;
      is_const = map.factors[f].size.is_const();
    }
    out.stride[d] = s;
  }
  return out;
}

}  // namespace tegula
