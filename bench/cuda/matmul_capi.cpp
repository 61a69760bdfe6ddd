// The matmul kernels as C calls, for bench/cuda/matmul.py, which times them beside PyTorch's on the
// tensors and the stream of one process.
#include <algorithm>

#include "bench/cuda/capi.h"
#include "tegula/kernels/cuda/matmul.h"
#include "tegula/kernels/cuda/matmul_params.h"
#include "tegula/kernels/cuda/matmul_rungs.h"
#include "tegula/kernels/cuda/mean_params.h"

namespace {

using namespace tegula;
using namespace tegula::cuda;

Result<MatmulRungKernel> load_rung(const char* path, std::string_view name) {
  for (const MatmulRung& rung : matmul_rungs())
    if (rung.name == name) return MatmulRungKernel::load(rung, TEGULA_TRY(read_cubin(path)));
  return invalid_argument(cat("there is no rung ", name));
}

Result<MatmulMmaKernel> load_mma(const char* path, bool b_mn_major) {
  return MatmulMmaKernel::load(b_mn_major, TEGULA_TRY(read_cubin(path)));
}

Result<MatmulKernel> load_sm90(const char* path, const MatmulVariant& v) {
  return MatmulKernel::load(v, TEGULA_TRY(read_cubin(path)));
}

struct Divergence {
  Module module;
  FunctionHandle function;
};

Result<Divergence> load_divergence(const char* path) {
  Module module = TEGULA_TRY(Module::load(TEGULA_TRY(read_cubin(path))));
  FunctionHandle f = TEGULA_TRY(module.function("divergence", 0));
  return Divergence{std::move(module), f};
}

Status launch_divergence(const Divergence& kernel, DivergenceParams p, unsigned blocks,
                         void* stream) {
  const Driver* d = TEGULA_TRY(Driver::get());
  void* arguments[] = {&p};
  return d->check(
      d->launch(kernel.function, blocks, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr),
      "launching divergence");
}

struct Mean {
  Module module;
  FunctionHandle naive, shared;
};

Result<Mean> load_mean(const char* path) {
  Module module = TEGULA_TRY(Module::load(TEGULA_TRY(read_cubin(path))));
  FunctionHandle naive = TEGULA_TRY(module.function("mean_naive", 0));
  FunctionHandle shared = TEGULA_TRY(module.function("mean_shared", 0));
  return Mean{std::move(module), naive, shared};
}

Status launch_mean(const Mean& kernel, bool is_shared, const MeanParams& p, void* stream) {
  const Driver* d = TEGULA_TRY(Driver::get());
  const Grid grid{{(p.n + kMeanThreads - 1) / kMeanThreads, 1, 1}, {kMeanThreads, 1, 1}};
  return d->start(is_shared ? kernel.shared : kernel.naive, grid, StreamHandle(stream),
                  "launching a mean", p);
}

// pointers: a, b, c. sizes: m, n, k, a_mn_major, b_mn_major, and the strides of a, b and c.
MatmulCall call_of(void* const* pointers, const int64_t* sizes, void* stream) {
  return {{sizes[0], sizes[1], sizes[2], sizes[3] != 0, sizes[4] != 0},
          {pointers[0], sizes[5]},
          {pointers[1], sizes[6]},
          {pointers[2], sizes[7]},
          stream};
}

}  // namespace

extern "C" {

const char* tegula_error() { return last_error.c_str(); }

void* tegula_matmul_rung_load(const char* cubin, const char* name) {
  return release(load_rung(cubin, name));
}
int tegula_matmul_rung_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
                              void* stream) {
  return report(static_cast<const MatmulRungKernel*>(kernel)->launch(
      static_cast<const float*>(pointers[0]), static_cast<const float*>(pointers[1]),
      static_cast<float*>(pointers[2]), sizes[0], sizes[1], sizes[2], stream));
}

void* tegula_matmul_mma_load(const char* cubin, int b_mn_major) {
  return release(load_mma(cubin, b_mn_major != 0));
}
int tegula_matmul_mma_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
                             void* stream) {
  return report(
      static_cast<const MatmulMmaKernel*>(kernel)->launch(call_of(pointers, sizes, stream)));
}

// spec: tile_n, stages, a_mn_major, b_mn_major, group.
void* tegula_matmul_sm90_load(const char* cubin, const int* spec) {
  return release(load_sm90(cubin, {spec[0], spec[1], spec[2] != 0, spec[3] != 0, false, spec[4]}));
}
int tegula_matmul_sm90_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
                              void* stream) {
  return report(static_cast<const MatmulKernel*>(kernel)->launch(call_of(pointers, sizes, stream)));
}

void* tegula_divergence_load(const char* cubin) { return release(load_divergence(cubin)); }
int tegula_divergence_launch(const void* kernel, float* out, int blocks, int paths, int by_warp,
                             int n_rounds, void* stream) {
  return report(launch_divergence(*static_cast<const Divergence*>(kernel),
                                  {out, paths, by_warp, n_rounds}, static_cast<unsigned>(blocks),
                                  stream));
}

// n means of n + 2 elements.
void* tegula_mean_load(const char* cubin) { return release(load_mean(cubin)); }
int tegula_mean_launch(const void* kernel, const float* x, float* y, int64_t n, int is_shared,
                       void* stream) {
  return report(
      launch_mean(*static_cast<const Mean*>(kernel), is_shared != 0, {x, y, n, nullptr}, stream));
}

}  // extern "C"
