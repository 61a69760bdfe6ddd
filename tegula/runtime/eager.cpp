#include "tegula/runtime/eager.h"

#include <algorithm>
#include <cstring>

#include "tegula/ir/reference.h"

namespace tegula {

namespace {

// Everything that the compiled node depends on.
std::string key_of(const Node& node, const std::vector<Type>& types) {
  std::string key(node.op->name);
  for (const auto& [name, value] : node.attrs) {
    key += cat(";", name, "=", value.index(), ":");
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, double>) {
            char b[32];
            std::snprintf(b, sizeof b, "%a", v);
            key += b;
          } else {
            append(key, v);
          }
        },
        value);
  }
  for (const Type& t : types) append(key, cat(";", t));
  for (FuncId r : node.regions) append(key, cat(";@", r));
  return key;
}

}  // namespace

Eager::Eager(ThreadPool& pool, CompileOptions options)
    : Eager(std::make_shared<Module>(), pool, std::move(options)) {}

Eager::Eager(std::shared_ptr<Module> module, ThreadPool& pool, CompileOptions options)
    : Builder(*module, "eager"),
      shared_(std::move(module)),
      pool_(pool),
      options_(std::move(options)) {
  options_.plan.n_threads = pool.n_threads();
}

Var Eager::tensor(const Type& type, const void* data) {
  const Var v = param(cat("x", function_.params.size()), type);
  memory_.resize(function_.values.size());
  auto region = Region::allocate(std::max<int64_t>(type.bytes(), 1));
  if (!region.ok()) return fail(std::move(region).error());
  std::memcpy(region->data(), data, static_cast<size_t>(type.bytes()));
  memory_[v.id()] = std::move(*region);
  return v;
}

Result<TensorRef> Eager::read(Var v) const {
  if (failed()) return error();
  const Region& r = memory_[v.id()];
  if (!r.data()) return invalid_argument("this value was released");
  return contiguous_ref(r.data(), v.type());
}

void Eager::release(std::span<const Var> keep) {
  for (ValueId v = 0; v < memory_.size(); ++v) {
    bool kept = false;
    for (const Var& k : keep) kept |= k.id() == v;
    if (!kept) memory_[v] = Region();
  }
}

Result<Session*> Eager::session_for(const Node& node, std::span<const ValueId> inputs) {
  std::vector<Type> types;
  for (ValueId v : inputs) types.push_back(type(v));
  const std::string key = key_of(node, types);
  if (auto it = cache_.find(key); it != cache_.end()) return it->second.get();
  Builder b(*shared_, cat("eager.", node.op->name, ".", cache_.size()));
  std::vector<Var> args;
  for (size_t i = 0; i < types.size(); ++i) args.push_back(b.param(cat("x", i), types[i]));
  const auto out = b.emit_n(*node.op, node.attrs, args, node.regions, node.loc);
  const size_t n_results =
      TEGULA_TRY(infer({node.op, &node.attrs, types, {}, shared_.get(), node.regions})).size();
  for (size_t i = 0; i < n_results; ++i) b.result(cat("y", i), out[i]);
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  const Compiled c = TEGULA_TRY(compile(shared_, f, options_));
  auto session = TEGULA_TRY(Session::create(c.plan, &pool_));
  Session* s = session.get();
  cache_.emplace(key, std::move(session));
  return s;
}

Status Eager::run_node(const Node& node, std::span<const ValueId> inputs,
                       std::span<const Type> types, ValueId first) {
  Session& s = *TEGULA_TRY(session_for(node, inputs));
  for (size_t i = 0; i < inputs.size(); ++i) s.bind(static_cast<int>(i), memory_[inputs[i]].data());
  auto st = s.run();
  if (!st.ok()) return st;
  memory_.resize(function_.values.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const int64_t bytes = types[i].bytes();
    Region region = TEGULA_TRY(Region::allocate(std::max<int64_t>(bytes, 1)));
    const TensorRef from = s.result(static_cast<int>(i));
    const TensorRef to = contiguous_ref(region.data(), types[i]);
    const int64_t size = size_bytes(from.dtype);
    if (from.is_contiguous()) {
      std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
    } else {
      for_each_index(shape_of(to), [&](const Index& index) {
        std::memcpy(static_cast<char*>(to.data) + size * RefArgs<double>::offset_at(to, index),
                    static_cast<char*>(from.data) + size * RefArgs<double>::offset_at(from, index),
                    static_cast<size_t>(size));
      });
    }
    memory_[first + i] = std::move(region);
  }
  return {};
}

ValueId Eager::append(Node node, std::vector<ValueId> inputs, std::span<const Type> types) {
  const ValueId first = Builder::append(node, inputs, types);
  memory_.resize(function_.values.size());
  if (!failed()) {
    auto st = run_node(node, inputs, types, first);
    if (!st.ok()) fail(std::move(st).error());
  }
  return first;
}

}  // namespace tegula
