#include "tegula/ir/host_tensor.h"

#include "tegula/base/sizes.h"
#include "tegula/ir/reference.h"

namespace tegula {

HostTensor::HostTensor(const Type& t) : type(t) {
  if (!t.shape.is_const() || !check_sizes("a tensor", t.shape).ok()) return;
  bytes.resize(static_cast<size_t>(t.bytes()));
  bytes.shrink_to_fit();
}

HostTensor::HostTensor(const Type& t, std::span<const double> values) : HostTensor(t) {
  const bool fits = !bytes.empty() && static_cast<int64_t>(values.size()) == numel();
  for (size_t i = 0; fits && i < values.size(); ++i) put(static_cast<int64_t>(i), values[i]);
  if (!fits) bytes.clear();
}

TensorRef HostTensor::ref() const {
  return contiguous_ref(const_cast<std::byte*>(bytes.data()), type);
}

double HostTensor::at(int64_t i) const { return load_element(ref(), i); }
void HostTensor::put(int64_t i, double value) { store_element(ref(), i, value); }

std::vector<double> HostTensor::values() const {
  std::vector<double> v(static_cast<size_t>(numel()));
  const TensorRef r = ref();
  for (size_t i = 0; i < v.size(); ++i) v[i] = load_element(r, static_cast<int64_t>(i));
  return v;
}

HostTensor HostTensor::as(DType dtype) const {
  HostTensor t(Type{dtype, type.shape});
  copy_into(t.ref(), ref());
  return t;
}

HostTensor copy_of(const TensorRef& view) {
  HostTensor t(Type{view.dtype, Shape(shape_of(view))});
  copy_into(t.ref(), view);
  return t;
}

void copy_into(const TensorRef& to, const TensorRef& from) {
  const bool ints = !is_float(to.dtype) && !is_float(from.dtype);
  for_each_index(shape_of(to), [&](const Index& i) {
    const int64_t a = RefTensors::offset_at(to, i), b = RefTensors::offset_at(from, i);
    if (ints) {
      store_int(to, a, load_int(from, b));
    } else {
      store_element(to, a, load_element(from, b));
    }
  });
}

}  // namespace tegula
