// Settles what a process must with the system: standard streams, signals, and exceptions that
// nothing caught.
#pragma once

#include <atomic>
#include <string_view>

#include "cli/printable.h"

namespace tegula::cli {

// First in main. Standard streams that are closed are opened on /dev/null, so that no file that is
// opened later is written to as one of them; what is written to standard output then fails, as on
// a full disk. Writing beyond a limit on files, or to a reader that is gone,
// is an error of that write instead of the end of the process. An exception that nothing catches,
// on whatever thread, ends the process with one line.
void prepare_process();

// Prints the exception being handled as an error; returns the exit code.
int report_exception();

// Standard output gets all bytes of the text, a NUL too.
void print_text(std::string_view text);
// "note: …", one line of standard error.
void print_note(std::string_view text);

// Flushes standard output. What was lost on a full disk, or since the stream is closed, is an
// error; a reader that had enough (`| head -1`) is told by the code of SIGPIPE alone.
int finish_output(int exit_code);
// Whether some of the output is lost already, or nobody is there to read it.
bool is_output_lost();
// Whether the other end of a pipe, by its descriptor, is closed: there is nobody to go on for.
bool is_reader_gone(int fd);

// Set by SIGINT, SIGTERM and SIGHUP; a second signal ends the process at once. Which one, 0 if
// none.
std::atomic<bool>& stop_requested();
int stop_signal();
void catch_stop_signals(bool speaks = true);
// Where the reader of standard error is gone (`2>&1 | head -1`): stops as if by SIGPIPE.
void stop_if_unread();

}  // namespace tegula::cli
