#include "tegula/planner/layer_work.h"

#include "tegula/base/algorithm.h"
#include "tegula/planner/built_saves.h"
#include "tegula/planner/framework.h"
#include "tegula/planner/torch_work.h"

namespace tegula::planner {

namespace {

// Seconds of single calls on an H200 beyond their products', as bytes at the full bandwidth, and
// the host's ops, forward and backward, of calls of 16 tokens
// (bench/results/layouts/calls_h200_torch.json). The math backend turns q, k and v into f32,
// scales, masks, takes the softmax, and looks for rows without keys; kept is the softmax. Eager
// attention keeps it in f32 and in two bytes.
constexpr NaiveScores kMathScores = {63, 37, 4, 23, true};
constexpr NaiveScores kEagerScores = {47, 48, 6, 16, false};

// One layer's lists as they grow.
class LayerBuilder {
 public:
  LayerBuilder(const ModelSpec& m, const RankShape& s)
      : m_(m), s_(s), t_(s.tokens()), h_(real(m.d_model)), e_(s.element_bytes) {}

  // Returns whether it is kept where every other one is.
  bool product(std::string_view name, double rows, double n, double k, double count = 1) {
    const double bytes = s_.element_bytes;
    count *= share_, is_kept_ = !is_kept_;
    if (!is_kept_) work_.again.push_back(matmul_work(name, rows, n, k, bytes, count));
    work_.forward.push_back(matmul_work(name, rows, n, k, bytes, count));
    work_.input_backward.push_back(matmul_work(name, rows, k, n, bytes, count));
    work_.weight_backward.push_back(matmul_work(name, k, n, rows, bytes, count));
    return is_kept_;
  }
  // Forward's, in the backward part.
  void product_again(std::string_view name, double rows, double n, double k) {
    work_.input_backward.push_back(matmul_work(name, rows, n, k, s_.element_bytes));
  }
  // Bytes read and written, forward and backward.
  void rows(std::string_view name, double forward, double backward) {
    work_.forward.push_back(rows_work(name, share_ * forward));
    work_.input_backward.push_back(rows_work(name, share_ * backward));
  }
  void save(std::string_view name, double bytes, double by_products = 0) {
    work_.saved.push_back({name, share_ * bytes, false, false, share_ * by_products});
  }
  void save_cheap(std::string_view name, double bytes) {
    work_.saved.push_back({name, share_ * bytes, false, true});
  }
  void save_core(std::string_view name, double bytes) {
    work_.saved.push_back({name, bytes, true, false});
  }

  // The residual sum, its norm, and what a product reads; all outside of tensor-parallel regions.
  void norm(std::string_view name) {
    const double part = t_ * h_ / s_.outside();
    rows(name, 4 * e_ * part, 5 * e_ * part);
    save("input of norm", e_ * part,
         work_.saved.empty() ? e_ * part : 0);  // the first: the layer's
    save_cheap("norm", e_ * part);
  }
  void dropout_mask(std::string_view name) {
    if (m_.has_dropout) save(name, t_ * h_ / s_.outside());
  }

  void attention();
  void feed_forward();
  void lstm();
  LayerWork take() { return std::move(work_); }

 private:
  void attention_core();
  void scores_in_steps(const NaiveScores& scores, Work product);
  void latent_products();
  void experts();
  void dense(double width, std::string_view gate, std::string_view up, std::string_view down);
  void activation(double elements, bool keeps_gate = false, bool keeps_up = false);

  const ModelSpec& m_;
  const RankShape& s_;
  double t_, h_, e_;
  double share_ = 1;      // of the layers: those with experts, or those without
  bool is_kept_ = false;  // the last product, where every other one is kept
  LayerWork work_;
};

// Products and what lies between them, one after another.
void LayerBuilder::scores_in_steps(const NaiveScores& scores, Work product) {
  const double elements = t_ * s_.seqlen * real(m_.n_heads) / s_.tp;
  Work between = rows_work("scores", scores.forward * elements);
  between.launches = scores.ops, product.in_f32 = scores.in_f32;
  for (const Work& w : {product, between}) work_.core.push_back(w), work_.forward.push_back(w);
  product.unit = Unit::kAttentionBackward, product.flops *= 2, product.bytes *= 2;
  between.bytes = scores.backward * elements;
  for (const Work& w : {product, between}) work_.input_backward.push_back(w);
  save_core("softmax", scores.kept * elements);
}

void LayerBuilder::attention_core() {
  const double heads = real(m_.n_heads) / s_.tp, d = real(m_.head_dim + m_.value_dim()) / 2;
  const double kv = real(m_.kv_width() + m_.v_width()) / 2 / std::min(s_.tp, real(m_.n_kv_heads));
  const double windowed = real(m_.n_window_layers) / real(m_.n_layers);
  const double seen = windowed * keys_seen(m_, s_.seqlen, true) +
                      (1 - windowed) * s_.uneven * keys_seen(m_, s_.seqlen, false);
  const double keys = s_.flash ? seen : s_.seqlen;
  const double rel = m_.has_relative_positions ? 1.5 : 1;  // q·r beside q·k
  Work w;
  w.name = "attention", w.unit = Unit::kAttention;
  w.k = d, w.head_dim = d, w.kernel = s_.kernel;
  if (s_.flash) w.seqlen = s_.seqlen;
  if (!s_.flash) w.m = s_.seqlen;
  w.flops = rel * 4 * t_ * keys * heads * d;
  w.bytes = e_ * t_ * (2 * heads * d + 2 * kv * s_.kv_copies);
  if (const NaiveScores* scores = s_.flash ? nullptr : scores_of(s_.naive))
    return scores_in_steps(*scores, w);
  // Naive: scores written; mask and softmax (and dropout) read and write; read for the product.
  const double scores = t_ * s_.seqlen * heads;
  if (!s_.flash) w.bytes += e_ * scores * (m_.has_dropout ? 8 : 6), w.launches = 5;
  work_.core.push_back(w);
  work_.forward.push_back(w);
  w.unit = Unit::kAttentionBackward;
  w.flops *= s_.flash ? 2.5 : 2;
  w.bytes *= 2;
  work_.input_backward.push_back(w);
  if (s_.flash) {
    save("log-sum-exp of scores", 4 * t_ * heads, 4 * t_ * heads);
  } else {
    save_core("softmax", e_ * scores);
    if (m_.has_dropout) {
      save_core("mask of dropped scores", scores);
      save_core("dropped scores", e_ * scores);
    }
  }
}

// Down to the ranks, by every rank of tp for itself, and up into its heads.
void LayerBuilder::latent_products() {
  const double q = real(m_.q_width()) / s_.tp, rank = real(m_.kv_rank);
  const double down = rank + real(m_.rope_dim);
  const double up = real(m_.n_heads * (m_.head_dim - m_.rope_dim) + m_.o_width()) / s_.tp;
  if (m_.q_rank > 0) {
    product("q down", t_, real(m_.q_rank), h_);
    product("q up", t_, q, real(m_.q_rank));
    save("q of its rank", 2 * e_ * t_ * real(m_.q_rank));
  } else {
    product("q", t_, q, h_);
  }
  product("kv down", t_, down, h_);
  product("kv up", t_, up, rank);
  save("kv of its rank", 2 * e_ * t_ * rank);
}

void LayerBuilder::attention() {
  const double q = real(m_.q_width()) / s_.tp, out = real(m_.o_width()) / s_.tp;
  const double k = real(m_.kv_width()) / std::min(s_.tp, real(m_.n_kv_heads));
  const double v = real(m_.v_width()) / std::min(s_.tp, real(m_.n_kv_heads));
  if (m_.is_latent())
    latent_products();
  else
    product("qkv", t_, q + k + v, h_);
  // Three products, of which k is the second.
  if (!m_.is_latent()) work_.again.push_back(matmul_work("k", t_, k, h_, e_));
  const bool is_turned = m_.n_positions == 0 && !m_.has_relative_positions;
  if (is_turned) rows("rope", 2 * e_ * t_ * (q + k), 2 * e_ * t_ * (q + k));
  if (const NaiveScores* scores = s_.flash ? nullptr : scores_of(s_.naive)) {
    const double e = scores->in_f32 ? 4 : e_;  // keys and values are repeated for every head
    save("q, k", e * t_ * 2 * q, e * t_ * q);
    save("v", e * t_ * out, e * t_ * out);
  } else {
    save("q, k", e_ * t_ * (q + k * s_.kv_copies), e_ * t_ * q);
    save("v", e_ * t_ * v * s_.kv_copies, e_ * t_ * v * s_.kv_copies);
  }
  attention_core();
  save("attention", e_ * t_ * out, e_ * t_ * out);
  product("attention out", t_, h_, out);
  dropout_mask("mask behind attention");
}

void LayerBuilder::experts() {
  const double k = real(m_.n_experts_per_token), f = real(m_.d_ff) / s_.tp;
  const double local = real(m_.n_experts) / s_.ep, routed = t_ * k;
  product("router", t_, real(m_.n_experts), h_);
  rows("dispatch", 2 * e_ * routed * h_, 2 * e_ * routed * h_);
  save("dispatched", e_ * routed * h_);
  const double rows_of_one = routed / local;
  if (m_.n_ff_matrices == 3) product("ff gate", rows_of_one, f, h_, local);
  product("ff up", rows_of_one, f, h_, local);
  product("ff down", rows_of_one, h_, f, local);
  rows("combine", e_ * (routed + t_) * h_, e_ * (routed + t_) * h_);
  save("results of experts", e_ * routed * h_);
}

void LayerBuilder::dense(double width, std::string_view gate, std::string_view up,
                         std::string_view down) {
  const bool keeps_gate = m_.n_ff_matrices == 3 && product(gate, t_, width, h_);
  const bool keeps_up = product(up, t_, width, h_);
  if (product(down, t_, h_, width)) save("result of ff down", 0, e_ * t_ * h_ / s_.outside());
  activation(t_ * width, keeps_gate, keeps_up);
}

void LayerBuilder::activation(double elements, bool keeps_gate, bool keeps_up) {
  const bool is_gated = m_.n_ff_matrices == 3;
  rows("activation", e_ * elements * (is_gated ? 3 : 2), e_ * elements * (is_gated ? 5 : 3));
  if (is_gated) save("gate", e_ * elements, keeps_gate ? e_ * elements : 0);
  save("up", e_ * elements, keeps_up ? e_ * elements : 0);
  save_cheap("activation", e_ * elements);
}

void LayerBuilder::feed_forward() {
  const double f = real(m_.d_ff) / s_.tp;
  if (m_.is_moe()) {
    share_ = 1 - m_.dense_share();
    experts();
    activation(t_ * f * real(m_.n_experts_per_token));
    if (m_.shared_ff > 0)
      dense(real(m_.shared_ff) / s_.tp, "shared gate", "shared up", "shared down");
    share_ = m_.dense_share();
    if (share_ > 0) dense(real(m_.dense_ff) / s_.tp, "ff gate", "ff up", "ff down");
    share_ = 1;
  } else {
    dense(f, "ff gate", "ff up", "ff down");
  }
  dropout_mask("mask behind feed-forward");
}

void LayerBuilder::lstm() {
  product("lstm in", t_, 4 * h_, h_);
  // Step after step, each with the rows of the batch alone.
  product("lstm recurrent", s_.batch, 4 * h_, h_, s_.seqlen);
  work_.forward.back().launches = s_.seqlen;
  work_.input_backward.back().launches = s_.seqlen;
  // The weight gradient is one product over all steps.
  work_.weight_backward.back() = matmul_work("lstm recurrent", h_, 4 * h_, t_, s_.element_bytes);
  rows("gates", e_ * t_ * h_ * 9, e_ * t_ * h_ * 14);
  save("input", e_ * t_ * h_);
  save("gates and cell", e_ * t_ * h_ * 6);
}

}  // namespace

const NaiveScores* scores_of(Naive naive) {
  return naive == Naive::kMath ? &kMathScores : naive == Naive::kEager ? &kEagerScores : nullptr;
}

RankShape rank_shape(const Layout& l, const ModelSpec& m, const Job& job) {
  RankShape s;
  if (l.context == ContextCut::kContiguous) s.uneven = (2 * real(l.cp) - 1) / real(l.cp);
  if (l.context == ContextCut::kUlysses)
    s.kv_copies = std::max(1.0, real(l.cp) / std::max(1.0, real(m.n_kv_heads) / real(l.tp)));
  s.batch = real(l.microbatch) / real(l.slices), s.seqlen = real(job.seqlen);
  s.cp = real(l.cp), s.tp = real(l.tp), s.ep = real(l.ep);
  s.sp = l.sp, s.flash = job.flash, s.kernel = job.kernel;
  s.naive = job.naive;
  s.element_bytes = s.stream_bytes = std::max(2.0, bytes_of(job.dtype));
  s.is_built = job.is_built;
  if (job.is_built) s.stream_bytes = std::max(4.0, s.element_bytes);
  s.weight_bytes = bytes_of(job.dtype);
  s.framework = job.framework, s.loss = loss_of(job);
  if (is_autocast(job)) s.stream_bytes = 4;
  return s;
}

LayerWork layer_work(const ModelSpec& m, const RankShape& s) {
  LayerBuilder b(m, s);
  if (m.kind == ModelKind::kLstm) {
    b.lstm();
  } else if (m.kind == ModelKind::kMlp) {
    const double t = s.tokens(), f = real(m.d_ff), e = s.element_bytes;
    b.product("dense", t, f, f);
    b.rows("activation", 3 * e * t * f, 4 * e * t * f);
    b.save("input", e * t * f);
    b.save("before activation", e * t * f);
  } else {
    b.norm("norm of attention");
    b.attention();
    if (m.norms_per_layer >= 2) b.norm("norm of feed-forward");
    b.feed_forward();
    for (int64_t i = 2; i < m.norms_per_layer; ++i) b.norm("norm behind");
  }
  LayerWork work = b.take();
  if (s.is_built && has_built_saves(m, s)) work.saved = built_saves(m, s);
  if (s.framework && s.framework->keeps_like_torch && m.kind == ModelKind::kDecoder)
    execute_like_torch(m, s, false, work);
  return work;
}

LayerWork embedding_work(const ModelSpec& m, const RankShape& s) {
  LayerBuilder b(m, s);
  const double t = s.tokens(), h = real(m.d_model), e = s.element_bytes;
  b.rows("embedding", 2 * e * t * h, 3 * e * t * h);
  if (m.kind == ModelKind::kMlp) {
    const double f = real(m.d_ff);
    b.product("window", t, f, 8 * h);
    b.save("embeddings", e * t * h);
    b.save("before activation", e * t * f);
  }
  return b.take();
}

LayerWork head_work(const ModelSpec& m, const RankShape& s) {
  LayerBuilder b(m, s);
  const double t = s.tokens(), h = real(m.d_model), v = real(m.vocab_size) / s.tp;
  if (m.kind == ModelKind::kMlp) {
    b.product("out", t, h, real(m.d_ff));
    b.save("input of out", s.element_bytes * t * real(m.d_ff));
  }
  if (m.has_final_norm) b.norm("final norm");
  b.product("head", t, v, h);
  const Framework* f = s.framework;
  if (s.loss == Loss::kChunked) b.product_again("head again", t, v, h);
  if (s.loss != Loss::kFused && f)
    b.rows("cross-entropy", f->loss_forward * t * v, f->loss_backward * t * v);
  else
    b.rows("cross-entropy", s.element_bytes * t * v, 2 * s.element_bytes * t * v);
  LayerWork work = b.take();
  if (f && f->keeps_like_torch && m.has_final_norm) execute_like_torch(m, s, true, work);
  return work;
}

double saved_bytes(const LayerWork& work, Remat remat, Selective selective) {
  double sum = 0;
  for (const Saved& s : work.saved)
    if (remat != Remat::kSelective)
      sum += s.bytes;
    else if (selective == Selective::kProducts)
      sum += s.by_products;
    else if (!(selective == Selective::kScores ? s.is_core : s.is_cheap))
      sum += s.bytes;
  return sum;
}

std::vector<Work> work_again(const LayerWork& work, Remat remat, Selective selective) {
  if (remat == Remat::kNone) return {};
  if (remat != Remat::kSelective) return work.forward;
  if (selective == Selective::kScores) return work.core;
  std::vector<Work> again;
  for (const Work& w : work.forward)
    if (w.unit == Unit::kRows) again.push_back(w);
  if (selective == Selective::kProducts)
    again.insert(again.end(), work.again.begin(), work.again.end());
  return again;
}

double input_bytes(const ModelSpec& m, const RankShape& s) {
  const double width = m.kind == ModelKind::kMlp ? real(m.d_ff) : real(m.d_model);
  return s.stream_bytes * s.tokens() * width / s.outside();
}

double keys_seen(const ModelSpec& m, double s, bool is_window_layer) {
  if (m.sees_ahead) return s;
  const double w = is_window_layer ? std::min(s, real(m.window)) : s;
  // Query i sees min(i, w) keys, i from 1 to s.
  return (w * (w + 1) / 2 + (s - w) * w) / s;
}

double keys_formal(const ModelSpec& m, double s) {
  const double windowed = real(m.n_window_layers) / real(m.n_layers);
  return windowed * std::min(s, real(m.window)) + (1 - windowed) * s;
}

TokenFlops token_flops(const ModelSpec& m, double seqlen) {
  TokenFlops f;
  const double h = real(m.d_model), layers = real(m.n_layers), ff = real(m.d_ff);
  f.head = 2 * h * (real(m.vocab_size) + (m.has_head_transform ? h : 0));
  if (m.kind == ModelKind::kLstm) {
    f.layers = layers * 16 * h * h;
  } else if (m.kind == ModelKind::kMlp) {
    f.layers = 2 * (8 * h * ff + (layers - 1) * ff * ff + ff * h);
  } else {
    const double q = (real(m.q_width()) + real(m.o_width())) / 2, matrices = real(m.n_ff_matrices);
    const double experts = matrices * h * (real(m.n_experts_per_token) * ff + real(m.shared_ff));
    const double router = m.is_moe() ? h * real(m.n_experts) : 0;
    const double dense = real(m.n_dense_layers);
    f.layers = 2 * (layers * attention_weights(m) + (layers - dense) * (experts + router) +
                    dense * matrices * h * real(m.dense_ff));
    const double rel = m.has_relative_positions ? 1.5 : 1;
    const double windowed = real(m.n_window_layers) / layers;
    f.attention = rel * 4 * keys_formal(m, seqlen) * q * layers;
    f.causal_attention =
        rel * 4 * q * layers *
        (windowed * keys_seen(m, seqlen, true) + (1 - windowed) * keys_seen(m, seqlen, false));
  }
  return f;
}

}  // namespace tegula::planner
