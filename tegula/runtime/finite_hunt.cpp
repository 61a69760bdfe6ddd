#include "tegula/runtime/finite_hunt.h"

#include <cmath>

#include "tegula/base/range.h"
#include "tegula/ir/reference.h"
#include "tegula/runtime/session.h"
#include "tegula/tile/program.h"

namespace tegula {

namespace {

struct Kinds {
  bool nan = false, infinite = false;
};

// Kinds of numbers whose bits beside the sign are compared with those of infinity.
template <class T>
Kinds kinds_of(const T* bits, int64_t n, T infinity) {
  const T all = static_cast<T>(~(T{1} << (8 * sizeof(T) - 1)));
  T largest = 0;
  bool infinite = false;
  for (int64_t i = 0; i < n; ++i) {
    const T b = static_cast<T>(bits[i] & all);
    largest = std::max(largest, b), infinite |= b == infinity;
  }
  return {largest > infinity, infinite};
}

Kinds kinds_of(const TensorRef& t) {
  if (t.is_contiguous()) {
    if (t.dtype == DType::kF32) return kinds_of(t.as<uint32_t>(), t.numel(), 0x7f800000U);
    if (t.dtype == DType::kBF16) return kinds_of<uint16_t>(t.as<uint16_t>(), t.numel(), 0x7f80);
    if (t.dtype == DType::kF16) return kinds_of<uint16_t>(t.as<uint16_t>(), t.numel(), 0x7c00);
  }
  Kinds k;
  for_each_index(shape_of(t), [&](const Index& i) {
    const double v = load_element(t, RefTensors::offset_at(t, i));
    k.nan = k.nan || std::isnan(v), k.infinite = k.infinite || std::isinf(v);
  });
  return k;
}

// The kinds in a value on the device, or on the host. What cannot be read is not blamed.
Kinds kinds_of(const TensorRef& t, Device* device, std::vector<uint8_t>& buffer) {
  if (!is_float(t.dtype) || t.data == nullptr) return {};
  const auto here = on_host(t, device, buffer);
  return here.ok() ? kinds_of(*here) : Kinds{};
}

// Masks are made of infinities: by a constant in a program or an attribute.
bool means_infinity(const Step& step) {
  if (step.program)
    for (const tile::Instr& i : step.program->code)
      if (i.op == tile::Op::kConstant && std::isinf(i.value)) return true;
  for (const auto& [name, value] : step.attrs)
    if (const auto* number = value.get_if<double>(); number && std::isinf(*number)) return true;
  return false;
}

}  // namespace

std::string NotFinite::Place::text() const {
  return cat("op ", op, scope.empty() ? "" : " in ", scope);
}

const NotFinite::Place* NotFinite::origin() const {
  if (nan.op.empty()) return infinite.op.empty() ? nullptr : &infinite;
  return infinite.op.empty() || nan.step <= infinite.step ? &nan : &infinite;
}

std::string NotFinite::text() const {
  if (!weight.empty()) return cat("the weight ", weight, " is not finite");
  if (nan.op.empty())
    return infinite.op.empty() ? "" : cat("the first infinite value came from ", infinite.text());
  const std::string first_nan = cat("the first NaN came from ", nan.text());
  if (origin() == &nan) return first_nan;
  return cat(first_nan, ", the first infinite value before it from ", infinite.text());
}

FiniteHunt::FiniteHunt(Session& session) : session_(session) {
  const Plan& plan = session.plan();
  for (size_t i = 0; i < plan.params.size(); ++i) {
    const Plan::Port& port = plan.params[i];
    const Kinds k =
        kinds_of(session.param(static_cast<int>(i)), session.rank().device, from_device_);
    if (!k.nan && !k.infinite) continue;
    bad_.push_back(port.tensor.holds);
    if (found_.weight.empty() && port.role == Role::kWeight) found_.weight = port.name;
  }
  session.observer_context = this;
  session.observer = [](void* context, const Session& s, size_t step) {
    static_cast<FiniteHunt*>(context)->look(s, step);
  };
}

FiniteHunt::~FiniteHunt() { session_.observer = nullptr, session_.observer_context = nullptr; }

void FiniteHunt::look(const Session& session, size_t i) {
  if (!found_.nan.op.empty()) return;
  const Step& step = session.plan().steps[i];
  Device* const device = session.rank().device;
  if (device != nullptr && session.launches(i) == 0) return;  // another step's launch has it
  const auto is_bad = [&](const PlanTensor& t) { return contains(bad_, t.holds); };
  const bool makes_infinity =
      !means_infinity(step) && !any_of(step.in, is_bad) &&
      any_of(step.in, [](const PlanTensor& t) { return is_float(t.type.dtype); });
  for (size_t k = 0; k < step.out.size() && found_.nan.op.empty(); ++k) {
    const Kinds kinds = kinds_of(session.step_output(i, k), device, from_device_);
    if (!kinds.nan && !kinds.infinite) continue;
    bad_.push_back(step.out[k].holds);
    // From the repository's root on: the compiler may have been run elsewhere.
    std::string_view file = step.loc.file_name();
    if (const size_t at = file.rfind("tegula/"); at != file.npos) file.remove_prefix(at);
    const NotFinite::Place place{cat(step.op->name, " (", file, ":", step.loc.line(), ")"),
                                 step.scope, step.out[k].type.dtype, i};
    if (kinds.nan) found_.nan = place;
    // Beside the first result stand statistics, such as the logarithm of an empty row's sum.
    if (kinds.infinite && k == 0 && makes_infinity && found_.infinite.op.empty())
      found_.infinite = place;
  }
}

bool are_finite(const TensorRef& t) {
  if (!is_float(t.dtype)) return true;
  const Kinds k = kinds_of(t);
  return !k.nan && !k.infinite;
}

}  // namespace tegula
