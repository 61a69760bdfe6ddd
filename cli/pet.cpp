// `tegula pet`: where two programs differ, by a few positions a box, and the second corrected.
#include "tools/rules/pet/pet.h"

#include <cstdio>

#include "cli/command.h"
#include "tegula/base/algorithm.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/ir/text.h"

namespace tegula::cli {

namespace {

struct Options {
  std::string file, correct, graph;
  std::vector<std::string> sizes;
  bool json = false, generates = false;
};

Json json_of(const std::vector<superopt::Box>& boxes) {
  Json::Array all;
  for (const superopt::Box& b : boxes) {
    Json::Array lo(b.lo.begin(), b.lo.end()), hi(b.hi.begin(), b.hi.end());
    all.push_back(Json::object({{"lo", std::move(lo)}, {"hi", std::move(hi)}}));
  }
  return Json(std::move(all));
}

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

Status run(const Options& o) {
  auto rules = TEGULA_TRY((o.generates ? superopt::programs_of : superopt::parse_rules)(
      TEGULA_TRY(read_file(o.file)), o.file));
  if (rules.empty()) return invalid_argument(cat(o.file, ": has no rule"));
  Json::Array all;
  std::string corrected, graph;
  TEGULA_TRY(superopt::check_sizes(o.sizes, rules, o.file));
  int64_t n_programs = 0;
  if (o.generates)
    for (const superopt::Rule& program : std::exchange(rules, {})) {
      auto mutants = TEGULA_TRY(
          superopt::mutants_of(program, TEGULA_TRY(superopt::sizes_of(o.sizes, program))));
      n_programs += mutants.n_programs;
      for (superopt::Rule& r : mutants.rules) rules.push_back(std::move(r));
    }
  for (const superopt::Rule& rule : rules) {
    const superopt::Assignment at = TEGULA_TRY(superopt::sizes_of(o.sizes, rule));
    const superopt::Partial p = TEGULA_TRY(superopt::compare(rule, at));
    int64_t n = 1, n_wrong = 0;
    for (const int64_t size : p.shape) n *= size;
    for (const superopt::Box& b : p.wrong) n_wrong += b.n_elements();
    const superopt::Rule whole = TEGULA_TRY(superopt::correct(rule, at, p.wrong));
    const int64_t original = work_of(whole.graph, whole.left, {}),
                  other = work_of(rule.graph, rule.right, at),
                  fixed = work_of(whole.graph, whole.right, {});
    // The written program is tested as the read ones were.
    const superopt::Assignment constant{{}, at.scalars};
    if (!TEGULA_TRY(superopt::compare(whole, constant)).wrong.empty())
      return internal_error(cat("rule ", rule.name, ": the correction is not right"));
    corrected += whole.text() + "\n";
    if (!o.graph.empty()) graph = to_text(TEGULA_TRY(superopt::graph_of(whole, whole.right)));
    const std::string text = rule.graph.text(rule.right);
    if (!o.json)
      std::printf("%s\n", cat(rule.name, o.generates ? cat(" = ", text) : "", ": ", n_wrong, " of ",
                              n, " elements differ, in ", p.wrong.size(), " boxes; tested ",
                              p.positions_tested, " positions of ", p.n_boxes,
                              " boxes; correction: ", fixed - other,
                              " multiply-adds beside the original's ", original)
                              .c_str());
    all.push_back(Json::object({{"rule", rule.name},
                                {"right", text},
                                {"boxes", json_of(p.wrong)},
                                {"elements", n},
                                {"elements_wrong", n_wrong},
                                {"boxes_tested", p.n_boxes},
                                {"positions_tested", p.positions_tested},
                                {"multiply_adds", original},
                                {"multiply_adds_of_correction", fixed - other},
                                {"share_of_boxes", share(n_wrong, n)},
                                {"share_of_correction", share(fixed - other, original)}}));
  }
  if (!o.graph.empty() && all.size() != 1)
    return invalid_argument(
        cat("--graph is of one program: there are ", all.size(), " rules, take one of them"));
  if (!o.graph.empty()) TEGULA_TRY(replace_file(o.graph, graph));
  if (!o.correct.empty()) TEGULA_TRY(replace_file(o.correct, corrected));
  if (!o.json) return {};
  Json j = all.size() == 1 && !o.generates ? all[0] : Json::object({{"rules", std::move(all)}});
  if (o.generates) j.set("programs", n_programs);
  print_line(j);
  return {};
}

}  // namespace

void add_pet(const Command& app, int& exit_code) {
  static Options o;
  const auto cmd =
      app.add_command("pet", "Where a program is right in part, and its correction (PET)");
  cmd.add_option("file", o.file, "Rules: left is the original, right what should stand for it")
      .type_name("FILE")
      .required();
  cmd.add_option("--sizes", o.sizes, "Of the rules' symbols: n=2,h=8")
      .split_at(',')
      .type_name("NAME=N,…");
  cmd.add_option("--correct", o.correct,
                 "Write the right sides with wrong boxes computed as at left, from slices, to OUT")
      .type_name("OUT");
  cmd.add_option("--graph", o.graph,
                 "Write the corrected program as a graph for bench graph to OUT")
      .type_name("OUT");
  cmd.add_flag("--generate", o.generates,
               "Look for programs that are right in part: FILE has left sides alone");
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
  cmd.callback([&exit_code] { exit_code = report(run(o)); });
}

}  // namespace tegula::cli
