#include "tegula/planner/built_saves.h"

#include <cmath>
#include <numeric>

#include "tegula/base/algorithm.h"

namespace tegula::planner {

namespace {

constexpr double kCapacity = 1.25;  // of an expert in training, in even loads
constexpr int64_t kMostShards = 8;  // of a batch, each with room of its own

class Saves {
 public:
  Saves(const ModelSpec& m, const RankShape& s)
      : m_(m), s_(s), t_(s.tokens()), e_(s.element_bytes) {}

  std::vector<Saved> take() {
    const double h = real(m_.d_model);
    if (m_.kind == ModelKind::kLstm) {
      keep("input", e_ * t_ * h);
      keep("gates and cell", 4 * 6 * t_ * h);
    } else if (m_.kind == ModelKind::kMlp) {
      keep("input", e_ * t_ * real(m_.d_ff));
      keep("before activation", 4 * t_ * real(m_.d_ff));
    } else {
      norm();
      attention();
      if (m_.norms_per_layer > 2) norm_behind();
      norm();
      m_.is_moe() ? experts() : feed_forward(t_);
      if (m_.norms_per_layer > 2) norm_behind();
    }
    return std::move(list_);
  }

 private:
  void keep(std::string_view name, double bytes, bool is_cheap = false) {
    list_.push_back({name, bytes, false, is_cheap});
  }
  double statistics() const { return (m_.has_layer_norm ? 8 : 4) * t_ / s_.outside(); }
  void norm() {
    const double rows = t_ * real(m_.d_model) / s_.outside();
    keep("residual stream", 4 * rows);
    keep("statistics of norm", statistics());
    keep("norm", e_ * rows, true);
  }
  void norm_behind() {
    keep("input of norm behind", 4 * t_ * real(m_.d_model) / s_.outside());
    keep("statistics of norm", statistics());
  }
  void attention() {
    const double q = real(m_.q_width()) / s_.tp;
    const double kv = real(m_.kv_width()) / std::min(s_.tp, real(m_.n_kv_heads));
    keep("q, k, v", e_ * t_ * (q + 2 * kv));
    keep("attention", e_ * t_ * q);
    keep("log-sum-exp of scores", 4 * t_ * real(m_.n_heads) / s_.tp);
  }
  void feed_forward(double rows) {
    const double hidden = rows * real(m_.d_ff) / s_.tp;
    keep("before activation", 4 * hidden);
    if (m_.n_ff_matrices == 3) {
      keep("gate", 4 * hidden, true);
      keep("up", 4 * hidden);
    }
    keep("input of down", e_ * hidden, true);
  }
  void experts() {
    const double e = real(m_.n_experts), k = real(m_.n_experts_per_token), h = real(m_.d_model);
    const double shards =
        real(std::gcd(static_cast<int64_t>(std::max(1.0, s_.batch)), kMostShards));
    const double of_shard = t_ / shards;
    const double room = shards * std::min(of_shard, std::ceil(kCapacity * of_shard * k / e));
    keep("router", 4 * t_ * (e + 3 * k + 1) + 4 * e * shards);
    keep("dispatched", e_ * e / s_.ep * room * h);
    feed_forward(e / s_.ep * room);
    keep("results of experts", 4 * t_ * k * h);
  }

  const ModelSpec& m_;
  const RankShape& s_;
  double t_, e_;
  std::vector<Saved> list_;
};

}  // namespace

bool has_built_saves(const ModelSpec& m, const RankShape& s) {
  return !m.family.empty() && m.has_known_saves && s.flash && !m.has_dropout;
}

std::vector<Saved> built_saves(const ModelSpec& m, const RankShape& s) {
  return Saves(m, s).take();
}

}  // namespace tegula::planner
