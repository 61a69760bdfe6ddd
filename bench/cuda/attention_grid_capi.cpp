// Attention with masks and score functions as C calls, for bench/cuda/attention_grid.py: a variant
// is chosen for a shape as a program would have it chosen, compiled into a folder, and called.
#include "bench/cuda/attention_spec.h"
#include "bench/cuda/capi.h"
#include "tegula/kernels/cuda/attention.h"

namespace {

using namespace tegula;
using namespace tegula::cuda;

Result<AttentionKernel> open(const AttentionShape& shape, const char* folder) {
  const AttentionVariant v = TEGULA_TRY(choose_attention(shape));
  const std::string path = TEGULA_TRY(cubin_of(v, "attention_sm90.cu", folder));
  return AttentionKernel::load(v, TEGULA_TRY(read_cubin(path.c_str())));
}

Status compile(const AttentionShape& shape, const char* folder) {
  const AttentionVariant v = TEGULA_TRY(choose_attention(shape));
  TEGULA_TRY(cubin_of(v, "attention_sm90.cu", folder));
  return {};
}

Result<AttentionKernel> load(const AttentionShape& shape, const char* cubin, const int* spec) {
  AttentionVariant v = TEGULA_TRY(choose_attention(shape));
  v.tile_n = spec[0], v.n_consumers = spec[1], v.n_stages = spec[2], v.ping_pong = spec[3] != 0;
  v.q_registers = spec[4] != 0, v.section_mb = spec[5];
  return AttentionKernel::load(v, TEGULA_TRY(read_cubin(cubin)));
}

}  // namespace

extern "C" {

int tegula_grid_compile(const int64_t* sizes, const FeatureSpec* f, const char* folder) {
  return report(compile(shape_of(sizes, *f), folder));
}

void* tegula_grid_open(const int64_t* sizes, const FeatureSpec* f, const char* folder) {
  return release(open(shape_of(sizes, *f), folder));
}

// What bench_cuda_compile wrote for a line of variants.txt; spec: its numbers.
void* tegula_grid_load(const int64_t* sizes, const FeatureSpec* f, const char* cubin,
                       const int* spec) {
  return release(load(shape_of(sizes, *f), cubin, spec));
}

int64_t tegula_grid_workspace_bytes(const int64_t* sizes, const FeatureSpec* f) {
  return attention_workspace_bytes(shape_of(sizes, *f));
}

// pointers: q, k, v, o, lse, counter, workspace; of e4m3 the factors of q, k and v. strides: batch,
// row, head of q, k, v, o; then batch and head of the factors.
int tegula_grid_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
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
  return report(static_cast<const AttentionKernel*>(kernel)->launch(c));
}

}  // extern "C"
