// Where values lie, in text and back, in the hash, in the builder and in the verifier: random ones
// go round, planted faults are caught by name, axis and numbers, and what says nothing of it is as
// it was.
#include <gtest/gtest.h>

#include <set>

#include "tegula/ir/hash.h"
#include "tegula/ir/text.h"
#include "tegula/ir/verify.h"
#include "tests/common/random_graph.h"
#include "tests/common/random_shardings.h"
#include "tests/ir/goes_round.h"

namespace tegula {
namespace {

// y = x w over a batch, on dp=2,tp=4.
Module linear() {
  Module m;
  m.mesh = *mesh_from_text("dp=2,tp=4");
  Builder b(m, "step");
  const Var x = b.param("x", {DType::kF32, {8, 16}});
  const Var w = b.param("w", {DType::kF32, {16, 12}}, Role::kWeight);
  b.annotate(x, {{"dp", AxisSharding::split(0)}, {"tp", AxisSharding::split(1)}});
  b.annotate(w, {{"tp", AxisSharding::split(0, 2)}});
  const Var y = matmul(x, w);
  b.annotate(y, {});
  b.result("y", y);
  b.result("z", neg(y));
  EXPECT_TRUE(b.finish_into_module().ok());
  return m;
}

TEST(ShardingText, StandsBehindTheType) {
  const Module m = linear();
  EXPECT_EQ(to_text(m), R"(mesh dp=2,tp=4

func 0 "step" {
  param %0 input "x" f32[8,16] [dp:0, tp:1]
  param %1 weight "w" f32[16,12] [tp:0/2]
  %2 = dot(%0, %1) {dims = "a k, k n -> a n"} : f32[8,12] []
  %3 = neg(%2) : f32[8,12]
  result "y" %2
  result "z" %3
}
)");
  const auto again = module_from_text(to_text(m));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->mesh, m.mesh);
  EXPECT_EQ((*again)[0].shardings, m[0].shardings);
  EXPECT_EQ(to_text(*again), to_text(m));
  EXPECT_TRUE(verify(*again).ok()) << verify(*again).error().message;
}

TEST(ShardingText, IsReadInAnyOrder) {
  const Mesh mesh = *mesh_from_text("dp=2,tp=4,cp=3");
  const auto reads = [&](std::string_view text) {
    const auto s = sharding_from_text(mesh, text);
    return s.ok() ? cat("[", to_text(mesh, *s), "]") : s.error().message;
  };
  EXPECT_EQ(reads("[]"), "[]");
  EXPECT_EQ(reads(" [ tp : 1 / 3,cp:lse , dp:max]"), "[[dp:max, tp:1/3, cp:lse]]");
  EXPECT_EQ(reads("[dp:min]"), "[[dp:min]]");
  EXPECT_EQ(reads("[tp:1, tp:0]"), "sharding [tp:1, tp:0]: axis tp stands there twice");
  EXPECT_EQ(reads("[ep:1]"),
            "sharding [ep:1]: there is no axis \"ep\" in the mesh \"dp=2,tp=4,cp=3\"");
  EXPECT_EQ(reads("[dp:1"), "sharding [dp:1: expected , or ], found \"\"");
  EXPECT_EQ(reads("[dp:*]"),
            "sharding [dp:*]: axis dp: expected a dim, +, max, min or lse, found \"*\"");
  EXPECT_EQ(reads("[dp:9]"), "sharding [dp:9]: axis dp: dim 9: a tensor has at most 8 dims");
  EXPECT_EQ(reads("[dp:0/x]"),
            "sharding [dp:0/x]: axis dp: expected how many parts the dim has, found \"x\"");
  EXPECT_EQ(reads("[dp 0]"), "sharding [dp 0]: expected : behind axis dp");
  EXPECT_EQ(reads("[] 1"), "sharding [] 1: nothing may follow ], found \"1\"");
  EXPECT_EQ(reads("dp:0"), "sharding dp:0: expected [ first, as in [dp:0, tp:+]");
}

TEST(ShardingText, ErrorsSayWhere) {
  const auto message = [](std::string_view head, std::string_view sharding) {
    const auto m = module_from_text(
        cat(head, "\nfunc 0 \"f\" {\n  param %0 input \"x\" f32[4] ", sharding, "\n}"));
    return m.ok() ? std::string("parsed") : m.error().message;
  };
  EXPECT_EQ(message("mesh dp=2", "[dp:0]"), "parsed");
  EXPECT_EQ(message("mesh dp=2", "[tp:0]"),
            "3:29: sharding [tp:0]: there is no axis \"tp\" in the mesh \"dp=2\"");
  EXPECT_EQ(message("", "[dp:0]"),
            "3:29: sharding [dp:0]: there is no axis \"dp\" in the mesh \"\"");
  EXPECT_EQ(message("mesh dp=2", "[dp:0"), "3:29: this sharding does not end: expected ]");
  EXPECT_EQ(message("mesh dp=2,dp=3", ""), "1:6: mesh \"dp=2,dp=3\": axis dp stands there twice");
  EXPECT_EQ(message("mesh dp=0", ""), "1:9: an axis' size is 0, must be in [1, 1099511627776]");
  EXPECT_EQ(message("mesh dp", ""), "2:1: expected \"=\", found \"func\"");
}

TEST(ShardingText, RandomOnesGoRound) {
  int n_said = 0, n_split = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    Module m;
    ASSERT_TRUE(testing::RandomGraph(m, seed).build().ok());
    const std::string plain = to_text(m);
    const uint64_t plain_hash = hash_of(m, m[0]);
    m.mesh = testing::random_mesh(rng);
    // A mesh alone says nothing of a function.
    EXPECT_EQ(hash_of(m, m[0]), plain_hash);
    n_said += testing::annotate_some(m[0], m.mesh, rng, 1 + seed % 4);
    // Any state may be written; whether it may be there is the verifier's matter.
    for (Sharding& s : m[0].shardings)
      for (AxisSharding& a : s) {
        n_split += a.is_split();
        constexpr Combine kHow[] = {Combine::kSum, Combine::kMax, Combine::kMin,
                                    Combine::kLogSumExp};
        if (rng() % 8 == 0) a = AxisSharding::pending(kHow[rng() % 4]);
      }
    const std::string text = to_text(m);
    const auto again = module_from_text(text);
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
    EXPECT_EQ(to_text(*again), text);
    for (ValueId v = 0; v < m[0].values.size(); ++v) {
      const Sharding *a = m[0].sharding(v), *b = (*again)[0].sharding(v);
      ASSERT_EQ(a == nullptr, b == nullptr) << v;
      if (a) EXPECT_EQ(*a, *b) << v;
    }
    EXPECT_EQ(hash_of(*again, (*again)[0]), hash_of(m, m[0]));
    // Without them, it is what it was.
    Module bare = *again;
    bare.mesh = {}, bare[0].shardings.clear();
    EXPECT_EQ(to_text(bare), plain);
    EXPECT_EQ(hash_of(bare, bare[0]), plain_hash);
  }
  EXPECT_GT(n_said, 1000);
  EXPECT_GT(n_split, 500);
}

// Every change of a state, an axis or its size makes another hash.
TEST(ShardingHash, TellsAllOfThemApart) {
  std::set<uint64_t> hashes;
  size_t n = 0;
  const auto add = [&](const Module& m) { hashes.insert(hash_of(m, m[0])), ++n; };
  const Module m = linear();
  add(m);
  Module bare = m;
  bare[0].shardings.clear();
  add(bare);
  for (ValueId v = 0; v < 4; ++v)
    for (size_t a = 0; a < 2; ++a) {
      Module other = m;
      const Sharding* s = m[0].sharding(v);
      Sharding changed = s ? *s : replicated(m.mesh);
      for (const AxisSharding& state :
           {AxisSharding(), AxisSharding::split(0), AxisSharding::split(0, 3),
            AxisSharding::split(1), AxisSharding::pending(),
            AxisSharding::pending(Combine::kMax)}) {
        if (s && state == (*s)[a]) continue;
        if (!s && a == 1 && state.is_replicated()) continue;  // as by the first axis
        changed[a] = state;
        other[0].set_sharding(v, changed);
        add(other);
      }
    }
  for (const char* mesh : {"dp=2,tp=2", "dp=2,cp=4"}) {
    Module other = m;
    other.mesh = *mesh_from_text(mesh);
    add(other);
  }
  EXPECT_EQ(hashes.size(), n);
}

// The same function with regions elsewhere in the module is the same.
TEST(Hash, IsOfWhatRegionsHoldNotOfTheirNumbers) {
  const std::string body = R"( "double" {
  param %0 input "x" f32[4]
  %1 = add(%0, %0) : f32[4]
  result "y" %1
}
)";
  const auto step = [](int region) {
    return cat(" \"step\" {\n  param %0 input \"x\" f32[4]\n  %1 = call(%0) regions [", region,
               "] : f32[4]\n  result \"y\" %1\n}\n");
  };
  const auto of = [](const std::string& text, FuncId f) {
    const auto m = module_from_text(text);
    EXPECT_TRUE(m.ok()) << m.error().message << text;
    return hash_of(*m, (*m)[f]);
  };
  const uint64_t first = of(cat("func 0", body, "func 1", step(0)), 1);
  EXPECT_EQ(of(cat("func 0", step(1), "func 1", body), 0), first);
  std::string other = body;
  other.replace(other.find("add"), 3, "sub");
  EXPECT_NE(of(cat("func 0", step(1), "func 1", other), 0), first);
}

TEST(Annotate, SaysWhichValueAxisAndNumbers) {
  const auto error = [](std::initializer_list<std::pair<std::string_view, AxisSharding>> where) {
    Module m;
    m.mesh = *mesh_from_text("dp=2,tp=4");
    const Dim n = m.add_symbol("n", 8);
    Builder b(m, "f");
    b.param("w", {DType::kF32, {4}});
    const Var x = b.param("x", {DType::kF32, {6, 8, n}});
    b.annotate(x, where);
    const auto f = b.finish();
    return f.ok() ? std::string("taken") : f.error().message;
  };
  EXPECT_EQ(error({{"tp", AxisSharding::split(1)}}), "taken");
  EXPECT_EQ(error({{"dp", AxisSharding::split(1)}, {"tp", AxisSharding::split(1)}}), "taken");
  EXPECT_EQ(error({{"cp", AxisSharding::split(1)}}),
            "annotate: value %1, f32[6,8,s0]: the mesh \"dp=2,tp=4\" has no axis cp: set "
            "Module::mesh");
  EXPECT_EQ(error({{"tp", AxisSharding::split(1)}, {"tp", AxisSharding::split(0)}}),
            "annotate: value %1, f32[6,8,s0]: axis tp is named twice");
  EXPECT_EQ(error({{"tp", AxisSharding::split(0)}}),
            "annotate: value %1, f32[6,8,s0]: dim 0 of [6,8,s0] cannot be split in 1 parts over "
            "the 4 ranks of tp: it is no multiple of 1*4; leave it whole or split another dim");
  EXPECT_EQ(error({{"dp", AxisSharding::split(1, 2)}, {"tp", AxisSharding::split(1, 2)}}),
            "annotate: value %1, f32[6,8,s0]: dim 1 of [6,8,s0] cannot be split in 2 parts over "
            "the 4 ranks of tp: the 4 that earlier axes leave of it are no multiple of 2*4; leave "
            "it whole or split another dim");
  EXPECT_EQ(error({{"dp", AxisSharding::split(3)}}),
            "annotate: value %1, f32[6,8,s0]: dp splits dim 3 of [6,8,s0], which has 3 dims: name "
            "one of these");
  EXPECT_EQ(error({{"dp", AxisSharding::split(2)}}),
            "annotate: value %1, f32[6,8,s0]: dp splits dim 2 of [6,8,s0], whose extent is known "
            "in a run alone: split a constant dim");
  EXPECT_EQ(error({{"dp", AxisSharding::pending()}}),
            "annotate: value %1, f32[6,8,s0]: axis dp: that a sum pends follows from the op that "
            "makes it: say where it shall lie");
}

// Each fault alone, planted into a module that is in order.
TEST(VerifySharding, CatchesWhatIsPlanted) {
  const Module whole = linear();
  ASSERT_TRUE(verify(whole).ok()) << verify(whole).error().message;
  const auto message = [&](const auto& plant) {
    Module m = whole;
    plant(m);
    const Status st = verify(m, m[0]);
    return st.ok() ? std::string("passed") : st.error().message;
  };
  const auto state = [&](ValueId v, size_t axis, AxisSharding s) {
    return message([&](Module& m) {
      Sharding all = m[0].sharding(v) ? *m[0].sharding(v) : replicated(m.mesh);
      all[axis] = s;
      m[0].set_sharding(v, all);
    });
  };
  // The state that the op may leave: dot sums over k, neg passes parts on.
  EXPECT_EQ(state(2, 1, AxisSharding::pending()), "passed");
  EXPECT_EQ(state(2, 1, AxisSharding::split(1)), "passed");
  EXPECT_EQ(message([](Module& m) {
              m[0].set_sharding(2, {{}, AxisSharding::pending()});
              m[0].set_sharding(3, {{}, AxisSharding::pending()});
            }),
            "passed");
  const auto expect = [](const std::string& have, std::string_view want) {
    EXPECT_NE(have.find(want), std::string::npos) << have;
  };
  expect(state(0, 0, AxisSharding::pending()),
         "V9 sharding: function step: value 0, f32[8,16] [dp:+, tp:1]: over the 2 ranks of dp a "
         "parameter pends, which nobody would join: it may be split");
  expect(state(2, 1, AxisSharding::pending(Combine::kMax)),
         "V9 sharding: function step, node 0 (dot): value 2, f32[8,12] [tp:max]: over the 4 ranks "
         "of tp it pends, but the op makes no such parts");
  // %2 is said to be whole: neg has nothing that pends.
  expect(state(3, 0, AxisSharding::pending()), "node 1 (neg): value 3, f32[8,12] [dp:+]");
  expect(state(1, 1, AxisSharding::split(1, 2)),
         "value 1, f32[16,12] [tp:1/2]: dim 1 of [16,12] cannot be split in 2 parts over the 4 "
         "ranks of tp: it is no multiple of 2*4");
  expect(state(2, 0, AxisSharding::split(2)), "dp splits dim 2 of [8,12], which has 2 dims");
  expect(state(2, 0, AxisSharding::split(0, 0)), "cannot be split in 0 parts");
  expect(state(2, 1, AxisSharding::pending(Combine::kNever)), "pend in a way that no ranks join");
  expect(message([](Module& m) { m[0].set_sharding(2, Sharding(1)); }),
         "it says where it lies on 1 axes, the mesh \"dp=2,tp=4\" has 2");
  expect(message([](Module& m) {
           m.mesh.axes.push_back({"cp", 2});
         }),
         "it says where it lies on 2 axes, the mesh \"dp=2,tp=4,cp=2\" has 3");
  expect(message([](Module& m) { m.mesh = {}; }), "there is none: set Module::mesh");
  expect(message([](Module& m) { m.mesh.axes[1].name = "dp"; }), "axis dp stands there twice");
  expect(message([](Module& m) { m.mesh.axes[1].name = "t p"; }), "must be of letters");
  expect(message([](Module& m) { m[0].set_sharding(7, replicated(m.mesh)); }),
         "it is said of 8 values where they lie, it has 4");
}

// Random annotations are in order; one state changed so that it cannot be is caught, by its axis.
TEST(VerifySharding, RandomFaultsAreCaught) {
  int n_planted = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    Module m;
    ASSERT_TRUE(testing::RandomGraph(m, seed).build().ok());
    m.mesh = testing::random_mesh(rng);
    if (testing::annotate_some(m[0], m.mesh, rng, 3) == 0) continue;
    const Status st = verify(m);
    ASSERT_TRUE(st.ok()) << st.error().message;
    for (ValueId v = 0; v < m[0].shardings.size(); ++v) {
      if (!m[0].sharding(v)) continue;
      const size_t a = rng() % m.mesh.axes.size();
      const Shape& shape = m[0].type(v).shape;
      Module broken = m;
      Sharding& s = broken[0].shardings[v];
      const auto dim = static_cast<int>(rng() % 4);
      const auto parts = static_cast<int64_t>(rng() % 5);
      s[a] = AxisSharding::split(dim, parts);
      // By counting: is every part of the dim in as many equal shares as there are ranks?
      Shape left = shape;
      bool fits = true;
      for (size_t i = 0; i < s.size(); ++i) {
        if (!s[i].is_split()) continue;
        const int64_t ranks = m.mesh.axes[i].size;
        fits = fits && s[i].dim < shape.rank() && shape[s[i].dim].is_const() && s[i].parts > 0 &&
               left[s[i].dim].bound() >= s[i].parts * ranks;
        if (!fits) break;
        const int64_t extent = left[s[i].dim].bound(), share = extent / s[i].parts / ranks;
        fits = share * s[i].parts * ranks == extent;
        left[s[i].dim] = extent / ranks;
      }
      const Status found = verify(broken, broken[0]);
      EXPECT_EQ(found.ok(), fits) << to_text(broken) << (found.ok() ? "" : found.error().message);
      if (fits) continue;
      ++n_planted;
      EXPECT_EQ(found.error().message.rfind("V9 sharding: function random", 0), 0U);
      EXPECT_NE(found.error().message.find(cat("value ", v, ", ")), std::string::npos);
    }
  }
  EXPECT_GT(n_planted, 300);
}

// Mutated text parses or gives an error with its place; what parses prints and parses again.
TEST(ShardingText, MutationsNeverCrash) {
  std::vector<std::string> seeds;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 rng(seed);
    Module m;
    ASSERT_TRUE(testing::RandomGraph(m, seed).build().ok());
    m.mesh = testing::random_mesh(rng);
    testing::annotate_some(m[0], m.mesh, rng, 2);
    seeds.push_back(to_text(m));
  }
  const std::string_view pieces[] = {"[", "]",  ":", "/",   ",",  "+",    "max", "lse", "0",
                                     "9", "-1", "=", "dp:", "[]", "mesh", "tp",  "\n",  " "};
  std::mt19937_64 rng(11);
  int n_parsed = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = seeds[rng() % seeds.size()];
    for (uint64_t edits = 1 + rng() % 3; edits-- > 0;) {
      // Mostly where shardings stand.
      size_t at = rng() % text.size();
      if (rng() % 4 != 0) at = std::min(text.find('[', at), text.size() - 1) + rng() % 8;
      at = std::min(at, text.size() - 1);
      const std::string_view piece = pieces[rng() % std::size(pieces)];
      if (rng() % 2 == 0)
        text.insert(at, piece);
      else
        text.replace(at, std::min<size_t>(1 + rng() % 3, text.size() - at), piece);
    }
    n_parsed += test::goes_round(text);
  }
  EXPECT_GT(n_parsed, 100);
}

}  // namespace
}  // namespace tegula
