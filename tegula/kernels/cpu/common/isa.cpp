#include <cstdlib>

// A build may leave the wide kernels out (TEGULA_ISAS), to have fewer objects.
#if defined(__x86_64__) && !defined(TEGULA_ONLY_PORTABLE)
#define TEGULA_X86_KERNELS 1
#else
#define TEGULA_X86_KERNELS 0
#endif

#if TEGULA_X86_KERNELS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "tegula/base/amounts.h"
#include "tegula/kernels/cpu/common/dot_i8_plan.h"
#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/isa_rate.h"
#include "tegula/kernels/cpu/isa/table.h"

extern "C" {
const tegula::kernel::IsaTable* tegula_isa_table_portable();
#if TEGULA_X86_KERNELS
const tegula::kernel::IsaTable* tegula_isa_table_avx2();
const tegula::kernel::IsaTable* tegula_isa_table_avx512();
const tegula::kernel::IsaTable* tegula_isa_table_amx();
#endif
}

namespace tegula {

namespace {
#if TEGULA_X86_KERNELS
// By hand, because clang's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

// The processor has tiles of bf16 and of bytes and conversions to bf16, the system saves tiles, and
// it grants this process the room for them (once, for all of its threads).
bool has_amx() {
  constexpr unsigned kAvx512Bf16 = 1u << 5, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24,
                     kAmxInt8 = 1u << 25;
  constexpr unsigned kOsxsave = 1u << 27, kTileState = 3u << 17;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsxsave) == 0) return false;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & kAvx512Bf16) == 0) return false;
  unsigned xcr0, high;
  asm("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  if ((xcr0 & kTileState) != kTileState) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

Isa widest_isa() {
#if TEGULA_X86_KERNELS
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    static const bool amx = has_amx();
    return amx ? Isa::kAmx : Isa::kAvx512;
  }
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

Isa choose_isa() {
  const Isa widest = widest_isa();
  const char* forced = std::getenv("TEGULA_ISA");
  if (forced == nullptr) return kernel::fastest_isa(widest);
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx})
    if (is_same_name(isa_name(isa), forced) && isa <= widest) return isa;
  std::fprintf(stderr,
               "TEGULA_ISA=%s is not an instruction set of this machine (portable up to %.*s): "
               "using %.*s\n",
               forced, static_cast<int>(isa_name(widest).size()), isa_name(widest).data(),
               static_cast<int>(isa_name(widest).size()), isa_name(widest).data());
  return widest;
}
}  // namespace

Isa machine_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

namespace kernel {

#if TEGULA_X86_KERNELS
namespace {
// A set's own functions, and of those over AMX's tiles another's.
IsaTable with_tiles(const IsaTable& own, const IsaTable& tiles, Isa isa) {
  IsaTable t = own;
  t.isa = isa;
#define TEGULA_ISA_KERNEL(name)
#define TEGULA_ISA_ENTRY(name, Args)
#define TEGULA_ISA_TILES(name) t.name = tiles.name;
#include "tegula/kernels/cpu/isa/entries.inc"
#undef TEGULA_ISA_KERNEL
#undef TEGULA_ISA_ENTRY
  return t;
}
}  // namespace
#endif

const IsaTable* isa_table_of(Isa isa) {
  if (isa > widest_isa()) return nullptr;
  switch (isa) {
    case Isa::kPortable:
      return tegula_isa_table_portable();
#if TEGULA_X86_KERNELS
    case Isa::kAvx2:
      return tegula_isa_table_avx2();
    case Isa::kAvx512: {
      static const IsaTable avx512 =
          with_tiles(*tegula_isa_table_avx512(), *tegula_isa_table_avx2(), isa);
      return &avx512;
    }
    case Isa::kAmx: {
      static const IsaTable amx =
          with_tiles(*tegula_isa_table_avx512(), *tegula_isa_table_amx(), isa);
      return &amx;
    }
#endif
    default:
      return nullptr;
  }
}

bool machine_has_vnni() {
#if TEGULA_X86_KERNELS
  static const bool has = [] {
    const char* asked = std::getenv("TEGULA_VNNI");
    return __builtin_cpu_supports("avx512vnni") && !(asked && std::string_view(asked) == "off");
  }();
  return has;
#else
  return false;
#endif
}

// Some processors sum pairs at half their multiply-add rate, and then widening is as fast.
bool machine_sums_pairs() {
#if TEGULA_X86_KERNELS
  static const bool sums = [] {
    constexpr unsigned kAvx512Bf16 = 1u << 5;
    const char* asked = std::getenv("TEGULA_BF16_PAIRS");
    unsigned a, b, c, d;
    return machine_isa() >= Isa::kAvx512 && !(asked && std::string_view(asked) == "off") &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvx512Bf16) != 0 &&
           pair_flops_per_s() > kIsaMargin * isa_flops_per_s(Isa::kAvx512);
  }();
  return sums;
#else
  return false;
#endif
}

const IsaTable& isa_table() {
  static const IsaTable* table = isa_table_of(machine_isa());
  return *table;
}

}  // namespace kernel
}  // namespace tegula
