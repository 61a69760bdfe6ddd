#include "tegula/base/dot_dims.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

std::string error_of(std::string_view text) {
  const auto dims = DotDims::parse(text);
  return dims.ok() ? "" : dims.error().message;
}

TEST(DotDims, ReadsWhatItWrites) {
  for (const char* text : {"b m k, b k n -> b m n", "k, k -> ", "m, n -> m n",
                           "b s head dim, b t head dim -> b head s t", ",  -> "})
    EXPECT_EQ(DotDims::parse(text)->text(), text);
  EXPECT_EQ(DotDims::parse("  m   k,k n->m n ")->text(), "m k, k n -> m n");
}

TEST(DotDims, SidesAreSets) {
  const DotDims d = *DotDims::parse("b m k j, j b k n -> n b m");
  EXPECT_EQ(d.a.size(), 4);
  EXPECT_EQ(d.b[3], "n");
  EXPECT_TRUE(d.out.has("n"));
  EXPECT_FALSE(d.out.has("k"));
  EXPECT_FALSE(d.out.has(""));
  EXPECT_EQ(d.a.not_in(d.out).text(), "k j");
  EXPECT_EQ(d.b.not_in(d.out).text(), "j k");
  EXPECT_EQ(d.out.in(d.b).not_in(d.a).text(), "n");
  EXPECT_TRUE(d.a.in(d.a) == d.a);
  EXPECT_FALSE(d.a.not_in(d.out) == d.b.not_in(d.out));
}

TEST(DotDims, RefusesOtherForms) {
  for (const char* text :
       {"", "m k, k n", "m k -> m", "m k -> k n, m n", "a, b, c -> a b c", "m k, k n -> m n, m"})
    EXPECT_NE(error_of(text).find("must be \"a, b -> c\""), std::string::npos) << text;
  EXPECT_EQ(error_of("a b c d e f g h, i -> i"), "");
  EXPECT_NE(error_of("a b c d e f g h i, i -> i").find("name more than 8 dims"), std::string::npos);
}

}  // namespace
}  // namespace tegula
