// Linear arithmetic over sizes, with certificates.
#pragma once

#include "tegula/passes/superopt/poly.h"

namespace tegula::superopt {

// Proves that `goal` ≥ 0 (or = 0) wherever all facts hold, for integers of any size. The
// certificate is text: "d: c1*h0*h3 + c2*h2 + c", with hk fact k, and then d·goal equals that sum
// as polynomials; all coefficients are positive, but for those of products with an equality, and c
// ≥ 0. Two such sums, of goal and of −goal and separated by " ; ", stand for an equality. Facts
// that contradict one another prove goal = −1. Empty: not proven, which does not mean false.
// Method: Farkas' lemma on monomials, with products of two facts (Handelman); exact rationals.
std::string derive(std::span<const Guard> facts, const Guard& goal);

}  // namespace tegula::superopt
