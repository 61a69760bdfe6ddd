// The choice of an instruction set: by rate, only among sets that the machine has, never by noise.
#include "tegula/kernels/cpu/common/isa_rate.h"

#include <gtest/gtest.h>

#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {
namespace {

TEST(IsaRate, TheWidestWinsUnlessANarrowerOneIsClearlyFaster) {
  const auto wide_is_fast = [](Isa isa) { return isa == Isa::kAvx512 ? 2.0 : 1.0; };
  const auto equal = [](Isa isa) { return isa == Isa::kAvx2 ? 1.1 : 1.0; };
  const auto wide_is_slow = [](Isa isa) { return isa == Isa::kAvx2 ? 1.5 : 1.0; };
  EXPECT_EQ(fastest_isa(Isa::kAvx512, wide_is_fast), Isa::kAvx512);
  EXPECT_EQ(fastest_isa(Isa::kAvx512, equal), Isa::kAvx512);
  EXPECT_EQ(fastest_isa(Isa::kAvx512, wide_is_slow), Isa::kAvx2);
  EXPECT_EQ(fastest_isa(Isa::kAmx, wide_is_slow), Isa::kAmx);  // has tiles
  EXPECT_EQ(fastest_isa(Isa::kAvx2, wide_is_slow), Isa::kAvx2);
  EXPECT_EQ(fastest_isa(Isa::kPortable, wide_is_slow), Isa::kPortable);
}

TEST(IsaRate, EverySetOfTheMachineHasOne) {
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512})
    EXPECT_EQ(isa_flops_per_s(isa) > 1e6, isa_table_of(isa) != nullptr) << isa_name(isa);
  EXPECT_NE(isa_table_of(machine_isa()), nullptr);
}

}  // namespace
}  // namespace tegula::kernel
