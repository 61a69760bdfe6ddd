// Vf in plain C++ with the compiler's vector extension; vec.h says what each operation does.
#pragma once

// Vectors cross calls within one source only: no ABI is at stake.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tegula::kernel::portable {

inline constexpr int kLanes = 8;

typedef float FloatLanes __attribute__((vector_size(32)));
typedef int32_t IntLanes __attribute__((vector_size(32)));
typedef double DoubleLanes __attribute__((vector_size(64)));
typedef uint32_t UintLanes __attribute__((vector_size(32)));

struct Vf {
  FloatLanes v;
};
struct Vd {
  DoubleLanes v;
};
struct Vi {
  IntLanes v;
};
struct Vm {
  IntLanes v;  // -1: true, 0: false
};

TEGULA_VEC Vf set1(float x) { return {FloatLanes{x, x, x, x, x, x, x, x}}; }  // keeps -0
TEGULA_VEC Vf zero() { return {FloatLanes{}}; }
TEGULA_VEC Vi set1i(int32_t x) { return {IntLanes{} + x}; }
TEGULA_VEC Vi iota() { return {IntLanes{0, 1, 2, 3, 4, 5, 6, 7}}; }

TEGULA_VEC Vi bits(Vf a) { return {reinterpret_cast<IntLanes>(a.v)}; }
TEGULA_VEC Vf as_float(Vi a) { return {reinterpret_cast<FloatLanes>(a.v)}; }
TEGULA_VEC Vm first_n(int n) { return {iota().v < n}; }

TEGULA_VEC Vf load(const float* p) {
  Vf a;
  std::memcpy(&a.v, p, sizeof a.v);
  return a;
}
TEGULA_VEC void store(float* p, Vf a) { std::memcpy(p, &a.v, sizeof a.v); }
TEGULA_VEC_LONG Vf load_n(const float* p, int n) {
  Vf a = zero();
  for (int i = 0; i < kLanes; ++i)
    if (i < n) a.v[i] = p[i];
  return a;
}
TEGULA_VEC_LONG void store_n(float* p, Vf a, int n) {
  for (int i = 0; i < kLanes; ++i)
    if (i < n) p[i] = a.v[i];
}
TEGULA_VEC Vi loadi(const int32_t* p) {
  Vi a;
  std::memcpy(&a.v, p, sizeof a.v);
  return a;
}
TEGULA_VEC void storei(int32_t* p, Vi a) { std::memcpy(p, &a.v, sizeof a.v); }

TEGULA_VEC Vf operator+(Vf a, Vf b) { return {a.v + b.v}; }
TEGULA_VEC Vf operator-(Vf a, Vf b) { return {a.v - b.v}; }
TEGULA_VEC Vf operator*(Vf a, Vf b) { return {a.v * b.v}; }
TEGULA_VEC Vf operator/(Vf a, Vf b) { return {a.v / b.v}; }
// c = a·b + c.
TEGULA_VEC_LONG void fma_by_library(FloatLanes* c, const FloatLanes* a, const FloatLanes* b) {
  for (int i = 0; i < kLanes; ++i) (*c)[i] = __builtin_fmaf((*a)[i], (*b)[i], (*c)[i]);
}
// Where the machine at hand has a multiply-add, four lanes with it, as the library does one.
TEGULA_VEC_LONG void fma_lanes(FloatLanes* c, const FloatLanes* a, const FloatLanes* b) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma")) {
    typedef float Half __attribute__((vector_size(16), may_alias));
    auto* sum = reinterpret_cast<Half*>(c);
    const auto *x = reinterpret_cast<const Half*>(a), *y = reinterpret_cast<const Half*>(b);
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum[0]) : "x"(x[0]), "x"(y[0]));
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum[1]) : "x"(x[1]), "x"(y[1]));
    return;
  }
#endif
  fma_by_library(c, a, b);
}
TEGULA_VEC Vf fma(Vf a, Vf b, Vf c) {
  fma_lanes(&c.v, &a.v, &b.v);
  return c;
}
TEGULA_VEC Vf fnma(Vf a, Vf b, Vf c) {
  a.v = -a.v;
  fma_lanes(&c.v, &a.v, &b.v);
  return c;
}
TEGULA_VEC Vf max(Vf a, Vf b) { return {a.v > b.v ? a.v : b.v}; }
TEGULA_VEC Vf min(Vf a, Vf b) { return {a.v < b.v ? a.v : b.v}; }
TEGULA_VEC_LONG Vf sqrt(Vf a) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
TEGULA_VEC_LONG Vf round(Vf a) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = __builtin_nearbyintf(a.v[i]);
  return a;
}
TEGULA_VEC_LONG Vf floor(Vf a) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = __builtin_floorf(a.v[i]);
  return a;
}

TEGULA_VEC Vm eq(Vf a, Vf b) { return {a.v == b.v}; }
TEGULA_VEC Vm ne(Vf a, Vf b) { return {a.v != b.v}; }
TEGULA_VEC Vm lt(Vf a, Vf b) { return {a.v < b.v}; }
TEGULA_VEC Vm le(Vf a, Vf b) { return {a.v <= b.v}; }
TEGULA_VEC Vm gt(Vf a, Vf b) { return {a.v > b.v}; }
TEGULA_VEC Vm ge(Vf a, Vf b) { return {a.v >= b.v}; }
TEGULA_VEC Vm eqi(Vi a, Vi b) { return {a.v == b.v}; }
TEGULA_VEC Vm gti(Vi a, Vi b) { return {a.v > b.v}; }
TEGULA_VEC Vm operator&(Vm a, Vm b) { return {a.v & b.v}; }
TEGULA_VEC Vm operator|(Vm a, Vm b) { return {a.v | b.v}; }
TEGULA_VEC Vm operator~(Vm a) { return {~a.v}; }
TEGULA_VEC bool any(Vm a) {
  int32_t r = 0;
  for (int i = 0; i < kLanes; ++i) r |= a.v[i];
  return r != 0;
}
TEGULA_VEC bool all(Vm a) { return !any(~a); }
TEGULA_VEC Vf select(Vm m, Vf a, Vf b) { return {m.v ? a.v : b.v}; }
TEGULA_VEC Vi select(Vm m, Vi a, Vi b) { return {m.v ? a.v : b.v}; }

// Unsigned inside: integer lanes wrap.
TEGULA_VEC Vi operator+(Vi a, Vi b) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) +
                                     reinterpret_cast<UintLanes>(b.v))};
}
TEGULA_VEC Vi operator-(Vi a, Vi b) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) -
                                     reinterpret_cast<UintLanes>(b.v))};
}
TEGULA_VEC Vi operator&(Vi a, Vi b) { return {a.v & b.v}; }
TEGULA_VEC Vi operator|(Vi a, Vi b) { return {a.v | b.v}; }
TEGULA_VEC Vi operator^(Vi a, Vi b) { return {a.v ^ b.v}; }
template <int K>
TEGULA_VEC Vi shl(Vi a) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) << K)};
}
template <int K>
TEGULA_VEC Vi shr(Vi a) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) >> K)};
}
template <int K>
TEGULA_VEC Vi sar(Vi a) {
  return {a.v >> K};
}
TEGULA_VEC_LONG Vi to_int(Vf a) {
  Vi r;
  for (int i = 0; i < kLanes; ++i) {
    const float x = a.v[i];
    r.v[i] =
        x >= -0x1p31f && x < 0x1p31f ? static_cast<int32_t>(__builtin_nearbyintf(x)) : INT32_MIN;
  }
  return r;
}
TEGULA_VEC Vf to_float(Vi a) { return {__builtin_convertvector(a.v, FloatLanes)}; }
TEGULA_VEC_LONG Vf gather(const float* base, Vi index) {
  Vf r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = base[index.v[i]];
  return r;
}

TEGULA_VEC Vi load_u16(const void* p) {
  uint16_t t[kLanes];
  std::memcpy(t, p, sizeof t);
  Vi r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = t[i];
  return r;
}
TEGULA_VEC void store_u16(void* p, Vi a) {
  uint16_t t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = static_cast<uint16_t>(a.v[i]);
  std::memcpy(p, t, sizeof t);
}
TEGULA_VEC_LONG Vf widen_f16(const void* p) {
  f16 t[kLanes];
  std::memcpy(t, p, sizeof t);
  Vf r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = static_cast<float>(t[i]);
  return r;
}
TEGULA_VEC_LONG void narrow_f16(void* p, Vf a) {
  f16 t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = f16(a.v[i]);
  std::memcpy(p, t, sizeof t);
}

// Lane j takes j + 4, then j + 2, then j + 1: the end of the tree of "lane16".
TEGULA_VEC_LONG float sum_lanes(Vf a) {
  float t[kLanes];
  store(t, a);
  for (int w = kLanes / 2; w > 0; w /= 2)
    for (int j = 0; j < w; ++j) t[j] = t[j] + t[j + w];
  return t[0];
}
TEGULA_VEC_LONG float max_lanes(Vf a) {
  float t[kLanes];
  store(t, a);
  for (int w = kLanes / 2; w > 0; w /= 2)
    for (int j = 0; j < w; ++j) t[j] = t[j] > t[j + w] ? t[j] : t[j + w];
  return t[0];
}

// Row j becomes column j.
TEGULA_VEC_LONG void transpose(Vf (&r)[kLanes]) {
  float t[kLanes][kLanes];
  for (int j = 0; j < kLanes; ++j)
    for (int i = 0; i < kLanes; ++i) t[i][j] = r[j].v[i];
  for (int i = 0; i < kLanes; ++i) r[i] = load(t[i]);
}

// r[e] = column e of kLanes rows, `stride` apart, e < kSquare.
inline constexpr int kSquare = kLanes;
TEGULA_VEC_LONG void load_transposed(const float* p, int64_t stride, Vf (&r)[kSquare]) {
  for (int i = 0; i < kSquare; ++i) r[i] = load(p + i * stride);
  transpose(r);
}

// r[e] = column e of kLanes rows, `stride` apart.
TEGULA_VEC_LONG void load_columns4(const float* p, int64_t stride, Vf (&r)[4]) {
  for (int i = 0; i < kLanes; ++i)
    for (int e = 0; e < 4; ++e) r[e].v[i] = p[i * stride + e];
}

// kLanes neighbouring bytes as integers.
TEGULA_VEC Vi load_u8(const void* p) {
  Vi a;
  for (int i = 0; i < kLanes; ++i) a.v[i] = static_cast<const uint8_t*>(p)[i];
  return a;
}
TEGULA_VEC Vi load_i8(const void* p) {
  Vi a;
  for (int i = 0; i < kLanes; ++i) a.v[i] = static_cast<const int8_t*>(p)[i];
  return a;
}

TEGULA_VEC Vd zero_d() { return {DoubleLanes{}}; }
TEGULA_VEC Vd load(const double* p) {
  Vd a;
  std::memcpy(&a.v, p, sizeof a.v);
  return a;
}
TEGULA_VEC void store(double* p, Vd a) { std::memcpy(p, &a.v, sizeof a.v); }
TEGULA_VEC Vd operator+(Vd a, Vd b) { return {a.v + b.v}; }
TEGULA_VEC Vd widened(Vf a) { return {__builtin_convertvector(a.v, DoubleLanes)}; }
TEGULA_VEC Vf rounded(Vd a) { return {__builtin_convertvector(a.v, FloatLanes)}; }

}  // namespace tegula::kernel::portable
