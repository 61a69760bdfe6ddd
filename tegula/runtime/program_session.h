// ProgramSession: a planned program bound to memory; run() is one optimizer step on one rank, all
// stages in turns, in the order of its schedule; or what one rank of a pipeline does of it, which
// exchanges flows with the others along the axis "pp" (runtime/rank_group.h).
//
//   auto s = ProgramSession::create(planned, rank, store);   // weights and state by name
//   s->bind("tokens", micro_batch, data);
//   s->run();
//   s->result("loss", micro_batch).as<float>()[0];
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/moves.h"
#include "tegula/plan/program.h"
#include "tegula/runtime/session.h"

namespace tegula {

class ProgramSession {
 public:
  // Takes one arena and the memory for flows.
  static Result<std::unique_ptr<ProgramSession>> create(
      std::shared_ptr<const PlannedProgram> program, Rank& rank, Store& store);
  // In memory that someone else owns: programs that run in turns share it.
  struct Memory {
    void* arena = nullptr;
    void* flows = nullptr;
    // Called for each run instead of its part, of which nothing is bound: a run that only takes
    // time and messages. Null: parts run.
    void (*instead)(void* context, const PartRun& run) = nullptr;
    void* context = nullptr;
  };
  static Result<std::unique_ptr<ProgramSession>> create(
      std::shared_ptr<const PlannedProgram> program, Rank& rank, Store& store,
      const Memory& memory);

  // An input of a micro-batch, or the same for all (-1). Error: no part reads it.
  Status bind(std::string_view input, int micro_batch, void* data);
  // Error: an input without memory; a part's own.
  Status run();

  // A part's result that neither flows nor is state; of parts that run once, micro-batch 0.
  TensorRef result(std::string_view name, int micro_batch = 0) const;

  // Whether a part that runs makes it, of any micro-batch or of this one.
  bool has_result(std::string_view name) const { return kept_.contains(name); }
  bool has_result(std::string_view name, int micro_batch) const;
  bool has_input(std::string_view name) const { return inputs_.contains(name); }

  const PlannedProgram& program() const { return *program_; }
  // Sessions of the parts that run; null: of the others.
  const std::vector<std::unique_ptr<Session>>& sessions() const { return sessions_; }
  void watch(MemoryWatch* watch);
  // Seconds that the last run waited for others: for what it needed, and for what was not taken.
  double waited_s() const { return waited_s_; }
  // When the last run did what, by the machine's steady clock: its program's steps in their order,
  // behind each the collectives within it, if its session collects times. Nothing but where
  // record(true) was called.
  struct Ran {
    size_t step = 0;      // of the program
    int collective = -1;  // step of its part's plan; -1: all of it
    double began_s = 0, ended_s = 0;
  };
  void record(bool is_recorded) { is_recorded_ = is_recorded; }
  const std::vector<Ran>& ran() const { return ran_; }
  int64_t counted_flops() const;
  Region& flows() { return flows_; }
  Region& arena() { return arena_; }

 private:
  explicit ProgramSession(std::shared_ptr<const PlannedProgram> p) : program_(std::move(p)) {}
  Status run(const ProgramStep& s);
  void bind_sums(Session& session, int slot);
  Status exchange(const ProgramStep& s);
  Status bind_parts(Store& store);

  struct Input {
    std::vector<void*> data;  // per micro-batch
  };
  struct Kept {
    Type type;
    std::vector<std::vector<uint8_t>> bytes;  // per micro-batch; empty: it is not run here
  };
  std::shared_ptr<const PlannedProgram> program_;
  Rank* rank_ = nullptr;
  Region arena_, flows_;
  uint8_t* flows_at_ = nullptr;
  void (*instead_)(void* context, const PartRun& run) = nullptr;
  void* context_ = nullptr;
  std::vector<TensorRef> messages_;  // where each lies on this rank
  std::vector<std::string> texts_;   // what it is, for whoever watches
  std::vector<Errand*> errands_;     // of each message
  std::vector<Move> moves_;          // of those that come
  double waited_s_ = 0;
  bool is_recorded_ = false;
  std::vector<Ran> ran_;
  std::vector<std::unique_ptr<Session>> sessions_, joins_;  // of each part that runs, and sums
  // By parameter, where its sum of each slot lies.
  std::map<std::string, std::vector<void*>, std::less<>> sums_;
  std::map<std::string, Input, std::less<>> inputs_;
  std::map<std::string, Kept, std::less<>> kept_;
};

}  // namespace tegula
