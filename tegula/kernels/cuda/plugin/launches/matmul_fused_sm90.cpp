#include "tegula/kernels/cuda/describe/dot_fused_query.h"
#include "tegula/kernels/cuda/dot_fused_text.h"
#include "tegula/kernels/cuda/plugin/texts.h"

namespace tegula::cuda {

namespace {

Result<DotFusedCall> parse(const DeviceCall& call) {
  return parse_dot_fused({call.attrs, call.in, call.out, call.program, call.target});
}

KernelText text_of(const tile::Program& p, const DotFusedCall& f) {
  return {cat(f.variant.name(), "\n", f.tile.layout.key(), "\n", tile::to_text(p)),
          "tegula/kernels/cuda/matmul_epilogue.cu", [&] { return dot_fused_text(p, f.tile); },
          tile_defines(f.variant.defines())};
}

Result<bool> compile(const DeviceCall& call) {
  const DotFusedCall f = TEGULA_TRY(parse(call));
  return compile_once(text_of(*call.program, f));
}

Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  const DotFusedCall f = TEGULA_TRY(parse(call));
  const Module* module = TEGULA_TRY(loaded_text(text_of(*call.program, f)));
  FunctionHandle function = TEGULA_TRY(module->function(kFusedEntry, f.variant.smem_bytes()));
  auto prepared = std::make_unique<PreparedLaunches>();
  std::vector<uint64_t> words;
  for (const TileParam& p : f.tile.params) words.push_back(p.value);
  call.counters->add(f.flops, f.flops);
  TEGULA_TRY(launch_fused(function, f.variant, matmul_call(f.dot, 0, prepared->list), words));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

}  // namespace

extern constinit const KernelLaunch matmul_fused_sm90_launch{"matmul_fused_sm90", prepare, compile};

}  // namespace tegula::cuda
