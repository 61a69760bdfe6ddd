#include "tegula/kernels/cuda/variants.h"

#include <iterator>
#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/attention_bwd.h"
#include "tegula/kernels/cuda/attention_decode.h"
#include "tegula/kernels/cuda/attention_f32.h"
#include "tegula/kernels/cuda/attention_mma.h"
#include "tegula/kernels/cuda/attention_rungs.h"
#include "tegula/kernels/cuda/cross_entropy_params.h"
#include "tegula/kernels/cuda/matmul.h"
#include "tegula/kernels/cuda/matmul_rungs.h"
#include "tegula/kernels/cuda/mean_params.h"

namespace tegula::cuda {

namespace {

constexpr const char* kHopper = "sm_90a";
constexpr const char* kAmpere = "sm_80";
constexpr int kSmall = 86;  // a compute capability with less shared memory

class List {
 public:
  void add(KernelVariant v) {
    if (seen_.insert(cat(v.arch, " ", v.source, " ", v.defines)).second)
      all_.push_back(std::move(v));
  }
  std::vector<KernelVariant> take() { return std::move(all_); }

 private:
  std::set<std::string> seen_;
  std::vector<KernelVariant> all_;
};

void add_attention(List& list, const AttentionShape& shape) {
  const auto v = choose_attention(shape);
  if (v.ok())
    list.add({cat("attention_sm90 ", v->name()), "attention_sm90.cu", v->defines(), kHopper,
              v->threads(), v->smem_bytes()});
}

// A call of attention by the values of its options, in the order of kAttentionOptions.
constexpr int64_t kHeadDims[] = {64, 96, 128, 192, 256};
const std::vector<int> kAttentionOptions = {
    std::size(kHeadDims), 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3};
AttentionShape attention_shape(const std::vector<int>& row) {
  AttentionShape s{.seqlen_q = 4096, .seqlen_k = 4096};
  AttentionFeatures& f = s.features;
  size_t i = 0;
  s.head_dim = kHeadDims[row[i++]];
  s.head_dim -= row[i++];  // an odd one
  s.is_causal = row[i++], s.is_f16 = row[i++];
  f.has_window = row[i++], f.is_packed = row[i++], f.has_documents = row[i++];
  f.has_softcap = row[i++], f.has_alibi = row[i++], f.has_dropout = row[i++];
  f.has_sinks = row[i++], f.bias = static_cast<BiasType>(row[i++]);
  if (row[i] == 1) f.score_fn = "score*0.5f";
  if (row[i] == 2) f.mask_fn = "(i+j)%7!=3";
  return s;
}
bool is_attention_shape(const std::vector<int>& row) {
  return check_attention(attention_shape(row), 1).ok();
}

// Each feature alone beside the pairs: what users meet first.
void add_attention_features(List& list) {
  for (const auto& row : pairwise(kAttentionOptions, is_attention_shape))
    add_attention(list, attention_shape(row));
  for (size_t option = 1; option < kAttentionOptions.size(); ++option)
    for (int value = 1; value < kAttentionOptions[option]; ++value) {
      std::vector<int> row(kAttentionOptions.size(), 0);
      row[0] = 2, row[option] = value;
      add_attention(list, attention_shape(row));
    }
  for (const int64_t d : kHeadDims)
    for (const bool is_causal : {false, true})
      add_attention(list,
                    {.seqlen_q = 4096, .seqlen_k = 4096, .head_dim = d, .is_causal = is_causal});
}

// Masks, then scores, two at a time: windows of packs, a softcap of documents, ALiBi with dropout,
// sinks with a bias, an expression. (`of` is called with a number from 0 on.)
template <class F>
void each_two_features(F of) {
  for (int n = 0; n < 5; ++n) {
    std::vector<int> row(kAttentionOptions.size(), 0);
    const size_t first = 4 + 2 * static_cast<size_t>(n);
    row[first] = 1;
    if (first + 1 < row.size()) row[first + 1] = 1;
    of(attention_shape(row), n);
  }
}

// Variants of e4m3: narrow, wide and between, and each feature once.
void add_attention_f8(List& list) {
  const auto add = [&](AttentionShape s, int64_t head_dim, bool is_causal) {
    s.head_dim = head_dim, s.is_causal = is_causal, s.is_f8 = true;
    add_attention(list, s);
  };
  add({}, 64, false), add({}, 128, false), add({}, 128, true), add({}, 256, true);
  each_two_features([&](const AttentionShape& s, int n) { add(s, n % 2 ? 64 : 128, n % 3 > 0); });
}

// By mma.sync: narrow, wide and between; and each feature once, over all head_dims.
void add_attention_mma(List& list) {
  const auto add = [&](const AttentionShape& s, int capability = 80) {
    const auto v = choose_attention_mma(s, max_smem_bytes(capability));
    if (v.ok())
      list.add({cat("attention_", v->name()), "attention_mma.cu", v->defines(), kAmpere,
                v->threads(), v->smem_bytes()});
  };
  for (const int64_t d : {64, 128, 256}) add({.head_dim = d, .is_causal = d > 64});
  for (const int64_t d : {64, 128, 192, 256}) {  // prompts in pages
    AttentionShape s{.head_dim = d, .is_causal = true};
    s.features.is_packed = s.features.is_paged = true, s.features.has_window = d == 192;
    add(s);
  }
  each_two_features([&](AttentionShape s, int n) {
    s.head_dim = kHeadDims[n], s.is_f16 = n % 2;
    add(s, n < 3 ? 80 : kSmall);
  });
}

void add_bwd(List& list, const Result<AttentionBwdVariant>& v, const char* arch = kHopper) {
  if (v.ok())
    list.add({cat("attention_", v->name()), v->source(), v->defines(), arch,
              v->is_mma ? 64 * v->mma_pairs : 384, v->smem_bytes()});
}
void add_bwd(List& list, const AttentionShape& shape, bool is_ordered = false) {
  add_bwd(list, choose_attention_bwd(shape, is_ordered));
}

// Each head_dim, in either mode, and each feature once; by mma.sync as the forward.
void add_attention_bwd(List& list) {
  for (const int64_t d : kHeadDims)
    for (const bool is_causal : {false, true}) {
      add_bwd(list, {.head_dim = d, .is_causal = is_causal});
      if (is_causal || d == 128) add_bwd(list, {.head_dim = d, .is_causal = is_causal}, true);
    }
  for (size_t option = 1; option < kAttentionOptions.size(); ++option) {
    std::vector<int> row(kAttentionOptions.size(), 0);
    row[0] = static_cast<int>(option % std::size(kHeadDims)), row[option] = 1;
    add_bwd(list, attention_shape(row));
  }
  const auto add_mma = [&](const AttentionShape& s, int capability = 80, bool is_ordered = false) {
    add_bwd(list, choose_attention_bwd_mma(s, is_ordered, max_smem_bytes(capability)),
            capability == 90 ? kHopper : kAmpere);
  };
  add_mma({.head_dim = 64}), add_mma({.head_dim = 128, .is_causal = true});
  add_mma({.head_dim = 256}, 90, true);
  each_two_features([&](AttentionShape s, int n) {
    s.head_dim = kHeadDims[n], s.is_f16 = n % 2;
    add_mma(s, n % 2 == 0 ? kSmall : 80);
  });
}

// f32: either head_dim and mask, and each feature once, forward and backward, half in order.
void add_attention_f32(List& list) {
  const auto add = [&](AttentionShape s, int64_t head_dim, bool is_causal,
                       bool is_ordered = false) {
    s.head_dim = head_dim, s.is_causal = is_causal, s.is_f32 = true;
    add_bwd(list, s, is_ordered);
    if (const auto v = choose_attention_f32(s); v.ok())
      list.add({cat("attention_", v->name()), "attention_f32_sm90.cu", v->defines(), kHopper,
                v->threads(), v->smem_bytes()});
  };
  add({}, 64, true), add({}, 128, false), add({}, 256, true);
  each_two_features(
      [&](const AttentionShape& s, int n) { add(s, n % 2 ? 64 : 128, n % 3 > 0, n / 2 % 2 > 0); });
}

void add_decode(List& list, const DecodeShape& shape, const char* arch) {
  const auto v = choose_decode(shape);
  if (v.ok())
    list.add({cat("attention_", v->name()), "attention_decode.cu", v->defines(), arch,
              32 * v->n_warps, v->smem_bytes()});
}

void add_matmul(List& list, const MatmulShape& shape, bool is_exp = false) {
  MatmulVariant v = choose_matmul(shape);
  v.is_exp = is_exp;
  list.add(
      {cat("matmul_sm90 ", v.name()), "matmul_sm90.cu", v.defines(), kHopper, 384, v.smem_bytes()});
}

void add_common(List& list) {
  for (const int64_t d : {64, 128})
    for (const bool is_causal : {false, true}) {
      for (const int64_t n : {1024, 16384})
        add_attention(list, {.seqlen_q = n, .seqlen_k = n, .head_dim = d, .is_causal = is_causal});
      add_bwd(list, {.head_dim = d, .is_causal = is_causal});
      if (is_causal) add_bwd(list, {.head_dim = d, .is_causal = true}, true);  // short ones
    }
  for (const bool a_mn_major : {false, true})
    for (const bool b_mn_major : {false, true})
      for (const auto& [m, n] : {std::pair{300, 300}, {8192, 8192}, {8192, 2304}})
        add_matmul(list, {m, n, 768, a_mn_major, b_mn_major});
  // Gradients of weights, for which both factors lie across k.
  for (const auto& [n, k] : {std::pair{300, 8192}, {2304, 32768}, {2304, 65536}})
    add_matmul(list, {768, n, k, true, true, true});
  // The product of a loss's head.
  add_matmul(list, {16384, 50257, 768, false, false}, true);
  add_matmul(list, {50257, 768, 16384, true, true, true});
}

DecodeShape decode_shape(int64_t head_dim, int64_t group, int64_t page_size, bool is_f16 = false,
                         int heads = 1) {
  return {.n_heads_q = group * heads,
          .n_heads_kv = heads,
          .head_dim = head_dim,
          .page_size = page_size,
          .is_f16 = is_f16,
          .heads = heads};
}
void add_common_decode(List& list) {
  for (const int64_t d : {64, 128})
    for (const int64_t group : {4, 16})
      for (const int64_t page_size : {0, 16})
        add_decode(list, decode_shape(d, group, page_size), kHopper);
}
void add_decode_variants(List& list) {
  add_common_decode(list);
  add_decode(list, decode_shape(256, 4, 16, true, 4), kHopper);
  for (const DecodeShape& s : {decode_shape(64, 4, 0, true, 2), decode_shape(128, 16, 0),
                               decode_shape(128, 4, 16), decode_shape(256, 4, 0)})
    add_decode(list, s, kAmpere);
}

// Variants of ops that are not most of any model: a variant or two each.
void add_plain(List& list, const char* arch) {
  const std::string f32 = "TEGULA_T=float", ftz = "--ftz=true";
  for (const bool is_recurrence : {false, true})
    for (const int lines : {32, 1})
      list.add({cat(is_recurrence ? "linear_recurrence" : "cummax", " of ", lines),
                "scans.cu",
                {f32, "TEGULA_SUM=float", cat("TEGULA_LINES=", lines),
                 cat("TEGULA_SCAN=", int{is_recurrence}), ftz},
                arch});
  list.add({"sort f64", "sort.cu", {"TEGULA_T=double", ftz}, arch});
  list.add({"max_pool", "max_pool.cu", {f32, ftz}, arch});
  list.add({"cross_entropy",
            "cross_entropy.cu",
            {"TEGULA_GRADS=1", "TEGULA_GIVEN=0", "TEGULA_ID64=0", "TEGULA_F16=0"},
            arch,
            kCrossEntropyThreads,
            13 * kCrossEntropyStepBytes});  // of 50,257 logits
  for (const int bits : {8, 4})
    list.add({cat("dot_i8 of ", bits),
              "dot_i8.cu",
              {cat("TEGULA_ROWS=", bits == 8 ? 64 : 16), cat("TEGULA_BITS=", bits), ftz},
              arch});
}

void add_rungs(List& list, const char* arch) {
  list.add({"attention_pad", "attention_pad.cu", {}, arch, 256});
  for (const int d : {0, arch == kHopper ? 128 : 64})
    list.add({d == 0 ? std::string("attention_naive") : cat("attention_tiled d", d),
              std::string(AttentionRung::source(d == 0)), AttentionRung::defines(d), arch,
              d == 0 ? 256 : 128});
  for (const MatmulRung& r : matmul_rungs())
    list.add({cat("matmul_", r.name), std::string(r.source), r.defines, arch});
  for (const bool b_mn_major : {false, true})
    for (const bool is_f16 : {false, true})
      list.add({cat("matmul_mma ", b_mn_major ? "bn" : "bk", is_f16 ? " f16" : ""), "matmul_mma.cu",
                MatmulMmaKernel::defines(b_mn_major, is_f16), arch, 256,
                MatmulMmaKernel::smem_bytes(arch == kAmpere ? 80 : 90)});
  list.add({"divergence", "divergence.cu", {}, arch});
  list.add({"mean", "mean.cu", {}, arch, kMeanThreads});
}

// Pairs of values that no row has yet.
class Pairs {
 public:
  explicit Pairs(const std::vector<int>& n_values) {
    for (const int n : n_values) first_.push_back(n_all_), n_all_ += static_cast<size_t>(n);
    is_missing_.assign(n_all_ * n_all_, true);
  }
  int gain(const std::vector<int>& row) const {
    int count = 0;
    each(row, [&](size_t pair) { count += is_missing_[pair]; });
    return count;
  }
  void cover(const std::vector<int>& row) {
    each(row, [&](size_t pair) { is_missing_[pair] = false; });
  }

 private:
  template <class F>
  void each(const std::vector<int>& row, F f) const {
    for (size_t i = 0; i < row.size(); ++i)
      for (size_t j = i + 1; j < row.size(); ++j)
        f((first_[i] + static_cast<size_t>(row[i])) * n_all_ + first_[j] +
          static_cast<size_t>(row[j]));
  }
  std::vector<size_t> first_;  // number of an option's first value among all options' values
  size_t n_all_ = 0;
  std::vector<char> is_missing_;
};

}  // namespace

int smem_limit_bytes(std::string_view arch) { return max_smem_bytes(arch == kAmpere ? 80 : 90); }

std::vector<std::vector<int>> pairwise(const std::vector<int>& n_values,
                                       bool (*is_allowed)(const std::vector<int>&)) {
  std::vector<std::vector<int>> all = {{}};
  for (const int n : n_values) {
    std::vector<std::vector<int>> longer;
    for (const auto& row : all)
      for (int v = 0; v < n; ++v) longer.push_back(row), longer.back().push_back(v);
    all = std::move(longer);
  }
  if (is_allowed != nullptr)
    all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& r) { return !is_allowed(r); }),
              all.end());
  Pairs pairs(n_values);
  std::vector<std::vector<int>> rows;
  while (true) {
    const std::vector<int>* best = nullptr;
    int most = 0;
    for (const auto& row : all)
      if (const int gain = pairs.gain(row); gain > most) most = gain, best = &row;
    if (best == nullptr) return rows;
    pairs.cover(*best);
    rows.push_back(*best);
  }
}

std::vector<KernelVariant> covering_variants() {
  List list;
  add_common(list);
  add_attention_features(list);
  add_attention_f8(list);
  add_attention_bwd(list);
  add_attention_f32(list);
  add_attention_mma(list);
  add_decode_variants(list);
  for (const bool f32_out : {false, true})
    add_matmul(list, {.m = 8192,
                      .n = 8192,
                      .k = 8192,
                      .a_mn_major = f32_out,
                      .f32_out = f32_out,
                      .is_f16 = true});
  for (const char* arch : {kHopper, kAmpere}) add_rungs(list, arch), add_plain(list, arch);
  return list.take();
}

// Ops that stand between products and attention where a model of 16 bits is trained or decodes.
void add_plain(List& list) {
  const auto add = [&](const char* source, std::vector<std::string> defines) {
    list.add({source, source, std::move(defines), kHopper});
  };
  for (const char* id64 : {"TEGULA_ID64=0", "TEGULA_ID64=1"})
    add("cross_entropy.cu",
        {"TEGULA_GRADS=1", "TEGULA_GIVEN=0", id64, "TEGULA_F16=0", "TEGULA_SCALED=1"});
  for (const char* id64 : {"TEGULA_ID64=0", "TEGULA_ID64=1"}) {
    for (const char* bytes : {"TEGULA_BYTES=2", "TEGULA_BYTES=4", "TEGULA_BYTES=16"})
      add("indexed.cu", {bytes, id64, "TEGULA_FLAT=1"});
    add("indexed.cu", {"TEGULA_MODE=1", id64, "TEGULA_WIDE=4", "TEGULA_FLAT=1", "TEGULA_T=float"});
  }
  add("indexed.cu", {"TEGULA_MODE=0", "TEGULA_ID64=0", "TEGULA_FLAT=1", "TEGULA_T=unsigned short"});
  add("sort.cu", {"TEGULA_T=int", "--ftz=true"});
  add("move.cu", {"TEGULA_BYTES=4"});
  for (const char* wide : {"TEGULA_WIDE=1", "TEGULA_WIDE=4"})
    add("reduce.cu", {"TEGULA_OP=0", wide, "TEGULA_T=float"});
  for (const char* out : {"TEGULA_OUT16=0", "TEGULA_OUT16=1"})
    for (const char* columns : {"TEGULA_COLUMNS=8", "TEGULA_COLUMNS=16"})
      add("matvec.cu", {"TEGULA_M=1", "TEGULA_SHARDS=1", "TEGULA_B_MN_MAJOR=0", columns,
                        "TEGULA_IN16=1", out, "TEGULA_F16=0", "--ftz=true"});
}

std::vector<KernelVariant> ahead_variants() {
  List list;
  add_common(list);
  add_common_decode(list);
  add_plain(list);
  return list.take();
}

}  // namespace tegula::cuda
