#include "tests/passes/passes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tegula/base/philox.h"

namespace tegula {

bool run(Module& m, FuncId f, std::string_view name, const PassOptions& options) {
  const PassDef* pass = find_pass(name);
  if (!pass) {
    ADD_FAILURE() << "no pass " << name;
    return false;
  }
  auto changed = run_pass(m, f, *pass, options);
  if (!changed.ok()) ADD_FAILURE() << changed.error().to_string();
  return changed.ok() && *changed;
}

FuncId finish(Builder& b) {
  auto f = b.finish_into_module();
  if (!f.ok()) ADD_FAILURE() << f.error().to_string();
  return f.ok() ? *f : 0;
}

int count(const Function& f, const OpDef& op) {
  int n = 0;
  for (const Node& node : f.nodes) n += node.op == &op;
  return n;
}

const Node* only(const Function& f, const OpDef& op) {
  const Node* found = nullptr;
  for (const Node& node : f.nodes)
    if (node.op == &op) {
      if (found) ADD_FAILURE() << "more than one " << op.name;
      found = &node;
    }
  if (!found) ADD_FAILURE() << "no " << op.name;
  return found;
}

int n_working(const Function& f) {
  int n = 0;
  for (const Node& node : f.nodes) n += !node.op->is_view && node.op != &constant_op;
  return n;
}

std::vector<int64_t> some_extents(const Module& m) {
  std::vector<int64_t> extents;
  for (const Symbol& s : m.symbols) extents.push_back(std::max<int64_t>(s.bound - 2, 1));
  return extents;
}

std::vector<HostTensor> random_inputs(const Module& m, const Function& f, uint64_t seed) {
  const auto extents = some_extents(m);
  std::vector<HostTensor> in;
  for (const Param& p : f.params) {
    const Type& type = f.type(p.value);
    const Type t = {type.dtype, type.shape.at(extents)};
    HostTensor x(t);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double u = philox_uniform(seed, in.size(), static_cast<uint64_t>(i));
      x.put(i, is_float(t.dtype) ? 4 * u - 2 : std::floor((t.dtype == DType::kBool ? 2 : 4) * u));
    }
    in.push_back(std::move(x));
  }
  return in;
}

void expect_same_bits(const Module& m, const Function& before, const Function& after) {
  ASSERT_EQ(before.results.size(), after.results.size());
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const auto extents = some_extents(m);
    const auto in = random_inputs(m, before, seed);
    auto a = interpret(m, before, in, Arithmetic::kNaive, extents);
    auto b = interpret(m, after, in, Arithmetic::kNaive, extents);
    ASSERT_TRUE(a.ok()) << a.error().to_string();
    ASSERT_TRUE(b.ok()) << b.error().to_string();
    for (size_t r = 0; r < a->size(); ++r) {
      const HostTensor &x = (*a)[r], &y = (*b)[r];
      ASSERT_EQ(x.type, y.type);
      const auto size = static_cast<size_t>(size_bytes(x.type.dtype));
      for (int64_t i = 0; i < x.numel(); ++i) {
        const auto at = static_cast<size_t>(i) * size;
        const bool same = std::memcmp(x.bytes.data() + at, y.bytes.data() + at, size) == 0 ||
                          (std::isnan(x.at(i)) && std::isnan(y.at(i)));
        ASSERT_TRUE(same) << before.results[r].name << "[" << i << "]: " << x.at(i) << " became "
                          << y.at(i);
      }
    }
  }
}

bool run_checked(Module& m, FuncId f, std::string_view name, const PassOptions& options) {
  const Function before = m[f];
  const bool changed = run(m, f, name, options);
  expect_same_bits(m, before, m[f]);
  run(m, f, "dce");
  EXPECT_LE(n_working(m[f]), n_working(before));
  EXPECT_FALSE(run(m, f, name, options)) << name << " changes its own result";
  return changed;
}

}  // namespace tegula
