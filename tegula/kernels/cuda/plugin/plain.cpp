#include "tegula/kernels/cuda/plugin/plain.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"

namespace tegula::cuda {

namespace {
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

struct Plain {
  Module module;
  FunctionHandle function;
};

void append_loop(LoopParams& l, int64_t extent, std::span<const int64_t> strides) {
  l.count *= extent;
  if (extent == 1) return;
  bool merges = l.rank > 0;
  for (size_t t = 0; merges && t < strides.size(); ++t)
    merges = l.stride[t][l.rank - 1] == strides[t] * extent;
  if (!merges) {
    l.extent[l.rank] = 1;
    ++l.rank;
  }
  l.extent[l.rank - 1] *= extent;
  for (size_t t = 0; t < strides.size(); ++t) l.stride[t][l.rank - 1] = strides[t];
}

// The widest element, up to 16 bytes, in which both sides can be moved: neighbours lie beside each
// other, and everything else is a multiple of it.
int moved_bytes(int size, const void* data, const LoopParams& l) {
  if (l.rank == 0 || l.stride[0][l.rank - 1] != 1) return size;
  int bytes = 16;
  const auto fits = [&] {
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) != 0) return false;
    if (l.extent[l.rank - 1] * size % bytes != 0) return false;
    for (int d = 0; d + 1 < l.rank; ++d)
      if (l.stride[0][d] * size % bytes != 0) return false;
    return true;
  };
  while (bytes > size && !fits()) bytes /= 2;
  return bytes;
}

void widen(LoopParams& l, int times) {
  if (times == 1) return;
  l.count /= times, l.extent[l.rank - 1] /= times;
  for (int d = 0; d + 1 < l.rank; ++d) l.stride[0][d] /= times;
}
}  // namespace

Result<FunctionHandle> plain_kernel(std::string_view source, const char* name,
                                    const std::vector<std::string>& defines, int smem_bytes) {
  std::string key = cat(source, " ", name);
  for (const std::string& d : defines) key += cat(" ", d);
  const Plain* k = TEGULA_TRY(
      loaded<Plain>(key, source, defines, [&](const std::string& cubin) -> Result<Plain> {
        Module module = TEGULA_TRY(Module::load(cubin));
        const FunctionHandle function = TEGULA_TRY(module.function(name, smem_bytes));
        return Plain{std::move(module), function};
      }));
  return k->function;
}

Grid grid_for(int64_t n, int threads) {
  const int64_t blocks = std::clamp<int64_t>(ceil_div(n, int64_t{threads}), 1, kMostBlocks);
  return {{blocks, 1, 1}, {threads, 1, 1}, 0, true};
}

LoopParams loops_of(std::span<const int64_t> extents,
                    std::initializer_list<std::vector<int64_t>> strides) {
  LoopParams l{};
  l.count = 1;
  for (size_t d = 0; d < extents.size(); ++d) {
    std::vector<int64_t> at;
    for (const auto& s : strides) at.push_back(s[d]);
    append_loop(l, extents[d], at);
  }
  return l;
}

LoopParams loops_over(std::initializer_list<const TensorRef*> tensors) {
  LoopParams l{};
  l.count = 1;
  const TensorRef& first = **tensors.begin();
  for (int d = 0; d < first.rank; ++d) {
    std::vector<int64_t> at;
    for (const TensorRef* t : tensors) at.push_back(t->stride[d]);
    append_loop(l, first.shape[d], at);
  }
  return l;
}

LoopParams loops_of(const kernel::Loops& loops, std::initializer_list<kernel::Operand> which) {
  LoopParams l{};
  l.count = 1;
  for (int d = 0; d < loops.rank; ++d) {
    std::vector<int64_t> at;
    for (const kernel::Operand o : which) at.push_back(loops.factors[d].stride[o]);
    append_loop(l, loops.factors[d].extent, at);
  }
  return l;
}

SideBySide& SideBySide::along(LoopParams& l, std::initializer_list<int> tensors) {
  const int last = l.rank - 1;
  if (last < 0) {
    is_possible_ = false;
    return *this;
  }
  step(l.extent[last]), step(l.count);
  for (const int t : tensors) {
    is_possible_ &= l.stride[t][last] == 1;
    for (int d = 0; d < last; ++d) step(l.stride[t][d]);
  }
  return *this;
}

SideBySide& SideBySide::across(LoopParams& l, std::initializer_list<int> tensors) {
  for (const int t : tensors)
    for (int d = 0; d < l.rank; ++d) step(l.stride[t][d]);
  return *this;
}

SideBySide& SideBySide::step(long long& elements) {
  is_possible_ &= elements % by_ == 0;
  counts_.push_back(&elements);
  return *this;
}

SideBySide& SideBySide::at(const void* data, int64_t element_bytes) {
  is_possible_ &= reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(by_ * element_bytes) == 0;
  return *this;
}

void SideBySide::apply() {
  for (long long* count : counts_) *count /= by_;
}

std::string type_define(DType t) {
  switch (t) {
    case DType::kF32:
      return "TEGULA_T=float";
    case DType::kF64:
      return "TEGULA_T=double";
    case DType::kI32:
      return "TEGULA_T=int";
    case DType::kI64:
      return "TEGULA_T=long long";
    case DType::kBF16:
      return "TEGULA_BF16=1";
    case DType::kF16:
      return "TEGULA_F16=1";
    default:
      return "";
  }
}

Status launch_move(const TensorRef& from, const TensorRef& to, const Stream& stream) {
  if (to.numel() == 0) return {};
  MoveParams p{};
  p.from = from.data, p.to = to.data;
  p.from_loops = loops_over({&from}), p.to_loops = loops_over({&to});
  const int size = static_cast<int>(size_bytes(to.dtype));
  const int bytes =
      std::min(moved_bytes(size, from.data, p.from_loops), moved_bytes(size, to.data, p.to_loops));
  widen(p.from_loops, bytes / size), widen(p.to_loops, bytes / size);
  const FunctionHandle f =
      TEGULA_TRY(plain_kernel("move.cu", "move_strided", {cat("TEGULA_BYTES=", bytes)}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(p.to_loops.count, kThreads), stream, "launching move_strided", p);
}

Status launch_fill(uint64_t value, const TensorRef& to, const Stream& stream) {
  if (to.numel() == 0) return {};
  const Driver* d = TEGULA_TRY(Driver::get());
  const int64_t size = size_bytes(to.dtype);
  if (value == 0 && to.is_contiguous()) return d->start_fill(to.data, 0, to.numel() * size, stream);
  FillParams p{};
  p.to = to.data, p.value = value, p.loops = loops_over({&to});
  const FunctionHandle f =
      TEGULA_TRY(plain_kernel("move.cu", "fill_strided", {cat("TEGULA_BYTES=", size)}));
  return d->start(f, grid_for(p.loops.count, kThreads), stream, "launching fill_strided", p);
}

}  // namespace tegula::cuda
