#include "tegula/kernels/cuda/tile_part.h"

#include "tegula/base/str.h"
#include "tegula/tile/program.h"

namespace tegula::cuda {

std::string TilePart::key() const {
  std::string s = cat(call.layout.key(), " blocks ", call.n_blocks, " wanted ", wanted, " of");
  for (const int k : of) s += cat(" ", k);
  for (const TileParam& p : call.params)
    if (p.is_constant) s += cat(" ", p.name, "=", static_cast<int64_t>(p.value));
  s += " out";
  for (const TensorRef& t : out) s += cat(" ", t.numel());
  return cat(s, "\n", tile::to_text(*program), "\n");
}

}  // namespace tegula::cuda
