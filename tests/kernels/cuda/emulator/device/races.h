// With FAKE_CUDA_RACES the compiler calls these before every access to memory, as it would those of
// its own detector; the driver looks at what is shared.
#pragma once

#if TEGULA_EMULATOR_RACES
extern "C" {
#define TEGULA_ACCESS(name, bytes, writes)                            \
  TEGULA_UNSEEN void __tsan_##name(void* at) {                        \
    if (::tegula::emulated::current_machine != nullptr)               \
      ::tegula::emulated::current_machine->access(at, bytes, writes); \
  }
#define TEGULA_ORDERED(name)                            \
  TEGULA_UNSEEN void __tsan_volatile_##name(void* at) { \
    ::tegula::emulated::current_machine->order(at);     \
  }
#define TEGULA_ACCESSES(n)                   \
  TEGULA_ACCESS(read##n, n, false)           \
  TEGULA_ACCESS(write##n, n, true)           \
  TEGULA_ACCESS(unaligned_read##n, n, false) \
  TEGULA_ACCESS(unaligned_write##n, n, true) \
  TEGULA_ORDERED(read##n)                    \
  TEGULA_ORDERED(write##n)                   \
  TEGULA_ORDERED(unaligned_read##n)          \
  TEGULA_ORDERED(unaligned_write##n)
TEGULA_ACCESSES(1)
TEGULA_ACCESSES(2)
TEGULA_ACCESSES(4)
TEGULA_ACCESSES(8)
TEGULA_ACCESSES(16)
TEGULA_UNSEEN void __tsan_read_range(void* at, long bytes) {
  ::tegula::emulated::current_machine->access(at, unsigned(bytes), false);
}
TEGULA_UNSEEN void __tsan_write_range(void* at, long bytes) {
  ::tegula::emulated::current_machine->access(at, unsigned(bytes), true);
}
TEGULA_UNSEEN void __tsan_init() {}
TEGULA_UNSEEN void __tsan_func_entry(void*) {}
TEGULA_UNSEEN void __tsan_func_exit(void*) {}
#undef TEGULA_ACCESSES
#undef TEGULA_ACCESS
#undef TEGULA_ORDERED
}
#endif
