#include "tegula/kernels/device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

namespace tegula {

namespace {
constexpr const char* kLibrary = "libtegula_cuda.so";
constexpr const char* kHowToBuild =
    "build it with script/build --cuda, or set TEGULA_CUDA_PLUGIN to its path";

std::string folder_of_program() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string_view text(path, n > 0 ? static_cast<size_t>(n) : 0);
  return std::string(text.substr(0, text.rfind('/')));
}

std::string path_of_plugin() {
  if (const char* own = std::getenv("TEGULA_CUDA_PLUGIN")) return own;
  const std::string folder = folder_of_program();
  for (const char* where : {"/", "/../lib/"})
    if (const std::string path = cat(folder, where, kLibrary); ::access(path.c_str(), R_OK) == 0)
      return path;
  return "";
}

Result<const DevicePlugin*> load() {
  const std::string path = path_of_plugin();
  if (path.empty())
    return unsupported(cat("no CUDA plug-in: ", kLibrary,
                           " lies neither beside the program nor in ", "../lib; ", kHowToBuild));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return unsupported(cat("the CUDA plug-in does not load: ", dlerror(), "; ", kHowToBuild));
  const auto entry =
      reinterpret_cast<const DevicePlugin* (*)()>(dlsym(library, "tegula_device_plugin"));
  if (entry == nullptr)
    return unsupported(
        cat(path, " is not a plug-in of Tegula: it lacks tegula_device_plugin; ", kHowToBuild));
  const DevicePlugin* plugin = entry();
  if (plugin->abi != kDeviceAbi)
    return unsupported(cat(path, " was built for another version of this program (interface ",
                           plugin->abi, ", expected ", kDeviceAbi, "): build both together"));
  return plugin;
}
}  // namespace

Result<const DevicePlugin*> load_device_plugin() {
  static const Result<const DevicePlugin*> plugin = load();
  return plugin;
}

const KernelLaunch* launch_of(const KernelDef& kernel) {
  const auto plugin = load_device_plugin();
  if (!plugin.ok()) return nullptr;
  for (const KernelLaunch* l : (*plugin)->launches())
    if (l->name == kernel.name) return l;
  return nullptr;
}

Result<Device*> open_device() {
  const DevicePlugin* plugin = TEGULA_TRY(load_device_plugin());
  return plugin->open();
}

std::vector<DeviceFact> examine_device() {
  const auto plugin = load_device_plugin();
  if (!plugin.ok()) return {{"plug-in", false, plugin.error().message}};
  std::vector<DeviceFact> facts = (*plugin)->examine();
  facts.insert(facts.begin(),
               {"plug-in", true, cat("loaded, with ", (*plugin)->launches().size(), " kernels")});
  return facts;
}

}  // namespace tegula
