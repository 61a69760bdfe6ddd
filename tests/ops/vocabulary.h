// The functions of ops/*.h as data: what each takes, and a call of it. Also Vars that must be
// refused.
#pragma once

#include <functional>
#include <set>

#include "tegula/tegula.h"

namespace tegula::testing {

using Ints = std::span<const int64_t>;
struct Function {
  std::string name;
  std::vector<Type> in;
  std::vector<int64_t> ints;  // every number that it takes
  std::function<std::vector<Var>(Vars, Ints)> call;
  std::set<size_t> optional = {};  // operands that may be empty
  bool is_exact = true;            // the valid call has no error
};

// Every function that takes a Var, some more than once.
const std::vector<Function>& vocabulary();

enum class Bad { kEmpty, kForeign, kFinished, kOrphaned };
constexpr Bad kBad[] = {Bad::kEmpty, Bad::kForeign, Bad::kFinished, Bad::kOrphaned};

// Vars that a builder must refuse.
class BadVars {
 public:
  BadVars() {
    (void)finished_.param("x", {DType::kF32, {2}});
    was_ = finished_.param("y", {DType::kF32, {2, 3}});
    TEGULA_CHECK(finished_.finish().ok(), "a function of nothing");
  }
  // A value of that type where it can have one.
  Var make(Bad bad, const Type& type) {
    if (bad == Bad::kForeign) return foreign_.param("x", type);
    if (bad == Bad::kFinished) return was_;
    if (bad == Bad::kOrphaned) return Var() + Var();
    return {};
  }

 private:
  Module module_;
  Builder foreign_{module_, "foreign"}, finished_{module_, "finished"};
  Var was_;
};

inline std::string error_of(Builder& b) { return b.failed() ? b.error().message : ""; }

}  // namespace tegula::testing
