#include "tegula/kernels/cuda/matmul.h"

#include <climits>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/matmul_params.h"

namespace tegula::cuda {

namespace {

constexpr int kTileM = 128, kTileK = 64, kRow_bytes = 128;
constexpr int kConsumers = 2, kThreads = 128 * (1 + kConsumers);
constexpr int kBox_bytes = kConsumers * 64 * kRow_bytes;  // of 64 × 64 results on their way
constexpr int kBarrier_bytes = 256, kAlign_bytes = 1024;

Status check_operand(const char* name, const MatmulOperand& t, int64_t columns) {
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0)
    return invalid_argument(cat("matmul: ", name, " is not aligned to 16 bytes: copy it"));
  if (t.stride % 8 != 0 || t.stride < columns)
    return invalid_argument(cat("matmul: the rows of ", name, " are ", t.stride,
                                " elements apart, which must be a multiple of 8 and at least ",
                                columns, ": copy it into padded rows"));
  return {};
}

// Rows of `columns` elements in boxes of 64 × `box_rows`.
Result<HostTensorMap> map_of(const MatmulOperand& t, int64_t columns, int64_t rows, int box_rows) {
  const int64_t whole = t.stride * rows;
  return tensor_map_bf16(t.data, {columns, rows, 1, 1}, {t.stride, whole, whole}, box_rows);
}

// The tensor map of an operand of `extent` rows or columns of C, of which a tile has `tile`, by k.
Result<HostTensorMap> map_of(const MatmulOperand& t, bool mn_major, int64_t extent, int64_t k,
                             int tile) {
  return mn_major ? map_of(t, extent, k, kTileK) : map_of(t, k, extent, tile);
}

TileOrder tile_order(int64_t m, int64_t n, int tile_m, int tile_n, int group) {
  return {static_cast<int>(ceil_div(m, tile_m)), static_cast<int>(ceil_div(n, tile_n)), group};
}

struct Maps {
  HostTensorMap a, b;
};
Result<Maps> maps_of(const MatmulVariant& v, const MatmulCall& call) {
  const MatmulShape& s = call.shape;
  return Maps{TEGULA_TRY(map_of(call.a, v.a_mn_major, s.m, s.k, kTileM)),
              TEGULA_TRY(map_of(call.b, v.b_mn_major, s.n, s.k, v.tile_n))};
}

MatmulSm90Params params_of(const MatmulVariant& v, const MatmulCall& call) {
  const MatmulShape& s = call.shape;
  MatmulSm90Params p{};
  p.c = static_cast<unsigned short*>(call.c.data), p.ldc = call.c.stride;
  p.m = static_cast<int>(s.m), p.n = static_cast<int>(s.n), p.k = static_cast<int>(s.k);
  p.n_splits = call.n_splits, p.split_stride = call.split_stride;
  p.adds = int{call.adds}, p.c16 = static_cast<unsigned short*>(call.c16);
  p.row_scale = call.row_scale, p.shift = call.shift, p.sums = call.sums;
  p.guard = call.guard, p.total = call.total;
  p.n_steps =
      static_cast<int>(std::max<int64_t>(ceil_div(s.k, kTileK) / call.n_splits, v.tile_n / 64));
  p.order = tile_order(s.m, s.n, kTileM, v.tile_n, v.group);
  return p;
}

Grid grid_of(const MatmulVariant& v, const MatmulSm90Params& p, int n_multiprocessors) {
  const int n_blocks = std::min(p.order.tiles_m * p.order.tiles_n * p.n_splits, n_multiprocessors);
  return {{n_blocks, 1, 1}, {kThreads, 1, 1}, v.smem_bytes(), true};
}

}  // namespace

Status check_matmul(const MatmulCall& call) {
  const MatmulShape& s = call.shape;
  if (std::min({s.m, s.n, s.k}) < 1)
    return invalid_argument(cat("matmul of an empty tensor: m ", s.m, ", n ", s.n, ", k ", s.k));
  if (std::max({s.m, s.n, s.k, ceil_div(s.m, 128) * ceil_div(s.n, 64)}) > INT_MAX / 2)
    return unsupported(
        cat("matmul: extents or tiles past 2^30: m ", s.m, ", n ", s.n, ", k ", s.k));
  TEGULA_TRY(check_operand("a", call.a, s.a_mn_major ? s.m : s.k));
  TEGULA_TRY(check_operand("b", call.b, s.b_mn_major ? s.n : s.k));
  if (!s.f32_out) return check_operand("c", call.c, s.n);
  if (call.c.stride < s.n) return invalid_argument("matmul: the rows of c overlap");
  return {};
}

int MatmulVariant::smem_bytes() const {
  const int n_boxes = tile_n / 64 % 2 == 0 ? 2 : 3;
  return n_stages * (kTileM + tile_n) * kRow_bytes + n_boxes * kBox_bytes + kBarrier_bytes +
         kAlign_bytes;
}

std::string MatmulVariant::name() const {
  return cat(a_mn_major ? "am_" : "ak_", b_mn_major ? "bn" : "bk", "_n", tile_n, "s", n_stages,
             is_f16 ? "_f16" : "", f32_out ? "_f32" : "", is_fused ? "_fused" : "",
             is_exp ? "_exp" : "", "_g", group);
}

std::vector<std::string> MatmulVariant::defines() const {
  std::vector<std::string> d = {cat("TEGULA_TILE_N=", tile_n),
                                cat("TEGULA_STAGES=", n_stages),
                                cat("TEGULA_A_MN_MAJOR=", int{a_mn_major}),
                                cat("TEGULA_B_MN_MAJOR=", int{b_mn_major}),
                                cat("TEGULA_F32_OUT=", int{f32_out}),
                                cat("TEGULA_F16=", int{is_f16})};
  if (is_exp) d.emplace_back("TEGULA_EXP=1");
  return d;
}

namespace {
struct Choice {
  int tile_n = 256, n_splits = 1;
};

// The least time, in units of 17 ns of a multiprocessor of an H100: so many take 128 rows by 64 k
// of a tile's columns.
Choice choose(const MatmulShape& s, int n_multiprocessors) {
  constexpr struct { int tile_n, slab; } kTiles[] = {{256, 40}, {192, 31}, {128, 22}};
  constexpr int64_t kBytesOfMemory = 43000, kJoin = 230;  // of a unit; a launch
  Choice best;
  int64_t least = INT64_MAX;
  for (const auto& [tile_n, slab] : kTiles)
    for (const int splits : {1, 2, 4, 8}) {
      // Sums of parts are written, read and joined: a part must be long enough.
      if (splits > 1 && (!s.f32_out || s.k % (splits * kTileK) != 0 || s.k / splits < 1024)) break;
      const int64_t tiles = ceil_div(s.m, kTileM) * ceil_div(s.n, int64_t{tile_n});
      int64_t time = ceil_div(tiles * splits, int64_t{n_multiprocessors}) * slab *
                     ceil_div(s.k, int64_t{kTileK} * splits);
      if (splits > 1) time += (2 * splits + 1) * 4 * s.m * s.n / kBytesOfMemory + kJoin;
      if (time < least) least = time, best = {tile_n, splits};
    }
  return best;
}
}  // namespace

MatmulVariant choose_matmul(const MatmulShape& shape, int n_multiprocessors) {
  MatmulVariant v;
  v.a_mn_major = shape.a_mn_major;
  v.b_mn_major = shape.b_mn_major;
  v.f32_out = shape.f32_out;
  v.is_f16 = shape.is_f16;
  v.tile_n = choose(shape, n_multiprocessors).tile_n;
  if (v.tile_n == 128) v.n_stages = 6;
  return v;
}

int choose_splits(const MatmulShape& s, int n_multiprocessors) {
  return choose(s, n_multiprocessors).n_splits;
}

Result<MatmulKernel> MatmulKernel::load(const MatmulVariant& variant, const std::string& cubin) {
  const int n_multiprocessors = TEGULA_TRY(hopper_multiprocessors());
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function("matmul_sm90", variant.smem_bytes()));
  return MatmulKernel(variant, std::move(module), f, n_multiprocessors);
}

Status MatmulKernel::launch(const MatmulCall& call) const {
  const MatmulVariant& v = variant_;
  const MatmulShape& s = call.shape;
  if (s.a_mn_major != v.a_mn_major || s.b_mn_major != v.b_mn_major || s.f32_out != v.f32_out ||
      s.is_f16 != v.is_f16)
    return internal_error(cat("matmul variant ", v.name(), " got other operands"));
  TEGULA_TRY(check_matmul(call));
  if (call.n_splits > 1 && (!s.f32_out || s.k % (call.n_splits * kTileK) != 0))
    return internal_error(cat("matmul: k ", s.k, " in ", call.n_splits, " parts"));
  const Maps maps = TEGULA_TRY(maps_of(v, call));
  HostTensorMap c = s.f32_out ? maps.b : TEGULA_TRY(map_of(call.c, s.n, s.m, 64));  // or unused
  const MatmulSm90Params p = params_of(v, call);
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(function_, grid_of(v, p, n_multiprocessors_), call.stream,
                  "launching matmul_sm90", maps.a, maps.b, c, p);
}

Status launch_fused(FunctionHandle function, const MatmulVariant& v, const MatmulCall& call,
                    std::span<const uint64_t> epilogue) {
  const int n_multiprocessors = TEGULA_TRY(hopper_multiprocessors());
  const Maps maps = TEGULA_TRY(maps_of(v, call));
  const MatmulSm90Params p = params_of(v, call);
  const LaunchArgument arguments[] = {{&maps.a, sizeof maps.a},
                                      {&maps.b, sizeof maps.b},
                                      {&p, sizeof p},
                                      {epilogue.data(), epilogue.size_bytes()}};
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start_with(function, grid_of(v, p, n_multiprocessors), call.stream,
                       "launching matmul_fused_sm90", arguments);
}

std::vector<std::string> MatmulMmaKernel::defines(bool b_mn_major, bool is_f16) {
  return {cat("TEGULA_B_MN_MAJOR=", int{b_mn_major}), cat("TEGULA_F16=", int{is_f16})};
}

Result<MatmulMmaKernel> MatmulMmaKernel::load(bool b_mn_major, const std::string& cubin) {
  const int smem = smem_bytes(TEGULA_TRY(current_capability()));
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function("matmul_mma", smem));
  return MatmulMmaKernel(b_mn_major, smem, std::move(module), f);
}

Status MatmulMmaKernel::launch(const MatmulCall& call) const {
  const MatmulShape& s = call.shape;
  if (s.a_mn_major || s.b_mn_major != b_mn_major_)
    return unsupported("matmul_mma takes a as it is, and b in the layout it was compiled for");
  TEGULA_TRY(check_matmul(call));
  MatmulMmaParams p{};
  p.a = static_cast<const unsigned short*>(call.a.data), p.lda = call.a.stride;
  p.b = static_cast<const unsigned short*>(call.b.data), p.ldb = call.b.stride;
  p.c = static_cast<unsigned short*>(call.c.data), p.ldc = call.c.stride;
  p.m = static_cast<int>(s.m), p.n = static_cast<int>(s.n), p.k = static_cast<int>(s.k);
  p.order = tile_order(s.m, s.n, 128, 256, 16);
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(function_, {{p.order.tiles_m * p.order.tiles_n, 1, 1}, {256, 1, 1}, smem_bytes_},
                  call.stream, "launching matmul_mma", p);
}

}  // namespace tegula::cuda
