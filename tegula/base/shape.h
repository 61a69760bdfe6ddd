// Dims, shapes, types. A dim is a constant or affine in one *bounded symbol*: scale·s + offset.
//
// Plans allocate a symbol's bound; a run reads its extent. So variable-length batches, KV caches
// and expert counts need no new plan. Products of two symbols are not representable: keep such
// dims apart (ops take any number of leading dims, so flattening is rarely needed).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/dtype.h"
#include "tegula/base/result.h"

namespace tegula {

inline constexpr int kMaxRank = 8;
inline constexpr int kNoSymbol = -1;
inline constexpr int64_t kNoSize = INT64_MIN;  // of a shape of no tensor

// A named size known only at run time, 0 ≤ extent ≤ bound. Owned by a Module; id = its index.
struct Symbol {
  std::string name;
  int64_t bound = 0;
};

struct Dim {
  int64_t offset = 0;
  int32_t scale = 0;
  int32_t symbol = kNoSymbol;
  int64_t symbol_bound = 0;

  constexpr Dim() = default;
  constexpr Dim(int64_t constant) : offset(constant) {}
  static constexpr Dim of(int32_t symbol, int64_t bound) {
    Dim d;
    d.scale = 1, d.symbol = symbol, d.symbol_bound = bound;
    return d;
  }
  constexpr bool is_const() const { return symbol == kNoSymbol; }
  // The largest value: what a plan allocates.
  constexpr int64_t bound() const { return offset + scale * symbol_bound; }
  // The value, given every symbol's extent; of a symbol without one, at its bound.
  constexpr int64_t at(std::span<const int64_t> extents) const {
    const auto s = static_cast<size_t>(symbol);
    return is_const() ? offset : s < extents.size() ? offset + scale * extents[s] : bound();
  }
  friend constexpr bool operator==(const Dim& a, const Dim& b) {
    return a.offset == b.offset && a.scale == b.scale && a.symbol == b.symbol;
  }
};

Result<Dim> add(Dim a, Dim b);
Result<Dim> mul(Dim a, Dim b);
// a / b where it divides exactly at every extent; else an error.
Result<Dim> div_exact(Dim a, Dim b);

// At most kMaxRank dims; a value type without allocation. One dim more, or one that is inserted or
// erased where there is none, makes it a shape of no tensor: check_sizes() refuses it.
class Shape {
 public:
  constexpr Shape() = default;
  Shape(std::initializer_list<Dim> dims);
  explicit Shape(std::span<const Dim> dims);
  explicit Shape(std::span<const int64_t> dims);
  constexpr int rank() const { return rank_; }
  constexpr const Dim& operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  constexpr Dim& operator[](int i) { return dims_[static_cast<size_t>(i)]; }
  void push_back(Dim d);
  void insert(int at, Dim d);
  void erase(int at);
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + rank_; }
  bool is_const() const;
  // Number of elements at the bound, and at given extents.
  int64_t numel() const;
  int64_t numel_at(std::span<const int64_t> extents) const;
  Shape at(std::span<const int64_t> extents) const;  // every dim made constant
  friend bool operator==(const Shape& a, const Shape& b);

 private:
  constexpr void spoil() {
    rank_ = kMaxRank, dims_ = {};
    dims_[0] = kNoSize;
  }
  std::array<Dim, kMaxRank> dims_{};
  int rank_ = 0;
};

struct Type {
  DType dtype = DType::kF32;
  Shape shape;
  int64_t bytes() const { return shape.numel() * size_bytes(dtype); }  // at the bound
  friend bool operator==(const Type&, const Type&) = default;
};

// Symbols print as "s3" (their index), or by name when the module's symbols are given.
void append(std::string& out, const Dim& d);
void append(std::string& out, const Shape& s);  // "[2,3]"
void append(std::string& out, const Type& t);   // "f32[2,3]"
inline void append(std::string& out, DType t) { out += dtype_name(t); }
std::string to_string(const Dim& d, std::span<const Symbol> symbols);
std::string to_string(const Type& t, std::span<const Symbol> symbols);

}  // namespace tegula
