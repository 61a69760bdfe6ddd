// ProgramSession: a planned program bound to memory; run() is one optimizer step on one rank, all
// stages in turns, in the order of its schedule.
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
#include "tegula/plan/program.h"
#include "tegula/runtime/session.h"

namespace tegula {

class ProgramSession {
 public:
  // Takes one arena and the memory for flows.
  static Result<std::unique_ptr<ProgramSession>> create(
      std::shared_ptr<const PlannedProgram> program, Rank& rank, Store& store);

  // An input of a micro-batch, or the same for all (-1). Error: no part reads it.
  Status bind(std::string_view input, int micro_batch, void* data);
  // Error: an input without memory; a part's own.
  Status run();

  // A part's result that neither flows nor is state; of parts that run once, micro-batch 0.
  TensorRef result(std::string_view name, int micro_batch = 0) const;

  const PlannedProgram& program() const { return *program_; }
  int64_t counted_flops() const;
  Region& flows() { return flows_; }
  Region& arena() { return arena_; }

 private:
  explicit ProgramSession(std::shared_ptr<const PlannedProgram> p) : program_(std::move(p)) {}
  Status run(const PartRun& r);

  struct Input {
    std::vector<void*> data;  // per micro-batch
  };
  struct Kept {
    Type type;
    std::vector<std::vector<uint8_t>> bytes;  // per micro-batch
  };
  std::shared_ptr<const PlannedProgram> program_;
  Region arena_, flows_;
  std::vector<std::unique_ptr<Session>> sessions_;  // of each part that runs
  std::map<std::string, Input, std::less<>> inputs_;
  std::map<std::string, Kept, std::less<>> kept_;
};

}  // namespace tegula
