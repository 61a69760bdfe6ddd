// The backward of attention as C calls, for bench/cuda/attention_bwd.py: a variant is chosen for a
// shape as a program would have it chosen, compiled into a folder if it is not there, and called.
#include "bench/cuda/attention_spec.h"
#include "tegula/kernels/cuda/attention_bwd.h"

namespace {

using namespace tegula;
using namespace tegula::cuda;

struct Opened {
  AttentionBwdVariant variant;
  AttentionBwdKernel kernel;
};

// tiles: of mma.sync, or null: groups, pairs, shares, queries, keys, whether dQ is summed in
// memory.
Result<AttentionBwdVariant> choose(const AttentionShape& shape, const FeatureSpec& f,
                                   bool is_ordered, const int* tiles) {
  if (f.mma_kb == 0) return choose_attention_bwd(shape, is_ordered);
  AttentionBwdVariant v = TEGULA_TRY(choose_attention_bwd_mma(shape, is_ordered, 1024 * f.mma_kb));
  if (tiles == nullptr) return v;
  v.mma_groups = tiles[0], v.mma_pairs = tiles[1], v.mma_shares = tiles[2];
  v.mma_queries = tiles[3], v.mma_keys = tiles[4], v.mma_adds_dq = tiles[5] != 0;
  return v;
}

Result<std::string> path_of(const AttentionBwdVariant& v, const char* folder) {
  return cubin_of(v, v.source(), folder);
}

Result<Opened> open(const Result<AttentionBwdVariant>& chosen, const char* folder) {
  const AttentionBwdVariant v = TEGULA_TRY(chosen);
  const std::string path = TEGULA_TRY(path_of(v, folder));
  const std::string cubin = TEGULA_TRY(read_cubin(path.c_str()));
  return Opened{v, TEGULA_TRY(AttentionBwdKernel::load(v, cubin))};
}

Status compile(const Result<AttentionBwdVariant>& chosen, const char* folder) {
  TEGULA_TRY(path_of(TEGULA_TRY(chosen), folder));
  return {};
}

}  // namespace

extern "C" {

int tegula_bwd_compile(const int64_t* sizes, const FeatureSpec* f, int is_ordered,
                       const char* folder, const int* tiles) {
  return report(compile(choose(shape_of(sizes, *f), *f, is_ordered != 0, tiles), folder));
}

void* tegula_bwd_open(const int64_t* sizes, const FeatureSpec* f, int is_ordered,
                      const char* folder, const int* tiles) {
  return release(open(choose(shape_of(sizes, *f), *f, is_ordered != 0, tiles), folder));
}

// Whether dq has the same bits in every run.
int tegula_bwd_repeats(const Opened* o) {
  return static_cast<int>(o->variant.is_ordered || o->variant.has_dq_kernel());
}

int64_t tegula_bwd_workspace_bytes(const Opened* o, const int64_t* sizes, const FeatureSpec* f,
                                   int64_t n_sequences) {
  return attention_bwd_workspace_bytes(o->variant, shape_of(sizes, *f), n_sequences);
}

// pointers: q, k, v, o, do, dq, dk, dv, lse, d_lse, d_bias, d_sinks, workspace (those that are not
// needed null). strides: batch, row, head of the first eight.
int tegula_bwd_launch(const Opened* o, void* const* pointers, const int64_t* sizes,
                      const int64_t* strides, float scale, const FeatureSpec* f,
                      const AttentionFeatureParams* given, void* stream) {
  AttentionBwdCall c;
  c.shape = shape_of(sizes, *f);
  AttentionOperand* operands[] = {&c.q, &c.k, &c.v, &c.o, &c.d_o, &c.dq, &c.dk, &c.dv};
  for (int i = 0; i < 8; ++i)
    *operands[i] = {pointers[i], strides[3 * i], strides[3 * i + 1], strides[3 * i + 2]};
  c.lse = static_cast<const float*>(pointers[8]);
  c.d_lse = static_cast<const float*>(pointers[9]);
  c.d_bias = static_cast<float*>(pointers[10]);
  c.d_sinks = static_cast<float*>(pointers[11]);
  c.workspace = pointers[12];
  c.scale = scale;
  c.given = *given;
  c.stream = stream;
  return report(o->kernel.launch(c));
}

}  // extern "C"
