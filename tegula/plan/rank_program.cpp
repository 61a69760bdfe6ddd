#include "tegula/plan/rank_program.h"

#include <map>
#include <set>

#include "tegula/base/range.h"
#include "tegula/plan/schedule_check.h"

namespace tegula {

namespace {

// Places in a rank's list of runs; that behind the last one is the step's end.
using Place = int;

struct Sent {
  Message message;
  Place made = 0;       // the run that makes it, at the sender
  Place read = 0;       // the first run that reads it, at the receiver
  Place last_read = 0;  // the last one
  Place free = 0;       // the run before which the sender knows that it was taken
};

class Planner {
 public:
  Planner(const Program& program, const std::vector<std::shared_ptr<const Plan>>& plans,
          const std::vector<std::shared_ptr<const Plan>>& joins, const MicroGroups& groups,
          const Schedule& schedule)
      : program_(program),
        plans_(plans),
        joins_(joins),
        groups_(groups),
        schedule_(schedule),
        loop_(program, schedule_, RunsOn::kRanks),
        runs_(schedule.ranks.size()),
        seen_(schedule.ranks.size(), std::vector<Place>(schedule.ranks.size())),
        place_(loop_.n_slots(), -1),
        seen_by_(loop_.n_slots()) {}

  Result<std::vector<PlannedProgram>> run() {
    TEGULA_TRY(find_homes());
    TEGULA_TRY(loop_.follow(*this));
    for (const auto& order : runs_)
      for (const PartRun& r : order) send_flows(r);
    TEGULA_TRY(send_sums());
    send_state();
    TEGULA_TRY(number());
    std::vector<PlannedProgram> out;
    for (size_t rank = 0; rank < runs_.size(); ++rank)
      out.push_back(planned(static_cast<int>(rank)));
    return out;
  }

  // The loop's backend: where each run stands, and what its rank knows of the others by then.
  Status run(std::span<const PartRun> together, int rank) {
    const auto r = static_cast<size_t>(rank);
    for (const PartRun& run : together) {
      std::vector<Place>& knows = seen_[r];
      loop_.sources(run, [&](const PartRun& from) {
        const std::vector<Place>& other = seen_by_[loop_.slot(from)];
        for (size_t i = 0; i < other.size(); ++i) knows[i] = std::max(knows[i], other[i]);
      });
      place_[loop_.slot(run)] = static_cast<Place>(runs_[r].size());
      runs_[r].push_back(run);
      knows[r] = static_cast<Place>(runs_[r].size());  // so many of its own are done
      seen_by_[loop_.slot(run)] = knows;
    }
    return {};
  }

 private:
  bool is_micro(int part) const { return is_per_micro_batch(program_.parts[part].kind); }
  bool is_sum(const Flow& flow) const {
    return flow.is_sum ||
           (program_.n_micro_batches > 1 && is_micro(flow.from) && !is_micro(flow.to.back()));
  }
  Place end_of(int rank) const { return static_cast<Place>(runs_[rank].size()); }

  // Each stage is one rank's, or two ranks' that have a half of the micro-batches each.
  Status find_homes() {
    const int n = program_.n_micro_batches;
    first_.assign(runs_.size(), std::vector<int>(static_cast<size_t>(program_.n_stages), 0));
    for (int stage = 0; stage < program_.n_stages; ++stage) {
      const int a = schedule_.rank_of(stage, 0), b = schedule_.rank_of(stage, n - 1);
      is_halved_ |= a != b;
      if (a != b) first_[b][stage] = n / 2;
      for (int m = 0; m < n; ++m)
        if (const int at = schedule_.rank_of(stage, m); at != (m < n - n / 2 ? a : b))
          return unsupported(cat("micro-batch ", m, " of stage ", stage, " is on rank ", at,
                                 " of the pipeline, and ranks ", a, " and ", b,
                                 " have a half of them each: their sums would not be a step's"));
    }
    if (is_halved_ && (n % 2 != 0 || groups_.groups % 2 != 0))
      return invalid_argument(cat(n, " micro-batches cannot be shared by two pipelines as halves: ",
                                  "take an even number"));
    if (is_halved_) groups_ = groups_.share(2);
    return {};
  }

  PartRun reader_of(int part, const PartRun& made) const {
    return {part, is_micro(part) ? made.micro_batch : 0, 0};
  }

  void send_flows(const PartRun& made) {
    const int home = loop_.rank_of(made);
    for (size_t f = 0; f < program_.flows.size(); ++f) {
      const Flow& flow = program_.flows[f];
      if (flow.from != made.part || is_sum(flow)) continue;
      std::map<int, Sent> to;
      for (int part : flow.to) {
        const PartRun reader = reader_of(part, made);
        const int rank = loop_.rank_of(reader);
        if (rank < 0 || rank == home) continue;
        const Place at = place_[loop_.slot(reader)];
        const auto [known, is_new] = to.try_emplace(rank);
        Sent& s = known->second;
        if (is_new) {
          s.message = {home, rank, static_cast<int>(f), made.micro_batch};
          s.message.bytes = flow.type.bytes();
          s.made = place_[loop_.slot(made)], s.read = s.last_read = at;
        }
        s.read = std::min(s.read, at), s.last_read = std::max(s.last_read, at);
      }
      for (auto& [rank, s] : to) {
        s.free = knows_by(s);
        sent_.push_back(std::move(s));
      }
    }
  }

  // The first run of the sender that something which the receiver did after it read comes to.
  Place knows_by(const Sent& s) const {
    const auto& order = runs_[s.message.from];
    for (auto at = static_cast<size_t>(s.made) + 1; at < order.size(); ++at)
      if (seen_by_[loop_.slot(order[at])][s.message.to] > s.read) return static_cast<Place>(at);
    return end_of(s.message.from);
  }

  // Sums that a part of another rank reads, once their last micro-batch is added.
  Status send_sums() {
    for (const Flow& flow : program_.flows) {
      if (!flow.is_sum) continue;
      const int to = loop_.rank_of({flow.to[0], 0, 0});
      for (size_t rank = 0; rank < runs_.size(); ++rank) {
        const auto& order = runs_[rank];
        const auto is_made_by = [&](const PartRun& r) { return r.part == flow.from; };
        if (static_cast<int>(rank) == to || !any_of(order, is_made_by)) continue;
        const auto& there = runs_[to];
        const bool is_joined = any_of(there, is_made_by);
        Sent s;
        s.message = {static_cast<int>(rank), to, -1, 0, flow.name};
        s.message.state_there = is_joined ? name_at_slot(flow.name, 1) : flow.name;
        s.message.is_cleared = true, s.message.bytes = flow.type.bytes();
        s.made = static_cast<Place>(order.rend() -
                                    std::find_if(order.rbegin(), order.rend(), is_made_by) - 1);
        s.read = s.last_read = end_of(to);
        for (int part : flow.to)
          if (const PartRun reader{part, 0, 0}; loop_.rank_of(reader) == to)
            s.read = std::min(s.read, place_[loop_.slot(reader)]);
          else
            return unsupported(cat(flow.name, " is read on two ranks of the pipeline"));
        s.free = knows_by(s);
        if (is_joined) joined_[{to, s.read}].insert(flow.from);
        sent_.push_back(std::move(s));
      }
    }
    return {};
  }

  // State that one rank's part makes new and another's reads.
  void send_state() {
    std::set<std::string_view> flows;
    for (const Flow& f : program_.flows) flows.insert(f.name);
    struct Held {
      int writer = -1;
      int64_t bytes = 0;
      std::set<int> ranks;
    };
    std::map<std::string_view, Held> held;
    for (size_t rank = 0; rank < runs_.size(); ++rank)
      for (const PartRun& r : runs_[rank])
        for (const Plan::Port& p : plans_[r.part]->params) {
          if (p.role == Role::kInput || flows.contains(p.name)) continue;
          Held& h = held[p.name];
          h.ranks.insert(static_cast<int>(rank)), h.bytes = p.tensor.type.bytes();
          if (p.donated_to >= 0) h.writer = static_cast<int>(rank);
        }
    for (const auto& [name, h] : held)
      for (int rank : h.ranks) {
        if (h.writer < 0 || rank == h.writer) continue;
        Sent s;
        s.message = {h.writer, rank, -1, 0, std::string(name), std::string(name)};
        s.message.bytes = h.bytes;
        s.made = s.free = end_of(h.writer), s.read = s.last_read = end_of(rank);
        sent_.push_back(std::move(s));
      }
  }

  // In the order in which the sender sends them, and the receiver must have read the one that had
  // a number before when it expects the next.
  Status number() {
    std::map<std::pair<int, int>, std::vector<Sent*>> of_pair;
    std::stable_sort(sent_.begin(), sent_.end(),
                     [](const Sent& x, const Sent& y) { return x.made < y.made; });
    for (Sent& s : sent_) of_pair[{s.message.from, s.message.to}].push_back(&s);
    for (auto& [pair, list] : of_pair)
      for (size_t i = 0; i < list.size(); ++i) {
        constexpr size_t kNumbers = kMessageNumbers;
        Sent& s = *list[i];
        s.message.number =
            static_cast<int>(i % kNumbers) + (pair.first < pair.second ? 0 : kMessageNumbers);
        if (i < kNumbers) continue;
        const Sent& before = *list[i - kNumbers];
        if (before.free > s.made || before.read >= s.read)
          return unsupported(cat("rank ", pair.first, " of the pipeline has more than ",
                                 kMessageNumbers, " messages to rank ", pair.second,
                                 " under way: take fewer micro-batches"));
      }
    return {};
  }

  PlannedProgram planned(int rank) const {
    PlannedProgram out;
    out.program = program_, out.plans = plans_, out.schedule = schedule_;
    out.joins = joins_, out.rank = rank;
    out.n_slots = std::max(is_halved_ ? 2 : 1, static_cast<int>(groups_.n_slots()));
    out.order = runs_[rank];
    std::vector<const Sent*> own;
    for (const Sent& s : sent_)
      if (s.message.from == rank || s.message.to == rank) {
        own.push_back(&s);
        out.messages.push_back(s.message);
      }
    // By place, so that a list of thousands of runs takes no time squared.
    std::vector<std::vector<int>> expected(out.order.size() + 1), received(expected.size()),
        sent(expected.size()), reclaimed(expected.size()), wanted(expected.size());
    std::vector<int> cleared;
    for (size_t i = 0; i < own.size(); ++i) {
      const auto m = static_cast<int>(i);
      if (own[i]->message.to == rank) {
        // State may be in use until then; nobody has anything to do before its first run.
        const bool is_wanted = own[i]->message.flow < 0 || own[i]->read == 0;
        (is_wanted ? wanted[own[i]->read] : expected[own[i]->read - 1]).push_back(m);
        received[own[i]->read].push_back(m);
      } else {
        sent[own[i]->made].push_back(m);
        reclaimed[own[i]->free].push_back(m);
        if (own[i]->message.is_cleared) cleared.push_back(m);
      }
    }
    using Kind = ProgramStep::Kind;
    const auto add = [&](Kind kind, const std::vector<int>& messages) {
      for (int m : messages) out.steps.push_back({kind, {}, m, 0});
    };
    for (size_t at = 0; at < out.order.size(); ++at) {
      add(Kind::kExpect, wanted[at]);
      add(Kind::kReceive, received[at]);
      if (const auto parts = joined_.find({rank, static_cast<Place>(at)}); parts != joined_.end())
        for (int part : parts->second) out.steps.push_back({Kind::kJoin, {part, 0, 0}, 0, 0});
      add(Kind::kReclaim, reclaimed[at]);
      add(Kind::kExpect, expected[at]);
      run_and_join(rank, out.order[at], out);
      add(Kind::kSend, sent[at]);
    }
    add(Kind::kSend, sent.back());
    add(Kind::kExpect, wanted.back());
    add(Kind::kReceive, received.back());
    add(Kind::kReclaim, reclaimed.back());
    add(Kind::kClear, cleared);
    place(out);
    return out;
  }

  // A part that sums runs on the slot of its micro-batch's group, whose sum may be the last of
  // some.
  void run_and_join(int rank, const PartRun& run, PlannedProgram& out) const {
    using Kind = ProgramStep::Kind;
    const bool joins = !joins_.empty() && joins_[run.part];
    const int stage = program_.parts[run.part].stage;
    const int64_t m = run.micro_batch - first_[rank][stage];
    const int64_t slot = joins ? groups_.slot_of(m) : 0;
    out.steps.push_back({Kind::kRun, run, 0, static_cast<int>(slot)});
    for (int64_t j = 1; joins && j <= groups_.joins_after(m); ++j)
      out.steps.push_back({Kind::kJoin, run, 0, static_cast<int>(slot - j)});
  }

  // From the step that makes or expects a flow to the last that reads or gives it.
  void place(PlannedProgram& out) const {
    using Kind = ProgramStep::Kind;
    out.offsets.resize(program_.flows.size());
    std::vector<std::vector<Lifetime>> lives(program_.flows.size());
    for (size_t f = 0; f < program_.flows.size(); ++f) {
      if (is_sum(program_.flows[f])) continue;
      const int n = is_micro(program_.flows[f].from) ? program_.n_micro_batches : 1;
      out.offsets[f].assign(static_cast<size_t>(n), -1);
      lives[f].assign(static_cast<size_t>(n), {-1, -1, 0});
    }
    // Flows by part, to touch each run's alone.
    std::vector<std::vector<size_t>> of_part(program_.parts.size());
    for (size_t f = 0; f < program_.flows.size(); ++f) {
      of_part[program_.flows[f].from].push_back(f);
      for (int to : program_.flows[f].to) of_part[to].push_back(f);
    }
    const auto touch = [&](size_t f, int micro_batch, int step) {
      if (lives[f].empty()) return;
      Lifetime& l = lives[f][std::min(static_cast<size_t>(micro_batch), lives[f].size() - 1)];
      if (l.first < 0) l.first = step;
      l.last = step, l.bytes = program_.flows[f].type.bytes();
    };
    for (size_t i = 0; i < out.steps.size(); ++i) {
      const ProgramStep& s = out.steps[i];
      const auto step = static_cast<int>(i);
      if (s.kind == Kind::kJoin) continue;
      if (s.kind == Kind::kRun)
        for (size_t f : of_part[s.run.part]) touch(f, s.run.micro_batch, step);
      else if (const Message& m = out.messages[s.message]; m.flow >= 0)
        touch(static_cast<size_t>(m.flow), m.micro_batch, step);
    }
    std::vector<Lifetime> used;
    std::vector<int64_t*> offsets;
    for (size_t f = 0; f < lives.size(); ++f)
      for (size_t m = 0; m < lives[f].size(); ++m)
        if (lives[f][m].first >= 0)
          used.push_back(lives[f][m]), offsets.push_back(&out.offsets[f][m]);
    const Layout layout = place_flows(used);
    for (size_t i = 0; i < used.size(); ++i) *offsets[i] = layout.offsets[i];
    out.flow_bytes = layout.bytes, out.flow_lower_bound_bytes = layout.lower_bound;
  }

  const Program& program_;
  const std::vector<std::shared_ptr<const Plan>>& plans_;
  const std::vector<std::shared_ptr<const Plan>>& joins_;
  MicroGroups groups_;  // of a rank's micro-batches
  bool is_halved_ = false;
  std::vector<std::vector<int>> first_;  // per rank and stage: its first micro-batch
  std::map<std::pair<int, Place>, std::set<int>>
      joined_;  // by rank and place: whose sums come there
  const Schedule& schedule_;
  ScheduleLoop loop_;
  std::vector<std::vector<PartRun>> runs_;   // per rank
  std::vector<std::vector<Place>> seen_;     // per rank: how many runs of each rank it knows of
  std::vector<Place> place_;                 // per slot: in its rank's list
  std::vector<std::vector<Place>> seen_by_;  // per slot: what is known once it is done
  std::vector<Sent> sent_;
};

}  // namespace

bool has_halves(const Schedule& schedule) {
  return schedule.rank_of(0, 0) != schedule.rank_of(0, schedule.shape.n_micro_batches - 1);
}

Status share_halves(Schedule& schedule) {
  const int n = schedule.shape.n_micro_batches;
  std::vector<int> number(static_cast<size_t>(n));
  int n_first = 0, n_second = 0;
  for (int m = 0; m < n; ++m) {
    const bool is_first = schedule.rank_of(0, m) == schedule.rank_of(0, 0);
    number[m] = is_first ? n_first++ : n / 2 + n_second++;
  }
  if (n_second == 0) return {};
  if (n_first != n_second)
    return invalid_argument(cat("--schedule with two pipelines over the same ranks: ", n,
                                " micro-batches are no two halves: take an even --accumulate"));
  for (auto& list : schedule.ranks)
    for (Instr& i : list) i.micro_batch = number[i.micro_batch];
  return {};
}

Result<std::vector<PlannedProgram>> plan_ranks(
    const Program& program, const std::vector<std::shared_ptr<const Plan>>& plans,
    const std::vector<std::shared_ptr<const Plan>>& joins, const MicroGroups& groups,
    const Schedule& schedule) {
  TEGULA_TRY(check_schedule(schedule));
  TEGULA_TRY(check_fits(schedule, program));
  const Schedule whole = with_update(schedule, program);
  return Planner(program, plans, joins, groups, whole).run();
}

}  // namespace tegula
