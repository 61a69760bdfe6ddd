#include "tegula/plan/simulate.h"

#include <cmath>
#include <map>
#include <set>

#include "tegula/base/range.h"

namespace tegula {

namespace {

class Simulator {
 public:
  Simulator(const Program& program, const Schedule& schedule, const SimulateOptions& options)
      : program_(program),
        options_(options),
        loop_(program, schedule, RunsOn::kRanks),
        free_at_(schedule.ranks.size()),
        is_begun_(schedule.ranks.size()),
        begin_(loop_.n_slots()),
        end_(loop_.n_slots()),
        first_sent_(loop_.n_slots()),
        n_sent_(loop_.n_slots()),
        link_free_at_(schedule.ranks.size() * schedule.ranks.size()),
        makes_(program.parts.size()) {
    out_.ranks.resize(schedule.ranks.size());
    for (const Flow& flow : program.flows) makes_[flow.from].push_back(&flow);
  }

  Result<Simulated> simulate() && {
    TEGULA_TRY(loop_.follow(*this));
    finish_step();
    find_peaks();
    return std::move(out_);
  }

  // The loop's backend.
  Status run(std::span<const PartRun> together, int rank) {
    double& free_at = free_at_[rank];
    double begin = free_at, took = 0;
    for (const PartRun& r : together) {
      begin = std::max(begin, sums_arrive(r, rank));
      loop_.sources(r, [&](const PartRun& from) {
        const bool is_inside =
            any_of(together, [&](const PartRun& t) { return loop_.slot(t) == loop_.slot(from); });
        if (!is_inside) begin = std::max(begin, arrival(from, rank));
      });
      took += seconds(r);
    }
    if (together.size() > 1) took *= options_.together;
    free_at = begin + took;
    for (const PartRun& r : together) {
      begin_[loop_.slot(r)] = begin, end_[loop_.slot(r)] = free_at;
      out_.items.push_back({r, rank, begin, free_at});
    }
    Simulated::OfRank& of_rank = out_.ranks[rank];
    of_rank.busy_s += took;
    if (is_micro(together[0].part)) {
      if (is_begun_[rank])
        of_rank.waits_s += begin - of_rank.end_s;
      else
        of_rank.begin_s = begin;
      is_begun_[rank] = 1;
      of_rank.end_s = free_at;
    }
    for (const PartRun& r : together) send(r, rank);
    return {};
  }

 private:
  struct Sent {
    int to;
    double begin_s, end_s;
  };
  struct ToSend {
    int to;
    int64_t bytes;
    const Flow* last;  // counted
  };
  bool is_micro(int part) const { return is_per_micro_batch(program_.parts[part].kind); }
  // A sum over runs of its maker, which is state where it is made.
  bool is_sum(const Flow& flow) const { return is_micro(flow.from) && !is_micro(flow.to.back()); }

  double seconds(const PartRun& r) const {
    const bool has_slices = options_.seconds.size() > program_.parts.size();
    const auto n = static_cast<size_t>(has_slices ? loop_.n_slices() : 1);
    return options_
        .seconds[static_cast<size_t>(r.part) * n + static_cast<size_t>(has_slices ? r.slice : 0)];
  }

  // When what a run made is on a rank. What goes into a sum stays where it is.
  double arrival(const PartRun& from, int rank) const {
    for (const Sent& s : sent(from))
      if (s.to == rank) return s.end_s + options_.links.latency_s;
    return end_[loop_.slot(from)];
  }

  // All that it made for one rank is one message.
  void send(const PartRun& r, int rank) {
    to_send_.clear();
    for (const Flow* flow : makes_[r.part]) {
      if (is_sum(*flow)) continue;
      for (int reader : flow->to) {
        const int to = loop_.rank_of(reader_of(reader, r));
        if (to < 0 || to == rank) continue;
        auto at = std::find_if(to_send_.begin(), to_send_.end(),
                               [&](const ToSend& t) { return t.to == to; });
        if (at == to_send_.end()) at = to_send_.insert(at, {to, 0, nullptr});
        if (at->last != flow) at->bytes += flow->type.bytes();
        at->last = flow;
      }
    }
    std::sort(to_send_.begin(), to_send_.end(),
              [](const ToSend& x, const ToSend& y) { return x.to < y.to; });
    const size_t slot = loop_.slot(r);
    first_sent_[slot] = sent_.size();
    for (const ToSend& t : to_send_) sent_.push_back(transfer(rank, t.to, t.bytes, end_[slot]));
    n_sent_[slot] = to_send_.size();
  }
  std::span<const Sent> sent(const PartRun& r) const {
    return std::span(sent_).subspan(first_sent_[loop_.slot(r)], n_sent_[loop_.slot(r)]);
  }

  Sent transfer(int from, int to, int64_t bytes, double ready) {
    double& link =
        link_free_at_[static_cast<size_t>(from) * free_at_.size() + static_cast<size_t>(to)];
    double& sender = free_at_[from];
    double begin = std::max(ready, link);
    if (!options_.links.sends_overlap) begin = std::max(begin, sender);
    const double took = options_.links.bytes_per_s > 0
                            ? static_cast<double>(bytes) / options_.links.bytes_per_s
                            : 0;
    link = begin + took;
    if (!options_.links.sends_overlap) sender = link;
    out_.messages.push_back({from, to, bytes, begin, link});
    return {to, begin, link};
  }

  // Sums that other ranks have parts of are there when all of them have come.
  double sums_arrive(const PartRun& r, int rank) {
    if (is_micro(r.part)) return 0;
    std::map<int, std::pair<int64_t, double>> parts;  // of each rank: bytes, when they are ready
    for (const Flow& flow : program_.flows) {
      if (!is_sum(flow) || !contains(flow.to, r.part)) continue;
      std::map<int, double> last;
      for (int m = 0; m < program_.n_micro_batches; ++m)
        for (int t = 0; t < loop_.n_slices(); ++t) {
          const PartRun made{flow.from, m, t};
          if (const int at = loop_.rank_of(made); at >= 0 && at != rank)
            last[at] = std::max(last[at], end_[loop_.slot(made)]);
        }
      // Once, for the first that reads it there.
      for (const auto& [at, end] : last)
        if (sums_sent_.insert({&flow, at}).second) {
          parts[at].first += flow.type.bytes();
          parts[at].second = std::max(parts[at].second, end);
        }
    }
    double all = 0;
    for (const auto& [at, part] : parts)
      all = std::max(all,
                     transfer(at, rank, part.first, part.second).end_s + options_.links.latency_s);
    return all;
  }

  void finish_step() {
    double first = HUGE_VAL, busy = 0, last = 0;
    for (const Simulated::Item& i : out_.items)
      first = std::min(first, i.begin_s), last = std::max(last, i.end_s);
    for (const Simulated::OfRank& r : out_.ranks) busy += r.busy_s;
    out_.step_s = out_.items.empty() ? 0 : last - first;
    if (out_.step_s > 0)
      out_.bubble = 1 - busy / (out_.step_s * static_cast<double>(out_.ranks.size()));
  }

  struct Event {
    double at;
    int64_t bytes;
  };

  void find_peaks() {
    std::vector<std::vector<Event>> events(out_.ranks.size());
    for (const Flow& flow : program_.flows) {
      if (flow.type.bytes() == 0 || !is_micro(flow.from) ||
          (is_sum(flow) && program_.n_micro_batches > 1))
        continue;
      for (int m = 0; m < program_.n_micro_batches; ++m)
        for (int t = 0; t < loop_.n_slices(); ++t)
          if (loop_.rank_of({flow.from, m, t}) >= 0) add_events(flow, {flow.from, m, t}, events);
    }
    for (size_t rank = 0; rank < events.size(); ++rank) {
      std::sort(events[rank].begin(), events[rank].end(), [](const Event& a, const Event& b) {
        return a.at != b.at ? a.at < b.at : a.bytes < b.bytes;
      });
      int64_t now = 0;
      for (const Event& e : events[rank])
        out_.ranks[rank].peak_bytes = std::max(out_.ranks[rank].peak_bytes, now += e.bytes);
    }
  }

  // On each rank that makes or reads it: from the begin of its part or its message to the end of
  // the last that reads or sends it.
  void add_events(const Flow& flow, const PartRun& made, std::vector<std::vector<Event>>& events) {
    const size_t slot = loop_.slot(made);
    const int home = loop_.rank_of(made);
    const auto add = [&](int rank, double begin, double end) {
      events[rank].push_back({begin, flow.type.bytes()});
      events[rank].push_back({end, -flow.type.bytes()});
    };
    const auto last_reader = [&](int rank, double end) {
      for (int to : flow.to)
        if (const PartRun reader = reader_of(to, made); loop_.rank_of(reader) == rank)
          end = std::max(end, end_[loop_.slot(reader)]);
      return end;
    };
    double until = last_reader(home, end_[slot]);
    for (const Sent& s : sent(made)) {
      const double end = last_reader(s.to, -1);
      if (end < 0) continue;  // another flow of that message
      add(s.to, s.begin_s, std::max(end, s.end_s));
      until = std::max(until, s.end_s);
    }
    add(home, begin_[slot], until);
  }
  PartRun reader_of(int part, const PartRun& made) const {
    return is_micro(part) ? PartRun{part, made.micro_batch, made.slice} : PartRun{part, 0, 0};
  }

  const Program& program_;
  const SimulateOptions& options_;
  ScheduleLoop loop_;
  Simulated out_;
  std::vector<double> free_at_;              // per rank
  std::vector<uint8_t> is_begun_;            // per rank
  std::vector<double> begin_, end_;          // per slot
  std::vector<size_t> first_sent_, n_sent_;  // per slot: of sent_
  std::vector<Sent> sent_;
  std::vector<ToSend> to_send_;                      // of the part that has just ended
  std::vector<double> link_free_at_;                 // from each rank to each
  std::vector<std::vector<const Flow*>> makes_;      // per part
  std::set<std::pair<const Flow*, int>> sums_sent_;  // and by which rank
};

Status check_options(const Program& program, const Schedule& schedule,
                     const SimulateOptions& options) {
  const std::span<const double> seconds = options.seconds;
  const size_t parts = program.parts.size(),
               slices = parts * static_cast<size_t>(schedule.shape.n_slices);
  if (seconds.size() != parts && seconds.size() != slices)
    return invalid_argument(cat("simulate: ", seconds.size(), " times for ", parts, " parts in ",
                                schedule.shape.n_slices, " slices: give ", parts, " or ", slices));
  for (double s : seconds)
    if (!(s >= 0 && std::isfinite(s)))
      return invalid_argument(cat("simulate: a part cannot take ", s, " seconds"));
  const Links& links = options.links;
  for (double v : {links.latency_s, links.bytes_per_s, options.together})
    if (!(v >= 0 && std::isfinite(v)))
      return invalid_argument(cat("simulate: a latency of ", links.latency_s, " s, ",
                                  links.bytes_per_s, " bytes/s and a share of ", options.together,
                                  " for parts that go together: none may be below 0"));
  return {};
}

}  // namespace

Result<Simulated> simulate(const Program& program, const Schedule& schedule,
                           const SimulateOptions& options) {
  TEGULA_TRY(check_options(program, schedule, options));
  return Simulator(program, schedule, options).simulate();
}

}  // namespace tegula
