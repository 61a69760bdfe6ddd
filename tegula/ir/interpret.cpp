#include "tegula/ir/interpret.h"

#include <numeric>
#include <unordered_map>

#include "tegula/ir/extents.h"
#include "tegula/ir/reference.h"

namespace tegula {

Attrs attrs_at(const Attrs& attrs, std::span<const int64_t> extents) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs)
    if (const auto* dims = value.get_if<std::vector<Dim>>()) {
      std::vector<Dim> fixed;
      for (const Dim& d : *dims) fixed.push_back(d.at(extents));
      out.set(name, std::move(fixed));
    }
  return out;
}

namespace {

using Flags = std::vector<std::vector<uint8_t>>;  // [tensor][row-major element]

Flags untouched(std::span<const TensorRef> tensors) {
  Flags f;
  for (const TensorRef& t : tensors) f.emplace_back(static_cast<size_t>(t.numel()), uint8_t{0});
  return f;
}

int64_t count_touched(const Flags& flags, std::span<const Type> types) {
  int64_t bytes = 0;
  for (size_t k = 0; k < flags.size(); ++k)
    bytes +=
        size_bytes(types[k].dtype) * std::accumulate(flags[k].begin(), flags[k].end(), int64_t{0});
  return bytes;
}

// Address of an element → row-major index, for finding out which of an op's own elements its
// region touched.
std::unordered_map<const void*, size_t> address_map(const TensorRef& t) {
  std::unordered_map<const void*, size_t> map;
  size_t n = 0;
  for_each_index(shape_of(t), [&](const Index& i) {
    map[t.as<std::byte>() + RefTensors::offset_at(t, i) * size_bytes(t.dtype)] = n++;
  });
  return map;
}

// Marks in `flags` (of `owners`) every element of `views` whose flag is set.
void mark_through(Flags& flags, std::span<const TensorRef> owners, const Flags& view_flags,
                  std::span<const TensorRef> views) {
  for (size_t k = 0; k < owners.size(); ++k) {
    const auto owned = address_map(owners[k]);
    for (size_t v = 0; v < views.size(); ++v) {
      size_t n = 0;
      for_each_index(shape_of(views[v]), [&](const Index& i) {
        if (!view_flags[v][n++]) return;
        const auto it = owned.find(views[v].as<std::byte>() +
                                   RefTensors::offset_at(views[v], i) * size_bytes(views[v].dtype));
        if (it != owned.end()) flags[k][it->second] = 1;
      });
    }
  }
}

class Interpreter {
 public:
  Interpreter(const Module& module, Arithmetic arithmetic, std::span<const int64_t> extents)
      : module_(module), arithmetic_(arithmetic), extents_(extents.begin(), extents.end()) {
    if (extents_.empty())
      for (const Symbol& s : module.symbols) extents_.push_back(s.bound);
  }

  Status check_extents(std::span<const LeastExtent> least) const {
    if (extents_.size() != module_.symbols.size())
      return invalid_argument(cat("the module has ", module_.symbols.size(), " symbols, got ",
                                  extents_.size(), " extents"));
    return tegula::check_extents(module_.symbols, least, extents_);
  }

  // A value's type in this run.
  Type run_type(const Type& t) const {
    const bool promote = arithmetic_ != Arithmetic::kNaive &&
                         arithmetic_ != Arithmetic::kTensorCores && is_float(t.dtype);
    return {promote ? DType::kF64 : t.dtype, t.shape.at(extents_)};
  }
  Type plain_type(const Type& t) const { return {t.dtype, t.shape.at(extents_)}; }

  Result<std::vector<HostTensor>> run(const Function& f, std::vector<HostTensor> values,
                                      Flags* touched, std::vector<NodeCount>* counts) const;
  Status call(const OpCall& call, std::span<const TensorRef> in, std::span<const TensorRef> out,
              Flags* touched_in, NodeCount* count) const;

 private:
  template <class S>
  struct Args : RefArgs<S> {
    const Interpreter* self = nullptr;
    Status* status = nullptr;
  };
  template <class S>
  Status run_op(void (*reference)(RefArgs<S>&), const OpCall& call, std::span<const TensorRef> in,
                std::span<const TensorRef> out, Flags* touched_in, Flags* touched_out) const;
  template <class S>
  static void run_region(RefArgs<S>& base, size_t region, std::span<const TensorRef> in,
                         std::span<const TensorRef> out);

  const Module& module_;
  Arithmetic arithmetic_;
  std::vector<int64_t> extents_;
};

template <class S>
void Interpreter::run_region(RefArgs<S>& base, size_t region, std::span<const TensorRef> in,
                             std::span<const TensorRef> out) {
  auto& a = static_cast<Args<S>&>(base);
  const Function& f = a.call.region(region);
  std::vector<HostTensor> params;
  for (const TensorRef& t : in) params.push_back(copy_of(t));
  Flags touched = untouched(in);
  auto results = a.self->run(f, std::move(params), a.touched_in ? &touched : nullptr, nullptr);
  if (!results.ok()) {
    if (a.status->ok()) *a.status = std::move(results).error();
    return;
  }
  TEGULA_CHECK(results->size() == out.size(), f.name, " has ", results->size(), " results");
  for (size_t r = 0; r < out.size(); ++r) copy_into(out[r], (*results)[r].ref());
  if (!a.touched_in) return;
  mark_through(*a.touched_in, a.in, touched, in);
  Flags written = untouched(out);
  for (auto& flags : written) std::fill(flags.begin(), flags.end(), uint8_t{1});
  mark_through(*a.touched_out, a.out, written, out);
}

template <class S>
Status Interpreter::run_op(void (*reference)(RefArgs<S>&), const OpCall& call,
                           std::span<const TensorRef> in, std::span<const TensorRef> out,
                           Flags* touched_in, Flags* touched_out) const {
  Status status;
  Args<S> args;
  args.call = call, args.in = in, args.out = out;
  args.self = this, args.status = &status;
  args.run_region = run_region<S>;
  args.touched_in = touched_in, args.touched_out = touched_out;
  args.on_tensor_cores = arithmetic_ == Arithmetic::kTensorCores;
  reference(args);
  return status;
}

Status Interpreter::call(const OpCall& call, std::span<const TensorRef> in,
                         std::span<const TensorRef> out, Flags* touched_in,
                         NodeCount* count) const {
  const Reference& ref = call.op->reference;
  if (!ref.f64 || !ref.f32) return unsupported(cat(call.op->name, ": has no reference"));
  if (arithmetic_ == Arithmetic::kOracle && !runs_in_ints(ref, in, out))
    return run_op(ref.f64, call, in, out, nullptr, nullptr);
  if (arithmetic_ != Arithmetic::kCounted)
    return at_own_precision(ref, in, out, [&](auto reference) {
      return run_op(reference, call, in, out, nullptr, nullptr);
    });
  Flags own_in, written = untouched(out);
  if (!touched_in) own_in = untouched(in), touched_in = &own_in;
  const int64_t before = Counted::flops();
  auto status = run_op(ref.f64, call, in, out, touched_in, &written);
  if (count)
    *count = {Counted::flops() - before,
              {count_touched(*touched_in, call.in), count_touched(written, call.out)}};
  return status;
}

Result<std::vector<HostTensor>> Interpreter::run(const Function& f, std::vector<HostTensor> inputs,
                                                 Flags* touched,
                                                 std::vector<NodeCount>* counts) const {
  if (inputs.size() != f.params.size())
    return invalid_argument(
        cat(f.name, ": has ", f.params.size(), " parameters, got ", inputs.size(), " inputs"));
  std::vector<HostTensor> values(f.values.size());
  std::vector<int> param_of(f.values.size(), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type want = run_type(f.type(f.params[i].value));
    HostTensor& x = inputs[i];
    if (!(x.type.shape == want.shape) || is_float(x.type.dtype) != is_float(want.dtype) ||
        (!is_float(want.dtype) && x.type.dtype != want.dtype) ||
        static_cast<int64_t>(x.bytes.size()) != x.type.bytes())
      return invalid_argument(cat(f.name, ": parameter ", f.params[i].name, " is ",
                                  plain_type(f.type(f.params[i].value)), ", got ", x.type));
    values[f.params[i].value] = x.type == want ? std::move(x) : x.as(want.dtype);
    param_of[f.params[i].value] = static_cast<int>(i);
  }
  auto uses = f.use_counts();
  for (const Node& n : f.nodes) {
    const Attrs attrs = attrs_at(n.attrs, extents_);
    std::vector<Type> in_types, out_types;
    std::vector<TensorRef> in, out;
    for (ValueId v : n.inputs)
      in_types.push_back(plain_type(f.type(v))), in.push_back(values[v].ref());
    for (uint32_t i = 0; i < n.n_outputs; ++i) {
      out_types.push_back(plain_type(f.type(n.output(i))));
      values[n.output(i)] = HostTensor(run_type(f.type(n.output(i))));
      out.push_back(values[n.output(i)].ref());
    }
    const OpCall c{n.op, &attrs, in_types, out_types, &module_, n.regions};
    Flags flags = touched ? untouched(in) : Flags{};
    NodeCount count;
    TEGULA_TRY(call(c, in, out, touched ? &flags : nullptr, counts ? &count : nullptr));
    if (counts) counts->push_back(count);
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueId v = n.inputs[k];
      if (touched && param_of[v] >= 0) {
        auto& to = (*touched)[static_cast<size_t>(param_of[v])];
        for (size_t i = 0; i < to.size(); ++i) to[i] |= flags[k][i];
      }
      if (--uses[v] == 0) values[v] = HostTensor();
    }
  }
  std::vector<HostTensor> results;
  for (const Output& r : f.results) {
    results.push_back(--uses[r.value] == 0 ? std::move(values[r.value]) : values[r.value]);
    if (touched && param_of[r.value] >= 0) {
      auto& to = (*touched)[static_cast<size_t>(param_of[r.value])];
      std::fill(to.begin(), to.end(), uint8_t{1});
    }
  }
  return results;
}

}  // namespace

Result<std::vector<HostTensor>> interpret(const Module& module, const Function& f,
                                          std::span<const HostTensor> inputs, Arithmetic arithmetic,
                                          std::span<const int64_t> extents,
                                          std::vector<NodeCount>* counts) {
  if (counts && arithmetic != Arithmetic::kCounted)
    return invalid_argument("interpret: counts are of Arithmetic::kCounted alone");
  const Interpreter i(module, arithmetic, extents);
  const auto least = TEGULA_TRY(least_extents(module, f));
  TEGULA_TRY(i.check_extents(least));
  return i.run(f, {inputs.begin(), inputs.end()}, nullptr, counts);
}

Status interpret_call(const OpCall& call, std::span<const TensorRef> in,
                      std::span<const TensorRef> out, Arithmetic arithmetic,
                      std::span<const int64_t> extents, NodeCount* count) {
  static const Module kEmpty;
  const Interpreter i(call.module ? *call.module : kEmpty, arithmetic, extents);
  TEGULA_TRY(i.check_extents({}));
  if (!call.op || !call.attrs || in.size() != call.in.size() || out.size() != call.out.size())
    return invalid_argument(cat("interpret_call: ", call.op ? call.op->name : "no op", " of ",
                                call.in.size(), " operands and ", call.out.size(), " results, got ",
                                in.size(), " and ", out.size()));
  return i.call(call, in, out, nullptr, count);
}

}  // namespace tegula
