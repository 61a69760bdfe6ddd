// A random mesh, and random places on it for a function's values, for fuzzing text, verifier and
// the cutting of steps.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tegula/ir/module.h"

namespace tegula::testing {

// One to three axes of 1 to 4 ranks, at most `most` ranks in all.
inline Mesh random_mesh(std::mt19937_64& rng, int64_t most = 1 << 20) {
  Mesh mesh;
  std::vector<std::string> names = {"dp", "tp", "cp", "ep", "rows_2", "_x"};
  std::shuffle(names.begin(), names.end(), rng);
  const size_t n_axes = 1 + rng() % 3;
  for (size_t a = 0; a < n_axes; ++a) {
    const auto size = static_cast<int64_t>(1 + rng() % 4);
    if (mesh.n_ranks() * size <= most) mesh.axes.push_back({names[a], size});
  }
  return mesh;
}

// Splits of dims that the axes divide, and all of it everywhere.
inline Sharding random_sharding(const Mesh& mesh, const Shape& shape, std::mt19937_64& rng) {
  Sharding s = replicated(mesh);
  Shape left = shape;
  for (size_t a = 0; a < s.size(); ++a) {
    if (shape.rank() == 0 || rng() % 4 == 0) continue;
    const auto dim = static_cast<int>(rng() % static_cast<uint64_t>(shape.rank()));
    for (int64_t parts : {rng() % 3 == 0 ? int64_t{2} : int64_t{1}, int64_t{1}}) {
      const AxisSharding split = AxisSharding::split(dim, parts);
      if (!divides(left, split, mesh.axes[a].size)) continue;
      s[a] = split;
      left[dim] = left[dim].bound() / mesh.axes[a].size;
      break;
    }
  }
  return s;
}

// Says it of one in `one_in` values; returns of how many.
inline int annotate_some(Function& f, const Mesh& mesh, std::mt19937_64& rng, uint64_t one_in) {
  int n = 0;
  for (ValueId v = 0; v < f.values.size(); ++v) {
    if (rng() % one_in != 0) continue;
    f.set_sharding(v, random_sharding(mesh, f.type(v).shape, rng));
    ++n;
  }
  return n;
}

}  // namespace tegula::testing
