#include "tegula/runtime/program_session.h"

#include <cstring>

#include "tegula/base/clock.h"
#include "tegula/base/range.h"
#include "tegula/ir/micro_groups.h"
#include "tegula/ir/opdef.h"
#include "tegula/runtime/rank_group.h"

namespace tegula {

Result<std::unique_ptr<ProgramSession>> ProgramSession::create(
    std::shared_ptr<const PlannedProgram> planned, Rank& rank, Store& store) {
  Region arena = TEGULA_TRY(Region::between_guards(rank.memory, planned->arena_bytes()));
  Region flows = TEGULA_TRY(Region::between_guards(rank.memory, planned->flow_bytes));
  auto s = TEGULA_TRY(create(std::move(planned), rank, store, {arena.data(), flows.data()}));
  s->arena_ = std::move(arena), s->flows_ = std::move(flows);
  return s;
}

Result<std::unique_ptr<ProgramSession>> ProgramSession::create(
    std::shared_ptr<const PlannedProgram> planned, Rank& rank, Store& store, const Memory& memory) {
  std::unique_ptr<ProgramSession> s(new ProgramSession(std::move(planned)));
  const PlannedProgram& p = *s->program_;
  s->rank_ = &rank, s->flows_at_ = static_cast<uint8_t*>(memory.flows);
  s->instead_ = memory.instead, s->context_ = memory.context;
  const std::vector<uint8_t> runs =
      s->instead_ ? std::vector<uint8_t>(p.plans.size()) : p.parts_that_run();
  for (size_t part = 0; part < p.plans.size(); ++part)
    s->sessions_.push_back(runs[part] ? std::make_unique<Session>(p.plans[part], rank, memory.arena)
                                      : nullptr);
  for (size_t part = 0; part < p.joins.size(); ++part)
    s->joins_.push_back(runs[part] && p.joins[part]
                            ? std::make_unique<Session>(p.joins[part], rank, memory.arena)
                            : nullptr);
  TEGULA_TRY(s->bind_parts(store));
  for (const Message& m : p.messages) {
    TensorRef at = m.flow < 0 ? store.find(m.to == p.rank ? m.state_there : m.state)
                              : contiguous_ref(nullptr, {DType::kU8, {m.bytes}});
    if (m.flow >= 0) {
      const auto& offsets = p.offsets[m.flow];
      at.data =
          s->flows_at_ + offsets[std::min(static_cast<size_t>(m.micro_batch), offsets.size() - 1)];
    }
    TEGULA_CHECK(at.data != nullptr || m.bytes == 0, "no memory for ", m.state);
    s->messages_.push_back(at);
    s->texts_.push_back(text_of(p.program, m));
  }
  s->errands_.resize(p.messages.size()), s->moves_.resize(p.messages.size());
  return s;
}

Status ProgramSession::bind_parts(Store& store) {
  const PlannedProgram& p = *program_;
  const auto n = static_cast<size_t>(p.program.n_micro_batches);
  const auto flows = [&](std::string_view name) {
    return any_of(p.program.flows, [&](const Flow& f) { return f.name == name; });
  };
  const auto keep = [&](std::string_view sum, int slot, const std::string& in_store) {
    std::vector<void*>& at = sums_.try_emplace(std::string(sum)).first->second;
    at.resize(static_cast<size_t>(p.n_slots));
    at[slot] = store.find(in_store).data;
  };
  for (const auto& join : joins_)
    for (int slot = p.n_slots - 1; join && slot-- > 0;) {
      // It has the parameters of the part that sums, twice.
      TEGULA_TRY(join->bind_store(store, name_at_slot, slot));
      for (const Plan::Port& port : join->plan().params) {
        const std::string there = name_at_slot(port.name, slot);
        keep(port.name, slot, there);
        if (port.name.starts_with(kNextSum))
          keep(port.name.substr(kNextSum.size() - kSumOfGradients.size()), slot + 1, there);
      }
    }
  for (size_t part = 0; part < sessions_.size(); ++part) {
    const auto& session = sessions_[part];
    if (!session) continue;
    const Plan& plan = session->plan();
    TEGULA_TRY(session->bind_store(store));
    for (const Plan::Port& port : plan.params)
      if (port.role == Role::kInput && !flows(port.name)) inputs_[port.name].data.resize(n);
    for (const Plan::Port& r : plan.results)
      if (plan.find_param(r.name) < 0) {
        Kept& kept = kept_[r.name];
        kept.type = r.tensor.type;
        kept.bytes.resize(n);
        for (const PartRun& run : p.order)
          if (static_cast<size_t>(run.part) == part)
            kept.bytes[run.micro_batch].resize(static_cast<size_t>(kept.type.bytes()));
      }
  }
  return {};
}

Status ProgramSession::bind(std::string_view input, int micro_batch, void* data) {
  const auto at = inputs_.find(input);
  if (at == inputs_.end()) return invalid_argument(cat("no part reads an input \"", input, "\""));
  for (size_t m = 0; m < at->second.data.size(); ++m)
    if (micro_batch < 0 || static_cast<size_t>(micro_batch) == m) at->second.data[m] = data;
  return {};
}

Status ProgramSession::run() {
  waited_s_ = 0, ran_.clear();
  for (size_t i = 0; i < program_->steps.size(); ++i) {
    const ProgramStep& s = program_->steps[i];
    const double began_s = is_recorded_ ? steady_seconds() : 0;
    TEGULA_TRY(s.kind <= ProgramStep::Kind::kJoin ? run(s) : exchange(s));
    if (!is_recorded_) continue;
    ran_.push_back({i, -1, began_s, steady_seconds()});
    const Session* part = s.kind == ProgramStep::Kind::kRun ? sessions_[s.run.part].get() : nullptr;
    for (size_t k = 0; part && part->stats() && k < part->plan().steps.size(); ++k)
      if (const StepStats& t = (*part->stats())[k];
          t.ended_s > 0 && part->plan().steps[k].op->collective)
        ran_.push_back({i, static_cast<int>(k), t.began_s, t.ended_s});
  }
  return {};
}

// A message is an errand of two ranks: both show where it lies, and the one that it goes to has it
// brought. The other one needs nothing.
Status ProgramSession::exchange(const ProgramStep& s) {
  using Kind = ProgramStep::Kind;
  const auto i = static_cast<size_t>(s.message);
  const Message& m = program_->messages[i];
  const TensorRef& at = messages_[i];
  if (s.kind == Kind::kClear) {
    std::memset(at.data, 0, static_cast<size_t>(m.bytes));
    return {};
  }
  const bool sends = m.from == program_->rank;
  Errand*& errand = errands_[i];
  if (!errand) {
    errand = &rank_->peers->errand_with(kPipelineAxis, sends ? m.to : m.from, m.number);
    if (!sends)
      moves_[i] = {.giver = 1 - errand->index(), .bytes = m.bytes, .to = at.as<uint8_t>()};
  }
  rank_->peers->begin(texts_[i], kPipelineAxis, "the pipeline", i);
  const double start_s = steady_seconds();
  bool is_there = true;
  switch (s.kind) {
    case Kind::kExpect:  // the message that had the number before is done with
      is_there = errand->end();
      if (is_there) errand->post(at, at, std::span(&moves_[i], 1));
      break;
    case Kind::kSend:
      errand->post(at, at, {});
      break;
    case Kind::kReceive:
      is_there = errand->wait();
      break;
    default:
      is_there = errand->wait() && errand->end();
  }
  waited_s_ += steady_seconds() - start_s;
  return is_there ? Status() : io_error("another rank failed");
}

// Sums of a slot, and of the next one for a join.
void ProgramSession::bind_sums(Session& session, int slot) {
  const Plan& plan = session.plan();
  for (size_t i = 0; i < plan.params.size(); ++i)
    if (is_sum_of_gradients(plan.params[i].name))
      session.bind(static_cast<int>(i), sums_.find(plan.params[i].name)->second[slot]);
}

Status ProgramSession::run(const ProgramStep& s) {
  const PlannedProgram& p = *program_;
  const PartRun& r = s.run;
  const auto at = static_cast<size_t>(r.part);
  if (instead_) {
    if (s.kind == ProgramStep::Kind::kRun) instead_(context_, r);
    return {};
  }
  if (s.kind == ProgramStep::Kind::kJoin) {
    bind_sums(*joins_[at], s.slot);
    return joins_[at]->run();
  }
  if (at < joins_.size() && joins_[at]) bind_sums(*sessions_[at], s.slot);
  Session& session = *sessions_[r.part];
  const Plan& plan = session.plan();
  const auto m = static_cast<size_t>(r.micro_batch);
  for (size_t f = 0; f < p.program.flows.size(); ++f) {
    if (p.is_state(f)) continue;
    const int param = plan.find_param(p.program.flows[f].name);
    if (param < 0) continue;
    const std::vector<int64_t>& at = p.offsets[f];
    session.bind(param, flows_at_ + at[std::min(m, at.size() - 1)]);
  }
  for (const auto& [name, input] : inputs_)
    if (const int param = plan.find_param(name); param >= 0) session.bind(param, input.data[m]);
  TEGULA_TRY(session.run());
  for (const Plan::Port& port : plan.results)
    if (const auto kept = kept_.find(port.name); kept != kept_.end()) {
      const TensorRef from = session.result(port.name);
      if (!from.is_contiguous())
        return unsupported(
            cat("result ", port.name, " of ", plan.name, " lies in memory with gaps"));
      std::memcpy(kept->second.bytes[m].data(), from.data, kept->second.bytes[m].size());
    }
  return {};
}

bool ProgramSession::has_result(std::string_view name, int micro_batch) const {
  const auto kept = kept_.find(name);
  return kept != kept_.end() && !kept->second.bytes[micro_batch].empty();
}

TensorRef ProgramSession::result(std::string_view name, int micro_batch) const {
  const auto kept = kept_.find(name);
  if (kept == kept_.end()) return {};
  const auto& bytes = kept->second.bytes[micro_batch];
  return contiguous_ref(const_cast<uint8_t*>(bytes.data()), kept->second.type);
}

void ProgramSession::watch(MemoryWatch* watch) {
  for (const auto* of : {&sessions_, &joins_})
    for (const auto& s : *of)
      if (s) s->watch(watch);
}

int64_t ProgramSession::counted_flops() const {
  int64_t sum = 0;
  for (const auto* of : {&sessions_, &joins_})
    for (const auto& s : *of)
      if (s) sum += s->counters().math_flops;
  return sum;
}

}  // namespace tegula
