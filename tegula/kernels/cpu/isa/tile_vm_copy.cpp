// Loads and stores of tiles: conversion between a tensor's dtype and its class, any strides.
#include <cstring>

#include "tegula/kernels/cpu/isa/tile_vm.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {

template <class R, class T>
TEGULA_VEC R widen(T v) {
  return static_cast<R>(v);
}
// Into the tensor's dtype, which the register's value already fits.
template <class T, class R>
TEGULA_VEC T narrow(R v) {
  return static_cast<T>(v);
}

// n contiguous elements.
template <class T, class R>
TEGULA_VEC void load_run(const T* from, R* to, int64_t n) {
  if constexpr (std::is_same_v<T, R>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if constexpr (std::is_same_v<R, float> && sizeof(T) == 2) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
    for (; i < n; ++i) to[i] = widen<R>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = widen<R>(from[i]);
  }
}
template <class T, class R>
TEGULA_VEC void store_run(const R* from, T* to, int64_t n) {
  if constexpr (std::is_same_v<T, R>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if constexpr (std::is_same_v<R, float> && sizeof(T) == 2) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      if constexpr (std::is_same_v<T, bf16>) {  // nothing to round
        store_u16(to + i, shr<16>(bits(load(from + i))));
      } else {
        store(to + i, load(from + i));
      }
    }
    for (; i < n; ++i) to[i] = narrow<T>(from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = narrow<T>(from[i]);
  }
}

template <class T, class R>
void load_box(const TileCopy& c) {
  const T* from = static_cast<const T*>(c.tensor);
  R* to = static_cast<R*>(c.reg);
  if (c.rows > 1 && c.row_stride == 1) {
    // Transposed: along the tensor's memory, so that each cache line is used whole.
    for (int64_t j = 0; j < c.cols; ++j)
      for (int64_t r = 0; r < c.rows; ++r)
        to[r * c.pitch + j] = widen<R>(from[j * c.col_stride + r]);
    return;
  }
  for (int64_t r = 0; r < c.rows; ++r, from += c.row_stride, to += c.pitch) {
    if (c.col_stride == 1) {
      load_run(from, to, c.cols);
    } else if (c.col_stride == 0) {
      const R v = widen<R>(*from);
      for (int64_t j = 0; j < c.cols; ++j) to[j] = v;
    } else {
      for (int64_t j = 0; j < c.cols; ++j) to[j] = widen<R>(from[j * c.col_stride]);
    }
  }
}

template <class T, class R>
void store_box(const TileCopy& c) {
  T* to = static_cast<T*>(c.tensor);
  const R* from = static_cast<const R*>(c.reg);
  if (c.rows > 1 && c.row_stride == 1) {
    for (int64_t j = 0; j < c.cols; ++j)
      for (int64_t r = 0; r < c.rows; ++r)
        to[j * c.col_stride + r] = narrow<T>(from[r * c.pitch + j]);
    return;
  }
  for (int64_t r = 0; r < c.rows; ++r, to += c.row_stride, from += c.pitch) {
    if (c.col_stride == 1) {
      store_run(from, to, c.cols);
    } else {
      for (int64_t j = 0; j < c.cols; ++j) to[j * c.col_stride] = narrow<T>(from[j]);
    }
  }
}

}  // namespace

void tile_load(const TileCopy& c) {
  switch (c.dtype) {
    case DType::kF64:
      return load_box<double, double>(c);
    case DType::kF32:
      return load_box<float, float>(c);
    case DType::kBF16:
      return load_box<bf16, float>(c);
    case DType::kF16:
      return load_box<f16, float>(c);
    case DType::kF8E4M3:
      return load_box<f8e4m3, float>(c);
    case DType::kI64:
      return load_box<int64_t, int64_t>(c);
    case DType::kI32:
      return load_box<int32_t, int64_t>(c);
    case DType::kI8:
      return load_box<int8_t, int64_t>(c);
    case DType::kU8:
      return load_box<uint8_t, int64_t>(c);
    case DType::kBool:
      return load_box<uint8_t, float>(c);
  }
}

void tile_store(const TileCopy& c) {
  switch (c.dtype) {
    case DType::kF64:
      return store_box<double, double>(c);
    case DType::kF32:
      return store_box<float, float>(c);
    case DType::kBF16:
      return store_box<bf16, float>(c);
    case DType::kF16:
      return store_box<f16, float>(c);
    case DType::kF8E4M3:
      return store_box<f8e4m3, float>(c);
    case DType::kI64:
      return store_box<int64_t, int64_t>(c);
    case DType::kI32:
      return store_box<int32_t, int64_t>(c);
    case DType::kI8:
      return store_box<int8_t, int64_t>(c);
    case DType::kU8:
      return store_box<uint8_t, int64_t>(c);
    case DType::kBool:
      return store_box<uint8_t, float>(c);
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
