#include "tegula/kernels/cuda/plugin/attention_count.h"

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

struct Seen {
  int64_t pairs = 0, rows = 0;  // of one head
};

Seen seen_by_queries(const kernel::AttentionCall& c) {
  Seen s;
  if (c.page > 0 && c.cu_q != nullptr) {
    const int64_t right = c.is_causal ? 0 : c.right;
    const int64_t window = c.left < 0 || right < 0 ? c.n_k : c.left + right + 1;
    return {c.n_q * std::min(c.n_k, window), c.n_q};
  }
  kernel::AttentionCall whole = c;
  whole.cu_q = whole.cu_k = nullptr;
  for (int64_t i = 0; i < c.n_q; ++i) {
    const int64_t n = kernel::visible_keys(whole, i).count();
    s.pairs += n, s.rows += n > 0 ? 1 : 0;
  }
  return s;
}

}  // namespace

int64_t attention_flops(const kernel::AttentionCall& c, bool is_backward) {
  const Seen seen = seen_by_queries(c);
  const int64_t has_dropout = c.dropout > 0 ? 1 : 0, has_descale = c.descale[0] != nullptr ? 1 : 0;
  int64_t of_pair = c.score_flops() + 2 * c.d, of_row = 0, of_head = 0;
  if (is_backward) {
    of_pair += 5 + 4 * c.d + 4 * c.dv + 2 * has_dropout + (c.bias != nullptr ? 1 : 0) +
               (c.softcap > 0 ? 3 : 0);
    of_row = 2 * c.dv + (c.dlse != nullptr ? 1 : 0);
  } else {
    of_pair += 4 + 2 * c.dv + has_dropout;
    of_row = kernel::flops_of_row(c) + has_descale, of_head = 2 * has_descale;
  }
  return c.batch * c.n_heads * (seen.pairs * of_pair + seen.rows * of_row + of_head);
}

Status count_attention(const DeviceCall& call, bool is_backward) {
  const auto c = TEGULA_TRY(kernel::parse_attention(*call.attrs, call.in, is_backward,
                                                    {.e4m3 = true, .pages = !is_backward}));
  const int64_t flops = attention_flops(c, is_backward);
  call.counters->add(flops, flops);
  return {};
}

}  // namespace tegula::cuda
