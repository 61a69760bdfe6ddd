// Masks and score functions of the GPU's attention: which are compiled into a variant, what a call
// gives them, and which combinations there are. attention_score.cuh says what each computes.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/kernels/cuda/attention_params.h"

namespace tegula::cuda {

enum class BiasType { kNone, kF32, kElement };  // kElement: that of q, k and v

struct AttentionFeatures {
  bool has_window = false;     // AttentionFeatureParams::window_left, window_right
  bool is_packed = false;      // cu_seqlens_q, cu_seqlens_k, n_sequences; batch is 1
  bool is_paged = false;       // seqlens_k, block_table and the pages' sizes; attention_mma alone
  bool has_documents = false;  // documents_q, documents_k
  bool has_softcap = false;    // softcap, softcap_inverse
  bool has_alibi = false;      // slopes
  bool has_dropout = false;    // seed, stream, dropout, keep_factor
  bool has_sinks = false;      // sinks
  BiasType bias = BiasType::kNone;
  // Expressions in C: of the score (score, b, h, i, j, sq, sk), and whether query i sees key j.
  std::string score_fn, mask_fn;

  // Whether every score needs work of its own.
  bool is_heavy() const {
    return has_softcap || has_alibi || bias != BiasType::kNone || !score_fn.empty() ||
           !mask_fn.empty() || has_dropout;
  }
  // "_window_alibi"; expressions by a hash of their text.
  std::string name() const;
  // As compile_kernel takes them; empty if there is no feature.
  std::vector<std::string> defines() const;
  // invalid_argument for expressions with characters that no expression needs.
  Status check() const;
};

// Whether a call gives what its features read, and within which limits: invalid_argument names what
// is missing, unsupported the nearest that there is.
Status check_features(const AttentionFeatures& features, const AttentionFeatureParams& given,
                      int64_t batch);

}  // namespace tegula::cuda
