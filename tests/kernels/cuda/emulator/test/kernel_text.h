// A text through NVRTC and the driver that the environment names: the emulated ones.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda::testing {

inline const Driver& driver() { return **Driver::get(); }

// Elements in the device's memory.
template <class T>
class DeviceMemory {
 public:
  explicit DeviceMemory(std::vector<T> host) : host_(std::move(host)) {
    EXPECT_EQ(driver().allocate(&data_, bytes()), 0);
    EXPECT_EQ(driver().copy(data_, host_.data(), bytes()), 0);
  }
  explicit DeviceMemory(size_t n) : DeviceMemory(std::vector<T>(n)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { driver().release(data_); }
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> host() const {
    std::vector<T> out(host_.size());
    EXPECT_EQ(driver().copy(out.data(), data_, bytes()), 0);
    return out;
  }

 private:
  size_t bytes() const { return host_.size() * sizeof(T); }
  std::vector<T> host_;
  void* data_ = nullptr;
};

struct Shape {
  unsigned blocks = 1, threads = 32, smem_bytes = 0;
  StreamHandle stream = nullptr;
};

// One kernel, named `kernel`, of a text.
class KernelText {
 public:
  explicit KernelText(const std::string& text) {
    const Result<Compiled> c = compile_text("tests/emulator/text.cu",
                                            "#include \"tegula/kernels/cuda/ptx/cp_async.cuh\"\n"
                                            "#include \"tegula/kernels/cuda/ptx/sync.cuh\"\n"
                                            "using namespace tegula::cuda;\n#line 1\n" +
                                                text,
                                            {}, "sm_80");
    if (!c.ok()) {
      ADD_FAILURE() << c.error().message;
      return;
    }
    module_.emplace(std::move(Module::load(c->cubin).value()));
    if (const auto f = module_->function("kernel", 0); f.ok())
      function_ = *f;
    else
      ADD_FAILURE() << f.error().message;
  }
  FunctionHandle function() const { return function_; }

  // The driver's status.
  template <class... Args>
  int launch(const Shape& s, Args... args) const {
    if (function_ == nullptr) return -1;
    void* arguments[] = {&args..., nullptr};
    return driver().launch(function_, s.blocks, 1, 1, s.threads, 1, 1, s.smem_bytes, s.stream,
                           arguments, nullptr);
  }
  // The message of the driver of a launch that must fail.
  template <class... Args>
  std::string failure(const Shape& s, Args... args) const {
    const int status = launch(s, args...);
    EXPECT_NE(status, 0);
    return driver().check(status, "a launch").ok()
               ? ""
               : driver().check(status, "a launch").error().message;
  }

 private:
  std::optional<Module> module_;
  FunctionHandle function_ = nullptr;
};

inline void expect_says(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(message.find(word), std::string::npos) << word << "\n" << message;
}

// A variable of the environment, for as long as this lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace tegula::cuda::testing
