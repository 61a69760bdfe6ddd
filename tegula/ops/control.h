// Control flow in model code: loops and branches whose bodies are functions of the same module.
//
//   auto out = scan(b, {h0}, {x}, {w}, [](Builder&, Vars c, Vars x, Vars w) -> StepResult {
//     const Var h = tanh(matmul(c[0], w[0]) + x[0]);
//     return {{h}, {h}};
//   });                            // out.carry[0]: the last h; out.ys[0]: every h, [length, …]
//
// A body captures nothing: what it reads of the outside is passed to it (carry, xs, invariants).
// All of it can be differentiated, in both modes and repeatedly, and nested in any way.
// Source: control flow as functional ops, Yu et al. 2018, sections 2 and 5.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "tegula/ir/builder.h"

namespace tegula {

using Vars = std::span<const Var>;

// A list of Vars in a call: {a, b}, a vector or a span.
class VarList {
 public:
  VarList() = default;
  VarList(std::initializer_list<Var> vars) : vars_(vars) {}
  VarList(std::vector<Var> vars) : vars_(std::move(vars)) {}
  VarList(Vars vars) : vars_(vars.begin(), vars.end()) {}
  template <size_t N>
  VarList(const Var (&vars)[N]) : vars_(vars, vars + N) {}
  operator Vars() const { return vars_; }
  const Var& operator[](size_t i) const { return vars_[i]; }
  size_t size() const { return vars_.size(); }
  auto begin() const { return vars_.begin(); }
  auto end() const { return vars_.end(); }

 private:
  std::vector<Var> vars_;
};

// The results of a step of scan: the next carry and this step's row of every y.
struct StepResult {
  std::vector<Var> carry, ys;
};
struct ScanResult {
  std::vector<Var> carry, ys;
};
struct ScanOptions {
  bool reverse = false;  // from the last x to the first; ys keep the places of their xs
  Dim length = Dim(-1);  // of the time dim; taken from xs if there are any
};

namespace control {  // the halves of the templates below that do not depend on the lambda
// A builder for a function of b's module; `finish` adds it and hands errors to b (kNone then).
class Body {
 public:
  Body(Builder& b, std::string_view what);
  std::vector<Var> params(std::string_view prefix, std::span<const Type> types);
  Builder& builder() { return body_; }
  FuncId finish(Vars results, Vars more = {});

 private:
  Builder& outer_;
  Builder body_;
};
std::vector<Type> types_of(Vars vars);
std::vector<Type> slice_types(Vars vars);
ScanResult emit_scan(Builder& b, FuncId body, Vars carry, Vars xs, Vars invariants,
                     const ScanOptions& options, Loc loc);
std::vector<Var> emit_while(Builder& b, FuncId condition, FuncId body, Vars carry, Vars invariants,
                            int64_t max_trips, Loc loc);
std::vector<Var> emit_cond(Var predicate, FuncId then, FuncId otherwise, Vars operands,
                           size_t n_results, Loc loc);
}  // namespace control

// (carry, y_t) = body(carry, x_t, invariants) for t = 0 … length-1: body(Builder&, Vars carry,
// Vars x, Vars invariants) -> StepResult. Results: the last carry, and ys stacked along dim 0.
template <class F>
ScanResult scan(Builder& b, const VarList& carry, const VarList& xs, const VarList& invariants,
                F&& body, const ScanOptions& options = {}, Loc loc = Loc::current()) {
  control::Body f(b, "scan");
  const auto c = f.params("c", control::types_of(carry));
  const auto x = f.params("x", control::slice_types(xs));
  const auto i = f.params("i", control::types_of(invariants));
  StepResult r = body(f.builder(), Vars(c), Vars(x), Vars(i));
  const FuncId id = f.finish(r.carry, r.ys);
  return control::emit_scan(b, id, carry, xs, invariants, options, loc);
}

// predicate (a bool scalar) ? then(operands) : otherwise(operands); each (Builder&, Vars operands)
// -> std::vector<Var>, with results of the same types.
template <class Then, class Else>
std::vector<Var> cond(Var predicate, const VarList& operands, Then&& then, Else&& otherwise,
                      Loc loc = Loc::current()) {
  Builder& b = predicate.builder();
  control::Body f(b, "then"), g(b, "else");
  const auto x = f.params("x", control::types_of(operands));
  const std::vector<Var> y = then(f.builder(), Vars(x));
  const FuncId first = f.finish(y);
  const auto z = g.params("x", control::types_of(operands));
  const FuncId second = g.finish(otherwise(g.builder(), Vars(z)));
  return control::emit_cond(predicate, first, second, operands, y.size(), loc);
}

// while (condition(carry, invariants)) carry = body(carry, invariants), at most max_trips times.
// condition(Builder&, Vars carry, Vars invariants) -> Var (a bool scalar); body -> the next carry.
// The bound prices the loop, and is how many steps its reverse mode keeps.
template <class Condition, class F>
std::vector<Var> while_loop(Builder& b, const VarList& carry, const VarList& invariants,
                            int64_t max_trips, Condition&& condition, F&& body,
                            Loc loc = Loc::current()) {
  control::Body p(b, "while"), f(b, "do");
  auto c = p.params("c", control::types_of(carry));
  auto i = p.params("i", control::types_of(invariants));
  const Var go = condition(p.builder(), Vars(c), Vars(i));
  const FuncId test = p.finish(std::span(&go, 1));
  c = f.params("c", control::types_of(carry));
  i = f.params("i", control::types_of(invariants));
  const std::vector<Var> next = body(f.builder(), Vars(c), Vars(i));
  return control::emit_while(b, test, f.finish(next), carry, invariants, max_trips, loc);
}

// The function's results on these arguments: one node. (inline_call copies the body instead.)
std::vector<Var> call(Builder& b, FuncId f, const VarList& args, Loc loc = Loc::current());

}  // namespace tegula
