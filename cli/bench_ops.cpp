// `tegula bench ops` times the ops of a training step that are no plain products, each alone.

#include "cli/bench.h"
#include "tegula/base/algorithm.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/quantise.h"
#include "tegula/ops/rope.h"
#include "tegula/ops/table.h"
#include "tegula/train/optimizer.h"

namespace tegula::cli {

namespace {

// The operands of an op, by the sizes of x: [rows, columns].
struct Operands {
  Builder& b;
  DType type;
  int64_t rows, columns, vocab_size;

  Var matrix(const char* name) const { return b.param(name, {type, {rows, columns}}); }
  Var row(const char* name) const { return b.param(name, {type, {columns}}); }
  // A number of each row that its norm has kept.
  Var kept(const char* name) const { return b.param(name, {accumulator(type), {rows}}); }
  Var table() const { return b.param("table", {type, {vocab_size, columns}}); }
  Var ids() const { return b.param("ids", {DType::kI32, {rows}}); }
  void results(const std::vector<Var>& all) const {
    for (const Var& v : all) b.result(cat("y", b.function().results.size()), v);
  }
  void results(const OpDef& op, Attrs attrs, const std::vector<Var>& in) const {
    results(b.emit_n(op, std::move(attrs), in));
  }
};

template <auto F>
void forward(const Operands& o) {
  o.results({F(o.matrix("x"), Loc::current())});
}

// By the op's own rule: of functions whose rule needs no more than x.
template <auto F>
void backward(const Operands& o) {
  const Var x = o.matrix("x"), y = F(x, Loc::current()), dy = o.matrix("dy");
  o.results(pullback(o.b, {&y, 1}, {&dy, 1}, {&x, 1}));
}

WeightSpec updated_weight(const Operands& o) {
  return {.name = "w", .type = {o.type, {o.rows, o.columns}}, .decays = true};
}

struct OpBench {
  const char* name;
  void (*build)(const Operands&);
  bool is_f32 = false;  // whatever --dtype says
};
constexpr OpBench kOps[] = {
    {"layer_norm",
     [](const Operands& o) {
       o.results({layer_norm(o.matrix("x"), o.row("weight"), o.row("bias"))});
     }},
    {"layer_norm_bwd",
     [](const Operands& o) {
       o.results(layer_norm_bwd_op, {{"bias", true}},
                 {o.matrix("x"), o.row("weight"), o.kept("mean"), o.kept("rstd"), o.matrix("dy")});
     }},
    {"rms_norm", [](const Operands& o) { o.results({rms_norm(o.matrix("x"), o.row("weight"))}); }},
    {"rms_norm_bwd",
     [](const Operands& o) {
       o.results(rms_norm_bwd_op, {},
                 {o.matrix("x"), o.row("weight"), o.kept("rstd"), o.matrix("dy")});
     }},
    {"softmax", forward<softmax>},
    {"softmax_bwd",
     [](const Operands& o) {
       o.results(softmax_bwd_op, {}, {o.matrix("y"), o.matrix("dy")});
     }},
    {"logsumexp", forward<logsumexp>},
    {"log_softmax", forward<log_softmax>},
    {"cross_entropy",
     [](const Operands& o) { o.results({cross_entropy_loss(o.matrix("x"), o.table(), o.ids())}); }},
    {"cross_entropy_grads",  // with the loss, as a training step has them
     [](const Operands& o) {
       const Var in[] = {o.matrix("x"), o.table()};
       const Var loss = cross_entropy_loss(in[0], in[1], o.ids());
       o.results({loss});
       o.results(grad(loss, in));
     }},
    {"rope",  // heads of 64, or one
     [](const Operands& o) {
       const int64_t d = o.columns % 64 == 0 ? 64 : o.columns;
       o.results({rope(o.b.param("x", {o.type, {1, o.rows, o.columns / d, d}}), {})});
     }},
    {"embedding", [](const Operands& o) { o.results({embedding(o.table(), o.ids())}); }},
    {"embedding_bwd",
     [](const Operands& o) {
       o.results(embedding_bwd_op, {{"rows", std::vector<Dim>{o.vocab_size}}},
                 {o.matrix("dy"), o.ids()});
     }},
    {"gelu", forward<gelu>},
    {"gelu_bwd", backward<gelu>},
    {"silu", forward<silu>},
    {"silu_bwd", backward<silu>},
    {"adamw",  // of one matrix, with the gradient's norm and clipping
     [](const Operands& o) {
       const WeightSpec w = updated_weight(o);
       o.results({apply_optimizer(o.b, {}, StepScalars::params(o.b), {w},
                                  {o.b.weight(w.name, w.type)}, {o.matrix("grad")})});
     },
     true},
    {"quantise",  // a scale for each row, as products of int8 take them
     [](const Operands& o) {
       const Quantised q = quantise(o.matrix("x"), 0);
       o.results({q.q, q.scale});
     },
     true},
    {"dequantise",
     [](const Operands& o) {
       const Var q = o.b.param("q", {DType::kI8, {o.rows, o.columns}});
       o.results({dequantise(q, o.row("scale"), 1)});
     },
     true},
};

// Operands and results, once each; of a table that is only looked up, the rows.
double least_bytes(const OpBench& op, const Function& f, const Operands& o) {
  int64_t bytes = 0;
  for (const Param& p : f.params) bytes += f.type(p.value).bytes();
  for (const Output& r : f.results) bytes += f.type(r.value).bytes();
  if (std::string_view(op.name) == "embedding")
    bytes -= Type{o.type, {o.vocab_size - std::min(o.rows, o.vocab_size), o.columns}}.bytes();
  return static_cast<double>(bytes);
}

}  // namespace

std::vector<std::string> op_bench_names() {
  std::vector<std::string> names;
  for (const OpBench& op : kOps) names.emplace_back(op.name);
  return names;
}

Result<std::vector<BenchWork>> op_works(const BenchOptions& o) {
  const auto s = TEGULA_TRY(shape_numbers(o.shape, 2, "ROWS,COLUMNS"));
  std::vector<BenchWork> works;
  for (const OpBench& op : kOps) {
    if (!o.only.empty() && o.only != op.name) continue;
    BenchWork w;
    Builder b(*w.module, op.name);
    const Operands operands{b, op.is_f32 ? DType::kF32 : dtype_of(o), s[0], s[1], o.vocab_size};
    op.build(operands);
    w.function = TEGULA_TRY(b.finish_into_module());
    const Function& f = (*w.module)[w.function];
    w.bytes = least_bytes(op, f, operands);
    w.integers_below = o.vocab_size;
    if (f.find_param("w") >= 0) w.weights = {updated_weight(operands)};
    w.op = op.name;
    w.what = cat(op.name, " ", o.shape);
    if (f.find_param("ids") >= 0) w.what += cat(" vocab-size ", o.vocab_size);
    w.what += cat(" ", operands.type);
    works.push_back(std::move(w));
  }
  return works;
}

}  // namespace tegula::cli
