// Builder: writes a function by calling ops; Var: a handle to one of its values.
//
// Model code reads as maths: errors are sticky. The builder keeps the first error with its call
// site; from then on it adds no node and all its values are poison, what it makes a scalar, and
// finish() returns the error. A subclass may run each op at once instead (eager execution): the
// same model code serves both.
//
// A Var that names no value is empty: default constructed, moved from, or made of empty Vars alone.
// It may be passed to everything, is poison, and is an error of the first builder that meets it.
#pragma once

#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tegula/ir/module.h"
#include "tegula/ir/opdef.h"

namespace tegula {

using Loc = std::source_location;

// How many Vars name a value, for a builder that keeps memory for it (eager execution). It outlives
// both, and says which id the value has now; kNone: its builder is gone.
struct VarCount {
  ValueId id = kNone;
  uint32_t holders = 0;
};

class Var {
 public:
  Var() = default;
  Var(Builder* b, ValueId id);
  Var(const Var& other) noexcept;
  Var(Var&& other) noexcept
      : builder_(std::exchange(other.builder_, nullptr)),
        id_(other.id_),
        count_(std::exchange(other.count_, nullptr)) {}
  Var& operator=(const Var& other) noexcept;
  Var& operator=(Var&& other) noexcept;
  ~Var() {
    if (count_) let_go(count_);
  }
  bool valid() const { return builder_ != nullptr && !(count_ && count_->id == kNone); }
  explicit operator bool() const { return valid(); }
  // The builder of an empty Var is one that has failed and makes empty Vars.
  Builder& builder() const;
  ValueId id() const { return count_ ? count_->id : id_; }
  // Empty, or of a builder with an error: whoever gets one returns one.
  bool is_poison() const;
  // By value: the builder's own copy moves when the next node is added.
  Type type() const;
  DType dtype() const;
  Shape shape() const { return type().shape; }
  int rank() const;
  // Negative: from the end. One that is not there is an error of the builder, and 1.
  Dim dim(int i) const;

 private:
  static void let_go(VarCount* count) noexcept;
  Builder* builder_ = nullptr;
  ValueId id_ = kNone;
  VarCount* count_ = nullptr;  // null: nobody counts
};

class Builder {
 public:
  Builder(Module& module, std::string name);
  virtual ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Module& module() { return module_; }
  Function& function() { return function_; }
  // Valid until the next node is added. Of a value that is not there: a scalar.
  const Type& type(ValueId v) const {
    return v < function_.values.size() ? function_.values[v].type : poison_type_;
  }

  // Errors of the builder: sizes below 0 or past the bounds of base/sizes.h, symbols of another
  // module.
  Var param(std::string name, Type type, Role role = Role::kInput);
  Var weight(std::string name, Type type) { return param(std::move(name), type, Role::kWeight); }

  // Adds a node and infers its result types.
  std::vector<Var> emit_n(const OpDef& op, Attrs attrs, std::span<const Var> inputs,
                          std::vector<FuncId> regions = {}, Loc loc = Loc::current());
  // The same, its first result only.
  Var emit(const OpDef& op, Attrs attrs, std::initializer_list<Var> inputs,
           Loc loc = Loc::current());
  // Adds a node with other inputs, whose result types are already known (passes use this). Error:
  // an input that is not there.
  virtual ValueId append(Node node, std::vector<ValueId> inputs, std::span<const Type> types);

  void result(std::string name, Var v);
  // Says where v lies on the axes of the module's mesh that are named; on the others, all of it on
  // every rank. It is what `shard` (passes/shard.h) starts from: v is brought there as soon as it
  // is made, as by GSPMD's annotations (Xu et al. 2021, section 3.2). Errors: an axis that the mesh
  // does not have or that is named twice; a dim that it cannot split, with the numbers; a sum that
  // pends, which no annotation makes.
  void annotate(Var v, std::initializer_list<std::pair<std::string_view, AxisSharding>> where);
  // The result takes over parameter's buffer: state is overwritten in place.
  void donate(std::string_view param, std::string_view result);

  // Records the first error; returns a poison scalar so that tracing goes on.
  Var fail(Error error);
  bool failed() const { return error_.has_value(); }
  // Only when failed().
  const Error& error() const { return *error_; }
  bool owns(const Var& v) const { return v.valid() && &v.builder() == this; }
  // Whether v is not this builder's; says so in an error that begins with `what`.
  bool rejects(const Var& v, std::string_view what, Loc loc = Loc::current());
  // Stands for a dim that v has not: reports an error, and is 1.
  Dim no_dim(Var v, int i);

  // The function, or the first error. The builder is done then: what is asked of it afterwards is
  // an error.
  Result<Function> finish();
  // Finishes and adds the function to the module.
  Result<FuncId> finish_into_module();

  // Nodes added from now on have this origin (gradients carry their forward node's); none: the
  // caller's line, and the Scope they are written in.
  void set_origin(std::optional<Origin> origin) { origin_ = origin; }
  const std::optional<Origin>& origin() const { return origin_; }
  // Nodes added from now on belong to this phase.
  void set_phase(Phase phase) { phase_ = phase; }
  Phase phase() const { return phase_; }
  // Where a node added now stands.
  const std::string& scope() const { return module_.scopes[origin_ ? origin_->scope : scope_]; }

  bool counts_vars() const { return counts_vars_; }
  // A value's count, with one holder more; null: not counted.
  virtual VarCount* hold(ValueId) { return nullptr; }

 private:
  struct Emitted {
    ValueId first = kNone;  // kNone: it failed
    uint32_t n = 0;
  };
  Emitted add(const OpDef& op, Attrs attrs, std::span<const Var> inputs,
              std::vector<FuncId> regions, Loc loc);
  Var poison_of(std::span<const Var> inputs, Loc loc);
  std::vector<Type> operand_types_;  // of the node that is being added
  static const Type poison_type_;

 protected:
  Module& module_;
  Function function_;
  std::optional<Error> error_;
  ValueId poison_ = kNone;  // what fail() gives
  std::optional<Origin> origin_;
  uint32_t scope_ = 0;
  friend class Scope;
  Phase phase_ = Phase::kForward;
  bool counts_vars_ = false;
  bool is_nobody_ = false;  // the builder of empty Vars
  friend Builder& nobody();
};

// The builder of empty Vars, one a thread.
Builder& nobody();
// The builder of the first that has one: where a function of several Vars puts its errors.
Builder& builder_of(std::initializer_list<const Var*> vars);

// While it lives, nodes of the builder stand at this place of the model, within the places around
// it: "layers.3", in it "attn".
class Scope {
 public:
  Scope(Builder& b, std::string_view name);
  ~Scope() { b_.scope_ = outer_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Builder& b_;
  uint32_t outer_;
};

// Rebuilds a function node by node: what every rewriting pass is made of.
class Rewriter {
 public:
  Rewriter(Module& module, const Function& from);
  ~Rewriter();
  Builder& builder() { return builder_; }
  const Function& from() const { return from_; }
  // The new value of an old one.
  Var at(ValueId old) { return Var(&builder_, map_[old]); }
  ValueId id(ValueId old) const { return map_[old]; }
  bool has(ValueId old) const { return map_[old] != kNone; }
  void bind(ValueId old, Var v) { map_[old] = v.id(); }
  // Copies the node with mapped inputs and binds its outputs.
  void clone(const Node& node);
  // The same, but takes the node's attributes: for a function that is not read again.
  void take(Node& node);
  // Maps results and donations, and finishes.
  Result<Function> finish();

 private:
  const Function& from_;
  Builder builder_;
  std::vector<ValueId> map_;
};

}  // namespace tegula
