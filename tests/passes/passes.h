// Shared by tests of passes.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "tegula/ir/interpret.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pipeline.h"

namespace tegula {

// Kernels for those calls alone that has(call) is true of.
template <class F>
struct KernelsThat : Planning {
  explicit KernelsThat(F f) : has(f) {}
  bool has_kernel(const OpCall& call) const override { return has(call); }
  F has;
};

// Runs one pass; the test fails on an error.
bool run(Module& m, FuncId f, std::string_view name, const PassOptions& options = {});
FuncId finish(Builder& b);

int count(const Function& f, const OpDef& op);
const Node* only(const Function& f, const OpDef& op);
// Nodes that move or compute bytes: neither views nor constants.
int n_working(const Function& f);

// Inputs for f's parameters, drawn by seed: floats in [-2, 2), integers in [0, 4). Symbols are a
// little smaller than their bounds.
std::vector<int64_t> some_extents(const Module& m);
std::vector<HostTensor> random_inputs(const Module& m, const Function& f, uint64_t seed);
// Both functions give the same bits (any two NaNs are the same) on a few drawn inputs.
void expect_same_bits(const Module& m, const Function& before, const Function& after);
// Runs the pass; checks bits, that a second run changes nothing, and that no work is added.
// Returns whether it changed the function.
bool run_checked(Module& m, FuncId f, std::string_view name, const PassOptions& options = {});

}  // namespace tegula
