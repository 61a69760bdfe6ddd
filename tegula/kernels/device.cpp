#include "tegula/kernels/device.h"

#include "tegula/base/plugin.h"

namespace tegula {

namespace {
constexpr PluginKind kKind = {
    .name = "CUDA",
    .library = "libtegula_cuda.so",
    .variable = "TEGULA_CUDA_PLUGIN",
    .entry = "tegula_device_plugin",
    .how_to_build = "build it with script/build --cuda, or set TEGULA_CUDA_PLUGIN to its path"};

Result<const DevicePlugin*> load() {
  const auto entry = reinterpret_cast<const DevicePlugin* (*)()>(TEGULA_TRY(open_plugin(kKind)));
  const DevicePlugin* plugin = entry();
  if (plugin->abi != kDeviceAbi) return wrong_abi(kKind, plugin->abi, kDeviceAbi);
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
