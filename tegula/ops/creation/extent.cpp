// The run-time extent of a symbolic dim, as a scalar.
#include "tegula/ops/common/rules.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    a.store_i_at(0, a.attrs().dims("size")[0].bound(), Index{});
  }
};
}  // namespace

constinit const OpDef extent_op = {
    .name = "extent",
    .formula = "y = the dim's extent in this run",
    .group = "creation",
    .dims_fn = [](const OpCall&) -> Result<DimMap> { return MapMaker(0).done(); },
    .types_fn = named_dtype,
    .attrs = {{"size", AttrKind::kDims, true, "the dim"},
              {"dtype", AttrKind::kDType, true, "element type"}},
    .reference = reference_of<Ref>,
    .samples =
        [] {
          return std::vector<Sample>{
              {"constant", {}, {{"size", std::vector<Dim>{12}}, {"dtype", DType::kF32}}}};
        },
};

}  // namespace tegula
