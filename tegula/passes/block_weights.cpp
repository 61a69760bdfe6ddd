// Weights in blocks are computed on as they lie: dot(x, dequantise_blocks(w)) becomes a dot_blocks,
// and embedding(dequantise_blocks(table), ids) dequantises the rows that it takes.
//
// With `quantises_rows` x becomes bytes with a scale for 32 values, and sums of integers: another
// number of bits in x, chosen by who asks for it. Else bits stay.
#include "tegula/ops/blocks.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {
// Is it "… k, n k -> … n", or, of experts, "e … k, e n k -> e … n"?
bool is_layer(const DotDims& d) {
  const int experts = d.b.size() == 3 ? 1 : 0;
  if (d.b.size() != 2 + experts || d.a.size() < 1 + experts || d.out.size() != d.a.size())
    return false;
  for (int i = 0; i + 1 < d.a.size(); ++i)
    if (d.a[i] != d.out[i]) return false;
  return (experts == 0 || d.a[0] == d.b[0]) && d.a.back() == d.b[1 + experts] &&
         d.out.back() == d.b[experts];
}

BlockFormat format_of(const Node& made) {
  BlockFormat format{};
  TEGULA_CHECK(find_block_format(made.attrs.str("format"), format), "a format that infer() passed");
  return format;
}

template <bool kQuantisesRows>
Var dot_rule(Peephole& p, const Node& n) {
  if (!is_plain_dot(n) || !is_layer(dims_of(n))) return {};
  const Node* made = p.made_by(p.in(n, 1), dequantise_blocks_op);
  const Var x = p.in(n, 0);
  if (!made || x.dtype() != DType::kF32 || p.result_type(n).dtype != DType::kF32) return {};
  const BlockFormat format = format_of(*made);
  const Var w = p.operand(*made, 0);
  if constexpr (kQuantisesRows) return dot_blocks(quantise_blocks(x, n.origin.loc), w, format);
  Attrs attrs{{"format", std::string(layout_of(format).name)}};
  if (n.attrs.has("k_shards")) attrs.set("k_shards", n.attrs.i("k_shards"));
  return p.builder().emit(dot_blocks_op, std::move(attrs), {x, w}, n.origin.loc);
}

Var embedding_rule(Peephole& p, const Node& n) {
  const Node* made = p.made_by(p.in(n, 0), dequantise_blocks_op);
  if (!made) return {};
  const BlockFormat format = format_of(*made);
  const Var table = p.operand(*made, 0), ids = p.in(n, 1);
  return dequantise_blocks(p.builder().emit(embedding_op, {}, {table, ids}, n.origin.loc), format);
}

Result<bool> run(Module& m, Function& f, const PassOptions& options) {
  static constexpr Peephole::Rule kF32[] = {{&dot_op, dot_rule<false>},
                                            {&embedding_op, embedding_rule}};
  static constexpr Peephole::Rule kI8[] = {{&dot_op, dot_rule<true>},
                                           {&embedding_op, embedding_rule}};
  return options.quantises_rows ? Peephole::rewrite(m, f, kI8) : Peephole::rewrite(m, f, kF32);
}

}  // namespace

extern const PassDef block_weights_pass = {
    .name = "block_weights",
    .doc = "products with weights in blocks read them as they lie",
    .sums = "where rows are to be quantised, sums of integers with a scale a block",
    .phase = PassPhase::kCanonicalise,
    .needs = kHasComposites,
    .run = run,
};

}  // namespace tegula
