#include "tegula/base/container.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tegula/base/thread_pool.h"

namespace tegula {
namespace {

// A /proc and a /sys of a test's own.
class Container : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "container-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void expect(double cpus, int64_t memory_bytes) const {
    const ContainerLimits limits = container_limits(root_);
    EXPECT_EQ(limits.cpus, cpus);
    EXPECT_EQ(limits.memory_bytes, memory_bytes);
  }
  std::string root_;
};

constexpr int64_t kMiB = 1 << 20;

TEST_F(Container, NothingIsLimitedWhereNothingSaysSo) {
  expect(0, 0);
  write("/proc/self/cgroup", "0::/\nnonsense\n:\n");
  write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda rw\nnonsense - cgroup2\n");
  expect(0, 0);
  write("/proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  expect(0, 0);
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/memory.max", "max\n");
  expect(0, 0);
}

// In a container of version 2 the group is the root of what it sees.
TEST_F(Container, Version2) {
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo",
        "30 22 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate\n");
  write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/memory.max", "536870912\n");
  expect(1.5, 512 * kMiB);
}

// A service's, or a batch system's job's: any group above may have the least limit.
TEST_F(Container, TheLeastOfAllGroupsAboveCounts) {
  write("/proc/self/cgroup", "0::/job.slice/step 1/task\n");
  write("/proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup\\0402 rw - cgroup2 cgroup2 rw\n");
  const std::string at = "/sys/fs/cgroup 2";
  write(at + "/job.slice/memory.max", "1073741824");
  write(at + "/job.slice/step 1/memory.max", "2147483648");
  write(at + "/job.slice/step 1/task/memory.max", "max");
  write(at + "/job.slice/cpu.max", "800000 100000");
  write(at + "/job.slice/step 1/task/cpu.max", "50000 50000");
  expect(1, 1024 * kMiB);
}

TEST_F(Container, Version1) {
  write("/proc/self/cgroup", "9:memory:/user/a\n4:cpu,cpuacct:/user\n1:name=systemd:/x\n0::/x\n");
  write("/proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string cpu = "/sys/fs/cgroup/cpu,cpuacct/user", memory = "/sys/fs/cgroup/memory";
  write(cpu + "/cpu.cfs_quota_us", "-1\n");
  write(cpu + "/cpu.cfs_period_us", "100000\n");
  write(memory + "/memory.limit_in_bytes", "9223372036854771712\n");  // none
  write(memory + "/user/a/memory.limit_in_bytes", "268435456\n");
  expect(0, 256 * kMiB);
  write(cpu + "/cpu.cfs_quota_us", "25000\n");
  expect(0.25, 256 * kMiB);
}

// A container of version 1 reads the host's path and sees its own group alone.
TEST_F(Container, PathsOfTheHost) {
  write("/proc/self/cgroup", "9:memory:/docker/4f2a\n4:cpu:/docker/4f2a/inner\n");
  write("/proc/self/mountinfo",
        "32 31 0:29 /docker/4f2a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
        "35 31 0:32 /../.. /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
  expect(3, kMiB);
}

TEST(UsableCores, FollowTheAffinityMask) {
  const int before = usable_cores();
  EXPECT_GE(before, 1);
  std::thread([] {  // the mask is a thread's
    cpu_set_t one;
    ASSERT_EQ(sched_getaffinity(0, sizeof one, &one), 0);
    int first = 0;
    while (!CPU_ISSET(first, &one)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cores(), 1);
  })
      .join();
  EXPECT_EQ(usable_cores(), before);
  EXPECT_GT(usable_memory(), 0);
}

}  // namespace
}  // namespace tegula
