// Every op's samples with sizes made symbolic: one program, compiled at the bounds and run at the
// extents 0, 1, bound - 1 and bound, beside the same program built with constants of those sizes.
// Results and gradients have equal bits, compiled and by reference, but at sizes of 1; and what the
// constants refuse, the run refuses.
//
// In ctest: every size of every sample, where it stands in all places at once. By command: random
// choices of places, two symbols, other values.
//   TEGULA_SWEEP_SECONDS=1200 build/release/tests/tests_ops --gtest_filter=SymbolsSweep.*
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tegula/ops/autodiff.h"
#include "tegula/runtime/compile.h"
#include "tests/common/run_plan.h"
#include "tests/common/sweep.h"
#include "tests/ops/case.h"

namespace tegula::testing {
namespace {

// Where a size stands in a sample.
struct Place {
  int operand = -1;  // or
  std::string attr;  // its name
  size_t index = 0;  // dim, or item
  int64_t size = 0;
};

std::vector<Place> places_of(const Sample& s) {
  std::vector<Place> all;
  for (size_t k = 0; k < s.in.size(); ++k)
    for (int d = 0; d < s.in[k].type.shape.rank(); ++d)
      all.push_back(
          {static_cast<int>(k), "", static_cast<size_t>(d), s.in[k].type.shape[d].bound()});
  for (const auto& [name, value] : s.attrs)
    if (const auto* dims = value.get_if<std::vector<Dim>>())
      for (size_t i = 0; i < dims->size(); ++i) all.push_back({-1, name, i, (*dims)[i].bound()});
  return all;
}

// Which places hold which symbol; bounds are the sizes that stand there.
struct Choice {
  std::vector<int> symbol;  // per place; -1: constant
  std::vector<int64_t> bounds;
};

struct Built {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId function = kNone;
  std::string refused;  // by the op itself
  std::string failed;   // what comes after it
};

// The op on parameters, and its gradients. `extents`: constants instead of symbols.
Built build(const Case& c, const std::vector<Place>& places, const Choice& choice,
            const std::vector<int64_t>* extents) {
  Built out;
  *out.module = c.module;
  std::vector<Dim> symbols;
  for (size_t s = 0; s < choice.bounds.size(); ++s)
    symbols.push_back(extents ? Dim((*extents)[s])
                              : out.module->add_symbol(cat("n", s), choice.bounds[s]));
  std::vector<Type> types = c.in;
  Attrs attrs = c.sample.attrs;
  for (size_t p = 0; p < places.size(); ++p) {
    if (choice.symbol[p] < 0) continue;
    const Dim d = symbols[static_cast<size_t>(choice.symbol[p])];
    if (places[p].operand >= 0) {
      types[static_cast<size_t>(places[p].operand)].shape[static_cast<int>(places[p].index)] = d;
    } else {
      attrs.find(places[p].attr)->get<std::vector<Dim>>()[places[p].index] = d;
    }
  }
  Builder b(*out.module, "sample");
  std::vector<Var> x, active;
  for (size_t k = 0; k < types.size(); ++k) {
    x.push_back(b.param(cat("x", k), types[k]));
    if (is_float(types[k].dtype) && c.sample.in[k].is_differentiable) active.push_back(x.back());
  }
  const auto y = b.emit_n(*c.op, attrs, x, c.regions);
  if (b.failed()) {
    out.refused = b.error().message;
    return out;
  }
  std::vector<Var> ys, cts;
  for (size_t r = 0; r < y.size(); ++r) {
    b.result(cat("y", r), y[r]);
    if (is_float(y[r].dtype())) ys.push_back(y[r]);
  }
  if ((c.op->vjp || c.op->decompose) && !active.empty() && !ys.empty()) {
    for (size_t i = 0; i < ys.size(); ++i) cts.push_back(b.param(cat("ct", i), ys[i].type()));
    const auto g = pullback(b, ys, cts, active);
    for (size_t i = 0; i < g.size(); ++i)
      if (g[i].valid()) b.result(cat("dx", i), g[i]);
  }
  auto f = b.finish_into_module();
  if (!f.ok()) {
    out.failed = f.error().message;
  } else {
    out.function = *f;
  }
  return out;
}

// The corner of a tensor that has that shape.
HostTensor corner(const HostTensor& whole, const Shape& shape) {
  HostTensor out(Type{whole.type.dtype, shape});
  TensorRef part = whole.ref();
  for (int d = 0; d < part.rank; ++d) part.shape[d] = shape[d].bound();
  copy_into(out.ref(), part);
  return out;
}

// A constant 1 is no dim, so sums may go another way.
bool has_one(const Function& f, std::span<const int64_t> extents) {
  for (const Value& v : f.values)
    for (const Dim& d : v.type.shape)
      if (!d.is_const() && d.at(extents) == 1) return true;
  return false;
}

// Empty: equal (any two NaNs are), by bits, or but for what rounding does to sums of at most 2^7
// terms, twice.
std::string differs(const std::vector<HostTensor>& have, const std::vector<HostTensor>& want,
                    bool by_bits) {
  if (have.size() != want.size()) return cat(have.size(), " results, not ", want.size());
  for (size_t r = 0; r < want.size(); ++r) {
    const DType t = want[r].type.dtype;
    if (have[r].type.dtype != t) return cat("result ", r, " is ", have[r].type);
    const double slack = is_float(t) && !by_bits ? 0x1p8 * epsilon(t) / 2 : 0;
    if (auto d = difference(have[r], want[r], slack); !d.empty()) return cat("result ", r, ": ", d);
  }
  return "";
}

Result<std::shared_ptr<const Plan>> compiled(const Built& b) {
  CompileOptions o;
  o.plan.verify = true;
  return TEGULA_TRY(compile(b.module, b.function, o)).plan;
}

// Counts the choices tried: how many of which kind, and by op which never were symbolic.
struct Tally {
  int refused = 0, run = 0, refused_at_run = 0;
  int stricter = 0;  // runs that are refused, though the constants would run
  std::set<std::string_view> symbolic;
};

// One choice of one sample; empty: all is well.
std::string check(const Case& c, const std::vector<Place>& places, const Choice& choice,
                  std::mt19937_64& rng, Tally& tally) {
  const Built any = build(c, places, choice, nullptr);
  if (!any.refused.empty()) {
    ++tally.refused;
    return "";
  }
  // Sizes that a program must keep apart: said when its gradient or its lowering multiplies them.
  const auto is_product = [&](const std::string& why) {
    const bool is = why.find("is not representable") != std::string::npos;
    tally.refused += is;
    return is;
  };
  if (is_product(any.failed)) return "";
  if (!any.failed.empty()) return cat("gradient: ", any.failed);
  tally.symbolic.insert(c.op->name);
  const Function before = (*any.module)[any.function];
  const Module original = *any.module;
  auto plan = compiled(any);
  if (!plan.ok())
    return is_product(plan.error().message) ? "" : cat("compile: ", plan.error().message);
  std::vector<HostTensor> whole = c.values;
  for (size_t p = whole.size(); p < before.params.size(); ++p) {
    Type t = before.type(before.params[p].value);
    for (int d = 0; d < t.shape.rank(); ++d) t.shape[d] = t.shape[d].bound();
    whole.push_back(test::random_tensor(t, c.seed + 7 * p));
  }
  std::vector<std::vector<int64_t>> all(4);
  for (const int64_t bound : choice.bounds) {
    const int64_t tries[] = {0, std::min<int64_t>(1, bound), bound - 1, bound};
    const size_t turn = choice.bounds.size() > 1 ? rng() % 4 : 0;
    for (size_t i = 0; i < 4; ++i) all[i].push_back(tries[(i + turn) % 4]);
  }
  for (const auto& extents : all) {
    const std::string at = cat("at ", extents, ": ");
    const Built one = build(c, places, choice, &extents);
    const std::string refused = one.refused.empty() ? one.failed : one.refused;
    std::vector<HostTensor> in;
    bool is_shape = true;  // a result may have a dim below 0 here
    for (size_t p = 0; p < before.params.size(); ++p) {
      const Shape shape = before.type(before.params[p].value).shape.at(extents);
      for (const Dim& d : shape) is_shape &= d.bound() >= 0;
      if (is_shape) in.push_back(corner(whole[p], shape));
    }
    if (!is_shape) in = whole;
    auto have = test::try_run_plan(**plan, in, extents);
    auto naive = interpret(original, before, in, Arithmetic::kNaive, extents);
    if (have.ok() != naive.ok())
      return cat(at, "compiled ", have.ok() ? "runs" : have.error().message, ", by reference ",
                 naive.ok() ? "runs" : naive.error().message);
    if (!refused.empty()) {
      ++tally.refused_at_run;
      if (have.ok()) return cat(at, "runs, where constants are refused: ", refused);
      continue;
    }
    if (!have.ok()) {  // of nothing, or of 1, a constant may do what a size in between does not
      if (have.error().message.find("is outside [") == std::string::npos)
        return cat(at, "constants run, but ", have.error().message);
      ++tally.stricter;
      continue;
    }
    ++tally.run;
    // For a head whose classes or tokens are symbolic no kernel knows that there are any: its
    // reference runs.
    const bool is_head = c.op->name.starts_with("linear_cross_entropy");
    const bool by_bits = !is_head && !has_one(before, extents);
    auto want_naive = interpret(*one.module, (*one.module)[one.function], in, Arithmetic::kNaive);
    if (!want_naive.ok()) return cat(at, want_naive.error().message);
    if (auto d = differs(*naive, *want_naive, by_bits); !d.empty())
      return cat(at, "by reference, ", d);
    auto constant = compiled(one);
    if (!constant.ok()) return cat(at, "compile: ", constant.error().message);
    auto want = test::try_run_plan(**constant, in);
    if (!want.ok()) return cat(at, want.error().message);
    if (auto d = differs(*have, *want, by_bits); !d.empty()) return cat(at, d);
  }
  return "";
}

std::string describe(const Case& c, const std::vector<Place>& places, const Choice& choice) {
  std::string where;
  for (size_t p = 0; p < places.size(); ++p)
    if (choice.symbol[p] >= 0)
      where += cat(" n", choice.symbol[p], "=",
                   places[p].operand >= 0 ? cat("x", places[p].operand) : places[p].attr, "[",
                   places[p].index, "]");
  return cat(c.name(), ",", where, ": ");
}

struct Entry {
  const OpDef* op;
  Sample sample;
};
std::vector<Entry> valid_samples() {
  std::vector<Entry> all;
  for (const OpDef* op : all_ops())
    if (op->samples)
      for (Sample& s : op->samples())
        if (s.expect_error.empty()) all.push_back({op, std::move(s)});
  return all;
}

TEST(SymbolsSweep, EverySizeOfEverySample) {
  std::mt19937_64 rng(1);
  Tally tally;
  for (const Entry& e : valid_samples()) {
    const Case c = make_case(*e.op, e.sample, 1);
    const auto places = places_of(e.sample);
    std::set<int64_t> sizes;
    for (const Place& p : places) sizes.insert(p.size);
    for (const int64_t size : sizes) {
      if (size == 0) continue;
      Choice choice{{}, {size}};
      for (const Place& p : places) choice.symbol.push_back(p.size == size ? 0 : -1);
      const std::string why = check(c, places, choice, rng, tally);
      if (!why.empty()) ADD_FAILURE() << describe(c, places, choice) << why;
    }
  }
  std::printf("%d sizes refused by the op; %d runs, %d refused runs; %zu ops were symbolic\n",
              tally.refused, tally.run, tally.refused_at_run, tally.symbolic.size());
  EXPECT_LT(tally.stricter, tally.run / 50);
  EXPECT_GT(tally.symbolic.size(), all_ops().size() * 3 / 4);
}

TEST(SymbolsSweep, RandomPlaces) {
  const auto samples = valid_samples();
  Tally tally;
  test::Sweep sweep(400);
  for (uint64_t number = 0; sweep.next(number);) {
    std::mt19937_64 rng(number);
    const Entry& e = samples[rng() % samples.size()];
    const auto places = places_of(e.sample);
    if (places.empty()) continue;
    const Case c = make_case(*e.op, e.sample, 1 + rng() % 100);
    Choice choice{std::vector<int>(places.size(), -1), {}};
    const int n_symbols = rng() % 3 == 0 ? 2 : 1;
    for (int s = 0; s < n_symbols; ++s) {
      const int64_t size = places[rng() % places.size()].size;
      if (size == 0) continue;
      const uint64_t kind = rng() % 3, only = rng() % places.size();
      bool any = false;
      for (size_t p = 0; p < places.size(); ++p) {
        if (choice.symbol[p] >= 0 || places[p].size != size) continue;
        // All of them, one of them (and all attributes), or a few.
        if (kind == 1 && p != only && places[p].operand >= 0) continue;
        if (kind == 2 && rng() % 2 == 0) continue;
        choice.symbol[p] = static_cast<int>(choice.bounds.size());
        any = true;
      }
      if (any) choice.bounds.push_back(size);
    }
    if (choice.bounds.empty()) continue;
    const std::string why = check(c, places, choice, rng, tally);
    if (!why.empty())
      ADD_FAILURE() << "case " << number << ": " << describe(c, places, choice) << why;
  }
  std::printf("%d choices refused by the op; %d runs, %d refused runs\n", tally.refused, tally.run,
              tally.refused_at_run);
  EXPECT_LE(tally.stricter, tally.run / 50);
}

}  // namespace
}  // namespace tegula::testing
