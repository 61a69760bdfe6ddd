// The kinds' files share this; each declares a family's forms.
#pragma once

#include "tegula/passes/superopt/program.h"

namespace tegula::superopt {

Status expect_operands(std::string_view kind, const KindCall& call, size_t n);
// The attribute as a dim of a tensor of that rank.
Result<size_t> dim_of(std::string_view kind, const KindCall& call, size_t rank);
// y's own indices, of that rank.
std::vector<Poly> own_indices(size_t rank);

Result<Form> dot_form(const KindCall& c);
Result<Form> conv_form(const KindCall& c);
Result<Form> concat_form(const KindCall& c);
Result<Form> slice_form(const KindCall& c);
Result<Form> pad_form(const KindCall& c);
Result<Form> update_form(const KindCall& c);
Result<Form> permute_form(const KindCall& c);
Result<Form> reshape_form(const KindCall& c);
Result<Form> broadcast_form(const KindCall& c);
Result<Form> reduce_sum_form(const KindCall& c);
Result<Form> reduce_max_form(const KindCall& c);
Result<Form> pool_sum_form(const KindCall& c);
Result<Form> pool_max_form(const KindCall& c);
Result<Form> add_form(const KindCall& c);
Result<Form> sub_form(const KindCall& c);
Result<Form> mul_form(const KindCall& c);
Result<Form> neg_form(const KindCall& c);
Result<Form> scale_form(const KindCall& c);
Result<Form> or_form(const KindCall& c);
Result<Form> not_form(const KindCall& c);
Result<Form> select_form(const KindCall& c);
Result<Form> max_form(const KindCall& c);
Result<Form> constant_form(const KindCall& c);
Result<Form> iota_form(const KindCall& c);

}  // namespace tegula::superopt
