// Eager: a Builder that computes each op the moment it is called. The same model code, and
// autodiff, run on it unchanged; results have the bits of the compiled function, because an op's
// numeric order does not depend on how it was reached.
//
//   Eager e(pool);
//   Var x = e.tensor({DType::kF32, {2, 3}}, data);
//   Var y = gelu(x) * 2.0;
//   TensorRef r = e.read(y).value();
//
// An op is traced into a function of one node, compiled through the ordinary path, cached by op,
// attributes and types, and run. An array carries its error to the first read. Values live until
// the Eager does, or until release().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tegula/ir/builder.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"

namespace tegula {

class Eager : public Builder {
 public:
  explicit Eager(ThreadPool& pool, CompileOptions options = {});

  // A copy of `data`, row-major.
  Var tensor(const Type& type, const void* data);
  // The value's memory, contiguous. Error: the first error of any op so far.
  Result<TensorRef> read(Var v) const;
  // Frees every value except those given; others must not be used again.
  void release(std::span<const Var> keep);

  ValueId append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) override;

  int64_t compiled() const { return static_cast<int64_t>(cache_.size()); }

 private:
  Eager(std::shared_ptr<Module> module, ThreadPool& pool, CompileOptions options);
  Result<Session*> session_for(const Node& node, std::span<const ValueId> inputs);
  Status run_node(const Node& node, std::span<const ValueId> inputs, std::span<const Type> types,
                  ValueId first);

  std::shared_ptr<Module> shared_;
  ThreadPool& pool_;
  CompileOptions options_;
  std::vector<Region> memory_;  // per value
  std::map<std::string, std::unique_ptr<Session>> cache_;
};

}  // namespace tegula
