// w = scale q + min, of blocks of a few bits a value.
#include "tegula/ops/common/blocks.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
// Leading dims, then a row: blocks b of bytes j, and of values i.
Result<DimMap> dims(const OpCall& c) {
  const BlockRows rows = TEGULA_TRY(BlockRows::of(c, 0));
  const Shape& w = c.shape(0);
  MapMaker m(1);
  for (int d = 0; d + 1 < w.rank(); ++d) {
    const uint8_t f = m.factor(cat("d", d), w[d]);
    m.operand(0, f), m.result(0, w[d], f);
  }
  const uint8_t b = m.factor("b", rows.blocks), j = m.factor("j", rows.layout->n_bytes, true),
                i = m.factor("i", rows.layout->n_values, true);
  m.operand(0, {0, {{b, rows.layout->n_bytes}, {j, 1}}});
  m.result(0, rows.k(), {0, {{b, rows.layout->n_values}, {i, 1}}});
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const BlockRows rows = *BlockRows::of(a.call, 0);
    const bool has_min = rows.layout->has_min;
    std::vector<int64_t> lead(a.in[0].shape, a.in[0].shape + a.in[0].rank);
    lead.back() = rows.blocks;
    for_each_index(lead, [&](const Index& at) {
      const auto last = static_cast<size_t>(a.in[0].rank - 1);
      const BlockValues v = load_block(a, 0, rows, at, at[last]);
      for (int i = 0; i < rows.layout->n_values; ++i) {
        const int g = i / rows.layout->n_group;
        S w = S(static_cast<double>(v.scale[g])) * S(static_cast<double>(v.q[i]));
        if (has_min) w = w + S(static_cast<double>(v.min[g]));
        Index to = at;
        to[last] = at[last] * rows.layout->n_values + i;
        a.store_at(0, w, to);
      }
    });
  }
};
}  // namespace

Var dequantise_blocks(Var w, BlockFormat format, Loc loc) {
  return w.builder().emit(dequantise_blocks_op, {{"format", std::string(layout_of(format).name)}},
                          {w}, loc);
}

constinit const OpDef dequantise_blocks_op = {
    .name = "dequantise_blocks",
    .formula = "w = scale q + min, blocks of a format",
    .source = "the GGUF project's tensor types",
    .group = "quantisation",
    .dims_fn = dims,
    .types = "u8 -> f32",
    .attrs = {kFormatAttr},
    .flops =
        [](const OpCall& c) {
          const bool has_min = layout_of(*format_of(c)).has_min;
          return c.out[0].shape.numel() * (has_min ? 2 : 1);
        },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          std::vector<Sample> all;
          for (int f = 0; f < kBlockFormats; ++f) {
            const auto format = static_cast<BlockFormat>(f);
            const std::string name(layout_of(format).name);
            all.push_back({name, {sample_blocks(format, {3}, 2)}, {{"format", name}}});
          }
          const Attrs q4{{"format", "Q4_0"}};
          all.push_back({"leading dims", {sample_blocks(BlockFormat::kQ4_0, {2, 3}, 1)}, q4});
          all.push_back({"misfit", {{{DType::kU8, {2, 40}}, 0, 255}}, q4, "no whole number"});
          all.push_back(
              {"unknown", {{{DType::kU8, {2, 36}}, 0, 255}}, {{"format", "Q9"}}, "format 'Q9'"});
          return all;
        },
};

}  // namespace tegula
