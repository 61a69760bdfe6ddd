// The kernel cache: found again, rebuilt when damaged, bounded, shared by processes, and never a
// reason to fail. Needs NVRTC, and no GPU.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tegula/kernels/cuda/cache.h"

namespace tegula::cuda {
namespace {

namespace fs = std::filesystem;

class CudaCache : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto version = nvrtc_version(); !version.ok())
      GTEST_SKIP() << version.error().message;
    cache_.folder = cat(::testing::TempDir(), "kernel-cache-", ::getpid(), "-",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(cache_.folder);
  }
  void TearDown() override { fs::remove_all(cache_.folder); }

  CachedKernel compile(int head_dim = 64) {
    Result<CachedKernel> k = compile_cached(
        cache_, "attention_tiled.cu", std::vector<std::string>{cat("TEGULA_HEAD_DIM=", head_dim)});
    EXPECT_TRUE(k.ok()) << k.error().message;
    return std::move(k).value();
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto& e : fs::directory_iterator(cache_.folder))
      if (e.path().extension() == ".cubin") found.push_back(e.path());
    return found;
  }

  KernelCache cache_;
};

TEST_F(CudaCache, FindsWhatItKept) {
  const CachedKernel first = compile(), second = compile(), other = compile(128);
  EXPECT_FALSE(first.was_found);
  EXPECT_TRUE(second.was_found);
  EXPECT_FALSE(other.was_found);  // other defines are another variant
  EXPECT_EQ(first.note + second.note + other.note, "");
  EXPECT_EQ(first.kernel.cubin, second.kernel.cubin);
  EXPECT_EQ(first.kernel.registers, second.kernel.registers);
  EXPECT_NE(first.kernel.cubin, other.kernel.cubin);
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(CudaCache, RebuildsADamagedEntry) {
  const std::string whole = compile().kernel.cubin;
  const fs::path entry = entries().at(0);
  const auto size = fs::file_size(entry);
  const std::pair<const char*, std::function<void()>> damages[] = {
      {"cut short", [&] { fs::resize_file(entry, size / 2); }},
      {"empty", [&] { fs::resize_file(entry, 0); }},
      {"one byte other",
       [&] {
         std::fstream f(entry, std::ios::in | std::ios::out | std::ios::binary);
         f.seekg(static_cast<std::streamoff>(size - 100));
         const int old = f.get();
         f.seekp(static_cast<std::streamoff>(size - 100));
         f.put(static_cast<char>(old ^ 1));
       }},
      {"something else", [&] { std::ofstream(entry) << "hello"; }},
  };
  for (const auto& [name, damage] : damages) {
    damage();
    const CachedKernel again = compile();
    EXPECT_FALSE(again.was_found) << name;
    EXPECT_NE(again.note.find("damaged"), std::string::npos) << name << ": " << again.note;
    EXPECT_EQ(again.kernel.cubin, whole) << name;
    EXPECT_TRUE(compile().was_found) << name;
  }
}

TEST_F(CudaCache, DropsWhatWasUsedLongestAgo) {
  compile(64);
  const fs::path old = entries().at(0);
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(1));
  cache_.limit_bytes = static_cast<int64_t>(fs::file_size(old)) + 1;
  compile(128);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_EQ(entries().size(), 1U);
  EXPECT_TRUE(compile(128).was_found);
}

TEST_F(CudaCache, AFolderThatCannotBeUsedIsNoReasonToFail) {
  const std::string file = cat(::testing::TempDir(), "not-a-folder-", ::getpid());
  std::ofstream(file) << "x";
  for (const std::string& folder : {file, file + "/below", std::string()}) {
    cache_.folder = folder;
    const CachedKernel k = compile();
    EXPECT_FALSE(k.was_found);
    EXPECT_FALSE(k.kernel.cubin.empty());
    EXPECT_NE(k.note, "") << folder;
  }
  fs::remove(file);
}

// A file may grow to so many bytes in this process: what a full disk does, without one.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_), std::signal(SIGXFSZ, handler_); }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(CudaCache, AFullDiskIsNoReasonToFail) {
  CachedKernel k;
  {
    const FullDisk full(1000);
    k = compile();
  }
  EXPECT_FALSE(k.kernel.cubin.empty());
  EXPECT_NE(k.note.find("could not keep"), std::string::npos) << k.note;
  EXPECT_NE(k.note.find("File too large"), std::string::npos) << k.note;
  EXPECT_NE(k.note.find("TEGULA_KERNEL_CACHE"), std::string::npos) << k.note;
  EXPECT_TRUE(entries().empty());
  for (const auto& e : fs::directory_iterator(cache_.folder))
    EXPECT_NE(e.path().extension(), ".draft") << e.path();
  EXPECT_EQ(compile().note, "");  // there is room again
  EXPECT_TRUE(compile().was_found);
}

TEST_F(CudaCache, SaysWhatIsWrongWithItsFolder) {
  EXPECT_EQ(cache_.why_unusable(), "");
  cache_.folder = "/proc/nowhere";
  EXPECT_NE(cache_.why_unusable().find("/proc/nowhere"), std::string::npos);
  cache_.folder = "";
  EXPECT_NE(cache_.why_unusable().find("TEGULA_KERNEL_CACHE"), std::string::npos);
}

TEST_F(CudaCache, FindsWithinMilliseconds) {
  compile();
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) EXPECT_TRUE(compile().was_found);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  std::printf("a cached variant is found in %.2f ms\n", ms / kTimes);
  EXPECT_LT(ms / kTimes, 20);
}

TEST_F(CudaCache, TwoProcessesCompileOnce) {
  constexpr int kProcesses = 4;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(compile().was_found ? 1 : 0);
    children.push_back(child);
  }
  int n_found = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    n_found += WEXITSTATUS(status);
  }
  EXPECT_EQ(n_found, kProcesses - 1);
  EXPECT_EQ(entries().size(), 1U);
}

TEST_F(CudaCache, ErrorsOfTheCompilerPass) {
  const Result<CachedKernel> k = compile_cached(cache_, "attention_tiled.cu", {});
  ASSERT_FALSE(k.ok());
  EXPECT_NE(k.error().message.find("TEGULA_HEAD_DIM"), std::string::npos) << k.error().message;
  EXPECT_TRUE(entries().empty());
}

}  // namespace
}  // namespace tegula::cuda
