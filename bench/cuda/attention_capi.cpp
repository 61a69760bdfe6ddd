// The attention kernels as C calls, for bench/cuda/attention.py, which times them beside PyTorch's
// on the tensors and the stream of one process.
#include "bench/cuda/capi.h"
#include "tegula/kernels/cuda/attention.h"
#include "tegula/kernels/cuda/attention_decode.h"
#include "tegula/kernels/cuda/attention_f32.h"
#include "tegula/kernels/cuda/attention_rungs.h"

namespace {

using namespace tegula;
using namespace tegula::cuda;

Result<AttentionKernel> load_sm90(const char* path, const AttentionVariant& v) {
  return AttentionKernel::load(v, TEGULA_TRY(read_cubin(path)));
}

Result<AttentionF32Kernel> load_f32(const char* path, const AttentionF32Variant& v) {
  return AttentionF32Kernel::load(v, TEGULA_TRY(read_cubin(path)));
}

Result<DecodeKernel> load_decode(const char* path, const DecodeVariant& v) {
  return DecodeKernel::load(v, TEGULA_TRY(read_cubin(path)));
}

DecodeShape decode_shape(const int64_t* sizes) {
  return {sizes[0],
          sizes[1],
          sizes[2],
          sizes[3],
          sizes[4],
          sizes[5],
          sizes[6] != 0,
          sizes[7],
          sizes[8],
          sizes[9] != 0,
          static_cast<int>(sizes[10])};
}

Result<AttentionRung> load_rung(const char* path, int head_dim) {
  return AttentionRung::load(head_dim, TEGULA_TRY(read_cubin(path)));
}

// pointers: q, k, v, o, lse. strides: batch, row, head of the first four.
AttentionCall attention_call(void* const* pointers, const int64_t* sizes, const int64_t* strides,
                             float scale, void* stream) {
  AttentionCall c;
  c.shape = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6] != 0};
  AttentionOperand* operands[] = {&c.q, &c.k, &c.v, &c.o};
  for (int i = 0; i < 4; ++i)
    *operands[i] = {pointers[i], strides[3 * i], strides[3 * i + 1], strides[3 * i + 2]};
  c.lse = static_cast<float*>(pointers[4]);
  c.scale = scale;
  c.stream = stream;
  return c;
}

}  // namespace

extern "C" {

const char* tegula_error() { return last_error.c_str(); }

// spec: the numbers of a line of variants.txt.
void* tegula_attention_load(const char* cubin, const int* spec) {
  AttentionVariant v;
  v.head_dim = spec[0], v.is_causal = spec[1] != 0, v.tile_n = spec[2], v.n_consumers = spec[3];
  v.n_stages = spec[4], v.ping_pong = spec[5] != 0, v.q_registers = spec[6] != 0;
  v.lazy_log2 = spec[7], v.section_mb = spec[8];
  return release(load_sm90(cubin, v));
}

// pointers: q, k, v, o, lse, counter. sizes: batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv,
// head_dim, is_causal. strides: batch, row, head of q, k, v, o.
int tegula_attention_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
                            const int64_t* strides, float scale, void* stream) {
  AttentionCall c = attention_call(pointers, sizes, strides, scale, stream);
  c.counter = static_cast<unsigned*>(pointers[5]);
  return report(static_cast<const AttentionKernel*>(kernel)->launch(c));
}

// spec: head_dim, causal, tile_n, consumers, slots, lazy_log2, section_mb.
void* tegula_attention_f32_load(const char* cubin, const int* spec) {
  return release(
      load_f32(cubin, {spec[0], spec[1] != 0, {}, spec[2], spec[3], spec[4], spec[5], spec[6]}));
}
// As tegula_attention_launch; pointers[6] is the workspace, of 6 bytes an element and 256.
int tegula_attention_f32_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
                                const int64_t* strides, float scale, void* stream) {
  AttentionCall c = attention_call(pointers, sizes, strides, scale, stream);
  c.shape.is_f32 = true;
  c.counter = static_cast<unsigned*>(pointers[5]);
  c.workspace = pointers[6];
  return report(static_cast<const AttentionF32Kernel*>(kernel)->launch(c));
}

// spec: head_dim, rows, is_paged, is_f16, warps, blocks, slots, heads.
void* tegula_decode_load(const char* cubin, const int* spec) {
  return release(load_decode(
      cubin, {spec[0], spec[1], spec[2] != 0, spec[3] != 0, spec[4], spec[5], spec[6], spec[7]}));
}

// sizes: batch, seqlen_q, seqlen_k, n_heads_q, n_heads_kv, head_dim, is_causal, window_left,
// page_size (0: dense), is_f16, KV heads of a block.
int64_t tegula_decode_workspace_bytes(const int64_t* sizes, int64_t keys_per_split) {
  return decode_workspace_bytes(decode_shape(sizes), keys_per_split);
}
int64_t tegula_decode_blocks(const int64_t* sizes) { return decode_blocks(decode_shape(sizes)); }
int tegula_decode_heads(const int64_t* sizes) {
  const auto n = hopper_multiprocessors();
  return decode_heads(decode_shape(sizes), n.ok() ? *n : 1);
}
int64_t tegula_decode_split(const int64_t* sizes) {
  const auto n = hopper_multiprocessors();
  return decode_split(decode_shape(sizes), n.ok() ? *n : 1);
}

// pointers: q, k, v, o, lse, seqlens_k, pages, workspace, counters. strides: batch (or page), row,
// head of q, k, v, o.
int tegula_decode_launch(const void* kernel, void* const* pointers, const int64_t* sizes,
                         const int64_t* strides, int64_t keys_per_split, int64_t pages_per_sequence,
                         int is_settled, float scale, void* stream) {
  DecodeCall c;
  c.is_settled = is_settled != 0;
  c.shape = decode_shape(sizes);
  AttentionOperand* operands[] = {&c.q, &c.k, &c.v, &c.o};
  for (int i = 0; i < 4; ++i)
    *operands[i] = {pointers[i], strides[3 * i], strides[3 * i + 1], strides[3 * i + 2]};
  c.lse = static_cast<float*>(pointers[4]);
  c.seqlens_k = static_cast<const int*>(pointers[5]);
  c.pages = static_cast<const int*>(pointers[6]);
  c.workspace = pointers[7];
  c.counters = static_cast<unsigned*>(pointers[8]);
  c.keys_per_split = keys_per_split;
  c.pages_per_sequence = pages_per_sequence;
  c.scale = scale;
  c.stream = stream;
  return report(static_cast<const DecodeKernel*>(kernel)->launch(c));
}

// head_dim 0: attention_naive, which takes any.
void* tegula_rung_load(const char* cubin, int head_dim) {
  return release(load_rung(cubin, head_dim));
}

// As tegula_attention_launch; pointers[5] is the room for scores.
int tegula_rung_launch(const void* rung, void* const* pointers, const int64_t* sizes,
                       const int64_t* strides, float scale, void* stream) {
  return report(static_cast<const AttentionRung*>(rung)->launch(
      attention_call(pointers, sizes, strides, scale, stream), static_cast<float*>(pointers[5])));
}

}  // extern "C"
