#include "tegula/kernels/cuda/describe/attention_query.h"

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

AttentionShape shape_of(const kernel::AttentionCall& c) {
  AttentionShape s{c.batch, c.n_q, c.n_k, c.n_heads, c.n_kv_heads, c.d, c.is_causal};
  s.is_f16 = c.q->dtype == DType::kF16, s.is_f32 = is_f32(c);
  s.is_f8 = c.q->dtype == DType::kF8E4M3;
  AttentionFeatures& f = s.features;
  f.has_window = c.left >= 0 || c.right >= 0;
  f.is_packed = c.cu_q != nullptr, f.is_paged = c.page > 0;
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
    p.cu_seqlens_q = c.cu_q->as<int>();
    if (c.cu_k != nullptr) p.cu_seqlens_k = c.cu_k->as<int>();
    p.n_sequences = static_cast<int>(c.cu_q->shape[0] - 1);
  }
  if (c.page > 0) {
    p.seqlens_k = c.seqlens_k->as<int>(), p.block_table = c.table->as<int>();
    p.pages_per_sequence = static_cast<int>(c.table->shape[1]);
    p.page_size = static_cast<int>(c.page), p.last_page = static_cast<int>(c.k->shape[0] - 1);
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

int64_t lse_rows(const TensorRef& lse) {
  const int64_t b = lse.shape[0], h = lse.shape[1];
  if (lse.shape[2] > 1 && lse.stride[2] != 1) return 0;
  const int64_t rows = h > 1 ? lse.stride[1] : b > 1 ? lse.stride[0] : lse.shape[2];
  return rows < lse.shape[2] || (b > 1 && lse.stride[0] != h * rows) ? 0
                                                                     : std::max<int64_t>(rows, 1);
}

AttentionCall call_of(const kernel::AttentionCall& c, const DeviceCall& call, const Stream& to) {
  AttentionCall a;
  a.shape = shape_of(c), a.scale = c.scale, a.given = given_of(c);
  a.q = operand_of(call.in[0]), a.k = operand_of(call.in[1]), a.v = operand_of(call.in[2]);
  a.o = operand_of(call.out[0]), a.lse = call.out[1].as<float>();
  a.given.lse_rows = static_cast<int>(lse_rows(call.out[1]));
  a.workspace = call.workspace, a.stream = to;
  return a;
}

namespace {
bool is_packed_row(const TensorRef* t) { return t == nullptr || t->is_contiguous(); }
}  // namespace

Status check_whole(const kernel::AttentionCall& c) {
  const DType t = c.q->dtype;
  if (t != DType::kBF16 && t != DType::kF16 && t != DType::kF32 && t != DType::kF8E4M3)
    return unsupported(cat("q of ", dtype_name(t), ": bf16, f16, f32 and e4m3 are there"));
  if (c.d != c.dv)
    return unsupported(cat("head_dim ", c.d, " of q and k, ", c.dv, " of v: pad the smaller"));
  if (!(c.scale > 0)) return unsupported(cat("scale ", double(c.scale), ": negate q"));
  if (c.q_offset != c.n_k - c.n_q || c.k_offset != 0 || c.has_runs())
    return unsupported("only a mask whose last query sees the last key is there");
  if (c.cu_q != nullptr && c.batch != 1)
    return unsupported(cat("packed sequences in a batch of ", c.batch, ": pack them into one"));
  if (!is_packed_row(c.cu_q) || !is_packed_row(c.cu_k) || !is_packed_row(c.alibi) ||
      !is_packed_row(c.seqlens_k) || !is_packed_row(c.table))
    return unsupported(
        "offsets and lengths of sequences, a table of pages and ALiBi's slopes must be contiguous: "
        "copy them");
  if (c.alibi != nullptr && c.alibi->dtype != DType::kF32)
    return unsupported("ALiBi's slopes are of f32");
  if (c.bias != nullptr) {
    const TensorRef& b = *c.bias;
    if ((b.dtype != DType::kF32 && b.dtype != result_type(t)) ||
        (b.stride[3] != 1 && b.shape[3] > 1))
      return unsupported(cat("a bias of ", dtype_name(b.dtype), ": f32 or ",
                             dtype_name(result_type(t)), " with stride 1 over keys are there"));
  }
  const bool is_part =
      std::any_of(std::begin(c.origin), std::end(c.origin), [](int64_t o) { return o != 0; });
  if (is_part || c.whole[0] != c.n_heads || c.whole[1] != c.n_q || c.whole[2] != c.n_k)
    return unsupported("a part of a larger call");
  return {};
}

DType result_type(DType t) { return t == DType::kF8E4M3 ? DType::kBF16 : t; }

Status check_readable(const kernel::AttentionCall& c, bool of_f32,
                      std::initializer_list<const TensorRef*> tensors) {
  if (is_f32(c) != of_f32) return unsupported(of_f32 ? "it is for f32" : "it is not for f32");
  for (const TensorRef* t : tensors) {
    if (t->dtype != c.q->dtype)
      return unsupported(cat("a tensor of ", dtype_name(t->dtype), " beside q of ",
                             dtype_name(c.q->dtype), ": cast it"));
    if (!(of_f32 ? t->stride[3] == 1 || t->shape[3] == 1 : is_copyable(*t)))
      return unsupported(cat("strides ", t->stride[0], ", ", t->stride[1], ", ", t->stride[2], ", ",
                             t->stride[3], ": the last must be 1",
                             of_f32 ? "" : ", the others multiples of 16 bytes", "; copy it"));
  }
  return {};
}

Status check_results(const kernel::AttentionCall& c, const TensorRef& o, const TensorRef& lse) {
  if (o.dtype != result_type(c.q->dtype))
    return unsupported(cat("o of ", dtype_name(o.dtype), ": it is written as ",
                           dtype_name(result_type(c.q->dtype))));
  if (!is_f32(c) && !is_copyable(o)) return unsupported("o must have strides of whole 16 bytes");
  if (c.page > 0 ? lse_rows(lse) == 0 : !lse.is_contiguous())
    return unsupported("the log-sum-exp must be contiguous");
  return {};
}

Status check_plain(const kernel::AttentionCall& c) {
  TEGULA_TRY(check_whole(c));
  if (c.has_extras() || c.cu_q != nullptr || c.dropout != 0 || c.dlse != nullptr)
    return unsupported(
        "no softcap, bias, ALiBi, packed sequences nor dropout: leave them out, or use "
        "attention_sm90 or attention_mma");
  return {};
}

}  // namespace tegula::cuda
