// This binary runs itself as a program that launches processes: the disabled tests are programs.
#include "tegula/comm/launch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "tegula/runtime/rank_group.h"

namespace tegula {
namespace {

struct Done {
  int code = -1;
  std::string text;
  double seconds = 0;
};

Done run_program(const std::string& name) {
  const auto start = std::chrono::steady_clock::now();
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  const std::string command =
      cat(std::string_view(self, static_cast<size_t>(n)), " --gtest_filter=LaunchProgram.DISABLED_",
          name, " --gtest_also_run_disabled_tests 2>&1");
  Done done;
  FILE* f = ::popen(command.c_str(), "r");
  char line[4096];
  while (std::fgets(line, sizeof line, f)) done.text += line;
  done.code = WEXITSTATUS(::pclose(f));
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return done;
}

template <class F>
void launch_ranks(const char* mesh_text, int64_t restarts, F rank) {
  const Mesh mesh = *mesh_from_text(mesh_text);
  auto here = launched();
  ASSERT_TRUE(here.ok());
  if (here->segment) {
    RankGroup group(mesh, *here->segment);
    std::_Exit(rank(group, here->resumes));
  }
  Launch l{{mesh.n_ranks(), mesh.n_ranks(), RankGroup::flow_bytes(mesh), 1 << 20}, restarts};
  l.note = [](const std::string& text) { std::printf("note %s\n", text.c_str()); };
  const auto code = launch(l);
  std::printf("result %s\n", code.ok() ? cat(*code).c_str() : code.error().message.c_str());
  std::fflush(stdout);
  std::_Exit(0);
}

// Round a ring of meetings: 0 waits for 2, that for 3, that for 1, that for 0.
TEST(LaunchProgram, DISABLED_Deadlock) {
  launch_ranks("dp=2,tp=2", 0, [](RankGroup& group, bool) {
    const int64_t r = group.first_rank();
    const char* axis = r == 0 || r == 3 ? "dp" : "tp";
    const Status st = group.run([&](int64_t rank) -> Status {
      group.peers(rank).begin(r == 0 ? "all_reduce" : "all_gather", axis, "step", 3);
      return group.peers(rank).meet(axis) ? Status() : io_error("another rank failed");
    });
    return st.ok() ? 0 : 1;
  });
}
TEST(Launch, RanksThatAllWaitAreNamedWithTheirCalls) {
  const Done done = run_program("Deadlock");
  EXPECT_NE(
      done.text.find("all ranks wait for one another: rank 0 waiting in call 1, all_reduce "
                     "over dp (step 3 of step), rank 1 waiting in call 1, all_gather over tp"),
      std::string::npos)
      << done.text;
  EXPECT_LT(done.seconds, 8);
}

TEST(LaunchProgram, DISABLED_Abort) {
  launch_ranks("dp=2", 0, [](RankGroup& group, bool) {
    TEGULA_CHECK(group.first_rank() == 0, "rank 1 is broken");
    return group.segment().exchange("").ok() ? 0 : 1;
  });
}
TEST(Launch, TheLastWordsOfACrashAreTold) {
  const Done done = run_program("Abort");
  EXPECT_NE(done.text.find("rank 1 (process "), std::string::npos) << done.text;
  EXPECT_NE(done.text.find("SIGABRT"), std::string::npos) << done.text;
  EXPECT_NE(done.text.find("rank 1 is broken"), std::string::npos) << done.text;
}

TEST(LaunchProgram, DISABLED_Restarts) {
  launch_ranks("dp=2", 2, [](RankGroup& group, bool resumes) {
    Segment& s = group.segment();
    if (!s.exchange("").ok()) return 1;
    if (resumes) {
      std::puts("went on");
      std::fflush(stdout);
      return 0;
    }
    s.note_saved(3);
    if (s.process() == 1) ::raise(SIGKILL);
    return s.exchange("").ok() ? 0 : 1;
  });
}
TEST(Launch, ARestartKnowsThatTheRunHasSaved) {
  const Done done = run_program("Restarts");
  EXPECT_NE(done.text.find("starting anew (1 of 2) from the last checkpoint"), std::string::npos)
      << done.text;
  EXPECT_NE(done.text.find("went on"), std::string::npos) << done.text;
  EXPECT_NE(done.text.find("result 0"), std::string::npos) << done.text;
}

}  // namespace
}  // namespace tegula
