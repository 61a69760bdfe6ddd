#include "tegula/planner/model.h"

#include "tegula/base/saturating.h"

namespace tegula::planner {

namespace {

constexpr int64_t kMostParams = int64_t{1} << 62;

struct Size {
  const char* name;
  int64_t value;
};

Status check_sizes(const ModelSpec& m) {
  std::vector<Size> sizes = {
      {"n_layers", m.n_layers}, {"d_model", m.d_model}, {"vocab_size", m.vocab_size}};
  if (m.kind != ModelKind::kLstm) sizes.push_back({"d_ff", m.d_ff});
  if (m.kind == ModelKind::kDecoder)
    for (const Size& s : {Size{"n_heads", m.n_heads}, Size{"n_kv_heads", m.n_kv_heads},
                          Size{"head_dim", m.head_dim}, Size{"n_experts", m.n_experts},
                          Size{"n_experts_per_token", m.n_experts_per_token}})
      sizes.push_back(s);
  for (const Size& s : sizes)
    if (s.value < 1)
      return invalid_argument(
          cat(m.name, ": ", s.name, " is ", s.value, ", and must be at least 1"));
  if (m.n_experts_per_token > m.n_experts)
    return invalid_argument(cat(m.name, ": n_experts_per_token ", m.n_experts_per_token,
                                " is more than n_experts ", m.n_experts));
  if (m.kind == ModelKind::kDecoder && m.n_heads % m.n_kv_heads != 0)
    return invalid_argument(
        cat(m.name, ": n_heads ", m.n_heads, " is not a multiple of n_kv_heads ", m.n_kv_heads));
  return {};
}

// Sums and products that stop at the end of 64 bits, so that an absurd size is seen afterwards.
struct Sat {
  int64_t v;
  friend Sat operator*(Sat a, Sat b) { return {saturating_mul(a.v, b.v)}; }
  friend Sat operator+(Sat a, Sat b) { return {saturating_add(a.v, b.v)}; }
};

void count_lstm(const ModelSpec& m, ParamCount& p) {
  const Sat h{m.d_model};
  p.expert = (Sat{4} * h * h * Sat{2} + Sat{4} * h).v;  // input, recurrent, bias of four gates
}

void count_decoder(const ModelSpec& m, ParamCount& p) {
  const Sat h{m.d_model}, f{m.d_ff};
  const Sat q = Sat{m.n_heads} * Sat{m.head_dim}, k = Sat{m.n_kv_heads} * Sat{m.head_dim};
  const Sat v = Sat{m.n_kv_heads} * Sat{m.value_dim()}, out = Sat{m.n_heads} * Sat{m.value_dim()};
  Sat attention = h * (q + k + v + out);
  if (m.is_latent()) {
    const Sat rank{m.kv_rank}, turned{m.rope_dim}, unturned{m.head_dim - m.rope_dim};
    attention = m.q_rank > 0 ? Sat{m.q_rank} * (h + q) : h * q;
    attention =
        attention + h * (rank + turned) + rank * (Sat{m.n_heads} * unturned + out) + h * out;
  }
  if (m.has_qkv_bias) attention = attention + q + k + v;
  if (m.has_bias) attention = attention + h;
  if (m.has_relative_positions) attention = attention + h * q + q + q;
  p.attention = (attention + Sat{m.other_attention}).v;
  Sat expert = Sat{m.n_ff_matrices} * h * f;
  if (m.has_bias) expert = expert + Sat{m.n_ff_matrices - 1} * f + h;
  p.expert = expert.v;
  p.router = m.is_moe() ? (h * Sat{m.n_experts} + Sat{m.other_router}).v : 0;
  p.shared = (Sat{m.n_ff_matrices} * h * Sat{m.shared_ff}).v;
  p.dense = (Sat{m.n_ff_matrices} * h * Sat{m.dense_ff}).v;
  const Sat norm = h * Sat{!m.has_norm_weights ? 0 : m.has_norm_bias ? 2 : 1};
  p.norms = (norm * Sat{m.norms_per_layer}).v;
  p.final_norm = m.has_final_norm ? norm.v : 0;
  p.positions =
      ((Sat{m.n_positions} + Sat{m.n_types}) * h + (m.has_embedding_norm ? norm : Sat{0})).v;
}

}  // namespace

Result<ParamCount> count_params(const ModelSpec& m) {
  TEGULA_TRY(check_sizes(m));
  ParamCount p;
  const Sat h{m.d_model}, f{m.d_ff};
  p.embedding = (Sat{m.vocab_size} * h).v;
  p.head = m.is_tied ? 0 : p.embedding;
  if (m.has_head_transform) p.head = (Sat{p.head} + h * (h + Sat{3}) + Sat{m.vocab_size}).v;
  if (m.kind == ModelKind::kMlp) {
    // The window of eight embeddings into the first layer, square layers, a projection out.
    const Sat window = Sat{8} * h * f + f, out = f * h;
    const Sat square = Sat{m.n_layers - 1} * (f * f + f);
    p.expert = (f * f + f).v, p.layer = p.active_layer = p.expert;
    p.total = p.active = (Sat{p.embedding} + Sat{p.head} + window + square + out).v;
  } else {
    if (m.kind == ModelKind::kLstm)
      count_lstm(m, p);
    else
      count_decoder(m, p);
    const Sat all = Sat{p.attention} + Sat{p.norms};
    const Sat shared = all + Sat{p.router} + Sat{p.shared};
    p.layer = (shared + Sat{m.n_experts} * Sat{p.expert}).v;
    p.active_layer = (shared + Sat{m.n_experts_per_token} * Sat{p.expert}).v;
    const Sat dense{m.n_dense_layers}, sparse{m.n_layers - m.n_dense_layers};
    const Sat ends = Sat{p.embedding} + Sat{p.positions} + Sat{p.final_norm} + Sat{p.head} +
                     dense * (all + Sat{p.dense});
    p.total = (sparse * Sat{p.layer} + ends).v;
    p.active = (sparse * Sat{p.active_layer} + ends).v;
  }
  if (p.total >= kMostParams)
    return invalid_argument(cat(m.name, " has more than ", static_cast<double>(kMostParams),
                                " parameters: n_layers ", m.n_layers, ", d_model ", m.d_model,
                                ", d_ff ", m.d_ff, ", vocab_size ", m.vocab_size, ", n_experts ",
                                m.n_experts, ": make one of them smaller"));
  return p;
}

double kv_bytes_per_token(const ModelSpec& m, double bytes_per_element) {
  if (m.kind != ModelKind::kDecoder) return 0;
  const int64_t elements = m.is_latent() ? m.kv_rank + m.rope_dim : m.kv_width() + m.v_width();
  return static_cast<double>(m.n_layers) * static_cast<double>(elements) * bytes_per_element;
}

double cache_bytes(const ModelSpec& m, double bytes_per_element, double tokens) {
  const double windowed = static_cast<double>(m.n_window_layers) / static_cast<double>(m.n_layers);
  const double kept =
      windowed * std::min(tokens, static_cast<double>(m.window)) + (1 - windowed) * tokens;
  return kv_bytes_per_token(m, bytes_per_element) * kept;
}

double attention_weights(const ModelSpec& m) {
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double h = real(m.d_model), q = real(m.q_width()), out = real(m.o_width());
  if (!m.is_latent()) return h * (q + real(m.kv_width()) + real(m.v_width())) + out * h;
  const double rank = real(m.kv_rank), unturned = real(m.n_heads * (m.head_dim - m.rope_dim));
  const double queries = m.q_rank > 0 ? real(m.q_rank) * (h + q) : h * q;
  return queries + h * (rank + real(m.rope_dim)) + rank * (unturned + out) + out * h;
}

Status check_plain(const ModelSpec& m, std::string_view what) {
  if (m.is_latent())
    return unsupported(
        cat(what, " is not priced for latent attention: kv_lora_rank ", m.kv_rank, " of ", m.name));
  if (m.n_dense_layers > 0)
    return unsupported(cat(what, " is not priced for layers with experts and without: ",
                           m.n_dense_layers, " of ", m.n_layers, " layers of ", m.name,
                           " have none (first_k_dense_replace, mlp_only_layers or "
                           "decoder_sparse_step)"));
  return {};
}

}  // namespace tegula::planner
