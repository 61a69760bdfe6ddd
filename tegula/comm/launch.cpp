#include "tegula/comm/launch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tegula/base/algorithm.h"
#include "tegula/base/clock.h"
#include "tegula/comm/greeting.h"
#include "tegula/comm/join.h"
#include "tegula/comm/watch.h"

namespace tegula {

namespace {

// "descriptor process launcher resumes listener": of a launched process.
constexpr const char* kVariable = "TEGULA_LAUNCHED";
constexpr long kLook_ns = 100'000'000;
constexpr double kStopped_s = 2;  // a stop that is longer than this is for good
constexpr double kGrace_s = 2;    // for the others to end by themselves
constexpr uint32_t kManyBeats = 40;

std::vector<std::string> command_line() {
  std::vector<std::string> words;
  if (FILE* f = std::fopen("/proc/self/cmdline", "re")) {
    std::string word;
    for (int c = std::fgetc(f); c != EOF; c = std::fgetc(f))
      if (c == 0)
        words.push_back(std::move(word)), word.clear();
      else
        word += static_cast<char>(c);
    std::fclose(f);
  }
  return words;
}

int memory_file(std::string_view bytes) {
  const int fd = ::memfd_create("tegula-stream", MFD_CLOEXEC);
  for (size_t done = 0; fd >= 0 && done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return fd;
}

struct Process {
  pid_t pid = -1;
  int log = -1;            // what it printed; -1: it has the standard streams
  double stopped_at = -1;  // when it was; -1: it runs
  bool has_ended = false;
  int status = 0;
};

// One attempt.
class Run {
 public:
  Run(const Launch& what, Segment& segment) : what_(what), segment_(segment) {
    sigemptyset(&signals_);
    for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT})
      sigaddset(&signals_, s);
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  }
  Run(const Run&) = delete;
  ~Run() {
    for (Process& p : all_) {
      if (p.pid > 0 && !p.has_ended) ::kill(p.pid, SIGKILL), ::waitpid(p.pid, nullptr, 0);
      if (p.log >= 0) ::close(p.log);
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  Status start(bool resumes, int input);
  void wait();
  // A process died or stopped, and no fault of its own was told.
  bool has_lost_one() const { return has_lost_one_; }
  int exit_code() const {
    const int status = all_[0].status;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  void give_words(size_t i, bool resumes) const;
  [[noreturn]] void become(size_t i, int input, pid_t launcher, char* const* argv);
  void pass_on(int signal);
  void reap();
  void look_at_end(size_t i);
  void look_at_stops();
  void look_at_waits();
  void lose(size_t i, const std::string& how);
  std::string last_lines(const Process& p) const;

  const Launch& what_;
  Segment& segment_;
  std::vector<Process> all_;
  Listener listener_;  // of the first process
  std::string key_;
  sigset_t signals_{}, before_{};
  size_t n_alive_ = 0;
  double failed_at_ = -1;
  bool has_lost_one_ = false;
};

// In the child, before it runs the command anew: nothing here allocates, since another thread of
// the launcher may have held the lock of the heap.
void Run::become(size_t i, int input, pid_t launcher, char* const* argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  ::setpgid(0, all_[0].pid > 0 ? all_[0].pid : 0);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  char at[64];
  ::fcntl(segment_.fd(), F_SETFD, 0);
  if (i == 0 && listener_.fd() >= 0) ::fcntl(listener_.fd(), F_SETFD, 0);
  // Opened anew, so that each reads from the beginning.
  std::snprintf(at, sizeof at, "/proc/self/fd/%d", input);
  const int in = ::open(input >= 0 ? at : "/dev/null", O_RDONLY);
  if (in >= 0) ::dup2(in, STDIN_FILENO);
  if (in > STDERR_FILENO) ::close(in);
  if (all_[i].log >= 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDOUT_FILENO), ::dup2(all_[i].log, STDERR_FILENO);
    if (null > STDERR_FILENO) ::close(null);
  }
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

// In the variables that the child inherits.
void Run::give_words(size_t i, bool resumes) const {
  ::setenv(kVariable,
           cat(segment_.fd(), " ", i, " ", ::getpid(), resumes ? " 1 " : " 0 ",
               i == 0 ? listener_.fd() : -1)
               .c_str(),
           1);
  if (!what_.size.is_apart) return;
  ::setenv(kAddressVariable, listener_.address().c_str(), 1);
  ::setenv(kKeyVariable, key_.c_str(), 1);
}

Status Run::start(bool resumes, int input) {
  const pid_t launcher = ::getpid();
  const std::vector<std::string> words = command_line();
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  all_.resize(static_cast<size_t>(what_.size.n_processes));
  if (what_.size.is_apart) {
    listener_ = TEGULA_TRY(Listener::at(what_.address));
    const char* own = std::getenv(kKeyVariable);
    key_ = own && *own ? own : new_key();
  }
  for (size_t i = 0; i < all_.size(); ++i) {
    if (i > 0) all_[i].log = memory_file("");
    std::fflush(nullptr);
    give_words(i, resumes);
    all_[i].pid = ::fork();
    if (all_[i].pid == 0) become(i, input, launcher, argv.data());
    ::unsetenv(kVariable);
    if (all_[i].pid < 0)
      return out_of_memory(cat("cannot start process ", i, " of ", all_.size(), ": ",
                               std::strerror(errno), " (ulimit -u)"));
    ::setpgid(all_[i].pid, all_[0].pid);
    ++n_alive_;
  }
  listener_ = Listener();
  return {};
}

void Run::pass_on(int signal) {
  if (signal != SIGTSTP) {
    for (const Process& p : all_)
      if (!p.has_ended) ::kill(p.pid, signal);
    return;
  }
  for (const Process& p : all_)
    if (!p.has_ended) ::kill(p.pid, SIGSTOP);
  ::raise(SIGSTOP);  // until somebody lets all go on
  for (Process& p : all_)
    if (!p.has_ended) ::kill(p.pid, SIGCONT), p.stopped_at = -1;
}

void Run::wait() {
  while (n_alive_ > 0) {
    const timespec most{0, kLook_ns};
    const int signal = ::sigtimedwait(&signals_, nullptr, &most);
    if (signal > 0 && signal != SIGCHLD) pass_on(signal);
    reap();
    look_at_stops();
    look_at_waits();
    if (failed_at_ < 0 && segment_.failure()) failed_at_ = steady_seconds();
    if (failed_at_ >= 0 && steady_seconds() > failed_at_ + kGrace_s)
      for (const Process& p : all_)
        if (!p.has_ended) ::kill(p.pid, SIGKILL);
  }
}

void Run::reap() {
  for (size_t i = 0; i < all_.size(); ++i) {
    Process& p = all_[i];
    int status = 0;
    while (!p.has_ended && ::waitpid(p.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == p.pid) {
      if (WIFSTOPPED(status)) {
        p.stopped_at = steady_seconds();
      } else if (WIFCONTINUED(status)) {
        p.stopped_at = -1;
      } else {
        p.status = status, p.has_ended = true, --n_alive_;
        look_at_end(i);
      }
    }
  }
}

void Run::look_at_end(size_t i) {
  const Process& p = all_[i];
  if (WIFEXITED(p.status) && WEXITSTATUS(p.status) == 0) return;
  if (WIFSIGNALED(p.status)) {
    const int s = WTERMSIG(p.status);
    return lose(i, cat(" was killed by signal ", s, " (SIG", ::sigabbrev_np(s), ")"));
  }
  // Its own fault is told in the segment; the first process says the rest itself.
  if (segment_.failure() || i == 0) {
    if (failed_at_ < 0) failed_at_ = steady_seconds();
    return;
  }
  // Stopped by a signal like all.
  if (WEXITSTATUS(p.status) >= 128) return;
  lose(i, cat(" ended with code ", WEXITSTATUS(p.status)));
}

void Run::look_at_stops() {
  for (size_t i = 0; i < all_.size(); ++i) {
    const Process& p = all_[i];
    if (!p.has_ended && failed_at_ < 0 && p.stopped_at >= 0 &&
        steady_seconds() > p.stopped_at + kStopped_s)
      lose(i, cat(" has been stopped for ", kStopped_s, " seconds (SIGSTOP)"));
  }
}

// Each has looked many times in its wait, and nobody is left who could end it.
void Run::look_at_waits() {
  if (failed_at_ >= 0 || n_alive_ == 0) return;
  const auto has_ended = [](const void* run, int64_t process) {
    return static_cast<const Run*>(run)->all_[static_cast<size_t>(process)].has_ended;
  };
  if (const auto stuck = deadlock(segment_, kManyBeats, has_ended, this)) segment_.fail(-1, *stuck);
}

std::string Run::last_lines(const Process& p) const {
  if (p.log < 0) return "";
  char text[2048];
  const off_t size = ::lseek(p.log, 0, SEEK_END);
  const auto from = std::max<off_t>(0, size - static_cast<off_t>(sizeof text));
  const ssize_t n = ::pread(p.log, text, sizeof text, from);
  std::string all(text, n > 0 ? static_cast<size_t>(n) : 0);
  while (!all.empty() && all.back() == '\n') all.pop_back();
  const size_t line = all.rfind('\n');
  return line == all.npos ? all : all.substr(line + 1);
}

void Run::lose(size_t i, const std::string& how) {
  const Process& p = all_[i];
  std::string message = cat(ranks_of(segment_, static_cast<int64_t>(i)), " (process ", p.pid, ")",
                            how, ", ", doing(segment_, static_cast<int64_t>(i) * segment_.n_own()));
  const bool is_first = !segment_.failure();
  if (const std::string said = last_lines(p);
      !said.empty() && is_first && WIFSIGNALED(p.status) && WTERMSIG(p.status) != SIGKILL)
    message += cat("; it said: ", said);
  // A fault that it saw itself would come again.
  if (is_first) has_lost_one_ = WIFSIGNALED(p.status) || p.stopped_at >= 0;
  segment_.fail(-1, Error(Code::kDevice, message));
  if (failed_at_ < 0) failed_at_ = steady_seconds();
  // A process that is stopped does not see that all end.
  if (p.stopped_at >= 0) ::kill(p.pid, SIGKILL);
}

}  // namespace

Result<int> launch(const Launch& what) {
  const int input = what.has_input ? memory_file(what.input) : -1;
  bool resumes = false;
  for (int64_t attempt = 0;; ++attempt) {
    const auto segment = TEGULA_TRY(Segment::create(what.size));
    Run run(what, *segment);
    TEGULA_TRY(run.start(resumes, input));
    run.wait();
    auto failed = segment->failure();
    if (!failed) return run.exit_code();
    const int64_t saved = segment->saved_step();
    resumes = resumes || saved >= 0;
    if (!run.has_lost_one() || attempt == what.restarts) {
      Error e = std::move(failed->error);
      if (run.has_lost_one()) append(e.message, cat("; all ranks have ended"));
      return e;
    }
    what.note(cat(failed->error.message, ": starting anew (", attempt + 1, " of ", what.restarts,
                  ")", resumes ? " from the last checkpoint" : " from the beginning"));
  }
}

Result<Launched> launched() {
  const char* text = std::getenv(kVariable);
  if (!text) return Launched{};
  int fd = -1, process = -1, launcher = -1, resumes = 0, listener = -1;
  const int n = std::sscanf(text, "%d %d %d %d %d", &fd, &process, &launcher, &resumes, &listener);
  ::unsetenv(kVariable);
  // Somebody else's child that has inherited the variable is no rank.
  if (n != 5 || launcher != ::getppid()) return Launched{};
  Launched here{TEGULA_TRY(Segment::attach(fd, process)), resumes != 0};
  if (here.segment->is_apart()) {
    const Status met = meet_apart(*here.segment, Listener(listener));
    if (!met.ok()) here.segment->fail(-1, met.error());
  }
  return here;
}

}  // namespace tegula
