// TuningTable: the tunings that a tuner found on this machine, kept in a file; what a plan reads.
//
// One file per machine, DIRECTORY/tunings-HASH.json, written whole and renamed, so that any number
// of processes may share it: a save first takes in what others have added. A file that is cut,
// altered, or of another version counts as empty, with a warning, and is replaced.
#pragma once

#include <map>
#include <string>

#include "tegula/kernels/kernel.h"

namespace tegula {

struct TunedCall {
  Tuning tuning;
  bool is_full = false;  // found under the larger budget
  int trials = 0, points = 0;
  double ms = 0, default_ms = 0;  // of the tuning; of the kernel's own rule
};

// Names a call: kernel, threads, attributes, and every operand's type and strides.
std::string tuning_key(const KernelDef& kernel, const KernelQuery& query);

class TuningTable {
 public:
  // In memory only.
  TuningTable() = default;
  // `machine` says all that timings depend on besides the call. Never fails: see warning().
  TuningTable(const std::string& directory, std::string machine);

  const TunedCall* find(const std::string& key) const;
  void put(const std::string& key, const TunedCall& call);
  size_t size() const { return calls_.size(); }
  // Does nothing for a table in memory.
  Status save();

  const std::string& path() const { return path_; }
  // Why the file was not used; empty if it was, or is not there yet.
  const std::string& warning() const { return warning_; }

 private:
  Status read(std::map<std::string, TunedCall>& calls) const;
  std::string path_, machine_, warning_;
  std::map<std::string, TunedCall> calls_;
};

}  // namespace tegula
