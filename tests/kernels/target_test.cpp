#include "tegula/kernels/target.h"

#include <gtest/gtest.h>

#include <set>

namespace tegula {
namespace {

TEST(Target, PresetsAreFoundByName) {
  std::set<std::string> names;
  for (const Target& t : target_presets()) {
    EXPECT_TRUE(names.insert(t.name).second) << t.name;
    EXPECT_EQ(*find_target(t.name), t);
    EXPECT_GT(t.bf16_flops_per_s, 0) << t.name;
    EXPECT_GT(t.bytes_per_s, 0) << t.name;
    if (t.device == DeviceKind::kCuda) {
      EXPECT_GT(t.multiprocessors, 0) << t.name;
      EXPECT_GT(t.memory_bytes, 0) << t.name;
    }
  }
  const auto none = find_target("zx81");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("h200"), std::string::npos);
}

TEST(Target, RunsWhereItIsMadeFor) {
  const Target here = Target::this_cpu(2);
  EXPECT_TRUE(here.runs_on(Target::one_thread()).ok());  // threads are the pool's to say
  const Target gpu = *find_target("h200");
  const auto refused = here.runs_on(gpu);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("h200"), std::string::npos);
  EXPECT_FALSE(gpu.runs_on(*find_target("a100")).ok());
  EXPECT_TRUE(find_target("h100")->runs_on(gpu).ok());  // the same kernels, the same workspaces
  Target wider = here;
  wider.isa = here.isa == Isa::kPortable ? Isa::kAvx2 : Isa::kPortable;
  EXPECT_FALSE(wider.runs_on(here).ok());
}

}  // namespace
}  // namespace tegula
