// The order of all passes, and the manager that runs them: times, verifies, dumps, disables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/passes/pass.h"

namespace tegula {

// Every pass in the order of the pipeline; some stand in it more than once.
std::span<const PassDef* const> pipeline();
// Phases in their order, and before each pass what it needs; the error names the pass. A pass of
// kAny belongs to the phase that it stands in.
Status check_order(std::span<const PassDef* const> passes);
const PassDef* find_pass(std::string_view name);  // null: none

inline constexpr PassPhase kAllPhases{0xff};

struct PipelineOptions {
  PassOptions pass;
  // Comma-separated names that are left out, each with a "-": "-fuse,-cse". Empty: none.
  std::string passes;
  bool verify = false;          // check the function's invariants after each pass that changed it
  std::string_view dump_after;  // comma-separated names, or "all"
  void (*dump)(std::string_view pass, const std::string& text) = nullptr;  // null: to stderr
  // Passes in another order than pipeline()'s, for tests; check_order() must allow it.
  std::span<const PassDef* const> order;
  // Only those of phases in [from, until): a step is cut between two such runs.
  PassPhase from = PassPhase::kAny, until = kAllPhases;
};

struct PassReport {
  std::string_view pass;
  std::string function;
  double ms = 0;
  int64_t nodes_before = 0;
  int64_t nodes_after = 0;
  bool changed = false;
};

// Runs the pipeline on a function and first on the functions its nodes hold as regions. On an error
// the module is undefined.
Result<std::vector<PassReport>> run_passes(Module& module, FuncId f,
                                           const PipelineOptions& options = {});

// Runs one pass on one function; true: it changed.
Result<bool> run_pass(Module& module, FuncId f, const PassDef& pass,
                      const PassOptions& options = {});

// A table of the reports: pass, milliseconds, nodes before and after or "unchanged".
std::string to_text(std::span<const PassReport> reports);

}  // namespace tegula
