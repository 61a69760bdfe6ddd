// Planted bugs: every check of the runner catches an op that is wrong in just that way, and passes
// the right one.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/kernels/registry.h"
#include "tegula/ops/common/elementwise.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

Case case_of(const OpDef& op, const Sample& sample) { return make_case(op, sample, 1); }
Case case_of(const OpDef& op, std::string_view sample) {
  for (const Sample& s : op.samples())
    if (s.name == sample) return make_case(op, s, 1);
  ADD_FAILURE() << op.name << " has no sample " << sample;
  return {};
}

#define EXPECT_HOLDS(verdict)                   \
  do {                                          \
    const Verdict v = verdict;                  \
    EXPECT_EQ(v.kind, Verdict::kPass) << v.why; \
  } while (0)
#define EXPECT_CAUGHT(verdict, part)                         \
  do {                                                       \
    const Verdict v = verdict;                               \
    EXPECT_EQ(v.kind, Verdict::kFail);                       \
    EXPECT_NE(v.why.find(part), std::string::npos) << v.why; \
  } while (0)

const char* const kMatrix = "shape [3,5,2]";

TEST(Planted, WrongTypes) {
  Sample s = mul_op.samples()[0];
  EXPECT_HOLDS(check_types(case_of(mul_op, s)));
  s.expect_error = "nothing is wrong";
  EXPECT_CAUGHT(check_types(case_of(mul_op, s)), "infer() succeeds");
  s = mul_op.samples().back();
  EXPECT_HOLDS(check_types(case_of(mul_op, s)));
  s.expect_error = "";
  EXPECT_CAUGHT(check_types(case_of(mul_op, s)), "broadcast one of them");
}

TEST(Planted, WrongFlops) {
  OpDef op = mul_op;
  EXPECT_HOLDS(check_cost(case_of(op, kMatrix)));
  op.flops = per_element<2>;
  EXPECT_CAUGHT(check_cost(case_of(op, kMatrix)), "flops says 60, the reference did 30");
}

TEST(Planted, WrongBytes) {
  OpDef op = reduce_sum_op;
  EXPECT_HOLDS(check_cost(case_of(op, "last")));
  op.bytes = [](const OpCall& c) { return Bytes{c.in[0].bytes() / 2, c.out[0].bytes()}; };
  EXPECT_CAUGHT(check_cost(case_of(op, "last")), "bytes says 120 read, the reference read 240");
  op.bytes = [](const OpCall& c) { return Bytes{c.in[0].bytes(), 0}; };
  EXPECT_CAUGHT(check_cost(case_of(op, "last")), "written");
}

TEST(Planted, WrongReverseRule) {
  OpDef op = mul_op;
  EXPECT_HOLDS(check_gradient(case_of(op, kMatrix)));
  op.vjp = [](Builder&, const VjpCall& c) -> Grads {
    return {c.grad[0] * c.in[1], c.grad[0] * c.in[1]};
  };
  EXPECT_CAUGHT(check_gradient(case_of(op, kMatrix)), "the rule gives");
  op.vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * c.in[1], Var()}; };
  EXPECT_CAUGHT(check_gradient(case_of(op, kMatrix)), "the rule gives");
}

TEST(Planted, WrongForwardRule) {
  OpDef op = reduce_sum_op;
  EXPECT_HOLDS(check_adjoint(case_of(op, "two")));
  op.jvp = [](Builder&, const JvpCall& c) -> Grads {
    return {reduce_sum(c.tangent[0], c.attrs().ints("dims")) * 1.0000001};
  };
  EXPECT_CAUGHT(check_adjoint(case_of(op, "two")), "<J^T v, u>");
}

TEST(Planted, NotSmooth) {
  Sample s = abs_op.samples()[1];
  s.in[0].values = std::vector<double>(7, 0.25 * 0x1p-13);  // a kink within the step
  EXPECT_CAUGHT(check_gradient(case_of(abs_op, s)), "not smooth");
}

// The gradient is right, but its own gradient is not: x^2 here has the derivative x.
constinit const OpDef bad_square_op = {
    .name = "bad_square",
    .dims = kUnaryDims,
    .types = "F -> F",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * c.in[0]}; },
    .reference = reference_of<UnaryRef<[](auto x) { return x * x; }>>,
    .is_elementwise = true,
};

TEST(Planted, WrongSecondDerivative) {
  OpDef op = mul_op;
  op.name = "cube";
  op.dims = kUnaryDims;
  op.types = "F -> F";
  op.reference = reference_of<UnaryRef<[](auto x) { return x * x * x; }>>;
  op.vjp = [](Builder&, const VjpCall& c) -> Grads {
    return {c.grad[0] * (c.in[0] * c.in[0]) * 3.0};
  };
  const Sample s = tanh_op.samples()[1];
  EXPECT_HOLDS(check_gradient(case_of(op, s)));
  EXPECT_HOLDS(check_second_order(case_of(op, s)));
  op.vjp = [](Builder& b, const VjpCall& c) -> Grads {
    return {c.grad[0] * b.emit(bad_square_op, {}, {c.in[0]}) * 3.0};
  };
  EXPECT_HOLDS(check_gradient(case_of(op, s)));
  EXPECT_CAUGHT(check_second_order(case_of(op, s)), "second order");
}

TEST(Planted, WrongSplit) {
  OpDef op = dot_op;
  EXPECT_HOLDS(check_sharding(case_of(op, "matrix")));
  op.split = {{"k", Combine::kMax}};
  EXPECT_CAUGHT(check_sharding(case_of(op, "matrix")), "factor k cut at");
  op.split = {{"k", Combine::kNever}};  // nothing wrong with cutting less
  EXPECT_HOLDS(check_sharding(case_of(op, "matrix")));
}

TEST(Planted, WrongDims) {
  OpDef op = permute_op;
  const Sample square = {
      "square", {{{DType::kF32, {3, 3}}}}, {{"order", std::vector<int64_t>{1, 0}}}};
  EXPECT_HOLDS(check_sharding(case_of(op, square)));
  op.dims_fn = nullptr;
  op.dims = "a b -> a b";  // the right shape, from the wrong places
  EXPECT_CAUGHT(check_sharding(case_of(op, square)), "factor a cut at");
}

TEST(Planted, WrongLocalize) {
  OpDef op = iota_op;
  EXPECT_HOLDS(check_sharding(case_of(op, "rows")));
  op.localize = [](const OpCall& c, const DimMap&, int factor, int64_t lo, int64_t hi) {
    Attrs a = *c.attrs;
    auto shape = a.dims("shape");
    shape[static_cast<size_t>(factor)] = hi - lo;
    a.set("shape", shape);
    return a;
  };
  EXPECT_CAUGHT(check_sharding(case_of(op, "rows")), "factor d0 cut at");
  op.localize = nullptr;
  EXPECT_CAUGHT(check_sharding(case_of(op, "rows")), "of the local op is");
}

// One query over n keys: o = softmax(s) v, and the log-sum-exp of s.
struct AttendRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    S lse = S(-HUGE_VAL);
    const int64_t n = a.dim(0, 0);
    S top = S(-HUGE_VAL), sum = S(0);
    for (int64_t i = 0; i < n; ++i) top = scalar::max(top, a.load(0, i));
    for (int64_t i = 0; i < n; ++i) sum += scalar::exp(a.load(0, i) - top);
    lse = top + scalar::log(sum);
    for (int64_t d = 0; d < a.dim(1, 1); ++d) {
      S o = S(0);
      for (int64_t i = 0; i < n; ++i) o += scalar::exp(a.load(0, i) - lse) * a.load(1, i, d);
      a.store(0, o, d);
    }
    a.store(1, lse);
  }
};
constinit const OpDef attend_op = {
    .name = "attend",
    .dims = "n, n d -> d, ",
    .types = "F, F -> F, F",
    .split = {{"n", Combine::kLseWeighted, 0},
              {"n", Combine::kLogSumExp, 1},
              {"d", Combine::kEqual, 1}},
    .reference = reference_of<AttendRef>,
};

TEST(Planted, WrongLogSumExp) {
  OpDef op = attend_op;
  const Sample s = {"plain", {{{DType::kF32, {7}}}, {{DType::kF32, {7, 3}}}}, {}};
  EXPECT_HOLDS(check_sharding(case_of(op, s)));
  op.split = {{"n", Combine::kSum, 0}, {"n", Combine::kLogSumExp, 1}, {"d", Combine::kEqual, 1}};
  EXPECT_CAUGHT(check_sharding(case_of(op, s)), "result 0");
  op.split = {{"n", Combine::kLseWeighted, 0}, {"n", Combine::kMax, 1}, {"d", Combine::kEqual, 1}};
  EXPECT_CAUGHT(check_sharding(case_of(op, s)), "no result has");
}

// y[s, d] = table[index[s], d]: the table's rows are selected, so cut tables give partial sums.
struct SelectRowsRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      const int64_t row = a.load_i(1, i[0]);
      const bool inside = row >= 0 && row < a.dim(0, 0);
      a.store_at(0, inside ? a.load(0, row, i[1]) : S(0), i);
    });
  }
};
template <bool kSaysSo>
Result<DimMap> select_rows_dims(const OpCall& c) {
  DimMap m = TEGULA_TRY(solve_dims("select_rows", "v d, s -> s d", c.in));
  if (kSaysSo) m.factors[static_cast<size_t>(m.find("v"))].index_operand = 1;
  return m;
}

TEST(Planted, ForgottenSelection) {
  OpDef op = {.name = "select_rows",
              .dims_fn = select_rows_dims<true>,
              .types = "T, i -> T",
              .reference = reference_of<SelectRowsRef>};
  const Sample s = {"plain", {{{DType::kF32, {5, 2}}}, {{DType::kI32, {9}}, 0, 4}}, {}};
  EXPECT_HOLDS(check_sharding(case_of(op, s)));
  op.dims_fn = select_rows_dims<false>;
  EXPECT_CAUGHT(check_sharding(case_of(op, s)), "factor v cut at");
}

// y[i] = Σ_k x[i + k - 1] w[k], x zero outside; the pad is an attribute, since parts have none.
struct WindowRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for (int64_t i = 0; i < a.out_dim(0, 0); ++i) {
      S y = S(0);
      for (int64_t k = 0; k < a.dim(1, 0); ++k) {
        const int64_t at = i + k - a.attrs().i("pad");
        if (at >= 0 && at < a.dim(0, 0)) y = scalar::fma(a.load(0, at), a.load(1, k), y);
      }
      a.store(0, y, i);
    }
  }
};
template <int64_t kWrong>
Result<DimMap> window_dims(const OpCall& c) {
  const int64_t pad = c.attrs->i("pad");
  const Dim k = c.shape(1)[0], n = c.shape(0)[0].bound() + 2 * pad - k.bound() + 1;
  DimMap m;
  m.add_factor("i", n), m.add_factor("k", k);
  m.operands = {{{-pad + kWrong, {{0, 1}, {1, 1}}, true}}, {{0, {{1, 1}}}}};
  m.results = {{{0, {{0, 1}}}}};
  m.result_shapes = {Shape{n}};
  m.finish();
  return m;
}

TEST(Planted, WrongHalo) {
  OpDef op = {.name = "window",
              .dims_fn = window_dims<0>,
              .types = "T, T -> T",
              .attrs = {{"pad", AttrKind::kInt, true, "zeros around"}},
              .reference = reference_of<WindowRef>,
              .localize = [](const OpCall& c, const DimMap&, int, int64_t, int64_t) {
                Attrs a = *c.attrs;
                a.set("pad", int64_t{0});
                return a;
              }};
  const Sample s = {"plain", {{{DType::kF32, {8}}}, {{DType::kF32, {3}}}}, {{"pad", int64_t{1}}}};
  EXPECT_HOLDS(check_sharding(case_of(op, s)));
  op.dims_fn = window_dims<1>;
  EXPECT_CAUGHT(check_sharding(case_of(op, s)), "factor i cut at");
}

TEST(Planted, WrongDecomposition) {
  OpDef op = mul_op;
  op.decompose = [](Builder&, const OpCall&, std::span<const Var> in) -> Grads {
    return {exp(log(in[0] * in[0]) * 0.5) * in[1]};  // |a| b
  };
  EXPECT_CAUGHT(check_decompose(case_of(op, kMatrix)), "of the decomposition");
  op.decompose = [](Builder&, const OpCall&, std::span<const Var> in) -> Grads {
    return {(in[0] + in[1]) * (in[0] + in[1]) * 0.25 - (in[0] - in[1]) * (in[0] - in[1]) * 0.25};
  };
  EXPECT_HOLDS(check_decompose(case_of(op, kMatrix)));
}

void launch_right(const KernelCall& call) { find_kernel("dot_naive")->launch(call); }

TEST(Planted, WrongKernel) {
  KernelDef kernel = *find_kernel("dot_naive");
  const Case c = case_of(dot_op, "matrix");
  kernel.launch = launch_right;
  EXPECT_HOLDS(check_kernel(c, kernel));
  kernel.launch = [](const KernelCall& call) {
    launch_right(call);
    if (call.out[0].dtype == DType::kF32) call.out[0].as<float>()[0] *= 1 + 0x1p-18f;
  };
  EXPECT_CAUGHT(check_kernel(c, kernel), "error");
  kernel.launch = [](const KernelCall& call) {
    launch_right(call);
    call.counters->add(1, 1);
  };
  EXPECT_CAUGHT(check_kernel(c, kernel), "counted 241 FLOPs, planned 240");
  kernel.launch = [](const KernelCall& call) {
    launch_right(call);
    float& y = *call.out[0].as<float>();
    if (call.out[0].dtype == DType::kF32 && call.pool->n_threads() > 1)
      y = std::nextafter(y, HUGE_VALF);
  };
  EXPECT_CAUGHT(check_kernel(c, kernel), "between 1 thread and 3");
}

}  // namespace
}  // namespace tegula::testing
