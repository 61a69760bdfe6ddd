#include "tegula/planner/serving.h"

#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/cost/price.h"
#include "tegula/planner/enumerate.h"
#include "tegula/planner/memory.h"
#include "tegula/planner/print.h"
#include "tegula/planner/search.h"

namespace tegula::planner {

namespace {

constexpr int64_t kMostCopyDevices = 512;
constexpr int64_t kMostBatch = 1 << 14;

// One step of a copy: the lists of its layer's work and its collectives.
class ServeStep {
 public:
  ServeStep(const ModelSpec& m, const ClusterSpec& c, const ServeJob& job, const ServeLayout& l,
            double batch, double tokens, double keys)
      : m_(m), c_(c), job_(job), l_(l), e_(bytes_of(job.dtype)), batch_(batch), keys_(keys) {
    t_ = batch * tokens / real(l.gather);
    stationary_ = real(l.n / l.gather);
    queries_ = tokens;
  }

  StepSeconds price() {
    const double layers = real(m_.n_layers);
    StepSeconds s;
    s.layout = l_;
    add_layer();
    s.seconds = total() * layers;
    count(s, layers);
    s.comm = layers * layer_comm();
    works_.clear();
    // The head sees one token of every sequence.
    works_.push_back(
        matmul_work("head", batch_, real(m_.vocab_size) / real(l_.n), real(m_.d_model), e_));
    s.seconds += total();
    count(s, 1);
    s.comm += comm(Collective::kAllGather, e_ * batch_ * real(m_.d_model), l_.n);
    return s;
  }

 private:
  void count(StepSeconds& s, double times) const {
    for (const Work& w : works_)
      if (w.unit == Unit::kMatmul)
        s.products += times * w.flops;
      else if (w.unit == Unit::kAttention)
        s.attention += times * w.flops;
  }
  Seconds total() const { return tegula::price(works_, c_.device, kExpected, job_.dtype); }
  double comm(Collective what, double bytes, int64_t n, int64_t stride = 1) const {
    return seconds_of(c_, what, bytes, {n, stride}, kExpected);
  }

  // [t, k]·[k, n] of which this device has 1/stationary_: of what leads from d_model into the
  // hidden width the results, of what leads back the sums.
  void product(const char* name, double n, double k, bool is_into) {
    double over_n = is_into ? stationary_ : 1, over_k = is_into ? 1 : stationary_;
    if (l_.partition == Partition::kStationary2d) {
      const double x = real(l_.x), y = stationary_ / x;
      over_n = is_into ? y : x, over_k = is_into ? x : y;
    }
    works_.push_back(matmul_work(name, t_, n / over_n, k / over_k, e_));
  }

  void add_layer();
  void add_feed_forward();
  double layer_comm() const;

  const ModelSpec& m_;
  const ClusterSpec& c_;
  const ServeJob& job_;
  const ServeLayout& l_;
  double e_, batch_, keys_;
  double t_, stationary_,
      queries_;  // tokens of this device, parts of a product, queries a sequence
  std::vector<Work> works_;
};

void ServeStep::add_feed_forward() {
  const double h = real(m_.d_model), f = real(m_.d_ff);
  if (!m_.is_moe()) {
    if (m_.n_ff_matrices == 3) product("ff gate", f, h, true);
    product("ff up", f, h, true);
    product("ff down", h, f, false);
    return;
  }
  // Experts that no token chose are not read.
  const double k = real(m_.n_experts_per_token), all = real(m_.n_experts);
  const double touched = all * (1 - std::pow(1 - k / all, t_));
  const double rows = t_ * k / touched, parts = stationary_;
  const double matrices = real(m_.n_ff_matrices);
  works_.push_back(matmul_work("experts up", rows, (matrices - 1) * f / parts, h, e_, touched));
  works_.push_back(matmul_work("experts down", rows, h, f / parts, e_, touched));
  works_.push_back(matmul_work("router", t_, all, h, e_));
  if (m_.shared_ff == 0) return;
  product("shared up", (matrices - 1) * real(m_.shared_ff), h, true);
  product("shared down", h, real(m_.shared_ff), false);
}

void ServeStep::add_layer() {
  const double h = real(m_.d_model), q = real(m_.q_width()), kv = real(m_.kv_width());
  product("qkv", q + 2 * kv, h, true);
  product("attention out", h, q, false);
  add_feed_forward();
  // This device has a share of all queries of the step: of heads or of sequences.
  const double n = real(l_.n);
  Work w;
  w.name = "attention", w.unit = Unit::kAttention;
  w.seqlen = 2 * keys_, w.head_dim = real(m_.head_dim);
  w.flops = 4 * batch_ * queries_ * keys_ * q / n;
  const double shares = l_.attention_by_batch ? std::min(n, batch_)
                                              : std::min(n, real(m_.n_kv_heads) * real(l_.gather));
  w.bytes = e_ * batch_ * 2 * keys_ * kv / shares;
  works_.push_back(w);
  works_.push_back(rows_work("norms and activation",
                             e_ * t_ * (10 * h / stationary_ + 3 * real(m_.d_ff) / stationary_)));
}

double ServeStep::layer_comm() const {
  const double h = real(m_.d_model), q = real(m_.q_width()), kv = real(m_.kv_width());
  const double wide = real(m_.d_ff) * (real(m_.n_ff_matrices) - 1);
  double s = 0;
  const double joins = m_.norms_per_layer == 1 ? 1 : 2;
  if (l_.partition == Partition::kStationary2d) {
    const int64_t x = l_.x, y = l_.n / l_.x;
    const double in = e_ * t_ * h / real(x);
    s += joins * (comm(Collective::kAllGather, in, y) + comm(Collective::kReduceScatter, in, y));
    for (const auto& [up, down] : {std::pair{wide, real(m_.d_ff)}, std::pair{q + 2 * kv, q}})
      s += comm(Collective::kReduceScatter, e_ * t_ * up / real(y), x, y) +
           comm(Collective::kAllGather, e_ * t_ * down / real(y), x, y);
  } else {
    const int64_t n = l_.n / l_.gather;
    s += joins * comm(Collective::kAllReduce, e_ * t_ * h, n);
    if (l_.gather > 1) {
      const double weights =
          h * (2 * q + 2 * kv) + real(m_.n_experts * m_.n_ff_matrices) * h * real(m_.d_ff);
      s += comm(Collective::kAllGather, e_ * weights / real(n), l_.gather, n);
    }
  }
  if (l_.attention_by_batch && l_.gather < l_.n) {
    const double mine = e_ * batch_ * queries_ / real(l_.n);
    s += comm(Collective::kAllToAll, mine * (q + 2 * kv), l_.n) +
         comm(Collective::kAllToAll, mine * q, l_.n);
  }
  return s;
}

// Every way in which n devices can share a step.
std::vector<ServeLayout> layouts_of(const ModelSpec& m, int64_t n) {
  std::vector<ServeLayout> all;
  for (const bool by_batch : {false, true}) {
    if (by_batch && n == 1) continue;
    ServeLayout l;
    l.n = n, l.attention_by_batch = by_batch;
    for (const int64_t g : divisors(n)) {
      l.partition = g > 1 ? Partition::kGathered : Partition::kStationary1d;
      l.gather = g;
      if (m.d_ff % (n / g) == 0 && m.n_heads % (n / g) == 0) all.push_back(l);
    }
    l.gather = 1, l.partition = Partition::kStationary2d;
    for (const int64_t x : divisors(n)) {
      if (x == 1 || x == n || m.is_moe()) continue;
      l.x = x;
      if (m.d_model % x == 0 && m.d_ff % (n / x) == 0) all.push_back(l);
    }
  }
  return all;
}

// The fastest; none where nothing divides so.
std::optional<StepSeconds> best_step(const ModelSpec& m, const ClusterSpec& c, const ServeJob& job,
                                     int64_t n, bool by_batch, double batch, double tokens,
                                     double keys) {
  std::optional<StepSeconds> best;
  for (const ServeLayout& l : layouts_of(m, n)) {
    // The cut of a cache stays as it is from prefill to decoding.
    if (l.attention_by_batch != by_batch || real(l.gather) > batch * tokens) continue;
    const StepSeconds s = serve_step(m, c, job, l, batch, tokens, keys);
    if (!best || s.total() < best->total()) best = s;
  }
  return best;
}

struct Copy {
  double weights = 0, kv_of_sequence = 0;  // of one device
  int64_t batch = 0;                       // that fits
};

Copy fit_of(const ModelSpec& m, const ParamCount& p, const ClusterSpec& c, const ServeJob& job,
            int64_t n, bool by_batch) {
  Copy f;
  const double e = bytes_of(job.dtype);
  f.weights = e * real(p.total) / real(n);
  const double whole = cache_bytes(m, e, real(job.prompt + job.output));
  f.kv_of_sequence = whole / (by_batch ? real(n) : real(std::min(n, m.n_kv_heads)));
  const double left = served_bytes(c.device) - f.weights;
  if (left <= 0) return f;
  double batch = std::floor(left / f.kv_of_sequence);
  // By sequences every device has at least one whole cache.
  if (by_batch) batch = std::floor(left / whole) * real(n);
  f.batch = static_cast<int64_t>(std::min(batch, real(kMostBatch)));
  return f;
}

std::optional<ServePrice> price_copy(const ModelSpec& m, const ClusterSpec& c, const ServeJob& job,
                                     int64_t n, bool by_batch, int64_t batch, const Copy& fit) {
  ServePrice p;
  p.n = n, p.copies = c.n_devices / n, p.batch = batch;
  const double prompt = real(job.prompt), output = real(job.output);
  const auto prefill = best_step(m, c, job, n, by_batch, 1, prompt, (prompt + 1) / 2);
  const auto decode = best_step(m, c, job, n, by_batch, real(batch), 1, prompt + output / 2);
  if (!prefill || !decode) return {};
  p.prefill = *prefill, p.decode = *decode;
  p.weight_bytes = fit.weights, p.kv_bytes = fit.kv_of_sequence * real(batch);
  // The first token comes out of the prefill.
  const double seconds = real(batch) * p.prefill.total() + (output - 1) * p.decode.total();
  p.sequences_per_s = real(batch) / seconds, p.request_s = seconds;
  p.tokens_per_s = p.sequences_per_s * output * real(p.copies);
  p.dollars_per_million_tokens = dollars(c.device, real(c.n_devices), 1) / p.tokens_per_s * 1e6;
  return p;
}

std::string does_not_fit(const ModelSpec& m, const ClusterSpec& c, const ServeAnswer& a,
                         int64_t batch) {
  std::string text = cat(m.name, kDoesNotFit, c.n_devices, "x", c.device.name, ": ");
  text += cat(gb(a.weights_bytes), " of weights and ", gb(a.kv_bytes_per_sequence),
              " of keys and values a sequence");
  if (batch > 0) text += cat(", of which a copy takes ", batch);
  return text +
         cat(", over at most ", c.n_devices, " devices of ", gb(served_bytes(c.device)), " usable");
}

}  // namespace

std::string_view partition_name(Partition p) {
  constexpr std::string_view kNames[] = {"weight_stationary", "weight_stationary_2d",
                                         "weight_gathered"};
  return kNames[static_cast<int>(p)];
}

std::string_view StepSeconds::bound_by() const {
  const std::pair<double, std::string_view> terms[] = {{seconds.compute, "compute"},
                                                       {seconds.memory, "memory"},
                                                       {comm, "network"},
                                                       {seconds.launch, "launch"}};
  return std::max_element(std::begin(terms), std::end(terms),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

StepSeconds serve_step(const ModelSpec& model, const ClusterSpec& cluster, const ServeJob& job,
                       const ServeLayout& layout, double batch, double tokens, double keys) {
  return ServeStep(model, cluster, job, layout, batch, tokens, keys).price();
}

double compute_bound_batch(const ModelSpec& m, double flops_per_s, double bytes_per_s,
                           double weight_bytes) {
  return flops_per_s / bytes_per_s * weight_bytes / 2 * real(m.n_experts) /
         real(m.n_experts_per_token);
}

Result<ServeAnswer> plan_serving(const ModelSpec& m, const ParamCount& params, const ClusterSpec& c,
                                 const ServeJob& job) {
  if (m.kind != ModelKind::kDecoder)
    return unsupported(cat(m.name, " has no attention, and serving is priced for decoders alone"));
  TEGULA_TRY(check_plain(m, "--serve"));
  if (job.prompt < 1 || job.output < 1)
    return invalid_argument(cat("--serve needs --prompt ", job.prompt, " and --output ", job.output,
                                " of at least one token each"));
  if (m.max_seqlen > 0 && job.prompt + job.output > m.max_seqlen)
    return invalid_argument(cat("prompt ", job.prompt, " and output ", job.output, " are ",
                                job.prompt + job.output, " tokens, and ", m.name, " takes at most ",
                                m.max_seqlen));
  if (c.device.peak(job.dtype) == 0)
    return invalid_argument(cat(c.device.name, " has no units for ", number_name(job.dtype),
                                ": choose another --dtype"));
  const double e = bytes_of(job.dtype);
  ServeAnswer a;
  a.weights_bytes = e * real(params.total);
  a.kv_bytes_per_sequence = cache_bytes(m, e, real(job.prompt + job.output));
  a.compute_bound_batch =
      compute_bound_batch(m, c.device.peak(job.dtype), c.device.memory_bytes_per_s, e);
  if (c.device.host_bytes_per_s > 0)
    a.context_switch_s = 2 * a.kv_bytes_per_sequence / c.device.host_bytes_per_s;
  std::vector<int64_t> most;
  // Groups that divide the devices, and powers of two, beside which some are left over.
  std::vector<int64_t> sizes = divisors(c.n_devices);
  for (int64_t n = 2; n < c.n_devices; n *= 2)
    if (c.n_devices % n != 0) sizes.push_back(n);
  for (const int64_t n : sizes) {
    if (n > kMostCopyDevices) continue;
    std::optional<ServePrice> best;
    int64_t max_batch = 0;
    for (const bool by_batch : {false, true}) {
      const Copy fit = fit_of(m, params, c, job, n, by_batch);
      if (job.batch > fit.batch) continue;
      for (int64_t batch = job.batch > 0 ? job.batch : fit.batch; batch >= 1; batch /= 2) {
        const auto p = price_copy(m, c, job, n, by_batch, batch, fit);
        if (!p) break;
        if (!best || p->tokens_per_s > best->tokens_per_s) best = p, max_batch = fit.batch;
        if (batch == 1 && (!a.quickest || p->decode.total() < a.quickest->decode.total()))
          a.quickest = p;
        if (job.batch > 0) break;
      }
    }
    if (best) a.best.push_back(*best), most.push_back(max_batch);
  }
  if (a.best.empty()) return invalid_argument(does_not_fit(m, c, a, job.batch));
  const auto first = std::max_element(
      a.best.begin(), a.best.end(),
      [](const ServePrice& x, const ServePrice& y) { return x.tokens_per_s < y.tokens_per_s; });
  a.max_batch = most[static_cast<size_t>(first - a.best.begin())];
  std::stable_sort(a.best.begin(), a.best.end(), [](const ServePrice& x, const ServePrice& y) {
    return x.tokens_per_s > y.tokens_per_s;
  });
  return a;
}

}  // namespace tegula::planner
