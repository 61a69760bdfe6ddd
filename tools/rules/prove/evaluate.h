// Runs programs at constant sizes over the field of integers modulo 2^61 − 1: what a program
// computes there, on random inputs, is its fingerprint. Opaque functions are random functions
// (hashes of their arguments); max is the larger residue, which is associative, commutative and
// idempotent as max is, and knows nothing else of order. Two programs that are equal agree; two
// that are not agree on random inputs with a probability of about degree / 2^61 for sums of
// products (Schwartz, Zippel).
#pragma once

#include "tegula/passes/superopt/program.h"

namespace tegula::superopt {

// An element of the field.
class Residue {
 public:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  constexpr Residue() = default;
  constexpr explicit Residue(int64_t value)
      : value_(value >= 0 ? static_cast<uint64_t>(value) % kPrime
                          : (kPrime - (0 - static_cast<uint64_t>(value)) % kPrime) % kPrime) {}
  static constexpr Residue of_bits(uint64_t bits) {
    Residue r;
    r.value_ = bits % kPrime;
    return r;
  }
  constexpr Residue operator+(Residue o) const {
    Residue r;
    r.value_ = value_ + o.value_;
    if (r.value_ >= kPrime) r.value_ -= kPrime;
    return r;
  }
  constexpr Residue operator*(Residue o) const {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{value_} * o.value_;
    Residue r;
    r.value_ = static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
    if (r.value_ >= kPrime) r.value_ -= kPrime;
    return r;
  }
  constexpr auto operator<=>(const Residue&) const = default;
  constexpr uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// Values of sizes, integers and scalars. Absent symbols have the value 1. integer() counts in 64
// bits: ask most() before where sizes are a user's.
struct Assignment {
  std::map<Symbol, int64_t> integers;
  std::map<Symbol, Residue> scalars;
  int64_t integer(const Poly& p) const;
  // |value|, and every sum on the way to it, is at most this: what is far below 2^63 is exact.
  double most(const Poly& p) const;
  // A guard whose numbers leave 64 bits does not hold.
  bool holds(std::span<const Guard> where) const;
};

// A form at constant extents: for each term of each sum, where it reads and writes.
struct Compiled {
  std::vector<int64_t> shape;
  std::string function;
  int64_t n_elements = 0;
  struct Piece {
    std::vector<int> operands;          // one a read
    std::vector<uint32_t> rows;         // result's element, then each read's element
    std::vector<Residue> coefficients;  // one a row; empty: all 1
  };
  std::vector<Piece> pieces;
};
// `in`: the operands' constant shapes. Errors: more than `most` rows.
Result<Compiled> compile(const Form& form, std::span<const std::vector<int64_t>> in,
                         const Assignment& at, int64_t most = 1 << 20);
void run(const Compiled& c, std::span<const std::span<const Residue>> in, std::span<Residue> out);

struct FieldTensor {
  std::vector<int64_t> shape;
  std::vector<Residue> data;
};
// The node's value where inputs (of the graph, in order) have these. Errors: what `compile`
// refuses.
Result<FieldTensor> evaluate(const Graph& graph, int node, const Assignment& at,
                             std::span<const FieldTensor> inputs);

// Random numbers by a seed.
uint64_t mix(uint64_t x);

}  // namespace tegula::superopt
