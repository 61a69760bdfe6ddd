#include "tegula/planner/step_price.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/planner/live_table.h"

namespace tegula::planner {

namespace {
// Whether the bubble is that of its list's longest path.
bool has_list(const Layout& l) { return l.turns == Turns::kZeroBubbleV || l.copies() == 2; }
double beyond(double seconds, double hidden_under) { return std::max(0.0, seconds - hidden_under); }
}  // namespace

// A micro-batch, or a slice of one, on the slowest stage.
struct StepPricer::Stage {
  int64_t layers = 0;                  // the most of any
  double others = 0;                   // what all others take, in times of this one
  bool is_last = false;                // it has the head
  Seconds forward, backward, weights;  // backward: of inputs, with what is computed again
  double tp = 0, cp = 0, ep = 0;
  double comm_forward = 0, comm_backward = 0;
  double forward_s() const { return forward.total() + comm_forward; }
  double backward_s() const { return backward.total() + weights.total() + comm_backward; }
  double total() const { return forward_s() + backward_s(); }
};

// Layouts that differ in ZeRO alone share this; they come one after another.
struct StepPricer::ButForZero {
  bool is_set = false;
  Layout layout;
  const LayerPrice* layer = nullptr;
  const Dealt* dealt = nullptr;
  RankParams params;
  Stage stage;
  StepPrice price;  // of the pipeline
};

std::array<Part, 12> Waterfall::parts() const {
  return {{{"compute", "compute", compute},
           {"memory", "memory traffic", memory},
           {"launch", "launches", launch},
           {"tp", "tensor parallel", tp},
           {"cp", "context parallel", cp},
           {"ep", "experts", ep},
           {"pp", "between stages", pp},
           {"dp", "data parallel", dp},
           {"optimizer", "optimizer", optimizer},
           {"bubble", "bubble", bubble},
           {"rest", "the framework's rest", rest},
           {"host", "waiting for the host", host}}};
}

std::string_view StepPrice::bound_by() const {
  const std::pair<double, std::string_view> terms[] = {
      {seconds.compute, "compute"},
      {seconds.memory + seconds.optimizer, "memory"},
      {seconds.exposed_comm(), "network"},
      {seconds.launch, "launch"},
      {seconds.host, "host"}};
  return std::max_element(std::begin(terms), std::end(terms),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

StepPricer::StepPricer(const ModelSpec& model, const ParamCount& params, const ClusterSpec& cluster,
                       const Job& job, const Efficiency& efficiency)
    : model_(model),
      params_(params),
      cluster_(cluster),
      job_(job),
      efficiency_(efficiency),
      flops_(token_flops(model, real(job.seqlen))),
      last_(std::make_unique<ButForZero>()) {}
StepPricer::~StepPricer() = default;

const StepPricer::ButForZero& StepPricer::but_for_zero(const Layout& l) {
  Layout key = l;
  key.zero = 0;
  ButForZero& a = *last_;
  if (a.is_set && a.layout == key) return a;
  a.is_set = true, a.layout = key, a.price = {};
  a.layer = &layer(l), a.dealt = &dealt(l);
  a.params = rank_params(model_, params_, l);
  a.stage = slowest_stage(l, *a.layer);
  add_pipeline(l, *a.layer, a.stage, a.price);
  return a;
}

Link StepPricer::stage_link(const Layout& l) const {
  const RankSpan next{2, l.tp * l.cp * l.dp};
  return reached(cluster_, Collective::kAllToAll, own_link(cluster_, next), next, efficiency_);
}

double StepPricer::comm(Collective what, double bytes, const RankSpan& group) const {
  return seconds_of(cluster_, what, bytes, group, efficiency_);
}

void StepPricer::price_layer_comm(const Layout& l, const LayerWork& work, LayerPrice& p) const {
  const RankShape s = rank_shape(l, model_, job_);
  const double whole = s.element_bytes * s.tokens() * real(model_.d_model);
  const RankSpan tp{l.tp, 1}, ep{l.ep, l.tp};
  const auto pair = [&](double bytes) {
    return l.sp ? comm(Collective::kAllGather, bytes, tp) +
                      comm(Collective::kReduceScatter, bytes, tp)
                : comm(Collective::kAllReduce, bytes, tp);
  };
  const double joins = model_.norms_per_layer == 1 ? 1 : 2;
  p.tp_forward = p.tp_backward = joins * pair(whole);
  p.tp_recompute = l.remat == Remat::kFull         ? p.tp_forward
                   : l.remat == Remat::kEveryOther ? p.tp_forward / 2
                                                   : 0;
  p.tp_last = 2 * pair(whole);  // the embedding's sum and the head's input, and their gradients
  p.boundary_bytes = whole / s.outside() * s.stream_bytes / s.element_bytes;
  if (l.ep > 1) {
    const double routed = whole * real(model_.n_experts_per_token) / s.outside();
    p.ep = 2 * comm(Collective::kAllToAll, routed, ep);
  }
  if (l.cp > 1) price_context(l, work, p);
}

void StepPricer::price_context(const Layout& l, const LayerWork& work, LayerPrice& p) const {
  const RankShape s = rank_shape(l, model_, job_);
  const RankSpan cp{l.cp, l.tp};
  const double kv_width =
      real(model_.kv_width() + model_.v_width()) / std::min(s.tp, real(model_.n_kv_heads));
  const double kv = s.element_bytes * s.tokens() * kv_width;
  if (l.context == ContextCut::kUlysses) {
    // Queries, keys and values there, what attention makes of them back; backward their gradients.
    const double q = s.element_bytes * s.tokens() * real(model_.q_width()) / s.tp;
    const double out = s.element_bytes * s.tokens() * real(model_.o_width()) / s.tp;
    p.cp_forward = p.cp_backward = comm(Collective::kAllToAll, q + kv * s.kv_copies, cp) +
                                   comm(Collective::kAllToAll, out, cp);
    return;
  }
  const Link link =
      reached(cluster_, Collective::kAllToAll, own_link(cluster_, cp), cp, efficiency_);
  // Keys and values go round forward; backward they do with gradients of four bytes beside them.
  const double hops = real(l.cp - 1);
  const auto ring = [&](double bytes, double attention_s) {
    const double hop = link.seconds + bytes / link.bytes_per_s;
    return hops * beyond(hop, efficiency_.overlap * attention_s / real(l.cp));
  };
  const auto attention = [&](const std::vector<Work>& list) {
    double sum = 0;
    for (const Work& w : list)
      if (w.unit == Unit::kAttention || w.unit == Unit::kAttentionBackward)
        sum += tegula::price(w, cluster_.device, efficiency_, job_.dtype).seconds;
    return sum;
  };
  p.cp_forward = ring(kv, attention(work.forward));
  p.cp_backward = ring(kv * (1 + 4 / s.element_bytes), attention(work.input_backward));
}

LayerPrice StepPricer::price_layer(const Layout& l) const {
  const RankShape s = rank_shape(l, model_, job_);
  const LayerWork layer = layer_work(model_, s), embedding = embedding_work(model_, s),
                  head = head_work(model_, s);
  const auto seconds = [&](const std::vector<Work>& works) {
    return tegula::price(works, cluster_.device, efficiency_, job_.dtype);
  };
  LayerPrice p;
  p.forward = seconds(layer.forward);
  p.input_backward = seconds(layer.input_backward);
  p.weight_backward = seconds(layer.weight_backward);
  const std::vector<Work> again =
      work_again(layer, l.remat, selective_of(job_.framework, job_.flash));
  const double of_layers = l.remat == Remat::kEveryOther ? 0.5 : 1;
  p.recompute = seconds(again) * of_layers;
  const auto flops = [](const std::vector<Work>& works, bool is_product) {
    double sum = 0;
    for (const Work& w : works) sum += (w.unit == Unit::kMatmul) == is_product ? w.flops : 0;
    return sum;
  };
  const auto share = [&](bool is_product) {
    const double all = flops(layer.forward, is_product);
    return all > 0 ? of_layers * flops(again, is_product) / all : 0;
  };
  p.products_again = share(true), p.attention_again = share(false);
  p.first = seconds(embedding.forward);
  p.first += seconds(embedding.input_backward);
  p.first += seconds(embedding.weight_backward);
  p.last_forward = seconds(head.forward);
  p.last_input_backward = seconds(head.input_backward);
  p.last_weight_backward = seconds(head.weight_backward);
  const LayerLive* live = job_.live ? job_.live->find(l) : nullptr;
  p.activations = live ? activation_bytes(model_, *live, s, l.remat)
                       : activation_bytes(model_, layer, embedding, head, s, l.remat);
  price_layer_comm(l, layer, p);
  p.host = host_ops(layer);
  return p;
}

const LayerPrice& StepPricer::layer(const Layout& l) {
  const Key key{l.tp, l.cp, l.context, l.ep, l.microbatch, l.slices, l.sp, l.remat};
  const auto found = layers_.find(key);
  if (found != layers_.end()) return found->second;
  return layers_.emplace(key, price_layer(l)).first->second;
}

const Dealt& StepPricer::dealt(const Layout& l) {
  const std::tuple key{l.pp, l.turns, l.interleave};
  const auto found = dealt_.find(key);
  if (found != dealt_.end()) return found->second;
  return dealt_.emplace(key, deal(model_, job_, l)).first->second;
}

// A rank of opposite pipelines runs its two stages in turns, and half of each counts.
StepPricer::Stage StepPricer::slowest_stage(const Layout& l, const LayerPrice& p) {
  Stage s;
  const double layer_s = p.forward.total() + p.input_backward.total() + p.weight_backward.total() +
                         p.recompute.total() + p.tp_forward + p.tp_backward + p.tp_recompute +
                         p.cp_forward + p.cp_backward + 2 * p.ep;
  const double head_s = p.last_forward.total() + p.last_input_backward.total() +
                        p.last_weight_backward.total() + p.tp_last;
  const double share = l.copies() == 2 ? 0.5 : 1;
  const Dealt& dealt = this->dealt(l);
  double all = 0, slowest = -1, count = 0;
  for (const auto& [held, ranks] : dealt.kinds) {
    const double t = share * (real(held.layers) * layer_s + (held.has_last ? head_s : 0));
    all += real(ranks) * t;
    if (t <= slowest) continue;
    slowest = t, count = share * real(held.layers), s.is_last = held.has_last;
  }
  s.layers = dealt.most_in_a_stage, s.others = all / slowest - 1;
  s.forward = p.forward * count;
  s.backward = p.input_backward * count;
  s.backward += p.recompute * count;
  s.weights = p.weight_backward * count;
  s.tp = count * (p.tp_forward + p.tp_backward + p.tp_recompute);
  s.cp = count * (p.cp_forward + p.cp_backward), s.ep = count * 2 * p.ep;
  s.comm_forward = count * (p.tp_forward + p.cp_forward + p.ep);
  s.comm_backward = s.tp + s.cp + s.ep - s.comm_forward;
  if (s.is_last) {
    s.forward += p.last_forward * share, s.backward += p.last_input_backward * share;
    s.weights += p.last_weight_backward * share;
    const double tp = share * p.tp_last;
    s.tp += tp, s.comm_forward += tp / 2, s.comm_backward += tp / 2;
  }
  if (l.pp == 1) s.forward += p.first;
  return s;
}

void StepPricer::add_pipeline(const Layout& l, const LayerPrice& p, const Stage& s,
                              StepPrice& price) {
  const double m = real(n_microbatches(job_, l) * l.slices), fill = s.others;
  Waterfall& w = price.seconds;
  Seconds all = s.forward;
  all += s.backward, all += s.weights;
  w.compute = m * all.compute, w.memory = m * all.memory, w.launch = m * all.launch;
  w.tp = m * s.tp, w.cp = m * s.cp, w.ep = m * s.ep;
  if (l.pp == 1) return;
  const double v = real(l.chunks());
  w.bubble = (l.interleave > 1 ? real(l.pp - 1) / v : fill) * s.total();
  if (l.turns == Turns::kZeroBubble)
    w.bubble =
        fill * beyond(s.forward_s() + s.backward.total() + s.comm_backward, s.weights.total()) +
        beyond(real(l.pp), m) * s.weights.total();
  if (l.turns == Turns::kZeroBubbleH2)
    w.bubble = fill * (s.forward_s() +
                       beyond(s.backward.total() + s.comm_backward, 2 * s.weights.total()));
  if (has_list(l)) w.bubble = 0;  // list_bubble
  if (l.turns == Turns::kDualPipe) {
    const double all_s = s.total();
    const double hidden = std::min(s.ep, efficiency_.overlap * (all_s - s.tp - s.cp - s.ep));
    price.together = 1 - hidden / all_s;
    // So many pairs has the rank that has fewest.
    w.ep -= real(n_microbatches(job_, l) - 3 * l.pp / 2 + 1) * hidden;
  }
  const Link link = stage_link(l);
  const double hop = link.seconds + p.boundary_bytes / link.bytes_per_s;
  // Sends of 1F1B wait for each other; those of one chunk or stage hide behind the other's work.
  w.pp = v > 1 || l.copies() == 2
             ? 2 * hop * real(l.pp - 1) + m * beyond(2 * v * hop, efficiency_.overlap * s.total())
             : 2 * hop * (m + real(l.pp - 1));
}

double StepPricer::list_bubble(const Layout& l, const Stage& s, const StepPrice& price) {
  const double m = real(n_microbatches(job_, l)), parts = real(l.chunks());
  const auto end =
      clock_.seconds(l.turns, l.pp, n_microbatches(job_, l),
                     {s.forward_s() / parts, (s.backward.total() + s.comm_backward) / parts,
                      s.weights.total() / parts, price.together});
  TEGULA_CHECK(end.ok());  // check_turns has passed
  return beyond(*end, m * s.total() - (m * s.ep - price.seconds.ep));
}

void StepPricer::add_data_parallel(const Layout& l, const RankParams& p, const Stage& s,
                                   StepPrice& price) const {
  const StateBytes state = state_bytes(job_, model_);
  const double n = real(s.layers), ranks = real(l.zero_ranks());
  const double dense = n * p.layer + p.first + (l.head_rank() == 0 ? p.last : 0),
               experts = n * p.experts;
  const RankSpan all{l.zero_ranks(), l.tp}, same{l.zero_ranks() / l.ep, l.tp * l.ep};
  // The rank of the other pipeline that holds the same stage: as far as the ends are apart.
  const RankSpan pair{2, l.zero_ranks() * l.tp * (l.pp - 1)};
  static constexpr Framework kByTheBook;
  const Framework& f = job_.framework ? *job_.framework : kByTheBook;
  const double held = state.gradients * (dense + experts);
  const double buckets = f.message_bytes > 0 ? std::ceil(held / f.message_bytes) : n;
  const auto one = [&](Collective what, double bytes, const RankSpan& group, double messages) {
    const double within = seconds_of(cluster_, what, bytes, group, efficiency_, messages);
    return l.copies() == 1 ? within : within + comm(what, bytes / real(group.size), pair);
  };
  const auto both = [&](Collective what, double bytes_of_one, double messages) {
    return one(what, bytes_of_one * dense, all, messages) +
           (experts > 0 ? one(what, bytes_of_one * experts, same, n) : 0);
  };
  const double overlap = job_.overlap ? 1 : efficiency_.overlap;  // which is said is no guess
  const double hidden_b = overlap * s.backward_s() * real(l.slices);
  const double hidden_f = overlap * s.forward_s() * real(l.slices);
  const double m = real(n_microbatches(job_, l)), stages = real(l.copies());
  double& dp = price.seconds.dp;
  // The last layer's part has nothing to hide behind; what hides takes its share of the device.
  const auto exposed = [&](double seconds, double under) {
    const double hidden = std::min(seconds, under);
    if (hidden <= 0) return seconds;
    const double start = job_.overlap ? 0 : f.start_beside_s * buckets;
    const double won = hides_of(job_) * hidden - start * hidden / seconds;
    return std::max(seconds - std::max(0.0, won), seconds / n);
  };
  if (l.zero == 0) {
    dp = stages * exposed(both(Collective::kAllReduce, state.gradients, buckets), hidden_b);
  } else {
    const double reduce = both(Collective::kReduceScatter, state.gradients, buckets);
    // The gathered ones are copies of two bytes.
    const double gather =
        both(Collective::kAllGather, f.is_sharded ? std::min(2.0, state.weights) : state.weights,
             l.zero == 3 ? n * f.gathers_a_layer : buckets);
    if (l.zero == 3)
      dp = m * (exposed(gather, hidden_f) + exposed(gather + reduce, hidden_b));
    else
      dp = (l.zero == 2 ? m : stages) * exposed(reduce, hidden_b) +
           stages * exposed(gather, hidden_f);
  }
  if (f.keeps_like_torch) add_copies(l, dense + experts, price);
  // Gradients read, states read and written, weights written.
  const double local =
      l.zero == 0 ? stages * (dense + experts) : (dense + experts * real(l.ep)) / ranks;
  price.seconds.optimizer = local * (state.gradients + 2 * state.optimizer + state.weights) /
                            memory_rate(cluster_.device, efficiency_);
}

// Casts of weights and of their gradients, and what fully_shard copies into and out of its buffers.
void StepPricer::add_copies(const Layout& l, double weights, StepPrice& price) const {
  const double m = real(n_microbatches(job_, l)), ranks = real(l.zero_ranks());
  double bytes = 0;
  if (is_autocast(job_)) bytes = m * weights * ((4 + 2) + (2 + 4));
  // DDP: into the buckets, and divided by the number of ranks.
  const double gradient = state_bytes(job_, model_).gradients;
  if (!job_.framework->is_sharded && l.zero_ranks() > 1) bytes += weights * 4 * gradient;
  if (job_.framework->is_sharded) {
    // Stage 3 gathers twice in each micro-batch, stage 2 once a step; each micro-batch reduces.
    const double gathers = l.zero >= 3 ? 2 * m : 1;
    bytes = weights * (gathers * ((4 + 2) / ranks + 2 * 2) + m * ((2 + 4) + 4));
  }
  price.seconds.memory += bytes / memory_rate(cluster_.device, efficiency_);
}

void StepPricer::add_memory(const ButForZero& a, StepPrice& price) const {
  double most = -1;
  for (const auto& [rank, held] : a.dealt->telling) {
    const MemoryBytes b =
        stage_memory(model_, price.layout, job_, a.params, a.layer->activations, rank, held);
    if (b.total() > most) most = b.total(), price.memory = b, price.worst_stage = rank;
  }
}

std::vector<StageMemory> StepPricer::stages(const Layout& l) {
  const RankParams params = rank_params(model_, params_, l);
  std::vector<StageMemory> all;
  for (int64_t rank = 0; rank < l.pp; ++rank) {
    const RankStages held = stages_of(model_, job_, l, rank);
    all.push_back(
        {held.layers, stage_memory(model_, l, job_, params, layer(l).activations, rank, held)});
  }
  return all;
}

StepPrice StepPricer::price(const Layout& l) { return price(l, false); }
StepPrice StepPricer::bound(const Layout& l) { return price(l, true); }

StepPrice StepPricer::price(const Layout& l, bool is_bound) {
  const ButForZero& a = but_for_zero(l);
  const LayerPrice& p = *a.layer;
  StepPrice price = a.price;
  price.layout = l, price.is_bound = is_bound && has_list(l);
  if (has_list(l) && !is_bound) price.seconds.bubble = list_bubble(l, a.stage, a.price);
  add_data_parallel(l, a.params, a.stage, price);
  add_memory(a, price);
  if (job_.framework) price.seconds.rest = (job_.framework->factor - 1) * price.seconds.total();
  const double host = host_seconds(cluster_.device.sustained, job_, l, p.host, a.stage.layers,
                                   n_microbatches(job_, l));
  price.seconds.host = beyond(efficiency_.host * host, price.seconds.total());
  const double tokens = real(job_.batch_tokens);
  price.flops_model = tokens * flops_.train();
  const double seen = job_.flash ? flops_.causal_attention : flops_.attention;
  price.flops_hw = tokens * (3 * (flops_.layers + flops_.head + seen) +
                             p.products_again * flops_.layers + p.attention_again * seen);
  return price;
}

}  // namespace tegula::planner
