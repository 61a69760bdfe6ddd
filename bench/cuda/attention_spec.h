// A shape and its features as the scripts of this folder give them, and cubins compiled on demand.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "bench/cuda/capi.h"
#include "tegula/kernels/cuda/attention_mma.h"
#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda {

// Mirrored by attention_grid.py.
struct FeatureSpec {
  int type;  // of results: 0: bf16, 1: f16, 2: f32
  int has_window, is_packed, has_documents, has_softcap, has_alibi, has_dropout, has_sinks, is_f8,
      mma_kb,  // not 0: the kernels by mma.sync, with so much shared memory
      bias;
  const char *score_fn, *mask_fn;
};

inline AttentionFeatures features_of(const FeatureSpec& f) {
  AttentionFeatures out;
  out.has_window = f.has_window != 0, out.is_packed = f.is_packed != 0;
  out.has_documents = f.has_documents != 0, out.has_softcap = f.has_softcap != 0;
  out.has_alibi = f.has_alibi != 0, out.has_dropout = f.has_dropout != 0;
  out.has_sinks = f.has_sinks != 0, out.bias = static_cast<BiasType>(f.bias);
  out.score_fn = f.score_fn, out.mask_fn = f.mask_fn;
  return out;
}

// sizes: batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv, head_dim, is_causal.
inline AttentionShape shape_of(const int64_t* sizes, const FeatureSpec& f) {
  return {sizes[0],      sizes[1],    sizes[2],       sizes[3],     sizes[4],   sizes[5],
          sizes[6] != 0, f.type == 1, features_of(f), f.is_f8 != 0, f.type == 2};
}

// The path of the variant's cubin, which is compiled if it is not there yet. TEGULA_CHECKED in the
// environment: as racecheck wants it (docs/kernels/attention_bwd_sm90.md).
template <class Variant>
Result<std::string> cubin_of(const Variant& v, const char* source, const char* folder) {
  std::string path = cat(folder, "/", v.name(), ".cubin");
  if (std::filesystem::exists(path)) return path;
  std::vector<std::string> defines = v.defines();
  if (std::getenv("TEGULA_CHECKED") != nullptr) defines.emplace_back("TEGULA_CHECKED=1");
  const Compiled c = TEGULA_TRY(compile_kernel(source, defines));
  std::printf("%-60s %4d registers %5d bytes spilled %6.2f s\n", v.name().c_str(), c.registers,
              c.spill_bytes, c.seconds);
  std::fflush(stdout);
  if (c.is_serialized) return internal_error(cat(v.name(), ": its products are serialized"));
  if (!(std::ofstream(path, std::ios::binary) << c.cubin).flush())
    return io_error(cat("cannot write ", path, ": is its folder there?"));
  return path;
}

}  // namespace tegula::cuda
