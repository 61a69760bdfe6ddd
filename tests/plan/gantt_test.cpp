// The picture of a schedule: what it must show, read back from its text.
#include "tegula/plan/gantt.h"

#include <algorithm>
#include <regex>

#include "tests/plan/schedules.h"

namespace tegula::testing {
namespace {

struct Box {
  double x, y, width, height;
  std::string title;
};

std::string draw(const Schedule& s, const Links& links, Simulated& out) {
  const std::vector<StagePrice> stages(
      static_cast<size_t>(s.shape.n_stages),
      {.forward_s = 1e-3, .backward_s = 1e-3, .weight_gradients_s = 1e-3, .output_bytes = 100});
  const StageChain chain = chain_of(s, stages);
  auto r = simulate(chain.program, s, {.seconds = chain.seconds, .links = links});
  EXPECT_TRUE(r.ok());
  out = std::move(*r);
  return gantt_svg(chain.program, out, "a <title> & more");
}

std::vector<Box> boxes(const std::string& svg) {
  std::vector<Box> all;
  const std::regex box(
      "<rect x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" height=\"([0-9.]+)\"[^>]*>"
      "<title>([^<]*)</title>");
  for (auto i = std::sregex_iterator(svg.begin(), svg.end(), box); i != std::sregex_iterator(); ++i)
    all.push_back(
        {std::stod((*i)[1]), std::stod((*i)[2]), std::stod((*i)[3]), std::stod((*i)[4]), (*i)[5]});
  return all;
}

TEST(Gantt, ABoxForEachPartAndNoneOverAnother) {
  for (const ScheduleDef* def : all_schedules()) {
    SCOPED_TRACE(def->name);
    const Schedule s = made(def->name, shape_of(def->name, 4, 8));
    Simulated out;
    const std::string svg = draw(s, {}, out);
    const std::vector<Box> all = boxes(svg);
    EXPECT_EQ(all.size(), out.items.size());
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const Box &a = all[i], &b = all[j];
        const double air = .11;  // coordinates have one decimal
        EXPECT_FALSE(a.x + air < b.x + b.width && b.x + air < a.x + a.width &&
                     a.y + air < b.y + b.height && b.y + air < a.y + a.height)
            << a.title << " lies over " << b.title;
      }
    // Rows from top to bottom, time from left to right.
    const auto find = [&](const std::string& what) -> const Box& {
      const auto at = std::find_if(all.begin(), all.end(), [&](const Box& b) {
        return b.title.find(what) != std::string::npos;
      });
      EXPECT_NE(at, all.end()) << what;
      return at == all.end() ? all[0] : *at;
    };
    EXPECT_LT(find("rank 0, ").y, find("rank 3, ").y);
    EXPECT_LT(find("stage 0's forward of micro-batch 0").x,
              find("stage 3's forward of micro-batch 0").x);
  }
}

TEST(Gantt, MessagesThatTakeTimeAreLines) {
  const Schedule s = made("one_f_one_b", {3, 3, 4, 1});
  Simulated out;
  EXPECT_EQ(draw(s, {}, out).find("bytes from rank"), std::string::npos);
  const std::string svg = draw(s, {.bytes_per_s = 1e6}, out);
  const std::regex line("100 bytes from rank [0-9] to rank [0-9]");
  EXPECT_EQ(
      std::distance(std::sregex_iterator(svg.begin(), svg.end(), line), std::sregex_iterator()),
      2 * 2 * 4);
}

TEST(Gantt, TextIsEscaped) {
  Simulated out;
  const std::string svg = draw(made("gpipe", {2, 2, 2, 1}), {}, out);
  EXPECT_NE(svg.find("a &lt;title&gt; &amp; more"), std::string::npos);
}

}  // namespace
}  // namespace tegula::testing
