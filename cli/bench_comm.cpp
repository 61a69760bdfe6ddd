// `tegula bench comm`: collectives between processes, timed, and what a line through the times
// says.
#include <chrono>
#include <cmath>

#include "cli/bench.h"
#include "cli/command.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/comm/launch.h"
#include "tegula/ops/collective.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"

namespace tegula::cli {

namespace {

struct Options {
  int64_t processes = 2, repeats = 21;
  std::string op = "all", bytes;
  bool json = false;
};

// A collective over n ranks, of a whole tensor [n, columns] that is its operand or its result.
struct Op {
  const char* name;
  bool has_a_row;  // each rank's operand is one of its n rows
  Var (*call)(Var x, const Group& g);
};
constexpr Op kOps[] = {
    {"send_recv", false,
     [](Var x, const Group& g) {
       std::vector<int64_t> from;
       for (int64_t r = 0; r < g.n_ranks; ++r) from.push_back((r + 1) % g.n_ranks);
       return send_recv(x, g, from);
     }},
    {"broadcast_from", false, [](Var x, const Group& g) { return broadcast_from(x, g, 0); }},
    {"reduce_to", false, [](Var x, const Group& g) { return reduce_to(x, g, 0); }},
    {"all_gather", true, [](Var x, const Group& g) { return all_gather(x, g, 0); }},
    {"reduce_scatter", false, [](Var x, const Group& g) { return reduce_scatter(x, g, 0); }},
    {"all_reduce", false, [](Var x, const Group& g) { return all_reduce(x, g); }},
    {"all_to_all", false, [](Var x, const Group& g) { return all_to_all(x, g, 1, 0); }},
};

struct Row {
  const char* op;
  int64_t bytes;
  double seconds, fitted_seconds = 0;
};

// seconds = alpha + bytes / rate.
struct Line {
  double alpha_s = 0, s_per_byte = 0;
  double at(double bytes) const { return alpha_s + bytes * s_per_byte; }
};

// The line of the least relative squares through every second row.
Line fitted(std::span<const Row> rows) {
  double w = 0, wn = 0, wnn = 0, wt = 0, wnt = 0;
  for (size_t i = 0; i < rows.size(); i += 2) {
    const double t = rows[i].seconds, n = static_cast<double>(rows[i].bytes), u = 1 / (t * t);
    w += u, wn += u * n, wnn += u * n * n, wt += u * t, wnt += u * n * t;
  }
  const double det = w * wnn - wn * wn;
  if (det <= 0) return {wt / w, 0};  // one size
  const Line line{(wt * wnn - wnt * wn) / det, (w * wnt - wn * wt) / det};
  if (line.s_per_byte < 0) return {wt / w, 0};
  return line.alpha_s < 0 ? Line{0, wnt / wnn} : line;
}

Result<std::vector<int64_t>> sizes_of(const Options& o) {
  std::vector<int64_t> sizes;
  if (!o.bytes.empty()) {
    const auto n = read_bytes(o.bytes);
    if (!n.ok() || *n < 4)
      return invalid_argument(cat("--bytes '", o.bytes, "': write a size from 4 bytes on: 8MiB"));
    return std::vector<int64_t>{*n};
  }
  for (int64_t n = 256; n <= 16 << 20; n *= 2) sizes.push_back(n);
  return sizes;
}

// The median of a call's seconds, on this rank. All do the same number of calls.
Result<double> time_one(const Op& op, int64_t bytes, const Options& o, RankGroup& group, Rank& rank,
                        int64_t& whole_bytes) {
  using Clock = std::chrono::steady_clock;
  const int64_t n = group.mesh().n_ranks();
  const int64_t columns = std::max<int64_t>(1, bytes / 4 / n / n) * n;
  whole_bytes = 4 * n * columns;
  auto module = std::make_shared<Module>();
  Builder b(*module, op.name);
  const Type type{DType::kF32, {op.has_a_row ? 1 : n, columns}};
  b.result("y", op.call(b.param("x", type), {"ranks", n}));
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  CompileOptions options;
  options.plan.target = Target::this_cpu(1);
  const Compiled compiled = TEGULA_TRY(compile(module, f, options));
  const Region x = TEGULA_TRY(Region::allocate(rank.memory, type.bytes()));
  const auto session = TEGULA_TRY(Session::create(compiled.plan, rank));
  TEGULA_TRY(session->bind("x", x.data()));
  std::vector<double> seconds;
  const int64_t in_a_row = std::clamp<int64_t>((1 << 20) / whole_bytes, 1, 64);
  for (int64_t i = -2; i < o.repeats; ++i) {
    TEGULA_TRY(group.segment().exchange(""));
    const auto start = Clock::now();
    TEGULA_TRY(group.run([&](int64_t) -> Status {
      for (int64_t k = 0; k < in_a_row; ++k) TEGULA_TRY(session->run());
      return {};
    }));
    const std::chrono::duration<double> took = Clock::now() - start;
    if (i >= 0) seconds.push_back(took.count() / static_cast<double>(in_a_row));
  }
  std::nth_element(seconds.begin(), seconds.begin() + o.repeats / 2, seconds.end());
  return seconds[static_cast<size_t>(o.repeats / 2)];
}

void print(const std::vector<Row>& rows, const std::vector<std::pair<Row, Line>>& lines,
           const Options& o) {
  Json::Array json_rows, json_lines;
  for (const auto& [first, line] : lines) {
    std::printf("%-15s %.1f us + bytes / %.2f GB/s\n", first.op, line.alpha_s * 1e6,
                line.s_per_byte > 0 ? 1e-9 / line.s_per_byte : INFINITY);
    json_lines.push_back(
        Json::object({{"op", first.op},
                      {"alpha_s", line.alpha_s},
                      {"bytes_per_s", line.s_per_byte > 0 ? Json(1 / line.s_per_byte) : Json()}}));
  }
  for (const Row& r : rows) {
    if (!o.json)
      std::printf("  %-15s %10lld bytes %12.2f us, fitted %12.2f us\n", r.op,
                  static_cast<long long>(r.bytes), r.seconds * 1e6, r.fitted_seconds * 1e6);
    json_rows.push_back(Json::object({{"op", r.op},
                                      {"algorithm", "direct"},
                                      {"ranks", o.processes},
                                      {"bytes", r.bytes},
                                      {"seconds", r.seconds},
                                      {"fitted_seconds", r.fitted_seconds},
                                      {"chosen", true}}));
  }
  if (!o.json) return;
  Json all = Json::object({{"rows", std::move(json_rows)}, {"fits", json_lines}});
  // A rank's exchange with one other.
  if (std::string_view(lines[0].first.op) == "send_recv") all.set("link", json_lines[0]);
  std::printf("%s\n", all.dump().c_str());
}

Result<int> run_rank(const Options& o, Segment& segment) {
  RankGroup group(Mesh{{{"ranks", o.processes}}}, segment);
  Rank rank(1);
  group.join(rank, group.first_rank());
  std::vector<Row> rows;
  std::vector<std::pair<Row, Line>> lines;
  for (const Op& op : kOps) {
    if (o.op != "all" && o.op != op.name) continue;
    const size_t first = rows.size();
    for (const int64_t bytes : TEGULA_TRY(sizes_of(o))) {
      Row row{op.name, bytes, 0};
      row.seconds = TEGULA_TRY(time_one(op, bytes, o, group, rank, row.bytes));
      // Small ones may have become the same size.
      if (rows.size() > first && rows.back().bytes == row.bytes) continue;
      rows.push_back(row);
    }
    const Line line = fitted(std::span(rows).subspan(first));
    for (size_t i = first; i < rows.size(); ++i)
      rows[i].fitted_seconds = line.at(static_cast<double>(rows[i].bytes));
    lines.emplace_back(rows[first], line);
  }
  if (segment.process() == 0) print(rows, lines, o);
  return 0;
}

int run(const Options& o) {
  auto here = launched();
  if (!here.ok()) return report(here.error());
  const Mesh mesh{{{"ranks", o.processes}}};
  if (const auto sizes = sizes_of(o); !sizes.ok()) return report(sizes.error(), kUsage);
  if (!here->segment) {
    Launch l;
    l.size = {o.processes, o.processes, RankGroup::flow_bytes(mesh), machine_memory()};
    const auto code = launch(l);
    return code.ok() ? *code : report(code.error());
  }
  const auto code = run_rank(o, *here->segment);
  if (code.ok()) return *code;
  here->segment->fail(-1, code.error());
  return kEnvironment;
}

}  // namespace

void add_bench_comm(const Command& bench, int& exit_code) {
  static Options o;
  const auto cmd = bench.add_command("comm", "Collectives between processes of this machine");
  whole(cmd.add_option("--processes", o.processes, "Processes, a rank each"), 2, 64);
  std::vector<std::string> names = {"all"};
  for (const Op& op : kOps) names.emplace_back(op.name);
  one_of(cmd.add_option("--op", o.op, "One of them"), names);
  cmd.add_option("--bytes", o.bytes, "Of the whole tensor; default: 256 bytes to 16 MiB")
      .type_name("BYTES");
  whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
  cmd.callback([&exit_code] { exit_code = run(o); });
}

}  // namespace tegula::cli
