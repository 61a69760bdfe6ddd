#include "tegula/planner/memory.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/planner/print.h"

namespace tegula::planner {

namespace {

// The head's loss never holds all logits: the kernels keep at most so many bytes at a time.
constexpr double kMostLogitBytes = 256.0 * 1024 * 1024;
constexpr double kChunkTokens = 2048;  // of a loss by chunks
constexpr double kMostGathered = 1e9;  // elements: DeepSpeed's stage3_max_live_parameters

// And the gradients of what the head reads and of the residual stream.
double logit_bytes(const ModelSpec& m, const RankShape& s) {
  const double stream = 2 * s.element_bytes * s.tokens() * real(m.d_model);
  const double each = s.framework ? s.framework->logit_bytes : 0, v = real(m.vocab_size) / s.tp;
  if (s.loss == Loss::kFused || each == 0)
    return std::min(4 * s.tokens() * v, kMostLogitBytes) + stream;
  return each * (s.loss == Loss::kWhole ? s.tokens() : std::min(s.tokens(), kChunkTokens)) * v +
         stream;
}

// PyTorch's conventions.
void add_copies(const Layout& l, const Job& job, const RankParams& p, const StateBytes& state,
                double whole, double layers, MemoryBytes& b) {
  const bool is_ddp = !job.framework->is_sharded && l.zero == 0 && l.zero_ranks() > 1;
  constexpr double kCopy = 2;  // bytes
  if (is_autocast(job)) b.copies += kCopy * whole;
  // Buckets, in which gradients lie from step to step, and gradients on their way there.
  if (is_ddp) b.copies += state.gradients * whole;
  double at_end = 0;
  if (job.framework->is_sharded) {
    const double layer = p.layer + p.experts, ends = whole - layers * layer;
    // The table and the head are one group, gathered from forward to backward; its gradients are
    // summed over ranks in four bytes when all others are there.
    b.copies += kCopy * (l.zero >= 3 ? ends + 3 * layer : whole);
    at_end = (kCopy + 4) * ends;
  }
  if (is_ddp || n_microbatches(job, l) > 1) return;
  const double at_head = b.activations + b.temporaries + b.copies;
  b.apart = at_head + b.gradients - std::max(at_head, b.gradients + at_end);
  if (b.apart < 0) b.copies -= b.apart, b.apart = 0;
}

}  // namespace

std::array<Part, 7> MemoryBytes::parts() const {
  return {{{"weights", "weights", weights},
           {"gradients", "gradients", gradients},
           {"optimizer", "optimizer", optimizer},
           {"activations", "activations", activations},
           {"temporaries", "temporaries", temporaries},
           {"copies", "copies", copies},
           {"never_together", "never there together", -apart}}};
}

std::string memory_text(const MemoryBytes& m) {
  std::string text;
  for (const Part& p : m.parts())
    if (p.value != 0)
      print(text,
            text.empty()  ? "%s %.2f GB"
            : p.value > 0 ? " + %s %.2f"
                          : " - %s %.2f",
            p.name, std::abs(p.value) / 1e9);
  return text;
}

RankParams rank_params(const ModelSpec& m, const ParamCount& c, const Layout& l) {
  RankParams p;
  const double tp = real(l.tp), experts = real(c.expert) * real(m.n_experts) / real(l.ep) / tp;
  if (m.kind == ModelKind::kDecoder) {
    // More ranks than key/value heads: they share copies of them.
    const double kv = real(m.d_model) * real(m.kv_width() + m.v_width());
    double attention = (real(c.attention) - kv) / tp + kv / std::min(tp, real(m.n_kv_heads));
    if (m.is_latent()) {  // every rank goes down to the ranks of q, k and v for itself
      const double down = real(m.d_model) * real(m.q_rank + m.kv_rank + m.rope_dim);
      attention = down + (real(c.attention) - down) / tp;
    }
    p.layer = attention + real(c.norms) +
              (1 - m.dense_share()) * (real(c.router) + real(c.shared) / tp) +
              m.dense_share() * real(c.dense) / tp;
  }
  (m.is_moe() ? p.experts : p.layer) += (1 - m.dense_share()) * experts;
  p.first = real(c.embedding) / tp + real(c.positions);
  // A tied table stands on the first stage and on the last.
  const double head = c.head > 0 ? real(c.head) : l.pp > 1 ? real(c.embedding) : 0;
  p.last = head / tp + real(c.final_norm);
  if (m.kind == ModelKind::kMlp) {
    const double rest = real(c.total - c.embedding - c.head) - real(m.n_layers) * p.layer;
    p.last += rest;
  }
  return p;
}

ActivationBytes activation_bytes(const ModelSpec& m, const LayerWork& layer,
                                 const LayerWork& embedding, const LayerWork& head,
                                 const RankShape& s, Remat remat) {
  ActivationBytes a;
  const Selective selective = selective_of(s.framework, s.flash);
  const double whole = saved_bytes(layer, Remat::kNone, selective);
  const double kept = remat == Remat::kSelective ? saved_bytes(layer, remat, selective)
                      : remat == Remat::kNone    ? whole
                                                 : input_bytes(m, s);
  a.layer = remat == Remat::kEveryOther ? (kept + whole) / 2 : kept;
  a.first = saved_bytes(embedding, Remat::kNone, selective);
  a.last = saved_bytes(head, Remat::kNone, selective);
  const double t = s.tokens(), e = s.element_bytes;
  const double wide = std::max({real(m.d_ff) * real(m.n_experts_per_token), real(m.dense_ff),
                                real(m.q_width() + m.kv_width() + m.v_width())}) /
                      s.tp;
  double gradients = e * t * (2 * real(m.d_model) + real(m.n_ff_matrices) * wide);
  if (m.kind == ModelKind::kDecoder && !s.flash)
    gradients = std::max(gradients, 2 * e * t * s.seqlen * real(m.n_heads) / s.tp);
  a.working = gradients + whole - kept;
  a.logits = logit_bytes(m, s);
  return a;
}

ActivationBytes activation_bytes(const ModelSpec& m, const LayerLive& live, const RankShape& s,
                                 Remat remat) {
  RankShape uncut = s;
  uncut.sp = false;
  const auto saved = [&](const RankShape& shape, Remat how) {
    return saved_bytes(layer_work(m, shape), how, selective_of(shape.framework, shape.flash));
  };
  ActivationBytes a;
  a.live = &live;
  const Remat kept = remat == Remat::kSelective ? remat : Remat::kNone;
  const double whole = live.kept + saved(s, Remat::kNone) - saved(uncut, Remat::kNone);
  a.layer = remat == Remat::kFull || remat == Remat::kEveryOther
                ? live.boundary / s.outside()
                : whole + saved(s, kept) - saved(s, Remat::kNone);
  a.working = whole - a.layer;
  if (remat == Remat::kEveryOther) a.layer = (a.layer + whole) / 2;
  a.logits = logit_bytes(m, s);
  return a;
}

double layers_in_flight(const Layout& l, int64_t m, int64_t stage, int64_t n_layers) {
  const double n = real(n_layers), v = real(l.interleave);
  switch (l.turns) {
    case Turns::kGpipe:
      return n * real(m);
    case Turns::kOneFOneB:
      return n * real(std::min(m, l.pp - stage));
    case Turns::kZeroBubble:
      return n * real(std::min(m, l.pp));
    case Turns::kZeroBubbleV:
      return n / 2 * real(std::min({2 * l.pp, 2 * m, m + 1 + stage}));
    case Turns::kChimera: {
      // Half of a unit of p go either way.
      const int64_t down = std::min((m + 1) / 2, l.pp / 2), up = std::min(m / 2, l.pp / 2);
      return n * real(std::min(down, l.pp - stage) + std::min(up, stage + 1));
    }
    case Turns::kDualPipe:
      return n * real(l.pp + 1);
    case Turns::kTeraPipe:
      return n * real(m * l.slices);
    case Turns::kZeroBubbleH2:
      return n * real(std::min(m, 2 * l.pp - 1));
    case Turns::kInterleaved: {
      // Micro-batches go in groups of p, or a few more so that groups are alike.
      const int64_t groups = std::max<int64_t>(1, m / l.pp), group = (m + groups - 1) / groups;
      const int64_t chunks = 2 * (l.pp - stage - 1) + (l.interleave - 1) * group + 1;
      return n / v * std::min(real(m) * v, real(chunks));
    }
  }
  return 0;
}

MemoryBytes stage_memory(const ModelSpec& m, const Layout& l, const Job& job, const RankParams& p,
                         const ActivationBytes& a, int64_t rank, const RankStages& s) {
  const double n = real(s.layers);
  const double dense = n * p.layer + (s.has_first ? p.first : 0) + (s.has_last ? p.last : 0);
  const double experts = n * p.experts;
  const double ranks = real(l.zero_ranks() * l.copies());
  const double sharded = dense / ranks + experts * real(l.ep) / ranks, whole = dense + experts;
  const StateBytes state = state_bytes(job, m);
  const int64_t microbatches = n_microbatches(job, l);
  MemoryBytes b;
  const bool is_sharded = job.framework && job.framework->is_sharded && l.zero >= 2;
  b.weights = state.weights * (l.zero >= 3 || is_sharded ? sharded : whole);
  b.gradients = state.gradients * (l.zero >= 2 ? sharded : whole);
  b.optimizer = state.optimizer * (l.zero >= 1 ? sharded : whole);
  b.activations = layers_in_flight(l, microbatches, rank, s.in_a_stage) * a.layer;
  if (s.has_first) b.activations += layers_in_flight(l, microbatches, rank, 1) * a.first;
  if (s.has_last) b.activations += a.last;
  b.temporaries = std::max(a.working, s.has_last ? a.logits : 0);
  if (a.live) {
    // The graph does not cut vocabularies over tp, which is priced as if they were: there the
    // head's logits are by formula, too.
    const bool has_ends = l.tp == 1;
    const double live =
        a.working + a.live->working(s.in_a_stage, s.has_first && has_ends, s.has_last && has_ends);
    b.temporaries = has_ends ? live : std::max(live, b.temporaries);
  }
  if (job.framework && job.framework->keeps_like_torch)
    add_copies(l, job, p, state, whole, n, b);
  else if (l.zero >= 3 && job.framework && job.framework->gathers_a_layer > 1)
    b.temporaries += state.weights * std::min(kMostGathered, p.layer + p.experts);
  else if (l.zero >= 3)
    b.temporaries += 2 * state.weights * (p.layer + p.experts);
  return b;
}

}  // namespace tegula::planner
