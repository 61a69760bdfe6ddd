// The invariants of a function, as numbered rules. A violation is an error that begins with its
// rule: "V3 dominance: function step, node 7 (add): operand 1 is value 12, which comes later".
//
//   V1 symbols      a symbolic dim names a symbol of the module, with its bound; sizes are ≥ 0, of
//                   at most kMaxElements elements in all
//   V2 values       every value is the parameter or the node's result that it says it is
//   V3 dominance    operands are parameters or results of earlier nodes
//   V4 regions      regions are functions of the module, none of which holds itself
//   V5 types        result types are those that infer() gives
//   V6 results      every result is a value of the function
//   V7 donations    a donated parameter and its result have one type; a result takes over only one
//   V8 state        names of weights and state are not empty, and unique
//   V9 sharding     the mesh's axes have names of their own; what is said to lie on it has a state
//                   for each axis; a dim is split by axes that divide its extent; parameters do not
//                   pend, and results do where the op sums, or passes on a sum that pends
//
// Whether shardings of operands and results go together, node by node, is a matter of cuts:
// passes/shard_check.h.
//
// Cost: infer() once per node; its dims once more where a result pends.
#pragma once

#include <array>

#include "tegula/ir/opdef.h"

namespace tegula {

enum class VerifyRule : uint8_t {
  kSymbols,
  kValues,
  kDominance,
  kRegions,
  kTypes,
  kResults,
  kDonations,
  kState,
  kSharding,
};
inline constexpr std::array<std::string_view, 9> kVerifyRules = {
    "V1 symbols", "V2 values",    "V3 dominance", "V4 regions", "V5 types",
    "V6 results", "V7 donations", "V8 state",     "V9 sharding"};

// One function, which need not stand in the module (its regions do). The first violation.
Status verify(const Module& module, const Function& f);
// Every function of the module.
Status verify(const Module& module);

}  // namespace tegula
