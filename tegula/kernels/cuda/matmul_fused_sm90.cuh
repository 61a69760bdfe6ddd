// y… = body(a b, x…): a product whose finished tiles go through a body of elementwise instructions.
// dot_fused_text.cpp writes the body's text, which includes this file behind
//   struct tile::Epilogue                the body's operands
//   tile::epilogue(e, product, row, column, n)
//                                        the body at kPieceColumns neighbours, of which `product`
//                                        has the rounded sums
// Operands as matmul_sm90's, n a multiple of 8.
//
// A finished tile goes to shared memory whole, rounded; while the tensor cores make the next one,
// each warp takes its 16 rows of it through the body, some pieces after each slab, 8 columns a
// thread. What the body reads and writes are whole lines of memory.
#include "tegula/kernels/cuda/matmul_sm90.cuh"

namespace tegula::cuda {

using Shared = SharedOf<kBoxes>;
constexpr int kPieces = 4 * kBoxes;  // of a warp's part of a tile: 4 rows of a box

struct Consumer : Multiplier<Shared> {
  const tile::Epilogue& e;

  __device__ Consumer(const MatmulSm90Params& p, const Shared& s, const tile::Epilogue& e)
      : Multiplier<Shared>(p, s), e(e) {}

  __device__ char* box(int i) const { return s.out + (wg * kBoxes + i) * kBoxBytes; }

  // The body on piece i of the tile before.
  __device__ void finish(int i) const {
    const int r = 16 * warp + i % 4 * 4 + lane / 8, chunk = lane % 8;
    const int first = column + 64 * (i / 4) + 8 * chunk;
    if (column < 0 || row + r >= p.m || first >= p.n) return;
    tile::epilogue(e, box(i / 4) + swizzled(r, chunk), row + r, first, p.n);
  }

  // The sums, rounded, where finish() finds them.
  __device__ void keep() const {
    __syncwarp();  // of the tile before nothing is read any more
#pragma unroll
    for (int i = 0; i < kTileN / 16; ++i) {
      u32 x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = pack_element(d[8 * i + 2 * k], d[8 * i + 2 * k + 1]);
      stmatrix(
          smem_address(box(i / 4)) + swizzled(16 * warp + (lane & 15), 2 * (i % 4) + (lane >> 4)),
          x[0], x[1], x[2], x[3]);
    }
    __syncwarp();
  }

  __device__ void run() {
    // Pieces that are due after so many of a tile's steps.
    const auto due = [&](int steps) { return (steps * kPieces + p.n_steps - 1) / p.n_steps; };
    const int n_tiles = p.order.tiles_m * p.order.tiles_n;
    for (int index = blockIdx.x; index < n_tiles; index += gridDim.x) {
      for (int i = 0; i < p.n_steps; ++i)
        step(i == 0, [&] {
#pragma unroll 1
          for (int k = due(i); k < due(i + 1); ++k) finish(k);
        });
      const TilePlace at = end_tile(index, n_tiles);
      row = at.m * kTileM + int(wg) * kRows, column = at.n * kTileN;
      keep();
    }
#pragma unroll 1
    for (int k = 0; k < kPieces; ++k) finish(k);
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

  if (uniform(threadIdx.x / 32) < 4) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce(p, s, &a, &b);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer(p, s, e).run();
  }
}
