// The plug-in that carries frames by MPI: libtegula_mpi.so, built where mpicc is (comm/mpi).
#pragma once

#include "tegula/base/memory.h"
#include "tegula/comm/wire.h"

namespace tegula {

struct MpiPlugin {
  int64_t abi = 0;  // kMpiAbi of its build
  // Meets the processes of the run. Whoever calls it then drives the wire. Error: MPI's world is
  // another one.
  Result<std::unique_ptr<Wire>> (*open)(int64_t n_processes, int64_t process) = nullptr;
};

// Both sides are of one build: this catches a plug-in left over from another.
inline constexpr int64_t kMpiAbi =
    int64_t{1} << 40 | int64_t{sizeof(Frame)} << 16 | int64_t{sizeof(MpiPlugin)};

// Loads the plug-in once. It is $TEGULA_MPI_PLUGIN, or libtegula_mpi.so beside the program or in
// ../lib. Errors: unsupported, with what to do.
Result<const MpiPlugin*> load_mpi_plugin();

}  // namespace tegula
