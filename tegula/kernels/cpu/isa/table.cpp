#include "tegula/kernels/cpu/isa/table.h"

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

#define TEGULA_ISA_KERNEL(name) void name(const KernelCall&);
#define TEGULA_ISA_ENTRY(name, Args) void name(const Args&);
#include "tegula/kernels/cpu/isa/entries.inc"
#undef TEGULA_ISA_KERNEL
#undef TEGULA_ISA_ENTRY

#if defined(TEGULA_ISA_AMX)
#define TEGULA_TABLE_NAME tegula_isa_table_amx
static constexpr Isa kIsa = Isa::kAmx;
#elif defined(TEGULA_ISA_AVX512)
#define TEGULA_TABLE_NAME tegula_isa_table_avx512
static constexpr Isa kIsa = Isa::kAvx512;
#elif defined(TEGULA_ISA_AVX2)
#define TEGULA_TABLE_NAME tegula_isa_table_avx2
static constexpr Isa kIsa = Isa::kAvx2;
#else
#define TEGULA_TABLE_NAME tegula_isa_table_portable
static constexpr Isa kIsa = Isa::kPortable;
#endif

static constexpr IsaTable kTable = {
    .isa = kIsa,
#if defined(TEGULA_ISA_AMX)  // what a set lacks is filled in from another's (common/isa.cpp)
#define TEGULA_ISA_KERNEL(name) .name = nullptr,
#define TEGULA_ISA_ENTRY(name, Args) .name = nullptr,
#define TEGULA_ISA_TILES(name) .name = name,
#else
#define TEGULA_ISA_KERNEL(name) .name = name,
#define TEGULA_ISA_ENTRY(name, Args) .name = name,
#if defined(TEGULA_ISA_AVX512)
#define TEGULA_ISA_TILES(name) .name = nullptr,
#endif
#endif
#include "tegula/kernels/cpu/isa/entries.inc"
#undef TEGULA_ISA_KERNEL
#undef TEGULA_ISA_ENTRY
};

}  // namespace tegula::kernel::TEGULA_ISA_NS

// The only symbol that leaves the objects of one instruction set.
extern "C" const tegula::kernel::IsaTable* TEGULA_TABLE_NAME() {
  return &tegula::kernel::TEGULA_ISA_NS::kTable;
}
