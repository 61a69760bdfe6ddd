#include "tests/tile/harness.h"

#include <cmath>
#include <limits>

#include "tegula/base/element.h"

namespace tegula::tile {

Tensor::Tensor(DType dtype, std::vector<int64_t> shape, Layout layout) {
  ref_.dtype = dtype;
  ref_.rank = static_cast<int>(shape.size());
  int64_t step[kMaxRank], total = layout == Layout::kSpread ? 2 : 1;
  std::vector<int> order;
  for (int d = 0; d < ref_.rank; ++d) order.push_back(d);
  if (layout == Layout::kTransposed && ref_.rank >= 2)
    std::swap(order[ref_.rank - 1], order[ref_.rank - 2]);
  for (int k = ref_.rank - 1; k >= 0; --k) {
    const int d = order[static_cast<size_t>(k)];
    ref_.shape[d] = shape[static_cast<size_t>(d)];
    const bool is_repeated = layout == Layout::kBroadcast && (d + ref_.rank) % 2 == 0;
    step[d] = is_repeated ? 0 : total;
    if (!is_repeated) total *= std::max<int64_t>(ref_.shape[d], 1);
    if (layout == Layout::kGaps) total += 3;
  }
  int64_t first = 0;
  for (int d = 0; d < ref_.rank; ++d) {
    ref_.stride[d] = step[d];
    if (layout == Layout::kReversed && d == ref_.rank - 1) {
      ref_.stride[d] = -step[d];
      first += (std::max<int64_t>(ref_.shape[d], 1) - 1) * step[d];
    }
  }
  constexpr int64_t kGuard = 8;
  bytes_.assign(static_cast<size_t>((total + 2 * kGuard) * size_bytes(dtype)), char(0x5a));
  ref_.data = bytes_.data() + (kGuard + first) * size_bytes(dtype);
}

int64_t Tensor::offset(int64_t at) const {
  int64_t o = 0;
  for (int d = ref_.rank - 1; d >= 0; --d) {
    o += at % ref_.shape[d] * ref_.stride[d];
    at /= ref_.shape[d];
  }
  return o;
}

bool Tensor::is_one_to_one() const {
  for (int d = 0; d < ref_.rank; ++d)
    if (ref_.shape[d] > 1 && ref_.stride[d] == 0) return false;
  return true;
}

void Tensor::set(int64_t at, double v) { store_element(ref_, offset(at), v); }
double Tensor::get(int64_t at) const { return load_element(ref_, offset(at)); }

void Tensor::fill(Rng& rng, double low, double high, bool special) {
  const double inf = std::numeric_limits<double>::infinity();
  const double specials[] = {0.0, -0.0, 1, -1, inf, -inf, std::nan(""), 1e30, -1e30, 65504, 3e-39};
  for (int64_t k = 0; k < numel(); ++k) {
    double v = std::uniform_real_distribution<double>(low, high)(rng);
    if (is_float(ref_.dtype) && special && pick(rng, 0, 15) == 0) v = specials[pick(rng, 0, 9)];
    if (ref_.dtype == DType::kBool) v = static_cast<double>(pick(rng, 0, 1));
    if (ref_.dtype == DType::kU8) v = std::fabs(v) * 20;
    if (is_int(ref_.dtype)) v = std::trunc(v * 10);
    if (is_int(ref_.dtype) && special && size_bits(ref_.dtype) >= 32 && pick(rng, 0, 15) == 0)
      v = static_cast<double>(pick(rng, INT32_MIN, INT32_MAX));
    set(k, v);
  }
}

Counts run_kernel(const Program& p, const std::vector<TensorRef>& in,
                  const std::vector<TensorRef>& out, int n_threads) {
  const KernelDef* kernel = nullptr;
  for (const KernelDef* k : all_kernels())
    if (k->name == "fused") kernel = k;
  if (!kernel) {
    ADD_FAILURE() << "no kernel \"fused\"";
    return {};
  }
  const Target target = Target::this_cpu(n_threads);
  KernelQuery query;
  query.in = in, query.out = out, query.program = &p, query.target = &target;
  EXPECT_TRUE(kernel->supports(query)) << to_text(p);
  const auto n = static_cast<size_t>(kernel->workspace_bytes(query));
  std::unique_ptr<char[]> raw(new char[n + 256]);
  std::memset(raw.get(), 0xa7, n + 256);
  char* workspace = raw.get() + (64 - reinterpret_cast<uintptr_t>(raw.get()) % 64) % 64;
  ThreadPool pool(n_threads);
  if (n_threads > 1) pool.limit_grain(1);
  Counters counters;
  KernelCall call;
  call.in = in, call.out = out, call.program = &p, call.workspace = workspace;
  call.pool = &pool, call.counters = &counters;
  kernel->launch(call);
  for (const char* c = raw.get(); c < raw.get() + n + 256; ++c)
    if ((c < workspace || c >= workspace + n) && *c != char(0xa7)) {
      ADD_FAILURE() << "wrote outside its workspace, at " << c - workspace << " of " << n << "\n"
                    << to_text(p);
      break;
    }
  const int64_t tasks = pool.take_most_indices();
  if (tasks > 0) EXPECT_EQ(counters.claimed_bytes, static_cast<int64_t>(n)) << to_text(p);
  return {counters.math_flops, counters.executed_flops, tasks};
}

::testing::AssertionResult same_values(const Tensor& got, const Tensor& want) {
  const int64_t n = got.numel();
  for (int64_t k = 0; k < n; ++k) {
    const double a = got.get(k), b = want.get(k);
    const bool same = std::memcmp(&a, &b, 8) == 0 || (a != a && b != b);
    if (!same)
      return ::testing::AssertionFailure() << "element " << k << " of " << n << " is " << a
                                           << ", should be " << b << " (apart " << a - b << ")";
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_bits(const Tensor& got, const Tensor& want) {
  if (auto same = same_values(got, want); !same) return same;
  // Elements are equal; so are the bytes between and around them, unless a NaN differs.
  bool has_nan = false;
  for (int64_t k = 0; k < want.numel(); ++k) has_nan |= std::isnan(want.get(k));
  if (!has_nan && got.bytes() != want.bytes())
    return ::testing::AssertionFailure() << "wrote outside the tensor";
  return ::testing::AssertionSuccess();
}

}  // namespace tegula::tile
