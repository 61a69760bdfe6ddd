#include "tegula/io/sha256.h"

#include <gtest/gtest.h>

#include <random>

namespace tegula {
namespace {

std::string hash(std::string_view bytes, Sha256::Isa isa) {
  Sha256 h(isa);
  h.update(bytes);
  return h.finish_hex();
}

// FIPS 180-4 example vectors, and the empty message.
struct Vector {
  std::string message, digest;
};
const Vector kVectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnop"
     "qrsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
};

TEST(Sha256, StandardVectors) {
  for (const Vector& v : kVectors) {
    EXPECT_EQ(hash(v.message, Sha256::Isa::kScalar), v.digest);
    EXPECT_EQ(hash(v.message, Sha256::Isa::kBest), v.digest);
    EXPECT_EQ(sha256_hex(v.message), v.digest);
  }
}

TEST(Sha256, EveryLengthEveryCutBothInstructionSets) {
  std::mt19937 random(1);
  std::string bytes;
  for (size_t length = 0; length <= 200; ++length) {
    const std::string whole = hash(bytes, Sha256::Isa::kScalar);
    EXPECT_EQ(whole, hash(bytes, Sha256::Isa::kBest)) << length;
    for (int trial = 0; trial < 5; ++trial) {
      Sha256 pieces;
      for (size_t at = 0; at < length;) {
        const size_t n = std::min<size_t>(random() % 90, length - at);
        pieces.update(bytes.data() + at, n);
        at += n;
      }
      EXPECT_EQ(pieces.finish_hex(), whole) << length;
    }
    bytes += static_cast<char>(random());
  }
}

}  // namespace
}  // namespace tegula
