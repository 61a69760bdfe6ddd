// A function of some tensors, run as it is compiled and as its ops' references define it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tegula/base/element.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/interpret.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"

namespace tegula {

inline HostTensor tensor_of_ints(DType dtype, const Shape& shape, std::vector<int64_t> values) {
  HostTensor t({dtype, shape});
  EXPECT_EQ(static_cast<size_t>(t.numel()), values.size());
  for (size_t i = 0; i < values.size(); ++i) store_int(t.ref(), static_cast<int64_t>(i), values[i]);
  return t;
}
inline std::vector<int64_t> ints_of(const HostTensor& t) {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < t.numel(); ++i) v.push_back(load_int(t.ref(), i));
  return v;
}

struct RanBoth {
  std::vector<HostTensor> compiled, reference;
  Error error;  // where results are missing
  bool ok() const { return !compiled.empty(); }
};

// make(builder, parameters) gives the results. The reference runs at the tensors' own precision.
template <class Make>
RanBoth run_both(const std::vector<HostTensor>& in, Make&& make) {
  RanBoth out;
  const auto run = [&]() -> Status {
    const auto module = std::make_shared<Module>();
    Builder b(*module, "f");
    std::vector<Var> x;
    for (const HostTensor& t : in) x.push_back(b.param(cat("x", x.size()), t.type));
    const std::vector<Var> ys = make(b, std::span<const Var>(x));
    for (size_t i = 0; i < ys.size(); ++i) b.result(cat("y", i), ys[i]);
    const FuncId f = TEGULA_TRY(b.finish_into_module());
    out.reference = TEGULA_TRY(interpret(*module, (*module)[f], in, Arithmetic::kNaive));
    const Compiled c = TEGULA_TRY(compile(module, f, {}));
    Rank rank(1);
    const auto session = TEGULA_TRY(Session::create(c.plan, rank));
    std::vector<HostTensor> values = in;
    for (size_t i = 0; i < values.size(); ++i)
      session->bind(static_cast<int>(i), values[i].bytes.data());
    TEGULA_TRY(session->run());
    for (size_t i = 0; i < ys.size(); ++i)
      out.compiled.push_back(copy_of(session->result(static_cast<int>(i))));
    return {};
  };
  if (Status st = run(); !st.ok()) out.error = st.error(), out.compiled.clear();
  return out;
}

}  // namespace tegula
