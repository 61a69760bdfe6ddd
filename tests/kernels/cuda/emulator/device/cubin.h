// The end of a kernel's text: its kernels as the driver calls them, and the library's one symbol.
#pragma once

namespace tegula::emulated {

const Thread* current_thread = nullptr;
const Machine* current_machine = nullptr;

template <unsigned... kIndex>
struct Indices {};

// A kernel by its type: what its arguments take, and a call with the arguments at these places.
template <class F>
struct Binder;
template <class... A>
struct Binder<void (*)(A...)> {
  static constexpr unsigned kCount = sizeof...(A);
  static constexpr unsigned kBytes[kCount + 1] = {static_cast<unsigned>(sizeof(A))..., 0};
  template <void (*kKernel)(A...), unsigned... kIndex>
  static void call([[maybe_unused]] void* const* arguments, Indices<kIndex...>) {
    kKernel(*static_cast<const A*>(arguments[kIndex])...);
  }
  template <void (*kKernel)(A...)>
  static void run(void* const* arguments) {
    call<kKernel>(arguments, Indices<__integer_pack(kCount)...>());
  }
};

constexpr unsigned bound() { return 0; }
constexpr unsigned bound(long long max_threads, long long = 0, long long = 0) {
  return static_cast<unsigned>(max_threads);
}
template <auto kKernel>
constexpr Kernel describe(const char* name, unsigned max_threads) {
  using Of = Binder<decltype(kKernel)>;
  return {name, max_threads, Of::kCount, Of::kBytes, &Of::template run<kKernel>};
}

inline const void* touch() {
  static thread_local char anchor;
  return &anchor;
}

}  // namespace tegula::emulated
