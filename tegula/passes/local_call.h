// LocalCall: one node's call as a rank sees it, after some of the mesh's axes have cut it.
#pragma once

#include <vector>

#include "tegula/ir/opdef.h"
#include "tegula/ir/sharding.h"

namespace tegula {

// How one axis of the mesh shares out a node's work.
struct AxisCut {
  enum Kind : uint8_t {
    kWhole,   // not at all: every rank does all of it
    kAlong,   // a factor of the op's dims: each rank has its share
    kLinear,  // every rank does all of it to its own part of pending sums
    kPieces,  // along a dim that the op cuts or joins itself, between whole pieces of it
    kRing,    // attention along queries, keys passed from rank to rank (passes/ring.h)
    kRows,    // along a factor that an operand's integers index, a table's rows: each rank counts
              // them from its first one, and those of other ranks select nothing
  };
  Kind kind = kWhole;
  int factor = -1;    // kAlong, kRows
  int64_t parts = 1;  // kAlong: of the factor, each shared out; kPieces: of the operands' dim
  friend bool operator==(const AxisCut&, const AxisCut&) = default;
};

struct LocalCall {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Type> in, out;
  const Module* module = nullptr;
  std::vector<FuncId> regions;

  LocalCall(const Module& module, const Function& f, const Node& n);
  OpCall call() const { return {op, &attrs, in, out, module, regions}; }

  // The call of rank `index` of the n of an axis. `map`: of this call, where it is at hand. Error:
  // the op's own about its part.
  Status cut(const AxisCut& cut, int64_t n, int64_t index, const DimMap* map = nullptr);
};

// The factors of dims 0 and 1 of operand 0, over which sums may have shards (ir/sum_shards.h); -1:
// there is none.
int outer_factor(const DimMap& map);
int inner_factor(const DimMap& map);
// The cut that goes with an operand that is split so on an axis of n ranks; kWhole: none does.
AxisCut cut_of_operand(const LocalCall& call, const DimMap& map, size_t operand,
                       const AxisSharding& split, int64_t n);
// The same of a result, and of an operand's rows that others index.
AxisCut cut_of_result(const LocalCall& call, const DimMap& map, size_t result,
                      const AxisSharding& split, int64_t n);
AxisCut cut_of_rows(const LocalCall& call, const DimMap& map, size_t operand,
                    const AxisSharding& split, int64_t n);
// The states that a cut wants of each operand, and gives; false: the cut is not possible.
bool states_of_cut(const LocalCall& call, const DimMap& map, const AxisCut& cut, int64_t n,
                   std::vector<AxisSharding>& in, std::vector<AxisSharding>& out);

}  // namespace tegula
