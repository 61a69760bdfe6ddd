// With FAKE_CUDA_RACES the compiler calls these before every access to memory, as it would those of
// its own detector; the driver looks at what is shared.
#pragma once

#if TEGULA_EMULATOR_RACES
extern "C" {
#define EMULATED_ACCESS(name, bytes, writes)                          \
  EMULATED_UNSEEN void __tsan_##name(void* at) {                      \
    if (::tegula::emulated::current_machine != nullptr)               \
      ::tegula::emulated::current_machine->access(at, bytes, writes); \
  }
#define EMULATED_ORDERED(name)                            \
  EMULATED_UNSEEN void __tsan_volatile_##name(void* at) { \
    ::tegula::emulated::current_machine->order(at);       \
  }
#define EMULATED_ACCESSES(n)                   \
  EMULATED_ACCESS(read##n, n, false)           \
  EMULATED_ACCESS(write##n, n, true)           \
  EMULATED_ACCESS(unaligned_read##n, n, false) \
  EMULATED_ACCESS(unaligned_write##n, n, true) \
  EMULATED_ORDERED(read##n)                    \
  EMULATED_ORDERED(write##n)                   \
  EMULATED_ORDERED(unaligned_read##n)          \
  EMULATED_ORDERED(unaligned_write##n)
EMULATED_ACCESSES(1)
EMULATED_ACCESSES(2)
EMULATED_ACCESSES(4)
EMULATED_ACCESSES(8)
EMULATED_ACCESSES(16)
EMULATED_UNSEEN void __tsan_read_range(void* at, long bytes) {
  ::tegula::emulated::current_machine->access(at, unsigned(bytes), false);
}
EMULATED_UNSEEN void __tsan_write_range(void* at, long bytes) {
  ::tegula::emulated::current_machine->access(at, unsigned(bytes), true);
}
EMULATED_UNSEEN void __tsan_init() {}
EMULATED_UNSEEN void __tsan_func_entry(void*) {}
EMULATED_UNSEEN void __tsan_func_exit(void*) {}
#undef EMULATED_ACCESSES
#undef EMULATED_ACCESS
#undef EMULATED_ORDERED
}
#endif
