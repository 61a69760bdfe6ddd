#include "tegula/serve/evaluate.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/io/safetensors.h"
#include "tegula/models/rotary.h"
#include "tegula/serve/forward.h"

namespace tegula {

namespace {

// A part of a row that is read at once, and what of it is predicted for the first time.
struct Window {
  std::span<const int32_t> ids;  // the last one is predicted alone
  size_t n_known = 0;            // predictions that earlier windows made
  size_t n_new() const { return ids.size() - 1 - n_known; }
};

std::vector<Window> windows_of(const TokenRows& rows, size_t context, size_t stride) {
  std::vector<Window> all;
  for (const auto& row : rows)
    for (size_t begin = 0, done = 1; done < row.size(); begin += stride) {
      const size_t end = std::min(begin + context + 1, row.size());
      all.push_back({std::span(row).subspan(begin, end - begin), done - begin - 1});
      done = end;
    }
  return all;
}

Status check_rows(const TokenRows& rows, int64_t vocab_size) {
  if (rows.empty()) return invalid_argument("there are no tokens to predict");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() < 2)
      return invalid_argument(cat("row ", i + 1, " has ", rows[i].size(),
                                  " tokens: at least 2 are needed, one to predict the next by"));
    for (const int32_t id : rows[i])
      if (id < 0 || id >= vocab_size)
        return invalid_argument(cat("token ", id, " of row ", i + 1,
                                    " is not in the vocabulary of ", vocab_size,
                                    " that the model has"));
  }
  return {};
}

Status check_sizes(const EvaluateOptions& o, int64_t context, int64_t stride, int64_t most) {
  if (context > most)
    return invalid_argument(cat("windows of ", context, " tokens are longer than the context of ",
                                most, " that the model has"));
  if (stride <= context) return {};
  return invalid_argument(cat("a stride of ", o.stride, " tokens is longer than the windows of ",
                              context, ": it would leave tokens out"));
}

// Where the logits that are compared with come from: another model, or a file.
class Compared {
 public:
  static Result<Compared> open(const std::string& path, const ForwardOptions& options,
                               int64_t vocab_size) {
    Compared r;
    int64_t its = 0;
    if (path.ends_with(".safetensors")) {
      r.file_ = std::make_unique<SafetensorsFile>(TEGULA_TRY(SafetensorsFile::open(path)));
      for (const char* name : {"logits", "tokens"}) {
        const TensorRef* t = r.file_->find(name);
        const bool is_logits = std::string_view(name) == "logits";
        if (t == nullptr || t->dtype != (is_logits ? DType::kF32 : DType::kI32) ||
            t->rank != (is_logits ? 2 : 1))
          return invalid_argument(cat("'", path, "' is no file of logits: it has no ", name, ", ",
                                      is_logits ? "f32 of 2 dims" : "i32 of 1 dim",
                                      "; tegula eval --logits writes one"));
      }
      its = r.file_->find("logits")->shape[1];
    } else {
      const auto files = TEGULA_TRY(ModelFiles::open(path, Check::kAllButTensors));
      const ModelConfig config = TEGULA_TRY(load_model_config(*files));
      r.forward_ = TEGULA_TRY(Forward::create(files, config, options));
      its = config.vocab_size;
    }
    if (its == vocab_size) return r;
    return invalid_argument(cat("'", path, "' has a vocabulary of ", its, " and the model one of ",
                                vocab_size, ": distributions over both cannot be compared"));
  }

  // Whether the file is of these tokens.
  Status check(std::span<const Window> windows, int64_t n_tokens) const {
    if (file_ == nullptr) return {};
    const TensorRef& tokens = *file_->find("tokens");
    const auto wrong = [&](const std::string& why) {
      return invalid_argument(
          cat("the logits in '", file_->path(), "' are of other tokens: ", why));
    };
    if (tokens.shape[0] != n_tokens || file_->find("logits")->shape[0] != n_tokens)
      return wrong(cat(tokens.shape[0], " are predicted there, and ", n_tokens, " here"));
    size_t at = 0;
    for (const Window& w : windows)
      for (size_t i = w.n_known + 1; i < w.ids.size(); ++i, ++at)
        if (tokens.as<int32_t>()[at] != w.ids[i])
          return wrong(cat("number ", at + 1, " is ", tokens.as<int32_t>()[at], " there, and ",
                           w.ids[i], " here"));
    return {};
  }

  Forward* forward() { return forward_.get(); }
  // The logits of prediction i of row r, number `at` of all.
  std::span<const float> logits(int64_t r, size_t i, size_t at, size_t v) const {
    if (forward_) return forward_->logits(r).subspan(i * v, v);
    return std::span(file_->find("logits")->as<float>(), (at + 1) * v).subspan(at * v, v);
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
  std::unique_ptr<Forward> forward_;
};

size_t best_of(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Run {
  Forward& model;
  Compared* reference;         // null: none
  std::vector<float>* logits;  // null: not kept
  std::vector<float>& losses;  // of all tokens, as what follows
  std::vector<double> divergences = {};
  std::vector<uint8_t> same_best = {};
};

void fill_rows(Forward& f, std::span<const Window> windows) {
  for (size_t r = 0; r < windows.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    const auto ids = windows[r].ids;
    const auto tokens = f.tokens(row), targets = f.targets(row);
    std::fill(tokens.begin(), tokens.end(), 0), std::fill(targets.begin(), targets.end(), 0);
    std::copy(ids.begin(), ids.end() - 1, tokens.begin());
    std::copy(ids.begin() + 1, ids.end(), targets.begin());
  }
}

// One run of the model, and of the reference, on some windows; `at`: the first of their tokens.
Status run_some(Run& run, std::span<const Window> windows, size_t at) {
  fill_rows(run.model, windows);
  TEGULA_TRY(run.model.run());
  if (run.reference && run.reference->forward()) {
    fill_rows(*run.reference->forward(), windows);
    TEGULA_TRY(run.reference->forward()->run());
  }
  const auto v = static_cast<size_t>(run.model.config().vocab_size);
  for (size_t r = 0; r < windows.size(); ++r) {
    const Window& w = windows[r];
    const auto row = static_cast<int64_t>(r);
    for (size_t i = 0; i < w.n_new(); ++i)
      run.losses[at + i] = run.model.losses(row)[w.n_known + i];
    const auto compare = [&](int64_t i, int) {
      const size_t place = w.n_known + static_cast<size_t>(i), all = at + static_cast<size_t>(i);
      const auto ours = run.model.logits(row).subspan(place * v, v);
      if (run.logits)
        std::copy(ours.begin(), ours.end(),
                  run.logits->begin() + static_cast<std::ptrdiff_t>(all * v));
      if (!run.reference) return;
      const auto theirs = run.reference->logits(row, place, all, v);
      run.divergences[all] = divergence_of(theirs, ours);
      run.same_best[all] = best_of(theirs) == best_of(ours);
    };
    if (run.logits || run.reference)
      run.model.pool().parallel_for(static_cast<int64_t>(w.n_new()), compare);
    at += w.n_new();
  }
  return {};
}

Divergence summary_of(const Run& run) {
  Divergence d;
  double sum = 0;
  for (size_t i = 0; i < run.divergences.size(); ++i) {
    sum += run.divergences[i];
    d.same_best += run.same_best[i];
    if (run.divergences[i] > d.largest)
      d.largest = run.divergences[i], d.largest_at = static_cast<int64_t>(i);
  }
  d.mean = sum / static_cast<double>(run.divergences.size());
  return d;
}

Status write_logits(const std::string& path, std::vector<float>& logits, int64_t vocab_size,
                    std::span<const Window> windows) {
  std::vector<int32_t> tokens;
  for (const Window& w : windows)
    tokens.insert(tokens.end(), w.ids.begin() + static_cast<std::ptrdiff_t>(w.n_known) + 1,
                  w.ids.end());
  const auto n = static_cast<int64_t>(tokens.size());
  const NamedTensor tensors[] = {
      {"logits", contiguous_ref(logits.data(), {DType::kF32, {n, vocab_size}})},
      {"tokens", contiguous_ref(tokens.data(), {DType::kI32, {n}})}};
  return write_safetensors(path, tensors);
}

}  // namespace

double divergence_of(std::span<const float> p, std::span<const float> q) {
  const auto lse = [](std::span<const float> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float each : x) sum += std::exp(static_cast<double>(each) - top);
    return top + std::log(sum);
  };
  const double of_p = lse(p), of_q = lse(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - of_p;
    const double share = std::exp(log_p);
    if (share > 0) sum += share * (log_p - (static_cast<double>(q[i]) - of_q));
  }
  return std::max(sum, 0.0);  // rounding alone makes it negative
}

double Evaluation::perplexity() const { return std::exp(nll / static_cast<double>(tokens)); }

Result<Evaluation> evaluate(const std::string& path, const TokenRows& rows,
                            const EvaluateOptions& o) {
  const auto files = TEGULA_TRY(ModelFiles::open(path, Check::kAllButTensors));
  const ModelConfig config = TEGULA_TRY(load_model_config(*files));
  TEGULA_TRY(check_predicts(*TEGULA_TRY(find_model(config.type)), "eval"));
  TEGULA_TRY(check_rows(rows, config.vocab_size));
  Evaluation e;
  e.context = o.context > 0 ? o.context : config.max_seqlen;
  e.stride = o.stride > 0 ? o.stride : e.context;
  TEGULA_TRY(check_sizes(o, e.context, e.stride, config.max_seqlen));
  const auto windows =
      windows_of(rows, static_cast<size_t>(e.context), static_cast<size_t>(e.stride));
  size_t longest = 0;
  for (const Window& w : windows) {
    e.tokens += static_cast<int64_t>(w.n_new());
    longest = std::max(longest, w.ids.size() - 1);
  }
  e.windows = static_cast<int64_t>(windows.size());
  const int64_t n_rows = std::clamp<int64_t>(o.batch, 1, e.windows);
  const bool wants_logits = !o.against.empty() || !o.logits_path.empty();
  const ForwardOptions forward{.threads = o.threads,
                               .rows = n_rows,
                               .length = static_cast<int64_t>(longest),
                               .dtype = o.dtype,
                               .mode = o.mode,
                               .wants_logits = wants_logits,
                               .quantises_activations = o.quantises_activations};
  const auto model = TEGULA_TRY(Forward::create(files, config, forward));
  std::optional<Compared> reference;
  if (!o.against.empty()) {
    ForwardOptions exact = forward;
    exact.quantises_activations = false;
    reference = TEGULA_TRY(Compared::open(o.against, exact, config.vocab_size));
    TEGULA_TRY(reference->check(windows, e.tokens));
  }
  const auto n = static_cast<size_t>(e.tokens);
  e.note = note_on_rotary(config, static_cast<int64_t>(longest));
  e.losses.resize(n);
  std::vector<float> logits;
  if (!o.logits_path.empty()) logits.resize(n * static_cast<size_t>(config.vocab_size));
  Run run{*model, reference ? &*reference : nullptr, logits.empty() ? nullptr : &logits, e.losses};
  if (reference) run.divergences.resize(n), run.same_best.resize(n);
  size_t at = 0;
  for (size_t first = 0; first < windows.size(); first += static_cast<size_t>(n_rows)) {
    const auto some = std::span(windows).subspan(
        first, std::min(static_cast<size_t>(n_rows), windows.size() - first));
    TEGULA_TRY(run_some(run, some, at));
    for (const Window& w : some) at += w.n_new();
  }
  for (const float loss : e.losses) e.nll += static_cast<double>(loss);
  if (reference) e.divergence = summary_of(run);
  if (!o.logits_path.empty())
    TEGULA_TRY(write_logits(o.logits_path, logits, config.vocab_size, windows));
  return e;
}

}  // namespace tegula
