// A constant: one scalar `value`, or a vector of integer `values`.
#include "tegula/ops/common/literal.h"
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  MapMaker m(0);
  if (const AttrValue* v = c.attrs->find("values")) {
    const Dim n = std::ssize(v->get<std::vector<int64_t>>());
    m.result(0, n, m.factor("n", n));
  }
  return std::move(m).done();
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    if (const AttrValue* v = a.attrs().find("values")) {
      const auto& values = v->get<std::vector<int64_t>>();
      for (size_t i = 0; i < values.size(); ++i)
        a.store_i_at(0, values[i], Index{static_cast<int64_t>(i)});
    } else {
      a.store(0, S(a.attrs().f("value")));
    }
  }
};

Attrs localize(const OpCall& c, const DimMap&, int, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  const auto& v = a.ints("values");
  a.set("values", std::vector<int64_t>(v.begin() + lo, v.begin() + hi));
  return a;
}
}  // namespace

constinit const OpDef constant_op = {
    .name = "constant",
    .formula = "y = value",
    .group = "creation",
    .dims_fn = dims,
    .types_fn = named_dtype,
    .attrs = {{"dtype", AttrKind::kDType, true, "element type"},
              {"value", AttrKind::kFloat, false, "the scalar"},
              {"values", AttrKind::kInts, false, "integers of a vector"}},
    .check = [](const OpCall& c) -> Status {
      if (c.attrs->has("value") == c.attrs->has("values"))
        return invalid_argument("constant: give exactly one of value and values");
      if (!c.attrs->has("value")) return {};
      return check_literal(*c.op, c.attrs->f("value"), c.attrs->dtype("dtype"));
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          return std::vector<Sample>{
              {"scalar", {}, {{"dtype", DType::kF32}, {"value", 1.5}}},
              {"vector",
               {},
               {{"dtype", DType::kI64}, {"values", std::vector<int64_t>{3, -1, 4, 7}}}},
              {"neither", {}, {{"dtype", DType::kF32}}, "exactly one"},
              {"a fraction", {}, {{"dtype", DType::kI64}, {"value", 2.5}}, "does not hold 2.5"},
              {"too large", {}, {{"dtype", DType::kU8}, {"value", 256.0}}, "does not hold 256"}};
        },
    .localize = localize,
};

}  // namespace tegula
