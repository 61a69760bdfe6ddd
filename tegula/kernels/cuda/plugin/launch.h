// What the KernelDefs of the plug-in share: a compiled variant is loaded once, and what goes wrong
// in a launch is told to the call's queue.
#pragma once

#include <map>
#include <memory>

#include "tegula/kernels/cuda/plugin/cuda_device.h"

namespace tegula::cuda {

// The code of a variant for the open device: built in, else from the kernel cache, else compiled.
Result<std::string> cubin_of(std::string_view source, const std::vector<std::string>& defines);

// The loaded kernel of that name; `load` makes it from its cubin the first time.
template <class Kernel, class Load>
Result<const Kernel*> loaded(const std::string& name, std::string_view source,
                             const std::vector<std::string>& defines, Load load) {
  // Never destroyed: the driver goes before statics do.
  static auto& kernels = *new std::map<std::string, std::unique_ptr<Kernel>>();
  const auto found = kernels.find(name);
  if (found != kernels.end()) return static_cast<const Kernel*>(found->second.get());
  const std::string cubin = TEGULA_TRY(cubin_of(source, defines));
  auto kernel = std::make_unique<Kernel>(TEGULA_TRY(load(cubin)));
  return static_cast<const Kernel*>((kernels[name] = std::move(kernel)).get());
}

// KernelDef::launch for a function that may fail. After a failure nothing more is launched.
template <Status (*kLaunch)(const DeviceCall&)>
void launch_into_queue(const KernelCall& given) {
  const auto& call = static_cast<const DeviceCall&>(given);
  if (call.queue->status.ok()) call.queue->status = kLaunch(call);
}

}  // namespace tegula::cuda
