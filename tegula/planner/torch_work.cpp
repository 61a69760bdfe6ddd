#include "tegula/planner/torch_work.h"

#include "tegula/planner/framework.h"

namespace tegula::planner {

namespace {

struct Rows {
  double forward = 0, backward = 0;  // bytes
  double forward_ops = 1, backward_ops = 1;
};

class TorchLayer {
 public:
  TorchLayer(const ModelSpec& m, const RankShape& s)
      : m_(m),
        f_(*s.framework),
        whole_(s.tokens() * real(m.d_model) / s.outside()),
        e_(s.element_bytes),
        stream_(s.stream_bytes),
        is_cast_(stream_ > e_) {}

  // A norm that so many products read, and the sum before it.
  Rows norm(double readers) const {
    const double sum = 2 * stream_ + e_, grads = 3 * stream_ + 3 * e_ * (readers - 1);
    Rows r = {whole_ * (2 * stream_ + sum), whole_ * (4 * stream_ + grads), 2, 3 + readers};
    if (f_.in_steps) {
      // Square 8, mean 4, root's product 8, weight's 2·E, casts; and their derivatives.
      const double casts = stream_ < 4 ? 2 * (4 + stream_) : 0;
      r.forward = whole_ * (20 + 2 * stream_ + casts + sum);
      r.backward = whole_ * (52 + 6 * stream_ + casts + grads);
      r.forward_ops = 8, r.backward_ops = 12 + readers;
    }
    if (!is_cast_) return r;
    const double casts = readers * whole_ * (stream_ + e_);
    r.forward += casts, r.backward += casts;
    r.forward_ops += readers, r.backward_ops += readers;
    return r;
  }
  // From what a fused kernel reads and writes: once each.
  Rows turned(double fused) const {
    const double elements = fused / (2 * e_), each = is_cast_ ? 4 : e_;
    const double cast = is_cast_ ? elements * (4 + e_) : 0;
    // Beside the halves' products transformers negates and joins a turned row, and its derivative
    // fills both halves with zeros.
    const double forward = f_.in_steps ? 10 : 9, backward = f_.in_steps ? 15 : 11;
    return {forward * each * elements + cast, backward * each * elements, 14, 16};
  }
  Rows activation(double fused) const {
    if (m_.n_ff_matrices != 3) return {fused, fused * 1.5, 1, 1};
    return {fused / 3 * 5, fused / 3 * 9, 2, 3};
  }

 private:
  const ModelSpec& m_;
  const Framework& f_;
  double whole_, e_, stream_;
  bool is_cast_;
};

void set(std::vector<Work>& list, std::string_view name, double bytes, double ops) {
  for (Work& w : list)
    if (w.name == name && w.unit == Unit::kRows) w.bytes = bytes, w.launches = ops;
}

double readers_of(const ModelSpec& m, std::string_view norm) {
  if (norm == "norm of attention") return 3;
  if (norm == "norm of feed-forward") return real(m.n_ff_matrices - 1);
  return 1;
}

}  // namespace

void execute_like_torch(const ModelSpec& m, const RankShape& s, bool is_head, LayerWork& work) {
  const bool is_cast = s.stream_bytes > s.element_bytes;
  const TorchLayer torch(m, s);
  if (s.framework->one_by_one) {
    for (size_t i = 0; i < work.forward.size(); ++i) {
      const Work w = work.forward[i];
      if (w.unit != Unit::kRows) continue;
      const bool is_norm = w.name.find("norm") != w.name.npos;
      if (!is_norm && w.name != "rope" && w.name != "activation") continue;
      const Rows r = is_norm            ? torch.norm(readers_of(m, w.name))
                     : w.name == "rope" ? torch.turned(w.bytes)
                                        : torch.activation(w.bytes);
      set(work.forward, w.name, r.forward, r.forward_ops);
      set(work.input_backward, w.name, r.backward, r.backward_ops);
    }
  }
  // The kept tensors, from those that mixed precision by the book keeps.
  const double casts = is_cast && s.framework->one_by_one ? 1 : 0;
  double readers = is_head ? 1 : 3;
  for (size_t i = 0, n = work.saved.size(); i < n; ++i) {
    Saved& kept = work.saved[i];
    if (kept.name == "input of norm")
      kept.bytes *= (s.framework->in_steps ? 4 + s.stream_bytes : s.stream_bytes) /
                    s.element_bytes;  // in steps: in f32, and what the weight multiplies
    if (kept.name == "norm") {
      kept.bytes *= 1 + casts * (readers - 1);
      readers = real(m.n_ff_matrices - 1);
    }
    if (kept.name == "activation" && m.n_ff_matrices == 3 && s.framework->one_by_one)
      kept.bytes *= 2;  // the activated gate, and its product with the other factor
  }
}

}  // namespace tegula::planner
