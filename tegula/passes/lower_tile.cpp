#include "tegula/passes/lower_tile.h"

#include "tegula/base/algorithm.h"
#include "tegula/ops/table.h"
#include "tegula/tile/builder.h"

namespace tegula {

namespace {

// Leading dims, and no trailing one? Of so many rows that each block of a kernel has some.
bool reduces_columns(const Function& f, const Node& n) {
  constexpr int64_t kFewest = 512;
  const Shape& x = f.type(n.inputs[0]).shape;
  bool reduced[kMaxRank] = {};
  for (int64_t d : n.attrs.ints("dims")) reduced[d] = true;
  int64_t n_rows = 1;
  int n_kept = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if (x[d] == Dim(1)) continue;
    if (reduced[d] && n_kept > 0) return false;
    n_kept += !reduced[d];
    if (reduced[d]) n_rows *= x[d].bound();
  }
  return n_rows >= kFewest && n_kept > 0;
}

bool reduces_a_row(const Function& f, const Node& n) {
  const Shape& x = f.type(n.inputs[0]).shape;
  bool reduced[kMaxRank] = {};
  for (int64_t d : n.attrs.ints("dims")) reduced[d] = true;
  bool any = false;
  for (int d = 0; d < x.rank(); ++d) {
    if (x[d] == Dim(1)) continue;
    if (any && !reduced[d]) return false;
    any |= reduced[d];
  }
  return any;
}

class Lowering {
 public:
  Lowering(const Module& module, const Function& body, FusedSpace space)
      : module_(module),
        body_(body),
        space_(std::move(space)),
        builder_(space_.rank(), space_.n_inner),
        regs_(body.values.size()),
        extent_(body.values.size(), tile::Extent::kUniform) {}

  Result<TileLowering> run() {
    TileLowering out;
    for (const Param& p : body_.params) {
      const tile::Extent extent = extent_of(p.value, false);
      const int k = builder_.input(body_.type(p.value).dtype, extent);
      regs_[p.value] = builder_.load(k);
      extent_[p.value] = extent;
      out.in.push_back(view_of(p.value, extent));
    }
    for (const Node& n : body_.nodes) TEGULA_TRY(lower(n));
    for (const Output& r : body_.results) {
      const tile::Extent extent = extent_of(r.value, true);
      const bool is_all = space_.rank() == 0;
      if (extent == tile::Extent::kUniform && !is_all)
        return internal_error(cat("a fused result is one element of the space ", space_.shape));
      const int k =
          builder_.output(body_.type(r.value).dtype, is_all ? tile::Extent::kFull : extent);
      builder_.store(k, regs_[r.value]);
      out.out.push_back(view_of(r.value, extent));
    }
    out.program = std::make_shared<const tile::Program>(TEGULA_TRY(builder_.finish()));
    return out;
  }

 private:
  // Full if it varies along a row, row if only from row to row. A result that is the one value of
  // the only row is row, an operand of one element uniform.
  tile::Extent extent_of(ValueId v, bool is_result) const {
    int n = 0;
    bool inner = false;
    for (int d = 0; d < body_.type(v).shape.rank(); ++d) {
      const int8_t at = space_.dims[v][d];
      n += at >= 0;
      inner |= at >= space_.rank() - space_.n_inner;
    }
    if (inner && is_column(v)) return tile::Extent::kColumn;
    if (inner || (n > 0 && space_.n_inner == 0)) return tile::Extent::kFull;
    const bool one_row = is_result && space_.n_inner > 0 && space_.n_inner == space_.rank();
    return n > 0 || one_row ? tile::Extent::kRow : tile::Extent::kUniform;
  }

  // Its dims are inner ones, and a reduction made it.
  bool is_column(ValueId v) const {
    const Node* n = body_.producer(v);
    if (!n || !n->op->is_reduction) return false;
    const auto& dims = space_.dims[v];
    return std::any_of(dims.begin(), dims.begin() + body_.type(v).shape.rank(),
                       [&](int8_t d) { return d >= space_.rank() - space_.n_inner; });
  }

  SpaceView view_of(ValueId v, tile::Extent extent) const {
    SpaceView view;
    view.shape = space_.shape;
    view.dim.fill(-1);
    for (int d = 0; d < body_.type(v).shape.rank(); ++d)
      if (const int8_t at = space_.dims[v][d]; at >= 0) view.dim[at] = static_cast<int8_t>(d);
    if (extent == tile::Extent::kColumn) {
      for (int d = 0; d < space_.rank() - space_.n_inner; ++d) view.shape[d] = 1;
      return view;
    }
    const int kept = extent == tile::Extent::kFull  ? space_.rank()
                     : extent == tile::Extent::kRow ? space_.rank() - space_.n_inner
                                                    : 0;
    for (int d = kept; d < space_.rank(); ++d) view.shape[d] = 1;
    return view;
  }

  Status lower(const Node& n) {
    tile::Reg& out = regs_[n.output()];
    tile::Extent& extent = extent_[n.output()];
    for (ValueId v : n.inputs) extent = std::max(extent, extent_[v]);
    if (n.op == &constant_op) {
      out = builder_.constant(n.attrs.f("value"), n.attrs.dtype("dtype"));
    } else if (n.op == &iota_op) {
      const int8_t at = space_.dims[n.output()][n.attrs.i("dim")];
      const DType dtype = n.attrs.dtype("dtype");
      out = at < 0 ? builder_.constant(0, dtype) : builder_.iota(at, dtype);
      const bool is_row = space_.n_inner > 0 && at < space_.rank() - space_.n_inner;
      extent = at < 0 ? tile::Extent::kUniform : is_row ? tile::Extent::kRow : tile::Extent::kFull;
    } else if (n.op == &random_uniform_op) {
      extent = extent_of(n.output(), false);
      std::optional<tile::Reg> index;  // of the value's own elements
      if (extent == tile::Extent::kRow) index = builder_.index(DType::kI64, extent);
      if (extent == tile::Extent::kUniform) index = builder_.constant_int(0);
      out = builder_.random_uniform(regs_[n.inputs[0]], n.attrs.i("stream"), n.attrs.dtype("dtype"),
                                    index);
    } else if (n.op->is_view || is_column(n.output())) {
      out = regs_[n.inputs[0]];  // a column output adds up what it is given
    } else {
      std::vector<tile::Reg> in;
      for (ValueId v : n.inputs) in.push_back(regs_[v]);
      if (n.op->is_reduction) {
        extent = tile::Extent::kRow;
      } else if (const tile::Extent whole = extent_of(n.output(), false); extent < whole) {
        // Every element is a value of its own to the graph, and to its FLOPs, though all operands
        // repeat some.
        in[0] = builder_.widen(in[0], extent = whole);
      }
      const auto in_types = body_.input_types(n), out_types = body_.output_types(n);
      out = n.op->tile(builder_, {n.op, &n.attrs, in_types, out_types, &module_, n.regions}, in);
    }
    return {};
  }

  const Module& module_;
  const Function& body_;
  FusedSpace space_;
  tile::Builder builder_;
  std::vector<tile::Reg> regs_;
  std::vector<tile::Extent> extent_;  // at which each is computed
};

}  // namespace

Result<TileLowering> lower_tile(const Module& module, FuncId body, const Attrs& attrs) {
  FusedSpace space = TEGULA_TRY(fused_space(module[body], attrs));
  return Lowering(module, module[body], std::move(space)).run();
}

TileRole tile_role(const Function& f, const Node& n) {
  if (n.op->is_elementwise) return n.op->tile ? TileRole::kElementwise : TileRole::kNone;
  if (n.op == &reduce_sum_op && f.type(n.output()).dtype == DType::kF32 && reduces_columns(f, n))
    return TileRole::kColumns;
  if (n.op->is_reduction)
    return n.op->tile && reduces_a_row(f, n) ? TileRole::kReduction : TileRole::kNone;
  if (n.op == &broadcast_op) return TileRole::kView;
  if (n.op == &reshape_op)
    return only_ones_differ(f.type(n.inputs[0]).shape, f.type(n.output()).shape) ? TileRole::kView
                                                                                 : TileRole::kNone;
  if (n.op == &constant_op) return n.attrs.has("value") ? TileRole::kSource : TileRole::kNone;
  if (n.op == &iota_op)
    return n.attrs.get_or<int64_t>("start", 0) == 0 ? TileRole::kSource : TileRole::kNone;
  if (n.op == &random_uniform_op)
    return n.attrs.has("origin") ? TileRole::kNone : TileRole::kRandom;
  return TileRole::kNone;
}

}  // namespace tegula
