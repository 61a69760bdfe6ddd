// Decoding whose scores are chains over d, as those of attention_flash, and have its bits. [order
// "kb64" of common/attention.h]
#include "tegula/kernels/cpu/isa/attention_decode.h"

#include "tegula/kernels/cpu/isa/pack_pairs.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// Queries lie [d][group]; keys are transposed in registers.
template <class T>
class ChainScores {
 public:
  struct Work {};
  static constexpr int64_t kAheadBytes = 32 << 10;

  explicit ChainScores(const AttentionCall& c) : d_(c.d), group_(static_cast<int>(c.group)) {
    if constexpr (kHasPairs && std::is_same_v<T, bf16>)
      are_pairs_ = machine_sums_pairs() && c.q->dtype == DType::kBF16 && d_ % (2 * kSquare) == 0 &&
                   c.k->stride[1] % 2 == 0 && c.q->stride[2] % 2 == 0 && c.q->stride[3] == 1;
  }
  int64_t q_floats(int64_t heads) const { return heads * q_floats(); }
  int64_t columns() const { return group_; }

  // Packs the queries of key heads, whose first query head is `head`.
  void pack(const AttentionCall& c, int64_t batch, int64_t head, int64_t heads, float* q) const {
    const Loops of_group = loop_over(group_, c.q->stride[2]), of_d = loop_over(d_, c.q->stride[3]);
    for (int64_t h = 0; h < heads; ++h, head += group_, q += q_floats())
      with_queries<T>(c, offset4(*c.q, batch, 0, head), [&](const auto* of_head) {
        by_rows(group_, [&](auto n, int i) {
          if constexpr (kHasPairs && std::is_same_v<decltype(of_head), const bf16*>)
            if (are_pairs_)
              return pack_pairs(of_head, of_group, 1, kA, i, n(), 0, d_ / 2, q + i * d_, n());
          pack_panel(of_head, of_group, of_d, kA, i, n(), 0, d_, q + i * d_, n());
        });
      });
  }

  // Attends to keys [lo, hi) of all heads, the first of which has `keys`; 16 keys at a time.
  void of_keys(Work&, const ThinRows<T>& keys, const Ahead& ahead, const float* q, int64_t heads,
               int64_t lo, int64_t hi, float* s) const {
    for (int64_t j = lo; j < hi; j += 16)
      for (int64_t h = 0; h < heads; h += kHeadsAtOnce)
        of_sixteen({keys.at + h * d_, keys.stride, keys.n}, ahead, q + h * q_floats(), j,
                   s + h * group_ * kKeyBlock, heads - h >= kHeadsAtOnce);
  }

 private:
  // A square of 16 keys and the sums of two heads are too many for AVX-512's registers.
  static constexpr int kHeadsAtOnce = kLanes == 16 ? 1 : 2;
  int64_t q_floats() const { return d_ * group_ + kPanelSlack; }

  // Attends to 16 keys from j on of kHeadsAtOnce heads, or of the last one.
  void of_sixteen(const ThinRows<T>& keys, const Ahead& ahead, const float* q, int64_t j, float* s,
                  bool is_whole) const {
    const Ahead nothing(keys.at, 0, 0);
    const NextHead next{q_floats(), group_ * kKeyBlock};
    by_rows(group_, [&](auto n, int i) {
      const auto scores = [&](auto at_once) {
        const Ahead& fetch = i == 0 ? ahead : nothing;
        if constexpr (kHasPairs && std::is_same_v<T, bf16>)
          if (are_pairs_)
            return thin_scores<T, n(), at_once(), true>(keys, fetch, d_, q + i * d_, j, j + 16,
                                                        s + i * kKeyBlock, kKeyBlock, next);
        thin_scores<T, n(), at_once()>(keys, fetch, d_, q + i * d_, j, j + 16, s + i * kKeyBlock,
                                       kKeyBlock, next);
      };
      is_whole ? scores(std::integral_constant<int, kHeadsAtOnce>())
               : scores(std::integral_constant<int, 1>());
    });
  }

  const int64_t d_;
  const int group_;
  bool are_pairs_ = false;
};

template <class T>
void run(const KernelCall& call, const AttentionCall& c) {
  Decode<T, ChainScores<T>>(call, c).run();
}
}  // namespace

void attention_decode(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false, kDecodes);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  switch (c->k->dtype) {
    case DType::kF32:
      return run<float>(call, *c);
    case DType::kBF16:
      return run<bf16>(call, *c);
    case DType::kF16:
      return run<f16>(call, *c);
    default:
      return;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
