#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "tegula/kernels/cpu/common/isa_rate.h"
#include "tegula/kernels/cpu/isa/table.h"

extern "C" {
const tegula::kernel::IsaTable* tegula_isa_table_portable();
#if defined(__x86_64__)
const tegula::kernel::IsaTable* tegula_isa_table_avx2();
const tegula::kernel::IsaTable* tegula_isa_table_avx512();
#endif
}

namespace tegula {

namespace {
#if defined(__x86_64__)
// By hand, because clang's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

Isa widest_isa() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

Isa choose_isa() {
  const Isa widest = widest_isa();
  const char* forced = std::getenv("TEGULA_ISA");
  if (forced == nullptr) return kernel::fastest_isa(widest);
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512})
    if (isa_name(isa) == forced && isa <= widest) return isa;
  std::fprintf(stderr,
               "TEGULA_ISA=%s is not an instruction set of this machine (portable up to %.*s): "
               "using %.*s\n",
               forced, static_cast<int>(isa_name(widest).size()), isa_name(widest).data(),
               static_cast<int>(isa_name(widest).size()), isa_name(widest).data());
  return widest;
}
}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Isa machine_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

namespace kernel {

const IsaTable* isa_table_of(Isa isa) {
  if (isa > widest_isa()) return nullptr;
  switch (isa) {
    case Isa::kPortable:
      return tegula_isa_table_portable();
#if defined(__x86_64__)
    case Isa::kAvx2:
      return tegula_isa_table_avx2();
    case Isa::kAvx512:
      return tegula_isa_table_avx512();
#endif
    default:
      return nullptr;
  }
}

const IsaTable& isa_table() {
  static const IsaTable* table = isa_table_of(machine_isa());
  return *table;
}

}  // namespace kernel
}  // namespace tegula
