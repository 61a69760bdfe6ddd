// Sums, products and multiples of elements, which the prover knows; max, and constants. Every other
// elementwise op is an opaque function.
#include "tegula/passes/superopt/kinds.h"

namespace tegula::superopt {

namespace {
// Each operand at its own place; pieces are made of these reads.
Result<std::vector<Form::Read>> reads_of(std::string_view kind, const KindCall& c, size_t n) {
  TEGULA_TRY(expect_operands(kind, c, n));
  std::vector<Form::Read> reads;
  for (size_t k = 0; k < n; ++k) {
    if (c.shape(k) != c.shape(0))
      return invalid_argument(cat(kind, ": its operands differ in shape; broadcast them"));
    reads.push_back({static_cast<int>(k), own_indices(c.shape(0).size())});
  }
  return reads;
}

Result<Form> weighted(std::string_view kind, const KindCall& c, std::span<const Poly> weights) {
  const auto reads = TEGULA_TRY(reads_of(kind, c, weights.size()));
  Form form{c.shape(0), {}, "", false};
  for (size_t k = 0; k < weights.size(); ++k)
    form.pieces.push_back({weights[k], {}, {}, {reads[k]}});
  return form;
}
}  // namespace

Result<Form> add_form(const KindCall& c) {
  const Poly weights[] = {1, 1};
  return weighted("add", c, weights);
}
Result<Form> sub_form(const KindCall& c) {
  const Poly weights[] = {1, -1};
  return weighted("sub", c, weights);
}
Result<Form> neg_form(const KindCall& c) {
  const Poly weights[] = {-1};
  return weighted("neg", c, weights);
}
// y = by·x, for a scalar or an integer.
Result<Form> scale_form(const KindCall& c) {
  const Poly weights[] = {c.attrs.poly("by", 1)};
  return weighted("scale", c, weights);
}

Result<Form> mul_form(const KindCall& c) {
  auto reads = TEGULA_TRY(reads_of("mul", c, 2));
  Form form{c.shape(0), {}, "", false};
  form.pieces.push_back({1, {}, {}, std::move(reads)});
  return form;
}

// Booleans are 0 and 1: a·b, a + b − a·b, 1 − a, and p·a + b − p·b.
Result<Form> or_form(const KindCall& c) {
  const auto reads = TEGULA_TRY(reads_of("logical_or", c, 2));
  Form form{c.shape(0), {}, "", false};
  form.pieces = {{1, {}, {}, {reads[0]}}, {1, {}, {}, {reads[1]}}, {-1, {}, {}, reads}};
  return form;
}
Result<Form> not_form(const KindCall& c) {
  const auto reads = TEGULA_TRY(reads_of("logical_not", c, 1));
  Form form{c.shape(0), {}, "", true};
  form.pieces = {{1, {}, {}, {}}, {-1, {}, {}, {reads[0]}}};
  return form;
}
Result<Form> select_form(const KindCall& c) {
  const auto reads = TEGULA_TRY(reads_of("select", c, 3));
  Form form{c.shape(0), {}, "", false};
  form.pieces = {{1, {}, {}, {reads[0], reads[1]}},
                 {1, {}, {}, {reads[2]}},
                 {-1, {}, {}, {reads[0], reads[2]}}};
  return form;
}

Result<Form> max_form(const KindCall& c) {
  const auto reads = TEGULA_TRY(reads_of("max", c, 2));
  Form form{c.shape(0), {}, "max", true};
  for (const Form::Read& read : reads) form.pieces.push_back({1, {}, {}, {read}});
  return form;
}

Result<Form> constant_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("constant", c, 0));
  Form form{c.attrs.list("shape"), {}, "", true};
  form.pieces.push_back({c.attrs.poly("value", 0), {}, {}, {}});
  return form;
}

// y = its own index along dim.
Result<Form> iota_form(const KindCall& c) {
  TEGULA_TRY(expect_operands("iota", c, 0));
  Form form{c.attrs.list("shape"), {}, "", true};
  const size_t dim = TEGULA_TRY(dim_of("iota", c, form.shape.size()));
  form.pieces.push_back({Poly(out_index(dim)), {}, {}, {}});
  return form;
}

}  // namespace tegula::superopt
