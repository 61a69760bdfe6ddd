#include "tegula/base/shared.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tegula {
namespace {

struct Watched {
  int* n_alive;
  explicit Watched(int* n) : n_alive(n) { ++*n_alive; }
  Watched(const Watched&) = delete;
  ~Watched() { --*n_alive; }
};

TEST(Shared, TheLastOwnerDestroys) {
  int n_alive = 0;
  Shared<Watched> a = share<Watched>(&n_alive);
  EXPECT_EQ(n_alive, 1);
  Shared<const Watched> b = a;
  EXPECT_TRUE(b.get() == a.get() && b->n_alive == &n_alive);
  a = nullptr;
  EXPECT_FALSE(a);
  EXPECT_EQ(n_alive, 1);
  b = *&b;
  Shared<const Watched> c = std::move(b);
  EXPECT_FALSE(b);  // NOLINT: what is moved from owns nothing
  EXPECT_EQ(n_alive, 1);
  c = share<const Watched>(&n_alive);
  EXPECT_EQ(n_alive, 1);
  c = {};
  EXPECT_EQ(n_alive, 0);
}

TEST(Shared, ThreadsTakeAndDropCopies) {
  int n_alive = 0;
  {
    const Shared<Watched> one = share<Watched>(&n_alive);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&one] {
        for (int i = 0; i < 1000; ++i) {
          const Shared<Watched> copy = one;
          EXPECT_EQ(*copy->n_alive, 1);
        }
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(n_alive, 1);
  }
  EXPECT_EQ(n_alive, 0);
}

}  // namespace
}  // namespace tegula
