// rows_in_use: of which values only some rows can be other than zero, as buckets that are not full.
//
// Per value the share of its rows (along the last dim) that were filled where they were scattered:
// n of m rows at most. Views, casts and what gives zero for zero keep it, and so does a product
// that sums each row alone. 1: any may be filled. It is what a choice is priced by and no more;
// what rows are really empty is looked up where it matters.
#pragma once

#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

std::vector<double> rows_in_use(const Function& f);

}  // namespace tegula
