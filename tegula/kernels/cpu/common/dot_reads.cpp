// The counted build of the ladder. Sources of isa/ are compiled here once more, in a namespace of
// their own; nothing else calls them.
#define TEGULA_ISA_COUNTED
#include "tegula/kernels/cpu/common/dot_reads.h"

#include <cstring>
#include <new>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/cpu/common/dot_chain.h"
#include "tegula/kernels/cpu/isa/dot_cache_tiled.cpp"
#include "tegula/kernels/cpu/isa/dot_micro.cpp"
#include "tegula/kernels/cpu/isa/dot_packed.cpp"
#include "tegula/kernels/cpu/isa/dot_register_tiled.cpp"

namespace tegula::kernel {

// Few rows are no rung of the ladder.
void counted::dot_thin(const KernelCall&, const Contraction& c, const TensorRef&,
                       const TensorRef&) {
  TEGULA_CHECK(false, "not counted: ", c.m.count, " rows");
}

ReadCounter*& ReadCounter::current() {
  static thread_local ReadCounter* counter = nullptr;
  return counter;
}

bool ReadCounter::touch(const float* p) {
  const auto found = where_.find(p);
  if (found != where_.end()) {
    recent_.splice(recent_.begin(), recent_, found->second);
    return true;
  }
  if (static_cast<int64_t>(recent_.size()) == capacity_) {
    where_.erase(recent_.back());
    recent_.pop_back();
  }
  recent_.push_front(p);
  where_[p] = recent_.begin();
  return false;
}

void ReadCounter::read(const float* p, int n) {
  for (const float* end = p + n; p < end; ++p) {
    const bool is_far = !touch(p);
    ++(a_.holds(p) ? reads_.a : b_.holds(p) ? reads_.b : reads_.other);
    if (is_far) ++(a_.holds(p) ? reads_.far_a : b_.holds(p) ? reads_.far_b : reads_.far_other);
  }
}

void ReadCounter::write(const float* p, int n) {
  for (const float* end = p + n; p < end; ++p) touch(p);
}

namespace {
// An f32 that reports being read.
struct CountedFloat {
  float value;
  explicit operator float() const {
    ReadCounter::current()->read(&value, 1);
    return value;
  }
};
static_assert(sizeof(CountedFloat) == sizeof(float));

// As dot_naive's loop over outputs.
void naive(const Contraction& c, const float* a, const float* b, float* out) {
  const auto* counted_a = reinterpret_cast<const CountedFloat*>(a);
  const auto* counted_b = reinterpret_cast<const CountedFloat*>(b);
  for (int64_t i = 0; i < c.m.count; ++i)
    for (int64_t j = 0; j < c.n.count; ++j)
      out[c.m.offset(i, kOut) + c.n.offset(j, kOut)] =
          shard_sum(c, counted_a + c.m.offset(i, kA), counted_b + c.n.offset(j, kB), 0);
}

using Floats = std::vector<float>;
Floats some_floats(int64_t n, uint32_t seed) {
  Floats v(static_cast<size_t>(n));
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  return v;
}
}  // namespace

Reads count_reads(std::string_view kernel, int64_t m, int64_t n, int64_t k, int64_t cache_elements,
                  const Tuning& tuning, bool* is_equal) {
  const Floats a = some_floats(m * k, 1), b = some_floats(k * n, 2);
  Floats out(static_cast<size_t>(m * n)), want = out;
  const Attrs attrs{{"dims", std::string("m k, k n -> m n")}};
  TensorRef in[] = {contiguous_ref(const_cast<float*>(a.data()), {DType::kF32, {m, k}}),
                    contiguous_ref(const_cast<float*>(b.data()), {DType::kF32, {k, n}})};
  const TensorRef result = contiguous_ref(out.data(), {DType::kF32, {m, n}});
  const auto c = parse_contraction(attrs, in, {&result, 1});
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);

  ReadCounter unused(1, {}, {}), counter(cache_elements, {a.data(), m * k}, {b.data(), k * n});
  ReadCounter::current() = &unused;
  naive(*c, a.data(), b.data(), want.data());
  ReadCounter::current() = &counter;
  const int64_t bytes = packed_bytes(*c, tuning, 1);
  constexpr std::align_val_t kLine{64};
  const std::unique_ptr<void, void (*)(void*)> workspace(
      ::operator new(static_cast<size_t>(bytes), kLine),
      [](void* p) { ::operator delete(p, kLine); });
  ThreadPool pool(1);
  Counters counters;
  KernelCall call{&attrs, in, {&result, 1}, workspace.get(), nullptr, &pool, &counters};
  call.tuning = tuning;
  if (kernel == "dot_naive") {
    naive(*c, a.data(), b.data(), out.data());
  } else if (kernel == "dot_cache_tiled") {
    counted::dot_cache_tiled(call);
  } else if (kernel == "dot_register_tiled") {
    counted::dot_register_tiled(call);
  } else {
    TEGULA_CHECK(kernel == "dot_packed", "no rung ", kernel);
    counted::dot_packed(call);
  }
  ReadCounter::current() = nullptr;
  *is_equal = std::memcmp(out.data(), want.data(), out.size() * sizeof(float)) == 0;
  return counter.reads();
}

}  // namespace tegula::kernel
