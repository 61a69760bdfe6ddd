// Proves that both sides of a rule denote the same, for all sizes that its conditions allow.
//
// The difference left − right is a sum of terms (denote.h). Steps rewrite it until nothing is left,
// and are written down as text, one a line: that list is the certificate, which rules check replays
// with code of its own. A place is the number of a term (left's, then right's, then as they come to
// be), and within it .factor.branch.term; symbols and guards are those that stand there at that
// time. CERT is a sum of facts (derive.h). The facts of a place are, in order: the rule's
// where, the conditions of left's ops, then from the outermost term to the place itself its guards
// and the boxes of its inputs (append_facts), and for a branch its guards.
//
//   shape D by CERT             both sides have one extent in dim D
//   valid K by CERT             condition K of the right side's ops holds
//   solve PLACE G V             guard G is an equality with ±V: V is replaced throughout
//   divide PLACE G S by CERTS   guard G is S·p + q = 0 with |q| < S: it becomes p = 0 and q = 0
//   subst PLACE V NEW POLY      V := POLY = ±NEW + …, for a bound V of that term (or branch)
//   drop PLACE G by CERT        guard G follows from the other facts
//   void PLACE by CERT          the facts contradict: the term, or branch of max, is nothing
//   split PLACE POLY            the term is itself where POLY ≥ 0, and a new one where POLY ≤ −1
//   merge PLACE PLACE           two equal terms are one with the sum of both coefficients, or
//   branches
//                               of max are one; a sum of zero is nothing
//   count PLACE V               V stands in V − l ≥ 0 and h − V ≥ 0 alone: h − l + 1 times the
//   term, where h ≥ l pin PLACE V POLY by CERTS   V = POLY follows: V is replaced, and the equality
//   a guard flatten PLACE               a branch of max that is a max gives its branches unwrap
//   PLACE                a max of one value is that value
#pragma once

#include "tools/rules/prove/denote.h"
#include "tools/rules/prove/derive.h"

namespace tegula::superopt {

struct Proof {
  bool is_proven = false;
  std::vector<std::string> steps;
  // Where not proven: in words, and the conditions on sizes of which any would have closed the
  // case.
  std::string failure;
  std::vector<Guard> missing;
};
Proof prove(const Rule& rule);

// One normal form of a term: bound variables renamed and shifted so that equal sums have equal
// texts.
struct Canonical {
  Term term;
  std::vector<std::string> steps;
  std::string signature;  // of factors alone, without coefficient and guards
};
std::string text_in_any_order(const Branch& branch);
// Gives names of its own, r<n>, to what inner scopes bind as z<n>: canonical() names variables of
// scopes beside one another alike, and what an outer scope takes in must not meet its like there.
void freshen(Term& term, const std::string& place, int64_t& fresh, std::vector<std::string>& steps);
Canonical canonical(const Term& term, const std::string& place, int64_t& fresh, int64_t next_c = 0);

}  // namespace tegula::superopt
