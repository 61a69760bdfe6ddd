#include "tegula/ir/reference.h"

namespace tegula {

static void mark(std::vector<std::vector<uint8_t>>* touched, size_t k, const TensorRef& t,
                 const Index& index) {
  if (touched) (*touched)[k][static_cast<size_t>(RefTensors::row_major_at(t, index))] = 1;
}

int64_t RefTensors::offset_at(const TensorRef& t, const Index& index) {
  int64_t o = 0;
  for (int d = 0; d < t.rank; ++d) o += index[static_cast<size_t>(d)] * t.stride[d];
  return o;
}
int64_t RefTensors::row_major_at(const TensorRef& t, const Index& index) {
  int64_t o = 0;
  for (int d = 0; d < t.rank; ++d) o = o * t.shape[d] + index[static_cast<size_t>(d)];
  return o;
}
int64_t RefTensors::load_i_at(size_t k, const Index& index) const {
  mark(touched_in, k, in[k], index);
  return load_int(in[k], offset_at(in[k], index));
}
double RefTensors::load_float_at(size_t k, const Index& index) const {
  mark(touched_in, k, in[k], index);
  return load_element(in[k], offset_at(in[k], index));
}
void RefTensors::store_i_at(size_t k, int64_t value, const Index& index) const {
  mark(touched_out, k, out[k], index);
  store_int(out[k], offset_at(out[k], index), value);
}
void RefTensors::store_float_at(size_t k, double value, const Index& index) const {
  mark(touched_out, k, out[k], index);
  store_element(out[k], offset_at(out[k], index), value);
}

bool runs_in_ints(const Reference& r, std::span<const TensorRef> in,
                  std::span<const TensorRef> out) {
  bool has_float = false;
  for (const TensorRef& t : in) has_float |= is_float(t.dtype);
  for (const TensorRef& t : out) has_float |= is_float(t.dtype);
  return !has_float && r.ints;
}
bool runs_in_f32(std::span<const TensorRef> out) {
  bool wide = false;
  for (const TensorRef& t : out) wide |= t.dtype == DType::kF64 || !is_float(t.dtype);
  return !wide;
}

void for_each_index(std::span<const int64_t> shape, void (*fn)(void* object, const Index& index),
                    void* object) {
  Index index{};
  for (int64_t d : shape)
    if (d == 0) return;
  for (;;) {
    fn(object, index);
    size_t d = shape.size();
    while (d-- > 0) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
      if (d == 0) return;
    }
    if (shape.empty()) return;
  }
}

SampleInput::SampleInput(const Type& t, double lo, double hi, std::vector<double> v, bool is_diff)
    : type(t), low(lo), high(hi), values(std::move(v)), is_differentiable(is_diff) {}
SampleInput::SampleInput() = default;
SampleInput::SampleInput(const SampleInput&) = default;
SampleInput::SampleInput(SampleInput&&) noexcept = default;
SampleInput& SampleInput::operator=(const SampleInput&) = default;
SampleInput& SampleInput::operator=(SampleInput&&) noexcept = default;
SampleInput::~SampleInput() = default;

Sample::Sample(std::string_view n, std::initializer_list<SampleInput> i, Attrs a,
               std::string_view error, bool is_smooth, Regions r, std::string_view bound)
    : Sample(n, std::vector(i), std::move(a), error, is_smooth, r, bound) {}
Sample::Sample(std::string_view n, std::vector<SampleInput> i, Attrs a, std::string_view error,
               bool is_smooth, Regions r, std::string_view bound)
    : name(n),
      in(std::move(i)),
      attrs(std::move(a)),
      expect_error(error),
      smooth(is_smooth),
      regions(r),
      cost_bound(bound) {}
Sample::Sample(const Sample&) = default;
Sample::Sample(Sample&&) noexcept = default;
Sample& Sample::operator=(const Sample&) = default;
Sample& Sample::operator=(Sample&&) noexcept = default;
Sample::~Sample() = default;

}  // namespace tegula
