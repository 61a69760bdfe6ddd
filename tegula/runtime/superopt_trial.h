// Times what the superoptimiser makes of a block on this machine or its device, compares its bits,
// and keeps what was found by the block's hash, so that the next search knows it:
// DIRECTORY/superopt-HASH.json.
#pragma once

#include "tegula/io/machine_file.h"
#include "tegula/passes/superopt/search.h"
#include "tegula/runtime/compile.h"

namespace tegula {

class MachineTrial final : public superopt::Trial {
 public:
  // Candidates are compiled as `options` say, without tuning, and run on the device, null: the CPU.
  // The file lies where tunings do.
  MachineTrial(const CompileOptions& options, Device* device);

  // Medians of interleaved rounds; in mode exact bits with an infinity, a NaN and −0 among random
  // inputs. Kernels of a device that no cache has are compiled first, until three quarters of the
  // seconds are gone: then no further kernel is begun, and who misses one is left out.
  Result<std::vector<Timed>> time(std::span<const Module> candidates, double seconds) override;
  double speed(uint64_t candidate) override;
  void keep_speed(uint64_t candidate, double times_faster) override;
  std::string recall(uint64_t block) override;
  void keep(uint64_t block, const std::string& text, bool is_whole) override;
  Status save() const;

 private:
  CompileOptions options_;
  Device* device_;
  std::string path_, machine_;
  Json kept_ = Json::object(), decided_ = Json::object();  // the second: not for the file
  bool is_changed_ = false;
};

}  // namespace tegula
