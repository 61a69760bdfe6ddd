// Gradients of attention for bf16 or f16 by mma.sync, as on Ampere: what GPUs without wgmma get.
//
//   P = exp(score - lse),  dV = Pᵀ dO,  dS = P ∘ (dO Vᵀ - delta),  delta = Σ_d O ∘ dO
//   dK = scale · dSᵀ Q,  dQ = scale · dS K
// Tensors as of attention_mma.cu; rounding and the kernel before as of attention_bwd_sm90.cu. dK
// and dV have the same bits in every run.
//
// A block of attention_bwd_mma_kv owns kKeys keys, and tiles of kQueries queries pass by, copied
// one ahead (cp.async). Warps work in pairs of the same 16 · kGroups keys: one makes Sᵀ = K Qᵀ and
// from it Pᵀ, and sums dV; the other makes dPᵀ = V dOᵀ, takes Pᵀ from the first by way of shared
// memory, and sums dK. So a warp has registers for the sums of twice the keys, and what it reads of
// Q or dO serves both groups; weights are a product's result and the next one's operand in the same
// registers. dQ either way:
//   added (kAddsDq): dSᵀ is kept in shared memory, and one step later the second warps multiply it
//     with K while the first make weights; added to f32 sums in memory, in no order;
//   in a kernel of its own (attention_bwd_mma_q.cuh): seven products instead of five, for the same
//     bits in every run and no sums in memory. Work on every score and wide heads have it so too.
// Shared reads: 2 · 4 sq sk d / (16 kGroups) elements, of K and V 2 sq sk d / kQueries; for dQ
// added, 2 sq sk d / 16.
//
// Source: FlashAttention-2 (Dao 2023), §3.1 and §3.3.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 96 | 128 | 192 | 256; TEGULA_F16 0 | 1; TEGULA_GROUPS 1 | 2;
// TEGULA_QUERIES, of a tile; TEGULA_ADDS_DQ 0 | 1; masks and score functions: attention_score.cuh.
#include "tegula/kernels/cuda/attention_bwd_mma_q.cuh"

namespace tegula::cuda {

namespace kv {

constexpr int kGroups = TEGULA_GROUPS;  // of 16 keys of a warp
constexpr int kPairs = 4;
constexpr int kOwn = 16 * kGroups;  // keys of a pair
constexpr int kKeys = kPairs * kOwn;
constexpr int kBlockThreads = 64 * kPairs;
constexpr int kQueries = TEGULA_QUERIES;
constexpr int kX = kQueries / 2;  // scores of a thread and group
constexpr int kBlockBytes = kKeys * kTileRowBytes, kPassingBytes = kQueries * kTileRowBytes;
// A user's score has any slope.
constexpr bool kHandsOverF32 = kHasUserScore;
constexpr int kQuads = kX / (kHandsOverF32 ? 4 : 8);  // of a thread and group
using Unit = KeyUnit<kKeys>;
static_assert(!kAddsDq || (kQueries % 16 == 0 && !kIsHeavy));
// dSᵀ lies where its pair's weights lay: both in boxes of kKeys times 128 bytes.
constexpr int kWeightBox = kKeys * kRowBytes, kQuadsOfBox = kOwn / 4;  // of a pair, times 32 lanes
constexpr int kWeightBytes = (kGroups * kQuads + kQuadsOfBox - 1) / kQuadsOfBox * kWeightBox;
constexpr int kWeightSlots = kAddsDq ? 2 : 1;
// Steps of 16 columns at once: of all, addresses take registers that two groups need for sums.
constexpr int kUnrolled = kGroups == 2 ? 4 : 16;

// Two weights as f16, raised: small ones count, since beside a weight near 1 dP is delta, and dS is
// made of the others. (A weight is at most 1 under its own row's lse; here up to 1,023 under any.)
// dSᵀ keeps the factor where its type has room.
constexpr float kRaise = 64.f, kRaised = TEGULA_F16 || kHandsOverF32 ? 1.f : kRaise;
__device__ inline u32 pack_weights(float a, float b) { return pack_f16(a * kRaise, b * kRaise); }
__device__ inline float2 unpack_weights(u32 x) {
  const float2 w = unpack_f16(x);
  return {w.x * (kRaised / kRaise), w.y * (kRaised / kRaise)};
}

struct Shared {
  u32 k, v;    // [kBoxes][kKeys][64]
  u32 q, d_o;  // two of [kBoxes][kQueries][64]
  // [kPairs][kGroups][kQuads][32]: what dS is made of, f16 or f32; if dQ is added, two of them, and
  // then dSᵀ: [boxes of 64 queries][kKeys][64].
  char* weights;
  float* numbers;  // [2][lse2 and delta][kQueries]
  u32* kept;       // [kGroups][32 kPairs]

  __device__ explicit Shared(char* base) {
    k = smem_address(base), v = k + kBlockBytes, q = v + kBlockBytes, d_o = q + 2 * kPassingBytes;
    weights = base + 2 * kBlockBytes + 4 * kPassingBytes;
    numbers = reinterpret_cast<float*>(weights + kWeightSlots * kWeightBytes);
    kept = reinterpret_cast<u32*>(numbers + 4 * kQueries);
  }
};

struct Warp {
  const AttentionBwdParams& p;
  const Unit& t;
  const Shared s;
  u32 lane, pair, role;  // role 0: Sᵀ, Pᵀ and dV; 1: dPᵀ, dSᵀ and dK

  // A step's head and its tile of kQueries, counted from the unit's first query: by a division,
  // since registers are scarcer than instructions.
  struct Place {
    int head, tile;
  };
  __device__ int n_tiles() const {
    return ((t.end_m - t.first_m) * kTile + kQueries - 1) / kQueries;
  }
  __device__ Place place(int step) const {
    return {t.head * p.group + step / n_tiles(), step % n_tiles()};
  }
  __device__ int first_row(int tile) const {
    return t.s.q_begin + t.first_m * kTile + tile * kQueries;
  }
  __device__ u32 slot_bytes(int step) const { return step % 2 * kPassingBytes; }

  __device__ void fetch_block() const {
    const int rows = p.seqlen_k - t.key;
    copy_rows<kKeys, kBlockThreads>(s.k, row_of<u16>(p.k, t.batch, t.key, t.head), p.k.row, rows,
                                    p.head_dim);
    copy_rows<kKeys, kBlockThreads>(s.v, row_of<u16>(p.v, t.batch, t.key, t.head), p.v.row, rows,
                                    p.head_dim);
  }
  __device__ void fetch(int step) const {
    const auto [head, tile] = place(step);
    const int row = first_row(tile), rows = p.seqlen_q - row;
    const u32 slot = slot_bytes(step);
    copy_rows<kQueries, kBlockThreads>(s.q + slot, row_of<u16>(p.q, t.batch, row, head), p.q.row,
                                       rows, p.head_dim);
    copy_rows<kQueries, kBlockThreads>(s.d_o + slot, row_of<u16>(p.d_o, t.batch, row, head),
                                       p.d_o.row, rows, p.head_dim);
    const int chunk = int(threadIdx.x) % (kQueries / 4), which = int(threadIdx.x) / (kQueries / 4);
    if (which < 2) {  // of whole tiles of 64 only
      const int at = tile * kQueries + 4 * chunk, size = (t.end_m - t.first_m) * kTile;
      const float* from = (which == 0 ? p.lse2 : p.delta) + t.dq_tile(p, head, t.first_m) * kTile;
      cp_async(smem_address(s.numbers + (step % 2 * 2 + which) * kQueries + 4 * chunk), from + at,
               at < size ? 16 : 0);
    }
  }

  // Quad j of group g, of those that this lane makes or takes.
  __device__ uint4& weights(int step, int g, int j) const {
    const int quad = g * kQuads + j;
    return reinterpret_cast<uint4*>(s.weights + step % kWeightSlots * kWeightBytes +
                                    quad / kQuadsOfBox * kWeightBox +
                                    pair * kOwn * kRowBytes)[quad % kQuadsOfBox * 32 + lane];
  }

  // From one warp of a pair to the other.
  __device__ void give_weights() const { tell_named(1 + pair, 64); }
  __device__ void await_weights() const { named_sync(1 + pair, 64); }

  // Scores to weights: for dV packed, for the other warp as they are.
  __device__ void weigh(float (&x)[kGroups][kX], u32 (&packed)[kGroups][kX / 2], int step,
                        const Range& whole) const {
    const auto [head, tile] = place(step);
    const AttentionScore score = scores_of(p, t.s, t.batch, head);
    const int first = first_row(tile), row = first + 2 * int(lane % 4);
    const EightFrom lse2{s.numbers + step % 2 * 2 * kQueries + 2 * (lane % 4)};
    const bool sees_all = first >= whole.lo && first + kQueries <= whole.hi;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int key = t.key + int(pair * kOwn + 16 * g + lane / 4);
      const SeenKeys seen(score, key);
      u32 kept;
      if (sees_all)
        weigh_transposed<false>(x[g], PackInto{packed[g]}, kept, score, seen, lse2, row, key,
                                p.scale_log2);
      else
        weigh_transposed<true>(x[g], PackInto{packed[g]}, kept, score, seen, lse2, row, key,
                               p.scale_log2);
      if constexpr (kHasDropout) s.kept[g * 32 * kPairs + pair * 32 + lane] = kept;
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        uint4& to = weights(step, g, j);
        if constexpr (kHandsOverF32) {
          const float* w = x[g] + 4 * j;
          to = make_uint4(__float_as_uint(w[0]), __float_as_uint(w[1]), __float_as_uint(w[2]),
                          __float_as_uint(w[3]));
        } else {
          const float* w = x[g] + 8 * j;
          to = make_uint4(pack_weights(w[0], w[1]), pack_weights(w[2], w[3]),
                          pack_weights(w[4], w[5]), pack_weights(w[6], w[7]));
        }
      }
    }
  }

  // dPᵀ to dSᵀ.
  __device__ void differ(float (&x)[kGroups][kX], u32 (&packed)[kGroups][kX / 2], int step) const {
    const float* delta = s.numbers + (step % 2 * 2 + 1) * kQueries + 2 * (lane % 4);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      u32 kept = ~0u;
      if constexpr (kHasDropout) kept = s.kept[g * 32 * kPairs + pair * 32 + lane];
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        const uint4 quad = weights(step, g, j);
        const u32 w[] = {quad.x, quad.y, quad.z, quad.w};
        constexpr int kOfQuad = kHandsOverF32 ? 4 : 8;
#pragma unroll
        for (int n = 0; n < kOfQuad; n += 2) {
          const int e = kOfQuad * j + n;
          const float2 d = *reinterpret_cast<const float2*>(delta + e / 4 * 8);
          float2 weight;
          if constexpr (kHandsOverF32)
            weight = {__uint_as_float(w[n]), __uint_as_float(w[n + 1])};
          else
            weight = unpack_weights(w[n / 2]);
          packed[g][e / 2] =
              pack_element(d_score(weight.x, x[g][e], d.x, kept, e, p.f.keep_factor),
                           d_score(weight.y, x[g][e + 1], d.y, kept, e + 1, p.f.keep_factor));
        }
      }
    }
  }

  // dSᵀ in place of the weights that it is made of.
  __device__ void store(const u32 (&packed)[kGroups][kX / 2], int step) const {
    __syncwarp();
    const u32 to = smem_address(s.weights + step % 2 * kWeightBytes) +
                   (pair * kOwn + lane / 4) * kRowBytes + 4 * (lane % 4);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kX / 2; ++i)
        store_shared(to + i / 16 * kWeightBox + (16 * g + i % 2 * 8) * kRowBytes +
                         ((i / 2 % 8 ^ (lane / 4)) << 4),
                     packed[g][i]);
  }

  // dQ of a step's queries, of this block's keys: by one warp of each pair, 16 queries at a time.
  __device__ void add_dq(int step) const {
    const auto [head, tile] = place(step);
    const int end = (t.end_m - t.first_m) * kTile / 16;
    float* to = p.dq_sum + t.dq_tile(p, head, t.first_m) * (kTile * kD) + 4 * lane;
#pragma unroll 1
    for (int n = int(pair); n < kQueries / 16; n += kPairs) {
      const int group = tile * (kQueries / 16) + n;
      if (group >= end) break;
      const u32 ds = smem_address(s.weights + step % 2 * kWeightBytes) + lane_of_columns(lane);
      const u32 k = s.k + lane_of_rows(lane);
      float dq[kD / 2];
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) dq[i] = 0.f;
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        u32 a[4];
        ldmatrix_transposed(columns_on<kKeys>(ds, n) + j * 16 * kRowBytes, a);
#pragma unroll
        for (int d = 0; d < kRowSteps; ++d) {
          u32 b[4];
          ldmatrix_transposed(columns_on<kKeys>(k, d) + j * 16 * kRowBytes, b);
          mma_16x16(dq + 8 * d, a, b);
        }
      }
#pragma unroll
      for (int i = 0; i < kD / 8; ++i)
        global_add(to + (group * (kD / 8) + i) * 4 * 32, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2],
                   dq[4 * i + 3]);
    }
  }

  __device__ void run() const {
    const int n_steps = n_tiles() * p.group;
    float sum[kGroups][kD / 2];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) sum[g][i] = 0.f;
    if (n_steps > 0) {
      fetch_block();
      fetch(0);
      cp_async_commit();
      const u32 first_of = role == 0 ? s.q : s.d_o, then_of = role == 0 ? s.d_o : s.q;
      const u32 rows = (role == 0 ? s.k : s.v) + pair * kOwn * kRowBytes;
      const Range whole = t.seen_by(p, t.key + int(pair) * kOwn / kTile * kTile);
      for (int step = 0; step < n_steps; ++step) {
        cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < n_steps) fetch(step + 1);
        cp_async_commit();
        // What the tensor cores are given while the other warp makes weights.
        if (kAddsDq && role == 1 && step > 0) add_dq(step - 1);
        const u32 slot = slot_bytes(step);
        float x[kGroups][kX];
        u32 packed[kGroups][kX / 2];
        make_scores<kKeys, kUnrolled>(x, rows, first_of + slot, lane);
        if (role == 0) {
          weigh(x, packed, step, whole);
          give_weights();
        } else {
          await_weights();
          differ(x, packed, step);
          if constexpr (kAddsDq) store(packed, step);
        }
        add_weighted<kQueries>(sum, packed, then_of + slot, lane);
      }
      if constexpr (kAddsDq) {
        __syncthreads();
        if (role == 1) add_dq(n_steps - 1);
      }
    }
    // Field by field: chosen by address, all parameters would be copied to local memory.
    const AttentionTensor to{role == 0 ? p.dv.data : p.dk.data, role == 0 ? p.dv.batch : p.dk.batch,
                             role == 0 ? p.dv.row : p.dk.row, role == 0 ? p.dv.head : p.dk.head};
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      write_sums(p, sum[g], role == 0 ? 1.f : p.scale / kRaised, to,
                 t.key + int(pair * kOwn) + 16 * g, t.s.k_end, t.head, t.batch);
  }
};

}  // namespace kv

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Grid n_units_k · b · hk.
extern "C" __global__ void __launch_bounds__(kv::kBlockThreads, 1)
    attention_bwd_mma_kv(const AttentionBwdParams p) {
  extern __shared__ __align__(1024) char smem[];
  // In shared memory, since registers are scarce.
  __shared__ __align__(alignof(kv::Unit)) char unit[sizeof(kv::Unit)];
  kv::Unit& t = *reinterpret_cast<kv::Unit*>(unit);
  if (threadIdx.x == 0) t = kv::Unit(p, int(blockIdx.x));
  __syncthreads();
  const u32 warp = uniform(threadIdx.x / 32);
  kv::Warp{p, t, kv::Shared(smem), threadIdx.x % 32, warp % kv::kPairs, warp / kv::kPairs}.run();
}

#if TEGULA_ADDS_DQ
// Grid (n_tiles_m, b · hq) of 256 threads, those that added.
extern "C" __global__ void attention_bwd_mma_after(const AttentionBwdParams p) {
  const int batch = blockIdx.y / p.n_heads_q, head = blockIdx.y % p.n_heads_q;
  const Range rows = rows_of_slot(p, blockIdx.x);
  const long long tile = static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float4* from = reinterpret_cast<const float4*>(p.dq_sum + tile * (kTile * kD)) +
                       (warp % 4 * (kD / 8) + warp / 4 * (kD / 16)) * 32 + lane;
  float sum[kD / 4];
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const float4 x = from[32 * i];
    sum[4 * i] = x.x, sum[4 * i + 1] = x.y, sum[4 * i + 2] = x.z, sum[4 * i + 3] = x.w;
  }
  write_sums(p, sum, p.scale / kv::kRaised, p.dq, rows.lo + 16 * (warp % 4), rows.hi, head, batch,
             warp / 4 * (kD / 2));
}
#endif
