// The tunings of dot_packed: every point of the space, and sizes that no space would offer, give
// the bits of dot_naive in exactly the workspace they ask for.
#include <cstring>
#include <set>

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/tuning.h"
#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::pick;
using testing::Rng;
using testing::Tensor;

struct Product {
  Attrs attrs;
  Tensor a, b, bias, out;
  std::vector<TensorRef> in;
  std::vector<float> want;

  Product(int64_t m, int64_t n, int64_t k, int64_t shards, const char* dims, DType dtype,
          unsigned seed)
      : attrs{{"dims", std::string(dims)}, {"bias", true}, {"k_shards", shards}},
        a(dtype, {m, k}),
        b(dtype, dims[5] == 'k' ? std::vector{k, n} : std::vector{n, k}),
        bias(DType::kF32, {n}),
        out(DType::kF32, {m, n}) {
    if (dtype != DType::kF32) attrs.set("out", DType::kF32);
    Rng rng(seed);
    a.fill_random(rng), b.fill_random(rng), bias.fill_random(rng);
    in = {a.ref(), b.ref(), bias.ref()};
    testing::run_kernel(*find_kernel("dot_naive"), attrs, in, std::span(&out.ref(), 1), 2);
    want = values();
  }
  std::vector<float> values() const {
    const float* p = out.ref().as<float>();
    return {p, p + out.numel()};
  }
  KernelQuery query(const Target& target) const {
    return {.attrs = &attrs, .in = in, .out = std::span(&out.ref(), 1), .target = &target};
  }
  void expect_same(const Tuning& t, int n_threads, void (*entry)(const KernelCall&) = nullptr) {
    out.fill(777);
    testing::run_kernel(*find_kernel("dot_packed"), attrs, in, std::span(&out.ref(), 1), n_threads,
                        entry, t);
    const auto have = values();
    ASSERT_EQ(std::memcmp(have.data(), want.data(), have.size() * sizeof(float)), 0)
        << ::testing::PrintToString(t.knob) << " of " << attrs.str("dims") << " on " << n_threads
        << " threads";
  }
};

TEST(DotTuning, EveryPointOfTheSpaceGivesTheSameBits) {
  const KernelDef& packed = *find_kernel("dot_packed");
  Product products[] = {{40, 150, 72, 8, "m k, k n -> m n", DType::kF32, 1},
                        {90, 110, 800, 1, "m k, n k -> m n", DType::kF32, 2},
                        {2, 200, 64, 2, "m k, k n -> m n", DType::kF32, 3},
                        {75, 100, 400, 2, "m k, k n -> m n", DType::kBF16, 4}};
  for (Product& p : products) {
    const std::vector<Tuning> points = packed.tuning->points(p.query(Target::this_cpu(2)));
    ASSERT_GT(points.size(), 4u);
    EXPECT_EQ(points[0], Tuning{});
    std::set<std::vector<int32_t>> distinct;
    for (const Tuning& t : points) {
      distinct.emplace(std::begin(t.knob), std::end(t.knob));
      p.expect_same(t, 2);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(distinct.size(), points.size());
  }
}

TEST(DotTuning, AnySizesGiveTheSameBits) {
  Rng rng(7);
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int64_t shards = int64_t{1} << pick(rng, 0, 3);
    Product p(pick(rng, 1, 60), pick(rng, 1, 90), shards * pick(rng, 1, 40), shards,
              seed % 2 ? "m k, k n -> m n" : "m k, n k -> m n",
              seed % 3 ? DType::kF32 : DType::kBF16, seed);
    for (int i = 0; i < 6; ++i) {
      Tuning t;
      const int most[] = {70, 100, 300, 14, 2, 2, 2, 4000};
      for (int knob = 0; knob < kernel::kDotKnobs; ++knob)
        t.knob[knob] = static_cast<int32_t>(pick(rng, 0, most[knob]));
      if (t.knob[kernel::kDotTileM] < 4) t.knob[kernel::kDotTileM] = 0;
      for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
        const kernel::IsaTable* table = kernel::isa_table_of(isa);
        if (table) p.expect_same(t, static_cast<int>(pick(rng, 1, 3)), table->dot_packed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Many threads, each of which packs both operands for itself.
TEST(DotTuning, GroupsOfColumnsGiveTheSameBits) {
  Product products[] = {{600, 620, 96, 8, "m k, k n -> m n", DType::kF32, 1},
                        {431, 397, 200, 1, "m k, n k -> m n", DType::kF32, 2},
                        {420, 433, 72, 8, "m k, k n -> m n", DType::kBF16, 3},
                        {420, 400, 2200, 8, "m k, k n -> m n", DType::kF32, 4},
                        {400, 420, 4400, 8, "m k, k n -> m n", DType::kF32, 5}};
  for (Product& p : products) {
    const auto c = kernel::parse_contraction(p.attrs, p.in, std::span(&p.out.ref(), 1));
    ASSERT_TRUE(c.ok());
    const kernel::DotTiles tiles({}, *c, false);
    EXPECT_GT(kernel::DotBlocks(*c, tiles, kernel::register_tile(Isa::kAvx512), 8).groups, 0);
    const kernel::IsaTable* table = kernel::isa_table_of(Isa::kAvx512);
    if (table == nullptr) continue;
    // Rows of tiles first; blocks of k, more than a word has bits; both.
    Tuning t[4];
    t[1].knob[kernel::kDotOrder] = t[3].knob[kernel::kDotOrder] = 2;
    t[2].knob[kernel::kDotBlockK] = t[3].knob[kernel::kDotBlockK] = 20;
    for (const Tuning& tuning : t)
      for (const int n_threads : {7, 8, 11, 16}) {
        p.expect_same(tuning, n_threads, table->dot_packed);
        if (HasFatalFailure()) return;
      }
  }
}

TEST(DotTuning, RefusesWhatNoKernelCanDo) {
  Product p(8, 40, 16, 1, "m k, k n -> m n", DType::kF32, 1);
  KernelQuery q = p.query(Target::one_thread());
  const KernelDef& packed = *find_kernel("dot_packed");
  EXPECT_TRUE(packed.supports(q));
  for (const auto& [knob, value] : {std::pair{kernel::kDotTileM, 3},
                                    {kernel::kDotTileM, 15},
                                    {kernel::kDotTaskM, -1},
                                    {kernel::kDotBlockK, 1 << 20}}) {
    q.tuning = {};
    q.tuning.knob[knob] = value;
    EXPECT_FALSE(packed.supports(q)) << knob << " = " << value;
  }
}

TEST(DotTuning, WorkspaceGrowsWithEveryExtent) {
  const KernelDef& packed = *find_kernel("dot_packed");
  Rng rng(3);
  Tuning told;
  told.knob[kernel::kDotTaskM] = 72, told.knob[kernel::kDotTaskN] = 96;
  told.knob[kernel::kDotBlockK] = 192;
  const Attrs attrs{{"dims", std::string("m k, k n -> m n")}};
  const auto bytes = [&](const Tuning& t, int64_t m, int64_t n, int64_t k, int threads) {
    TensorRef in[] = {contiguous_ref(nullptr, {DType::kF32, {m, k}}),
                      contiguous_ref(nullptr, {DType::kF32, {k, n}})};
    const TensorRef out = contiguous_ref(nullptr, {DType::kF32, {m, n}});
    Target target;
    target.n_threads = threads;
    return packed.workspace_bytes({&attrs, in, std::span(&out, 1), nullptr, &target, t});
  };
  for (int i = 0; i < 2000; ++i) {
    const int64_t m = pick(rng, 1, 600), n = pick(rng, 1, 900), k = pick(rng, 1, 2000);
    const int threads = static_cast<int>(pick(rng, 1, 16));
    for (const Tuning& t : {Tuning{}, told}) {
      const int64_t whole = bytes(t, m, n, k, threads);
      ASSERT_LE(bytes(t, pick(rng, 1, m), n, k, threads), whole) << m << " " << n << " " << k;
      ASSERT_LE(bytes(t, m, pick(rng, 1, n), k, threads), whole) << m << " " << n << " " << k;
      ASSERT_LE(bytes(t, m, n, pick(rng, 1, k), threads), whole) << m << " " << n << " " << k;
    }
  }
}

}  // namespace
}  // namespace tegula
