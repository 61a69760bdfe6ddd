// Eager: a Builder that computes each op the moment it is called. The same model code, and
// autodiff, run on it unchanged; results have the bits of the compiled function, because an op's
// numeric order does not depend on how it was reached.
//
//   Eager e(rank);
//   Var x = e.tensor({DType::kF32, {2, 3}}, data);
//   Var y = gelu(x) * 2.0;
//   TensorRef r = e.read(y).value();
//
// An op is traced into a function of one node, compiled through the ordinary path, cached by op,
// attributes and types, and run. An array carries its error to the first read.
//
// Memory: a value lives as long as a Var names it, or a value that was computed from it, since a
// gradient may still go that way. detach() ends that way: weights that an optimizer has stepped are
// detached, and a loop of training then holds what one step needs. What nobody can reach is freed
// in tensor(), detach() and read(), before it is twice what can be reached.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/ir/builder.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"

namespace tegula {

class Eager : public Builder {
 public:
  explicit Eager(Rank& rank, CompileOptions options = {});
  ~Eager() override;

  // A copy of `data`, row-major. Errors: a symbolic size; no data.
  Var tensor(const Type& type, const void* data);
  // The same value, in the same memory, as if it had been given by tensor().
  Var detach(Var v);
  // The value's memory, contiguous, as long as v or a copy of it lives. Errors: the first error of
  // any op so far; a value of another builder.
  Result<TensorRef> read(const Var& v);

  ValueId append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) override;
  VarCount* hold(ValueId v) override;

  int64_t compiled() const { return static_cast<int64_t>(cache_.size()); }
  // Held now: Σ bytes of values, and how many they are.
  int64_t held_bytes() const { return held_bytes_; }
  int64_t held_values() const { return static_cast<int64_t>(function_.values.size()); }

 private:
  struct Held {
    std::shared_ptr<Region> memory;  // also of values detached from this one
    VarCount* count = nullptr;       // one holder is this Eager
  };
  Eager(std::shared_ptr<Module> module, Rank& rank, CompileOptions options);
  Result<Session*> session_for(const Node& node, std::span<const ValueId> inputs);
  Status run_node(const Node& node, std::span<const ValueId> inputs, std::span<const Type> types,
                  ValueId first);
  bool has_memory(const Var& v, std::string_view what);
  void keep(ValueId v, std::shared_ptr<Region> memory);
  std::vector<bool> reachable() const;
  void collect();

  std::shared_ptr<Module> shared_;
  Rank& rank_;
  CompileOptions options_;
  std::vector<Held> held_;  // per value
  int64_t held_bytes_ = 0;
  int64_t most_bytes_ = 0, most_values_ = 0;  // beyond which collect() looks
  int64_t named_ = 0;                         // parameters, ever
  std::map<std::string, std::unique_ptr<Session>> cache_;
};

}  // namespace tegula
