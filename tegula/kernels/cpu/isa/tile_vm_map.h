// The loops that tile instructions are made of.
#pragma once

#include "tegula/kernels/cpu/isa/tile_vm.h"
#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

#define TEGULA_VEC_CALL __attribute__((always_inline)) inline

// f(x(0), …, x(n-1)) for a functor of F::kN arguments.
template <class F, class X>
TEGULA_VEC auto call(X&& x) {
  if constexpr (F::kN == 1) {
    return F{}(x(0));
  } else if constexpr (F::kN == 2) {
    return F{}(x(0), x(1));
  } else if constexpr (F::kN == 3) {
    return F{}(x(0), x(1), x(2));
  } else {
    return F{}(x(0), x(1), x(2), x(3));
  }
}

// dst = F(sources) in f32. The sources of mask kScalars stay in registers over a row.
template <class F, unsigned kScalars = 0>
void map_f32(const TileOp& o) {
  constexpr int kN = F::kN;
  const char* ahead = o.ahead ? o.ahead : static_cast<const char*>(o.dst);
  const int64_t rows = o.rows, n = o.n;
  for (int64_t r = 0; r < rows; ++r) {
    const float* p[kN];
    Vf c[kN];
#pragma GCC unroll unrolled(4)
    for (int k = 0; k < kN; ++k) {
      p[k] = static_cast<const float*>(o.src[k]) + r * o.row_step[k];
      if (kScalars >> k & 1) c[k] = set1(*p[k]);
    }
    float* d = static_cast<float*>(o.dst) + r * o.pitch;
    const auto block = [&](int64_t i) __attribute__((always_inline)) {
      __builtin_prefetch(ahead + i * 4, 0, 2);
#pragma GCC unroll unrolled(2)
      for (int j = 0; j < 16; j += kLanes)
        store(d + i + j, call<F>([&](int k) __attribute__((always_inline)) {
                return kScalars >> k & 1 ? c[k] : load(p[k] + i + j);
              }));
    };
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
      block(i);
      block(i + 16);
    }
    if (i < n) block(i);
    ahead += n * 4;
  }
}

// A source's row is read in blocks of 16; a scalar is one block (the caller's) that does not move:
// *step is what each next block adds to the returned pointer.
template <class T>
TEGULA_VEC const T* open(const TileOp& o, int k, int64_t row, T* block, int64_t* step) {
  const T* p = static_cast<const T*>(o.src[k]) + row * o.row_step[k];
  *step = 16;
  if (!(o.scalars >> k & 1)) return p;
  const T v = *p;
  for (int j = 0; j < 16; ++j) block[j] = v;
  *step = 0;
  return block;
}

// The same in f32 with scalars known at run time only.
template <class F>
void map_any(const TileOp& o) {
  constexpr int kN = F::kN;
  alignas(64) float block[kN][16];
  const float* p[kN];
  int64_t step[kN];
  const char* ahead = o.ahead ? o.ahead : static_cast<const char*>(o.dst);
  for (int64_t r = 0; r < o.rows; ++r) {
    for (int k = 0; k < kN; ++k) p[k] = open<float>(o, k, r, block[k], &step[k]);
    float* d = static_cast<float*>(o.dst) + r * o.pitch;
    float* const end = d + o.n;
    for (; d != end; d += 16, ahead += 64) {
      __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll unrolled(2)
      for (int j = 0; j < 16; j += kLanes)
        store(d + j, call<F>([&](int k) { return load(p[k] + j); }));
      for (int k = 0; k < kN; ++k) p[k] += step[k];
    }
  }
}

// Scalar functions, a block of 16 at a time: D from A, from A and A, or from A, B and B.
template <class D, class A, class F>
void map_1(const TileOp& o, F f) {
  A block_a[16];
  int64_t step_a;
  for (int64_t r = 0; r < o.rows; ++r) {
    const A* a = open<A>(o, 0, r, block_a, &step_a);
    D* d = static_cast<D*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step_a) {
      D block[16];
      for (int j = 0; j < 16; ++j) block[j] = f(a[j]);
      std::memcpy(d + i, block, sizeof block);
    }
  }
}
template <class D, class A, class F>
void map_2(const TileOp& o, F f) {
  A block_a[16], block_b[16];
  int64_t step_a, step_b;
  for (int64_t r = 0; r < o.rows; ++r) {
    const A* a = open<A>(o, 0, r, block_a, &step_a);
    const A* b = open<A>(o, 1, r, block_b, &step_b);
    D* d = static_cast<D*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step_a, b += step_b) {
      D block[16];
      for (int j = 0; j < 16; ++j) block[j] = f(a[j], b[j]);
      std::memcpy(d + i, block, sizeof block);
    }
  }
}
template <class D, class A, class B, class F>
void map_3(const TileOp& o, F f) {
  A block_a[16];
  B block_b[16], block_c[16];
  int64_t step_a, step_b, step_c;
  for (int64_t r = 0; r < o.rows; ++r) {
    const A* a = open<A>(o, 0, r, block_a, &step_a);
    const B* b = open<B>(o, 1, r, block_b, &step_b);
    const B* c = open<B>(o, 2, r, block_c, &step_c);
    D* d = static_cast<D*>(o.dst) + r * o.pitch;
    for (int64_t i = 0; i < o.n; i += 16, a += step_a, b += step_b, c += step_c) {
      D block[16];
      for (int j = 0; j < 16; ++j) block[j] = f(a[j], b[j], c[j]);
      std::memcpy(d + i, block, sizeof block);
    }
  }
}

// NaN wins.
TEGULA_VEC Vf max_nan(Vf a, Vf b) { return select(is_nan(a), a, max(a, b)); }
TEGULA_VEC Vf min_nan(Vf a, Vf b) { return select(is_nan(a), a, min(a, b)); }
template <class T>
TEGULA_VEC T max_nan(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
TEGULA_VEC T min_nan(T a, T b) {
  return a < b || a != a ? a : b;
}

// Four lanes, for the end of "lane16"; one vector instruction on every x86-64.
typedef float F4 __attribute__((vector_size(16)));
TEGULA_VEC F4 max_nan(F4 a, F4 b) { return ((a > b) | (a != a)) ? a : b; }
TEGULA_VEC F4 min_nan(F4 a, F4 b) { return ((a < b) | (a != a)) ? a : b; }

// The low bits of v, as an integer of that dtype extends them: two shifts, so that a loop that says
// the dtype once has no branches.
struct WrapTo {
  int shift;
  bool is_signed;
  explicit WrapTo(DType t) : shift(64 - size_bits(t)), is_signed(t != DType::kU8) {}
  TEGULA_VEC_CALL int64_t operator()(int64_t v) const {
    const uint64_t high = static_cast<uint64_t>(v) << shift;
    return is_signed ? static_cast<int64_t>(high) >> shift : static_cast<int64_t>(high >> shift);
  }
};

// Rounds what `o` has made to its dtype (of the f32 class), in place.
void round_in_place(const TileOp& o);

// The loop of an instruction within the f32 class, and of any other with a source.
TileFn find_f32(const tile::MicroOp& m, unsigned scalars);
TileFn find_function(const tile::MicroOp& m);  // of the f32 class, what is not worth f32 vectors
TileFn find_wide(const tile::MicroOp& m);

}  // namespace tegula::kernel::TEGULA_ISA_NS
