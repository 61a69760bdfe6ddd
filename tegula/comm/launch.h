// Runs this command line once more in each of several processes, watches them, and ends all when
// one fails.
//
//   const Launched here = TEGULA_TRY(launched());
//   if (!here.segment) return launch({size, restarts, …});  // else this is one of them
//
// The launcher is no rank and holds no state. The first process has the standard streams; what the
// others print is kept, and shown where one ends by itself. A signal to the launcher (SIGINT,
// SIGTERM, SIGHUP, SIGTSTP, SIGCONT) goes to all; if it dies, so do they. A process that is killed
// or crashes is named at once with its ranks and what they were doing, one that is stopped
// (SIGSTOP) after 2 seconds, and so are ranks that wait for one another in different calls.
#pragma once

#include <string>

#include "tegula/base/memory.h"
#include "tegula/comm/segment.h"

namespace tegula {

struct Launch {
  Segment::Size size;
  int64_t restarts = 0;    // how often to start anew after one has died or stopped
  std::string input;       // what all read from their standard input
  bool has_input = false;  // else it is empty
  void (*note)(const std::string& text) = nullptr;
  std::string address = "127.0.0.1:0";  // where processes that are apart meet
};

// The exit code, that of the first process. Error: the first thing that went wrong.
Result<int> launch(const Launch& what);

// The launcher's words to its processes. Those that are apart have met, or the segment has failed,
// and the launcher says why.
struct Launched {
  std::unique_ptr<Segment> segment;  // null: nobody has launched this process
  bool resumes = false;              // an attempt before this one has saved
};
Result<Launched> launched();

}  // namespace tegula
