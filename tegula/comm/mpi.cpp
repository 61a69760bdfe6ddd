#include "tegula/comm/mpi.h"

#include "tegula/base/plugin.h"

namespace tegula {

namespace {
constexpr PluginKind kKind = {
    .name = "MPI",
    .library = "libtegula_mpi.so",
    .variable = "TEGULA_MPI_PLUGIN",
    .entry = "tegula_mpi_plugin",
    .how_to_build =
        "install Open MPI (script/bootstrap --mpi) and build again, set "
        "TEGULA_MPI_PLUGIN to its path, or leave out mpirun and give --processes",
    .is_global = true};  // MPI's own parts look for its symbols

Result<const MpiPlugin*> load() {
  const auto entry = reinterpret_cast<const MpiPlugin* (*)()>(TEGULA_TRY(open_plugin(kKind)));
  if (entry()->abi != kMpiAbi) return wrong_abi(kKind, entry()->abi, kMpiAbi);
  return entry();
}
}  // namespace

Result<const MpiPlugin*> load_mpi_plugin() {
  static const Result<const MpiPlugin*> plugin = load();
  return plugin;
}

}  // namespace tegula
