#include "tegula/kernels/cuda/plugin/launch.h"
#include "tegula/kernels/cuda/tile_text.h"

namespace tegula::cuda {

namespace {

struct TileKernel {
  Module module;
  FunctionHandle function = nullptr;
};

// Loaded once for each program and layout.
Result<FunctionHandle> loaded_tile(const tile::Program& p, const TileCall& call) {
  // Never destroyed: the driver goes before statics do.
  static auto& kernels = *new std::map<std::string, TileKernel>();
  const std::string name = cat(call.layout.key(), "\n", tile::to_text(p));
  const auto found = kernels.find(name);
  if (found != kernels.end()) return found->second.function;
  const std::vector<std::string> flags(std::begin(kTileFlags), std::end(kTileFlags));
  const std::string cubin =
      TEGULA_TRY(cubin_of_text("tegula/kernels/cuda/tile_program.cu", tile_text(p, call), flags));
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function(kTileEntry, 0));
  kernels.emplace(name, TileKernel{std::move(module), f});
  return f;
}

Status launch(const DeviceCall& call, const Stream& to) {
  const tile::Program& p = *call.program;
  const TileCall c = TEGULA_TRY(tile_call(p, call.in, call.out, *call.target));
  const tile::Space space = TEGULA_TRY(tile::space_of(p, call.in, call.out));
  const int64_t flops = tile::flops(p, {space.shape, static_cast<size_t>(p.rank)});
  call.counters->add(flops, flops);
  if (c.n_blocks == 0) return {};
  const Driver* d = TEGULA_TRY(Driver::get());
  const FunctionHandle f = TEGULA_TRY(loaded_tile(p, c));
  std::vector<uint64_t> words;
  for (const TileParam& param : c.params) words.push_back(param.value);
  const LaunchArgument argument{words.data(), words.size() * sizeof(uint64_t)};
  const Grid grid{{c.n_blocks, 1, 1}, {c.layout.n_threads, 1, 1}};
  return d->start_with(f, grid, to, "launching a tile program", {&argument, 1});
}

}  // namespace

extern constinit const KernelLaunch fused_cuda_launch{"fused_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
