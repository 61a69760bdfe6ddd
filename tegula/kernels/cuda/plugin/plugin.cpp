// The exports of libtegula_cuda.so.
#include "tegula/kernels/cuda/cache.h"
#include "tegula/kernels/cuda/plugin/ahead.h"
#include "tegula/kernels/cuda/plugin/cuda_device.h"

namespace tegula {
std::span<const KernelLaunch* const> cuda_launches();  // generated from plugin/launches
}

namespace tegula::cuda {

namespace {

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

DeviceFact driver_fact() {
  const auto driver = Driver::get();
  if (!driver.ok()) return {"driver", false, driver.error().message};
  int version = 0;
  (*driver)->version(&version);
  return {"driver", true, cat("serves CUDA ", version_text(version))};
}

DeviceFact device_fact() {
  if (!Driver::get().ok()) return {"device", false, "unknown without a driver"};
  const auto device = open_cuda_device();
  if (!device.ok()) return {"device", false, device.error().message};
  const Target& i = (*device)->target();
  return {"device", true,
          cat(i.name, ", compute capability ", i.capability / 10, ".", i.capability % 10, ", ",
              i.multiprocessors, " multiprocessors, ", i.memory_bytes >> 30, " GiB")};
}

DeviceFact compiler_fact() {
  const auto version = nvrtc_version();
  if (!version.ok()) return {"compiler", false, version.error().message};
  int driver = 0;
  if (Driver::get().ok()) (*Driver::get())->version(&driver);
  const int major = std::atoi(version->c_str());
  if (driver != 0 && major > driver / 1000)
    return {"compiler", false,
            cat("NVRTC ", *version, " is newer than the driver, which serves CUDA ",
                version_text(driver), ": update the driver, or set TEGULA_NVRTC to an older one")};
  return {"compiler", true, cat("NVRTC ", *version)};
}

std::vector<DeviceFact> examine() {
  const int n_ahead = ahead_count();
  const KernelCache cache = KernelCache::standard();
  const std::string unusable = cache.why_unusable();
  return {driver_fact(),
          device_fact(),
          compiler_fact(),
          {"built-in kernels", n_ahead > 0,
           n_ahead > 0 ? cat(n_ahead, " variants")
                       : std::string("none: NVRTC was not there when the plug-in was built; every "
                                     "variant is compiled when it is first used")},
          {"kernel cache", unusable.empty(), unusable.empty() ? cache.folder : unusable}};
}

constexpr DevicePlugin kPlugin{kDeviceAbi, cuda_launches, open_cuda_device, examine};

}  // namespace
}  // namespace tegula::cuda

extern "C" __attribute__((visibility("default"))) const tegula::DevicePlugin*
tegula_device_plugin() {
  return &tegula::cuda::kPlugin;
}
