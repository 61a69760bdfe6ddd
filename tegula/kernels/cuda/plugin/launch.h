// Shared by the launches of the plug-in: a compiled variant is loaded once, and a call that is made
// ready is a list of launches.
#pragma once

#include <map>

#include "tegula/base/memory.h"
#include "tegula/kernels/cuda/cache.h"
#include "tegula/kernels/cuda/launch_list.h"
#include "tegula/kernels/cuda/plugin/cuda_device.h"

namespace tegula::cuda {

// The code of a variant for the open device: built in, else from the kernel cache, else compiled.
Result<std::string> cubin_of(std::string_view source, const std::vector<std::string>& defines);
// The cubin of a text that no file holds; `path` is for messages. Any thread may ask.
Result<CachedKernel> cubin_of_text(const std::string& path, const std::string& text,
                                   const std::vector<std::string>& defines);

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

class PreparedLaunches : public Prepared {
 public:
  ~PreparedLaunches() override;
  // Memory with a copy of that of the host, as long as this lives.
  Result<void*> keep(const void* host, int64_t bytes);
  LaunchList list;
  Status enqueue(void* stream) const override { return list.enqueue(stream); }
  int64_t launches() const override { return static_cast<int64_t>(list.size()); }

 private:
  std::vector<void*> kept_;
};

// KernelLaunch::prepare by a function that launches into a stream or onto a list.
template <Status (*kLaunch)(const DeviceCall&, const Stream&)>
Result<std::unique_ptr<Prepared>> prepare_by(const DeviceCall& call) {
  auto prepared = std::make_unique<PreparedLaunches>();
  TEGULA_TRY(kLaunch(call, prepared->list));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

}  // namespace tegula::cuda
