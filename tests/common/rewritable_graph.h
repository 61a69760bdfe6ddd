// Random graphs in which the superoptimiser's rules find something: products in all orders of dims,
// convolutions, sums, maxima, windows, movement and elementwise ops around them, odd sizes, one
// float dtype with casts now and then. Equal operands stand in several products, so that they can
// be merged; few values, so that two graphs are compiled and run in milliseconds.
#pragma once

#include <algorithm>
#include <random>

#include "tegula/ir/builder.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/math.h"
#include "tegula/passes/superopt/bridge.h"
#include "tools/rules/prove/denote.h"
#include "tools/rules/prove/evaluate.h"

namespace tegula::testing {

class RewritableGraph {
 public:
  RewritableGraph(Module& module, uint64_t seed)
      : rng_(seed), b_(module, "random"), dtype_(pick({DType::kF32, DType::kBF16, DType::kF16})) {}

  // With the rule's left side somewhere in it, at sizes that its conditions allow.
  Result<FuncId> build(const superopt::Rule& rule) {
    if (chance(2)) step();
    left_side(rule);
    return build();
  }
  Result<FuncId> build() {
    for (size_t left = 2 + below(4); left > 0 && !b_.failed(); --left) step();
    std::vector<bool> is_read(b_.function().values.size(), false);
    for (const Node& n : b_.function().nodes)
      for (const ValueId v : n.inputs) is_read[v] = true;
    int n_results = 0;
    for (const Var& v : made_)
      if (!is_read[v.id()] || chance(6)) b_.result(cat("y", n_results++), v);
    return b_.finish_into_module();
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng_); }
  bool chance(size_t one_in) { return below(one_in) == 0; }
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[below(of.size())];
  }
  template <class T>
  const T& pick(const std::vector<T>& of) {
    return of[below(of.size())];
  }
  int64_t size() { return pick<int64_t>({1, 2, 3, 5, 7, 8, 9, 16, 17, 33}); }
  int64_t small() { return pick<int64_t>({1, 2, 3, 4, 5}); }

  Var param(const Shape& s) {
    const auto name = cat("p", n_params_++);
    return chance(2) ? b_.weight(name, {dtype_, s}) : b_.param(name, {dtype_, s});
  }
  void add(Var v) {
    if (v.valid() && v.shape().numel() <= 6000 && v.shape().numel() > 0) made_.push_back(v);
  }
  // One of a rank that was made, or a new one.
  Var value(int rank) {
    std::vector<Var> fit;
    for (const Var& v : made_)
      if (v.rank() == rank && v.dtype() == dtype_ && v.shape().numel() <= 1500) fit.push_back(v);
    if (!fit.empty() && !chance(3)) return pick(fit);
    if (rank == 4)
      return param({1 + static_cast<int64_t>(below(2)), small(), 3 + small(), 3 + small()});
    Shape s;
    for (int d = 0; d < rank; ++d) s.push_back(rank == 3 && d == 0 ? small() : size());
    return param(s);
  }
  Var any() {
    return made_.empty() || chance(4) ? value(2 + static_cast<int>(below(3))) : pick(made_);
  }
  Var like(const Var& v) {
    std::vector<Var> fit;
    for (const Var& w : made_)
      if (w.type() == v.type()) fit.push_back(w);
    if (!fit.empty() && !chance(3)) return pick(fit);
    return v.dtype() == dtype_ ? param(v.shape()) : v;
  }

  void step() {
    switch (below(12)) {
      case 0:
      case 1:
        return products();
      case 2:
        return one_weight();
      case 3:
        return sum_of_products();
      case 4:
      case 5:
        return convolutions();
      case 6:
        return reduction();
      case 7:
      case 8:
        return movement();
      case 9:
        return scaled();
      default:
        return elementwise();
    }
  }

  void left_side(const superopt::Rule& rule) {
    superopt::Assignment at;
    bool holds = false;
    const auto needed = superopt::conditions(rule.graph, rule.left);
    for (int tries = 0; tries < 400 && !holds; ++tries) {
      for (const superopt::Symbol s : rule.sizes)
        at.integers[s] = 1 + static_cast<int64_t>(below(7));
      for (const superopt::Symbol s : rule.integers)
        at.integers[s] = static_cast<int64_t>(below(8)) - 2;
      holds = at.holds(rule.where) && at.holds(needed);
    }
    std::map<std::string, std::string> functions;
    if (holds && rule.scalars.empty()) side(rule, rule.left, at, functions);
  }
  // Invalid: no op can say it here.
  Var side(const superopt::Rule& rule, int node, const superopt::Assignment& at,
           std::map<std::string, std::string>& functions) {
    const superopt::Node& n = rule.graph.nodes[static_cast<size_t>(node)];
    if (n.kind == "input") {
      const std::string& name = n.attrs.words.find("name")->second;
      if (const auto known = inputs_.find(name); known != inputs_.end()) return known->second;
      Shape s;
      for (const superopt::Poly& p : n.shape) s.push_back(at.integer(p));
      return inputs_[name] = s.numel() <= 4000 && s.numel() > 0 ? param(s) : Var();
    }
    std::vector<Var> in;
    for (const int x : n.in) in.push_back(side(rule, x, at, functions));
    for (const Var& v : in)
      if (!v.valid() || v.dtype() != dtype_) return Var();
    superopt::KindOfNode call{n.kind, n.attrs, {}};
    for (auto& [name, list] : call.attrs.polys)
      for (superopt::Poly& p : list) p = at.integer(p);
    if (n.kind == "function") {
      std::string& f = functions[n.attrs.words.find("name")->second];
      if (f.empty()) f = in.size() == 2 ? "min" : pick<std::string>({"tanh", "relu", "sigmoid"});
      call.attrs.words["name"] = f;
    }
    const auto y = superopt::emit_kind(b_, call, in, {dtype_, {}});
    if (!y.ok() || y->rank() == 0) return Var();
    if (node == rule.left || chance(8)) add(*y);
    return *y;
  }

  // The weight that these dims take beside x, its own factor being of n.
  Var product(const std::string& dims, const Var& x, int64_t n, const Var* weight = nullptr) {
    const size_t comma = dims.find(','), arrow = dims.find("->");
    std::vector<std::string> of_x = words(dims.substr(0, comma)),
                             of_w = words(dims.substr(comma + 1, arrow - comma - 1));
    Shape s;
    for (const std::string& f : of_w) {
      Dim d = n;
      for (size_t k = 0; k < of_x.size(); ++k)
        if (of_x[k] == f) d = x.dim(static_cast<int>(k));
      s.push_back(d);
    }
    return dot(dims, x, weight && weight->shape() == s ? *weight : param(s));
  }
  static std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> all;
    std::string word;
    for (const char c : text + " ")
      if (c != ' ')
        word += c;
      else if (!word.empty())
        all.push_back(std::exchange(word, ""));
    return all;
  }
  std::string dims_of(int rank) {
    if (rank == 2)
      return pick<std::string>({"m k, k n -> m n", "m k, n k -> m n", "m k, k n -> m n",
                                "m k, m n -> k n", "m k, m n -> n k", "m k, k n -> n m"});
    return pick<std::string>({"b m k, k n -> b m n", "b m k, n k -> b m n", "b m k, b m n -> k n",
                              "b m k, b m n -> n k", "b m k, b k n -> b m n",
                              "b m k, b n k -> b m n", "b m k, k n -> m b n"});
  }

  void products() {
    const int rank = 2 + static_cast<int>(below(2));
    const Var x = value(rank);
    const std::string dims = dims_of(rank);
    std::vector<Var> all;
    for (size_t left = 2 + below(2); left > 0; --left) all.push_back(product(dims, x, size()));
    if (chance(4)) {
      const size_t arrow = dims.find("-> ");
      const auto out = words(dims.substr(arrow + 3));
      int n = 0;
      for (size_t d = 0; d < out.size(); ++d)
        if (out[d] == "n") n = static_cast<int>(d);
      return add(concat(all, n));
    }
    for (const Var& y : all) add(chance(3) ? tanh(y) : y);
  }
  void one_weight() {
    const std::string dims = pick<std::string>({"m k, k n -> m n", "m k, n k -> m n"});
    const Var x = value(2);
    const Var y = product(dims, x, size());
    add(y);
    const Var w = Var(&b_, b_.function().producer(y.id())->inputs[1]);
    for (size_t left = 1 + below(2); left > 0; --left) add(dot(dims, param({size(), x.dim(1)}), w));
  }
  void sum_of_products() {
    const bool has_batch = chance(2);
    const std::string dims = has_batch
                                 ? pick<std::string>({"b m k, k n -> b m n", "b m k, n k -> b m n"})
                                 : pick<std::string>({"m k, k n -> m n", "m k, n k -> m n"});
    const Var x = value(has_batch ? 3 : 2);
    Shape other = x.shape();
    other[x.rank() - 1] = size();
    const int64_t n = size();
    Var sum = product(dims, x, n) + product(dims, param(other), n);
    if (chance(3)) sum = sum + product(dims, x, n);
    add(sum);
  }

  ConvOptions window(const Var& x, int64_t kh, int64_t kw) {
    ConvOptions o;
    o.stride = {1 + static_cast<int64_t>(below(2)), 1 + static_cast<int64_t>(below(2))};
    o.dilation = {1 + static_cast<int64_t>(below(2)), 1 + static_cast<int64_t>(below(2))};
    o.lo = {static_cast<int64_t>(below(2)), static_cast<int64_t>(below(2))};
    o.hi = {static_cast<int64_t>(below(2)), static_cast<int64_t>(below(2))};
    if (chance(2)) o.stride = {1, 1};
    if (chance(2)) o.dilation = {1, 1};
    if (x.dim(2).bound() <= o.dilation[0] * (kh - 1) ||
        x.dim(3).bound() <= o.dilation[1] * (kw - 1))
      o.dilation = {1, 1}, o.lo = o.hi = {2, 2};
    return o;
  }
  void convolutions() {
    const Var x = value(4);
    const int64_t kh = pick<int64_t>({1, 1, 2, 3}), kw = kh == 1 ? 1 : pick<int64_t>({1, 2, 3});
    const ConvOptions o = kh == 1 && chance(2) ? ConvOptions() : window(x, kh, kw);
    const auto weight = [&](Dim ci) { return param({small(), ci, kh, kw}); };
    const Var a = weight(x.dim(1));
    Var y = conv(x, a, o);
    switch (below(6)) {
      case 0:
        add(conv(x, weight(x.dim(1)), o));
        break;
      case 1: {
        const Var z = param({x.dim(0), small(), x.dim(2), x.dim(3)});
        y = y + conv(z, param({a.dim(0), z.dim(1), kh, kw}), o);
        break;
      }
      case 2:
        y = y * broadcast(param({1, a.dim(0), 1, 1}), y.shape());
        break;
      case 3: {  // as batch norm does
        const Var mean = broadcast(param({1, a.dim(0), 1, 1}), y.shape());
        y = (y - mean) * broadcast(param({1, a.dim(0), 1, 1}), y.shape());
        break;
      }
      case 4:
        if (x.dim(1).bound() % 2 == 0) {
          ConvOptions grouped = o;
          grouped.groups = 2;
          add(conv(x, param({2 * small(), x.dim(1).bound() / 2, kh, kw}), grouped));
        }
        break;
      default:
        y = chance(2) ? relu(y) : y;
    }
    add(y);
    if (chance(4) && y.valid() && y.dim(2).bound() > 2 && y.dim(3).bound() > 2)
      add(chance(2) ? max_pool(y, {2, 2}) : avg_pool(y, {2, 3}));
  }

  void reduction() {
    const Var x = any();
    std::vector<int64_t> dims;
    for (int d = 0; d < x.rank(); ++d)
      if (chance(2)) dims.push_back(d);
    if (dims.empty()) dims.push_back(static_cast<int64_t>(below(static_cast<size_t>(x.rank()))));
    const bool keeps = chance(2);
    const Var y = chance(3) ? reduce_max(x, dims, keeps) : reduce_sum(x, dims, keeps);
    if (y.rank() > 0) add(y);
  }

  void movement() {
    const Var x = any();
    const int d = static_cast<int>(below(static_cast<size_t>(x.rank())));
    const int64_t n = x.dim(d).bound();
    switch (below(7)) {
      case 0: {
        const std::vector<Var> parts = {x, like(x), x};
        return add(concat(std::span(parts).first(2 + below(2)), d));
      }
      case 1:
        return add(slice(x, d, static_cast<int64_t>(below(static_cast<size_t>(n))), 1));
      case 2:
        if (n < 3) return;
        return add(chance(2) ? slice(x, d, 1, n - 2) : slice(x, d, 0, (n + 1) / 2, 2));
      case 3:
        return add(pad(x, d, static_cast<int64_t>(below(3)), static_cast<int64_t>(below(2)),
                       chance(3) ? 1 : 0, 0));
      case 4: {
        std::vector<int64_t> order;
        for (int i = 0; i < x.rank(); ++i) order.push_back(i);
        std::shuffle(order.begin(), order.end(), rng_);
        return add(permute(x, order));
      }
      case 5:
        if (x.rank() > 1) {
          const int at = static_cast<int>(below(static_cast<size_t>(x.rank() - 1)));
          Shape s = x.shape();
          s[at] = s[at].bound() * s[at + 1].bound();
          s.erase(at + 1);
          return add(reshape(x, s));
        }
        return;
      default:
        if (x.rank() < 4) {
          Shape s = x.shape();
          s.insert(0, small());
          add(broadcast(x, s));
        }
    }
  }
  void scaled() {
    const Var x = value(2);
    const Var y = product("m k, k n -> m n", x, size());
    add(y * broadcast(param({y.dim(1)}), y.shape()));
  }
  void elementwise() {
    const Var x = any();
    switch (below(9)) {
      case 0:
        return add(x + like(x));
      case 1:
        return add(x - like(x));
      case 2:
        return add(x * like(x));
      case 3:
        return add(max(x, like(x)));
      case 4:
        return add(x * pick({0.5, -2.0, 3.0}));
      case 5:
        return add(tanh(x));
      case 6:
        return add(chance(2) ? relu(x) : neg(x));
      case 7:
        return add(sigmoid(x));
      default: {
        const DType to = pick({DType::kF32, DType::kBF16, DType::kF16});
        return add(chance(2) ? cast(x, to) : cast(cast(x, to), x.dtype()));
      }
    }
  }

  std::mt19937_64 rng_;
  Builder b_;
  DType dtype_;
  int n_params_ = 0;
  std::map<std::string, Var> inputs_;  // of a rule
  std::vector<Var> made_;
};

}  // namespace tegula::testing
