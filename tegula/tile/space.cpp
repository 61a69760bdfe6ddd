#include "tegula/tile/space.h"

namespace tegula::tile {

Result<Space> space_of(const Program& p, std::span<const TensorRef> in,
                       std::span<const TensorRef> out) {
  if (in.size() != p.inputs.size() || out.size() != p.outputs.size())
    return invalid_argument(cat("tile program: has ", p.inputs.size(), " inputs and ",
                                p.outputs.size(), " outputs, got ", in.size(), " and ",
                                out.size()));
  const TensorRef* first = nullptr;
  for (size_t k = 0; k < in.size() && !first; ++k)
    if (p.inputs[k].extent == Extent::kFull) first = &in[k];
  for (size_t k = 0; k < out.size() && !first; ++k)
    if (p.outputs[k].extent == Extent::kFull) first = &out[k];
  TEGULA_CHECK(first, "a verified program has a full operand");
  Space space;
  space.rank = p.rank;
  if (first->rank != p.rank)
    return invalid_argument(
        cat("tile program: is over rank ", p.rank, ", an operand has rank ", first->rank));
  for (int d = 0; d < p.rank; ++d) {
    space.shape[d] = first->shape[d];
    (d < p.rank - p.n_inner ? space.n_rows : space.row_len) *= first->shape[d];
  }
  const auto check = [&](const TensorRef& t, Extent extent, const char* name, size_t k) -> Status {
    if (extent == Extent::kUniform) return {};
    bool fits = t.rank == p.rank;
    for (int d = 0; fits && d < p.rank; ++d) {
      const bool inner = d >= p.rank - p.n_inner;
      // Along which it has one element.
      const bool is_lone = extent == (inner ? Extent::kRow : Extent::kColumn);
      fits = is_lone ? t.shape[d] == 1 || t.stride[d] == 0 : t.shape[d] == space.shape[d];
    }
    if (fits) return {};
    std::string got, want;
    for (int d = 0; d < t.rank; ++d) append(got, cat(d ? "," : "", t.shape[d]));
    for (int d = 0; d < p.rank; ++d) append(want, cat(d ? "," : "", space.shape[d]));
    return invalid_argument(cat("tile program: ", name, k, " has shape [", got,
                                "], the iteration space [", want, "]",
                                extent == Extent::kRow      ? ", whose rows it should have"
                                : extent == Extent::kColumn ? ", whose columns it should have"
                                                            : ""));
  };
  for (size_t k = 0; k < in.size(); ++k) TEGULA_TRY(check(in[k], p.inputs[k].extent, "in", k));
  for (size_t k = 0; k < out.size(); ++k) TEGULA_TRY(check(out[k], p.outputs[k].extent, "out", k));
  return space;
}

}  // namespace tegula::tile
