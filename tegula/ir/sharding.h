// Mesh: the ranks of a run as a grid with named axes. Sharding: where on it a value lies.
//
//   dp=2,tp=4   8 ranks; rank r stands at dp = r / 4, tp = r % 4
//
// Beside its type a value has one state per axis: the same on all ranks of the axis (R), one dim
// split among them (S), or a sum of which each has a part (P). The ranks that differ in an axis
// alone are a group. [Xu et al. 2021 (GSPMD), section 3; Lepikhin et al. 2020]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/box.h"
#include "tegula/base/result.h"
#include "tegula/base/shape.h"
#include "tegula/ir/dim_map.h"

namespace tegula {

// Letters, digits and "_", no digit first.
bool is_identifier(std::string_view name);
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct Mesh {
  std::vector<MeshAxis> axes;  // the last one varies fastest

  int64_t n_ranks() const;
  int find(std::string_view name) const;  // -1: none
  // Where a rank stands, one index per axis.
  std::vector<int64_t> at(int64_t rank) const;
  // The ranks of rank's group along an axis, in the axis's order.
  std::vector<int64_t> group(int64_t rank, size_t axis) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;
};
// "dp=2,tp=4". Errors: another form, a name that is not of letters, digits and "_", a size below 1,
// an axis named twice, more than 2^20 ranks.
Result<Mesh> mesh_from_text(std::string_view text);
std::string to_text(const Mesh& mesh);

enum class Placement : uint8_t { kReplicated, kSplit, kPending };

// A value's state on one axis. A split dim consists of `parts` parts, one after another, and a
// rank holds its share of each: the heads of q, k and v in a fused projection are three parts.
struct AxisSharding {
  Placement placement = Placement::kReplicated;
  int dim = -1;                     // kSplit
  int64_t parts = 1;                // kSplit
  Combine combine = Combine::kSum;  // kPending: kSum, kMax, kMin or kLogSumExp
  friend bool operator==(const AxisSharding&, const AxisSharding&) = default;

  static AxisSharding split(int dim, int64_t parts = 1) {
    return {Placement::kSplit, dim, parts, Combine::kSum};
  }
  static AxisSharding pending(Combine combine = Combine::kSum) {
    return {Placement::kPending, -1, 1, combine};
  }
  bool is_replicated() const { return placement == Placement::kReplicated; }
  bool is_split() const { return placement == Placement::kSplit; }
  bool is_pending() const { return placement == Placement::kPending; }
};

// One state per axis of the mesh. A dim that several axes split is split by the first of them
// first.
using Sharding = std::vector<AxisSharding>;

inline Sharding replicated(const Mesh& mesh) { return Sharding(mesh.axes.size()); }
// "[dp:0, tp:1/3, cp:+]": dim 0 by dp, dim 1 in three parts by tp, a sum over cp ("max", "min",
// "lse": other ways in which parts combine). "": replicated.
std::string to_text(const Mesh& mesh, const Sharding& sharding);
// Reads what to_text writes, and "[]". Errors: another form, an axis that the mesh does not have or
// that stands there twice, with the axes that there are.
Result<Sharding> sharding_from_text(const Mesh& mesh, std::string_view text);
// "+", "max", "min", "lse": how parts combine; "": not one that may be left pending.
std::string_view pending_text(Combine combine);

// Can the dim be split so? Constant extents alone, and evenly.
bool divides(const Shape& shape, const AxisSharding& state, int64_t n);
// May a tensor of that shape lie so? Errors: no state for each axis; a dim that is not there, is
// symbolic, or does not consist of as many equal shares: which axis, which numbers, what to do.
Status check_sharding(const Mesh& mesh, const Shape& shape, const Sharding& sharding);
// The shape that a rank holds. Errors: those of check_sharding.
Result<Shape> local_shape(const Mesh& mesh, const Shape& shape, const Sharding& sharding);
// The indices of a dim that a rank at `at` holds, as ranges [begin, end) in the order in which they
// lie there.
Ranges local_ranges(const Mesh& mesh, int64_t extent, const Sharding& sharding, int dim,
                    std::span<const int64_t> at);
// The same of all dims: the boxes that a rank holds. Extents are bounds.
Share local_share(const Mesh& mesh, const Shape& shape, const Sharding& sharding,
                  std::span<const int64_t> at);

}  // namespace tegula
