#include "tegula/kernels/cuda/plugin/attention_call.h"

namespace tegula::cuda {

AttentionShape shape_of(const kernel::AttentionCall& c) {
  AttentionShape s{c.batch, c.n_q, c.n_k, c.n_heads, c.n_kv_heads, c.d, c.is_causal};
  s.is_f16 = c.q->dtype == DType::kF16, s.is_f32 = is_f32(c);
  s.is_f8 = c.q->dtype == DType::kF8E4M3;
  AttentionFeatures& f = s.features;
  f.has_window = c.left >= 0 || c.right >= 0;
  f.is_packed = c.cu_q != nullptr;
  f.has_softcap = c.softcap > 0;
  f.has_alibi = c.alibi != nullptr;
  f.has_dropout = c.dropout > 0;
  if (c.bias != nullptr)
    f.bias = c.bias->dtype == DType::kF32 ? BiasType::kF32 : BiasType::kElement;
  return s;
}

AttentionDescale descale_of(const kernel::AttentionCall& c, int which) {
  const TensorRef* t = c.descale[which];
  if (t == nullptr) return {};
  return {t->as<float>(), t->shape[0] == 1 ? 0 : t->stride[0], t->shape[1] == 1 ? 0 : t->stride[1]};
}

AttentionFeatureParams given_of(const kernel::AttentionCall& c) {
  AttentionFeatureParams p{};
  p.window_left = static_cast<int>(c.left), p.window_right = static_cast<int>(c.right);
  if (c.cu_q != nullptr) {
    p.cu_seqlens_q = c.cu_q->as<int>(), p.cu_seqlens_k = c.cu_k->as<int>();
    p.n_sequences = static_cast<int>(c.cu_q->shape[0] - 1);
  }
  if (c.alibi != nullptr) p.slopes = c.alibi->as<float>();
  if (c.bias != nullptr) {
    const auto stride = [&](int d) { return c.bias->shape[d] == 1 ? 0 : c.bias->stride[d]; };
    p.bias = c.bias->data;
    p.bias_batch = stride(0), p.bias_head = stride(1), p.bias_row = stride(2);
  }
  if (c.softcap > 0) p.softcap = c.softcap, p.softcap_inverse = 1 / c.softcap;
  if (c.dropout > 0) {
    p.seed = c.seed->as<long long>(), p.stream = c.stream;
    p.dropout = static_cast<float>(c.dropout);
    p.keep_factor = static_cast<float>(1 / (1 - c.dropout));
  }
  return p;
}

AttentionCall call_of(const kernel::AttentionCall& c, const DeviceCall& call) {
  AttentionCall a;
  a.shape = shape_of(c), a.scale = c.scale, a.given = given_of(c);
  a.q = operand_of(call.in[0]), a.k = operand_of(call.in[1]), a.v = operand_of(call.in[2]);
  a.o = operand_of(call.out[0]), a.lse = call.out[1].as<float>();
  a.workspace = call.workspace, a.stream = call.queue->stream;
  return a;
}

namespace {
bool is_packed_row(const TensorRef* t) { return t == nullptr || t->is_contiguous(); }
}  // namespace

bool is_whole(const kernel::AttentionCall& c) {
  const DType t = c.q->dtype;
  const bool is_known =
      t == DType::kBF16 || t == DType::kF16 || t == DType::kF32 || t == DType::kF8E4M3;
  if (!is_known || c.d != c.dv || c.k_offset != 0 || !(c.scale > 0)) return false;
  if (c.q_offset != c.n_k - c.n_q || (c.cu_q != nullptr && c.batch != 1)) return false;
  if (!is_packed_row(c.cu_q) || !is_packed_row(c.cu_k) || !is_packed_row(c.alibi)) return false;
  if (c.alibi != nullptr && c.alibi->dtype != DType::kF32) return false;
  if (c.bias != nullptr) {
    const TensorRef& b = *c.bias;
    if ((b.dtype != DType::kF32 && b.dtype != result_type(t)) ||
        (b.stride[3] != 1 && b.shape[3] > 1))
      return false;
  }
  for (const int64_t o : c.origin)
    if (o != 0) return false;
  return c.whole[0] == c.n_heads && c.whole[1] == c.n_q && c.whole[2] == c.n_k;
}

DType result_type(DType t) { return t == DType::kF8E4M3 ? DType::kBF16 : t; }

bool is_readable(const kernel::AttentionCall& c, bool of_f32,
                 std::initializer_list<const TensorRef*> tensors) {
  if (is_f32(c) != of_f32) return false;
  for (const TensorRef* t : tensors) {
    const bool is_good = of_f32 ? t->stride[3] == 1 || t->shape[3] == 1 : is_copyable(*t);
    if (t->dtype != c.q->dtype || !is_good) return false;
  }
  return true;
}

bool is_plain(const kernel::AttentionCall& c) {
  return is_whole(c) && !c.has_extras() && c.cu_q == nullptr && c.dropout == 0 && c.dlse == nullptr;
}

}  // namespace tegula::cuda
