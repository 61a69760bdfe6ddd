// Attention with masks and score functions as C calls, for bench/cuda/attention_grid.py: a variant
// is chosen for a shape as a program would have it chosen, compiled into a folder, and called.
#include <optional>

#include "bench/cuda/attention_spec.h"
#include "bench/cuda/capi.h"
#include "tegula/kernels/cuda/attention_f32.h"
#include "tegula/kernels/cuda/attention_mma.h"

namespace {

using namespace tegula;
using namespace tegula::cuda;

struct Opened {
  std::optional<AttentionKernel> kernel;
  std::optional<AttentionF32Kernel> f32;
  std::optional<AttentionMmaKernel> mma;
};

// The variant's cubin, compiled if need be.
Result<std::string> path_of(const AttentionShape& shape, const FeatureSpec& f, const char* folder) {
  if (f.mma_kb != 0)
    return cubin_of(TEGULA_TRY(choose_attention_mma(shape, 1024 * f.mma_kb)), "attention_mma.cu",
                    folder);
  if (shape.is_f32)
    return cubin_of(TEGULA_TRY(choose_attention_f32(shape)), "attention_f32_sm90.cu", folder);
  return cubin_of(TEGULA_TRY(choose_attention(shape)), "attention_sm90.cu", folder);
}

Result<Opened> open(const AttentionShape& shape, const FeatureSpec& f, const char* folder) {
  const std::string path = TEGULA_TRY(path_of(shape, f, folder));
  const std::string cubin = TEGULA_TRY(read_cubin(path.c_str()));
  Opened o;
  if (f.mma_kb != 0) {
    const AttentionMmaVariant v = TEGULA_TRY(choose_attention_mma(shape, 1024 * f.mma_kb));
    o.mma.emplace(TEGULA_TRY(AttentionMmaKernel::load(v, cubin)));
  } else if (shape.is_f32) {
    const AttentionF32Variant v = TEGULA_TRY(choose_attention_f32(shape));
    o.f32.emplace(TEGULA_TRY(AttentionF32Kernel::load(v, cubin)));
  } else {
    const AttentionVariant v = TEGULA_TRY(choose_attention(shape));
    o.kernel.emplace(TEGULA_TRY(AttentionKernel::load(v, cubin)));
  }
  return o;
}

Status compile(const AttentionShape& shape, const FeatureSpec& f, const char* folder) {
  TEGULA_TRY(path_of(shape, f, folder));
  return {};
}

Result<Opened> load(const AttentionShape& shape, bool is_mma, const char* cubin, const int* spec) {
  Opened o;
  if (is_mma) {
    AttentionMmaVariant v = TEGULA_TRY(choose_attention_mma(shape));
    v.tile_n = spec[0], v.n_groups = spec[1];
    o.mma.emplace(TEGULA_TRY(AttentionMmaKernel::load(v, TEGULA_TRY(read_cubin(cubin)))));
    return o;
  }
  AttentionVariant v = TEGULA_TRY(choose_attention(shape));
  v.tile_n = spec[0], v.n_consumers = spec[1], v.n_stages = spec[2], v.ping_pong = spec[3] != 0;
  v.q_registers = spec[4] != 0, v.section_mb = spec[5];
  o.kernel.emplace(TEGULA_TRY(AttentionKernel::load(v, TEGULA_TRY(read_cubin(cubin)))));
  return o;
}

Result<int64_t> workspace_bytes(const AttentionShape& shape) {
  if (!shape.is_f32) return attention_workspace_bytes(shape);
  return attention_f32_workspace_bytes(TEGULA_TRY(choose_attention_f32(shape)), shape);
}

}  // namespace

extern "C" {

int tegula_grid_compile(const int64_t* sizes, const FeatureSpec* f, const char* folder) {
  return report(compile(shape_of(sizes, *f), *f, folder));
}

void* tegula_grid_open(const int64_t* sizes, const FeatureSpec* f, const char* folder) {
  return release(open(shape_of(sizes, *f), *f, folder));
}

// The numbers that bench_cuda_compile wrote for a line of variants.txt; spec: its numbers.
void* tegula_grid_load(const int64_t* sizes, const FeatureSpec* f, const char* cubin,
                       const int* spec) {
  return release(load(shape_of(sizes, *f), f->mma_kb != 0, cubin, spec));
}

int64_t tegula_grid_workspace_bytes(const int64_t* sizes, const FeatureSpec* f) {
  const auto bytes = workspace_bytes(shape_of(sizes, *f));
  return bytes.ok() ? *bytes : 0;  // a launch says what is wrong
}

// pointers: q, k, v, o, lse, counter, workspace; of e4m3 the factors of q, k and v. strides: batch,
// row, head of q, k, v, o; then batch and head of the factors.
int tegula_grid_launch(const Opened* opened, void* const* pointers, const int64_t* sizes,
                       const int64_t* strides, float scale, const FeatureSpec* f,
                       const AttentionFeatureParams* given, void* stream) {
  AttentionCall c;
  c.shape = shape_of(sizes, *f);
  AttentionOperand* operands[] = {&c.q, &c.k, &c.v, &c.o};
  for (int i = 0; i < 4; ++i)
    *operands[i] = {pointers[i], strides[3 * i], strides[3 * i + 1], strides[3 * i + 2]};
  c.lse = static_cast<float*>(pointers[4]);
  c.counter = static_cast<unsigned*>(pointers[5]);
  c.workspace = pointers[6];
  AttentionDescale* factors[] = {&c.q_descale, &c.k_descale, &c.v_descale};
  for (int i = 0; i < 3; ++i)
    *factors[i] = {static_cast<const float*>(pointers[7 + i]), strides[12 + 2 * i],
                   strides[13 + 2 * i]};
  c.scale = scale;
  c.given = *given;
  c.stream = stream;
  return report(opened->mma   ? opened->mma->launch(c)
                : opened->f32 ? opened->f32->launch(c)
                              : opened->kernel->launch(c));
}

}  // extern "C"
