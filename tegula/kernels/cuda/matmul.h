// Matrix products on the tensor cores from the host: which variant of a kernel a call gets, and its
// launch.
//
//   c[m, n] = a[m, k] b[k, n]
// bf16 or f16, all of one, c also f32; c with stride 1 over n; a with stride 1 over k, or over m
// (a_mn_major: it lies transposed); b with stride 1 over n (b_mn_major) or over k; the other stride
// a multiple of 8 elements, data aligned to 16 bytes. Numerics: f32 sums over ascending k, rounded
// once; the same bits in every run of a variant.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/kernels/cuda/driver.h"

namespace tegula::cuda {

struct MatmulShape {
  int64_t m = 1, n = 1, k = 1;
  bool a_mn_major = false, b_mn_major = true;
  bool f32_out = false;  // c is f32: sums as they are
  bool is_f16 = false;   // what is not f32 is f16, else bf16
};

struct MatmulOperand {
  void* data = nullptr;
  int64_t stride = 0;  // elements between rows as they lie in memory
};

struct MatmulCall {
  MatmulShape shape;
  MatmulOperand a, b, c;
  Stream stream;
  // For f32 results: k in so many parts, each part's sums in a c of its own, split_stride elements
  // apart; parts are multiples of 64.
  int n_splits = 1;
  int64_t split_stride = 0;
  // As MatmulSm90Params says; pointers are on the device.
  bool adds = false;
  void* c16 = nullptr;
  const float *row_scale = nullptr, *shift = nullptr, *total = nullptr;
  float* sums = nullptr;
  const int* guard = nullptr;
};

// invalid_argument for what is empty, misaligned or strided as above forbids; unsupported for
// extents past 2^30.
Status check_matmul(const MatmulCall& call);

// The constants that are compiled into matmul_sm90.cuh, which says what each does.
struct MatmulVariant {
  int tile_n = 256;
  int n_stages = 4;
  bool a_mn_major = false, b_mn_major = true;
  bool f32_out = false;
  bool is_f16 = false;
  bool is_fused = false;  // with an epilogue: matmul_fused_sm90.cuh
  bool is_exp = false;    // exponentials of sums
  int group = 16;  // rows of tiles that are worked on together: so many columns of B stay in L2

  int smem_bytes() const;
  // "ak_bn_n256s4_g16": a is K-major, b N-major.
  std::string name() const;
  std::vector<std::string> defines() const;
};

// The fastest variant measured for a shape (bench/results/matmul_cuda.json): tiles of 128 × 256, or
// of 128 × 192 or 128 where those, with k in parts or not, take less time by what was measured of
// a slab of each.
MatmulVariant choose_matmul(const MatmulShape& shape, int n_multiprocessors = 132);

// Into how many parts k should be cut so that more multiprocessors have work: 1, 2, 4 or 8, and 1
// but for f32 results. Depends on the shape and the device alone.
int choose_splits(const MatmulShape& shape, int n_multiprocessors = 132);

// matmul_sm90, compiled, in the current context.
class MatmulKernel {
 public:
  static Result<MatmulKernel> load(const MatmulVariant& variant, const std::string& cubin);
  Status launch(const MatmulCall& call) const;

 private:
  MatmulKernel(const MatmulVariant& variant, Module module, FunctionHandle function,
               int n_multiprocessors)
      : variant_(variant),
        module_(std::move(module)),
        function_(function),
        n_multiprocessors_(n_multiprocessors) {}
  MatmulVariant variant_;
  Module module_;
  FunctionHandle function_;
  int n_multiprocessors_;
};

// Starts matmul_fused_sm90, of that variant; `epilogue`: the words of its tile::Epilogue.
Status launch_fused(FunctionHandle function, const MatmulVariant& variant, const MatmulCall& call,
                    std::span<const uint64_t> epilogue);

// matmul_mma, compiled, in the current context: the rung below, for sm_80 and newer.
class MatmulMmaKernel {
 public:
  // The stages on a device of that compute capability, as in matmul_mma.cu.
  static constexpr int n_stages(int capability) {
    return capability == 80 || capability == 87 ? 3 : capability < 90 || capability >= 120 ? 2 : 4;
  }
  static constexpr int smem_bytes(int capability) {
    return n_stages(capability) * (128 + 256) * 128;
  }
  static std::vector<std::string> defines(bool b_mn_major, bool is_f16 = false);
  static Result<MatmulMmaKernel> load(bool b_mn_major, const std::string& cubin);
  Status launch(const MatmulCall& call) const;

 private:
  MatmulMmaKernel(bool b_mn_major, int smem_bytes, Module module, FunctionHandle function)
      : b_mn_major_(b_mn_major),
        smem_bytes_(smem_bytes),
        module_(std::move(module)),
        function_(function) {}
  bool b_mn_major_;
  int smem_bytes_;
  Module module_;
  FunctionHandle function_;
};

}  // namespace tegula::cuda
