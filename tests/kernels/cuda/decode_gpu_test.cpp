// Tests what the host says of decoding on the GPU, and that every variant compiles without a spill.
// The kernel's results are checked on a device by bench/cuda/decode.py.
#include <gtest/gtest.h>

#include "tegula/kernels/cuda/attention_decode.h"
#include "tests/kernels/cuda/no_loss.h"

namespace tegula::cuda {
namespace {

DecodeShape shape(int64_t batch, int64_t keys, int64_t heads_q = 32, int64_t heads_kv = 8) {
  return {.batch = batch, .seqlen_k = keys, .n_heads_q = heads_q, .n_heads_kv = heads_kv};
}

TEST(CudaDecode, RowsChooseTheTile) {
  EXPECT_EQ(choose_decode(shape(1, 100))->rows, 8);
  EXPECT_EQ(choose_decode(shape(1, 100, 16, 1))->rows, 16);
  DecodeShape s = shape(1, 100);
  s.seqlen_q = 3;  // three queries of four heads
  s.page_size = 16;
  EXPECT_EQ(choose_decode(s)->name(), "decode_d128_r16_paged");
  s.is_f16 = true;
  EXPECT_EQ(choose_decode(s)->name(), "decode_d128_r16_paged_f16");
}

TEST(CudaDecode, ManyHeadsOfOneKvHeadMakeTiles) {
  const DecodeShape s = shape(3, 100, 71, 1);
  EXPECT_EQ(choose_decode(s)->rows, 16);
  EXPECT_EQ(decode_blocks(s), 3 * 5);
  DecodeShape wide = shape(1, 100, 71, 1);
  wide.head_dim = 192;
  EXPECT_EQ(choose_decode(wide)->name(), "decode_d256_r8");
  EXPECT_EQ(decode_blocks(wide), 9);
}

TEST(CudaDecode, SharedMemoryFitsTheDevice) {
  for (const int64_t head_dim : {64, 128, 256})
    for (const int64_t heads_q : {8, 128})
      for (const auto& [capability, limit_kb] :
           {std::pair{80, 163}, {86, 99}, {89, 99}, {90, 227}}) {
        DecodeShape s = shape(1, 100, heads_q, 8);
        s.head_dim = head_dim;
        const auto v = choose_decode(s, capability);
        EXPECT_LE(v->smem_bytes(), limit_kb * 1024) << v->name() << " on " << capability;
      }
}

TEST(CudaDecode, RefusesAndNamesWhatWorks) {
  const auto rows = choose_decode(shape(1, 100, 129, 1));
  ASSERT_FALSE(rows.ok());
  EXPECT_NE(rows.error().message.find("not 129: use attention_sm90"), std::string::npos);
  DecodeShape s = shape(1, 100);
  s.head_dim = 100;
  EXPECT_NE(choose_decode(s).error().message.find("pad it"), std::string::npos);
  EXPECT_EQ(choose_decode(shape(1, 100, 30, 8)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(choose_decode(shape(0, 100)).error().code, Code::kInvalidArgument);
}

TEST(CudaDecode, SplitsFillTheDeviceOnce) {
  for (const int64_t batch : {1, 3, 16, 64})
    for (const int64_t keys : {0, 1, 127, 128, 8192, 131072}) {
      const int64_t split = decode_split(shape(batch, keys), 132);
      EXPECT_EQ(split % 128, 0);
      const int64_t blocks = (keys + split - 1) / split * batch * 8;
      EXPECT_LE(blocks, std::max<int64_t>(132, batch * 8)) << batch << " " << keys;
    }
  EXPECT_EQ(decode_split(shape(1, 8192), 132), 512);
  EXPECT_EQ(decode_workspace_bytes(shape(1, 8192), 512), 16 * 8 * 8 * 130 * 4);
}

TEST(CudaDecode, ManyHeadsShareBlocks) {
  EXPECT_EQ(decode_heads(shape(16, 8192), 132), 1);  // 128 blocks of a head
  EXPECT_EQ(decode_heads(shape(32, 8192), 132), 2);  // 128 of two
  EXPECT_EQ(decode_heads(shape(48, 8192), 132), 1);  // 192 of two would take two turns
  EXPECT_EQ(decode_heads(shape(64, 4096), 132), 4);
  EXPECT_EQ(decode_heads(shape(256, 4096), 132), 8);        // 256: two turns, but full ones
  EXPECT_EQ(decode_heads(shape(64, 4096, 96, 8), 132), 1);  // 12 rows are a tile of 16
  EXPECT_EQ(decode_heads(shape(86, 4096, 12, 3), 132), 1);  // 3 heads
  DecodeShape wide = shape(128, 4096);
  EXPECT_EQ(decode_heads(wide, 132), 8);
  wide.head_dim = 256;
  EXPECT_EQ(decode_heads(wide, 132), 4);  // of 4 warps, where shared memory is small
  DecodeShape s = shape(64, 4096);
  const int64_t bytes = decode_workspace_bytes(s, 512);
  s.heads = 4;
  EXPECT_EQ(choose_decode(s)->name(), "decode_d128_r8_h4");
  EXPECT_EQ(decode_blocks(s), 128);
  EXPECT_EQ(decode_workspace_bytes(s, 512), bytes);
  EXPECT_EQ(decode_split(s, 132), 4096);
  for (const int heads : {0, 3, 16}) {
    s.heads = heads;
    EXPECT_EQ(choose_decode(s).error().code, Code::kInvalidArgument) << heads;
  }
}

TEST(CudaDecode, VariantsCompileWithoutSpills) {
  for (const int d : {64, 128, 256})
    for (const int rows : {8, 16})
      for (const bool is_paged : {false, true})
        for (const int n_slots : {1, 2}) {
          if (d == 256 && rows * n_slots > 8) continue;  // never chosen
          const int heads = rows == 8 && n_slots == 1 ? 4 : 1;
          const Result<DecodeVariant> v =
              DecodeVariant{d, rows, is_paged, d == 64, 8, 1, n_slots, heads};
          testing::expect_no_loss(v, "attention_decode.cu");
        }
}

}  // namespace
}  // namespace tegula::cuda
