// A loaded cubin: the library that emulated NVRTC made of a text, or, of a real one for a real GPU,
// nothing that runs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/kernels/cuda/emulator/driver/outcome.h"
#include "tests/kernels/cuda/emulator/machine.h"

namespace tegula::emulated {

class Module;

struct Function {
  const Module* module;
  const Kernel* kernel = nullptr;     // null: of a real cubin
  unsigned dynamic_bytes = 48 << 10;  // that a launch may ask for
};

// Where its static shared memory lies for the calling thread.
struct StaticShared {
  char* begin = nullptr;
  size_t bytes = 0;
};

class Module {
 public:
  static Outcome load(const void* image, Module** out);
  // Its handles may still lie in graphs, so nothing is freed: what is launched after fails.
  void unload() { is_unloaded_ = true; }
  bool is_unloaded() const { return is_unloaded_; }

  const Cubin* cubin() const { return cubin_; }  // null: real
  Function* function(const std::string& name);   // null: there is none
  void* global(const std::string& name) const;   // of the device's variables; null: there is none
  StaticShared static_shared() const;

 private:
  void* library_ = nullptr;
  bool is_unloaded_ = false;
  const Cubin* cubin_ = nullptr;
  std::map<std::string, std::unique_ptr<Function>> functions_;
};

}  // namespace tegula::emulated
