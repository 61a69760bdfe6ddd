// Attention with masks and score functions as C calls, for bench/cuda/attention_grid.py: a variant
// is chosen for a shape as a program would have it chosen, compiled into a folder, and called.
#include <filesystem>

#include "bench/cuda/capi.h"
#include "tegula/kernels/cuda/attention.h"

namespace {

using namespace tegula;
using namespace tegula::cuda;

// Mirrored by attention_grid.py.
struct FeatureSpec {
  int is_f16, has_window, is_packed, has_documents, has_softcap, has_alibi, has_dropout, has_sinks,
      bias;
  const char *score_fn, *mask_fn;
};

AttentionFeatures features_of(const FeatureSpec& f) {
  AttentionFeatures out;
  out.has_window = f.has_window != 0, out.is_packed = f.is_packed != 0;
  out.has_documents = f.has_documents != 0, out.has_softcap = f.has_softcap != 0;
  out.has_alibi = f.has_alibi != 0, out.has_dropout = f.has_dropout != 0;
  out.has_sinks = f.has_sinks != 0, out.bias = static_cast<BiasType>(f.bias);
  out.score_fn = f.score_fn, out.mask_fn = f.mask_fn;
  return out;
}

// sizes: batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv, head_dim, is_causal.
AttentionShape shape_of(const int64_t* sizes, const FeatureSpec& f) {
  return {sizes[0], sizes[1],      sizes[2],      sizes[3],      sizes[4],
          sizes[5], sizes[6] != 0, f.is_f16 != 0, features_of(f)};
}

// The path of the variant's cubin, which is compiled if it is not there yet.
Result<std::string> cubin_of(const AttentionVariant& v, const char* folder) {
  std::string path = cat(folder, "/", v.name(), ".cubin");
  if (std::filesystem::exists(path)) return path;
  const Compiled c = TEGULA_TRY(compile_kernel("attention_sm90.cu", v.defines()));
  std::printf("%-60s %4d registers %5d bytes spilled %6.2f s\n", v.name().c_str(), c.registers,
              c.spill_bytes, c.seconds);
  std::fflush(stdout);
  if (c.spill_bytes > 0 || c.is_serialized)
    return internal_error(cat(v.name(), " spills or is serialized"));
  std::ofstream(path, std::ios::binary) << c.cubin;
  return path;
}

Result<AttentionKernel> open(const AttentionShape& shape, const char* folder) {
  const AttentionVariant v = TEGULA_TRY(choose_attention(shape));
  const std::string path = TEGULA_TRY(cubin_of(v, folder));
  return AttentionKernel::load(v, TEGULA_TRY(read_cubin(path.c_str())));
}

Status compile(const AttentionShape& shape, const char* folder) {
  const AttentionVariant v = TEGULA_TRY(choose_attention(shape));
  TEGULA_TRY(cubin_of(v, folder));
  return {};
}

}  // namespace

extern "C" {

int tegula_grid_compile(const int64_t* sizes, const FeatureSpec* f, const char* folder) {
  return report(compile(shape_of(sizes, *f), folder));
}

void* tegula_grid_open(const int64_t* sizes, const FeatureSpec* f, const char* folder) {
  return release(open(shape_of(sizes, *f), folder));
}

// pointers: q, k, v, o, lse, counter. strides: batch, row, head of q, k, v, o.
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
  c.scale = scale;
  c.given = *given;
  c.stream = stream;
  return report(static_cast<const AttentionKernel*>(kernel)->launch(c));
}

}  // extern "C"
