// A value that takes over a parameter may be returned again, as itself or as a view: those results
// are copies, since they must outlive the next run's writes.
#include <gtest/gtest.h>

#include "tegula/ops/math.h"
#include "tests/common/run_both.h"

namespace tegula {
namespace {

TEST(DonatedResults, MayBeReturnedAgain) {
  const auto module = std::make_shared<Module>();
  Builder b(*module, "step");
  const Var w = b.param("w", {DType::kF32, {2, 3}}, Role::kState);
  const Var next = w + 1.0;
  b.result("w", next);
  b.result("same", next);
  b.result("turned", permute(next, {1, 0}));
  b.result("old", w);
  b.donate("w", "w");
  const auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  const auto c = compile(module, *f, {});
  ASSERT_TRUE(c.ok()) << c.error().to_string();
  Rank rank(1);
  auto session = Session::create(c->plan, rank);
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  Session& s = **session;
  HostTensor x({DType::kF32, {2, 3}}, std::vector<double>{0, 1, 2, 3, 4, 5});
  ASSERT_TRUE(s.bind("w", x.bytes.data()).ok());
  for (int run = 1; run <= 2; ++run) {
    ASSERT_TRUE(s.run().ok());
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(x.at(i), i + run);
      EXPECT_EQ(copy_of(s.result("same")).at(i), i + run);
      EXPECT_EQ(copy_of(s.result("old")).at(i), i + run - 1);
      EXPECT_EQ(copy_of(s.result("turned")).at(i), i % 2 * 3 + i / 2 + run);
    }
    EXPECT_NE(s.result("same").data, s.result("w").data);
  }
}

}  // namespace
}  // namespace tegula
