#include "tegula/plan/schedule.h"

#include <algorithm>
#include <map>

namespace tegula {

Result<const ScheduleDef*> find_schedule(std::string_view name) {
  std::string names;
  for (const ScheduleDef* s : all_schedules()) {
    if (s->name == name) return s;
    names += cat(names.empty() ? "" : ", ", s->name);
  }
  return invalid_argument(cat("there is no schedule \"", name, "\"; there are ", names));
}

Schedule schedule_of(const ScheduleDef& def, const Program& program) {
  Schedule s = def.make(program.n_stages, program.n_micro_batches);
  // Norms of all stages, then the total, then the updates: a stage that waits stands behind them.
  for (const PartKind kind : {PartKind::kNorm, PartKind::kTotal, PartKind::kUpdate})
    for (int stage = 0; stage < program.n_stages; ++stage)
      if (program.find(kind, stage) >= 0) s[static_cast<size_t>(stage)].push_back({kind, 0});
  return s;
}

ScheduleLoop::ScheduleLoop(const Program& program, const Schedule& schedule)
    : program_(program),
      schedule_(schedule.size()),
      at_(schedule.size()),
      done_(program.parts.size() * static_cast<size_t>(program.n_micro_batches)),
      reads_(program.parts.size()) {
  for (size_t stage = 0; stage < schedule.size(); ++stage)
    for (const Instr& i : schedule[stage]) {
      int part = program.find(i.kind, static_cast<int>(stage));
      if (part < 0 && i.kind == PartKind::kForward)
        part = program.find(PartKind::kWhole, static_cast<int>(stage));
      if (part >= 0) schedule_[stage].push_back({part, i.micro_batch});
    }
  for (const Flow& flow : program.flows)
    for (int to : flow.to) {
      std::vector<int>& from = reads_[static_cast<size_t>(to)];
      if (std::find(from.begin(), from.end(), flow.from) == from.end()) from.push_back(flow.from);
    }
}

size_t ScheduleLoop::count() const {
  size_t n = 0;
  for (const auto& stage : schedule_) n += stage.size();
  return n;
}

size_t ScheduleLoop::slot(const PartRun& run) const {
  return static_cast<size_t>(run.part) * static_cast<size_t>(program_.n_micro_batches) +
         static_cast<size_t>(run.micro_batch);
}

std::vector<PartRun> ScheduleLoop::sources(const PartRun& run) const {
  std::vector<PartRun> all;
  const bool is_micro = is_per_micro_batch(program_.parts[static_cast<size_t>(run.part)].kind);
  for (int from : reads_[static_cast<size_t>(run.part)]) {
    if (is_micro || !is_per_micro_batch(program_.parts[static_cast<size_t>(from)].kind))
      all.push_back({from, run.micro_batch});
    else
      for (int m = 0; m < program_.n_micro_batches; ++m) all.push_back({from, m});
  }
  return all;
}

const PartRun* ScheduleLoop::ready(size_t stage) const {
  if (at_[stage] == schedule_[stage].size()) return nullptr;
  const PartRun& next = schedule_[stage][at_[stage]];
  for (const PartRun& from : sources(next))
    if (!done_[slot(from)]) return nullptr;
  return &next;
}

void ScheduleLoop::finish(size_t stage) { done_[slot(schedule_[stage][at_[stage]++])] = 1; }

Error ScheduleLoop::deadlock() const {
  std::string waits;
  for (size_t stage = 0; stage < schedule_.size(); ++stage) {
    if (at_[stage] == schedule_[stage].size()) continue;
    const PartRun& next = schedule_[stage][at_[stage]];
    for (const PartRun& from : sources(next)) {
      if (done_[slot(from)]) continue;
      const Part &p = program_.parts[static_cast<size_t>(next.part)],
                 &q = program_.parts[static_cast<size_t>(from.part)];
      waits += cat(waits.empty() ? "" : "; ", "stage ", stage, "'s ", name_of(p.kind), " of ",
                   next.micro_batch, " waits for stage ", q.stage, "'s ", name_of(q.kind), " of ",
                   from.micro_batch);
      break;
    }
  }
  return invalid_argument(cat("the schedule can never go on: ", waits));
}

namespace {

struct Counting {
  const Program& program;
  const ScheduleLoop& loop;
  std::span<const double> seconds;
  ScheduleCount out;
  std::vector<double> free_at;
  std::vector<std::vector<double>> ends;  // per part and micro-batch
  // Of each stage: when bytes come and go.
  struct Event {
    double at;
    int64_t bytes;
  };
  std::vector<std::vector<Event>> events;

  Status run(const PartRun& r, int stage) {
    double begin = free_at[static_cast<size_t>(stage)];
    for (const PartRun& from : loop.sources(r)) begin = std::max(begin, end_of(from));
    const double took = seconds[static_cast<size_t>(r.part)];
    end_of(r) = free_at[static_cast<size_t>(stage)] = begin + took;
    out.seconds = std::max(out.seconds, begin + took);
    out.busy_seconds += took;
    out.order.push_back(r);
    return {};
  }
  double& end_of(const PartRun& r) {
    return ends[static_cast<size_t>(r.part)][static_cast<size_t>(r.micro_batch)];
  }

  // Of all flows, on the stage that makes them and on those that read them: from the end of their
  // maker to the stage's last reader. A stage that only sends keeps nothing.
  void count_bytes() {
    for (const Flow& flow : program.flows) {
      const Part& maker = program.parts[static_cast<size_t>(flow.from)];
      if (!is_per_micro_batch(maker.kind)) continue;
      const Part& last = program.parts[static_cast<size_t>(flow.to.back())];
      if (!is_per_micro_batch(last.kind) && program.n_micro_batches > 1) continue;  // a sum: state
      for (int m = 0; m < program.n_micro_batches; ++m) {
        std::map<int, double> until;
        for (int to : flow.to) {
          const Part& reader = program.parts[static_cast<size_t>(to)];
          double& end = until[reader.stage];
          end = std::max(end, end_of({to, is_per_micro_batch(reader.kind) ? m : 0}));
        }
        for (const auto& [stage, end] : until) {
          auto& of_stage = events[static_cast<size_t>(stage)];
          of_stage.push_back({end_of({flow.from, m}), flow.type.bytes()});
          of_stage.push_back({end, -flow.type.bytes()});
        }
      }
    }
    for (auto& of_stage : events) {
      std::sort(of_stage.begin(), of_stage.end(), [](const Event& a, const Event& b) {
        return a.at != b.at ? a.at < b.at : a.bytes < b.bytes;
      });
      int64_t now = 0, peak = 0;
      for (const Event& e : of_stage) peak = std::max(peak, now += e.bytes);
      out.peak_bytes.push_back(peak);
    }
  }
};

}  // namespace

Result<ScheduleCount> count_schedule(const Program& program, const Schedule& schedule,
                                     std::span<const double> seconds) {
  ScheduleLoop loop(program, schedule);
  Counting c{program, loop, seconds, {}, {}, {}, {}};
  c.free_at.resize(schedule.size());
  c.events.resize(schedule.size());
  c.ends.assign(program.parts.size(),
                std::vector<double>(static_cast<size_t>(program.n_micro_batches)));
  TEGULA_TRY(loop.follow(c));
  c.count_bytes();
  if (c.out.seconds > 0)
    c.out.bubble = 1 - c.out.busy_seconds / (c.out.seconds * static_cast<double>(program.n_stages));
  return std::move(c.out);
}

}  // namespace tegula
