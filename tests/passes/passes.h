// What tests of passes share.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pipeline.h"

namespace tegula {

// Runs one pass; the test fails on an error.
inline bool run(Module& m, FuncId f, std::string_view name, const PassOptions& options = {}) {
  const PassDef* pass = find_pass(name);
  if (!pass) {
    ADD_FAILURE() << "no pass " << name;
    return false;
  }
  auto changed = run_pass(m, f, *pass, options);
  if (!changed.ok()) ADD_FAILURE() << changed.error().to_string();
  return changed.ok() && *changed;
}

inline FuncId finish(Builder& b) {
  auto f = b.finish_into_module();
  if (!f.ok()) ADD_FAILURE() << f.error().to_string();
  return f.ok() ? *f : 0;
}

inline int count(const Function& f, const OpDef& op) {
  int n = 0;
  for (const Node& node : f.nodes) n += node.op == &op;
  return n;
}

inline const Node* only(const Function& f, const OpDef& op) {
  const Node* found = nullptr;
  for (const Node& node : f.nodes)
    if (node.op == &op) {
      if (found) ADD_FAILURE() << "more than one " << op.name;
      found = &node;
    }
  if (!found) ADD_FAILURE() << "no " << op.name;
  return found;
}

}  // namespace tegula
