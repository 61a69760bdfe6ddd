// The kernels as C calls, for programs that hold their own device memory and streams: what
// bench/kernels_cuda.py times beside PyTorch. A call returns 0, or 1 (or null), and then
// tegula_cuda_error() says why.
#include <cstdlib>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/cuda/plugin/cuda_device.h"
#include "tegula/kernels/device.h"

namespace tegula {

std::span<const KernelDef* const> cuda_kernels();
std::span<const KernelLaunch* const> cuda_launches();

namespace {

std::string last_error;

int report(const Status& s) {
  if (s.ok()) return 0;
  last_error = s.error().message;
  return 1;
}

struct Call {
  const KernelDef* kernel = nullptr;
  const KernelLaunch* launch = nullptr;
  const Target* target = nullptr;
  Attrs attrs;
  std::vector<TensorRef> in, out;
  mutable std::unique_ptr<Prepared> prepared;
  mutable void* workspace = nullptr;  // that it is prepared for
  KernelQuery query() const { return {.attrs = &attrs, .in = in, .out = out, .target = target}; }
  Status enqueue(void* with_workspace, void* stream) const {
    if (!prepared || workspace != with_workspace) {
      Counters counters;
      DeviceCall call;
      call.attrs = &attrs, call.in = in, call.out = out, call.workspace = with_workspace;
      call.counters = &counters, call.target = target;
      prepared = TEGULA_TRY(launch->prepare(call));
      workspace = with_workspace;
    }
    return prepared->enqueue(stream);
  }
};

// "is_causal=b1;scale=f0.125;window_left=i7;dims=sm k, k n -> m n": the first letter of a value is
// its type.
Result<Attrs> parse_attrs(std::string_view text) {
  Attrs attrs;
  while (!text.empty()) {
    const size_t equal = text.find('='), end = std::min(text.find(';'), text.size());
    if (equal == text.npos || equal + 1 >= end)
      return invalid_argument(cat("attributes: '", text, "' is not name=value"));
    const std::string name(text.substr(0, equal)), value(text.substr(equal + 2, end - equal - 2));
    switch (text[equal + 1]) {
      case 'b':
        attrs.set(name, value == "1");
        break;
      case 'i':
        attrs.set(name, static_cast<int64_t>(std::atoll(value.c_str())));
        break;
      case 'f':
        attrs.set(name, std::atof(value.c_str()));
        break;
      case 's':
        attrs.set(name, value);
        break;
      default:
        return invalid_argument(cat("attributes: ", name, " has none of the types b, i, f, s"));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return attrs;
}

Result<Call> make_call(std::string_view op, std::string_view kernel, std::string_view attrs,
                       std::span<const TensorRef> in, std::span<const TensorRef> out) {
  Call call;
  call.target = &TEGULA_TRY(cuda::open_cuda_device())->target();
  call.attrs = TEGULA_TRY(parse_attrs(attrs));
  call.in.assign(in.begin(), in.end()), call.out.assign(out.begin(), out.end());
  std::string why_not;
  for (const KernelDef* k : cuda_kernels()) {
    if (k->op != op || (!kernel.empty() && k->name != kernel)) continue;
    if (!k->supports(call.query())) {
      if (k->check != nullptr)
        why_not += cat("; ", k->name, ": ", k->check(call.query()).error().message);
      continue;
    }
    if (call.kernel == nullptr || k->priority > call.kernel->priority) call.kernel = k;
  }
  if (call.kernel == nullptr)
    return unsupported(cat("no CUDA kernel ", kernel, kernel.empty() ? "" : " ", "serves this ", op,
                           " (", attrs, ")", why_not));
  for (const KernelLaunch* l : cuda_launches())
    if (l->name == call.kernel->name) call.launch = l;
  return call;
}

}  // namespace
}  // namespace tegula

#pragma GCC visibility push(default)
extern "C" {

const char* tegula_cuda_error() { return tegula::last_error.c_str(); }

// A tensor, as ctypes has it: TensorRef's members.
struct TegulaTensor {
  void* data;
  int dtype;  // tegula::DType
  int rank;
  int64_t shape[tegula::kMaxRank], stride[tegula::kMaxRank];
};

// A call of an op's best kernel, or of the one that is named (null or empty: the best). Strides
// count elements. The tensors' memory must outlive it.
void* tegula_cuda_call(const char* op, const char* kernel, const char* attrs, int n_in,
                       const TegulaTensor* in, int n_out, const TegulaTensor* out) {
  const auto refs = [](int n, const TegulaTensor* t) {
    std::vector<tegula::TensorRef> r(static_cast<size_t>(n));
    for (size_t i = 0; i < r.size(); ++i) {
      r[i].data = t[i].data, r[i].dtype = static_cast<tegula::DType>(t[i].dtype);
      r[i].rank = t[i].rank;
      for (int d = 0; d < t[i].rank; ++d)
        r[i].shape[d] = t[i].shape[d], r[i].stride[d] = t[i].stride[d];
    }
    return r;
  };
  auto call = tegula::make_call(op, kernel != nullptr ? kernel : "", attrs, refs(n_in, in),
                                refs(n_out, out));
  if (call.ok()) return new tegula::Call(std::move(call).value());
  tegula::last_error = call.error().message;
  return nullptr;
}

void tegula_cuda_call_free(void* call) { delete static_cast<tegula::Call*>(call); }

// The name is no C string's: it is copied to `name`, with a zero.
void tegula_cuda_call_kernel(const void* call, char* name, int size) {
  const std::string_view text = static_cast<const tegula::Call*>(call)->kernel->name;
  const size_t n = std::min(text.size(), static_cast<size_t>(size) - 1);
  text.copy(name, n);
  name[n] = 0;
}

int64_t tegula_cuda_call_workspace_bytes(const void* call) {
  const auto& c = *static_cast<const tegula::Call*>(call);
  return c.kernel->workspace_bytes != nullptr ? c.kernel->workspace_bytes(c.query()) : 0;
}

// Queues it; the workspace is aligned to 256 bytes.
int tegula_cuda_call_launch(const void* call, void* workspace, void* stream) {
  return tegula::report(static_cast<const tegula::Call*>(call)->enqueue(workspace, stream));
}

}  // extern "C"
#pragma GCC visibility pop
