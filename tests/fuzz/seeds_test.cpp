// Every fuzz target on its seeds, by the ordinary compiler. A target whose seeds are all refused
// has lost what it looks at (a format that changed, say), so that each must accept some; and each
// must refuse some.
//
// TEGULA_WRITE_SEEDS=1 writes the seeds of graphs, plans and tile programs anew, where their text
// has changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <span>
#include <vector>

#include "tegula/io/file.h"
#include "tegula/ir/text.h"
#include "tegula/ops/control.h"
#include "tegula/plan/plan_json.h"
#include "tegula/runtime/compile.h"
#include "tegula/tile/program.h"
#include "tests/common/random_graph.h"
#include "tests/common/random_shardings.h"
#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

namespace fs = std::filesystem;
const fs::path kSeeds = "tests/fuzz/seeds";

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(FuzzSeeds, EveryTargetTakesSomeAndRefusesSome) {
  size_t n_bytes = 0;
  ASSERT_GE(all_targets().size(), 12U);
  for (const Target* target : all_targets()) {
    SCOPED_TRACE(target->name);
    ASSERT_TRUE(fs::is_directory(kSeeds / target->name)) << "it has no seeds";
    int accepted = 0, refused = 0;
    for (const fs::path& file : files_of(kSeeds / target->name)) {
      SCOPED_TRACE(file);
      const auto bytes = read_file(file.string());
      ASSERT_TRUE(bytes.ok()) << bytes.error().message;
      n_bytes += bytes->size();
      ++(target->run(*bytes) ? accepted : refused);
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 0);
  }
  EXPECT_LT(n_bytes, 300'000U) << "seeds are small";
}

// A little of what a fuzzer does to a text: bytes changed, pieces left out and doubled.
TEST(FuzzSeeds, AndALittleAroundThem) {
  std::mt19937_64 rng(1);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  for (const Target* target : all_targets()) {
    SCOPED_TRACE(target->name);
    for (const fs::path& file : files_of(kSeeds / target->name)) {
      const std::string seed = *read_file(file.string());
      if (seed.size() > 20'000) continue;
      for (int i = 0; i < 20 && !seed.empty(); ++i) {
        std::string text = seed;
        const size_t at = pick(text.size()), n = std::min(pick(16) + 1, text.size() - at);
        switch (pick(4)) {
          case 0:
            text[at] = static_cast<char>(text[at] ^ (1 << pick(8)));
            break;
          case 1:
            text.erase(at, n);
            break;
          case 2:
            text.insert(pick(text.size()), text.substr(at, n));
            break;
          default: {
            const char* numbers[] = {"-1", "0", "9223372036854775807", "1e308", "4294967296"};
            const size_t digit = text.find_first_of("0123456789", at);
            if (digit == std::string::npos) break;
            text.replace(digit, 1, numbers[pick(5)]);
          }
        }
        target->run(text);
      }
    }
  }
}

void write_seed(const std::string& target, const std::string& name, const std::string& text) {
  put((kSeeds / target / name).string(), text);
}

std::string loop_text() {
  Module m;
  Builder b(m, "loop");
  const Dim n = m.add_symbol("n", 5);
  const Type h = {DType::kF32, {3}};
  const Var h0 = b.param("h", h, Role::kState), x = b.param("x", {DType::kF32, {n, 3}});
  auto r = scan(b, {h0}, {x}, {}, [](Builder&, Vars c, Vars xs, Vars) -> StepResult {
    return {{tanh(c[0] + xs[0])}, {c[0] * 2.0}};
  });
  const auto y = cond(
      gt(reduce_sum(r.carry[0], {0}), 0.0), {r.carry[0]},
      [](Builder&, Vars v) { return std::vector{sin(v[0])}; },
      [](Builder&, Vars v) { return std::vector{v[0] * 2.0}; });
  b.result("y", y[0]), b.result("ys", r.ys[0]), b.result("h", r.carry[0] + 1.0);
  b.donate("h", "h");
  EXPECT_TRUE(b.finish_into_module().ok());
  return to_text(m);
}

bool by_size(const std::string& a, const std::string& b) { return a.size() < b.size(); }

TEST(FuzzSeeds, Written) {
  if (std::getenv("TEGULA_WRITE_SEEDS") == nullptr)
    GTEST_SKIP() << "they are, unless TEGULA_WRITE_SEEDS is set";
  std::vector<std::string> graphs = {loop_text()};
  for (uint64_t seed = 0; graphs.size() < 8; ++seed) {
    Module m;
    testing::RandomGraphOptions o;
    o.n_nodes = 6 + static_cast<int>(seed % 5);
    if (testing::RandomGraph(m, seed, o).build().ok()) graphs.push_back(to_text(m));
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 rng(seed);
    Module m;
    testing::RandomGraphOptions o;
    o.n_nodes = 8, o.is_symbolic = false;
    ASSERT_TRUE(testing::RandomGraph(m, seed, o).build().ok());
    m.mesh = testing::random_mesh(rng, 8);
    testing::annotate_some(m[0], m.mesh, rng, 2);
    write_seed("graph", cat("sharding-", seed), to_text(m));
  }
  for (size_t i = 0; i < graphs.size(); ++i) {
    write_seed("graph", cat("graph-", i), graphs[i]);
    auto m = std::make_shared<Module>(std::move(*module_from_text(graphs[i])));
    const auto f = static_cast<FuncId>(m->functions.size() - 1);
    const auto compiled = compile(m, f, {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    if (i < 5) write_seed("plan", cat("plan-", i), plan_to_json(*compiled->plan));
    std::string longest;
    for (const Step& s : compiled->plan->steps)
      if (s.program) longest = std::max(longest, tile::to_text(*s.program), by_size);
    if (!longest.empty()) write_seed("tile", cat("tile-", i), longest);
  }
}

}  // namespace
}  // namespace tegula::fuzz
