// `tegula bench comm`: collectives between processes, timed by algorithm, what a line through the
// times says, and which is chosen; plans read the table that it keeps.
#include <cmath>
#include <optional>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/process.h"
#include "tegula/base/amounts.h"
#include "tegula/base/clock.h"
#include "tegula/base/median.h"
#include "tegula/base/range.h"
#include "tegula/comm/launch.h"
#include "tegula/io/file.h"
#include "tegula/kernels/cpu/common/algorithm.h"
#include "tegula/ops/collective.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/known_links.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"

namespace tegula::cli {

namespace {

using enum CollectiveKind;

struct Options {
  int64_t processes = 2, repeats = 21;
  std::string op = "all", bytes, most = "16MiB", algorithm = "all";
  bool json = false;
  std::string transport = "shm";
};

// A collective over n ranks, of a whole tensor [n, columns] that is its operand or its result.
struct Op {
  const char* name;
  std::optional<CollectiveKind> kind;
  bool has_a_row;  // each rank's operand is one of its n rows
  Var (*call)(Var x, const Group& g);
};
constexpr Op kOps[] = {
    {"send_recv", std::nullopt, false,
     [](Var x, const Group& g) {
       std::vector<int64_t> from;
       for (int64_t r = 0; r < g.n_ranks; ++r) from.push_back((r + 1) % g.n_ranks);
       return send_recv(x, g, from);
     }},
    {"broadcast_from", kBroadcast, false,
     [](Var x, const Group& g) { return broadcast_from(x, g, 0); }},
    {"reduce_to", kReduce, false, [](Var x, const Group& g) { return reduce_to(x, g, 0); }},
    {"scatter_from", kScatter, false,
     [](Var x, const Group& g) { return scatter_from(x, g, 0, 0); }},
    {"gather_to", kGather, true, [](Var x, const Group& g) { return gather_to(x, g, 0, 0); }},
    {"all_gather", kAllGather, true, [](Var x, const Group& g) { return all_gather(x, g, 0); }},
    {"reduce_scatter", kReduceScatter, false,
     [](Var x, const Group& g) { return reduce_scatter(x, g, 0); }},
    {"all_reduce", kAllReduce, false, [](Var x, const Group& g) { return all_reduce(x, g); }},
    {"all_to_all", kAllToAll, false, [](Var x, const Group& g) { return all_to_all(x, g, 0, 1); }},
};

// seconds = alpha + bytes / rate.
struct Line {
  double alpha_s = 0, s_per_byte = 0;
  double at(double bytes) const { return alpha_s + bytes * s_per_byte; }
};

// One algorithm of one op, over all sizes.
struct Series {
  const Op* op;
  const AlgorithmDef* how;
  std::vector<CommRow> rows;
  Line line;
  double error = 0;  // of the line on the sizes that it was not fitted on, the median; NaN: none
};

// The line with the least sum of relative deviations from every second row, by least squares whose
// weights follow the deviations: a time that something else has spoilt counts little.
Line fitted(std::span<const CommRow> rows) {
  constexpr int kRounds = 30;
  constexpr double kSmall = 1e-3;  // a relative deviation that counts in full
  Line line;
  for (int round = 0; round < kRounds; ++round) {
    double w = 0, wn = 0, wnn = 0, wt = 0, wnt = 0;
    for (size_t i = 0; i < rows.size(); i += 2) {
      const double t = rows[i].seconds, n = static_cast<double>(rows[i].bytes);
      const double off = round == 0 ? 1 : std::max(std::abs(line.at(n) / t - 1), kSmall);
      const double u = 1 / (t * t * off);
      w += u, wn += u * n, wnn += u * n * n, wt += u * t, wnt += u * n * t;
    }
    const double det = w * wnn - wn * wn;
    if (rows.size() < 3) return {wt / w, 0};  // one size
    line = {(wt * wnn - wnt * wn) / det, (w * wnt - wn * wt) / det};
    if (line.s_per_byte < 0) line = {wt / w, 0};
    if (line.alpha_s < 0) line = {0, wnt / wnn};
  }
  return line;
}

void fit(Series& s) {
  s.line = fitted(s.rows);
  std::vector<double> errors;
  for (size_t i = 0; i < s.rows.size(); ++i) {
    CommRow& r = s.rows[i];
    r.fitted_seconds = s.line.at(static_cast<double>(r.bytes));
    if (i % 2 == 1) errors.push_back(std::abs(r.fitted_seconds / r.seconds - 1));
  }
  s.error = errors.empty() ? NAN : median(errors);
}

// Is it the least of its op at that size: measured, or by the lines?
bool is_least(const std::vector<Series>& all, const Series& s, size_t i, double CommRow::*seconds) {
  return !any_of(all, [&](const Series& other) {
    return other.op == s.op && i < other.rows.size() && &other != &s &&
           other.rows[i].*seconds < s.rows[i].*seconds;
  });
}

void choose(std::vector<Series>& all) {
  for (Series& s : all)
    for (size_t i = 0; i < s.rows.size(); ++i)
      s.rows[i].chosen = is_least(all, s, i, &CommRow::seconds);
}

Result<std::vector<int64_t>> sizes_of(const Options& o) {
  std::vector<int64_t> sizes;
  if (!o.bytes.empty()) {
    const auto n = read_bytes(o.bytes);
    if (!n.ok() || *n < 4)
      return invalid_argument(cat("--bytes '", o.bytes, "': write a size from 4 bytes on: 8MiB"));
    return std::vector<int64_t>{*n};
  }
  const auto most = read_bytes(o.most);
  if (!most.ok() || *most < 256)
    return invalid_argument(cat("--most '", o.most, "': write a size from 256 bytes on: 1MiB"));
  for (int64_t n = 256; n <= *most; n *= 2) sizes.push_back(n);
  return sizes;
}

// The median of a call's seconds, on this rank. All do the same number of calls.
Result<double> time_one(const Op& op, const AlgorithmDef& how, int64_t bytes, const Options& o,
                        RankGroup& group, Rank& rank, int64_t& whole_bytes) {
  const int64_t n = group.mesh().n_ranks();
  const int64_t columns = std::max<int64_t>(1, bytes / 4 / n / n) * n;
  whole_bytes = 4 * n * columns;
  auto module = std::make_shared<Module>();
  Builder b(*module, op.name);
  const Type type{DType::kF32, {op.has_a_row ? 1 : n, columns}};
  b.result("y", op.call(b.param("x", type), {"ranks", n}));
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  if (how.name != "direct")
    for (Node& node : (*module)[f].nodes)
      if (node.op->collective) node.attrs.set("algorithm", std::string(how.name));
  CompileOptions options;
  options.plan.target = Target::this_cpu(1);
  group.describe_links(options.plan.target);
  const Compiled compiled = TEGULA_TRY(compile(module, f, options));
  const Region x = TEGULA_TRY(Region::allocate(rank.memory, type.bytes()));
  const auto session = TEGULA_TRY(Session::create(compiled.plan, rank));
  TEGULA_TRY(session->bind("x", x.data()));
  std::vector<double> seconds;
  // A slowed link's times are long.
  const int64_t in_a_row = group.brings() ? 1 : std::clamp<int64_t>((1 << 20) / whole_bytes, 1, 64);
  for (int64_t i = -2; i < o.repeats; ++i) {
    TEGULA_TRY(group.segment().exchange(""));
    const Stopwatch watch;
    TEGULA_TRY(group.run([&](int64_t) -> Status {
      for (int64_t k = 0; k < in_a_row; ++k) TEGULA_TRY(session->run());
      return {};
    }));
    if (i >= 0) seconds.push_back(watch.seconds() / static_cast<double>(in_a_row));
  }
  return median(std::move(seconds));
}

// Where the lines of an op's algorithms cross, from the smallest size on.
void print_choice(const std::vector<Series>& all, const Op& op) {
  std::string text;
  const Series* before = nullptr;
  size_t n_rows = 0;
  for (const Series& s : all)
    if (s.op == &op) n_rows = std::max(n_rows, s.rows.size());
  for (size_t i = 0; i < n_rows; ++i)
    for (const Series& s : all) {
      if (s.op != &op || i >= s.rows.size() || !is_least(all, s, i, &CommRow::fitted_seconds))
        continue;
      if (&s == before) break;
      if (before) {
        const double gain = before->line.s_per_byte - s.line.s_per_byte;
        append(text,
               cat(", from ", static_cast<int64_t>((s.line.alpha_s - before->line.alpha_s) / gain),
                   " bytes on "));
      }
      append(text, s.how->name);
      before = &s;
      break;
    }
  std::printf("%-15s by its lines: %s\n", op.name, text.c_str());
}

void print(const std::vector<Series>& all, const Options& o) {
  Json::Array rows, fits;
  Json link;
  for (const Series& s : all) {
    const double rate = s.line.s_per_byte > 0 ? 1 / s.line.s_per_byte : INFINITY;
    if (!o.json)
      std::printf("%-15s %-8s %10.1f us + bytes / %.3f GB/s, off by %.0f %% between\n", s.op->name,
                  std::string(s.how->name).c_str(), s.line.alpha_s * 1e6, rate * 1e-9,
                  std::isnan(s.error) ? 0 : 100 * s.error);
    fits.push_back(Json::object({{"op", s.op->name},
                                 {"algorithm", s.how->name},
                                 {"alpha_s", s.line.alpha_s},
                                 {"bytes_per_s", s.line.s_per_byte > 0 ? Json(rate) : Json()},
                                 {"error", std::isnan(s.error) ? Json() : Json(s.error)}}));
    if (!s.op->kind)
      link = Json::object(
          {{"alpha_s", s.line.alpha_s}, {"bytes_per_s", rate < INFINITY ? Json(rate) : Json()}});
    for (const CommRow& r : s.rows) {
      if (!o.json)
        std::printf("  %10lld bytes %12.2f us, fitted %12.2f us%s\n",
                    static_cast<long long>(r.bytes), r.seconds * 1e6, r.fitted_seconds * 1e6,
                    r.chosen ? "  chosen" : "");
      rows.push_back(Json::object({{"op", r.op},
                                   {"algorithm", r.algorithm},
                                   {"ranks", r.ranks},
                                   {"bytes", r.bytes},
                                   {"seconds", r.seconds},
                                   {"fitted_seconds", r.fitted_seconds},
                                   {"chosen", r.chosen}}));
    }
  }
  if (!o.json)
    for (const Op& op : kOps)
      if (any_of(all, [&](const Series& s) { return s.op == &op; })) print_choice(all, op);
  if (!o.json) return;
  // The link is a rank's exchange with one other.
  Json out = Json::object({{"rows", std::move(rows)}, {"fits", std::move(fits)}});
  if (!link.is_null()) out.set("link", std::move(link));
  print_line(out);
}

// Rows that were measured of all sizes become this machine's, beside what it has of others.
Status keep(const std::vector<Series>& all, const Options& o) {
  if (!o.bytes.empty()) return {};
  const std::string directory = tuning_directory({});
  CommTable table(links_name());
  if (!directory.empty() && path_exists(table.path(directory)))
    if (const Status st = table.load(directory); !st.ok()) print_note(st.error().message);
  for (const Series& s : all) {
    std::erase_if(table.rows, [&](const CommRow& r) {
      return r.op == s.op->name && r.algorithm == s.how->name && r.ranks == o.processes;
    });
    table.rows.insert(table.rows.end(), s.rows.begin(), s.rows.end());
    if (s.op->kind) continue;
    table.link_s = s.line.alpha_s;
    table.link_bytes_per_s = s.line.s_per_byte > 0 ? 1 / s.line.s_per_byte : 0;
  }
  return table.save(directory);
}

Result<int> run_rank(const Options& o, Segment& segment) {
  RankGroup group(Mesh{{{"ranks", o.processes}}}, segment);
  Rank rank(1);
  group.join(rank, group.first_rank());
  std::vector<Series> all;
  for (const Op& op : kOps)
    for (const AlgorithmDef* how : all_algorithms()) {
      const bool is_direct = how->name == "direct";
      if ((o.op != "all" && o.op != op.name) || !(op.kind ? how->does(*op.kind) : is_direct) ||
          (o.algorithm != "all" && o.algorithm != how->name && op.kind))
        continue;
      Series s{&op, how, {}, {}, 0};
      for (const int64_t bytes : TEGULA_TRY(sizes_of(o))) {
        CommRow row{op.name,     std::string(how->name),
                    o.processes, bytes,
                    0,           0,
                    false,       op.kind && !is_exact(*how, *op.kind)};
        row.seconds = TEGULA_TRY(time_one(op, *how, bytes, o, group, rank, row.bytes));
        // Small ones may have become the same size.
        if (s.rows.empty() || s.rows.back().bytes != row.bytes) s.rows.push_back(std::move(row));
      }
      fit(s);
      all.push_back(std::move(s));
    }
  if (segment.process() != 0) return 0;
  choose(all);
  print(all, o);
  // Plans of threads and processes here read what shared memory takes.
  if (o.transport == "shm") TEGULA_TRY(keep(all, o));
  return 0;
}

int run(const Options& o) {
  const auto link = link_speed_of_environment();
  if (!link.ok()) return report(link.error(), kUsage);
  if (const auto sizes = sizes_of(o); !sizes.ok()) return report(sizes.error(), kUsage);
  return run_processes({"ranks", o.processes}, o.transport == "tcp", [&](Segment& segment) {
    segment.slow(*link);
    return run_rank(o, segment);
  });
}

}  // namespace

int run_processes(const MeshAxis& axis, bool is_tcp,
                  const std::function<Result<int>(Segment&)>& rank) {
  const auto here = launched();
  if (!here.ok()) return report(here.error());
  if (!here->segment) {
    Launch l;
    l.size = {axis.size, axis.size, RankGroup::flow_bytes(Mesh{{axis}}), machine_memory(), is_tcp};
    const auto code = launch(l);
    return code.ok() ? *code : report(code.error());
  }
  if (here->segment->failure()) return kEnvironment;
  const auto code = rank(*here->segment);
  if (code.ok()) return *code;
  here->segment->fail(-1, code.error());
  return kEnvironment;
}

void add_bench_comm(const Command& bench, int& exit_code) {
  static Options o;
  const auto cmd = bench.add_command("comm", "Collectives between processes of this machine");
  whole(cmd.add_option("--processes", o.processes, "Processes, a rank each"), 2, 64);
  one_of(cmd.add_option("--transport", o.transport, "What is between them"), {"shm", "tcp"});
  std::vector<std::string> names = {"all"};
  for (const Op& op : kOps) names.emplace_back(op.name);
  one_of(cmd.add_option("--op", o.op, "One of them"), names);
  std::vector<std::string> algorithms = {"all"};
  for (const AlgorithmDef* a : all_algorithms()) algorithms.emplace_back(a->name);
  one_of(cmd.add_option("--algorithm", o.algorithm, "One of them"), algorithms);
  cmd.add_option("--bytes", o.bytes,
                 "Of the whole tensor; default: 256 bytes, doubled up to --most")
      .type_name("BYTES");
  cmd.add_option("--most", o.most, "The largest size").type_name("BYTES");
  whole(cmd.add_option("--repeats", o.repeats, "Timed samples; the median counts"), 1, 10000);
  cmd.add_flag("--json", o.json, "One JSON object on the last line");
  cmd.callback([&exit_code] { exit_code = run(o); });
}

}  // namespace tegula::cli
