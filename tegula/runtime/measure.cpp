#include "tegula/runtime/measure.h"

#include <algorithm>

#include "tegula/base/half.h"
#include "tegula/base/philox.h"
#include "tegula/runtime/probe.h"

namespace tegula {

namespace {
double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

template <class T>
void fill_floats(void* data, int64_t n, uint64_t stream) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(data)[i] =
        T(static_cast<float>(philox_uniform(1, stream, static_cast<uint64_t>(i)) * 2 - 1));
}

void fill(const Type& type, void* data, uint64_t stream, int64_t below) {
  const int64_t n = type.shape.numel();
  switch (type.dtype) {
    case DType::kF64:
      return fill_floats<double>(data, n, stream);
    case DType::kF32:
      return fill_floats<float>(data, n, stream);
    case DType::kBF16:
      return fill_floats<bf16>(data, n, stream);
    case DType::kF16:
      return fill_floats<f16>(data, n, stream);
    case DType::kI32:
      for (int64_t i = 0; i < n; ++i)
        static_cast<int32_t*>(data)[i] = static_cast<int32_t>(i % below);
      return;
    case DType::kI64:
      for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(data)[i] = i % below;
      return;
    default:
      return;
  }
}
}  // namespace

Result<Measurement> Measurement::create(std::shared_ptr<const Plan> plan, ThreadPool* pool,
                                        const MeasureOptions& options, int64_t integers_below) {
  Measurement m;
  m.pool_ = pool, m.options_ = options;
  m.session_ = TEGULA_TRY(Session::create(plan, pool));
  int64_t bytes = 0;
  do {
    std::vector<Region> set;
    for (size_t p = 0; p < plan->params.size(); ++p) {
      const Type& type = plan->params[p].tensor.type;
      Region region = TEGULA_TRY(Region::allocate(std::max<int64_t>(type.bytes(), 1)));
      fill(type, region.data(), p, integers_below);
      bytes += type.bytes();
      set.push_back(std::move(region));
    }
    m.sets_.push_back(std::move(set));
  } while (bytes < options.cold_bytes && bytes > 0);
  return m;
}

Status Measurement::bind(size_t set) {
  for (size_t p = 0; p < sets_[set].size(); ++p)
    session_->bind(static_cast<int>(p), sets_[set][p].data());
  return {};
}

Result<Measured> Measurement::run() {
  Measured out;
  size_t set = 0;
  const auto once = [&]() -> Status {
    if (sets_.size() > 1 || set == 0) {
      auto st = bind(set % sets_.size());
      if (!st.ok()) return st;
    }
    ++set;
    return session_->run();
  };
  for (int i = 0; i < 2; ++i) {  // warm up, and count
    session_->counters().math_flops = 0, session_->counters().executed_flops = 0;
    auto st = once();
    if (!st.ok()) return std::move(st).error();
  }
  out.math_flops = session_->counters().math_flops;
  out.executed_flops = session_->counters().executed_flops;
  std::vector<double> samples, peaks;
  int runs = 1;
  for (int sample = -1; sample < options_.repeats; ++sample) {
    const double start = kernel_seconds(*pool_);
    for (int i = 0; i < runs; ++i) {
      auto st = once();
      if (!st.ok()) return std::move(st).error();
    }
    const double ms = 1e3 * (kernel_seconds(*pool_) - start);
    if (sample < 0) {  // the first one says how many runs make a sample
      runs = static_cast<int>(std::clamp(options_.sample_ms / std::max(ms, 1e-4), 1.0, 1e5));
      continue;
    }
    samples.push_back(ms / runs);
    peaks.push_back(probe_flops(*pool_));
  }
  out.ms_median = median(samples);
  out.ms_min = *std::min_element(samples.begin(), samples.end());
  out.peak_flops_per_s = median(peaks);
  return out;
}

}  // namespace tegula
