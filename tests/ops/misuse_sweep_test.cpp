// Every op of the table is given what it must not be given: empty Vars, those of another builder,
// those made after an error, other ranks and dtypes, numbers out of every range. Each gives an
// error where it must, and none crashes or runs on for ever.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tegula/ops/table.h"
#include "tests/ops/case.h"
#include "tests/ops/vocabulary.h"

namespace tegula::testing {
namespace {

constexpr std::string_view kFirst = "the first error";

void for_each_case(const std::function<void(const Case&)>& fn) {
  for (const OpDef* op : all_ops()) {
    if (!op->samples) continue;
    for (const Sample& s : op->samples()) {
      if (!s.expect_error.empty()) continue;
      SCOPED_TRACE(cat(op->name, ", ", s.name));
      fn(make_case(*op, s, 1));
    }
  }
}

struct Emission {
  Module module;
  std::vector<FuncId> regions;
  std::optional<Builder> builder;
  std::vector<Var> in;
  explicit Emission(const Case& c) : module(c.module), regions(c.regions) {
    builder.emplace(module, "f");
    for (const Type& t : c.in) in.push_back(builder->param(cat("x", in.size()), t));
  }
  std::vector<Var> emit(const Case& c) {
    return builder->emit_n(*c.op, c.sample.attrs, in, regions);
  }
};

TEST(MisuseSweep, EveryOpRefusesVarsThatAreNotItsBuilders) {
  BadVars bad;
  int n = 0;
  for_each_case([&](const Case& c) {
    for (size_t k = 0; k < c.in.size(); ++k)
      for (const Bad kind : kBad) {
        Emission e(c);
        e.in[k] = bad.make(kind, c.in[k]);
        const auto out = e.emit(c);
        EXPECT_NE(error_of(*e.builder).find(cat("operand ", k)), std::string::npos)
            << error_of(*e.builder);
        for (const Var& v : out) EXPECT_TRUE(v.is_poison());
        ++n;
      }
  });
  EXPECT_GT(n, 3000);
}

TEST(MisuseSweep, OperandsOfOtherTypesAndCounts) {
  for_each_case([&](const Case& c) {
    const auto attempt = [&](std::vector<Type> types) {
      Module m = c.module;
      m.symbols = {{"s", 4}, {"t", 6}};
      Builder b(m, "f");
      std::vector<Var> in;
      for (const Type& t : types) in.push_back(b.param(cat("x", in.size()), t));
      (void)b.emit_n(*c.op, c.sample.attrs, in, c.regions);
    };
    for (size_t k = 0; k < c.in.size(); ++k) {
      std::vector<Type> types = c.in;
      for (const DType d : {DType::kF64, DType::kBF16, DType::kI32, DType::kI64, DType::kI8,
                            DType::kBool, DType::kF8E4M3}) {
        types[k].dtype = d;
        attempt(types);
      }
      for (int rank = 0; rank <= kMaxRank; ++rank) {
        types = c.in, types[k].shape = {};
        for (int d = 0; d < rank; ++d) types[k].shape.push_back(d % 3);
        attempt(types);
      }
      for (int d = 0; d < c.in[k].shape.rank(); ++d)
        for (const Dim size : {Dim(0), Dim(1), Dim(1000), Dim::of(0, 4), *add(Dim::of(1, 6), -2)}) {
          types = c.in, types[k].shape[d] = size;
          attempt(types);
        }
    }
    std::vector<Type> more = c.in;
    for (int k = 0; k < 3; ++k) more.push_back({DType::kF32, {2, 3}}), attempt(more);
    for (more = c.in; !more.empty(); attempt(more)) more.pop_back();
  });
}

TEST(MisuseSweep, AttributesOutOfEveryRange) {
  constexpr int64_t kFar[] = {
      -1,        0,        7, 1000, -1000, int64_t{1} << 20, int64_t{1} << 40, int64_t{1} << 62,
      INT64_MAX, INT64_MIN};
  for_each_case([&](const Case& c) {
    const auto attempt = [&](const Attrs& attrs) {
      Emission e(c);
      (void)e.builder->emit_n(*c.op, attrs, e.in, e.regions);
    };
    for (const auto& [name, value] : c.sample.attrs)
      for (const int64_t far : kFar) {
        Attrs a = c.sample.attrs;
        if (value.holds<int64_t>()) a.set(name, far);
        if (value.holds<double>()) a.set(name, static_cast<double>(far));
        if (value.holds<std::string>())
          a.set(name, far == 0 ? std::string() : cat("? ", far, ", ->"));
        if (const auto* list = value.get_if<std::vector<int64_t>>()) {
          for (size_t i = 0; i < list->size(); ++i) {
            auto other = *list;
            other[i] = far;
            a.set(name, other), attempt(a);
          }
          auto other = *list;
          other.push_back(far), a.set(name, other), attempt(a);
          other.clear(), a.set(name, other);
        }
        if (const auto* list = value.get_if<std::vector<Dim>>()) {
          for (size_t i = 0; i < list->size(); ++i) {
            auto other = *list;
            other[i] = far;
            a.set(name, other), attempt(a);
            other[i] = Dim::of(3, 5);  // no symbol of the module
            a.set(name, other), attempt(a);
          }
          auto other = *list;
          other.push_back(far), a.set(name, other), attempt(a);
          a.set(name, std::vector<Dim>(9, Dim(1))), attempt(a);
          other.clear(), a.set(name, other);
        }
        attempt(a);
      }
    for (const AttrDef& def : c.op->attrs) {  // one that is there, of another kind
      Attrs a = c.sample.attrs;
      a.set(def.name,
            def.kind == AttrKind::kInts ? AttrValue(1.0) : AttrValue(std::vector<int64_t>{}));
      attempt(a);
    }
    for (const std::vector<FuncId>& regions :
         {std::vector<FuncId>{}, {kNone}, {0}, {7}, {0, 0}, {0, 0, 0}}) {
      Emission e(c);
      (void)e.builder->emit_n(*c.op, c.sample.attrs, e.in, regions);
    }
  });
}

// Fails at a node, from which on all is poison.
class FailsAt : public Builder {
 public:
  FailsAt(Module& module, int node) : Builder(module, "fails"), left_(node) {}
  ValueId append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) override {
    const ValueId first = Builder::append(std::move(node), std::move(inputs), types);
    if (left_-- == 0) fail(invalid_argument(std::string(kFirst)));
    return first;
  }

 private:
  int left_;
};

// A rule of a derivative, or a decomposition, any of whose nodes is refused, ends with that error.
TEST(MisuseSweep, EveryRuleEndsAtItsFirstError) {
  int n = 0;
  const auto any_float = [](std::span<const Type> types) {
    return std::any_of(types.begin(), types.end(), [](const Type& t) { return is_float(t.dtype); });
  };
  for_each_case([&](const Case& c) {
    if (!any_float(c.in) || !any_float(c.out)) return;  // autodiff does not ask
    for (int rule = 0; rule < 3; ++rule)
      for (int node = 1; node < 60; ++node) {
        Module m = c.module;
        FailsAt b(m, node);
        std::vector<Var> in, d;
        for (const Type& t : c.in) in.push_back(b.param(cat("x", in.size()), t));
        auto out = b.emit_n(*c.op, c.sample.attrs, in, c.regions);
        if (b.failed()) break;  // an op that is never emitted so
        for (const Type& t : rule == 0 ? c.out : c.in)
          d.push_back(is_float(t.dtype) ? b.param(cat("d", d.size()), t) : Var());
        const OpCall call{c.op, &c.sample.attrs, c.in, c.out, &m, c.regions};
        if (rule == 0 && c.op->vjp) (void)c.op->vjp(b, {&call, in, out, d});
        if (rule == 1 && c.op->jvp) (void)c.op->jvp(b, {&call, in, out, d});
        if (rule == 2 && c.op->decompose) (void)c.op->decompose(b, call, in);
        if (!b.failed()) break;  // it has no such node
        EXPECT_EQ(b.error().message, kFirst);
        ++n;
      }
  });
  EXPECT_GT(n, 2000);
}

}  // namespace
}  // namespace tegula::testing
