// Tests what NVRTC makes of a persistent kernel at the sizes of real models: no spill in the
// registers that its warpgroups hand over to each other. Needs NVRTC, and no GPU.
#include "tegula/kernels/cuda/attention_decode.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/cuda/persistent_params.h"
#include "tegula/kernels/cuda/persistent_text.h"
#include "tegula/kernels/cuda/tile_text.h"
#include "tests/tile/layer_programs.h"

namespace tegula::tile {
namespace {

using cuda::PersistentFunction;

// Both halves of x, turned.
Program rotation() {
  Builder b(2);
  const Reg x = b.cast(b.load(b.input(B)), F), y = b.cast(b.load(b.input(B)), F);
  const Reg c = b.load(b.input(F)), s = b.load(b.input(F));
  b.store(b.output(B), b.cast(x * c - y * s, B));
  b.store(b.output(B), b.cast(y * c + x * s, B));
  return b.finish().value();
}

cuda::TilePart part(const Program& p, int64_t rows, int64_t n, int block) {
  std::vector<TensorRef> in, out;
  for (const auto& i : p.inputs) in.push_back(rows_of(i.dtype, rows, n));
  for (const auto& o : p.outputs) out.push_back(rows_of(o.dtype, rows, n));
  Target target;
  target.device = DeviceKind::kCuda, target.multiprocessors = 132;
  return {&p, cuda::tile_call(p, in, out, target, block).value(), out, out.size() - 1, {}};
}

TEST(TileText, PersistentKernelsDoNotSpill) {
  const auto version = cuda::nvrtc_version();
  if (!version.ok()) GTEST_SKIP() << version.error().message;
  // The emulator's minor version is a fingerprint.
  if (version->size() > 6) GTEST_SKIP() << "this NVRTC compiles for the host: " << *version;
  const Program norm = norm_of_sum(), gated = gate(), turned = rotation();
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 576}, {1, 2048}, {4, 2048}}) {
    std::vector<PersistentFunction> f(6);
    f[0].first = part(norm, rows, width, cuda::kWorkers), f[0].n_products = 3, f[0].k = int(width);
    f[1].kind = PersistentFunction::kElements, f[1].n_calls = 2;
    f[1].first = part(turned, rows * 32, 32, 0);
    const std::vector<uint64_t> words(f[1].first.call.params.size(), 1024);
    f[1].first.call = cuda::as_warps(f[1].first.call, words).value();
    f[2].kind = PersistentFunction::kPut, f[2].n_calls = 2;
    f[3].kind = PersistentFunction::kAttention;
    f[3].attention.seqlen_q = 1, f[3].attention.seqlen_k = 4096;
    f[3].attention.n_heads_q = 32, f[3].attention.n_heads_kv = 8;
    f[3].attention.group = 4, f[3].attention.group_inverse = 16384;
    f[3].attention.head_dim = 64, f[3].attention.n_tiles = 1;
    f[3].attention.keys_per_split = 512, f[3].attention.n_splits = 8, f[3].attention.n_slots = 1;
    f[3].attention.pages_per_sequence = 64, f[3].attention.page_size = 64;
    f[3].attention.page_log2 = 6, f[3].attention.last_page = 255;
    f[3].attention.window_left = -1, f[3].attention.is_causal = 1;
    for (cuda::AttentionTensor* t : {&f[3].attention.q, &f[3].attention.k, &f[3].attention.v})
      t->batch = 2048, t->row = 2048, t->head = 64;
    f[3].attention.o = f[3].attention.q;
    f[3].n_heads = 8, f[3].n_batch = int(rows);
    f[4].first = part(norm, rows, width, cuda::kWorkers), f[4].n_products = 1, f[4].n_calls = 2,
    f[4].k = int(width);
    f[4].last = part(gated, rows, 4 * width, 0);
    f[4].last.of = {0, 1}, f[4].last.call.layout.vector = 1;
    for (const int k : {0, 1})
      f[4].last.call.layout.access[static_cast<size_t>(k)] = cuda::TileAccess::kGiven;
    f[5].n_products = 1, f[5].k = int(4 * width), f[5].is_out16 = false;

    for (PersistentFunction& of : f)
      for (cuda::TilePart* p : {&of.first, &of.last})
        for (cuda::TileParam& param : p->call.params) param.is_constant = param.type == "i64";
    const cuda::DecodeVariant attention{
        .head_dim = 64, .is_paged = true, .n_warps = 16, .n_slots = 1};
    std::vector<std::string> defines = attention.defines();
    for (const std::string& d :
         {cat("TEGULA_M=", rows), std::string("TEGULA_STAGES=12"), std::string("TEGULA_LENT=3"),
          std::string("TEGULA_SCRATCH_BYTES=24576"), std::string("TEGULA_RECORD_BYTES=1792"),
          std::string("TEGULA_MODE=0"), std::string("TEGULA_ID64=0"), std::string("TEGULA_FLAT=1"),
          std::string("TEGULA_T=unsigned short")})
      defines.push_back(d);
    defines.insert(defines.end(), std::begin(cuda::kTileFlags), std::end(cuda::kTileFlags));
    const auto k =
        cuda::compile_text("persistent_kernel.cu", cuda::persistent_text(f), defines, "sm_90a");
    ASSERT_TRUE(k.ok()) << k.error().message;
    const std::string what = cat(rows, " x ", width);
    EXPECT_EQ(k->spill_bytes, 0) << what;
    EXPECT_NE(k->log.find(" 0 bytes stack frame"), std::string::npos) << what << "\n" << k->log;
    EXPECT_EQ(k->registers, 96) << what;  // of which the kernel hands over
  }
}

}  // namespace
}  // namespace tegula::tile
