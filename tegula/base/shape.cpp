#include "tegula/base/shape.h"

#include "tegula/base/saturating.h"
#include "tegula/base/sizes.h"

namespace tegula {

namespace {
bool is_size(int64_t v) { return v >= -kMaxElements && v <= kMaxElements; }

Result<Dim> affine(const Dim& like, int64_t scale, int64_t offset) {
  const int64_t symbolic = saturating_mul(scale, like.is_const() ? 0 : like.symbol_bound);
  if (!is_size(offset) || !is_size(symbolic) || scale != static_cast<int32_t>(scale))
    return unsupported(cat("a size of ", saturating_add(symbolic, offset), " is past ",
                           kMaxElements, ", the most elements of a tensor"));
  Dim d = like;
  d.scale = static_cast<int32_t>(scale);
  d.offset = offset;
  return scale == 0 ? Dim(offset) : d;
}

std::string dim_text(const Dim& d, std::span<const Symbol> symbols) {
  if (d.is_const()) return std::to_string(d.offset);
  std::string out;
  if (d.scale != 1) append(out, cat(d.scale, "*"));
  const auto id = static_cast<size_t>(d.symbol);
  append(out, id < symbols.size() ? symbols[id].name : cat("s", d.symbol));
  if (d.offset != 0) append(out, cat(d.offset > 0 ? "+" : "", d.offset));
  return out;
}
}  // namespace

Result<Dim> add(Dim a, Dim b) {
  if (!a.is_const() && !b.is_const() && a.symbol != b.symbol)
    return unsupported(cat("the sum of two symbolic dims ", dim_text(a, {}), " + ", dim_text(b, {}),
                           " is not representable: keep the dims apart"));
  return affine(a.is_const() ? b : a, int64_t{a.scale} + b.scale,
                saturating_add(a.offset, b.offset));
}

Result<Dim> mul(Dim a, Dim b) {
  if (!a.is_const() && !b.is_const())
    return unsupported(cat("the product of two symbolic dims ", dim_text(a, {}), " * ",
                           dim_text(b, {}), " is not representable: keep the dims apart"));
  if (!a.is_const()) std::swap(a, b);
  return affine(b, saturating_mul(a.offset, b.scale), saturating_mul(a.offset, b.offset));
}

Result<Dim> div_exact(Dim a, Dim b) {
  if (b.is_const()) {
    if (b.offset == 0 || a.offset == kNoSize || a.offset % b.offset != 0 || a.scale % b.offset != 0)
      return invalid_argument(cat(dim_text(a, {}), " is not divisible by ", dim_text(b, {})));
    return affine(a, a.scale / b.offset, a.offset / b.offset);
  }
  if (a == b) return Dim(1);
  if (a.symbol == b.symbol && b.scale != 0 && a.scale % b.scale == 0) {
    const int64_t q = a.scale / b.scale;
    if (b.offset * q == a.offset) return Dim(q);
  }
  return invalid_argument(cat(dim_text(a, {}), " is not divisible by ", dim_text(b, {})));
}

Shape::Shape(std::initializer_list<Dim> dims) {
  for (const Dim& d : dims) push_back(d);
}
Shape::Shape(std::span<const Dim> dims) {
  for (const Dim& d : dims) push_back(d);
}
Shape::Shape(std::span<const int64_t> dims) {
  for (int64_t d : dims) push_back(d);
}
void Shape::push_back(Dim d) {
  if (rank_ >= kMaxRank) return spoil();
  dims_[static_cast<size_t>(rank_++)] = d;
}
void Shape::insert(int at, Dim d) {
  if (at < 0 || at > rank_ || rank_ == kMaxRank) return spoil();
  push_back(d);
  for (int i = rank_ - 1; i > at; --i) std::swap((*this)[i], (*this)[i - 1]);
}

void Shape::erase(int at) {
  if (at < 0 || at >= rank_) return spoil();
  for (int i = at; i + 1 < rank_; ++i) (*this)[i] = (*this)[i + 1];
  (*this)[--rank_] = Dim();
}

bool Shape::is_const() const {
  for (const Dim& d : *this)
    if (!d.is_const()) return false;
  return true;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (const Dim& d : *this) n *= d.bound();
  return n;
}

int64_t Shape::numel_at(std::span<const int64_t> extents) const {
  int64_t n = 1;
  for (const Dim& d : *this) n *= d.at(extents);
  return n;
}

Shape Shape::at(std::span<const int64_t> extents) const {
  Shape s;
  for (const Dim& d : *this) s.push_back(d.at(extents));
  return s;
}

bool operator==(const Shape& a, const Shape& b) {
  if (a.rank_ != b.rank_) return false;
  for (int i = 0; i < a.rank_; ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

void append(std::string& out, const Dim& d) { out += dim_text(d, {}); }

void append(std::string& out, const Shape& s) {
  out += '[';
  for (int i = 0; i < s.rank(); ++i) {
    if (i) out += ',';
    append(out, s[i]);
  }
  out += ']';
}

void append(std::string& out, const Type& t) {
  out += dtype_name(t.dtype);
  append(out, t.shape);
}

std::string to_string(const Dim& d, std::span<const Symbol> symbols) {
  return dim_text(d, symbols);
}

std::string to_string(const Type& t, std::span<const Symbol> symbols) {
  std::string out(dtype_name(t.dtype));
  out += '[';
  for (int i = 0; i < t.shape.rank(); ++i) {
    if (i) out += ',';
    out += dim_text(t.shape[i], symbols);
  }
  return out + ']';
}

}  // namespace tegula
