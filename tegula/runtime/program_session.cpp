#include "tegula/runtime/program_session.h"

#include <cstring>

#include "tegula/base/algorithm.h"

namespace tegula {

Result<std::unique_ptr<ProgramSession>> ProgramSession::create(
    std::shared_ptr<const PlannedProgram> planned, Rank& rank, Store& store) {
  std::unique_ptr<ProgramSession> s(new ProgramSession(std::move(planned)));
  const PlannedProgram& p = *s->program_;
  s->arena_ = TEGULA_TRY(Region::between_guards(rank.memory, p.arena_bytes()));
  s->flows_ = TEGULA_TRY(Region::between_guards(rank.memory, p.flow_bytes));
  const auto n = static_cast<size_t>(p.program.n_micro_batches);
  const auto flows = [&](std::string_view name) {
    return std::any_of(p.program.flows.begin(), p.program.flows.end(),
                       [&](const Flow& f) { return f.name == name; });
  };
  const std::vector<uint8_t> runs = p.parts_that_run();
  for (size_t part = 0; part < p.plans.size(); ++part) {
    const auto& plan = p.plans[part];
    if (!runs[part]) {
      s->sessions_.push_back(nullptr);
      continue;
    }
    s->sessions_.push_back(std::make_unique<Session>(plan, rank, s->arena_.data()));
    TEGULA_TRY(s->sessions_.back()->bind_store(store));
    for (const Plan::Port& port : plan->params)
      if (port.role == Role::kInput && !flows(port.name)) s->inputs_[port.name].data.resize(n);
    for (const Plan::Port& r : plan->results)
      if (plan->find_param(r.name) < 0) {
        Kept& kept = s->kept_[r.name];
        kept.type = r.tensor.type;
        kept.bytes.assign(n, std::vector<uint8_t>(static_cast<size_t>(kept.type.bytes())));
      }
  }
  return s;
}

Status ProgramSession::bind(std::string_view input, int micro_batch, void* data) {
  const auto at = inputs_.find(input);
  if (at == inputs_.end()) return invalid_argument(cat("no part reads an input \"", input, "\""));
  for (size_t m = 0; m < at->second.data.size(); ++m)
    if (micro_batch < 0 || static_cast<size_t>(micro_batch) == m) at->second.data[m] = data;
  return {};
}

Status ProgramSession::run() {
  for (const PartRun& r : program_->order) TEGULA_TRY(run(r));
  return {};
}

Status ProgramSession::run(const PartRun& r) {
  const PlannedProgram& p = *program_;
  Session& session = *sessions_[static_cast<size_t>(r.part)];
  const Plan& plan = session.plan();
  const auto m = static_cast<size_t>(r.micro_batch);
  for (size_t f = 0; f < p.program.flows.size(); ++f) {
    if (p.is_state(f)) continue;
    const int param = plan.find_param(p.program.flows[f].name);
    if (param < 0) continue;
    const std::vector<int64_t>& at = p.offsets[f];
    session.bind(param, static_cast<uint8_t*>(flows_.data()) + at[std::min(m, at.size() - 1)]);
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

TensorRef ProgramSession::result(std::string_view name, int micro_batch) const {
  const auto kept = kept_.find(name);
  if (kept == kept_.end()) return {};
  const auto& bytes = kept->second.bytes[static_cast<size_t>(micro_batch)];
  return contiguous_ref(const_cast<uint8_t*>(bytes.data()), kept->second.type);
}

int64_t ProgramSession::counted_flops() const {
  int64_t sum = 0;
  for (const auto& s : sessions_)
    if (s) sum += s->counters().math_flops;
  return sum;
}

}  // namespace tegula
