// Runs small programs of ops, and their gradients, for tests that compare with PyTorch: a process
// that is asked thousands of times.
//
// Reads from stdin, line by line, ids counting parameters and results of ops in order:
//   param f32 2 3                               a parameter of shape [2,3]
//   op reduce_sum 1 0 2 dims is 1 0 keep b 1    operands, then attributes: i, f, b, s ("~" is a
//                                               space), t (dtype), is and ds (count, numbers)
//   result 1
//   grad 1 0                                    how many parameters, which: gradients of the sum
//                                               over float results of <cotangent, result>
//   run                                         then, as raw bytes, every parameter and, with
//                                               grad, a cotangent of every float result
// Writes "ok N" and N tensors ("f32 2 3", then raw bytes): results and gradients as compiled, then
// the same by reference at the tensors' own precision; or "error …". `ops` lists the table.
#include <iostream>
#include <sstream>

#include "tegula/base/str.h"
#include "tegula/ir/interpret.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

template <class T>
std::vector<T> counted(std::istream& in) {
  size_t n = 0;
  in >> n;
  std::vector<int64_t> numbers(std::min<size_t>(n, 1000));
  for (int64_t& v : numbers) in >> v;
  return {numbers.begin(), numbers.end()};
}

Result<AttrValue> attribute(std::istream& in) {
  std::string kind, word;
  in >> kind;
  if (kind == "is") return AttrValue(counted<int64_t>(in));
  if (kind == "ds") return AttrValue(counted<Dim>(in));
  in >> word;
  if (kind == "i") return AttrValue(static_cast<int64_t>(std::stoll(word)));
  if (kind == "b") return AttrValue(word == "1");
  if (kind == "f") return AttrValue(std::stod(word));
  if (kind == "t") {
    const auto dtype = parse_dtype(word);
    if (dtype) return AttrValue(*dtype);
  }
  if (kind == "s") {
    for (char& c : word)
      if (c == '~') c = ' ';
    return AttrValue(word);
  }
  return invalid_argument(cat("an attribute of kind ", kind));
}

class Program {
 public:
  // Takes a line other than `run`.
  Status add(const std::string& line) {
    std::istringstream in(line);
    std::string what, word;
    in >> what >> word;
    if (what == "param") {
      const auto dtype = parse_dtype(word);
      if (!dtype) return invalid_argument(cat("no dtype ", word));
      Shape shape;
      for (int64_t d = 0; in >> d;) shape.push_back(d);
      params_.push_back(b_.param(cat("x", params_.size()), {*dtype, shape}));
      values_.push_back(params_.back());
      return {};
    }
    if (what == "op") return op(word, in);
    const size_t first = std::stoul(word);
    if (what == "result") {
      results_.push_back(values_.at(first));
    } else if (what == "grad") {
      by_grad_ = true;
      for (size_t i = 0, k = 0; i < first && in >> k; ++i) wrt_.push_back(values_.at(k));
    } else {
      return invalid_argument(cat("what is ", what));
    }
    return {};
  }

  // The types of what `run` reads.
  std::vector<Type> inputs() {
    std::vector<Type> types;
    for (const Var& v : results_)
      if (by_grad_ && is_float(v.dtype()) && !b_.failed())
        cts_.push_back(b_.param(cat("ct", cts_.size()), v.type()));
    for (const Param& p : b_.function().params) types.push_back(b_.type(p.value));
    return types;
  }

  Result<std::vector<HostTensor>> run(const std::vector<HostTensor>& in) {
    for (const Var& y : results_) b_.result(cat("y", n_results_++), y);
    if (by_grad_) gradients();
    const FuncId f = TEGULA_TRY(b_.finish_into_module());
    auto reference = TEGULA_TRY(interpret(*module_, (*module_)[f], in, Arithmetic::kNaive));
    const Compiled c = TEGULA_TRY(compile(module_, f, {}));
    Rank rank(1);
    const auto session = TEGULA_TRY(Session::create(c.plan, rank));
    std::vector<HostTensor> values = in, out;
    for (size_t i = 0; i < values.size(); ++i)
      session->bind(static_cast<int>(i), values[i].bytes.data());
    TEGULA_TRY(session->run());
    for (size_t i = 0; i < reference.size(); ++i)
      out.push_back(copy_of(session->result(static_cast<int>(i))));
    for (HostTensor& t : reference) out.push_back(std::move(t));
    return out;
  }

 private:
  Status op(const std::string& name, std::istream& in) {
    const OpDef* def = find_op(name);
    if (!def) return invalid_argument(cat("no op ", name));
    std::vector<Var> operands;
    for (const int64_t k : counted<int64_t>(in))
      operands.push_back(values_.at(static_cast<size_t>(k)));
    size_t n_attrs = 0;
    in >> n_attrs;
    Attrs attrs;
    for (size_t i = 0; i < n_attrs; ++i) {
      std::string key;
      in >> key;
      attrs.set(key, TEGULA_TRY(attribute(in)));
    }
    const auto out = b_.emit_n(*def, std::move(attrs), operands);
    if (b_.failed()) return b_.error();
    values_.insert(values_.end(), out.begin(), out.end());
    return {};
  }

  void gradients() {
    std::vector<Var> ys;
    for (const Var& y : results_)
      if (is_float(y.dtype())) ys.push_back(y);
    const auto g = pullback(b_, ys, cts_, wrt_);
    for (size_t i = 0; i < g.size(); ++i)
      b_.result(cat("g", i), g[i].valid() ? g[i] : zeros_like(wrt_[i]));
  }

  std::shared_ptr<Module> module_ = std::make_shared<Module>();
  Builder b_{*module_, "f"};
  std::vector<Var> values_, params_, results_, wrt_, cts_;
  bool by_grad_ = false;
  size_t n_results_ = 0;
};

void answer(const Result<std::vector<HostTensor>>& out) {
  if (!out.ok()) {
    std::cout << "error " << out.error().message << '\n';
    return;
  }
  std::cout << "ok " << out->size() << '\n';
  for (const HostTensor& t : *out) {
    std::cout << dtype_name(t.type.dtype);
    for (const Dim& d : t.type.shape) std::cout << ' ' << d.bound();
    std::cout << '\n';
    std::cout.write(reinterpret_cast<const char*>(t.bytes.data()),
                    static_cast<std::streamsize>(t.bytes.size()));
  }
}

void serve() {
  std::string line;
  Program program;
  Status status;
  while (std::getline(std::cin, line)) {
    if (line == "ops") {
      for (const OpDef* op : all_ops()) std::cout << op->name << ' ';
      std::cout << '\n' << std::flush;
    } else if (line != "run") {
      if (status.ok()) status = program.add(line);
    } else if (!status.ok()) {
      // The data that was to be read is not known: the peer sends data only after "data".
      answer(std::move(status).error());
      std::cout << std::flush;
      status = {};
      std::destroy_at(&program), std::construct_at(&program);
    } else {
      std::vector<HostTensor> in;
      for (const Type& t : program.inputs()) in.emplace_back(t);
      std::cout << "data\n" << std::flush;
      for (HostTensor& t : in)
        std::cin.read(reinterpret_cast<char*>(t.bytes.data()),
                      static_cast<std::streamsize>(t.bytes.size()));
      answer(program.run(in));
      std::cout << std::flush;
      std::destroy_at(&program), std::construct_at(&program);
    }
  }
}

}  // namespace
}  // namespace tegula

int main() {
  std::ios::sync_with_stdio(false);
  tegula::serve();
}
