// The CPU's numeric orders, of ops that have several. Definitions stand with the kernels' calls.
#include "tegula/kernels/cpu/common/attention_amx.h"
#include "tegula/kernels/cpu/common/attention_decode.h"
#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/order.h"

namespace tegula {

namespace {
using kernel::kTakesPages;
using kernel::kTakesParts;
using kernel::parse_attention;

bool are_all(std::span<const TensorRef> tensors, DType t) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorRef& x) { return x.dtype == t; });
}

bool dot_of_bf16(const KernelQuery& q) {
  if (q.in.size() < 2 || q.out.size() != 1 || !are_all(q.in.first(2), DType::kBF16)) return false;
  const DType out = q.out[0].dtype;
  const bool accumulates = q.attrs->flag("accumulate");
  return (out == DType::kBF16 || out == DType::kF32) &&
         (q.in.size() == 2 || q.in[2].dtype == (accumulates ? DType::kF32 : out));
}

bool attends(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesParts);
  return c.ok() && kernel::amx_attends(*c) && q.out[0].dtype == c->result_type() &&
         q.out[1].dtype == DType::kF32;
}

// One query a sequence, which no rank and no micro-batch makes fewer. Its keys are read where they
// lie, and threads share them out.
bool decodes(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, false, kTakesPages);
  return c.ok() && kernel::has_one_query(*c) && c->d % 32 == 0 && attends(q);
}

bool attends_backward(const KernelQuery& q) {
  const auto c = parse_attention(*q.attrs, q.in, true, kTakesParts);
  return c.ok() && kernel::amx_attends(*c) && q.out.size() == 3 && are_all(q.out, c->result_type());
}

bool has_quantised_rows(const KernelQuery& q) { return q.in.size() == 3; }

bool has_bf16_tokens(const KernelQuery& q) { return q.in[0].dtype == DType::kBF16; }

bool is_by_blocks(const KernelQuery& q) { return q.attrs->flag("by_blocks"); }

// Whose parts are added as they pass by.
bool goes_by_rounds(const KernelQuery& q) { return q.attrs->find("algorithm") != nullptr; }

constexpr OrderDef kOrders[] = {
    {"all_reduce", "on_the_way", "sums grow from rank to rank, by the algorithm", Isa::kPortable,
     goes_by_rounds},
    {"all_reduce", "tree", "a tree over neighbours"},
    {"attention", "amx_kb64", "kb64, scores in pairs of k", Isa::kAmx, decodes},
    {"attention", "amx_kb512", "chunks of 512 keys, sums in pairs of k", Isa::kAmx, attends},
    {"attention", "kb64", "blocks of 64 keys, chains of fma"},
    {"attention_bwd", "amx_pairs", "weights again, sums in pairs of k", Isa::kAmx,
     attends_backward},
    {"attention_bwd", "fma_chain", "weights again, chains of fma"},
    {"dot", "amx_pairs", "32 of k at a time, even and odd ones a chain each", Isa::kAmx,
     dot_of_bf16},
    {"dot", "fma_chain", "one ascending chain of fma per output, or per shard of k"},
    {"dot_blocks", "i32_groups", "groups of whole numbers exactly, one chain of fma over them",
     Isa::kPortable, has_quantised_rows},
    {"dot_blocks", "fma_chain", "as dot's"},
    {"logsumexp", "kb64", "blocks of 64 columns", Isa::kPortable, is_by_blocks},
    {"logsumexp", "lane16", "16 partials"},
    {"reduce_scatter", "on_the_way", "sums grow from rank to rank, by the algorithm",
     Isa::kPortable, goes_by_rounds},
    {"reduce_scatter", "tree", "a tree over neighbours"},
    {"reduce_to", "on_the_way", "sums grow from rank to rank, by the algorithm", Isa::kPortable,
     goes_by_rounds},
    {"reduce_to", "tree", "a tree over neighbours"},
    {"linear_cross_entropy", "amx_kb64", "kb64, logits in pairs of k", Isa::kAmx, has_bf16_tokens},
    {"linear_cross_entropy", "kb64", "blocks of 64 columns, logits chains of fma"},
    {"linear_cross_entropy_bwd", "amx_kb64", "kb64, sums in pairs of k", Isa::kAmx,
     has_bf16_tokens},
    {"linear_cross_entropy_bwd", "kb64", "blocks of 64 columns, sums chains of fma"},
    {"linear_cross_entropy_grads", "amx_kb64", "kb64, sums in pairs of k", Isa::kAmx,
     has_bf16_tokens},
    {"linear_cross_entropy_grads", "kb64", "blocks of 64 columns, sums chains of fma"},
};
}  // namespace

std::span<const OrderDef> cpu_orders() { return kOrders; }

}  // namespace tegula
