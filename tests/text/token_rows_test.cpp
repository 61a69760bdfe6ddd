#include "tegula/text/token_rows.h"

#include <gtest/gtest.h>

#include "tegula/io/file.h"

namespace tegula {
namespace {

TEST(TokenRows, AreListsOfIdsOrOne) {
  const std::string path = ::testing::TempDir() + "rows.json";
  ASSERT_TRUE(write_file(path, "[[1, 2], [3, 4]]").ok());
  EXPECT_EQ(*read_token_rows(path), (TokenRows{{1, 2}, {3, 4}}));
  EXPECT_EQ(*parse_token_rows("[1, 2]", "t"), (TokenRows{{1, 2}}));
  EXPECT_EQ(*parse_token_rows("[]", "t"), TokenRows{});
  EXPECT_EQ(*parse_token_rows("[[]]", "t"), TokenRows{{}});
  for (const char* wrong : {"{}", "[[1, -2]]", "[[1.5]]", "[[\"a\"]]", "[1, [2]]", "[[1], 2]"})
    EXPECT_FALSE(parse_token_rows(wrong, "t").ok()) << wrong;
}

}  // namespace
}  // namespace tegula
