// y… = body(a b, x…): a product whose finished tiles go through a body of elementwise instructions.
// dot_fused_text.cpp writes the body's text, which includes this file behind
//   struct tile::Epilogue      the body's operands
//   struct tile::Factors       what it reads of them for kPieceColumns neighbours: a piece
//   tile::load(e, row, column, n), tile::prefetch(…)
//                              brings them to registers, to the L2
//   tile::epilogue(e, factors, product, row, column, n)
//                              the body on a piece, of which `product` has the rounded sums
// Operands as matmul_sm90's, n a multiple of 8.
//
// A finished tile is rounded at once, which frees its sums. While the tensor cores make the next
// one, each warp takes its 16 rows of it through the body, some pieces after each slab, 8 columns a
// thread. What the body reads and writes are whole lines of memory; it never waits for what it
// asks for. Of 256 columns the second half stays in registers until the first has left shared
// memory, so that there is room for four slabs.
#include "tegula/kernels/cuda/matmul_sm90.cuh"

namespace tegula::cuda {

constexpr u32 kPieces = 4 * kBoxes;  // of a warp's part of a tile: 4 rows of a box

struct Consumer : Multiplier {
  const tile::Epilogue& e;
  int next_row = 0, next_column = -1;  // where the tile that is made begins
  u32 rounded[kTileN / 4];             // of the tile before, while they wait for their box
  tile::Factors next;                  // of the piece that is due

  __device__ Consumer(const MatmulSm90Params& p, const Shared& s, const tile::Epilogue& e)
      : Multiplier(p, s), e(e) {}

  // Where a box of the tile waits, kOutBoxes of them at a time.
  __device__ char* box(u32 i) const { return s.out + (wg * kOutBoxes + i % kOutBoxes) * kBoxBytes; }
  // A thread's row and column of a piece.
  __device__ int row_of(u32 piece) const { return int(16 * warp + piece % 4 * 4 + lane / 8); }
  __device__ int column_of(u32 piece) const { return int(piece / 4 * 64 + lane % 8 * 8); }

  // The lines of what the body reads for a box of the next tile: 32 columns of a row a lane.
  __device__ void prefetch(u32 box) const {
    const int r = next_row + int(16 * warp + lane % 16);
    const int c = next_column + int(64 * box + lane / 16 * 32);
    if (next_column >= 0 && r < p.m && c < p.n) tile::prefetch(e, r, c, p.n);
  }

  // The body on a piece of the tile before. Its factors were asked for a piece ago; now those of
  // the next piece are.
  __device__ void finish(u32 piece) {
    if (kBoxes > kOutBoxes && piece == 4 * kOutBoxes) keep(kBoxes - kOutBoxes);
    const tile::Factors factors = next;
    const u32 ahead = (piece + 1) % kPieces;
    const int r_ahead = (ahead == 0 ? next_row : row) + row_of(ahead);
    const int first = ahead == 0 ? next_column : column, c_ahead = first + column_of(ahead);
    if (first >= 0 && r_ahead < p.m && c_ahead < p.n) next = tile::load(e, r_ahead, c_ahead, p.n);
    if (piece % 4 == 0) prefetch(piece / 4);
    const int r = row_of(piece), c = column + column_of(piece);
    if (column >= 0 && row + r < p.m && c < p.n)
      tile::epilogue(e, factors, box(piece / 4) + swizzled(r, lane % 8), row + r, c, p.n);
  }

  // Rounded sums, where finish() finds them: kOutBoxes boxes from `first` on.
  __device__ void keep(int first) const {
    if (column < 0) return;
    __syncwarp();  // of the boxes before nothing is read any more
#pragma unroll
    for (int i = 0; i < 4 * kOutBoxes; ++i) {
      const u32* x = rounded + 16 * first + 4 * i;
      stmatrix(
          smem_address(box(i / 4)) + swizzled(16 * warp + (lane & 15), 2 * (i % 4) + (lane >> 4)),
          x[0], x[1], x[2], x[3]);
    }
    __syncwarp();
  }

  __device__ void run() {
    const int n_tiles = p.order.tiles_m * p.order.tiles_n;
    for (int index = blockIdx.x; index < n_tiles; index += gridDim.x) {
      const TilePlace at = tile_place(p.order, index);
      next_row = at.m * kTileM + int(wg) * kRows, next_column = at.n * kTileN;
      u32 piece = 0;
      int due = 0;  // due / n_steps pieces by now
      const auto pieces = [&] {
        due += int(kPieces);
#pragma unroll 1
        for (; due >= p.n_steps; due -= p.n_steps) finish(piece++);
      };
      const auto first = [&] { keep(0); };
      const auto none = [] {};
      step(true, first, pieces);
      for (int i = 1; i < p.n_steps; ++i) step(false, none, pieces);
      end_tile(index, n_tiles);
#pragma unroll
      for (int i = 0; i < kTileN / 4; ++i) rounded[i] = pack_element(d[2 * i], d[2 * i + 1]);
      row = next_row, column = next_column;
    }
    next_column = -1;
    keep(0);
#pragma unroll 1
    for (u32 k = 0; k < kPieces; ++k) finish(k);
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// At most one block per multiprocessor, of kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    matmul_fused_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                      const __grid_constant__ MatmulSm90Params p,
                      const __grid_constant__ tile::Epilogue e) {
  extern __shared__ char smem[];
  const Shared s(smem);
  if (threadIdx.x == 0) {
    prefetch_map(&a), prefetch_map(&b);
    s.open();
  }
  __syncthreads();
  begin_early();

  const u32 warp = uniform(threadIdx.x / 32);
  if (warp < 4) {
    give_registers<kProducerRegisters>();
    if (warp == 0 && elect_one()) produce(p, s, &a, &b);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer(p, s, e).run();
  }
}
