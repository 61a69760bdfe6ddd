// Launches of kernels that take one block of parameters by value, of tensors of any strides.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/tensor.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cuda/plugin/launch.h"
#include "tegula/kernels/cuda/strided_params.h"

namespace tegula::cuda {

// A kernel of a device source, compiled with those defines, loaded once; it may have as much
// dynamic shared memory.
Result<FunctionHandle> plain_kernel(std::string_view source, const char* name,
                                    const std::vector<std::string>& defines, int smem_bytes = 0);

// Blocks of `threads` for n threads' work, at least one, at most so many that a loop over the rest
// pays.
Grid grid_for(int64_t n, int threads);

// Dims of tensors that have one shape, neighbours that lie alike in all of them merged.
LoopParams loops_over(std::initializer_list<const TensorRef*> tensors);
// The same of some dims, of up to three tensors: tensor t's stride of dim i is strides[t][i].
LoopParams loops_of(std::span<const int64_t> extents,
                    std::initializer_list<std::vector<int64_t>> strides);
// Loops of a contraction or a gather: stride t is that of operand which[t].
LoopParams loops_of(const kernel::Loops& loops, std::initializer_list<kernel::Operand> which);

// Counts `by` elements that lie side by side as one, where they do so in every tensor of a launch:
// tell it of all loops, steps and addresses, then ask.
class SideBySide {
 public:
  explicit SideBySide(int by) : by_(by) {}
  // Loops of some tensors, whose last dim has the elements.
  SideBySide& along(LoopParams& l, std::initializer_list<int> tensors);
  // Loops that only pass by them.
  SideBySide& across(LoopParams& l, std::initializer_list<int> tensors);
  SideBySide& step(long long& elements);
  SideBySide& at(const void* data, int64_t element_bytes);
  bool is_possible() const { return is_possible_; }
  void apply();

 private:
  int by_;
  bool is_possible_ = true;
  std::vector<long long*> counts_;
};

// "TEGULA_T=float", or "TEGULA_BF16=1", "TEGULA_F16=1"; "" of what device code does not compute
// with.
std::string type_define(DType t);

// to[i] = from[i], in row-major order of each one's own shape.
Status launch_move(const TensorRef& from, const TensorRef& to, const Stream& stream);
// to[…] = the element whose bytes are the lowest of `value`.
Status launch_fill(uint64_t value, const TensorRef& to, const Stream& stream);

}  // namespace tegula::cuda
