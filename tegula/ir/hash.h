// Hashes of text, attributes and types, what CSE and the sharing of fused bodies key on, and of
// functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "tegula/base/attrs.h"
#include "tegula/ir/module.h"

namespace tegula {

inline uint64_t mix(uint64_t h, uint64_t v) {  // [Steele et al. 2014, SplitMix64's finaliser]
  h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

uint64_t hash_of(std::string_view text);
uint64_t hash_of(const Attrs& attrs);
uint64_t hash_of(const Type& type);
// The hash of everything that the function's text says (ir/text.h), and of its regions, whatever
// their numbers: the same in every process. Where nothing is said of shardings, the mesh is left
// out, too.
uint64_t hash_of(const Module& module, const Function& f);

// Equal and indistinguishable: unlike ==, tells 0.0 from -0.0 and holds for NaN.
bool same_attrs(const Attrs& a, const Attrs& b);

}  // namespace tegula
