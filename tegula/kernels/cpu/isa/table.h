// The functions compiled once per instruction set, as one table per set; the widest that the
// machine runs is chosen at the first call of isa_table().
//
// To add one: a line in entries.inc, and isa/<name>.cpp that defines it in the namespace
// tegula::kernel::TEGULA_ISA_NS (a macro of vec.h). Nothing else.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

#define TEGULA_ISA_KERNEL(name)
#define TEGULA_ISA_ENTRY(name, Args) struct Args;
#include "tegula/kernels/cpu/isa/entries.inc"
#undef TEGULA_ISA_KERNEL
#undef TEGULA_ISA_ENTRY

struct IsaTable {
  Isa isa;
#define TEGULA_ISA_KERNEL(name) void (*name)(const KernelCall&);
#define TEGULA_ISA_ENTRY(name, Args) void (*name)(const Args&);
#include "tegula/kernels/cpu/isa/entries.inc"
#undef TEGULA_ISA_KERNEL
#undef TEGULA_ISA_ENTRY
};

// The table of machine_isa().
const IsaTable& isa_table();
// The table of one instruction set; null where the build lacks it or this machine cannot run it.
// Ignores TEGULA_ISA, so that tests can compare all of them.
const IsaTable* isa_table_of(Isa isa);

}  // namespace tegula::kernel
