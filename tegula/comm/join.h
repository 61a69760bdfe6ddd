// How processes that are apart come together, whoever has started them.
#pragma once

#include <optional>
#include <string>

#include "tegula/base/memory.h"
#include "tegula/comm/segment.h"
#include "tegula/comm/tcp.h"

namespace tegula {

constexpr const char* kAddressVariable = "TEGULA_COMM_ADDRESS";  // of the first process
constexpr const char* kKeyVariable = "TEGULA_COMM_KEY";          // the run's secret

// Whoever else started this process as one of several: mpirun, or srun.
struct World {
  std::string starter;
  int64_t n_processes = 1, process = 0;
  std::string first_host;  // of srun's
  bool is_slurm() const { return starter == "srun"; }
};
// By the variables that they set. None: nobody, or one process.
std::optional<World> world();

enum class Engine { kShm, kTcp, kMpi };
// Takes what --transport says, or the best there is for who has started the processes.
Result<Engine> engine_of(std::string_view transport, const std::optional<World>& world);

// The segment of this process, which has met the others. size.is_apart.
Result<std::unique_ptr<Segment>> join(const World& world, Engine engine, const Segment::Size& size);

// Over TCP, by those two variables; the key's is then gone. The listener is the first process's, if
// somebody has opened it.
Status meet_apart(Segment& segment, Listener listener);

}  // namespace tegula
