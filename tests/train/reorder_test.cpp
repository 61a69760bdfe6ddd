// Within a phase passes may stand in any order that their needs allow: a training step keeps its
// bits. A few orders here; TEGULA_REORDER=N tries N.
#include <random>

#include "tests/train/one_step.h"

namespace tegula::testing {
namespace {

// Every phase shuffled; shuffled anew until the order is one that the manager takes.
std::vector<const PassDef*> shuffled(std::mt19937& rng) {
  const auto all = pipeline();
  while (true) {
    std::vector<const PassDef*> order(all.begin(), all.end());
    size_t begin = 0;
    while (begin < order.size()) {
      size_t end = begin + 1;
      while (end < order.size() &&
             (order[end]->phase == PassPhase::kAny || order[end]->phase == order[begin]->phase))
        ++end;
      std::shuffle(order.begin() + static_cast<ptrdiff_t>(begin),
                   order.begin() + static_cast<ptrdiff_t>(end), rng);
      begin = end;
    }
    if (check_order(order).ok()) return order;
  }
}

TEST(Reorder, PassesWithinAPhase) {
  const char* wanted = std::getenv("TEGULA_REORDER");
  const int n = wanted ? std::atoi(wanted) : 4;
  std::mt19937 rng(wanted ? std::random_device{}() : 7);
  for (const char* family : {"gpt2", "llama", "moe", "lstm"})
    for (const char* dtype : {"f32", "bf16"}) {
      const TrainConfig c = config_of(family, 1, dtype);
      Step as_it_is(c);
      as_it_is.run_whole();
      for (int i = 0; i < n; ++i) {
        const auto order = shuffled(rng);
        std::string names = cat(family, " ", dtype, ":");
        for (const PassDef* pass : order) names += cat(" ", pass->name);
        SCOPED_TRACE(names);
        Step other(c);
        other.run_whole(order);
        expect_same(as_it_is, other);
        if (HasFailure()) return;
      }
    }
}

}  // namespace
}  // namespace tegula::testing
