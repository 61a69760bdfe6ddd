// Text of a module and back.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tegula/ir/hash.h"
#include "tegula/ir/text.h"
#include "tegula/ir/verify.h"

namespace tegula::test {

// Does it parse? If so it prints, parses again as the same and is verified, whatever comes of that;
// if not the error says where.
inline bool goes_round(const std::string& text) {
  const auto m = module_from_text(text);
  if (!m.ok()) {
    static const std::regex with_place(R"(\d+:\d+: [^]*)");
    EXPECT_TRUE(std::regex_match(m.error().message, with_place)) << m.error().message;
    return false;
  }
  (void)verify(*m).ok();
  const auto again = module_from_text(to_text(*m));
  EXPECT_TRUE(again.ok()) << again.error().message << "\n" << text;
  if (!again.ok()) return true;
  EXPECT_EQ(to_text(*again), to_text(*m));
  for (FuncId f = 0; f < m->functions.size(); ++f)
    EXPECT_EQ(hash_of(*m, (*m)[f]), hash_of(*again, (*again)[f]));
  return true;
}

}  // namespace tegula::test
