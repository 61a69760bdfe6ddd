// Tests what NVRTC makes of products behind tile programs, at the sizes of real models: neither
// spills nor more shared memory than there is. Needs NVRTC, and no GPU.
#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/cuda/tile_prologue_text.h"
#include "tegula/kernels/cuda/tile_text.h"
#include "tests/tile/layer_programs.h"

namespace tegula::tile {
namespace {

void expect_no_loss(const std::string& name, const Program& p, int64_t rows, int64_t n) {
  const std::vector<TensorRef> in(p.inputs.size(), rows_of(B, rows, n)),
      out(p.outputs.size(), rows_of(B, rows, n));
  Target target;
  target.device = DeviceKind::kCuda, target.multiprocessors = 132;
  for (const auto& [is_mn_major, columns] :
       {std::pair{false, 16}, {true, 16}, {true, 32}, {true, 64}}) {
    const int threads = is_mn_major ? 8 * columns : 128;
    const auto call = cuda::tile_call(p, in, out, target, threads);
    ASSERT_TRUE(call.ok()) << call.error().message;
    std::vector<std::string> flags(std::begin(cuda::kTileFlags), std::end(cuda::kTileFlags));
    for (const std::string& d :
         {cat("TEGULA_M=", rows), cat("TEGULA_COLUMNS=", columns),
          cat("TEGULA_B_MN_MAJOR=", int{is_mn_major}), std::string("TEGULA_SHARDS=1"),
          std::string("TEGULA_IN16=1"), std::string("TEGULA_OUT16=1"), std::string("TEGULA_F16=0"),
          std::string("TEGULA_AFTER=1")})
      flags.push_back(d);
    const std::string text = cat(cuda::tile_prologue_text(p, *call, out, out.size() - 1),
                                 "#include \"tegula/kernels/cuda/matvec.cu\"\n");
    // The bytes that the launch reckons with (plugin/launches/matvec.cpp).
    const int64_t sums = 4 * rows * columns;
    const int64_t own = is_mn_major ? std::max(int64_t{4} * cuda::kFloatsAfter, 8 * 4 * sums)
                                    : cuda::kRingAlign + cuda::kRingBytes + 4 * sums;
    const int64_t bytes = own + cuda::tile_prologue_bytes(p, *call, out);
    if (bytes > 48 << 10) continue;
    for (const char* arch : {"sm_80", "sm_90a"}) {
      const auto k = cuda::compile_text("matvec_after.cu", text, flags, arch);
      const std::string what = cat(name, " ", rows, " x ", n, is_mn_major ? ", [k, n]" : ", [n, k]",
                                   ", columns ", columns, ", ", arch);
      ASSERT_TRUE(k.ok()) << what << ": " << k.error().message;
      EXPECT_EQ(k->spill_bytes, 0) << what;
      EXPECT_NE(k->log.find(" 0 bytes stack frame"), std::string::npos) << what << "\n" << k->log;
      EXPECT_LE(k->registers * threads, 65536) << what;
      EXPECT_LE(k->smem_bytes, bytes + 16) << what;
      std::printf("%s: %d registers, %d bytes\n", what.c_str(), k->registers, k->smem_bytes);
    }
  }
}

TEST(TileText, ProductsBehindProgramsDoNotSpill) {
  const auto version = cuda::nvrtc_version();
  if (!version.ok()) GTEST_SKIP() << version.error().message;
  // The emulator's minor version is a fingerprint.
  if (version->size() > 6) GTEST_SKIP() << "this NVRTC compiles for the host: " << *version;
  for (const int64_t rows : {1, 4}) {
    expect_no_loss("norm", norm_of_sum(), rows, 576);
    expect_no_loss("gate", gate(), rows, 1536);
  }
  expect_no_loss("norm", norm_of_sum(), 1, 4096);
}

}  // namespace
}  // namespace tegula::tile
