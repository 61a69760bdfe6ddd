#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include "cli/command.h"
#include "tegula/io/json.h"

namespace tegula::cli {

namespace {
std::atomic<bool> stop{false};
bool speaks = true;
bool has_output = true;  // standard output was open at the start
volatile std::sig_atomic_t signal_number = 0;

// A second one, of any kind, does not wait for the step's end. A save in its middle is left as it
// is: it has no name yet, and the last checkpoint stays the last one.
void on_signal(int number) {
  constexpr std::string_view kFirst =
      "\nstopping after this step; once more to stop at once, without saving\n";
  constexpr std::string_view kSecond = "\nstopped at once; the last checkpoint stays\n";
  const bool is_second = stop.exchange(true);
  const std::string_view text = is_second ? kSecond : kFirst;
  if (speaks) (void)!::write(STDERR_FILENO, text.data(), text.size());
  if (is_second) ::_exit(128 + number);
  signal_number = number;
}

void end_process() {
  const int code = report_exception();
  std::fflush(stdout);
  ::_exit(code);
}
}  // namespace

void prepare_process() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      if (fd == STDOUT_FILENO) has_output = false;
      // The lowest number that is free is fd. What is written to a stream opened for reading fails.
      const int null = ::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
      if (null >= 0 && null != fd) ::close(null);
    }
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  std::set_terminate(end_process);
}

void print_line(const Json& json) { print_text(json.dump() + "\n"); }

int report_exception() {
  const char* what = "an exception that is none of C++";
  try {
    if (const auto e = std::current_exception()) std::rethrow_exception(e);
  } catch (const std::bad_alloc&) {
    std::fputs(
        "tegula: error: out of memory: choose a smaller model, batch or text, or raise the limit "
        "(ulimit -v)\n",
        stderr);
    return kEnvironment;
  } catch (const std::exception& e) {
    what = e.what();
    std::fprintf(stderr, "tegula: error: %s: this is a fault of tegula's; please report it\n",
                 what);
    return kEnvironment;
  } catch (...) {
  }
  std::fprintf(stderr, "tegula: error: %s: this is a fault of tegula's; please report it\n", what);
  return kEnvironment;
}

bool is_reader_gone(int fd) {
  pollfd at{fd, 0, 0};
  return ::poll(&at, 1, 0) == 1 && (at.revents & POLLERR) != 0;
}

void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_note(std::string_view text) {
  std::fprintf(stderr, "note: %s\n", printable(text).c_str());
}

bool is_output_lost() {
  return !has_output || std::ferror(stdout) != 0 || is_reader_gone(STDOUT_FILENO);
}

int finish_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  if (is_reader_gone(STDOUT_FILENO)) return exit_code ? exit_code : 128 + SIGPIPE;
  if (!has_output) {
    std::fputs(
        "tegula: error: cannot write the output: standard output is closed; redirect it to a file "
        "or to /dev/null\n",
        stderr);
    return exit_code ? exit_code : kInput;
  }
  std::fputs("tegula: error: cannot write all of the output: is the disk full?\n", stderr);
  return exit_code ? exit_code : kEnvironment;
}

std::atomic<bool>& stop_requested() { return stop; }
int stop_signal() { return signal_number; }

void catch_stop_signals(bool speaks_of_them) {
  speaks = speaks_of_them;
  for (const int each : {SIGINT, SIGTERM, SIGHUP})
    // Under nohup a lost terminal is no reason to stop.
    if (std::signal(each, on_signal) == SIG_IGN && each == SIGHUP) std::signal(each, SIG_IGN);
}

void stop_if_unread() {
  if (stop.load() || !is_reader_gone(STDERR_FILENO)) return;
  signal_number = SIGPIPE;
  stop.store(true);
}

}  // namespace tegula::cli
