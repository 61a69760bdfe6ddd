// DotDims: the names of a contraction's dims, read from the text that dot carries.
//
//   "b m k, b k n -> b m n"    a[b, m, k], b[b, k, n] -> out[b, m, n]
//
// The one reading of that text: the op, its kernels and the passes that rewrite it share it. A name
// in both operands and the result is a batch factor, in both operands alone a contracted one. A
// side may be empty: "k, k -> " is a scalar.
// Names are views of the text, which must outlive them. Nothing is allocated unless reading fails,
// because kernels read it in every launch.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tegula/base/result.h"
#include "tegula/base/shape.h"

namespace tegula {

// The dims of one operand, in order.
class DimNames {
 public:
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::string_view& operator[](int d) { return names_[static_cast<size_t>(d)]; }
  std::string_view operator[](int d) const { return names_[static_cast<size_t>(d)]; }
  std::string_view back() const { return names_[static_cast<size_t>(size_ - 1)]; }
  const std::string_view* begin() const { return names_.data(); }
  const std::string_view* end() const { return names_.data() + size_; }
  bool has(std::string_view name) const;
  void push_back(std::string_view name) { names_[static_cast<size_t>(size_++)] = name; }
  // Those that `other` has too, or those that it has not, in this order.
  DimNames in(const DimNames& other) const;
  DimNames not_in(const DimNames& other) const;
  bool operator==(const DimNames& other) const;
  std::string text() const;  // "b m k"

 private:
  std::array<std::string_view, kMaxRank> names_;
  int size_ = 0;
};

struct DotDims {
  DimNames a, b, out;

  // Errors: anything but "a, b -> out"; more than kMaxRank names on a side.
  static Result<DotDims> parse(std::string_view text);
  std::string text() const;  // "b m k, b k n -> b m n"
};

}  // namespace tegula
