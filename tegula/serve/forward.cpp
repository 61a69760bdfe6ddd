#include "tegula/serve/forward.h"

#include "tegula/runtime/compile.h"
#include "tegula/runtime/finite_hunt.h"
#include "tegula/serve/map_weights.h"

namespace tegula {

namespace {

// tokens, targets i32 [rows, length] -> losses [rows, length], logits [rows, length, vocab].
Result<FuncId> build(Module& module, const ModelConfig& config, const ForwardOptions& o,
                     const BlockFormats& formats) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  Builder b(module, "forward");
  Context c(b, config);
  c.dtype = o.dtype, c.formats = &formats;
  const Type ids{DType::kI32, {o.rows, o.length}};
  const Var tokens = b.param("tokens", ids), targets = b.param("targets", ids);
  const Var h = model->hidden(c, tokens);
  const Scope at(b, "head");
  b.result("losses", hidden_losses(c, *model, h, targets));
  if (o.wants_logits) b.result("logits", hidden_logits(c, *model, h));
  return b.finish_into_module();
}

}  // namespace

Forward::Forward(const ModelConfig& config, const ForwardOptions& options)
    : config_(config), options_(options), rank_(options.threads), store_(rank_) {
  const auto n = static_cast<size_t>(options.rows * options.length);
  tokens_.resize(n), targets_.resize(n);
}

Result<std::unique_ptr<Forward>> Forward::create(std::shared_ptr<const ModelFiles> files,
                                                 const ModelConfig& config,
                                                 const ForwardOptions& o) {
  if (o.length > config.max_seqlen)
    return invalid_argument(cat("rows of ", o.length, " tokens are longer than the context of ",
                                config.max_seqlen, " that '", files->path(), "' has"));
  std::unique_ptr<Forward> f(new Forward(config, o));
  f->weights_ = TEGULA_TRY(map_weights(*files, config, o.dtype, f->rank_, f->store_, f->formats_));
  TEGULA_TRY(files->verify_weights());
  TEGULA_TRY(f->weights_->check(f->rank_.pool));
  CompileOptions options;
  options.plan.target = Target::this_cpu(f->rank_.pool.n_threads());
  options.passes.pass.is_inference = true;
  options.passes.pass.mode = o.mode;
  options.passes.pass.quantises_rows = o.quantises_activations;
  auto module = std::make_shared<Module>();
  const FuncId function = TEGULA_TRY(build(*module, config, o, f->formats_));
  const Compiled compiled = TEGULA_TRY(compile(module, function, options));
  f->session_ = TEGULA_TRY(Session::create(compiled.plan, f->rank_));
  TEGULA_TRY(f->session_->bind_store(f->store_));
  TEGULA_TRY(f->session_->bind_input("tokens", f->tokens_.data()));
  TEGULA_TRY(f->session_->bind_input("targets", f->targets_.data()));
  return f;
}

Status Forward::run() {
  TEGULA_TRY(session_->run());
  const auto all = [](const TensorRef& t) {
    return std::span(t.as<float>(), static_cast<size_t>(t.numel()));
  };
  losses_ = all(TEGULA_TRY(session_->fetch("losses")));
  if (options_.wants_logits) logits_ = all(TEGULA_TRY(session_->fetch("logits")));
  if (are_finite(session_->result("losses"))) return {};
  FiniteHunt hunt(*session_);
  (void)session_->run();
  return invalid_argument(
      cat("what a token costs is not finite in ", options_.dtype, ": ", hunt.found().text()));
}

}  // namespace tegula
