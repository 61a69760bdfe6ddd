#include "tegula/comm/mpi.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace tegula {

namespace {
constexpr const char* kLibrary = "libtegula_mpi.so";
constexpr const char* kHowToBuild =
    "install Open MPI (script/bootstrap --mpi) and build again, set TEGULA_MPI_PLUGIN to its path, "
    "or leave out mpirun and give --processes";

std::string path_of_plugin() {
  if (const char* own = std::getenv("TEGULA_MPI_PLUGIN")) return own;
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  std::string folder(path, n > 0 ? static_cast<size_t>(n) : 0);
  folder.resize(std::min(folder.rfind('/'), folder.size()));
  for (const char* where : {"/", "/../lib/"})
    if (const std::string file = cat(folder, where, kLibrary); ::access(file.c_str(), R_OK) == 0)
      return file;
  return "";
}

Result<const MpiPlugin*> load() {
  const std::string path = path_of_plugin();
  if (path.empty())
    return unsupported(cat("no MPI plug-in: ", kLibrary,
                           " lies neither beside the program nor in ../lib: ", kHowToBuild));
  // MPI's own parts look for its symbols.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return unsupported(cat("the MPI plug-in does not load: ", ::dlerror(), ": ", kHowToBuild));
  const auto entry =
      reinterpret_cast<const MpiPlugin* (*)()>(::dlsym(library, "tegula_mpi_plugin"));
  if (!entry)
    return unsupported(
        cat(path, " is no MPI plug-in of tegula (it lacks tegula_mpi_plugin): ", kHowToBuild));
  if (entry()->abi != kMpiAbi)
    return unsupported(cat(path, " was built for another version of this program (interface ",
                           entry()->abi, ", expected ", kMpiAbi, "): build both together"));
  return entry();
}
}  // namespace

Result<const MpiPlugin*> load_mpi_plugin() {
  static const Result<const MpiPlugin*> plugin = load();
  return plugin;
}

}  // namespace tegula
