#include "tegula/kernels/cuda/plugin/reduce.h"
#include "tegula/kernels/cuda/plugin/texts.h"
#include "tegula/kernels/cuda/plugin/tile_launch.h"
#include "tegula/kernels/cuda/tile_text.h"

namespace tegula::cuda {

namespace {

KernelText text_of(const tile::Program& p, const TileCall& call) {
  return {cat(call.layout.key(), "\n", tile::to_text(p)), "tegula/kernels/cuda/tile_program.cu",
          [&] { return tile_text(p, call); }, tile_defines()};
}

Result<bool> compile(const DeviceCall& given) {
  const tile::Program& p = *given.program;
  const TileCall call = TEGULA_TRY(tile_call(p, given.in, given.out, *given.target));
  if (call.n_blocks == 0) return false;
  return compile_once(text_of(p, call));
}

struct TileKernel {
  FunctionHandle one = nullptr, joined = nullptr;
};

Result<TileKernel> loaded_tile(const tile::Program& p, const TileCall& call) {
  const Module* module = TEGULA_TRY(loaded_text(text_of(p, call)));
  TileKernel k;
  k.one = TEGULA_TRY(module->function(kTileEntry, 0));
  if (call.layout.n_columns == 0) k.joined = TEGULA_TRY(module->function(kJoinedEntry, 0));
  return k;
}

// A column output's parts [n_parts, row_len], added into the output however that lies.
ReduceParams columns_of(const tile::Program& p, const tile::Space& space, const TensorRef& out,
                        int64_t n_parts) {
  ReduceParams r{};
  r.out = out.data, r.chunk = 1, r.n_parts = static_cast<int>(n_parts);
  std::vector<int64_t> extents, strides, dense;
  for (int d = p.rank - p.n_inner; d < p.rank; ++d) {
    extents.push_back(space.shape[d]), strides.push_back(out.stride[d]);
    dense.push_back(1);
    for (size_t e = 0; e + 1 < dense.size(); ++e) dense[e] *= space.shape[d];
  }
  r.kept = loops_of(extents, {dense, strides});
  return r;
}

// A call without elements: sums of no rows are 0, wherever the results lie.
Result<std::unique_ptr<Prepared>> empty(const DeviceCall& call) {
  auto prepared = std::make_unique<PreparedLaunches>();
  for (size_t o = 0; o < call.out.size(); ++o)
    if (call.program->outputs[o].extent == tile::Extent::kColumn)
      TEGULA_TRY(launch_fill(0, call.out[o], prepared->list));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

Result<std::unique_ptr<Prepared>> prepare_columns(const DeviceCall& call, const TileCall& c,
                                                  const tile::Space& space, const TileKernel& k,
                                                  std::vector<uint64_t> words) {
  const tile::Program& p = *call.program;
  const Driver* driver = TEGULA_TRY(Driver::get());
  auto prepared = std::make_unique<PreparedLaunches>();
  std::vector<ReduceParams> sums;
  auto* parts = static_cast<char*>(call.workspace);
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    if (p.outputs[o].extent != tile::Extent::kColumn) continue;
    sums.push_back(columns_of(p, space, call.out[o], c.n_parts));
    sums.back().parts = reinterpret_cast<float*>(parts);
    words[p.inputs.size() + o] = reinterpret_cast<uintptr_t>(parts);
    parts += column_parts_bytes(space);
  }
  const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
  const Grid grid{{c.n_blocks, 1, 1}, {c.layout.n_threads, 1, 1}, 0, true};
  TEGULA_TRY(
      driver->start_with(k.one, grid, prepared->list, "launching a tile program", {&argument, 1}));
  for (const ReduceParams& s : sums) TEGULA_TRY(launch_parts(s, 0, DType::kF32, prepared->list));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  const tile::Program& p = *call.program;
  const TileCall c = TEGULA_TRY(tile_call(p, call.in, call.out, *call.target));
  const tile::Space space = TEGULA_TRY(tile::space_of(p, call.in, call.out));
  const int64_t flops = tile::flops(p, {space.shape, static_cast<size_t>(p.rank)});
  call.counters->add(flops, flops);
  if (c.n_blocks == 0) return empty(call);
  const TileKernel k = TEGULA_TRY(loaded_tile(p, c));
  std::vector<uint64_t> words;
  for (const TileParam& param : c.params) words.push_back(param.value);
  if (c.layout.n_columns > 0) return prepare_columns(call, c, space, k, std::move(words));
  return prepare_joinable(std::make_unique<TileLaunch>(
      JoinableKernel{k.one, k.joined, c.layout.n_threads, "launching a tile program"},
      std::move(words), c.n_blocks, call, c));
}

}  // namespace

extern constinit const KernelLaunch fused_cuda_launch{"fused_cuda", prepare, compile};

}  // namespace tegula::cuda
