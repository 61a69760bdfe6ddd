#include "tegula/train/gradients.h"

#include "tegula/base/algorithm.h"
#include "tegula/io/safetensors.h"
#include "tegula/ir/interpret.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/rotary.h"
#include "tegula/ops/autodiff.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/finite_hunt.h"
#include "tegula/runtime/session.h"
#include "tegula/train/masking.h"

namespace tegula {

namespace {

struct Problem {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId function = kNone;
  std::vector<WeightSpec> weights;
};

// tokens, targets, weights -> loss, logits, gradients in the order of the weights.
Result<Problem> build(const ModelConfig& config, int64_t batch, int64_t seqlen) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  Problem p;
  Builder b(*p.module, "gradients");
  Context c(b, config);
  const Type ids = {DType::kI32, {batch, seqlen}};
  const Var tokens = b.param("tokens", ids), targets = b.param("targets", ids);
  const Var h = model->hidden(c, tokens);
  const Var loss = hidden_loss(c, *model, h, targets);
  b.result("loss", loss);
  b.result("logits", hidden_logits(c, *model, h));
  p.weights = c.weights();
  std::vector<Var> vars;
  for (const WeightSpec& w : p.weights) vars.push_back(c.weight(w.name, w.type.shape));
  const auto grads = grad(loss, vars);
  for (size_t i = 0; i < grads.size(); ++i) b.result("grad." + p.weights[i].name, grads[i]);
  p.function = TEGULA_TRY(b.finish_into_module());
  return p;
}

using Rows = std::vector<std::vector<int32_t>>;

Status check_rows(const Rows& rows, const ModelConfig& config, bool has_targets) {
  const size_t length = rows.empty() ? 0 : rows[0].size(), n_next = has_targets ? 0 : 1;
  if (length < 1 + n_next || length > static_cast<size_t>(config.max_seqlen) + n_next)
    return invalid_argument(cat("rows of ", length, " tokens: give at least ", 1 + n_next,
                                ", and at most ", config.max_seqlen + static_cast<int64_t>(n_next),
                                ", the model's context", has_targets ? "" : " and one to predict"));
  for (const auto& row : rows) {
    if (row.size() != length)
      return invalid_argument(
          cat("rows have ", length, " and ", row.size(), " tokens: they must be equally long"));
    for (int32_t id : row)
      if (id < 0 || id >= config.vocab_size)
        return invalid_argument(
            cat("token ", id, " is not in the vocabulary of ", config.vocab_size));
  }
  return {};
}

// -100 is none; an id that no logit is of would be none in silence.
Status check_targets(const Rows& targets, const Rows& rows, const ModelConfig& config) {
  const auto length = [](const Rows& r, size_t i) { return i < r.size() ? r[i].size() : 0; };
  for (size_t i = 0; i < std::max(targets.size(), rows.size()); ++i)
    if (length(targets, i) != length(rows, i))
      return invalid_argument(cat("--targets: row ", i + 1, " has ", length(targets, i),
                                  " targets, and that of --tokens ", length(rows, i),
                                  " tokens: give one for each, -100 for none"));
  for (const auto& row : targets)
    for (int32_t id : row)
      if (id != kIgnored && (id < 0 || id >= config.vocab_size))
        return invalid_argument(cat("--targets: ", id, " is neither in the vocabulary of ",
                                    config.vocab_size, " nor -100, none"));
  return {};
}

// tokens and targets, [rows, length].
std::vector<HostTensor> inputs(const Rows& rows, const Rows& targets) {
  const size_t seqlen = rows[0].size() - (targets.empty() ? 1 : 0);
  const Type type = {DType::kI32,
                     {static_cast<int64_t>(rows.size()), static_cast<int64_t>(seqlen)}};
  std::vector<HostTensor> in(2, HostTensor(type));
  int64_t at = 0;
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < seqlen; ++i, ++at) {
      in[0].put(at, rows[r][i]);
      in[1].put(at, targets.empty() ? rows[r][i + 1] : targets[r][i]);
    }
  return in;
}

// Compiles and runs it in f32. `in` is in the order of the function's parameters: tokens, targets,
// weights.
Result<std::unique_ptr<Session>> run_compiled(const Problem& p, const std::vector<HostTensor>& in,
                                              Rank& rank) {
  CompileOptions options;
  options.plan.target = Target::this_cpu(rank.pool.n_threads());
  const Compiled compiled = TEGULA_TRY(compile(p.module, p.function, options));
  auto session = TEGULA_TRY(Session::create(compiled.plan, rank));
  for (size_t i = 0; i < in.size(); ++i) session->bind(static_cast<int>(i), in[i].ref().data);
  TEGULA_TRY(session->run());
  return session;
}

Result<std::vector<HostTensor>> run(const Problem& p, const std::vector<HostTensor>& in,
                                    DType dtype, int threads) {
  if (dtype == DType::kF64) return interpret(*p.module, (*p.module)[p.function], in);
  Rank rank(threads);
  const auto session = TEGULA_TRY(run_compiled(p, in, rank));
  std::vector<HostTensor> out;
  for (size_t i = 0; i < session->plan().results.size(); ++i)
    out.push_back(copy_of(session->result(static_cast<int>(i))));
  return out;
}

// The error names the first result that is not finite, in the order loss, logits, gradients, and
// the place in the model where numbers stopped being so, by a run in f32.
Status check_finite(const Problem& p, const std::vector<HostTensor>& in,
                    const std::vector<HostTensor>& out, DType dtype, int threads) {
  const auto bad = std::find_if(out.begin(), out.end(),
                                [](const HostTensor& t) { return !are_finite(t.ref()); });
  if (bad == out.end()) return {};
  const auto i = static_cast<size_t>(bad - out.begin());
  const std::string what = i == 0 ? cat("the loss is ", bad->at(0))
                           : i == 1
                               ? std::string("a logit is not finite")
                               : cat("the gradient of ", p.weights[i - 2].name, " is not finite");
  std::string where;
  Rank rank(threads);
  if (const auto session = run_compiled(p, in, rank); session.ok()) {
    FiniteHunt hunt(**session);
    (void)(*session)->run();
    where = hunt.found().text();
  }
  return invalid_argument(cat(what, " in ", dtype, where.empty() ? "" : ": ", where,
                              dtype == DType::kF32
                                  ? "; f32 ends at 3.4e38: --dtype f64 shows whether more would do"
                                  : "; no --dtype reaches further"));
}

}  // namespace

Result<ModelGradients> model_gradients(const std::string& path,
                                       const std::vector<std::vector<int32_t>>& rows,
                                       const std::vector<std::vector<int32_t>>& targets,
                                       DType dtype, int threads) {
  const auto files = TEGULA_TRY(ModelFiles::open(path));
  const ModelConfig config = TEGULA_TRY(load_model_config(*files));
  if (TEGULA_TRY(find_model(config.type))->sees_ahead && targets.empty())
    return invalid_argument(cat(path, ": a ", config.type, " predicts no next token: give ",
                                "--targets, the tokens behind masks and -100 elsewhere"));
  TEGULA_TRY(check_rows(rows, config, !targets.empty()));
  if (!targets.empty()) TEGULA_TRY(check_targets(targets, rows, config));
  std::vector<HostTensor> in = inputs(rows, targets);
  const int64_t seqlen = in[0].type.shape[1].bound();
  const Problem p = TEGULA_TRY(build(config, in[0].type.shape[0].bound(), seqlen));
  std::vector<std::pair<std::string, TensorRef>> into;
  for (const WeightSpec& w : p.weights) into.emplace_back(w.name, in.emplace_back(w.type).ref());
  TEGULA_TRY(read_weights(TEGULA_TRY(files->weights()), config, into));
  std::vector<HostTensor> out = TEGULA_TRY(run(p, in, dtype, threads));
  TEGULA_TRY(check_finite(p, in, out, dtype, threads));
  ModelGradients g;
  g.note = note_on_rotary(config, seqlen);
  g.loss = out[0].at(0);
  g.logits = std::move(out[1]);
  for (size_t i = 0; i < p.weights.size(); ++i)
    for (const auto& [name, part] : checkpoint_parts(config, p.weights[i].name, out[i + 2].ref()))
      g.grads.emplace_back(name, copy_of(part));
  return g;
}

Status write_gradients(const std::string& path, const ModelGradients& g) {
  const HostTensor loss({DType::kF64, {}}, std::span(&g.loss, 1));
  std::vector<NamedTensor> tensors = {{"loss", loss.ref()}, {"logits", g.logits.ref()}};
  for (const auto& [name, grad] : g.grads) tensors.push_back({name, grad.ref()});
  return write_safetensors(path, tensors);
}

}  // namespace tegula
