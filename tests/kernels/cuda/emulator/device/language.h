// CUDA C++ for a host's compiler: what a kernel's text means when it runs as threads of the
// emulated driver. `extern __shared__`, asm statements and the list of kernels are written by
// rewrite.cpp before this is compiled. Macros are EMULATED_…: kernels' variants are named by
// TEGULA_….
#pragma once

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __device__
#define TEGULA_EXPORTED __attribute__((visibility("default")))
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __constant__
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
// Its reads and writes are no access of the kernel (races.h).
#define EMULATED_UNSEEN __attribute__((no_sanitize("thread")))
// Marks for rewrite.cpp.
#define __global__ __attribute__((tegula_kernel))
#define __launch_bounds__(...) __attribute__((tegula_bounds(__VA_ARGS__)))
#define __shared__ tegula_shared

namespace tegula::emulated {
extern const Thread* current_thread;
extern const Machine* current_machine;

[[noreturn]] inline void fail(const char* message) {
  current_machine->fail(message);
  __builtin_unreachable();
}
template <class T>
inline T* dynamic_shared() {
  return reinterpret_cast<T*>(current_machine->dynamic_shared());
}
}  // namespace tegula::emulated

#define threadIdx (::tegula::emulated::current_thread->thread_index)
#define blockIdx (::tegula::emulated::current_thread->block_index)
#define blockDim (::tegula::emulated::current_thread->block_dim)
#define gridDim (::tegula::emulated::current_thread->grid_dim)
inline constexpr int warpSize = 32;

using size_t = decltype(sizeof 0);
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));
namespace std {
// As the compiler fills it in; what `for (x : {a, b})` needs.
template <class T>
class initializer_list {
 public:
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr size_t size() const { return size_; }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
}  // namespace std
using uint = unsigned;
using ushort = unsigned short;
using uchar = unsigned char;
using dim3 = ::tegula::emulated::Dim3;
using uint3 = ::tegula::emulated::Dim3;

// Vectors, aligned as on the device: an address that is not stops the kernel here too.
#define EMULATED_VECTORS(name, type)                                      \
  struct name##1 {                                                        \
    type x;                                                               \
  };                                                                      \
  struct alignas(2 * sizeof(type)) name##2 {                              \
    type x, y;                                                            \
  };                                                                      \
  struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { \
    type x, y, z, w;                                                      \
  };                                                                      \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }        \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
#define EMULATED_VECTORS_OF_3(name, type) \
  struct name##3 {                        \
    type x, y, z;                         \
  };                                      \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }
EMULATED_VECTORS(char, signed char)
EMULATED_VECTORS(uchar, unsigned char)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(ushort, unsigned short)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(uint, unsigned)
EMULATED_VECTORS(longlong, long long)
EMULATED_VECTORS(ulonglong, unsigned long long)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
EMULATED_VECTORS_OF_3(int, int)
EMULATED_VECTORS_OF_3(float, float)
EMULATED_VECTORS_OF_3(double, double)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
#undef EMULATED_VECTORS
#undef EMULATED_VECTORS_OF_3

// Shared memory's 32-bit addresses.
inline size_t __cvta_generic_to_shared(const void* p) {
  return ::tegula::emulated::current_machine->shared_address(p);
}

// Caches and order: threads take turns and see what was written before.
template <class T>
inline T __ldg(const T* from) {
  return *from;
}
template <class T>
inline T __ldcg(const T* from) {
  ::tegula::emulated::current_machine->pause();
  return *from;
}
template <class T>
inline T __ldcs(const T* from) {
  return *from;
}
template <class T>
inline T __ldca(const T* from) {
  return *from;
}
template <class T>
inline T __ldcv(const T* from) {
  ::tegula::emulated::current_machine->pause();
  return *from;
}
template <class T>
inline void __stcg(T* to, T value) {
  *to = value;
}
template <class T>
inline void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
inline void __stwt(T* to, T value) {
  *to = value;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { ::tegula::emulated::current_machine->pause(); }
extern "C" int printf(const char* format, ...);
[[noreturn]] inline void __trap() { ::tegula::emulated::fail("__trap() was called"); }
inline long long clock64() { return static_cast<long long>(__builtin_ia32_rdtsc()); }

#define __EMULATED_TEXT(x) #x
#define assert(claim) \
  ((claim) ? void()   \
           : ::tegula::emulated::fail("the assertion does not hold: " __EMULATED_TEXT(claim)))
