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
// registers. Of wide heads (kShares 2) two pairs share their keys: each makes the scores of half of
// a tile's queries, sums half of the columns, and takes the other's weights through shared memory:
// so two groups have room there, too. dQ either way:
//   summed in memory (kSumsDq): dSᵀ is kept in shared memory, and one step later the second warps
//     multiply it with K while the first make weights; added in no order, or (kOrdered) in that of
//     the keys, for the same bits in every run: attention_bwd_order.cuh, but warps mind their turns
//     themselves, each its own;
//   in a kernel of its own (attention_bwd_mma_q.cuh): seven products instead of five, but registers
//     for work on every score.
// Shared reads: 2 · 2 sq sk d / (16 kGroups) elements of Q and dO and, with one share, as many of
// them again for dK and dV, with two half as many; of K and V 2 sq sk d kShares / kQueries; for dQ
// summed here 2 sq sk d / 16, with two shares 1.5.
//
// Source: FlashAttention-2 (Dao 2023), §3.1 and §3.3.
//
// Variant, by -D: TEGULA_HEAD_DIM 64 | 96 | 128 | 192 | 256; TEGULA_F16 0 | 1; TEGULA_GROUPS 1 | 2;
// TEGULA_PAIRS; TEGULA_SHARES 1 | 2; TEGULA_QUERIES, of a tile; TEGULA_ADDS_DQ 0 | 1 (summed in
// memory); TEGULA_ORDERED 0 | 1; TEGULA_KEYS, of a tile of attention_bwd_mma_q; masks and score
// functions: attention_score.cuh.
#include "tegula/kernels/cuda/attention_bwd_mma_q.cuh"

namespace tegula::cuda {

namespace kv {

constexpr int kGroups = TEGULA_GROUPS;  // of 16 keys of a warp
constexpr int kPairs = TEGULA_PAIRS;
constexpr int kShares = TEGULA_SHARES;  // of a row's columns, and of a tile's queries
constexpr int kOwn = 16 * kGroups;      // keys of a pair
constexpr int kKeys = kPairs / kShares * kOwn;
constexpr int kBlockThreads = 64 * kPairs;
constexpr int kQueries = TEGULA_QUERIES;
constexpr int kShareQueries = kQueries / kShares;
constexpr int kX = kShareQueries / 2;  // scores of a thread and group
constexpr int kSum = kD / kShares / 2;
constexpr int kBlockBytes = kKeys * kTileRowBytes, kPassingBytes = kQueries * kTileRowBytes;
// A user's score has any slope; and dS, which is rounded to f16 itself, of weights that were would
// have twice the error.
constexpr bool kHandsOverF32 = kHasUserScore || TEGULA_F16;
constexpr int kQuads = kX / (kHandsOverF32 ? 4 : 8);  // of a thread and group
constexpr int kAllQuads = kGroups * kQuads;
using Unit = KeyUnit<kKeys>;
static_assert(!kSumsDq || !kIsHeavy);
static_assert(kShareQueries % 16 == 0 &&
              (kShares == 1 || kMiddleSteps<kShares> * kShares % 4 == 0));
// dSᵀ [boxes of 64 queries][kKeys][64] lies where its pair's weights lay, or with two shares, of
// which one would overwrite the other's weights, beside them.
constexpr bool kKeepsDs = kSumsDq || kShares > 1;
constexpr int kDsBox = kKeys * kRowBytes, kDsBytes = (kQueries + 63) / 64 * kDsBox;
constexpr int kSlots = kSumsDq ? 2 : 1;  // of dSᵀ
// Weights in f32 take twice the room: half of them borrow that of the last step's dSᵀ, once dQ is
// made of it.
constexpr bool kBorrows = kHandsOverF32 && kSumsDq && (kShares > 1 || kQueries > 32);
constexpr int kOwnQuads = kBorrows ? kAllQuads / 2 : kAllQuads;
// The quads of a pair, times 32 lanes.
constexpr int kQuadsOfBox = kShares == 1 ? kOwn / 4 : kOwnQuads;
constexpr int kPairBytes = kQuadsOfBox * 32 * 16, kWeightBox = kPairs * kPairBytes;
constexpr int kWeightBytes = (kOwnQuads + kQuadsOfBox - 1) / kQuadsOfBox * kWeightBox;
constexpr int kWeightSlots = kShares == 1 ? kSlots : 1;
constexpr int kDsAt = kShares == 1 ? 0 : kWeightBytes;  // behind the weights
// Pᵀ for dV of the pair with the other share.
constexpr int kOthersQuads = kGroups * kX / 8, kOthersAt = kDsAt + kSlots * kDsBytes;
constexpr int kHandedBytes =
    kShares == 1 ? kSlots * kWeightBytes : kOthersAt + kPairs * kOthersQuads * 32 * 16;
// Steps of 16 columns at once: of all, addresses take registers that two groups need for sums.
constexpr int kUnrolled = kGroups == 2 ? (kBorrows && kD == 64 ? 2 : 4) : 16;
// The part that a warp adds to dQ at once: all columns of 16 queries, or its part of those of 32.
constexpr int kDqGroups = kShares, kDqSteps = kShares == 1 ? kRowSteps : kRowSteps / kPairs;
constexpr int kDqNext = kShares == 1 ? kPairs : kDqGroups;  // from one such to a warp's next
// Where registers lack: what queries all keys of a pair see waits in shared memory.
constexpr bool kKeepsWhole = kBorrows && kD == 64 && !kOrdered;
// Named barriers: one a pair, for weights for the other share one a pair and role, and this.
constexpr u32 kLent = 1 + kPairs * kShares;
// Which warps of the pairs mind the order.
constexpr bool kSecondMind = kOrdered && kD == 64, kFirstMind = kOrdered && !kSecondMind;
static_assert(!kBorrows || kWeightBytes <= kDsBytes);

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
  // then dSᵀ; with two shares [kPairs][kOthersQuads][32] besides.
  char* weights;
  float* numbers;  // [2][lse2 and delta][kQueries]
  u32* kept;       // [kGroups][32 kPairs]

  __device__ explicit Shared(char* base) {
    k = smem_address(base), v = k + kBlockBytes, q = v + kBlockBytes, d_o = q + 2 * kPassingBytes;
    weights = base + 2 * kBlockBytes + 4 * kPassingBytes;
    numbers = reinterpret_cast<float*>(weights + kHandedBytes);
    kept = reinterpret_cast<u32*>(numbers + 4 * kQueries);
  }
};

// A block's unit, and its place in the order of those that add to the same dQ.
struct Block : Unit {
  bool rises;
  Range whole[kKeepsWhole ? kKeys / kTile : 1];
  DqNeighbours near;
  __device__ Block(const AttentionBwdParams& p, const UnitPlace& at)
      : Unit(p, at), rises(at.rises) {
    if constexpr (kOrdered) near = DqNeighbours(p, *this, rises);
    if constexpr (kKeepsWhole)
      for (int i = 0; i < kKeys / kTile; ++i) whole[i] = seen_by(p, key + i * kTile);
  }
};

struct Warp {
  const AttentionBwdParams& p;
  const Block& t;
  const Shared s;
  u32 lane, pair, role;  // role 0: Sᵀ, Pᵀ and dV; 1: dPᵀ, dSᵀ and dK

  __device__ int share() const { return kShares == 1 ? 0 : int(pair % kShares); }
  __device__ u32 first_key() const { return pair / kShares * kOwn; }  // of the block's
  __device__ u32 share_bytes(int of) const { return u32(of * kShareQueries * kRowBytes); }

  // A step's head and its tile of kQueries, counted from the unit's first query: by a division,
  // since registers are scarcer than instructions.
  struct Place {
    int head, tile;
  };
  __device__ int n_tiles() const {
    return ((t.end_m - t.first_m) * kTile + kQueries - 1) / kQueries;
  }
  __device__ Place place(int step) const {
    const int tile = step % n_tiles();
    return {t.head * p.group + step / n_tiles(),
            kOrdered && !t.rises ? n_tiles() - 1 - tile : tile};
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
    const int quad = (g * kQuads + j) % kOwnQuads;
    const bool is_own = g * kQuads + j < kOwnQuads;
    int at = is_own ? step % kWeightSlots * kWeightBytes : kDsAt + (step + 1) % kSlots * kDsBytes;
    if (!is_own) at = int(renewed(u32(at)));  // kept from being known, and held, before
    return reinterpret_cast<uint4*>(s.weights + at + quad / kQuadsOfBox * kWeightBox +
                                    pair * kPairBytes)[quad % kQuadsOfBox * 32 + lane];
  }
  // The second warps of all pairs have made dQ of the last step.
  __device__ void lend() const { tell_named(kLent, kBlockThreads); }
  __device__ void borrow() const { named_sync(kLent, kBlockThreads); }

  // From one warp of a pair to the other.
  __device__ void give_weights() const { tell_named(1 + pair, 64); }
  __device__ void await_weights() const { named_sync(1 + pair, 64); }

  // Pᵀ for the pair of the same keys and the other share of queries.
  __device__ uint4* others(u32 of_pair) const {
    return reinterpret_cast<uint4*>(s.weights + kOthersAt) + of_pair * kOthersQuads * 32 + lane;
  }
  __device__ void give_others(const u32 (&packed)[kGroups][kX / 2]) const {
    uint4* to = others(pair);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int j = 0; j < kX / 8; ++j) {
        const u32* x = packed[g] + 4 * j;
        to[(g * (kX / 8) + j) * 32] = make_uint4(x[0], x[1], x[2], x[3]);
      }
  }
  // The other pair's Pᵀ, or its dSᵀ.
  __device__ void take_others(u32 (&packed)[kGroups][kX / 2], int step) const {
    named_sync(1 + kPairs + role * (kPairs / 2) + pair / 2, 64);
    const uint4* from = others(pair ^ 1);
    const u32 ds = d_scores(step) + first_key() * kRowBytes + lane_of_rows(renewed(lane));
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int j = 0; j < kX / 8; ++j) {
        u32* x = packed[g] + 4 * j;
        if (role == 0) {
          const uint4 quad = from[(g * (kX / 8) + j) * 32];
          x[0] = quad.x, x[1] = quad.y, x[2] = quad.z, x[3] = quad.w;
        } else {
          const int column = (1 - share()) * (kShareQueries / 16) + j;
          ldmatrix(columns_on<kKeys>(ds, column) + g * 16 * kRowBytes, x);
        }
      }
  }

  // Scores to weights: for dV packed, for the other warp as they are.
  __device__ void weigh(float (&x)[kGroups][kX], u32 (&packed)[kGroups][kX / 2], int step,
                        const Range& whole) const {
    const auto [head, tile] = place(step);
    const AttentionScore score = scores_of(p, t.s, t.batch, head);
    const int of_share = share() * kShareQueries, column = 2 * int(lane % 4);
    const int first = first_row(tile) + of_share, row = first + column;
    const EightFrom lse2{s.numbers + step % 2 * 2 * kQueries + of_share + column};
    const bool sees_all = first >= whole.lo && first + kShareQueries <= whole.hi;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int key = t.key + int(first_key() + 16 * g + lane / 4);
      const SeenKeys seen(score, key);
      const u32 kept = kept_transposed<kX>(score, row, key);
      count_transposed<kX, kSumsDq>(p, score, row, key);
      if (sees_all)
        weigh_transposed<false>(x[g], PackInto{packed[g]}, kept, score, seen, lse2, row, key,
                                p.scale_log2);
      else
        weigh_transposed<true>(x[g], PackInto{packed[g]}, kept, score, seen, lse2, row, key,
                               p.scale_log2);
      if constexpr (kHasDropout) s.kept[g * 32 * kPairs + pair * 32 + lane] = kept;
#pragma unroll
      for (int j = 0; j < kQuads; ++j) {
        if (kBorrows && g * kQuads + j == kOwnQuads) borrow();
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
    const float* delta =
        s.numbers + (step % 2 * 2 + 1) * kQueries + share() * kShareQueries + 2 * (lane % 4);
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

  // dSᵀ of a step, beside the weights that it is made of or in their place.
  __device__ u32 d_scores(int step) const {
    return smem_address(s.weights + kDsAt + step % kSlots * kDsBytes);
  }
  __device__ void store(const u32 (&packed)[kGroups][kX / 2], int step) const {
    __syncwarp();
    const u32 to = d_scores(step) + (first_key() + lane / 4) * kRowBytes + 4 * (lane % 4);
    const int chunk = share() * (kShareQueries / 8);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kX / 2; ++i)
        store_shared(to + i / 16 * kDsBox + (16 * g + i % 2 * 8) * kRowBytes +
                         (((chunk + i / 2) % 8 ^ (lane / 4)) << 4),
                     packed[g][i]);
  }

  // In order, what a warp adds to at once has a counter, to which all units that add there come in
  // turn, each told by the one before. The first warps of the pairs mind it for the second, which
  // have more to do: they wait in a step for what is added in the next, and pass on what was added
  // in the last. With 64 columns, where exponentials take most of a step, the second do.
  __device__ u32* turn_of(int head, int group) const {
    const int place = kShares == 1 ? group % 4 : group % 4 / kDqGroups * kPairs + int(pair);
    return p.order + t.dq_tile(p, head, t.first_m + group / 4) * p.orders_of_tile + place;
  }
  template <class Of>
  __device__ void each_turn(int step, Of of) const {
    const auto [head, tile] = place(step);
    const int n = (kShares == 1 ? int(pair) : 0) + int(lane) * kDqNext;
    const int group = tile * (kQueries / 16) + n;
    if (n < kQueries / 16 && group < (t.end_m - t.first_m) * kTile / 16)
      of(turn_of(head, group), group / 4);
  }
  __device__ void await_turns(int step) const {
    each_turn(step, [&](u32* at, int m) {
      if ((t.rises ? m : t.end_m - t.first_m - 1 - m) < t.near.n_begun) return;
      while (load_acquire(at) != u32(t.near.before) + 1) {
      }
    });
    __syncwarp();
  }
  __device__ void pass_turns(int step) const {
    __syncwarp();
    each_turn(step, [&](u32* at, int) { store_release(at, u32(t.unit) + 1); });
  }

  // dQ of a step's queries, of this block's keys: by one warp of each pair.
  __device__ void add_dq(int step) const {
    const auto [head, tile] = place(step);
    const int end = (t.end_m - t.first_m) * kTile / 16;
    const int first = kShares == 1 ? 0 : int(pair) * kDqSteps;
    float* to = p.dq_sum + t.dq_tile(p, head, t.first_m) * (kTile * kD) + 4 * lane;
#pragma unroll 1
    for (int n = kShares == 1 ? int(pair) : 0; n < kQueries / 16; n += kDqNext) {
      const int group = tile * (kQueries / 16) + n;
      if (group >= end) break;
      const u32 ds = d_scores(step) + lane_of_columns(lane), k = s.k + lane_of_rows(lane);
      float dq[kDqGroups][8 * kDqSteps];
#pragma unroll
      for (int i = 0; i < kDqGroups; ++i)
#pragma unroll
        for (int j = 0; j < 8 * kDqSteps; ++j) dq[i][j] = 0.f;
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        u32 a[kDqGroups][4];
#pragma unroll
        for (int i = 0; i < kDqGroups; ++i)
          ldmatrix_transposed(columns_on<kKeys>(ds, n + i) + j * 16 * kRowBytes, a[i]);
#pragma unroll
        for (int d = 0; d < kDqSteps; ++d) {
          u32 b[4];
          ldmatrix_transposed(columns_on<kKeys>(k, first + d) + j * 16 * kRowBytes, b);
#pragma unroll
          for (int i = 0; i < kDqGroups; ++i) mma_16x16(dq[i] + 8 * d, a[i], b);
        }
      }
#pragma unroll
      for (int i = 0; i < kDqGroups; ++i)
#pragma unroll
        for (int j = 0; j < 2 * kDqSteps; ++j) {
          const float* x = dq[i] + 4 * j;
          global_add(to + ((group + i) * (kD / 8) + 2 * first + j) * 4 * 32, x[0], x[1], x[2],
                     x[3]);
        }
    }
  }

  // A share's sums: its part of the middle box of columns, and what follows.
  __device__ void write(const float (&sum)[kSum], float factor, const AttentionTensor& to,
                        int row) const {
    constexpr int kMiddle = kShares == 1 ? 0 : 8 * kMiddleSteps<kShares>;
    if constexpr (kMiddle > 0)
      write_sums<kMiddle>(p, sum, factor, to, row, t.s.k_end, t.head, t.batch,
                          column_of_share<kShares>(share(), 0));
    write_sums<kSum - kMiddle>(p, sum + kMiddle, factor, to, row, t.s.k_end, t.head, t.batch,
                               column_of_share<kShares>(share(), kMiddle / 8));
  }

  __device__ void run() const {
    const int n_steps = n_tiles() * p.group;
    float sum[kGroups][kSum];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kSum; ++i) sum[g][i] = 0.f;
    if (n_steps > 0) {
      fetch_block();
      fetch(0);
      cp_async_commit();
      const u32 first_of = role == 0 ? s.q : s.d_o, then_of = role == 0 ? s.d_o : s.q;
      const u32 rows = (role == 0 ? s.k : s.v) + first_key() * kRowBytes;
      Range whole{0, 0};
      if (!kKeepsWhole) whole = t.seen_by(p, t.key + int(first_key()) / kTile * kTile);
      for (int step = 0; step < n_steps; ++step) {
        cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < n_steps) fetch(step + 1);
        cp_async_commit();
        // The tensor cores' work while the other warp makes weights.
        if (kSumsDq && role == 1 && step > 0) add_dq(step - 1);
        if (kBorrows && role == 1) lend();
        const u32 slot = slot_bytes(step);
        float x[kGroups][kX];
        u32 packed[kGroups][kX / 2];
        make_scores<kKeys, kQueries, kUnrolled>(x, rows, first_of + slot + share_bytes(share()),
                                                renewed(lane));
        if (role == 0) {
          weigh(x, packed, step, kKeepsWhole ? t.whole[first_key() / kTile] : whole);
          give_weights();
          if (kFirstMind && step > 1) pass_turns(step - 2);
          if constexpr (kShares > 1) give_others(packed);
        } else {
          if (kSecondMind && step > 0) pass_turns(step - 1);
          if (kSecondMind) await_turns(step);
          await_weights();
          differ(x, packed, step);
          if constexpr (kKeepsDs) store(packed, step);
        }
        const auto of_group = [&](int g) { return sum[g]; };
        const u32 then = then_of + slot;
        add_weighted<kQueries, kShares>(of_group, packed, then + share_bytes(share()),
                                        renewed(lane), share());
        if constexpr (kShares > 1) {
          take_others(packed, step);
          add_weighted<kQueries, kShares>(of_group, packed, then + share_bytes(1 - share()),
                                          renewed(lane), share());
        }
        if (kFirstMind && role == 0) await_turns(step);
      }
      if constexpr (kSumsDq) {
        __syncthreads();
        if (role == 1) add_dq(n_steps - 1);
      }
      if (kSecondMind && role == 1) pass_turns(n_steps - 1);
      if constexpr (kFirstMind) {
        if (role == 0 && n_steps > 1) pass_turns(n_steps - 2);
        __syncthreads();
        if (role == 0) pass_turns(n_steps - 1);
      }
    }
    // Field by field: chosen by address, all parameters would be copied to local memory.
    const AttentionTensor to{role == 0 ? p.dv.data : p.dk.data, role == 0 ? p.dv.batch : p.dk.batch,
                             role == 0 ? p.dv.row : p.dk.row, role == 0 ? p.dv.head : p.dk.head};
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      write(sum[g], role == 0 ? 1.f : p.scale / kRaised, to, t.key + int(first_key()) + 16 * g);
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
  __shared__ __align__(alignof(kv::Block)) char block[sizeof(kv::Block)];
  kv::Block& t = *reinterpret_cast<kv::Block*>(block);
  if (threadIdx.x == 0)
    t = kv::Block(p, UnitPlace(p, kOrdered ? int(atomicAdd(p.ticket, 1)) : int(blockIdx.x)));
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
  write_sums<kD / 4>(p, sum, p.scale / kv::kRaised, p.dq, rows.lo + 16 * (warp % 4), rows.hi, head,
                     batch, warp / 4 * (kD / 2));
}
#endif
