#include "tegula/runtime/measure.h"

#include <atomic>
#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/base/half.h"
#include "tegula/base/median.h"
#include "tegula/base/philox.h"
#include "tegula/kernels/cpu/isa/read_burst.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/device.h"
#include "tegula/runtime/probe.h"

namespace tegula {

namespace {
std::atomic<float> sink;  // so that what is read is not left out

// A prime, so that rows of no length repeat one another soon: to draw as many as a model's weights
// would take seconds.
constexpr int64_t kMostDrawn = 1048573;

template <class T>
void fill_floats(void* data, int64_t n, uint64_t stream) {
  T* const to = static_cast<T*>(data);
  int64_t done = std::min(n, kMostDrawn);
  for (int64_t i = 0; i < done; ++i)
    to[i] = T(static_cast<float>(philox_uniform(1, stream, static_cast<uint64_t>(i)) * 2 - 1));
  for (; done < n; done = std::min(2 * done, n))
    std::memcpy(to + done, to, static_cast<size_t>(std::min(done, n - done)) * sizeof(T));
}
}  // namespace

void fill_parameter(const Type& type, void* data, uint64_t stream, int64_t below) {
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
    case DType::kF8E4M3:
      return fill_floats<f8e4m3>(data, n, stream);
    case DType::kI32:
      for (int64_t i = 0; i < n; ++i)
        static_cast<int32_t*>(data)[i] = static_cast<int32_t>(i % below);
      return;
    case DType::kI64:
      for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(data)[i] = i % below;
      return;
    case DType::kI8:
    case DType::kU8:
      for (int64_t i = 0; i < n; ++i)
        static_cast<uint8_t*>(data)[i] =
            static_cast<uint8_t>(philox_bits(1, stream, static_cast<uint64_t>(i)));
      return;
    case DType::kBool:
      std::memset(data, 1, static_cast<size_t>(n));
      return;
  }
}

namespace {
constexpr size_t kMostSets = 512;        // of tiny inputs: a process may map only so many regions
constexpr int64_t kFarBytes = 16 << 20;  // of one thread in one probe
}  // namespace

Result<Measurement> Measurement::create(std::shared_ptr<const Plan> plan, Rank& rank,
                                        const MeasureOptions& options, int64_t integers_below) {
  Measurement m;
  m.rank_ = &rank, m.options_ = options, m.integers_below_ = integers_below;
  m.session_ = TEGULA_TRY(Session::create(plan, rank));
  int64_t bytes = 0;
  do {
    std::vector<Region> set;
    for (size_t p = 0; p < plan->params.size(); ++p) {
      const Type& type = plan->params[p].tensor.type;
      set.push_back(
          TEGULA_TRY(Region::on(rank.device, rank.memory, std::max<int64_t>(type.bytes(), 1))));
      bytes += type.bytes();
    }
    m.sets_.push_back(std::move(set));
  } while (bytes < options.cold_bytes && bytes > 0 && m.sets_.size() < kMostSets);
  for (size_t p = 0; p < m.session_->plan().params.size(); ++p) TEGULA_TRY(m.fill(p));
  if (options.cold_bytes > 0) {
    m.far_ = TEGULA_TRY(Region::allocate(rank.memory, options.cold_bytes / kFarBytes * kFarBytes));
    m.far_.poison(1, &rank.pool);
  }
  return m;
}

Status Measurement::fill(size_t param, void (*change)(const TensorRef& value, uint64_t param)) {
  const Type& type = session_->plan().params[param].tensor.type;
  const auto bytes = static_cast<size_t>(type.bytes());
  std::vector<uint8_t> apart(rank_->device ? bytes : 0);
  void* const host = rank_->device ? apart.data() : sets_[0][param].data();
  fill_parameter(type, host, param, integers_below_);
  if (change) change(contiguous_ref(host, type), param);
  for (auto& set : sets_) {
    if (rank_->device) TEGULA_TRY(rank_->device->copy(set[param].data(), host, type.bytes()));
    if (!rank_->device && &set != &sets_[0]) std::memcpy(set[param].data(), host, bytes);
  }
  return {};
}

Status Measurement::bind(size_t set) {
  for (size_t p = 0; p < sets_[set].size(); ++p)
    session_->bind(static_cast<int>(p), sets_[set][p].data());
  return {};
}

Status Measurement::run_once() {
  if (sets_.size() > 1 || next_set_ == 0) TEGULA_TRY(bind(next_set_ % sets_.size()));
  ++next_set_;
  return session_->run();
}

// Every thread reads a part of its own that no probe has read for long.
double Measurement::probe_reads() {
  const int n = rank_->pool.n_threads();
  const int64_t parts = far_.bytes() / kFarBytes;
  const double start = kernel_seconds(rank_->pool);
  rank_->pool.parallel_for(n, [&](int64_t i, int) {
    float sum = 0;
    const int64_t part = (far_at_ + i) % parts;
    kernel::isa_table().read_burst(
        {reinterpret_cast<const float*>(static_cast<const uint8_t*>(far_.data()) +
                                        part * kFarBytes),
         kFarBytes / 4, &sum});
    sink = sum;
  });
  far_at_ += n;
  return static_cast<double>(kFarBytes) * n / (kernel_seconds(rank_->pool) - start);
}

std::vector<TensorRef> Measurement::values(std::string_view param) const {
  std::vector<TensorRef> out;
  const int p = session_->plan().find_param(param);
  if (p < 0) return out;
  const auto at = static_cast<size_t>(p);
  for (const auto& set : sets_)
    out.push_back(contiguous_ref(set[at].data(), session_->plan().params[at].tensor.type));
  return out;
}

Result<std::vector<StepStats>> Measurement::time_steps(int times) {
  std::vector<StepStats> stats(session_->plan().steps.size());
  session_->collect(&stats);
  Status st;
  for (int i = 0; i < times && st.ok(); ++i) st = run_once();
  session_->collect(nullptr);
  if (!st.ok()) return std::move(st).error();
  for (StepStats& s : stats) s.seconds /= times, s.math_flops /= times, s.executed_flops /= times;
  return stats;
}

Result<double> Measurement::time(int runs) {
  Device* const device = rank_->device;
  if (device) TEGULA_TRY(device->mark(0));
  const double start = kernel_seconds(rank_->pool);
  for (int i = 0; i < runs; ++i) TEGULA_TRY(run_once());
  if (!device) return (kernel_seconds(rank_->pool) - start) / runs;
  TEGULA_TRY(device->mark(1));
  return TEGULA_TRY(device->ms_between_marks()) / 1e3 / runs;
}

Result<Measured> Measurement::run() {
  Measured out;
  for (int i = 0; i < 2; ++i) {  // warm up, and count
    session_->counters().math_flops = 0, session_->counters().executed_flops = 0;
    TEGULA_TRY(run_once());
  }
  out.math_flops = session_->counters().math_flops;
  out.executed_flops = session_->counters().executed_flops;
  std::vector<double> samples, peaks, sustained, reads;
  int runs = 1;
  for (int sample = -1; sample < options_.repeats; ++sample) {
    const double start = kernel_seconds(rank_->pool);
    for (int i = 0; i < runs; ++i) TEGULA_TRY(run_once());
    const double ms = 1e3 * (kernel_seconds(rank_->pool) - start);
    if (sample < 0) {  // the first one says how many runs make a sample
      runs = static_cast<int>(std::clamp(options_.sample_ms / std::max(ms, 1e-4), 1.0, 1e5));
      continue;
    }
    samples.push_back(ms / runs);
    peaks.push_back(probe_flops(rank_->pool));
    if (options_.is_sustained)
      sustained.push_back(sustained_flops(rank_->pool, options_.sample_ms / 1e3));
    if (far_.bytes() > 0) reads.push_back(probe_reads());
  }
  out.ms_median = median(samples);
  out.ms_min = *std::min_element(samples.begin(), samples.end());
  out.peak_flops_per_s = median(peaks);
  if (!sustained.empty()) out.sustained_flops_per_s = median(sustained);
  if (!reads.empty()) out.read_bytes_per_s = median(reads);
  return out;
}

}  // namespace tegula
