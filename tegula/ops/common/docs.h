// The table of ops as a page: docs/ops.md is this text.
#pragma once

#include <string>

namespace tegula {

std::string ops_markdown();

}  // namespace tegula
